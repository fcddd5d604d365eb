"""JSON-RPC as lines on pipes, with nothing between them and the one who sends or answers."""
