"""Lists that a server changes while it runs: read again, and told to those whose lists that changes."""

from collections.abc import Generator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from mcp import MCPError

from tests.conftest import ERAS, HANDSHAKE, MODERN, HttpProxy, Peer, Raw, connected, http_proxy, text_of, write_config
from tests.relay.talk import SERVER_ERAS, Talk, served, skill

pytestmark = pytest.mark.anyio

SERVERS = (*SERVER_ERAS, *(f"remote-{era}" for era in SERVER_ERAS), "quiet")
"""By stdio and by HTTP; the last one declares no `listChanged`."""
METHODS = {"tools": "tools/list", "resources": "resources/list", "prompts": "prompts/list"}
numbers = count(1)


@dataclass(frozen=True)
class Changing:
    """A proxy in front of servers whose lists change; `all-NAME` and `some-NAME` are its skills for each.

    `some` grants the tools that begin with `new_`, `old`, and those that change the lists.
    """

    proxy: HttpProxy
    talks: dict[str, Talk]


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Generator[Changing]:
    folder = tmp_path_factory.mktemp("changing")
    with served(folder, "remote") as remote:
        talks = {era: Talk(folder / f"{era}.jsonl", era) for era in SERVER_ERAS}
        talks["quiet"] = Talk(folder / "quiet.jsonl", "quiet", options=("--quiet",))
        servers = {era: talks[era].entry(era=era) for era in SERVER_ERAS}
        servers["quiet"] = talks["quiet"].entry(era="handshake")
        for era in SERVER_ERAS:
            servers[f"remote-{era}"] = remote.entry(era=era)
            talks[f"remote-{era}"] = remote
        skills = {f"all-{key}": skill(key) for key in servers}
        skills |= {f"some-{key}": skill(**{key: ["new_*", "old", "change"]}) for key in servers}
        with http_proxy(write_config(folder / "skills.yaml", servers, skills)) as proxy:
            yield Changing(proxy, talks)


@dataclass
class Party:
    """Clients of one server: `peers` have a skill active, `idle` has none; all hear of changes."""

    server: str
    peers: list[Peer]
    idle: Peer
    told: dict[int, int]

    async def change(self, **arguments: Any) -> None:
        for peer in (*self.peers, self.idle):
            self.told[id(peer)] = len(notices(peer))
        await self.peers[0].call(f"{self.server}__change", arguments)

    async def until_told(self, *kinds: str) -> None:
        """Wait until each of the peers has heard; exactly that has come, and nothing for the idle one."""
        for peer in self.peers:
            await peer.wire.until(lambda peer=peer: len(self.news(peer)) >= len(kinds))
            assert sorted(self.news(peer)) == sorted(f"notifications/{kind}/list_changed" for kind in kinds)
        await self.idle.tools()
        assert self.news(self.idle) == []

    def news(self, peer: Peer) -> list[str]:
        return notices(peer)[self.told[id(peer)] :]


def notices(peer: Peer) -> list[str]:
    return [m["method"] for m in peer.wire.messages if m.get("method", "").endswith("/list_changed")]


async def party(stack: AsyncExitStack, changing: Changing, namespace: str, server: str, which: str) -> Party:
    """A client of each era with the skill active, and one of none."""
    peers: list[Peer] = []
    for number, mode in enumerate((*ERAS, "legacy")):
        peer = await stack.enter_async_context(connected(changing.proxy.namespace(f"{namespace}-{number}"), mode))
        await stack.enter_async_context(peer.hearing())
        peers.append(peer)
    for peer in peers[:2]:
        await peer.skill("activate", f"{which}-{server}")
        for kind in ("tools", "resources", "prompts") if which == "all" else ("tools",):
            await peer.wire.until_notices(1, kind)
    return Party(server, peers[:2], peers[2], {})


