"""The program as a process: its pipes, its log and its end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

import proxy
from tests.conftest import QUIET
from tests.upstream.bench import DEADLINE, POLL, alive, until

ROOT = Path(proxy.__file__).parents[1]
BOUND = 8.0
"""Seconds for the end of the program and its children: 5 by rule 29, the rest for a busy machine."""


@dataclass
class Program:
    """`serve` as a process on pipes; its stderr goes to a file."""

    process: Process
    stdout: int
    stderr: Path
    lines: list[bytes] = field(default_factory=list[bytes])
    rest_of_line: bytes = b""
    number: int = 0

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send one message."""
        assert self.process.stdin is not None
        await self.process.stdin.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def ask(self, method: str, **params: Any) -> int:
        """Send a request, and do not wait for the response; its id."""
        self.number += 1
        await self.send({"id": self.number, "method": method, "params": params})
        return self.number

    async def response(self, number: int) -> dict[str, Any]:
        """Wait for the response to a request."""
        with anyio.fail_after(DEADLINE):
            seen = 0
            while True:
                for line in self.lines[seen:]:
                    message = json.loads(line)
                    if message.get("id") == number and "method" not in message:
                        return message
                seen = len(self.lines)
                assert await self.read(), self.log()

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request; its result."""
        answer = await self.response(await self.ask(method, **params))
        assert "result" in answer, answer
        return answer["result"]

    async def greet(self) -> dict[str, Any]:
        """Shake hands."""
        client = {"name": QUIET, "version": "1"}
        result = await self.request("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
        await self.send({"method": "notifications/initialized"})
        return result

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool."""
        return await self.request("tools/call", name=name, arguments=arguments)

    async def activate(self, skill: str) -> dict[str, Any]:
        """Activate a skill; its servers are ready then."""
        return await self.call("SKILL", action="activate", skill_name=skill)

    async def read(self) -> bool:
        """Read some of the output; whether there was more."""
        await anyio.wait_readable(self.stdout)
        chunk = os.read(self.stdout, 1 << 16)
        *lines, self.rest_of_line = (self.rest_of_line + chunk).split(b"\n")
        self.lines += lines
        return bool(chunk)

    async def rest(self) -> None:
        """Read the output to its end."""
        with anyio.fail_after(DEADLINE):
            while self.stdout >= 0 and await self.read():
                pass

    def close_stdout(self) -> None:
        """Read no more of the output, and let the program know."""
        os.close(self.stdout)
        self.stdout = -1

    async def ended(self, pids: Iterable[int] = (), *, within: float = BOUND) -> int:
        """Wait for the end of the process and of `pids`; the exit code."""
        left = list(pids)
        await until(lambda: self.process.returncode is not None and not any(map(alive, left)), within)
        assert self.process.returncode is not None
        return self.process.returncode

    def log(self) -> str:
        """What it has written to stderr so far."""
        return self.stderr.read_text()

    async def said(self, event: str) -> dict[str, Any]:
        """Wait for an event in its log."""
        with anyio.fail_after(DEADLINE):
            while True:
                for line in self.log().split("\n")[:-1]:
                    if line.startswith("{") and (found := json.loads(line))["event"] == event:
                        return found
                assert self.process.returncode is None, self.log()
                await anyio.sleep(POLL)

    def is_clean(self) -> bool:
        """Whether nothing but messages is on stdout and no traceback on stderr."""
        assert not self.rest_of_line
        messages = [json.loads(line) for line in self.lines]
        assert all(message["jsonrpc"] == "2.0" for message in messages)
        assert "Traceback" not in self.log(), self.log()
        return True


@asynccontextmanager
async def serving(config: Path, *options: str, stdin: int = subprocess.PIPE) -> AsyncGenerator[Program]:
    """The program, started with a configuration; killed at the end of the block if it still runs."""
    stderr = config.with_name("stderr.txt")
    command = [sys.executable, "-m", "proxy", "serve", "--config", str(config), *options]
    stdout, its_stdout = os.pipe()
    with stderr.open("wb") as file:
        process = await anyio.open_process(command, cwd=ROOT, stdin=stdin, stdout=its_stdout, stderr=file)
    os.close(its_stdout)
    program = Program(process, stdout, stderr)
    try:
        yield program
    finally:
        if program.stdout >= 0:
            program.close_stdout()
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await process.aclose()
