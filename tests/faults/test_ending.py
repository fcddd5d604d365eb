"""Processes that end, and pipes that close or fill up, around an answer (B20)."""

import anyio
import pytest

from tests.conftest import Json, text_of
from tests.faults.front import LONG, SHORT, FaultBench, complaint, front, works
from tests.upstream.bench import alive, until

pytestmark = pytest.mark.anyio

ANSWER, HALF = ("answer",), ("half",)
BIG = "0123456789abcdef" * 200_000
"""An argument that fits into no pipe."""


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("before", [(), (HALF,)], ids=["before", "during"])
@pytest.mark.parametrize(("tool", "runs"), [("act", 1), ("act_read_only", 2), ("act_idempotent", 2)])
async def test_an_end_before_the_whole_answer_is_told(
    bench: FaultBench, code: int, before: tuple[tuple[str]], tool: str, runs: int
):
    """With the exit code, once; only what is safe has run again, and the next call works."""
    bench.unruly("a", {"timeout": LONG})
    async with front(bench) as proxy:
        text = complaint(await proxy.beside(*before, ("exit", code), tool=tool))
        assert f"exit code {code}" in text
        assert "the disk is full" not in text
        await proxy.goes_on()
    assert proxy.runs(tool) == runs
    assert 2 <= len(bench.events("a", "spawned")) <= 3


async def test_an_end_after_the_answer_costs_nothing(bench: FaultBench):
    """The call has its result, and the next one finds a new process."""
    bench.unruly("a", {"timeout": LONG})
    async with front(bench) as proxy:
        assert text_of(await proxy.beside(ANSWER, ("exit", 3))) == "done"
        await until(lambda: not alive(bench.pids("a")[0]))
        await proxy.goes_on()
    assert proxy.runs() == 1


async def test_an_end_in_the_middle_of_noise_is_told(bench: FaultBench):
    """What was written without an end of line before it is no answer."""
    bench.unruly("a", {"timeout": LONG})
    async with front(bench) as proxy:
        text = complaint(await proxy.beside(("write", "core dumped"), ("exit", 139)))
        assert "exit code 139" in text
        await proxy.goes_on()


@pytest.mark.parametrize("before", [(), (HALF,), (ANSWER,)], ids=["before", "during", "after"])
async def test_a_process_that_closes_its_output_and_lives_on_is_replaced(bench: FaultBench, before: tuple[tuple[str]]):
    """What it had not answered has an error, the process is ended, and another one has its place."""
    bench.unruly("a", {"timeout": LONG})
    async with front(bench) as proxy:
        answer = await proxy.beside(*before, ("close", "stdout"))
        if before == (ANSWER,):
            assert text_of(answer) == "done"
        else:
            assert "closed its output" in complaint(answer)
        await until(lambda: not alive(bench.pids("a")[0]))
        await proxy.goes_on()
    assert proxy.runs() == 1


async def test_what_is_lost_with_an_output_is_told_before_the_process_has_ended(bench: FaultBench):
    """However long it may take to end: whoever waits for the answer does not wait for that."""
    bench.unruly("a", {"timeout": LONG, "stop_timeout": LONG})
    async with front(bench) as proxy:
        assert "closed its output" in complaint(await proxy.beside(("close", "stdout")))
        bench.close()


async def test_a_process_that_closes_its_input_is_replaced(bench: FaultBench):
    """What it has in work is answered; the next call, which it could not have read, runs on another process."""
    bench.unruly("a", {"timeout": LONG})
    async with front(bench) as proxy:
        assert text_of(await proxy.beside(("close", "stdin"), ANSWER)) == "done"
        assert text_of(await proxy.beside(ANSWER)) == "done"
        await proxy.goes_on()
        await until(lambda: not alive(bench.pids("a")[0]))
    assert proxy.runs() == 2


async def test_a_pipe_that_fills_up_ends_a_call_at_the_limit_and_drains_again(bench: FaultBench):
    """A server that does not read for a while: the call is answered in time, others too, and it goes on later."""
    bench.unruly("a", {"timeout": SHORT})
    go = bench.file("go")
    async with front(bench) as proxy, anyio.create_task_group() as tasks:

        async def read_no_more() -> None:
            await proxy.act(("close", "ears"), ("wait", str(go)), ("open", "ears"))

        tasks.start_soon(read_no_more)
        await bench.event("a", "ran")
        answers: list[Json] = []

        async def write() -> None:
            answers.append(await proxy.act(ANSWER, big=BIG))

        async with anyio.create_task_group() as writing:
            writing.start_soon(write)
            while not answers:
                await proxy.others_work()
        assert "within 1 s" in complaint(answers[0])
        go.touch()
        await proxy.goes_on()


async def test_all_in_work_at_an_end_are_answered_and_share_one_new_process(bench: FaultBench):
    """Calls of two scopes, each with one error; those that come at once afterwards wait for the same start."""
    bench.unruly("a", {"timeout": LONG})
    async with front(bench) as proxy:
        async with proxy.waiting(4) as answers:
            await proxy.act(("exit", 3))
        for answer in answers:
            assert "exit code 3" in complaint(answer)
        async with anyio.create_task_group() as tasks:
            for peer in [proxy.one, proxy.two] * 3:
                tasks.start_soon(works, peer, "a")
    assert proxy.runs() == 5
    assert len(bench.events("a", "spawned")) == 2


async def test_with_a_process_for_each_scope_one_end_is_no_other_scope_s(bench: FaultBench):
    """`isolation: scope`: a call of another scope at the same server goes on through it."""
    bench.unruly("a", {"timeout": LONG, "isolation": "scope"})
    go = bench.file("go")
    async with front(bench) as proxy:
        answers: list[Json] = []

        async def wait() -> None:
            answers.append(await proxy.act(("wait", str(go)), ANSWER, by=proxy.two))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await bench.event("a", "ran")
            assert "exit code 3" in complaint(await proxy.beside(("exit", 3)))
            go.touch()
        assert text_of(answers[0]) == "done"
        await proxy.goes_on()
    assert len({event["pid"] for event in bench.events("a", "ran", name="echo")}) == 2
