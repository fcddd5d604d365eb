"""What namespaces and users keep across a restart of the proxy, in a real file, and when it is written."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from proxy.core.errors import TooManyScopes
from proxy.core.run import Run
from proxy.core.scope import ScopeId, ScopeState, begun, connected, handed_out, put, started
from proxy.core.settings import PerKind, every_kind
from proxy.store import sqlite, state_file
from proxy.store.sqlite import SqliteStore
from proxy.store.state_file import Kept, StateFile
from tests.conftest import PATIENCE, ROOT
from tests.core.changes import activated, offloaded, plain
from tests.store.conftest import Said

pytestmark = pytest.mark.anyio

T = TypeVar("T")

A, B = ScopeId("namespace", "a"), ScopeId("namespace", "b")
ALICE, OF_ALICE = ScopeId("principal", "alice", "alice"), ScopeId("namespace", "a", "alice")
LASTING = (A, B, ALICE, OF_ALICE)
MANY = every_kind(1000)


@asynccontextmanager
async def running(path: Path, limits: PerKind[int] = MANY) -> AsyncGenerator[SqliteStore]:
    """One run of a proxy."""
    store = SqliteStore(limits, path)
    async with store.running():
        yield store


async def change(store: SqliteStore, scope: ScopeId, *changes: Callable[[ScopeState], ScopeState]) -> ScopeState:
    """Make changes to a scope, which begins with what is remembered, if it has not begun."""
    state = await store.get(scope)
    if state is None:
        state = await store.remembered(scope) or ScopeState()
        assert await store.swap(scope, None, state)
    for each in changes:
        old, state = state, each(state)
        assert await store.swap(scope, old, state)
    return state


def on(skill: str) -> Callable[[ScopeState], ScopeState]:
    return lambda state: activated(plain(skill), state, skill)


def off(skill: str) -> Callable[[ScopeState], ScopeState]:
    return lambda state: offloaded(plain(skill), state, skill)


async def remembered(path: Path, scope: ScopeId, limits: PerKind[int] = MANY) -> ScopeState | None:
    """What a new run knows of a scope."""
    async with running(path, limits) as store:
        return await store.remembered(scope)


def rows(path: Path) -> dict[str, list[str]]:
    """The active skills in the file, by the name of the scope."""
    if not path.exists():
        return {}
    with closing(sqlite3.connect(path)) as file:
        if not file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return {}
        return {name: json.loads(active) for name, active in file.execute("SELECT name, active FROM scope")}


def run(number: int) -> Run:
    return Run(f"r{number}", "case", "process", {"n": number}, "completed", 1e9 + number, 0.5)


def runs(path: Path) -> list[str]:
    """The ids of the runs in the file, the newest first."""
    return [run.id for run in StateFile(path).runs()]


async def until(test: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE):
        while not test():  # noqa: ASYNC110 - a thread writes
            await anyio.sleep(0.01)


def events(said: Said) -> list[str]:
    return [event["event"] for event in said]


# --- what is remembered ----------------------------------------------------------------------------------------------


async def test_namespaces_and_users_keep_their_skills(path: Path, said: Said) -> None:
    """In the order of activation, with those that were offloaded; each its own."""
    async with running(path) as store:
        for scope in LASTING:
            await change(store, scope, on("z"), on("a"), on(scope.kind), off("z"), on("ü €"))
        await change(store, B, on("b"))
    async with running(path) as store:
        for scope in LASTING:
            assert await store.get(scope) is None
            active = ("a", scope.kind, "ü €", *(("b",) if scope == B else ()))
            assert await store.remembered(scope) == ScopeState(active=active, offloaded=frozenset({"z"}))
        assert await store.remembered(ScopeId("namespace", "c")) is None
    assert not said


async def test_sessions_and_the_process_end_with_the_proxy(path: Path) -> None:
    """Nobody can come back to them."""
    async with running(path) as store:
        for scope in (ScopeId("session", "s"), ScopeId("session", "s", "alice"), ScopeId("process")):
            await change(store, scope, on("x"))
        await change(store, A, on("x"))
    assert rows(path) == {"a": ["x"]}


async def test_only_changes_of_skills_are_remembered(path: Path) -> None:
    """Neither that a scope has begun nor what its clients do: they may be others in another run."""
    async with running(path) as store:
        await change(store, A, lambda state: connected(state, "c"), lambda state: handed_out(state, "s", ["x:1"]))
        assert await store.swap(B, None, ScopeState(active=("by default",)))
        await change(store, B, lambda state: connected(state, "c"))
    assert rows(path) == {}


def on_heap(name: str, value: Any) -> Callable[[ScopeState], ScopeState]:
    def change(state: ScopeState) -> ScopeState:
        after = put(state, name, value)
        assert after is not None
        return after

    return change


async def test_a_scope_has_its_heap_again_and_what_has_begun_is_not_begun_again(path: Path) -> None:
    """From the first change on, also where no skill is active; each its own."""
    async with running(path) as store:
        await change(store, A, started)
        await change(store, B, on_heap("customer", {"id": "ü", "open": [1, None]}))
        await change(
            store, ALICE, on("x"), on("y"), on("z"), lambda state: replace(state, due=frozenset({"x", "y", "z"}))
        )
        await change(store, ALICE, lambda state: begun(state, ["y"]), off("z"))
    async with running(path) as store:
        assert await store.remembered(A) == ScopeState(started=True)
        assert await store.remembered(B) == ScopeState(heap={"customer": {"id": "ü", "open": [1, None]}})
        known = await store.remembered(ALICE)
        assert known is not None
        assert (known.active, known.due) == (("x", "y"), {"x"})
        await change(store, A, on_heap("n", 1))
        await change(store, ALICE, lambda state: begun(state, ["x"]))
    async with running(path) as store:
        assert await store.remembered(A) == ScopeState(started=True, heap={"n": 1})
        known = await store.remembered(ALICE)
        assert known is not None
        assert (known.active, known.due) == (("x", "y"), frozenset())


async def test_a_value_that_only_json_tells_from_another_is_a_change(path: Path) -> None:
    """To Python, 1 and true are equal."""
    async with running(path) as store:
        await change(store, A, on_heap("value", 1))
    async with running(path) as store:
        await change(store, A, on_heap("value", True))
    known = await remembered(path, A)
    assert known is not None
    assert known.heap["value"] is True


async def test_a_value_that_is_put_while_the_state_before_is_written_is_in_the_file(path: Path) -> None:
    """The newest state counts."""
    async with running(path) as store:
        for number in range(50):
            await change(store, A, on_heap("n", number))
            await anyio.lowlevel.checkpoint()
    known = await remembered(path, A)
    assert known is not None
    assert known.heap == {"n": 49}


async def test_of_two_changes_to_one_state_the_first_counts(path: Path) -> None:
    """Also in the file: what was refused is not remembered."""
    async with running(path) as store:
        state = await change(store, A)
        assert await store.swap(A, state, on("first")(state))
        assert not await store.swap(A, state, on("second")(state))
        assert not await store.swap(A, None, ScopeState())
    assert rows(path) == {"a": ["first"]}


async def test_a_scope_that_goes_on_is_remembered_by_its_newest_state(path: Path) -> None:
    """Over several runs; one that has not come back meanwhile stays as it was."""
    for skill in ("x", "y", "z"):
        async with running(path) as store:
            await change(store, A, on(skill))
            if skill == "x":
                await change(store, B, on(skill))
    assert rows(path) == {"a": ["x", "y", "z"], "b": ["x"]}


async def test_a_scope_that_has_ended_is_forgotten(path: Path) -> None:
    """Also one that had not begun in this run, or that has begun and ended before it was written."""
    async with running(path) as store:
        for scope in (A, B):
            await change(store, scope, on("x"))
    async with running(path) as store:
        await change(store, A)
        for scope in (A, B):
            await store.remove(scope)
            assert await store.remembered(scope) is None
        await change(store, ALICE, on("x"))
        await store.remove(ALICE)
    assert rows(path) == {}


async def test_a_scope_that_ends_and_begins_again_is_remembered_as_it_is_then(path: Path) -> None:
    """Whatever has been written of its first life."""
    async with running(path) as store:
        await change(store, A, on("x"))
        await until(lambda: rows(path) == {"a": ["x"]})
        await store.remove(A)
        await change(store, A, on("y"))
    assert rows(path) == {"a": ["y"]}


async def test_of_too_many_the_newest_are_remembered(path: Path) -> None:
    """So many as there may be of each kind; the others leave the file."""
    names = [f"n{number}" for number in range(5)]
    async with running(path) as store:
        for name in names:
            await change(store, ScopeId("namespace", name), on("x"))
        await change(store, ALICE, on("x"))
        await change(store, ScopeId("namespace", "n0"), on("y"))
    limits = PerKind(session=1, namespace=2, principal=1)
    assert await remembered(path, ScopeId("namespace", "n3"), limits) is None
    assert rows(path) == {"n0": ["x", "y"], "n4": ["x"], "alice": ["x"]}


# --- when it is written ----------------------------------------------------------------------------------------------


async def test_a_change_is_written_while_the_proxy_runs(path: Path) -> None:
    """A proxy that is killed has remembered what it was told before."""
    async with running(path) as store:
        await change(store, A, on("x"))
        await until(lambda: rows(path) == {"a": ["x"]})
        await change(store, A, on("y"))
        await until(lambda: rows(path) == {"a": ["x", "y"]})


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The outcome of work that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waited")


async def test_no_reading_and_no_change_waits_for_the_file(path: Path) -> None:
    """Even while another program holds it: memory is the truth."""
    async with running(path) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            state = at_once(change(store, A, on("x")))
            assert at_once(store.get(A)) is state
            assert at_once(store.remembered(B)) is None
            assert at_once(store.scopes()) == (A,)
    assert rows(path) == {"a": ["x"]}


async def test_what_is_pending_is_written_when_the_proxy_is_cancelled(path: Path) -> None:
    """As a signal does."""
    with anyio.CancelScope() as scope:
        async with running(path) as store:
            await anyio.lowlevel.checkpoint()
            await change(store, A, on("x"))
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert rows(path) == {"a": ["x"]}


async def test_leaving_waits_a_bounded_time_for_the_file(
    path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that does not answer keeps the proxy from nothing; that is said."""
    released = threading.Event()
    monkeypatch.setattr(state_file.StateFile, "write", lambda *_: released.wait(PATIENCE))
    try:
        with anyio.fail_after(PATIENCE / 2):
            async with running(path) as store:
                await change(store, A, on("x"))
    finally:
        released.set()
    assert events(said) == ["state.not_written"]


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many scopes and runs each attempt to write has had."""
    done: list[int] = []
    write = state_file.StateFile.write

    def noted(self: state_file.StateFile, changes: Mapping[ScopeId, Kept | None], runs: Sequence[Run]) -> None:
        try:
            write(self, changes, runs)
        finally:
            done.append(len(changes) + len(runs))

    monkeypatch.setattr(state_file, "WRITE_WAIT", 0.0)
    monkeypatch.setattr(sqlite, "AGAIN", 1000.0)
    monkeypatch.setattr(state_file.StateFile, "write", noted)
    return done


async def test_a_file_in_use_is_written_to_later(path: Path, said: Said, attempts: list[int]) -> None:
    """With the next change. Failures in a row are said once, and nothing is lost."""
    async with running(path) as store:
        for number in (1, 2):
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN EXCLUSIVE")
                for failed, scope in enumerate((A, B), 1):
                    attempts.clear()
                    await change(store, scope, on(f"during {number}"))
                    await until(lambda failed=failed: attempts == [failed])
            await change(store, A, on(f"after {number}"))
            await until(lambda: attempts[1:] == [2])
        assert rows(path) == {"a": ["during 1", "after 1", "during 2", "after 2"], "b": ["during 1", "during 2"]}
    warning = {"event": "state.not_written", "level": "warning", "file": str(path), "reason": "database is locked"}
    assert said == [warning, warning]


async def test_what_could_not_be_written_is_tried_again_without_a_change(
    path: Path, attempts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last change of a quiet evening is in the file, too."""
    monkeypatch.setattr(sqlite, "AGAIN", 0.01)
    async with running(path) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            await change(store, A, on("x"))
            await until(lambda: attempts[:2] == [1, 1])
        await until(lambda: rows(path) == {"a": ["x"]})


