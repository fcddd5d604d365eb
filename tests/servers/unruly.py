"""A server that misbehaves on command while it runs, on stdio or HTTP, in both eras; the standard library alone.

Started as a `faulty` server is, by `argv`. What it is told comes in two ways:

* the tool `act` (and `act_read_only`, `act_idempotent`, which say so) takes `steps`, and does one after the other;
* `Mood`, a file that is read at its start and at each request, holds what is wrong until it is written anew.

What happens to it goes to `Faults.log`, as with a `faulty` server.
"""

import contextlib
import json
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.servers.faulty import FOREVER, HINTS, TICK, Faults, Handler, Http, Message, Server, error, run, tool

ROOT = Path(__file__).parents[2]
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
KINDS = ("tools", "resources", "prompts")


@dataclass(frozen=True)
class Mood:
    """What is wrong with a server for now; by default nothing is.

    `crashes`: it ends at a start, with exit code 3, as long as it was started no more often than this. `slow`: seconds
    from its start until it reads. `lists`: the names in its lists instead of its own. `fails`: methods that end in an
    error. `quiet`: it declares no `listChanged`. Over HTTP `status` (0: as usual, -1: not at all), `headers` and `body`
    answer every request of these `methods` (all, where none are named); `missing` bytes more than there are belong to
    the body.
    """

    crashes: int = 0
    slow: float = 0.0
    lists: Mapping[str, list[str]] = field(default_factory=dict[str, list[str]])
    fails: tuple[str, ...] = ()
    quiet: bool = False
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: str = ""
    missing: int = 0
    methods: tuple[str, ...] = ()

    def write(self, log: Path) -> None:
        """Have the server with this log be so from now on."""
        part = log.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)))
        part.rename(log.with_suffix(".mood"))

    @staticmethod
    def read(log: Path) -> "Mood":
        """How the server with this log is to be."""
        path = log.with_suffix(".mood")
        return Mood(**json.loads(path.read_text())) if path.exists() else Mood()


def argv(faults: Faults) -> list[str]:
    """The command that starts the server, in the folder `ROOT`."""
    return [sys.executable, "-S", "-E", "-m", "tests.servers.unruly", faults.argv()[-1]]


class Wire(Protocol):
    """The way back to the client of one request."""

    def frame(self, message: Message) -> bytes:
        """One message as it goes over this wire."""
        ...

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        ...

    def gone(self) -> bool:
        """Whether the client has left."""
        ...

    def close(self, what: str) -> None:
        """Close `stdin` or `stdout`, or read no more (`ears`); over HTTP, end the stream (`stream`)."""
        ...

    def open(self, what: str) -> None:
        """Read again (`ears`)."""
        ...