@pytest.mark.parametrize("server", SERVERS)
async def test_tools_that_come_and_go(changing: Changing, namespace: str, server: str) -> None:
    """The new one on the allowlist is there, the one beside it is not; a removed one says that it is gone."""
    new, beside = f"new_{next(numbers)}", f"beside_{next(numbers)}"
    async with AsyncExitStack() as stack:
        all_of = await party(stack, changing, namespace, server, "some")
        before = await all_of.peers[0].tools()
        await all_of.change(add=[new, beside])
        await all_of.until_told("tools")
        for peer in all_of.peers:
            assert set(await peer.tools()) - set(before) == {f"{server}__{new}"}
            assert (await peer.call(f"{server}__{new}"))["structuredContent"]["tool"] == new
            refused = await peer.call(f"{server}__{beside}")  # which another skill would grant
            assert refused["isError"] is True
            assert f"all-{server}" in text_of(refused)
        assert await all_of.idle.tools() == ["SKILL", "SKILL_CALL"]
        await all_of.change(remove=[new, "old"])
        await all_of.until_told("tools")
        for peer in all_of.peers:
            assert set(before) - set(await peer.tools()) == {f"{server}__old"}
            for name in ("old", new):  # the skill grants one by its name, the other by a pattern
                with pytest.raises(MCPError, match=f"Unknown tool: {server}__{name}"):
                    await peer.call(f"{server}__{name}")
        await all_of.change(add=["old"])
        await all_of.until_told("tools")
        assert await all_of.peers[1].tools() == before


@pytest.mark.parametrize("server", SERVERS)
async def test_change_beside_the_allowlist(changing: Changing, namespace: str, server: str) -> None:
    """A tool that nobody is granted changes nobody's list: no notice, though the list is read again."""
    async with AsyncExitStack() as stack:
        some = await party(stack, changing, namespace, server, "some")
        lists = len(changing.talks[server].received("tools/list"))
        await some.change(add=[f"beside_{next(numbers)}"])
        await changing.talks[server].until_received("tools/list", times=lists + 1)
        new = f"new_{next(numbers)}"
        await some.peers[0].call(f"{server}__change", {"add": [new]})
        await some.until_told("tools")


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(("kind", "name"), [("resources", "file:///x/{}"), ("prompts", "new_{}"), ("tools", "new_{}")])
async def test_each_list(changing: Changing, namespace: str, server: str, kind: str, name: str) -> None:
    """Where all of a server is granted; the notice is of the list that has changed, which alone is read again."""
    item = name.format(next(numbers))
    async with AsyncExitStack() as stack:
        everything = await party(stack, changing, namespace, server, "all")
        read = {one: len(changing.talks[server].received(method)) for one, method in METHODS.items()}
        await everything.change(kind=kind, add=[item])
        await everything.until_told(kind)
        for peer in everything.peers:
            assert item in str(await peer.request(METHODS[kind]))
        if "modern" not in server:
            again = {one: len(changing.talks[server].received(method)) - read[one] for one, method in METHODS.items()}
            assert again == {one: int(one == kind) for one in METHODS}
        await everything.change(kind=kind, remove=[item])
        await everything.until_told(kind)
        for peer in everything.peers:
            assert item not in str(await peer.request(METHODS[kind]))


@pytest.mark.parametrize("server", SERVERS)
async def test_flood_of_notices(changing: Changing, namespace: str, server: str) -> None:
    """Two hundred notices for one change: few readings of the list, and one notice to each client."""
    async with AsyncExitStack() as stack:
        everything = await party(stack, changing, namespace, server, "some")
        lists = len(changing.talks[server].received("tools/list"))
        first, second = f"new_{next(numbers)}", f"new_{next(numbers)}"
        await everything.change(add=[first], notices=200)
        await everything.until_told("tools")
        await everything.change(add=[second])
        await everything.until_told("tools")
        assert len(changing.talks[server].received("tools/list")) - lists <= 5


@pytest.mark.parametrize("server", SERVERS)
async def test_notices_without_a_change(changing: Changing, namespace: str, server: str) -> None:
    """A server that only says so changes nobody's list, and nobody is told."""
    async with AsyncExitStack() as stack:
        everything = await party(stack, changing, namespace, server, "all")
        lists = len(changing.talks[server].received("tools/list"))
        await everything.change(notices=3)
        await changing.talks[server].until_received("tools/list", times=lists + 1)
        new = f"new_{next(numbers)}"
        await everything.peers[0].call(f"{server}__change", {"add": [new]})
        await everything.until_told("tools")


async def test_stream_that_is_opened_before_anything_else(changing: Changing, raw: Raw, namespace: str) -> None:
    """A client may open its session's stream before it says that it is initialized; what concerns it comes there."""
    url = changing.proxy.namespace(namespace)
    params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    opened = await raw.post(url, "initialize", params)
    headers = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": HANDSHAKE}
    async with raw.stream(url, headers) as stream:
        await raw.send("POST", url, headers=headers, body={"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert await raw.tools(url, headers) == ["SKILL", "SKILL_CALL"]
        async with connected(url, MODERN) as other:
            await other.skill("activate", "some-handshake")
        await stream.until_notices(1)
