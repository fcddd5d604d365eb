"""Telling the clients of a scope that a list has changed: once per effective change, never for none (rule 17)."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import structlog
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from proxy.core.errors import ProxyError
from proxy.core.scope import Lists, ScopeId, ScopeState, announced
from proxy.gateway.gate import Gate
from proxy.ports import Caller, ListKind, Notifier

log = structlog.stdlib.get_logger("proxy.gateway")

KINDS: tuple[ListKind, ...] = ("tools", "resources", "prompts")


@dataclass(frozen=True)
class _Change:
    before: Lists
    after: Lists

    def of(self, digest: str) -> bool:
        return self.before.digests.get(digest) != self.after.digests.get(digest)


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
    ) -> None:
        self._gate = gate
        self._on_change = on_change
        self._notifier = notifier
        self._tasks = tasks
        self._held: Counter[ScopeId] = Counter()

    @asynccontextmanager
    async def one_change(self, caller: Caller) -> AsyncGenerator[None]:
        """What happens inside counts as one change: one notice at its end, on the caller's own stream first.

        When the request is cancelled inside, the notice goes out all the same.
        """
        self._held[caller.scope] += 1
        try:
            yield
        except BaseException:
            self._tasks.start_soon(self.announce, caller.scope)
            raise
        finally:
            self._held[caller.scope] -= 1
            if not self._held[caller.scope]:
                del self._held[caller.scope]
        await self.announce(caller.scope, caller)

    async def announce(self, scope: ScopeId, via: Caller | None = None) -> None:
        """Notify the clients of `scope` if any of its lists differs from what they know."""
        change = _Change(Lists(), Lists())

        def tell(state: ScopeState) -> ScopeState:
            nonlocal change
            change = _Change(state.lists, self._gate.lists(scope, state.active))
            return announced(state, change.after)

        if await self._gate.store.get(scope) is None:
            return
        await self._gate.change(scope, tell)
        own = via.connection if via is not None else None
        changed: list[ListKind] = [kind for kind in KINDS if change.of(kind)]
        for kind in KINDS:
            if kind in changed:
                self._notifier.list_changed(scope, kind, "handshake", but=own)
            if change.of(f"modern {kind}"):
                self._notifier.list_changed(scope, kind, "modern")
        if via is not None and own is not None:
            await self._tell(via, own, changed)
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
            if scope not in self._held:
                try:
                    await self.announce(scope)
                except ProxyError:  # it has ended meanwhile
                    continue
                except Exception:  # boundary: what one scope cannot be told costs no other its notices
                    log.exception("notice.failed", scope=str(scope))
        self._tasks.start_soon(self._on_change)
