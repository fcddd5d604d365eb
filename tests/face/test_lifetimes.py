"""How long scopes are kept: as long as they are used, and no trace of those that were refused (rule 13)."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from proxy.core.scope import ScopeId, ScopeState
from proxy.core.settings import PerKind, every_kind
from proxy.face.lifetimes import Lifetimes
from proxy.store.memory import MemoryStore

pytestmark = pytest.mark.anyio

A, B = ScopeId("namespace", "a"), ScopeId("namespace", "b")
IDLE = 100.0
IDLES = every_kind(IDLE)


class Clock:
    """Time that passes when the test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def in_use(lifetimes: Lifetimes, scope: ScopeId) -> AsyncGenerator[None]:
    lifetimes.begun(scope)
    try:
        yield
    finally:
        await lifetimes.ended(scope)


async def begun(*scopes: ScopeId) -> MemoryStore:
    store = MemoryStore(every_kind(10))
    for scope in scopes:
        await store.swap(scope, None, ScopeState())
    return store


async def test_a_scope_ends_when_nobody_has_used_it_for_its_idle_time():
    """Until then it stays."""
    store, clock = await begun(A), Clock()
    lifetimes = Lifetimes(store, IDLES, clock, lambda _: False)
    async with in_use(lifetimes, A):
        pass
    clock.now = IDLE - 1
    await lifetimes.sweep()
    assert await store.scopes() == (A,)
    clock.now = IDLE
    await lifetimes.sweep()
    assert not await store.scopes()


async def test_each_kind_of_scope_has_an_idle_time_of_its_own():
    """A session may end long before a namespace; the process of a stdio client does not end by itself."""
    session, process = ScopeId("session", "s"), ScopeId("process")
    store, clock = await begun(A, session, process), Clock()
    lifetimes = Lifetimes(store, PerKind(session=5, namespace=IDLE, principal=IDLE), clock, lambda _: False)
    for scope in (A, session, process):
        async with in_use(lifetimes, scope):
            pass
    clock.now = 5
    await lifetimes.sweep()
    assert set(await store.scopes()) == {A, process}
    clock.now = 10 * IDLE
    await lifetimes.sweep()
    assert await store.scopes() == (process,)


async def test_the_shortest_idle_time_says_how_often_scopes_are_looked_at(monkeypatch: pytest.MonkeyPatch):
    """Else those with the shortest would live for much longer than it."""
    waits: list[float] = []

    async def note(delay: float) -> None:
        waits.append(delay)
        if len(waits) == 2:
            raise TimeoutError

    monkeypatch.setattr("anyio.sleep", note)
    for session, wait in ((200, 10.0), (1, 1.0)):
        waits.clear()
        idle = PerKind(session=float(session), namespace=4000.0, principal=86400.0)
        with pytest.raises(TimeoutError):
            await Lifetimes(await begun(), idle, Clock(), lambda _: False).run()
        assert waits == [wait, wait]


async def test_a_scope_in_use_or_with_a_connection_stays():
    """However long its request takes, however silent its connection is."""
    store, clock = await begun(A, B), Clock()
    lifetimes = Lifetimes(store, IDLES, clock, lambda scope: scope == B)
    async with in_use(lifetimes, A), in_use(lifetimes, B):
        pass
    async with in_use(lifetimes, A):
        clock.now = 2 * IDLE
        await lifetimes.sweep()
    assert set(await store.scopes()) == {A, B}


async def test_a_scope_that_was_refused_leaves_nothing_behind():
    """A flood of names beyond the bound costs no memory."""
    lifetimes = Lifetimes(await begun(), IDLES, Clock(), lambda _: False)
    for number in range(100):
        async with in_use(lifetimes, ScopeId("namespace", str(number))):
            pass
    assert not lifetimes._last_used  # pyright: ignore[reportPrivateUsage]
