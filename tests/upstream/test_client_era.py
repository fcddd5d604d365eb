"""`era: auto` follows the client where a connection is for it alone, and the server speaks both eras."""

import sys
from typing import Literal

import pytest

from tests.conftest import ROOT
from tests.faults.front import FaultBench
from tests.faults.front import front as front_of
from tests.program.process import serving
from tests.servers.abrupt import HANDSHAKE, MODERN, Manner, command
from tests.upstream.bench import Bench, problems, text, until

pytestmark = pytest.mark.anyio

Mode = Literal["legacy", "auto", "2026-07-28"]
OPENING = {"legacy": "initialize", "auto": "server/discover", "2026-07-28": "server/discover"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def abrupt(bench: Bench, manner: Manner, **entry: object) -> None:
    """Put a server on stdio into the configuration that behaves so, and a skill for it."""
    manner.write(bench.file("a.json"))
    program, *args = command(bench.file("a.json"))
    bench.servers["a"] = {"command": program, "args": args, **entry}
    bench.skill("one", {"a": []})


def openings(bench: Bench) -> list[str]:
    """By which requests the server was greeted."""
    requests = [event["method"] for event in bench.events("a", "request")]
    return [method for method in requests if method in OPENING.values()]


@pytest.mark.parametrize("mode", list(OPENING))
@pytest.mark.parametrize("entry", [{}, {"isolation": "scope"}, {"start": "eager"}], ids=str)
async def test_the_one_client_on_stdio_is_followed(bench: Bench, mode: Mode, entry: dict[str, str]):
    """Each connection is its own: a server of both eras is met in the client's."""
    abrupt(bench, Manner(), **entry)
    async with bench.proxy(mode=mode) as proxy:
        assert not problems(await proxy.activate("one"))
        assert text(await proxy.call("a__echo", word="hello")) == '{"word": "hello"}'
    assert openings(bench) == [OPENING[mode]]


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(("mode", "isolation"), [("legacy", "scope"), ("2026-07-28", "scope"), ("legacy", "shared")])
async def test_each_scope_over_http_is_followed_on_a_connection_of_its_own(
    tmp_path, mode: Mode, isolation: str, transport: str
):
    """A connection that several scopes share is met as ever, in the newer era."""
    bench = FaultBench(tmp_path)
    if transport == "http":
        await bench.http("a", {"isolation": isolation})
    else:
        bench.stdio("a", {"isolation": isolation})
    try:
        async with front_of(bench, mode=mode) as proxy:
            await proxy.goes_on()
    finally:
        bench.close()
    assert set(openings(bench)) == {"server/discover" if isolation == "shared" else OPENING[mode]}


@pytest.mark.parametrize(
    ("mode", "speaks", "reactions"),
    [
        ("legacy", MODERN, {}),
        ("legacy", MODERN, {"initialize": {"error": {"code": -32601, "message": "Method not found"}}}),
        ("legacy", MODERN, {"initialize": "exit 1"}),
        ("auto", HANDSHAKE, {}),
        ("auto", HANDSHAKE, {"server/discover": "exit 1"}),
    ],
    ids=str,
)
async def test_a_server_of_the_other_era_alone_is_met_in_that(bench: Bench, mode: Mode, speaks: str, reactions):
    """Whether it says so or ends."""
    abrupt(bench, Manner(reactions, eras=(speaks,)))
    async with bench.proxy(mode=mode) as proxy:
        assert not problems(await proxy.activate("one"))
        assert text(await proxy.call("a__echo", word="hello")) == '{"word": "hello"}'
    assert set(openings(bench)) == {"initialize", "server/discover"}


@pytest.mark.parametrize(("mode", "speaks"), [("legacy", "modern"), ("2026-07-28", "handshake")])
async def test_a_server_whose_connection_is_settled_by_what_it_refuses_is_met_on_another(
    bench: Bench, mode: Mode, speaks: str
):
    """The SDK's servers on stdio take no second opening, also where they refuse the first."""
    program = str(ROOT / "tests" / "conformance" / "upstream.py")
    bench.servers["a"] = {"command": sys.executable, "args": [program, "--transport", "stdio", "--era", speaks]}
    bench.skill("one", {"a": ["test_simple_text"]})
    async with bench.proxy(mode=mode) as proxy:
        assert not problems(await proxy.activate("one"))
        assert "simple text" in text(await proxy.call("a__test_simple_text"))


@pytest.mark.parametrize("ready", [True, False], ids=["ready", "starting"])
async def test_a_client_that_only_asked_for_the_modern_era_is_followed_into_the_other(bench: Bench, ready: bool):
    """`server/discover` begins to start servers; the handshake that comes after it has them start again."""
    abrupt(bench, Manner({} if ready else {"server/discover": "silence"}), start="eager")
    async with serving(bench.write()) as program:
        await program.request("server/discover", _meta=ENVELOPE)
        await until(lambda: bool(bench.events("a", "request", method="tools/list" if ready else "server/discover")))
        await program.greet()
        await program.activate("one")
        assert (await program.call("a__echo", word="hello"))["content"][0]["text"] == '{"word": "hello"}'
    assert openings(bench) == ["server/discover", "initialize"]
