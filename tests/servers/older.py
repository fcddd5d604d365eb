"""A server over HTTP+SSE (2024-11-05) in a thread, whose answers to POSTs a test decides on."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
Post: TypeAlias = Callable[["Older", Json], None]

TOOL = {"name": "call", "inputSchema": {"type": "object"}}
SAFE = {"name": "safe", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


class Older(BaseHTTPRequestHandler):
    """One request; `kept` is what all requests to a server share."""

    protocol_version = "HTTP/1.1"
    kept: "Kept"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's
        """Say nothing."""

    def do_GET(self) -> None:
        """Open the event stream, which lasts until `Kept.cut`."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        with self.kept.lock:
            self.kept.streams.append(self)
            over = self.kept.over
            number = len(self.kept.streams)
        self.write(self.kept.opening.replace(b"SESSION", str(number).encode()))
        over.wait(60)

    def do_POST(self) -> None:
        """Note the message, and answer it as `Kept.post` does."""
        body = self.rfile.read(int(self.headers["content-length"]))
        message = json.loads(body)
        with self.kept.lock:
            self.kept.messages.append(message)
        if (status := self.kept.refused.get(message.get("method", ""))) is not None:
            self.status(status, b"refused")
        elif message.get("method") == "tools/call":
            self.kept.post(self, message)
        else:
            self.plain(message)
        with self.kept.lock:
            self.kept.answered.append(message)

    def plain(self, message: Json) -> None:
        """Answer as a good server does."""
        match message.get("method"):
            case "initialize":
                result = {
                    "protocolVersion": "2024-11-05",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "older", "version": "1"},
                }
            case "tools/list":
                result = {"tools": [TOOL, SAFE]}
            case "tools/call":
                result = {"content": [{"type": "text", "text": "done"}]}
            case _:
                self.status(202)
                if "id" in message:
                    error = {"code": -32601, "message": "Method not found"}
                    self.say({"jsonrpc": "2.0", "id": message["id"], "error": error})
                return
        self.status(202)
        self.say({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def status(self, status: int, body: bytes = b"", kind: str = "text/plain", **headers: str) -> None:
        """Answer the POST."""
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def reset(self) -> None:
        """End the connection of the POST as a crash does."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def say(self, message: object) -> None:
        """Send an event."""
        self.kept.streams[-1].write(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")

    def write(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()


class Kept:
    """What a server remembers: its streams, what was posted, and what was answered, in order."""

    def __init__(self, post: Post, opening: bytes) -> None:
        self.post = post
        self.opening = opening
        self.lock = threading.Lock()
        self.streams: list[Older] = []
        self.messages: list[Json] = []
        self.answered: list[Json] = []
        self.over = threading.Event()
        self.go = threading.Event()
        """For tests to let a handler go on."""
        self.refused: dict[str, int] = {}
        """Methods that are refused with an HTTP status."""
        self.url = ""

    def cut(self) -> None:
        """End the event streams that are open; later ones stay so."""
        with self.lock:
            self.over.set()
            self.over = threading.Event()

    def calls(self) -> list[Json]:
        """The calls that were posted."""
        return [message for message in self.messages if message.get("method") == "tools/call"]


@contextmanager
def older(
    post: Post = Older.plain, opening: bytes = b"event: endpoint\ndata: /messages?n=SESSION\n\n"
) -> Generator[Kept]:
    """A server on a free port, whose calls `post` answers; `opening`: what its event stream begins with."""
    kept = Kept(post, opening)
    handler = type("Handler", (Older,), {"kept": kept})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        kept.url = f"http://127.0.0.1:{server.server_address[1]}/sse"
        try:
            yield kept
        finally:
            kept.go.set()
            kept.cut()
            server.shutdown()
            thread.join()
