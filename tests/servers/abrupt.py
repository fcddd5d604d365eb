"""A server on stdio that does to each method what a file says, its own end included; the standard library alone.

Started as `abrupt.py FILE`. The file is JSON, read at the start, and holds the fields of `Manner`; what happens goes to
`FILE.log` as JSON lines.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]

HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
FOREVER = 3600


@dataclass(frozen=True)
class Manner:
    """How a server behaves; by default it speaks both eras and has one tool, `echo`."""

    reactions: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """By method, or `METHOD after METHOD` for one that came after another, what it does instead of answering.

    A `result` or `error` is answered, a text under `line` is written. Others are words: `exit N`, `kill`, `close` (its
    output), `half N` (of an answer, then `exit N`), `silence`.
    """

    eras: tuple[str, ...] = (HANDSHAKE, MODERN)
    """The revisions that it speaks; another is refused."""

    capabilities: Any = field(default_factory=lambda: {"tools": {}})
    """What it declares."""

    helper: tuple[str, ...] = ()
    """Of `stdout` and `stderr`, what a process holds that it starts at its own start; `session`: one of its own."""

    lingers: float = 0.0
    """Seconds from the end of its input to its own."""

    def write(self, path: Path) -> None:
        """Have servers behave so that are started from now on."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)), encoding="utf-8")
        part.rename(path)


def command(path: Path) -> list[str]:
    """The command of a server that behaves by the file at `path`."""
    return [sys.executable, "-S", "-E", __file__, str(path)]


class Server:
    """One process."""

    def __init__(self, path: Path) -> None:
        self.log = path.with_suffix(".log")
        self.manner = Manner(**json.loads(path.read_text(encoding="utf-8")))
        self.seen: list[str] = []

    def note(self, event: str, **details: object) -> None:
        """Append one event to the log, in one piece."""
        line = json.dumps({"event": event, "pid": os.getpid(), **details}) + "\n"
        log = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(log, line.encode())
        os.close(log)

    def run(self) -> None:
        """Serve until the end of the input."""
        self.note("spawned")
        if self.manner.helper:
            self.leave_helper()
        for line in sys.stdin:
            message = json.loads(line)
            self.note("request" if "id" in message else "notification", method=message["method"])
            if "id" in message:
                self.react(message)
            self.seen.append(message["method"])
        self.note("eof")
        time.sleep(self.manner.lingers)
        self.note("ended")

    def leave_helper(self) -> None:
        """Start a process that holds our pipes."""
        held = self.manner.helper
        helper = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", f"import time; time.sleep({FOREVER})"],
            stdin=subprocess.DEVNULL,
            stdout=None if "stdout" in held else subprocess.DEVNULL,
            stderr=None if "stderr" in held else subprocess.DEVNULL,
            start_new_session="session" in held,
        )
        self.note("grandchild", child=helper.pid)

    def react(self, message: Message) -> None:
        """Answer, or do what there is to be done instead."""
        method = message["method"]
        reactions = self.manner.reactions
        keys = [*(f"{method} after {seen}" for seen in self.seen), method]
        reaction = next((reactions[key] for key in keys if key in reactions), None)
        if reaction is None:
            self.answer(message, self.usual(message))
        elif isinstance(reaction, dict):
            if "line" in reaction:
                self.write(reaction["line"] + "\n")
            else:
                self.answer(message, reaction)
        else:
            self.obey(*reaction.split(), message=message)

    def obey(self, word: str, number: str = "0", *, message: Message) -> None:
        """Do something that is no answer."""
        if word == "half":
            self.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}})[:-7])
        if word == "answer":
            self.answer(message, self.usual(message))
        if word in ("exit", "half", "answer"):
            os._exit(int(number))
        if word == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if word == "close":
            os.close(sys.stdout.fileno())

    def answer(self, message: Message, outcome: Message) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}) + "\n")

    def write(self, text: str) -> None:
        os.write(1, text.encode())

    def usual(self, message: Message) -> Message:
        """The `result` or `error` of a request."""
        method, params = message["method"], message.get("params") or {}
        told = {"capabilities": self.manner.capabilities}
        if method == "initialize" and HANDSHAKE in self.manner.eras:
            return {"result": {**told, "protocolVersion": HANDSHAKE, "serverInfo": {"name": "abrupt", "version": "1"}}}
        if method == "server/discover" and MODERN in self.manner.eras:
            return {"result": {**told, "resultType": "complete", "supportedVersions": list(self.manner.eras)}}
        if method == "initialize":
            return {"error": {"code": -32022, "message": "Unsupported", "data": {"supported": [MODERN]}}}
        lists = {
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "resources/list": {"resources": [{"uri": "a://b", "name": "b"}]},
            "resources/templates/list": {"resourceTemplates": []},
            "prompts/list": {"prompts": [{"name": "greet"}]},
            "tools/call": {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]},
        }
        if method in lists:
            return {"result": {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **lists[method]}}
        return {"error": {"code": -32601, "message": "Method not found"}}


if __name__ == "__main__":
    Server(Path(sys.argv[1])).run()
