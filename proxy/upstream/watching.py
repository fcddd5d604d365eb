"""Hearing of changes at a server: subscriptions to resources, and the modern era's listen stream."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from itertools import count
from typing import Any, Final

import anyio
import structlog
from anyio.abc import TaskGroup
from mcp_types import METHOD_NOT_FOUND

from proxy.core.errors import ProxyError, Rejection
from proxy.core.inventory import Json, is_json

log = structlog.stdlib.get_logger("proxy.upstream")

RETRY: Final = 5.0
"""Seconds from one opening of a listen stream to the next: one that has lasted is opened again at once when lost."""
_numbers = count(1)


class Subscriptions:
    """The handshake era's `resources/subscribe`; changes of lists come unasked (2025-11-25, server/resources).

    `offered`: whether the server says that it can be subscribed to; else nothing is ever sent, and nothing comes.
    """

    def __init__(self, request: Callable[[str, Json], Awaitable[Any]], *, offered: bool) -> None:
        self._request = request
        self._offered = offered
        self._wanted: frozenset[str] = frozenset()
        self._subscribed: set[str] = set()
        self._refused: dict[str, Rejection] = {}
        self._one_at_a_time = anyio.Lock()

    async def set(self, uris: Collection[str]) -> Mapping[str, Rejection]:
        """Subscribe to what is new, unsubscribe from what is gone; the refusals of those that the server refuses.

        What is wanted by the time that each request is sent counts.
        """
        self._wanted = frozenset(uris) if self._offered else frozenset()
        async with self._one_at_a_time:
            self._refused = {uri: error for uri, error in self._refused.items() if uri in self._wanted}
            while gone := self._subscribed - self._wanted:
                uri = min(gone)
                self._subscribed.discard(uri)
                try:
                    await self._request("resources/unsubscribe", {"uri": uri})
                except ProxyError as error:
                    log.debug("server.unsubscribe_failed", uri=uri, reason=str(error))
            while fresh := self._wanted - self._subscribed - self._refused.keys():
                uri = min(fresh)
                try:
                    await self._request("resources/subscribe", {"uri": uri})
                    self._subscribed.add(uri)
                except Rejection as error:
                    self._refused[uri] = error
            return dict(self._refused)


class ListenStream:
    """The modern era's `subscriptions/listen` (2026-07-28, basic/patterns/subscriptions).

    `listen(id, filter)` runs one stream until it ends. `on_loss` is called when changes may have been missed.
    """

    def __init__(
        self, listen: Callable[[str, Json], Awaitable[Any]], capabilities: Json, on_loss: Callable[[], None]
    ) -> None:
        self._listen = listen
        self._on_loss = on_loss
        self._lists = {
            f"{kind}ListChanged": True
            for kind in ("tools", "resources", "prompts")
            if is_json(has := capabilities.get(kind)) and has.get("listChanged")
        }
        self._uris: frozenset[str] = frozenset()
        self._streams: list[anyio.CancelScope] = []
        self._acknowledged: dict[str, anyio.Event] = {}
        self._tasks: TaskGroup | None = None

    def start(self, tasks: TaskGroup) -> None:
        """Open the stream, in a task of this group, where the server has something to tell."""
        self._tasks = tasks
        self._renew()

    async def set(self, uris: Collection[str]) -> Mapping[str, Rejection]:
        """Open a stream for these resources, then end the one before it: nothing is missed in between."""
        if frozenset(uris) != self._uris:
            self._uris = frozenset(uris)
            self._renew()
        return {}

    def acknowledged(self, stream: object) -> None:
        """The server has taken note of a stream; it may name those before the connection's own."""
        if isinstance(stream, str) and stream in self._acknowledged:
            self._acknowledged[stream].set()

    def _renew(self) -> None:
        wanted: dict[str, Any] = dict(self._lists)
        if self._uris:
            wanted["resourceSubscriptions"] = sorted(self._uris)
        if wanted and self._tasks is not None:
            self._streams.append(anyio.CancelScope())
            self._tasks.start_soon(self._run, self._streams[-1], wanted)
        elif not wanted:
            self._end_before(None)

    async def _run(self, scope: anyio.CancelScope, wanted: Json) -> None:
        with scope:
            missed, began = False, anyio.current_time()
            while await self._stream(scope, wanted, missed=missed):
                await anyio.sleep_until(began + RETRY)
                missed, began = True, anyio.current_time()

    async def _stream(self, scope: anyio.CancelScope, wanted: Json, *, missed: bool) -> bool:
        """One stream until it ends; whether to open it again. `missed`: changes may have been, before it."""
        stream, lasting = f"listen-{next(_numbers)}", True
        self._acknowledged[stream] = anyio.Event()

        async def replace() -> None:
            await self._acknowledged[stream].wait()
            self._end_before(scope)
            if missed:
                self._on_loss()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(replace)
                try:
                    await self._listen(stream, {"notifications": dict(wanted)})
                except ProxyError as error:
                    lasting = not isinstance(error, Rejection) or error.code != METHOD_NOT_FOUND
                    log.debug("server.listen_lost", reason=str(error))
                tasks.cancel_scope.cancel()
        finally:
            del self._acknowledged[stream]
        return lasting

    def _end_before(self, scope: anyio.CancelScope | None) -> None:
        """End the streams that were opened before this one; all for None."""
        while self._streams and self._streams[0] is not scope:
            self._streams.pop(0).cancel()
