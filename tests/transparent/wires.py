"""Clients that lose nothing, JSON lines over stdio and HTTP by hand: at a mirror, and at the proxy before it."""

import http.client
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from proxy.core.names import Naming
from tests.conftest import HANDSHAKE, MODERN, PATIENCE, QUIET, ROOT, Json, http_proxy, program, write_config

MIRROR = ROOT / "tests" / "servers" / "mirror.py"
SERVER = "up"
NAMING = Naming({SERVER: SERVER})
INFO = {"name": QUIET, "version": "1"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def exposed(name: str) -> str:
    """What a tool or prompt of the mirror is called at the proxy."""
    return NAMING.expose(SERVER, name)


class Client:
    """One client of one era; what it sends and gets is JSON text."""

    def __init__(self, era: str) -> None:
        self.modern = era == "modern"
        self._last = 0

    def ask(self, method: str, params: Mapping[str, Any], written: str = "") -> str:
        """Send one request; its response as it came. `written` is sent in place of the text "@"."""
        self._last += 1
        sent = dict(params)
        if self.modern:
            sent["_meta"] = {**sent.get("_meta", {}), **ENVELOPE}
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": sent}
        text = json.dumps(message)
        return self._exchange(message, text.replace('"@"', written) if written else text).decode()

    def request(self, method: str, params: Mapping[str, Any]) -> Json:
        """Send one request; its response."""
        return json.loads(self.ask(method, params))

    def result(self, method: str, params: Mapping[str, Any]) -> Json:
        """Send one request; its result."""
        response = self.request(method, params)
        assert "result" in response, response
        return response["result"]

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Json:
        """Call a tool; its result."""
        return self.result("tools/call", {"name": tool, "arguments": arguments})

    def greet(self) -> None:
        """The handshake, where the era has one."""
        if not self.modern:
            self.result("initialize", {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": INFO})
            self._tell('{"jsonrpc": "2.0", "method": "notifications/initialized"}')

    def _exchange(self, message: Json, text: str) -> bytes:
        """Send a request, which `text` is; the response."""
        raise NotImplementedError

    def _tell(self, text: str) -> None:
        """Send a notification."""
        raise NotImplementedError


class StdioClient(Client):
    """A client at a process that has pipes."""

    def __init__(self, era: str, process: subprocess.Popen[bytes]) -> None:
        super().__init__(era)
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout.fileno()
        self._rest = bytearray()

    def _tell(self, text: str) -> None:
        self._in.write(text.encode() + b"\n")
        self._in.flush()

    def _exchange(self, message: Json, text: str) -> bytes:
        self._tell(text)
        while True:
            line = self._line()
            said = json.loads(line)
            if said.get("id") == message["id"] and "method" not in said:
                return line

    def _line(self) -> bytes:
        searched = 0
        while (end := self._rest.find(b"\n", searched)) < 0:
            searched = len(self._rest)
            ready, _, _ = select.select([self._out], [], [], PATIENCE)
            chunk = os.read(self._out, 1 << 20) if ready else b""
            assert chunk, "no answer in time" if not ready else "it closed its output"
            self._rest += chunk
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        return line


class HttpClient(Client):
    """A client at a URL, on one connection that is kept alive; `status` is that of the newest answer."""

    def __init__(self, era: str, url: str) -> None:
        super().__init__(era)
        parts = urlsplit(url)
        self._path = parts.path
        self._http = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE)
        self._session: dict[str, str] = {}
        self.status = 0

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _tell(self, text: str) -> None:
        self._post(text, self._session)

    def _exchange(self, message: Json, text: str) -> bytes:
        kind, body = self._post(text, self._modern_headers(message) if self.modern else self._session)
        if kind.startswith("text/event-stream"):
            data = [line[5:].strip(b" ") for line in body.replace(b"\r\n", b"\n").split(b"\n") if line[:5] == b"data:"]
            return [each for each in data if each][-1]
        return body

    def _post(self, text: str, headers: Mapping[str, str]) -> tuple[str, bytes]:
        accepted = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        self._http.request("POST", self._path, text.encode(), {**accepted, **headers})
        response = self._http.getresponse()
        self.status, body = response.status, response.read()
        if (session := response.getheader("Mcp-Session-Id")) is not None:
            self._session = {"Mcp-Session-Id": session, "MCP-Protocol-Version": HANDSHAKE}
        return response.getheader("Content-Type", ""), body

    @staticmethod
    def _modern_headers(message: Json) -> dict[str, str]:
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": message["method"]}
        name = message["params"].get("uri" if message["method"] == "resources/read" else "name")
        return headers if name is None else {**headers, "Mcp-Name": name}


@dataclass(frozen=True)
class Pair:
    """Two clients of one era and transport: at a mirror, and at a proxy before another mirror."""

    era: str
    transport: str
    direct: Client
    proxied: Client
    log: Path

    def activate(self, skill: str) -> Json:
        """Activate a skill; the answer."""
        return self.proxied.call("SKILL", {"action": "activate", "skill_name": skill})


@contextmanager
def pair(
    folder: Path,
    era: str,
    transport: str,
    *,
    upstream_era: str | None = None,
    pages: Json | None = None,
    **entry_more: Any,
) -> Generator[Pair]:
    """The pair; nothing is active yet.

    `pages`: what the lists of both mirrors answer, instead of their own. The rest goes into the entry of the server.
    """
    file = folder / "pages.json"
    file.write_text(json.dumps(pages or {}), encoding="utf-8")
    with ExitStack() as stack:
        command = [sys.executable, str(MIRROR), transport, str(file)]
        if transport == "http":
            entry: Json = {"type": "http", "url": stack.enter_context(mirror_over_http(command))}
        else:
            entry = {"command": command[0], "args": command[1:]}
        config = write_config(
            folder / "skills.yaml",
            {SERVER: {**entry, "era": upstream_era or era, **entry_more}},
            {"all": {"usage": "u", "tool_list": {SERVER: []}}, "one": {"usage": "u", "tool_list": {SERVER: ["t100"]}}},
        )
        direct: Client
        proxied: Client
        if transport == "http":
            proxy = stack.enter_context(http_proxy(config))
            log = proxy.log
            direct = stack.enter_context(closing(HttpClient(era, stack.enter_context(mirror_over_http(command)))))
            proxied = stack.enter_context(closing(HttpClient(era, proxy.namespace("a"))))
        else:
            log = folder / "stderr.txt"
            direct = stack.enter_context(at_process(era, command, folder / "mirror.txt"))
            proxied = stack.enter_context(at_process(era, program("serve", "--config", config), log))
        direct.greet()
        proxied.greet()
        yield Pair(era, transport, direct, proxied, log)


@contextmanager
def at_process(era: str, command: list[str], log: Path) -> Generator[StdioClient]:
    """A client at a process, which ends with its input."""
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
    with process:
        try:
            yield StdioClient(era, process)
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(PATIENCE) == 0, log.read_text()
        finally:
            process.kill()


@contextmanager
def mirror_over_http(command: list[str]) -> Generator[str]:
    """A mirror over HTTP; its URL."""
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.terminate()


def until_listed(client: Client, method: str, key: str, mark: str) -> Json:
    """A list once it holds a definition with this title; the proxy reads lists again after a moment."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        result = client.result(method, {})
        if any(definition.get("title") == mark for definition in result[key]):
            return result
        time.sleep(0.02)
    raise AssertionError(f"{method} does not show {mark}")
