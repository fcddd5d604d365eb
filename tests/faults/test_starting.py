"""Servers that crash or dawdle at their start, and what changes across one (B17, B18)."""

import anyio
import pytest
from mcp import MCPError

from tests.answers import not_ready
from tests.conftest import text_of
from tests.faults.front import LONG, FaultBench, complaint, front, works
from tests.upstream.bench import until

pytestmark = pytest.mark.anyio

CRASHES = 3


async def test_a_server_that_crashes_at_its_first_starts_is_there_in_the_end(bench: FaultBench):
    """Each activation that comes too early says so; nothing gives up for ever, and the other server is there."""
    bench.unruly("a", {"timeout": LONG})
    bench.mood("a", crashes=CRASHES)
    async with front(bench, activate=False) as proxy:
        with anyio.fail_after(LONG):
            while problems := not_ready(await proxy.one.skill("activate", "all")):
                assert problems.keys() == {"a"}
                await works(proxy.one, "b")
        await proxy.two.skill("activate", "all")
        await proxy.goes_on()
    assert len(bench.events("a", "spawned")) == CRASHES + 1
    assert len({one["server"] for one in proxy.warnings()} - {"a"}) == 0


async def test_a_server_that_is_lost_and_crashes_at_its_next_starts_is_there_in_the_end(bench: FaultBench):
    """As above, with its tools listed all the time."""
    bench.unruly("a", {"timeout": LONG})
    async with front(bench) as proxy:
        bench.mood("a", crashes=1 + CRASHES)
        assert "exit code 3" in complaint(await proxy.act(("exit", 3)))
        with anyio.fail_after(LONG):
            while len(bench.events("a", "spawned")) < 1 + CRASHES:
                assert "a__echo" in await proxy.two.tools()
                answer = await proxy.one.call("a__echo")
                assert not answer.get("isError") or complaint(answer)
                await proxy.others_work()
        await proxy.comes_back()


async def test_a_slow_start_holds_up_who_waits_for_it_alone(bench: FaultBench):
    """A scope without its skill lists and calls at once; the scope that needs it has it when it is there."""
    bench.unruly("a", {"timeout": LONG})
    bench.mood("a", slow=2)
    bench.settings |= {"activation_wait": LONG, "list_wait": LONG}
    bench.skill("healthy", {"b": []})
    async with front(bench, activate=False) as proxy:
        await proxy.two.skill("activate", "healthy")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(proxy.one.skill, "activate", "all")
            await bench.event("a", "spawned")
            assert "b__echo" in await proxy.two.tools()
            await works(proxy.two, "b")
            assert not bench.events("a", "request")
        await works(proxy.one, "a")


async def test_what_a_server_offers_otherwise_after_a_crash_is_what_clients_see(bench: FaultBench):
    """A tool that is gone is unknown, a new one is listed after a notice, and nobody has to activate anything again."""
    bench.unruly("a", {"timeout": LONG})
    async with front(bench) as proxy:
        before = proxy.two.wire.notices()
        bench.mood("a", lists={"tools": ["act", "echo", "new"]})
        assert "exit code 3" in complaint(await proxy.beside(("exit", 3)))
        await proxy.goes_on()
        await proxy.two.wire.until_notices(before + 1)
        for peer in (proxy.one, proxy.two):
            listed = await peer.tools()
            assert "a__new" in listed
            assert "a__old" not in listed
            with pytest.raises(MCPError, match="Unknown tool: a__old"):
                await peer.call("a__old")
        assert not (await proxy.one.call("a__new")).get("isError")


@pytest.mark.parametrize("quiet", [False, True], ids=["declared", "not declared"])
async def test_a_list_that_fails_after_a_notice_leaves_what_was_known(bench: FaultBench, quiet: bool):
    """The failure is a warning; the next notice, of two hundred, brings the list up to date."""
    bench.mood("a", quiet=quiet)
    bench.unruly("a", {"timeout": LONG, "era": "handshake"})
    async with front(bench) as proxy:
        before = await proxy.one.tools()
        lists = len(bench.events("a", "request", method="tools/list"))
        bench.mood("a", fails=["tools/list"])
        assert text_of(await proxy.beside(("change", "tools", ["new"], ["old"]), ("answer",))) == "done"
        await bench.event("a", "request", method="tools/list", count=lists + 1)
        await until(lambda: any("the database is down" in str(one) for one in proxy.warnings()))
        assert await proxy.one.tools() == before
        await proxy.goes_on()
        bench.mood("a")
        told = proxy.two.wire.notices()
        await proxy.act(("change", "tools", [], [], 200), ("answer",))
        await proxy.two.wire.until_notices(told + 1)
        assert set(before) ^ set(await proxy.two.tools()) == {"a__new", "a__old"}