@dataclass
class Unruly(Server):
    """What is the same over stdio and HTTP.

    `listeners`: the wires on which changes are told, each with the id of the request that opened it, or None in the
    handshake era. `sessions`: those that it knows over HTTP.
    """

    lists: dict[str, list[str]] = field(default_factory=lambda: {kind: list(OWN[kind]) for kind in KINDS})
    listeners: list[tuple[object, Wire]] = field(default_factory=list[tuple[object, Wire]])
    sessions: set[str] = field(default_factory=set[str])

    @property
    def mood(self) -> Mood:
        return Mood.read(Path(self.faults.log))

    def begin(self) -> None:
        super().begin()
        mood = self.mood
        if mood.crashes:
            starts = Path(self.faults.log).read_text().count('"event": "spawned"')
            if starts <= mood.crashes:
                self.end()
        time.sleep(mood.slow)

    def respond(self, message: Message, wire: Wire) -> None:
        """Handle one message, and write what there is to answer."""
        method, params = message.get("method", ""), message.get("params") or {}
        if "id" not in message:
            self.note("notification", method=method, params=params)
            if method == "notifications/cancelled":
                self.cancelled.add(params.get("requestId"))
            return
        self.note("request", method=method, params=params)
        if method == "tools/call" and params["name"].startswith("act"):
            self.act(message["id"], params, wire)
        elif method == "subscriptions/listen":
            self.listen(message["id"], params, wire)
        else:
            result = self.answer_to(method, params)
            wire.write(wire.frame({"jsonrpc": "2.0", "id": message["id"], **result}))

    def answer_to(self, method: str, params: Mapping[str, Any]) -> Message:
        """The `result` or `error` member of the answer to what is no command."""
        kind, _, verb = method.partition("/")
        if method in self.mood.fails:
            return error(-32603, "the database is down")
        if method == "tools/call":
            self.note("ran", name=params["name"], arguments=params.get("arguments") or {})
            if params["name"] not in self.names("tools"):
                return error(-32602, f"Unknown tool: {params['name']}")
            return said(json.dumps(params.get("arguments") or {}))
        if kind in KINDS and verb == "list":
            items = [DEFINITIONS[kind](name) for name in self.names(kind)]
            return {"result": {kind: items, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}}
        return self.greeting(method, params)

    def greeting(self, method: str, params: Mapping[str, Any]) -> Message:
        answer = super().greeting(method, params)
        if "result" in answer:
            declared = {} if self.mood.quiet else {"listChanged": True}
            answer["result"]["capabilities"] = dict.fromkeys(KINDS, declared)
        return answer

    def names(self, kind: str) -> list[str]:
        """The names in a list by now."""
        return list(self.mood.lists.get(kind, self.lists[kind]))

    # --- commands

    def act(self, id_: object, params: Mapping[str, Any], wire: Wire) -> None:
        """Do what the arguments say, step by step: each is a verb and what it needs; see `STEPS`."""
        arguments: Mapping[str, Any] = params.get("arguments") or {}
        self.note("ran", name=params["name"], arguments={**arguments, "steps": len(arguments["steps"])})
        with contextlib.suppress(OSError):  # the client has left
            for verb, *values in arguments["steps"]:
                STEPS[verb](self, id_, wire, *values)
        self.note("done", name=params["name"], gone=wire.gone())

    def write(self, _id: object, wire: Wire, text: str, times: int = 1) -> None:
        """Text that is no message, so many times."""
        wire.write(text.encode() * times)

    def answer_once(self, id_: object, wire: Wire, text: str = "done", times: int = 1) -> None:
        """The answer: `text`, so many times over."""
        wire.write(wire.frame(answer(id_, text * times)))

    def answer_for(self, _id: object, wire: Wire, id_: object) -> None:
        """An answer to another request."""
        wire.write(wire.frame(answer(id_, "not yours")))

    def answer_bytes(self, id_: object, wire: Wire, hexadecimal: str) -> None:
        """The answer, with these bytes as its text."""
        wire.write(wire.frame(answer(id_, "THERE")).replace(b"THERE", bytes.fromhex(hexadecimal)))

    def half(self, id_: object, wire: Wire) -> None:
        """The first half of the answer, which ends within its text."""
        wire.write(wire.frame(answer(id_, "half and half")).partition(b" and ")[0])

    def rest(self, id_: object, wire: Wire) -> None:
        """The second half of the answer."""
        wire.write(b"".join(wire.frame(answer(id_, "half and half")).partition(b" and ")[1:]))

    def wait_for(self, id_: object, wire: Wire, path: str) -> None:
        """Go on when this file exists, or the request is cancelled, or the client has left."""
        while not Path(path).exists() and id_ not in self.cancelled and not wire.gone():
            time.sleep(TICK)
        if not Path(path).exists():
            self.note("cancelled", name="act")

    def exit(self, _id: object, _wire: Wire, code: int) -> None:
        """End with this code, with a last word on stderr."""
        print("the disk is full", file=sys.stderr, flush=True)
        os._exit(code)

    def close(self, _id: object, wire: Wire, what: str) -> None:
        """See `Wire.close`."""
        wire.close(what)

    def open(self, _id: object, wire: Wire, what: str) -> None:
        """See `Wire.open`."""
        wire.open(what)

    def change(self, _id: object, _wire: Wire, kind: str, add: list[str], remove: list[str], notices: int = 1) -> None:
        """Change a list, with so many notices in one piece."""
        with self.lock:
            self.lists[kind] = [name for name in self.lists[kind] if name not in remove] + add
            listeners = list(self.listeners)
        for id_, wire in listeners:
            params = {} if id_ is None else {"params": {"_meta": {SUBSCRIPTION: id_}}}
            told = {"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed", **params}
            wire.write(wire.frame(told) * notices)

    def forget(self, _id: object, _wire: Wire) -> None:
        """Forget every session (over HTTP)."""
        self.sessions.clear()

    def hang_up(self, _id: object, _wire: Wire) -> None:
        """End the streams on which changes are told (over HTTP)."""
        for _, wire in list(self.listeners):
            wire.close("stream")

    def listen(self, id_: object, params: Mapping[str, Any], wire: Wire) -> None:
        """Tell of changes on this wire until it is given up (2026-07-28)."""
        meta = {"_meta": {SUBSCRIPTION: id_}}
        told = {"method": "notifications/subscriptions/acknowledged", "params": {**params, **meta}}
        wire.write(wire.frame({"jsonrpc": "2.0", **told}))
        self.tell_on(id_, wire)

    def tell_on(self, id_: object, wire: Wire) -> None:
        """Have changes told on this wire until it is given up."""
        self.listeners.append((id_, wire))
        self.note("listened to")
        while id_ not in self.cancelled and not wire.gone():
            time.sleep(TICK)
        self.listeners.remove((id_, wire))


