"""An upstream written by hand: what it sends is, byte for byte, what a test has told it, in both eras.

`mirror.py` serves stdio, `mirror.py http` Streamable HTTP on a free port, which is its first line on stdout. A second
argument is a file with what `lists` sets. Tools and prompts go by these names, and so do URIs by their host
(`mirror://say/BODY`, where the body is quoted):

* `echo` answers with the request as it arrived, as text.
* `say`, and any other that is given one, answers with the argument `body`: `{"result": ...}` or `{"error": ...}`, as
  JSON.
* `big` answers with `megabytes` of text.
* `lists` sets what lists answer, `{METHOD: {CURSOR: BODY}}`, and tells that they have changed.
* `die` ends the process.
"""

import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

Json: TypeAlias = dict[str, Any]
Send: TypeAlias = Callable[[bytes], None]

ANY = {"type": "object"}
TOOLS: list[Json] = [{"name": name, "inputSchema": ANY} for name in ("big", "die", "echo", "lists", "say")]
PROMPTS: list[Json] = [{"name": name} for name in ("echo", "say")]
RESOURCES: list[Json] = [{"uri": "mirror://echo/listed", "name": "listed"}]
TEMPLATES: list[Json] = [{"uriTemplate": "mirror://{what}/{body}", "name": "anything"}]
LISTS: dict[str, tuple[str, list[Json]]] = {
    "tools/list": ("tools", TOOLS),
    "prompts/list": ("prompts", PROMPTS),
    "resources/list": ("resources", RESOURCES),
    "resources/templates/list": ("resourceTemplates", TEMPLATES),
}
CAPABILITIES: Json = {
    "completions": {},
    **{kind: {"listChanged": True} for kind in ("tools", "prompts", "resources")},
}
INFO = {"name": "mirror", "version": "1"}
GREETINGS: dict[str, Json] = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": INFO},
    "server/discover": {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": CAPABILITIES,
        "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
    },
    "ping": {},
}
DEEP = 20_000
"""How deeply JSON may be nested here: more than anywhere else."""


class Mirror:
    """The server without its transport."""

    def __init__(self, pages: dict[str, dict[str, str]] | None = None) -> None:
        self._pages = {method: {"": json.dumps({"result": {key: all_}})} for method, (key, all_) in LISTS.items()}
        self._pages.update(pages or {})
        self._listening: list[tuple[Any, Send]] = []
        self._changed = False
        self._lock = threading.Lock()

    def answer(self, line: bytes, send: Send) -> None:
        """Send the response to a message, if it wants one, after what has to come before it."""
        message: Json = json.loads(line)
        if "id" not in message or "method" not in message:
            return
        params: Json = message.get("params") or {}
        if message["method"] == "subscriptions/listen":
            self._listen(message["id"], params, send)
            return
        if message["method"] == "tools/call" and params["name"] == "lists":
            self._pages.update(params["arguments"])
            self._tell("io.modelcontextprotocol/protocolVersion" in params.get("_meta", {}), send)
        body = self._body(line, message["method"], params)
        send(b'{"jsonrpc":"2.0","id":%b,%b' % (json.dumps(message["id"]).encode(), body.lstrip()[1:].encode()))

    def _body(self, line: bytes, method: str, params: Json) -> str:
        """The response from its `result` or `error` on, as an object."""
        if method in GREETINGS:
            return json.dumps({"result": GREETINGS[method]})
        if method in self._pages:
            return self._pages[method][params.get("cursor", "")]
        what, body = _wanted(method, params)
        if what == "die":
            os._exit(3)
        if what in {"echo", "big", "lists"}:
            said = "x" * int(body) * 1_000_000 if what == "big" else line.decode()
            return json.dumps({"result": _telling(method, said)})
        if body.startswith("{"):
            return body
        return json.dumps({"error": {"code": -32602, "message": f"the mirror has no {what}", "data": {"what": what}}})

    def _listen(self, request: Any, params: Json, send: Send) -> None:
        granted = {"notifications": params["notifications"]}
        send(_notice("notifications/subscriptions/acknowledged", request, granted))
        with self._lock:
            self._listening.append((request, send))
            if self._changed:
                _changed(send, request)

    def _tell(self, modern: bool, send: Send) -> None:
        if not modern:
            _changed(send)
            return
        with self._lock:
            self._changed = True
            for request, listener in self._listening:
                _changed(listener, request)


def _wanted(method: str, params: Json) -> tuple[str, str]:
    """What a request wants, and with which body."""
    if method == "resources/read":
        uri = urlsplit(params["uri"])
        return uri.netloc, unquote(uri.path[1:])
    if method == "completion/complete":
        return params["ref"].get("name", "echo"), params["argument"]["value"]
    arguments = params.get("arguments") or {}
    return params["name"], str(arguments.get("body") or arguments.get("megabytes"))


def _telling(method: str, said: str) -> Json:
    """The result of `method` that holds this text."""
    if method == "resources/read":
        return {"contents": [{"uri": "mirror://echo/listed", "text": said}]}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": {"type": "text", "text": said}}]}
    if method == "completion/complete":
        return {"completion": {"values": [said]}}
    return {"content": [{"type": "text", "text": said}]}


def _changed(send: Send, listener: Any = None) -> None:
    for kind in ("tools", "prompts", "resources"):
        send(_notice(f"notifications/{kind}/list_changed", listener, {}))


def _notice(method: str, listener: Any, params: Json) -> bytes:
    if listener is not None:
        params = {**params, "_meta": {"io.modelcontextprotocol/subscriptionId": listener}}
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


def serve_stdio(mirror: Mirror) -> None:
    """Serve until the input ends."""

    def send(line: bytes) -> None:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()

    for line in sys.stdin.buffer:
        mirror.answer(line, send)


class Handler(BaseHTTPRequestHandler):
    """One connection; every other response is an event stream."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    mirror: Mirror

    def do_POST(self) -> None:
        line = self.rfile.read(int(self.headers["Content-Length"]))
        message: Json = json.loads(line)
        if message.get("method") == "subscriptions/listen":
            self._stream(line)
            return
        sent: list[bytes] = []
        self.mirror.answer(line, sent.append)
        if not sent:
            self._reply(202, "application/json", b"")
        elif len(sent) > 1 or message["id"] % 2:
            self._reply(200, "text/event-stream", b"".join(map(_event, sent)))
        else:
            self._reply(200, "application/json", sent[0])

    def do_GET(self) -> None:
        self._reply(405, "application/json", b"")

    def _stream(self, line: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.flush()
        events: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.mirror.answer(line, events.put)
        while True:
            self.wfile.write(_event(events.get()))
            self.wfile.flush()

    def _reply(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's own
        """Nothing."""


def _event(message: bytes) -> bytes:
    return b"event: message\ndata: " + message + b"\n\n"


def serve_http(mirror: Mirror) -> None:
    """Serve until the process is ended."""
    Handler.mirror = mirror
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.setrecursionlimit(DEEP)
    told = Mirror(json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")) if len(sys.argv) > 2 else None)
    if "http" in sys.argv:
        serve_http(told)
    else:
        serve_stdio(told)
