"""Telling the clients of a scope that a list has changed: once per effective change, never for none.

Results of `SKILL` are held until their caller has read its list again: most clients build their model's next request
from what they have when the result comes.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio
import structlog
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from proxy.core.errors import ProxyError
from proxy.core.known_clients import Rereading, hold_seconds, rereading
from proxy.core.scope import (
    Lists,
    ScopeId,
    ScopeState,
    announced,
    evidence_of,
    missed_read,
    observed_after_result,
    reread_in_time,
)
from proxy.gateway.gate import Gate
from proxy.gateway.list_reads import ExpectedRead, ListReads
from proxy.ports import Caller, ListKind, Notifier

log = structlog.stdlib.get_logger("proxy.gateway")

KINDS: tuple[ListKind, ...] = ("tools", "resources", "prompts")
HOLD_MARGIN_S: Final = 0.015
"""Seconds that a result is held on once its caller was given its list, for that to arrive and be processed."""
AFTER_RESULT_S: Final = 0.15
"""Seconds after a result in which a client reads its list again that does so before its model's next request."""
STREAM_FLUSH_YIELDS: Final = 3
"""Turns of the event loop in which listen streams write a notice that was published to them."""


@dataclass(frozen=True)
class _Change:
    before: Lists
    after: Lists

    def of(self, kind: ListKind) -> bool:
        return self.before.get(kind) != self.after.get(kind)


class Announcer:
    """Compares each scope's lists with what its clients were last told, and sends a notice where they differ.

    `on_change`: called after the lists of some scope, or what servers offer, have changed.
    """

    def __init__(
        self,
        gate: Gate,
        notifier: Notifier,
        tasks: TaskGroup,
        on_change: Callable[[], Coroutine[Any, Any, None]],
        reads: ListReads,
    ) -> None:
        self._gate = gate
        self._reads = reads
        self._on_change = on_change
        self._notifier = notifier
        self._tasks = tasks
        self._in_change: Counter[ScopeId] = Counter()

    @asynccontextmanager
    async def one_change(self, caller: Caller) -> AsyncGenerator[None]:
        """What happens inside counts as one change: one notice at its end, on the caller's own stream first.

        When the request is cancelled inside, the notice goes out all the same.
        """
        self._in_change[caller.scope] += 1
        try:
            yield
        except BaseException:
            self._tasks.start_soon(self.announce, caller.scope)
            raise
        finally:
            self._in_change[caller.scope] -= 1
            if not self._in_change[caller.scope]:
                del self._in_change[caller.scope]
        await self.announce(caller.scope, caller)

    @asynccontextmanager
    async def one_held_change(self, caller: Caller) -> AsyncGenerator[ExpectedRead]:
        """As `one_change`; then waits until the caller has read its list of tools again, if that has changed.

        Gives what is then known of that. How long it waits at most goes by what is known of the caller
        (`core.known_clients`). Nobody else waits, and the change stands, whatever becomes of the request.
        """
        before = (await self._gate.state(caller.scope)).tools_version
        with self._reads.expected(caller) as read:
            async with self.one_change(caller):
                yield read
            state = await self._gate.state(caller.scope)
            if state.tools_version != before:
                await self._hold(caller, read, state)

    def expected_of(self, caller: Caller, state: ScopeState) -> Rereading:
        """What `caller` is expected to do once its list of tools has changed."""
        if not self._notifier.hears_of_tools(caller):
            return "none"
        return rereading(caller.client, evidence_of(state, caller.key), self._gate.settings.call_route_clients)

    async def _hold(self, caller: Caller, read: ExpectedRead, state: ScopeState) -> None:
        """Wait for the read that is expected, and record whether it came in time."""
        expected = self.expected_of(caller, state)
        seconds = hold_seconds(expected)
        if not seconds:
            return
        in_time = await read.reached(state.tools_version, seconds)
        if in_time is None:  # the client is gone, which shows nothing
            return
        if in_time:
            await anyio.sleep(HOLD_MARGIN_S)
            await self._gate.change(caller.scope, lambda state: reread_in_time(state, caller.key))
            return
        await self._gate.change(caller.scope, lambda state: missed_read(state, caller.key))
        if expected in ("while_held", "after_result"):
            self._tasks.start_soon(self._observe_after_result, caller, state.tools_version)

    async def _observe_after_result(self, caller: Caller, version: int) -> None:
        """Record whether a client reads its list again once it has its result, so that holding that is of no use."""
        with self._reads.expected(caller) as read:
            in_time = await read.reached(version, AFTER_RESULT_S)
        if in_time is not None and await self._gate.store.get(caller.scope) is not None:
            await self._gate.change(caller.scope, lambda state: observed_after_result(state, caller.key, read=in_time))

    async def announce(self, scope: ScopeId, via: Caller | None = None) -> None:
        """Notify the clients of `scope` if any of its lists differs from what they know."""
        change = _Change({}, {})

        def tell(state: ScopeState) -> ScopeState:
            nonlocal change
            change = _Change(state.lists, self._gate.lists(scope, state.active))
            return announced(state, change.after)

        if await self._gate.store.get(scope) is None:
            return
        await self._gate.change(scope, tell)
        own = via.connection if via is not None else None
        changed: list[ListKind] = [kind for kind in KINDS if change.of(kind)]
        for kind in changed:
            self._notifier.list_changed(scope, kind, "handshake", but=own)
            self._notifier.list_changed(scope, kind, "modern")
        if via is not None and own is not None:
            await self._tell(via, own, changed)
        elif via is not None and changed:
            for _ in range(STREAM_FLUSH_YIELDS):  # the notice goes out before the result
                await checkpoint()
        if change.before != change.after:
            self._tasks.start_soon(self._on_change)

    async def _tell(self, via: Caller, own: str, kinds: Sequence[ListKind]) -> None:
        """Tell the caller on its request's own stream; what does not get through there goes out on its other one."""
        waiting = dict.fromkeys(kinds)
        try:
            for kind in kinds:
                await via.channel.list_changed(kind)
                del waiting[kind]
        finally:
            for kind in waiting:
                self._notifier.list_changed(via.scope, kind, "handshake", only=own)

    async def run(self) -> None:
        """Announce what changes of the servers' offers change, until cancelled."""
        seen = 0
        while True:
            seen = await self._gate.upstreams.changed(seen)
            await self.announce_all()

    async def announce_all(self) -> None:
        """Announce, scope by scope, what has changed for all of them; others have their turns in between."""
        for scope in await self._gate.store.scopes():
            await checkpoint()
            if scope not in self._in_change:
                try:
                    await self.announce(scope)
                except ProxyError:  # it has ended meanwhile
                    continue
                except Exception:  # boundary: what one scope cannot be told costs no other its notices
                    log.exception("notice.failed", scope=str(scope))
        self._tasks.start_soon(self._on_change)