async def test_scopes_that_end_leave_nothing_behind_while_the_file_cannot_be_written(
    path: Path, attempts: list[int]
) -> None:
    """However many come and go."""
    async with running(path) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            await change(store, B, on("x"))
            await until(lambda: attempts == [1])
            for number in range(20):
                attempts.clear()
                scope = ScopeId("namespace", str(number))
                await change(store, scope, on("x"))
                await until(lambda: attempts == [2])
                await anyio.lowlevel.checkpoint()
                await store.remove(scope)
            assert store._pending.keys() == {B}
            assert not store._rows
    assert rows(path) == {"b": ["x"]}


async def test_several_proxies_use_one_file(path: Path) -> None:
    """Each client on stdio starts its own; what they write at a time is all there."""

    async def one(number: int) -> None:
        async with running(path) as store:
            for skill in ("x", "y", "z"):
                await change(store, ScopeId("namespace", str(number)), on(skill))
                await until(lambda skill=skill: rows(path).get(str(number), [""])[-1] == skill)

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(one, number)
    assert rows(path) == {str(number): ["x", "y", "z"] for number in range(4)}


# --- runs ------------------------------------------------------------------------------------------------------------


async def test_runs_are_written_while_the_proxy_runs_and_when_it_ends(path: Path) -> None:
    """Whatever scopes there are; nobody waits for that. This process has the newest in memory, too."""
    async with running(path) as store:
        store.keep(A, run(1))
        await until(lambda: runs(path) == ["r1"])
        store.keep(A, run(2))
        store.keep(A, run(3))
        assert store.runs.newest(2) == [run(3), run(2)]
    assert StateFile(path).runs() == [run(3), run(2), run(1)]
    assert rows(path) == {}


