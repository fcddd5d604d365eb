"""What a server does not declare it is not asked for; what it declares is offered."""

import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from tests.conftest import ROOT, program
from tests.servers.abrupt import HANDSHAKE, MODERN, Manner, command
from tests.upstream.bench import Bench, problems

pytestmark = pytest.mark.anyio

BAD = [{"error": {"code": -32603, "message": "no"}}, "silence", "exit 1"]
READING: Mapping[str, Any] = {"resources": {}, "prompts": {}}


def abrupt(bench: Bench, manner: Manner, **entry: object) -> None:
    """Put a server on stdio into the configuration that behaves so, and a skill for it."""
    manner.write(bench.file("a.json"))
    program, *args = command(bench.file("a.json"))
    bench.servers["a"] = {"command": program, "args": args, **entry}
    bench.skill("one", {"a": []})


def asked(bench: Bench) -> set[str]:
    return {event["method"] for event in bench.events("a", "request")}


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
@pytest.mark.parametrize("how", BAD, ids=str)
async def test_a_server_without_tools_is_not_asked_for_them(bench: Bench, era: str, how: object):
    """Its resources and prompts are there, whatever it does when it is asked for tools."""
    abrupt(bench, Manner({"tools/list": how}, eras=(era,), capabilities=READING))
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        assert "a://b" in [str(one.uri) for one in (await proxy.client.list_resources()).resources]
        assert "a__greet" in [one.name for one in (await proxy.client.list_prompts()).prompts]
        assert proxy.running.pool.status("a").notes == ("it declares no tools, so it is not asked for any",)
    assert "tools/list" not in asked(bench)


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
@pytest.mark.parametrize("method", ["resources/list", "resources/templates/list", "prompts/list"])
@pytest.mark.parametrize("how", ["silence", "exit 1"])
async def test_a_server_with_tools_alone_is_not_asked_for_the_rest(bench: Bench, era: str, method: str, how: str):
    """Its tools are there, whatever it does when it is asked for something else."""
    abrupt(bench, Manner({method: how}, eras=(era,)))
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        assert "a__echo" in await proxy.tools()
        assert proxy.running.pool.status("a").notes == ()
    assert asked(bench) <= {"server/discover", "initialize", "tools/list"}


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
@pytest.mark.parametrize("nothing", [{}, {"logging": {}}, {"tools": None}, [], None, 5], ids=str)
async def test_a_server_that_declares_nothing_is_asked_for_tools(bench: Bench, era: str, nothing: object):
    """Many that are simple do so, and have some."""
    abrupt(bench, Manner(eras=(era,), capabilities=nothing))
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        assert "a__echo" in await proxy.tools()


async def test_a_server_that_declares_nothing_and_refuses_to_list_tools_has_none(bench: Bench):
    """It is there all the same, and the status says so."""
    abrupt(bench, Manner({"tools/list": BAD[0]}, capabilities={}))
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        (note,) = proxy.running.pool.status("a").notes
    assert note.endswith("refuses to list tools: it has none")


async def test_a_server_that_declares_tools_and_refuses_to_list_them_fails(bench: Bench):
    """As what it offers is not known."""
    abrupt(bench, Manner({"tools/list": BAD[0]}))
    async with bench.proxy() as proxy:
        assert "its list of tools could not be read" in problems(await proxy.activate("one"))["a"]


def test_check_tells_what_a_server_does_not_declare_and_how_it_took_the_probe(bench: Bench):
    """Below its line, in the words of the log."""
    abrupt(bench, Manner({"server/discover": "exit 1"}, capabilities=READING))
    bench.skills["one"] |= {"tool_list": {}, "resource_list": {"a": ["*"]}}
    arguments = ("check", "--config", bench.write())
    done = subprocess.run(program(*arguments), cwd=ROOT, capture_output=True, text=True, check=False)
    told = " ".join(done.stdout.split())
    assert "server a: ready, 0 tools it speaks the handshake only: it ends on server/discover; `era: handshake`" in told
    assert "saves the second start it declares no tools, so it is not asked for any" in told
