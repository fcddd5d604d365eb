"""A server made to be killed: it writes down each call before it runs it, so that what ran twice can be told.

    python fragile_server.py NAME RECORD [PORT]

On stdio, or over Streamable HTTP with a session that dies with it. `do` may not be run twice, `look` may; both take a
`marker`, wait for `seconds` and answer the marker. RECORD gets a line `TOOL MARKER` for each.
"""

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

NAME, RECORD = sys.argv[1], Path(sys.argv[2])
SESSION = uuid4().hex
SCHEMA = {
    "type": "object",
    "properties": {"marker": {"type": "string"}, "seconds": {"type": "number"}},
    "required": ["marker", "seconds"],
}
TOOLS = [
    {"name": "do", "description": f"Change something at {NAME}.", "inputSchema": SCHEMA},
    {
        "name": "look",
        "description": f"Look at {NAME}.",
        "inputSchema": SCHEMA,
        "annotations": {"readOnlyHint": True},
    },
]
INITIALIZED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": NAME, "version": "1"},
}
RESULTS: dict[str, dict[str, Any]] = {"initialize": INITIALIZED, "tools/list": {"tools": TOOLS}, "ping": {}}

record = os.open(RECORD, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
writing = threading.Lock()


def answer(message: dict[str, Any]) -> bytes:
    """The response to a request, once a call is done."""
    response: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "tools/call":
        arguments = message["params"]["arguments"]
        os.write(record, f"{message['params']['name']} {arguments['marker']}\n".encode())
        time.sleep(arguments["seconds"])
        response["result"] = {"content": [{"type": "text", "text": arguments["marker"]}]}
    elif message["method"] in RESULTS:
        response["result"] = RESULTS[message["method"]]
    else:
        response["error"] = {"code": -32601, "message": "Method not found"}
    return json.dumps(response).encode()


def serve_stdio() -> None:
    """Answer each request in a thread of its own, until the input ends."""

    def respond(message: dict[str, Any]) -> None:
        line = answer(message) + b"\n"
        with writing:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and "method" in message:
            threading.Thread(target=respond, args=(message,), daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    """Answers in JSON; there are no event streams."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """A request or a notification."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session = self.headers.get("Mcp-Session-Id")
        if session not in (None, SESSION):
            self._send(404, b"")
        elif "id" not in message or "method" not in message:
            self._send(202, b"")
        else:
            self._send(200, answer(message))

    def do_GET(self) -> None:
        """A wish for a stream."""
        self._send(405, b"")

    def do_DELETE(self) -> None:
        """The end of the session."""
        self._send(200, b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Say nothing."""

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Mcp-Session-Id", SESSION)
        self.end_headers()
        self.wfile.write(body)


class HttpServer(ThreadingHTTPServer):
    """One thread a connection; clients may leave at any time."""

    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that left."""


if __name__ == "__main__":
    if len(sys.argv) > 3:
        HttpServer(("127.0.0.1", int(sys.argv[3])), Handler).serve_forever()
    else:
        serve_stdio()
