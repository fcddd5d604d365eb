"""What a server writes to its stdout that it should not, and what it leaves out (B44, B45)."""

import anyio
import pytest

from proxy.wire.dispatcher import MAX_NOISE_LINES
from tests.conftest import text_of
from tests.faults.front import LONG, SHORT, FaultBench, complaint, front

pytestmark = pytest.mark.anyio

ANSWER = ("answer",)


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize(
    "noise",
    [
        ("write", "Server started\n"),
        ("write", "\n\n \n"),
        ("write", "\ufeff"),
        ("write", '[1, {"jsonrpc": "2.0"}]\n'),
        ("write", '{"jsonrpc": "2.0", "id": 1, "res\n'),
        ("answer_for", 999_999),
        ("answer_for", "1"),
        ("answer_for", None),
    ],
    ids=["banner", "blank lines", "byte order mark", "array", "half a line", "unknown id", "text id", "no id"],
)
async def test_what_is_no_answer_is_passed_over(bench: FaultBench, era: str, noise: tuple[object, ...]):
    """The answer that follows arrives, on the same process."""
    bench.unruly("a", {"timeout": LONG, "era": era})
    async with front(bench) as proxy:
        assert text_of(await proxy.beside(noise, ANSWER)) == "done"
        await proxy.goes_on()
    assert len(bench.events("a", "spawned")) == 1


async def test_a_flood_of_noise_is_few_warnings(bench: FaultBench):
    """As many lines as may be before each answer: it arrives, and the warnings name the server and their number."""
    bench.unruly("a", {"timeout": LONG})
    async with front(bench) as proxy:
        for _ in range(3):
            assert text_of(await proxy.beside(("write", "progress 1 of 999\n", MAX_NOISE_LINES - 1), ANSWER)) == "done"
        await proxy.goes_on()
        warned = proxy.warnings()
    assert 1 <= len(warned) <= 20
    assert {one["server"] for one in warned} == {"a"}
    assert max(one["lines"] for one in warned) > 2_000
    assert len(bench.events("a", "spawned")) == 1


@pytest.mark.parametrize("line", ["progress 1 of 1000\n", "\n", "[1]\n"], ids=["text", "blank", "no message"])
async def test_a_server_that_writes_no_messages_is_ended(bench: FaultBench, line: str):
    """With that reason; the next call has a new process."""
    bench.unruly("a", {"timeout": LONG})
    async with front(bench) as proxy:
        told = complaint(await proxy.beside(("write", line, MAX_NOISE_LINES), ("wait", "/nowhere")))
        assert "it wrote 1,000 lines in a row that are not JSON-RPC" in told
        await proxy.comes_back()
    assert len(bench.events("a", "spawned")) == 2


@pytest.mark.parametrize(
    ("text", "arrives"),
    [(b"caf\xe9", "caf\ufffd"), (b"\\ud83d", "\ufffd"), (b"\\ud83d\\udc4d", "👍"), ("näher 👍".encode(), "näher 👍")],
    ids=["no UTF-8", "half a pair", "a pair", "UTF-8"],
)
async def test_odd_characters_of_an_answer_cost_at_most_themselves(bench: FaultBench, text: bytes, arrives: str):
    """What is none comes with a replacement, or the call is answered with an error; the connection goes on."""
    bench.unruly("a", {"timeout": LONG})
    async with front(bench) as proxy:
        assert text_of(await proxy.beside(("answer_bytes", text.hex()))) == arrives
        await proxy.goes_on()
    assert len(bench.events("a", "spawned")) == 1


async def test_an_answer_that_comes_twice_is_passed_on_once(bench: FaultBench):
    """The second is for nobody."""
    bench.unruly("a", {"timeout": LONG})
    async with front(bench) as proxy:
        assert text_of(await proxy.beside(ANSWER, ANSWER, ("answer", "another"))) == "done"
        await proxy.goes_on()
    assert proxy.runs() == 1


async def test_a_line_of_ten_megabytes_arrives_whole(bench: FaultBench):
    """And holds up no other server."""
    bench.unruly("a", {"timeout": LONG})
    async with front(bench) as proxy:
        assert text_of(await proxy.beside(("answer", "0123456789", 1_000_000))) == "0123456789" * 1_000_000
        await proxy.goes_on()


async def test_an_answer_in_two_pieces_is_one(bench: FaultBench):
    """Other servers are called between them."""
    bench.unruly("a", {"timeout": LONG})
    go = bench.file("go")
    async with front(bench) as proxy:

        async def others() -> None:
            await bench.event("a", "ran")
            await proxy.others_work()
            go.touch()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(others)
            assert text_of(await proxy.act(("half",), ("wait", str(go)), ("rest",))) == "half and half"
        await proxy.goes_on()


@pytest.mark.parametrize("steps", [(), (("half",),)], ids=["nothing", "half a line"])
@pytest.mark.parametrize("tool", ["act", "act_read_only"])
async def test_a_call_without_an_answer_ends_at_the_limit(bench: FaultBench, steps: tuple[tuple[str]], tool: str):
    """The server is told, once; it is not asked again, whatever the tool is, and answers what comes next."""
    bench.unruly("a", {"timeout": SHORT})
    async with front(bench) as proxy:
        answer = await proxy.beside(*steps, tool=tool)
        assert "within 1 s" in complaint(answer)
        await bench.event("a", "notification", method="notifications/cancelled")
        await proxy.goes_on()
        assert len(bench.events("a", "notification", method="notifications/cancelled")) == 1
    assert proxy.runs(tool) == 1


async def test_an_answer_behind_one_that_broke_off_counts(bench: FaultBench):
    """Half an answer without its end of line, then a whole one: the first call has an error, the second its result."""
    bench.unruly("a", {"timeout": LONG})
    go = bench.file("go")
    async with front(bench) as proxy, anyio.create_task_group() as tasks:

        async def second() -> None:
            await bench.event("a", "done")
            await proxy.goes_on()
            go.touch()

        tasks.start_soon(second)
        assert "no valid JSON-RPC response" in complaint(await proxy.beside(("half",)))
    assert proxy.runs() == 1
