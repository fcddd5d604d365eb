"""A client on stdio that does as little as it can: raw JSON lines, blocking, any number of requests in flight."""

import json
import os
import select
import subprocess
import time
from typing import Any

INFO = {"name": "bench", "version": "1"}
GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}
LIMIT = 60.0


class StdioClient:
    """A session with a process that has pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin.fileno(), process.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN | select.POLLHUP)
        self._lines: list[bytes] = []
        self._rest: list[bytes] = []
        self._last = 0

    def greet(self) -> None:
        """The handshake."""
        self.request("initialize", GREETING)
        self._send(_dump({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """One request's result."""
        return _result(self.raw(method, params))

    def raw(self, method: str, params: dict[str, Any]) -> bytes:
        """The line that answers one request: long ones are not parsed."""
        number, data = self._frame(method, params)
        end = time.monotonic() + LIMIT
        self._send(data)
        while True:
            line = self._line(end)
            ends = line if len(line) < 1024 else line[:256] + line[-256:]
            if b'"method"' not in ends and any(mark % number in ends for mark in (b'"id":%d', b'"id": %d')):
                return line

    def tools(self) -> list[str]:
        """The names of the tools, of all pages."""
        names: list[str] = []
        params: dict[str, Any] = {}
        for _ in range(1000):
            page = self.request("tools/list", params)
            names += (tool["name"] for tool in page["tools"])
            if not page.get("nextCursor"):
                break
            params = {"cursor": page["nextCursor"]}
        return names

    def pipeline(self, call: dict[str, Any], count: int, in_flight: int, text: str, seconds: float) -> float:
        """Calls a second, of at most `count` equal ones and so many at once, each of which has to answer `text`.

        After `seconds` no more are sent.
        """
        waiting = [self._frame("tools/call", call) for _ in range(count)][::-1]
        begun = time.perf_counter()
        end = time.monotonic() + LIMIT
        sent: set[int] = set()
        done = 0

        def send() -> None:
            number, data = waiting.pop()
            sent.add(number)
            self._send(data)

        while waiting and len(sent) < in_flight:
            send()
        while sent:
            message = json.loads(self._line(end))
            if "method" in message or message["id"] not in sent:
                continue
            sent.remove(message["id"])
            if message["result"]["content"][0]["text"] != text:
                raise ValueError(message)
            done += 1
            if waiting and time.perf_counter() - begun < seconds:
                send()
        return done / (time.perf_counter() - begun)

    def notified(self, within: float) -> None:
        """Wait for anything to come, such as a notice, at most so many seconds."""
        if not self._lines:
            self._poll.poll(within * 1000)

    def _frame(self, method: str, params: dict[str, Any]) -> tuple[int, bytes]:
        self._last += 1
        return self._last, _dump({"jsonrpc": "2.0", "id": self._last, "method": method, "params": params})

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._in, view) :]

    def _line(self, end: float) -> bytes:
        while not self._lines:
            if not self._poll.poll(max(0.0, end - time.monotonic()) * 1000):
                raise TimeoutError("no answer in time")
            chunk = os.read(self._out, 1 << 16)
            if not chunk:
                raise EOFError("it closed its output")
            self._rest.append(chunk)
            if b"\n" in chunk:
                *lines, rest = b"".join(self._rest).split(b"\n")
                self._rest = [rest]
                self._lines = [line for line in reversed(lines) if line]
        return self._lines.pop()


def _dump(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _result(line: bytes) -> dict[str, Any]:
    message = json.loads(line)
    if "error" in message:
        raise ValueError(message["error"])
    return message["result"]
