"""A client on Streamable HTTP that does as little as it can: one session on one connection that is kept alive."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from stdio_client import GREETING, INFO

LIMIT = 60
MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class HttpClient:
    """A session of the handshake era, which `greet` opens; `modern`: requests of 2026-07-28, which has none."""

    def __init__(self, url: str, *, modern: bool = False) -> None:
        parts = urlsplit(url)
        self._url, self._modern = url, modern
        self._host, self._port = parts.hostname, parts.port
        self._headers = (
            f"{parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
            "Accept: application/json, text/event-stream\r\n"
        )
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._last = [0]
        self._session = ""

    async def greet(self) -> None:
        """The handshake."""
        await self.request("initialize", GREETING)
        self._headers += f"Mcp-Session-Id: {self._session}\r\nMCP-Protocol-Version: 2025-11-25\r\n"
        await self.notify("notifications/initialized", {})

    @asynccontextmanager
    async def another(self) -> AsyncGenerator["HttpClient"]:
        """The same session, on a connection of its own."""
        other = HttpClient(self._url, modern=self._modern)
        other._headers, other._last, other._session = self._headers, self._last, self._session
        try:
            yield other
        finally:
            other.cut()

    def number(self) -> int:
        """The id of a new request."""
        self._last[0] += 1
        return self._last[0]

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """One request's result, from JSON or from a stream of events."""
        (answer,) = await self.answers(self.number(), method, params)
        if "result" not in answer:
            raise ValueError(str(answer)[:300])
        return answer["result"]

    async def answers(self, number: int, method: str, params: dict[str, Any]) -> list[dict[str, Any]]:
        """Every answer that comes to one request: a single one, if all is well."""
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        messages = _messages(await self._send("POST", message))
        return [answer for answer in messages if answer.get("id") == number and "method" not in answer]

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification."""
        await self._send("POST", {"jsonrpc": "2.0", "method": method, "params": params})

    async def stream(self) -> AsyncGenerator[list[dict[str, Any]]]:
        """The session's own event stream: nothing at its beginning, then the messages of each piece."""
        headers = await self._ask("GET", "", b"")
        yield []
        async for chunk in self._chunks(headers):
            yield _messages(chunk)

    async def close(self, *, politely: bool = True) -> None:
        """End the session and the connection."""
        if politely and self._session:
            await self._send("DELETE")
        if self._writer is not None:
            self._writer.close()

    def cut(self) -> None:
        """Break the connection off, whatever is under way on it."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None

    async def _send(self, verb: str, message: dict[str, Any] | None = None) -> bytes:
        more = ""
        if message and self._modern:
            message = {**message, "params": {**message["params"], "_meta": META}}
            more = f"MCP-Protocol-Version: {MODERN}\r\nMcp-Method: {message['method']}\r\n"
            if "name" in message["params"]:
                more += f"Mcp-Name: {message['params']['name']}\r\n"
        async with asyncio.timeout(LIMIT):
            headers = await self._ask(verb, more, json.dumps(message).encode() if message else b"")
            return b"".join([chunk async for chunk in self._chunks(headers)])

    async def _ask(self, verb: str, more: str, body: bytes) -> dict[str, str]:
        """Send a request; the headers of the answer, by lower-case name. In the modern era errors have a status too."""
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=1 << 22)
        self._writer.write(f"{verb} {self._headers}{more}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if not status.split()[1].startswith("2") and not (self._modern and "json" in headers.get("content-type", "")):
            raise ValueError(f"{status}: {b''.join([chunk async for chunk in self._chunks(headers)])[:300]!r}")
        self._session = headers.get("mcp-session-id", self._session)
        return headers

    async def _chunks(self, headers: dict[str, str]) -> AsyncIterator[bytes]:
        """The answer's body, in the pieces in which it was sent."""
        assert self._reader is not None
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await self._reader.readuntil(b"\r\n"), 16):
                yield await self._reader.readexactly(size)
                await self._reader.readexactly(2)
            await self._reader.readexactly(2)
        else:
            yield await self._reader.readexactly(int(headers.get("content-length", 0)))


def _messages(body: bytes) -> list[dict[str, Any]]:
    """The messages in JSON or events."""
    lines = (line for line in body.split(b"\n") if line.startswith((b"{", b"data: {")))
    return [json.loads(line.removeprefix(b"data: ")) for line in lines]
