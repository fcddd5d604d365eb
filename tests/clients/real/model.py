"""A scripted model on a free port of 127.0.0.1, for clients of four APIs."""

import json
import re
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import api_chat
import api_gemini
import api_messages
import api_responses
from conversation import Json, Reply, Request
from story import SKILL, SKILL_CALL, TOOL, Story, conversation

APIS: dict[str, ModuleType] = {
    r"/chat/completions$": api_chat,
    r"/responses$": api_responses,
    r"/messages$": api_messages,
    r":(stream)?[gG]enerateContent$": api_gemini,
}
"""The end of a path to the API that it belongs to."""
THINKING_S = 0.5
"""How long the model takes for an answer, about as the fastest real ones: clients use the time to read lists."""
MODELS = ("scripted", "gpt-5", "gpt-4o")


class ScriptedModel(ThreadingHTTPServer):
    """The model's server; `folder` gets `model.jsonl` and the body of each request."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._folder = folder
        self._lock = threading.Lock()
        self._story = Story()

    @property
    def url(self) -> str:
        """The address, without a path."""
        return f"http://127.0.0.1:{self.server_port}"

    def reply(self, api: str, request: Request) -> Reply:
        """The reply to a request, which is logged."""
        received = time.monotonic()
        with self._lock:
            talk = conversation(request)
            reply = self._story.reply(talk)
            number = self._story.requests
            self._log(
                time=received,
                api=api,
                step=reply.step,
                turn=talk.turn if talk else "",
                tools=[tool.name for tool in request.tools],
                skill=bool(talk and talk.knows(SKILL)),
                skill_call=bool(talk and talk.knows(SKILL_CALL)),
                tool=bool(talk and talk.knows(TOOL)),
                deferred=bool(talk and talk.knows(TOOL) and not talk.tool(TOOL)),
                result=talk.results[-1] if talk and talk.results else "",
            )
            (self._folder / f"request-{number:02d}.json").write_text(request.text, encoding="utf-8")
        return reply

    def _log(self, **entry: object) -> None:
        with (self._folder / "model.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ScriptedModel  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Nothing: what counts is in the model's own log."""

    def do_HEAD(self) -> None:
        self._send({})

    def do_GET(self) -> None:
        data = [{"id": name, "object": "model", "created": 1, "owned_by": "nobody"} for name in MODELS]
        self._send({"object": "list", "data": data, "models": []})

    def do_POST(self) -> None:
        body, path = self._body(), self.path.partition("?")[0]
        api = next((module for end, module in APIS.items() if re.search(end, path)), None)
        if api is None:  # counting tokens, telemetry
            self._send({"input_tokens": 100, "totalTokens": 100})
            return
        reply = self.server.reply(api.__name__, api.read(body))
        time.sleep(THINKING_S)
        if body.get("stream") or ":stream" in path:
            self._stream(b"".join(event.encode() for event in api.events(body, reply)))
        else:
            self._send(api.answer(body, reply))

    def _body(self) -> Json:
        try:
            return json.loads(self._raw_body() or b"{}")
        except ValueError:
            return {}

    def _raw_body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        data = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _send(self, answer: Json) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _stream(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        self.wfile.write(data)


@contextmanager
def running(folder: Path) -> Generator[ScriptedModel]:
    """The model, serving inside the block."""
    with ScriptedModel(folder) as model:
        thread = threading.Thread(target=model.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield model
        finally:
            model.shutdown()
            thread.join(5)
