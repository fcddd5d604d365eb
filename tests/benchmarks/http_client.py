"""A client on Streamable HTTP that does as little as it can: one session on one connection that is kept alive."""

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

from stdio_client import GREETING

LIMIT = 60


class HttpClient:
    """A session of the handshake era; `greet` opens it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._headers = (
            f"{parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
            "Accept: application/json, text/event-stream\r\n"
        )
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._last = 0
        self._session = ""

    async def greet(self) -> None:
        """The handshake."""
        await self.request("initialize", GREETING)
        self._headers += f"Mcp-Session-Id: {self._session}\r\nMCP-Protocol-Version: 2025-11-25\r\n"
        await self._send("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """One request's result, from JSON or from a stream of events."""
        self._last += 1
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        body = await self._send("POST", message)
        for line in body.split(b"\n"):
            if line.startswith((b"{", b"data: {")):
                answer = json.loads(line.removeprefix(b"data: "))
                if answer.get("id") == self._last and "result" in answer:
                    return answer["result"]
        raise ValueError(body[:300])

    async def close(self, *, politely: bool = True) -> None:
        """End the session and the connection."""
        if self._writer is not None:
            if politely and self._session:
                await self._send("DELETE")
            self._writer.close()

    async def _send(self, verb: str, message: dict[str, Any] | None = None) -> bytes:
        async with asyncio.timeout(LIMIT):
            return await self._exchange(verb, json.dumps(message).encode() if message else b"")

    async def _exchange(self, verb: str, body: bytes) -> bytes:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=1 << 22)
        reader = self._reader
        self._writer.write(f"{verb} {self._headers}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            answer = b""
            while size := int(await reader.readline(), 16):
                answer += await reader.readexactly(size)
                await reader.readexactly(2)
            await reader.readexactly(2)
        else:
            answer = await reader.readexactly(int(headers.get("content-length", 0)))
        if not status.split()[1].startswith("2"):
            raise ValueError(f"{status}: {answer[:300]!r}")
        self._session = headers.get("mcp-session-id", self._session)
        return answer
