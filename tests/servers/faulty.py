"""A server that misbehaves as it is told, on stdio or HTTP; the standard library alone, so that it starts at once.

Started as `faulty.py JSON`, where the JSON holds the fields of `Faults`. What happens to it goes to `Faults.log`.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn, TypeVar

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"
TICK = 0.02
FOREVER = 3600.0

Message = dict[str, Any]


@dataclass(frozen=True)
class Probe:
    """The answer to `server/discover`: over HTTP this status and body, over stdio the body as the result or error."""

    body: str = ""
    status: int = 200
    type: str = "application/json"


@dataclass(frozen=True)
class Faults:
    """What is wrong with a server; by default nothing is.

    `log`: where it notes what happens to it, as JSON lines. `release`: it answers nothing before this file exists.
    `dies`: it ends at once; `dies_at_call`: in the n-th call; both with exit code 3. With `dies`, `once`: only while
    this file does not exist; `given`, also with `fails`: only when this file exists. `stubborn`: of `eof` and `term`,
    what it ignores. `grandchild`: `polite` or `stubborn`, a process of its own that it leaves behind. `page`: tools on
    a page; `cursors`: `good`, `repeated` or `endless`. `lost_session`: the HTTP status for a session it does not know,
    and `lost_text` what it says then, a JSON-RPC error by default. `status`: the HTTP status of every answer. `fails`:
    a method that it declares and that ends in an error.
    """

    log: str
    port: int = 0
    era: str = "both"
    probe: Probe | None = None
    ignores_probe: bool = False
    release: str = ""
    silent: bool = False
    dies: bool = False
    once: str = ""
    given: str = ""
    dies_at_call: int = 0
    stderr: str = ""
    error: str = ""
    fails: str = ""
    stubborn: tuple[str, ...] = ()
    grandchild: str = ""
    tools: int = 0
    page: int = 0
    cursors: str = "good"
    noise: tuple[str, ...] = ()
    lost_session: int = 404
    lost_text: str = ""
    status: int = 200

    def argv(self) -> list[str]:
        """The command that starts the server."""
        return [sys.executable, "-S", "-E", __file__, json.dumps(asdict(self))]

    @staticmethod
    def read(text: str) -> "Faults":
        """The faults that `argv` wrote."""
        data = json.loads(text)
        probe = data.pop("probe")
        tuples = {key: tuple(value) for key, value in data.items() if isinstance(value, list)}
        return Faults(**{**data, **tuples}, probe=Probe(**probe) if probe else None)


@dataclass
class Server:
    """What is the same over stdio and HTTP."""

    faults: Faults
    calls: int = 0
    cancelled: set[object] = field(default_factory=set[object])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, event: str, **details: object) -> None:
        """Append one event to the log, in one piece."""
        line = json.dumps({"event": event, "pid": os.getpid(), **details}) + "\n"
        log = os.open(self.faults.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(log, line.encode())
        os.close(log)

    def begin(self) -> None:
        """Everything that goes wrong before the first message."""
        faults = self.faults
        if "term" in faults.stubborn:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if faults.grandchild:
            code = "import signal, time\n"
            code += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if faults.grandchild == "stubborn" else ""
            code += f"print('up', flush=True)\ntime.sleep({FOREVER})"
            left = subprocess.Popen([sys.executable, "-S", "-E", "-c", code], stdout=subprocess.PIPE)
            assert left.stdout is not None
            left.stdout.readline()
            self.note("grandchild", child=left.pid)
        self.note("spawned", argv=sys.argv[2:])
        if faults.stderr:
            print(faults.stderr, file=sys.stderr, flush=True)
        if (
            faults.dies
            and not (faults.once and Path(faults.once).exists())
            and (not faults.given or Path(faults.given).exists())
        ):
            if faults.once:
                Path(faults.once).touch()
            self.end()

    def end(self) -> NoReturn:
        """Die at once, without an answer."""
        sys.stderr.flush()
        os._exit(3)

    def answer(
        self, message: Message, notify: Callable[[Message], None], gone: Callable[[], bool] = lambda: False
    ) -> Message | None:
        """The response to a request, after its faults; None for no response. `gone`: whether the client has left."""
        method, params = message["method"], message.get("params") or {}
        if "id" not in message:
            self.note("notification", method=method, params=params)
            if method == "notifications/cancelled":
                self.cancelled.add(params.get("requestId"))
            return None
        self.note("request", method=method, params=params)
        self.until(self.faults.release)
        if self.faults.silent or (method == "server/discover" and self.faults.ignores_probe):
            return None
        result = self.result(message, method, params, notify, gone)
        return None if result is None else {"jsonrpc": "2.0", "id": message["id"], **result}

    def result(
        self,
        message: Message,
        method: str,
        params: Mapping[str, Any],
        notify: Callable[[Message], None],
        gone: Callable[[], bool],
    ) -> Message | None:
        """The `result` or `error` member of a response."""
        if method == self.faults.fails and (not self.faults.given or Path(self.faults.given).exists()):
            return error(-32603, "the database is down")
        if method == "tools/call":
            return self.call(message["id"], params, notify, gone)
        if method == "tools/list":
            return {"result": {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **self.page(params)}}
        return self.greeting(method, params)

    def greeting(self, method: str, params: Mapping[str, Any]) -> Message:
        """The answer to the handshake, or to the question for the modern era; an error to anything else."""
        era = self.faults.era
        capabilities = {"tools": {}, **({"resources": {}} if self.faults.fails.startswith("resources") else {})}
        if method == "server/discover":
            if self.faults.probe is not None:
                return json.loads(self.faults.probe.body)
            if era == "handshake":
                return error(-32601, "Method not found")
            return {
                "result": {
                    "supportedVersions": [MODERN, *(HANDSHAKE if era == "both" else ())],
                    "capabilities": capabilities,
                    "resultType": "complete",
                    "ttlMs": 0,
                    "cacheScope": "private",
                }
            }
        if method == "initialize":
            if self.faults.error:
                return error(-32603, self.faults.error)
            if era == "modern":
                return error(-32022, "Unsupported protocol version", {"supported": [MODERN], "requested": "?"})
            wanted = params["protocolVersion"]
            return {
                "result": {
                    "protocolVersion": wanted if wanted in HANDSHAKE else HANDSHAKE[-1],
                    "capabilities": capabilities,
                    "serverInfo": {"name": "faulty", "version": "1"},
                }
            }
        return error(-32601, "Method not found")

    def page(self, params: Mapping[str, Any]) -> Message:
        """One page of the list of tools."""
        faults = self.faults
        tools = [tool(f"tool_{number:03}") for number in range(faults.tools)] or [tool(name) for name in TOOLS]
        if not faults.page:
            return {"tools": tools}
        start = int(params.get("cursor", 0))
        page: Message = {"tools": tools[start % len(tools) :][: faults.page]}
        if faults.cursors == "repeated":
            page["nextCursor"] = str(faults.page)
        elif faults.cursors == "endless" or start + faults.page < len(tools):
            page["nextCursor"] = str(start + faults.page)
        return page

    def call(
        self, id_: object, params: Mapping[str, Any], notify: Callable[[Message], None], gone: Callable[[], bool]
    ) -> Message | None:
        """Run a tool."""
        name, arguments = params["name"], params.get("arguments") or {}
        self.note("ran", name=name, arguments=arguments)
        with self.lock:
            self.calls += 1
            last = self.calls == self.faults.dies_at_call
        if last:
            print("the disk is full", file=sys.stderr, flush=True)
            self.end()
        if name.startswith("die"):
            marker = Path(arguments["marker"]) if "marker" in arguments else None
            if marker is None or not marker.exists():
                if marker is not None:
                    marker.touch()
                print("the disk is full", file=sys.stderr, flush=True)
                self.end()
        if name == "hang":
            while id_ not in self.cancelled and not gone():
                time.sleep(TICK)
            self.note("cancelled", name=name)
            return None
        if name == "wait":
            self.wait(arguments, notify)
        if name == "progress":
            token = params["_meta"]["progressToken"]
            for step in range(arguments["steps"]):
                notify(
                    {
                        "jsonrpc": "2.0",
                        "method": "notifications/progress",
                        "params": {"progressToken": token, "progress": step, "total": arguments["steps"]},
                    }
                )
                time.sleep(arguments["pause"])
        told: dict[str, object] = {"env": dict(os.environ), "cwd": str(Path.cwd())}
        text = "caf\udce9" if name == "latin" else json.dumps(told.get(name, arguments))
        return {"result": {"content": [{"type": "text", "text": text}], "resultType": "complete"}}

    def wait(self, arguments: Mapping[str, Any], notify: Callable[[Message], None]) -> None:
        """Wait for the file `until`; where there is one to wait for `then`, say between that the tools have changed."""
        self.until(arguments["until"])
        if "then" in arguments:
            notify({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            self.until(arguments["then"])

    def until(self, path: str) -> None:
        """Wait for a file, where there is one to wait for."""
        while path and not Path(path).exists():
            time.sleep(TICK)


TOOLS = (
    *("echo", "hang", "wait", "progress", "env", "cwd", "latin"),
    *("die", "die_read_only", "die_idempotent", "die_plain_hints"),
)
HINTS = {
    "die_read_only": {"readOnlyHint": True},
    "die_idempotent": {"idempotentHint": True},
    "die_plain_hints": {"readOnlyHint": False, "idempotentHint": False, "destructiveHint": False},
}


def tool(name: str) -> Message:
    """The definition of a tool."""
    annotations = {"annotations": HINTS[name]} if name in HINTS else {}
    return {"name": name, "description": name, "inputSchema": {"type": "object"}, **annotations}


def error(code: int, message: str, data: object = None) -> Message:
    """The `error` member of a response."""
    return {"error": {"code": code, "message": message, **({"data": data} if data is not None else {})}}


def serve_stdio(server: Server) -> None:
    """Answer each line in a thread of its own until the input ends."""
    lock = threading.Lock()

    def write(message: Message) -> None:
        # Lone surrogates become the bytes they stand for: the reply of `latin` is not UTF-8.
        line = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"
        with lock:
            for noise in server.faults.noise:
                sys.stdout.buffer.write(noise.encode())
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    def respond(message: Message) -> None:
        response = server.answer(message, write)
        if response is not None:
            with contextlib.suppress(OSError):
                write(response)

    for line in sys.stdin.buffer:
        threading.Thread(target=respond, args=(json.loads(line),), daemon=True).start()
    server.note("eof")
    if "eof" in server.faults.stubborn:
        time.sleep(FOREVER)
    os._exit(0)


class Handler(BaseHTTPRequestHandler):
    """Streamable HTTP: JSON answers, an event stream for calls."""

    protocol_version = "HTTP/1.1"
    faulty: Server
    sessions: set[str]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the library
        """Nothing: stderr is for what the faults say."""

    def refuse(self, status: int, body: str = "", kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self) -> None:
        self.refuse(405)

    def do_DELETE(self) -> None:
        self.faulty.note("farewell")
        self.sessions.discard(self.headers.get("mcp-session-id", ""))
        self.refuse(200)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.refused(message):
            return
        if message["method"] == "tools/call":
            self.stream(message)
            return
        response = self.faulty.answer(message, lambda _: None)
        while response is None and "id" in message:
            time.sleep(FOREVER)
        if response is None:
            self.refuse(202)
            return
        opened = os.urandom(8).hex() if message["method"] == "initialize" and "result" in response else ""
        self.sessions.add(opened)
        body = json.dumps(response).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if opened:
            self.send_header("Mcp-Session-Id", opened)
        self.end_headers()
        self.wfile.write(body)

    def refused(self, message: Message) -> bool:
        """Whether the request is refused by its HTTP status alone; it is answered then."""
        faults, method = self.faulty.faults, message["method"]
        session = self.headers.get("mcp-session-id", "")
        modern = self.headers.get("mcp-protocol-version") == MODERN and faults.era != "handshake"
        if faults.status != 200:
            self.faulty.note("request", method=method)
            self.refuse(faults.status, "no entry")
        elif method == "server/discover" and faults.probe is not None:
            self.faulty.note("request", method=method)
            self.refuse(faults.probe.status, faults.probe.body, faults.probe.type)
        elif modern or method == "initialize" or (session and session in self.sessions):
            return False
        elif method == "server/discover" or not session:
            self.refuse(400, "Bad Request: Missing session ID")
        else:
            self.faulty.note("unknown session", method=method)
            body = json.dumps({"jsonrpc": "2.0", "id": None, **error(-32600, "Session not found")})
            if faults.lost_text:
                self.refuse(faults.lost_session, faults.lost_text)
            else:
                self.refuse(faults.lost_session, body, "application/json")
        return True

    def stream(self, message: Message) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):
            response = self.faulty.answer(message, self.event, self.gone)
            if response is not None:
                self.event(response)

    def event(self, message: Message) -> None:
        self.wfile.write(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")
        self.wfile.flush()

    def gone(self) -> bool:
        return bool(select.select([self.connection], [], [], 0)[0]) and not self.connection.recv(1)


class Http(ThreadingHTTPServer):
    """The standard library's server, which lets clients leave as they like."""

    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing."""


def serve_http(server: Server) -> None:
    """Serve on the port of the faults until killed."""
    Handler.faulty, Handler.sessions = server, set()
    http = Http(("127.0.0.1", server.faults.port), Handler)
    server.note("listening", port=http.server_address[1])
    http.serve_forever(poll_interval=TICK)


S = TypeVar("S", bound=Server)


def run(kind: Callable[[Faults], S], stdio: Callable[[S], None], http: Callable[[S], None]) -> None:
    """Run a server of this kind as the command line describes it."""
    server = kind(Faults.read(sys.argv[1]))
    server.begin()
    (http if server.faults.port else stdio)(server)


if __name__ == "__main__":
    run(Server, serve_stdio, serve_http)
