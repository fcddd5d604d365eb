"""An open event stream of the proxy as it comes: messages, comments, and its end."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2

from tests.conftest import NO_TLS, PATIENCE


class Held:
    """What has come so far. `ids`: of the events. `ended`: how the stream ended, if it has: "in order" or "cut"."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self.messages: list[Any] = []
        self.ids: list[str] = []
        self.comments = 0
        self.ended: str | None = None
        self._news = anyio.Event()

    async def read(self) -> None:
        try:
            async for line in self.response.aiter_lines():
                self.comments += line.startswith(":")
                if line.startswith("id:"):
                    self.ids.append(line[3:].strip())
                if line.startswith("data:") and line[5:].strip():
                    self.messages.append(json.loads(line[5:]))
                self._tell()
            self.ended = "in order"
        except httpx2.TransportError:
            self.ended = "cut"
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    def notices(self) -> int:
        """How many notices came that the list of tools has changed."""
        return sum(message.get("method") == "notifications/tools/list_changed" for message in self.messages)

    async def until(self, test: Callable[["Held"], object]) -> None:
        """Wait until `test` holds; it is asked after every line."""
        with anyio.fail_after(PATIENCE):
            while not test(self):
                await self._news.wait()


@asynccontextmanager
async def held(
    url: str, headers: Mapping[str, str], verb: str = "GET", body: Mapping[str, Any] | None = None
) -> AsyncGenerator[Held]:
    """A response on a connection of its own, which is read while this is entered."""
    sent = {"Accept": "text/event-stream", **headers}
    async with (
        httpx2.AsyncClient(verify=NO_TLS, timeout=httpx2.Timeout(PATIENCE, read=None)) as http,
        http.stream(verb, url, headers=sent, json=body) as response,
        anyio.create_task_group() as tasks,
    ):
        stream = Held(response)
        tasks.start_soon(stream.read)
        yield stream
        tasks.cancel_scope.cancel()
