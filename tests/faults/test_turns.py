"""Calls that wait for their turn at a server, around its faults."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from tests.conftest import Json, Peer, text_of
from tests.faults.front import LONG, MOST, SHORT, FaultBench, Front, complaint, front

pytestmark = pytest.mark.anyio

ANSWER = ("answer",)


@asynccontextmanager
async def one_in_work(
    bench: FaultBench, answers: list[Json], *steps: tuple[object, ...], limit: float = LONG
) -> AsyncGenerator[tuple[Front, TaskGroup]]:
    """A server that runs one call at a time, and is at one of scope one that does these steps."""
    bench.unruly("a", {"timeout": limit, MOST: 1})
    async with front(bench) as proxy:
        async with anyio.create_task_group() as tasks:

            async def work() -> None:
                answers.append(await proxy.act(*steps))

            tasks.start_soon(work)
            await bench.event("a", "ran")
            yield proxy, tasks
        await proxy.goes_on()


async def number(proxy: Front, number: int, by: Peer, answers: dict[int, Json]) -> None:
    """A call that says which it is."""
    answers[number] = await proxy.act(ANSWER, by=by, number=number)


def numbers(bench: FaultBench) -> list[int]:
    """The calls that have said which they are, in the order of running."""
    ran = [event["arguments"] for event in bench.events("a", "ran", name="act")]
    return [arguments["number"] for arguments in ran if "number" in arguments]


async def test_a_waiting_call_that_is_cancelled_never_runs(bench: FaultBench):
    """The others that wait have their turn, in the order of coming, and each runs once."""
    go = bench.file("go")
    first: list[Json] = []
    answers: dict[int, Json] = {}
    async with one_in_work(bench, first, ("wait", str(go)), ANSWER) as (proxy, tasks):
        async with anyio.create_task_group() as given_up:
            given_up.start_soon(number, proxy, 1, proxy.two, answers)
            await forwarded(proxy, 2)
            tasks.start_soon(number, proxy, 2, proxy.two, answers)
            await forwarded(proxy, 3)
            tasks.start_soon(number, proxy, 3, proxy.one, answers)
            await forwarded(proxy, 4)
            given_up.cancel_scope.cancel()
        await proxy.others_work()
        go.touch()
    assert text_of(first[0]) == "done"
    assert {each: text_of(answer) for each, answer in answers.items()} == {2: "done", 3: "done"}
    assert numbers(bench) == [2, 3]


async def test_calls_that_wait_at_a_server_that_ends_run_on_the_next_one(bench: FaultBench):
    """They have not run, so none needs an error, and none runs twice."""
    go = bench.file("go")
    first: list[Json] = []
    answers: dict[int, Json] = {}
    async with one_in_work(bench, first, ("wait", str(go)), ("exit", 3)) as (proxy, tasks):
        for each in range(4):
            tasks.start_soon(number, proxy, each, proxy.two if each % 2 else proxy.one, answers)
            await forwarded(proxy, 2 + each)
        go.touch()
    assert "exit code 3" in complaint(first[0])
    assert [text_of(answers[each]) for each in range(4)] == ["done"] * 4
    assert sorted(numbers(bench)) == [0, 1, 2, 3]
    assert len(bench.events("a", "spawned")) == 2


async def test_a_call_without_an_answer_gives_its_turn_away_at_the_limit(bench: FaultBench):
    """Those that wait have theirs then; the time that they waited is not held against them."""
    first: list[Json] = []
    answers: dict[int, Json] = {}
    async with one_in_work(bench, first, limit=SHORT) as (proxy, tasks):
        for each in range(3):
            tasks.start_soon(number, proxy, each, proxy.two, answers)
        await proxy.others_work()
    assert "within 1 s" in complaint(first[0])
    assert [text_of(answers[each]) for each in range(3)] == ["done"] * 3
    assert sorted(numbers(bench)) == [0, 1, 2]


async def forwarded(proxy: Front, count: int) -> None:
    """Wait until so many calls are on their way to the server."""
    with anyio.fail_after(LONG):
        while sum(one["event"] == "request.forwarded" and one["server"] == "a" for one in proxy.logged) < count:
            await checkpoint()
