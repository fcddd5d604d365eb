"""Scope state and records of runs that outlive the process: in memory while it runs, and in an SQLite file."""

import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Final

import anyio
import structlog
from anyio import to_thread

from proxy.core.run import Run
from proxy.core.scope import LASTING, ScopeId, ScopeState
from proxy.core.settings import PerKind
from proxy.store.memory import MemoryStore
from proxy.store.state_file import CannotUse, Kept, StateFile

log = structlog.stdlib.get_logger("proxy.store")

AGAIN: Final = 5.0
"""Seconds until what could not be written is tried again, if no change comes before."""
FLUSH: Final = 1.0
"""Seconds on leaving for what is not yet written."""
UNWRITTEN: Final = 1000
"""Runs that wait to be written at most, the newest ones: the disk may fail for long."""


class SqliteStore(MemoryStore):
    """A `MemoryStore` that remembers namespaces and principals, and the runs of all scopes, in the file at `path`.

    Of a scope it remembers its skills and its heap. Inside `running` one task writes what is new, the last state of
    each scope and the runs, as soon as the write before is done; nobody waits for it. Without a file that can be used,
    it is a `MemoryStore`.
    """

    def __init__(self, limits: PerKind[int], path: Path) -> None:
        super().__init__(limits)
        self._path = path
        self._file = StateFile(path)
        self._remembered: dict[ScopeId, ScopeState] = {}
        self._rows: set[ScopeId] = set()
        self._pending: dict[ScopeId, Kept | None] = {}
        self._unwritten: dict[str, Run] = {}
        self._writing = False
        self._failing = False
        self._leaving = False
        self._news = anyio.Event()
        self._done = anyio.Event()
        self._life = anyio.CancelScope(shield=True)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """State is kept inside, from what earlier runs have left; on leaving, what is pending is written within 1 s."""
        await self._load()
        async with anyio.create_task_group() as tasks:
            if self._writing:
                tasks.start_soon(self._write_behind)
            try:
                yield
            finally:
                self._leaving = True
                self._news.set()
                if self._writing:
                    with anyio.move_on_after(FLUSH, shield=True):
                        await self._done.wait()
                    if not self._done.is_set():
                        self._not_written("it took too long")
                self._life.cancel()

    def keep(self, scope: ScopeId, run: Run) -> None:
        """Keep the record of a run of `scope`, soon also in the file."""
        super().keep(scope, run)
        if self._writing:
            self._unwritten[run.id] = replace(run, process=os.getpid()) if run.status == "running" else run
            if len(self._unwritten) > UNWRITTEN:
                del self._unwritten[next(iter(self._unwritten))]
            self._news.set()

    async def remembered(self, scope: ScopeId) -> ScopeState | None:
        """What an earlier run knew of `scope`, which has not begun in this one; None for nothing."""
        return self._remembered.get(scope)

    async def swap(self, scope: ScopeId, old: ScopeState | None, new: ScopeState) -> bool:
        """As in memory; a change of what is remembered is written soon."""
        if not await super().swap(scope, old, new):
            return False
        if old is None:
            self._remembered.pop(scope, None)
        elif scope.kind in LASTING and _differ(old, new):
            self._note(scope, Kept(new, time.time()))
        return True

    async def remove(self, scope: ScopeId) -> None:
        """Forget `scope`, soon also in the file."""
        await super().remove(scope)
        self._remembered.pop(scope, None)
        self._pending.pop(scope, None)
        if scope in self._rows:
            self._note(scope, None)

    def keeps(self, scope: ScopeId) -> bool:
        """Whether the state of `scope` outlives the program."""
        return self._writing and scope.kind in LASTING

    async def _load(self) -> None:
        try:
            self._remembered = await to_thread.run_sync(self._file.load, self._limits)
        except CannotUse as error:
            log.warning("state.in_memory", file=str(self._path), reason=str(error))
            return
        self._rows = set(self._remembered)
        self._writing = True

    def _note(self, scope: ScopeId, kept: Kept | None) -> None:
        if self._writing:
            self._pending[scope] = kept
            self._news.set()

    async def _write_behind(self) -> None:
        """Write what is pending, until there is nothing to come; a cancellation from outside does not reach it."""
        with self._life:
            while True:
                last = self._leaving
                self._news = anyio.Event()
                if self._pending or self._unwritten:
                    await self._write()
                if last:
                    break
                with anyio.move_on_after(AGAIN if self._pending or self._unwritten else inf):
                    await self._news.wait()
        self._done.set()

    async def _write(self) -> None:
        """Write what is pending; after a failure it stays so."""
        changes, self._pending = self._pending, {}
        runs, self._unwritten = self._unwritten, {}
        new = changes.keys() - self._rows
        self._rows |= new
        try:
            # It is given up only when the time for leaving is over: nothing is written after it.
            await to_thread.run_sync(self._file.write, changes, [*runs.values()], abandon_on_cancel=True)
        except CannotUse as error:
            self._pending = changes | self._pending
            self._unwritten = dict([*(runs | self._unwritten).items()][-UNWRITTEN:])
            self._rows -= new
            self._not_written(str(error))
        else:
            self._failing = False
            self._rows -= {scope for scope, kept in changes.items() if kept is None}

    def _not_written(self, why: str) -> None:
        if not self._failing:
            log.warning("state.not_written", file=str(self._path), reason=why)
        self._failing = True


def _differ(old: ScopeState, new: ScopeState) -> bool:
    """Whether two states differ in what is remembered; to Python, heaps with 1 and true in them would be equal."""
    return _compared(old) != _compared(new) or old.heap is not new.heap


def _compared(state: ScopeState) -> tuple[object, ...]:
    return state.active, state.offloaded, state.by_demand, state.started, state.due
