"""An MCP server that floods once the file FLAG is there, and as long as it is.

    python flooding_server.py KIND FLAG [PORT]

KIND is one of `FLOODS`, or `none`. On stdio, or with PORT over Streamable HTTP, where it floods on the session's own
event stream. `many_tools` lists 200,000 tools in one page.
"""

import json
import os
import sys
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

FLOODS = ("logs", "notifications", "not_json", "list_changes", "many_tools")
MANY_TOOLS = 200_000
POLL = 0.05
TOOL = {"name": "echo", "inputSchema": {"type": "object"}}
SESSION = uuid4().hex


@cache
def many_tools() -> bytes:
    """A page of many tools."""
    return json.dumps({"tools": [{**TOOL, "name": f"echo{number}"} for number in range(MANY_TOOLS)]}).encode()


def notification(kind: str, number: int) -> bytes:
    """One message of a flood."""
    method, params = {
        "logs": ("message", {"level": "error", "data": f"something happened, for the {number}th time"}),
        "notifications": ("resources/updated", {"uri": f"memo://{number}"}),
        "list_changes": ("tools/list_changed", {}),
    }[kind]
    return json.dumps({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}).encode()


def piece(kind: str) -> list[bytes]:
    """Messages that are sent again and again."""
    if kind == "not_json":
        return [b"progress: %d of 4000" % number for number in range(4000)]
    return [notification(kind, number) for number in range(4000)]


def answer(message: dict[str, Any], kind: str, flag: Path) -> bytes:
    """The response to a request."""
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {
                "tools": {"listChanged": True},
                "logging": {},
                "resources": {"subscribe": True, "listChanged": True},
            },
            "serverInfo": {"name": kind, "version": "1"},
        },
        "resources/list": {"resources": []},
        "resources/templates/list": {"resourceTemplates": []},
        "logging/setLevel": {},
        "ping": {},
    }
    response: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "tools/call":
        response["result"] = {"content": [{"type": "text", "text": message["params"]["arguments"].get("text", "")}]}
    elif message["method"] == "tools/list":
        if kind == "many_tools" and flag.exists():
            return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (message["id"], many_tools())
        response["result"] = {"tools": [TOOL]}
    elif message["method"] in results:
        response["result"] = results[message["method"]]
    else:
        response["error"] = {"code": -32601, "message": "Method not found"}
    return json.dumps(response).encode()


def flood(kind: str, flag: Path, frame: Any, write: Any) -> None:
    """Write for as long as the file is there; of lists that change, one notice in a while makes them be read."""
    messages = b"".join(map(frame, piece("list_changes" if kind == "many_tools" else kind))) if kind in FLOODS else b""
    few = frame(notification("list_changes", 0))
    while True:
        if kind in FLOODS and flag.exists():
            write(few if kind == "many_tools" else messages)
            time.sleep(1 if kind == "many_tools" else 0)
        else:
            time.sleep(POLL)


def serve_stdio(kind: str, flag: Path) -> None:
    """Answer each request until the input ends."""
    writing = threading.Lock()

    def write(data: bytes) -> None:
        with writing:
            while data:
                data = data[os.write(1, data[: 1 << 16]) :]

    threading.Thread(target=flood, args=(kind, flag, lambda line: line + b"\n", write), daemon=True).start()
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and "method" in message:
            write(answer(message, kind, flag) + b"\n")
    os._exit(0)


class Handler(BaseHTTPRequestHandler):
    """Answers in JSON, and floods on the stream that the session has for itself."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    kind: str
    flag: Path

    def do_POST(self) -> None:
        """A request or a notification."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = "id" in message and "method" in message
        self._send(200 if request else 202, answer(message, self.kind, self.flag) if request else b"")

    def do_GET(self) -> None:
        """The session's own stream."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        flood(self.kind, self.flag, lambda line: b"event: message\ndata: " + line + b"\n\n", self.wfile.write)

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
    """One thread a connection; the proxy may leave at any time."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve."""
    kind, flag = sys.argv[1], Path(sys.argv[2])
    if len(sys.argv) > 3:
        Handler.kind, Handler.flag = kind, flag
        HttpServer(("127.0.0.1", int(sys.argv[3])), Handler).serve_forever()
    else:
        serve_stdio(kind, flag)


if __name__ == "__main__":
    main()