async def test_runs_are_written_when_the_proxy_is_cancelled(path: Path) -> None:
    """As a signal does, along with what scopes have changed."""
    with anyio.CancelScope() as scope:
        async with running(path) as store:
            scope.cancel()
            store.keep(A, run(1))
            await change(store, A, on("x"))
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert (runs(path), rows(path)) == (["r1"], {"a": ["x"]})


async def test_while_the_file_cannot_be_written_the_newest_runs_wait(
    path: Path, said: Said, attempts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many, and no more; they are written once it can be, in their order."""
    monkeypatch.setattr(sqlite, "UNWRITTEN", 3)
    async with running(path) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            for number in range(6):
                before = len(attempts)
                store.keep(A, run(number))
                await until(lambda before=before: len(attempts) > before)
        assert attempts == [1, 2, 3, 3, 3, 3]
        await change(store, A, on("x"))
        await until(lambda: attempts[6:] == [4])
        assert (runs(path), rows(path)) == (["r5", "r4", "r3"], {"a": ["x"]})
    assert events(said) == ["state.not_written"]


async def test_a_run_that_could_not_be_written_is_tried_again_without_another(
    path: Path, attempts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one of a quiet evening is in the file, too."""
    monkeypatch.setattr(sqlite, "AGAIN", 0.01)
    async with running(path) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            store.keep(A, run(1))
            await until(lambda: attempts[:2] == [1, 1])
        await until(lambda: runs(path) == ["r1"])


async def test_the_runs_of_several_proxies_are_in_one_file(path: Path) -> None:
    """Those of each in their order."""

    async def one(first: int) -> None:
        async with running(path) as store:
            for number in range(first, first + 5):
                store.keep(A, run(number))
                await until(lambda number=number: f"r{number}" in runs(path))

    async with anyio.create_task_group() as tasks:
        for proxy in range(4):
            tasks.start_soon(one, 10 * proxy)
    kept = runs(path)
    assert len(kept) == 20
    for proxy in range(4):
        wanted = [f"r{10 * proxy + number}" for number in reversed(range(5))]
        assert [each for each in kept if each in wanted] == wanted


BUSY = """
import sys
from pathlib import Path

import anyio

from proxy.core.run import Run
from proxy.core.scope import ScopeId
from proxy.core.settings import every_kind
from proxy.store.sqlite import SqliteStore


async def main():
    store = SqliteStore(every_kind(10), Path(sys.argv[1]))
    async with store.running():
        for number in range(10**9):
            run = Run(f"r{number}", "case", "process", {"n": number}, "completed", 1e9 + number, 0.5)
            store.keep(ScopeId("process"), run)
            await anyio.sleep(0.0001)


anyio.run(main)
"""
"""A proxy with a run every moment."""


def busy(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", BUSY, str(path)], cwd=ROOT)


@pytest.mark.parametrize("at", [1, 20, 40])
async def test_a_proxy_that_is_killed_leaves_all_runs_up_to_one(path: Path, said: Said, at: int) -> None:
    """In whatever it was interrupted; the next proxy goes on with the file."""
    with busy(path) as process:
        try:
            await until(lambda: count(path) >= at)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    last = 0
    async with running(path) as store:
        last = count(path)
        assert runs(path) == [f"r{number}" for number in reversed(range(last))]
        store.keep(A, run(last))
    assert runs(path)[0] == f"r{last}"
    assert not said


def count(path: Path) -> int:
    """How many runs are in a file that may be in the making."""
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as file:
        tables = file.execute("SELECT count(*) FROM sqlite_master WHERE name = 'run'").fetchone()
        return file.execute("SELECT count(*) FROM run").fetchone()[0] if tables[0] else 0


# --- without a file --------------------------------------------------------------------------------------------------


def a_folder(path: Path) -> None:
    path.mkdir()


def below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("a file")


@pytest.mark.parametrize("bad", [a_folder, below_a_file])
async def test_where_no_file_can_be_the_proxy_goes_on_in_memory(
    tmp_path: Path, said: Said, bad: Callable[[Path], None]
) -> None:
    """With one clear warning, and the same bounds."""
    path = tmp_path / "folder" / "state.db"
    path.parent.mkdir()
    bad(path)
    async with running(path, every_kind(1)) as store:
        state = await change(store, A, on("x"))
        assert await store.get(A) is state
        with pytest.raises(TooManyScopes):
            await change(store, B)
        await store.remove(A)
        await change(store, B, on("x"))
        store.keep(A, run(1))
        assert store.runs.newest(10) == [run(1)]
        assert not store._pending
        assert not store._unwritten
    (warning,) = said
    assert warning.pop("reason")
    assert warning == {"event": "state.in_memory", "level": "warning", "file": str(path)}


async def test_a_file_that_another_program_holds_is_left_as_it_is(
    path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not damaged: this run goes on in memory, the next one knows it again."""
    monkeypatch.setattr(state_file, "LOAD_WAIT", 0.01)
    async with running(path) as store:
        await change(store, A, on("x"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        async with running(path) as store:
            await change(store, A, on("y"))
    assert [(event["event"], event["reason"]) for event in said] == [("state.in_memory", "database is locked")]
    assert await remembered(path, A) == ScopeState(active=("x",))


def ended_process() -> int:
    """The id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.mark.parametrize("way", ["killed", "this process", "too long ago", "alive"])
async def test_a_run_whose_proxy_was_killed_is_interrupted_for_the_next_one(path: Path, way: str) -> None:
    """Not where another proxy that uses the file is still at work on it."""
    process = {"killed": ended_process(), "this process": os.getpid()}.get(way, os.getppid())
    began = time.time() - (1000 if way == "too long ago" else 0)
    running_now = replace(run(1), status="running", process=process, began=began, limit=300.0)
    async with running(path):
        StateFile(path).write({}, [running_now, run(2)])
    async with running(path):
        found = {one.id: one.status for one in StateFile(path).runs()}
    assert found == {"r1": "running" if way == "alive" else "interrupted", "r2": "completed"}


async def test_a_running_run_says_which_process_runs_it(path: Path) -> None:
    """Its record takes the place of the earlier one; what has ended has no process."""
    async with running(path) as store:
        store.keep(A, replace(run(1), status="running"))
        await until(lambda: runs(path) == ["r1"])
        assert StateFile(path).runs()[0].process == os.getpid()
        store.keep(A, run(2))
        store.keep(A, run(1))
    assert StateFile(path).runs() == [run(2), run(1)]