STEPS: Mapping[str, Callable[..., None]] = {
    "write": Unruly.write,
    "answer": Unruly.answer_once,
    "answer_for": Unruly.answer_for,
    "answer_bytes": Unruly.answer_bytes,
    "half": Unruly.half,
    "rest": Unruly.rest,
    "wait": Unruly.wait_for,
    "exit": Unruly.exit,
    "close": Unruly.close,
    "open": Unruly.open,
    "change": Unruly.change,
    "forget": Unruly.forget,
    "hang_up": Unruly.hang_up,
}
ACTS = {"act_read_only": "die_read_only", "act_idempotent": "die_idempotent"}
OWN = {
    "tools": ["act", *ACTS, "echo", "old"],
    "resources": ["memo://one"],
    "prompts": ["greet"],
}
DEFINITIONS: Mapping[str, Callable[[str], Message]] = {
    "tools": lambda name: tool(name) | ({"annotations": HINTS[ACTS[name]]} if name in ACTS else {}),
    "resources": lambda uri: {"uri": uri, "name": uri},
    "prompts": lambda name: {"name": name},
}


def said(text: str) -> Message:
    """The `result` member of the answer to a call."""
    return {"result": {"content": [{"type": "text", "text": text}], "resultType": "complete"}}


def answer(id_: object, text: str) -> Message:
    """The answer to a call."""
    return {"jsonrpc": "2.0", "id": id_, **said(text)}


# --- stdio


class Pipes:
    """The wire of every request over stdio. `reads`: whether it still does."""

    def __init__(self) -> None:
        self.reads = True
        self._lock = threading.Lock()

    def frame(self, message: Message) -> bytes:
        return json.dumps(message).encode() + b"\n"

    def write(self, data: bytes) -> None:
        with self._lock:
            while data:
                data = data[os.write(1, data) :]

    def gone(self) -> bool:
        return False

    def close(self, what: str) -> None:
        self.reads = what not in ("ears", "stdin")
        if what in ("stdin", "stdout"):
            time.sleep(2 * TICK)  # nobody waits for the pipe any more: that would keep it open
            os.close(0 if what == "stdin" else 1)

    def open(self, what: str) -> None:
        assert what == "ears"
        self.reads = True


def serve_stdio(server: Unruly) -> None:
    """Answer each line in a thread of its own until the input ends."""
    pipes, buffer = Pipes(), b""
    while True:
        if not pipes.reads:
            time.sleep(TICK)
            continue
        if not select.select([0], [], [], TICK)[0]:
            continue
        chunk = os.read(0, 1 << 16)
        if not chunk:
            break
        *lines, buffer = (buffer + chunk).split(b"\n")
        for message in map(json.loads, lines):
            if message.get("method") == "initialize":
                server.listeners.append((None, pipes))
            threading.Thread(target=server.respond, args=(message, pipes), daemon=True).start()
    server.note("eof")
    if "eof" in server.faults.stubborn:
        time.sleep(FOREVER)
    os._exit(0)


# --- HTTP


class Unruled(Handler):
    """Streamable HTTP, every answer as an event stream; it is the `Wire` of its request as well."""

    unruly: Unruly

    def frame(self, message: Message) -> bytes:
        return b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n"

    def write(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()

    def close(self, what: str) -> None:
        assert what == "stream"
        self.connection.shutdown(socket.SHUT_RDWR)

    def open(self, what: str) -> None:
        raise NotImplementedError(what)

    def do_GET(self) -> None:  # noqa: N802 - the name in the library
        if self.headers.get("mcp-session-id") not in self.sessions:
            self.refuse(405)
            return
        with contextlib.suppress(OSError):
            self.begin_stream()
            self.unruly.tell_on(None, self)

    def do_POST(self) -> None:  # noqa: N802 - the same
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        mood, method = self.unruly.mood, message.get("method", "")
        if mood.status and (not mood.methods or method in mood.methods):
            self.unruly.note("refused", method=method, status=mood.status)
            self.sulk(mood)
        elif not self.refused(message):
            if "id" not in message:
                self.unruly.respond(message, self)
                self.refuse(202)
            else:
                with contextlib.suppress(OSError):
                    self.begin_stream(opened=os.urandom(8).hex() if method == "initialize" else "")
                    self.unruly.respond(message, self)

    def begin_stream(self, opened: str = "") -> None:
        """Begin an event stream; with the answer to `initialize`, a session is `opened`."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        if opened:
            self.sessions.add(opened)
            self.send_header("Mcp-Session-Id", opened)
        self.end_headers()
        self.close_connection = True

    def sulk(self, mood: Mood) -> None:
        """Answer as it is in the mood to; for what is missing of the body, the client waits as long as it likes."""
        body = mood.body.encode()
        if mood.status > 0:
            self.send_response(mood.status)
            for name, value in {"Content-Length": str(len(body) + mood.missing), **mood.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.write(body)
        self.close_connection = bool(mood.missing) or mood.status < 0
        while self.close_connection and not self.gone():
            time.sleep(TICK)


def serve_http(server: Unruly) -> None:
    """Serve on the port of the faults until killed."""
    Unruled.faulty, Unruled.unruly, Unruled.sessions = server, server, server.sessions
    http = Http(("127.0.0.1", server.faults.port), Unruled)
    server.note("listening", port=http.server_address[1])
    http.serve_forever(poll_interval=TICK)


if __name__ == "__main__":
    run(Unruly, serve_stdio, serve_http)
