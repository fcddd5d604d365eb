"""How long scopes are kept: as long as they are used, and no trace of those that were refused (rule 13)."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from proxy.core.scope import ScopeId, ScopeState
from proxy.face.lifetimes import Lifetimes
from proxy.store.memory import MemoryStore

pytestmark = pytest.mark.anyio

A, B = ScopeId("namespace", "a"), ScopeId("namespace", "b")
IDLE = 100.0


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
    store = MemoryStore(10)
    for scope in scopes:
        await store.swap(scope, None, ScopeState())
    return store


async def test_a_scope_ends_when_nobody_has_used_it_for_its_idle_time():
    """Until then it stays."""
    store, clock = await begun(A), Clock()
    lifetimes = Lifetimes(store, IDLE, clock, lambda _: False)
    async with in_use(lifetimes, A):
        pass
    clock.now = IDLE - 1
    await lifetimes.sweep()
    assert await store.scopes() == (A,)
    clock.now = IDLE
    await lifetimes.sweep()
    assert not await store.scopes()


async def test_a_scope_in_use_or_with_a_connection_stays():
    """However long its request takes, however silent its connection is."""
    store, clock = await begun(A, B), Clock()
    lifetimes = Lifetimes(store, IDLE, clock, lambda scope: scope == B)
    async with in_use(lifetimes, A), in_use(lifetimes, B):
        pass
    async with in_use(lifetimes, A):
        clock.now = 2 * IDLE
        await lifetimes.sweep()
    assert set(await store.scopes()) == {A, B}


async def test_a_scope_that_was_refused_leaves_nothing_behind():
    """A flood of names beyond the bound costs no memory."""
    lifetimes = Lifetimes(await begun(), IDLE, Clock(), lambda _: False)
    for number in range(100):
        async with in_use(lifetimes, ScopeId("namespace", str(number))):
            pass
    assert not lifetimes._last_used  # pyright: ignore[reportPrivateUsage]
