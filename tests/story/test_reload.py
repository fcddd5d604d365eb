"""The configuration changes while clients work: what is different is applied, and nothing else is disturbed (B60)."""

import json
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from mcp import MCPError

from tests.answers import current_skills, not_ready
from tests.conftest import ERAS, HttpProxy, Json, Peer, Raw, Record, connected, http_proxy, of_servers, text_of
from tests.program.process import serving
from tests.relay.talk import SERVER_ERAS, Talk, User, answering, form
from tests.upstream.bench import Bench, alive, until

pytestmark = pytest.mark.anyio


@dataclass
class Live:
    """A proxy over HTTP that watches its file, which `bench` writes."""

    bench: Bench
    proxy: HttpProxy
    seen: dict[str, int] = field(default_factory=dict[str, int])

    def logged(self, event: str) -> list[Json]:
        """The events of this name in the log so far."""
        lines = self.proxy.log.read_text(encoding="utf-8").split("\n")[:-1]
        return [found for line in lines if (found := json.loads(line))["event"] == event]

    async def said(self, event: str) -> Json:
        """Wait for an event that was not waited for yet."""
        count = self.seen[event] = self.seen.get(event, 0) + 1
        await until(lambda: len(self.logged(event)) >= count)
        return self.logged(event)[count - 1]

    async def edited(self) -> Json:
        """Write what the bench says by now, and wait until that is in effect; what the log says is different."""
        self.bench.write()
        return await self.said("config.reloaded")

    async def hung_up(self) -> Json:
        """Tell the proxy to apply all of its file, and wait for that."""
        self.proxy.process.send_signal(signal.SIGHUP)
        return await self.said("config.reloaded")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Servers `a` and `b`, each with a skill of the same name that grants `echo`."""
    bench = Bench(tmp_path)
    for key in ("a", "b"):
        bench.stdio(key)
        bench.skill(key, {key: ["echo"]})
    yield bench
    bench.close()


@contextmanager
def live(bench: Bench, **environ: str) -> Generator[Live]:
    """A proxy by what the bench says; nothing that goes wrong in it may end in a traceback."""
    with http_proxy(bench.write(), environ=environ) as proxy:
        yield Live(bench, proxy)
    assert "Traceback" not in proxy.log.read_text(encoding="utf-8")


async def described(peer: Peer) -> str:
    """What the tool `SKILL` says of itself."""
    return next(tool for tool in await peer.definitions() if tool["name"] == "SKILL")["description"]


async def active(peer: Peer) -> list[str]:
    """The skills that are active for a client."""
    return current_skills(await peer.skill("list"))


class Calling:
    """A call of `wait` at server `a`, in work until `end`."""

    def __init__(self, bench: Bench, peer: Peer) -> None:
        self._bench = bench
        self._peer = peer
        self._file = bench.file("end of the call")
        self._result: Json | None = None

    async def run(self) -> None:
        self._result = await self._peer.call("a__wait", {"until": str(self._file)})

    async def begin(self, tasks: anyio.abc.TaskGroup) -> None:
        tasks.start_soon(self.run)
        await self._bench.event("a", "ran", name="wait")
        assert self._result is None

    async def end(self) -> None:
        """It ends well."""
        assert self._result is None
        self._file.touch()
        await until(lambda: self._result is not None)
        assert self._result is not None
        assert not self._result.get("isError"), self._result


# --- skills ----------------------------------------------------------------------------------------------------------


async def test_what_a_skill_grants_changes_for_those_who_have_it_and_nobody_else(bench: Bench):
    """Of both eras: each is told once, by a notice of its list of tools, and no server restarts."""
    with live(bench) as proxy:
        async with AsyncExitStack() as stack:
            url = proxy.proxy.url
            mine = [await stack.enter_async_context(connected(url, "legacy"))]
            mine += [await stack.enter_async_context(connected(f"{url}/{mode}", mode)) for mode in ERAS]
            other = await stack.enter_async_context(connected(url, "legacy"))
            for peer in mine:
                await stack.enter_async_context(peer.hearing())
                await peer.skill("activate", "a")
            await other.skill("activate", "b")
            peers = [*mine, other]
            for peer in peers:
                await peer.wire.until_notices(1)

            bench.skill("a", {"a": ["echo", "wait"]})
            assert (await proxy.edited())["skills_changed"] == ["a"]
            for peer in mine:
                await peer.wire.until_notices(2)
                assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__echo", "a__wait"]
                assert not (await peer.call("a__wait", {"until": "/"})).get("isError")
            assert await other.tools() == ["SKILL", "SKILL_CALL", "b__echo"]

            bench.skill("a", {"a": ["wait"]})
            bench.skill("b", {"b": []})
            await proxy.edited()
            for peer in mine:
                await peer.wire.until_notices(3)
                assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__wait"]
            await other.wire.until_notices(2)
            assert "b__hang" in await other.tools()
            assert [peer.wire.notices() for peer in peers] == [3, 3, 3, 2]
            assert [peer.wire.notices(kind) for peer in peers for kind in ("resources", "prompts")] == [0] * 8
    for key in ("a", "b"):
        assert len(bench.events(key, "spawned")) == 1


async def test_a_removed_skill_is_gone_everywhere_and_the_others_stay(bench: Bench):
    """Its tools are unknown at once, one notice says so, and coming back it is not active."""
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer, connected(proxy.proxy.namespace("n")) as second:
            for skill in ("b", "a"):
                await peer.skill("activate", skill)
            await second.skill("activate", "a")
            before = peer.wire.notices()
            removed = bench.skills.pop("a")
            assert (await proxy.edited())["skills_removed"] == ["a"]
            with pytest.raises(MCPError, match="Unknown tool: a__echo") as unknown:
                await peer.call("a__echo")
            assert unknown.value.error.code == -32602
            await peer.wire.until_notices(before + 1)
            assert await peer.tools() == ["SKILL", "SKILL_CALL", "b__echo"]
            assert await second.tools() == ["SKILL", "SKILL_CALL"]
            assert await active(peer) == ["b"]
            assert await active(second) == []
            assert not (await peer.call("b__echo")).get("isError")
            assert "skill not found" in text_of(await peer.skill("activate", "a"))

            bench.skills["a"] = removed
            await proxy.edited()
            await peer.wire.until_notices(before + 2)
            assert await active(peer) == ["b"]
            refusal = await peer.call("a__echo")
            assert refusal["isError"]
            assert "is not active" in text_of(refusal)
            assert peer.wire.notices() == before + 2


async def test_what_is_pinned_is_active_for_everybody_and_what_is_active_for_newcomers(bench: Bench):
    """A skill that begins active from now on is nothing to those who are there; what they have stays in its order."""
    for key in ("c", "d"):
        bench.stdio(key)
        bench.skill(key, {key: ["echo"]})
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer:
            await peer.skill("activate", "b")
            bench.skills["c"]["pinned"] = True
            bench.skills["d"]["active"] = True
            assert (await proxy.edited())["skills_changed"] == ["c", "d"]
            assert await active(peer) == ["b", "c"]
            assert not (await peer.call("c__echo")).get("isError")
            assert await peer.tools() == ["SKILL", "SKILL_CALL", "b__echo", "c__echo"]
            assert "is pinned" in text_of(await peer.skill("offload", "c"))
            async with connected(proxy.proxy.url, "legacy") as newcomer:
                assert await active(newcomer) == ["c", "d"]

            bench.skills["c"]["pinned"] = False
            await proxy.edited()
            assert await active(peer) == ["b", "c"]
            await peer.skill("offload", "c")
            assert await active(peer) == ["b"]


async def test_what_is_denied_is_gone_at_once(bench: Bench):
    """From every skill, under every name; what is no longer denied is back."""
    bench.skill("a", {"a": []})
    bench.settings["call_route"] = "on"
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer:
            await peer.skill("activate", "a")
            before = peer.wire.notices()
            bench.denied = {"a": ["e*", "latin"]}
            assert (await proxy.edited())["denied_changed"] == ["a"]
            for name, arguments in (("a__echo", {}), ("SKILL_CALL", {"tool": "a__echo"})):
                with pytest.raises(MCPError, match="Unknown tool: a__echo"):
                    await peer.call(name, arguments)
            assert {"a__echo", "a__env", "a__latin"}.isdisjoint(await peer.tools())
            assert not bench.events("a", "ran")
            bench.denied = {}
            await proxy.edited()
            assert not (await peer.call("a__echo")).get("isError")
            await peer.wire.until_notices(before + 2)
            assert peer.wire.notices() == before + 2


@pytest.mark.parametrize("mode", ERAS)
async def test_what_is_denied_between_the_rounds_of_a_call_goes_no_further(bench: Bench, tmp_path: Path, mode: str):
    """While its user still thinks about the server's question."""
    talk = Talk(tmp_path / "talk.jsonl", "up")
    bench.servers["up"] = talk.entry(era="modern")
    bench.skill("up", {"up": []})
    user = User("alice", hold=anyio.Event())
    errors: list[str] = []
    with live(bench) as proxy:
        async with answering(proxy.proxy.namespace("n"), mode, user) as peer, anyio.create_task_group() as tasks:
            await peer.skill("activate", "up")

            async def ask() -> None:
                try:
                    await peer.client.call_tool("up__ask", {"rounds": [{"a": form("Sure?")}], "marker": ""})
                except MCPError as error:
                    errors.append(error.error.message)

            tasks.start_soon(ask)
            await user.until_asked()
            assert len(talk.of("tools/call")) == 1
            bench.denied = {"up": ["ask"]}
            await proxy.edited()
            assert user.hold is not None
            user.hold.set()
            await until(lambda: len(errors) == 1)
    assert errors == ["Unknown tool: up__ask"]
    assert len(talk.of("tools/call")) == 1


async def test_order_and_words_change_what_the_skill_tool_says(bench: Bench):
    """Everybody is told once of each, and the tools are as they were."""
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer, connected(proxy.proxy.url, "legacy") as other:
            await peer.skill("activate", "a")
            await peer.wire.until_notices(1)
            bench.skills = dict(reversed(bench.skills.items()))
            await proxy.edited()
            for each, count in ((peer, 2), (other, 1)):
                await each.wire.until_notices(count)
                told = await described(each)
                assert told.index('<skill id="b">') < told.index('<skill id="a">')
            bench.skills["a"]["desc"] = "Something else entirely"
            await proxy.edited()
            for each, count in ((peer, 3), (other, 2)):
                await each.wire.until_notices(count)
                assert "Something else entirely" in await described(each)
                assert each.wire.notices() == count
            assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__echo"]
            assert await active(peer) == ["a"]


async def test_settings_that_decide_what_clients_see_are_announced(bench: Bench):
    """To all whose list they change, of either era."""
    with live(bench) as proxy:
        async with (
            connected(proxy.proxy.url, "legacy", name="claude-code") as legacy,
            connected(proxy.proxy.namespace("n"), ERAS[1], name="claude-code") as modern,
            modern.hearing(),
        ):
            both = (legacy, modern)
            for peer in both:
                async with peer.rereading():
                    await peer.skill("activate", "a")
                assert await peer.tools() == ["SKILL", "a__echo"]
            for number, settings, seen in (
                (2, {"call_route": "on"}, ["SKILL", "SKILL_CALL", "a__echo"]),
                (3, {"listing": "stable"}, ["SKILL", "SKILL_CALL"]),
                (4, {"listing": "live", "call_route": "off"}, ["SKILL", "a__echo"]),
            ):
                bench.settings |= settings
                assert (await proxy.edited())["settings_changed"] == sorted(settings)
                for peer in both:
                    await peer.wire.until_notices(number)
                    assert await peer.tools() == seen
            assert [peer.wire.notices() for peer in both] == [4, 4]
            for peer in both:
                assert [peer.wire.notices(kind) for kind in ("resources", "prompts")] == [0, 0]


@pytest.mark.parametrize("mode", ERAS)
async def test_how_skills_are_published_is_announced(bench: Bench, mode: str):
    """In the lists that it changes, and in no other."""
    with live(bench) as proxy:
        async with connected(proxy.proxy.namespace("n"), mode) as peer, peer.hearing():
            skills = [prompt["name"] for prompt in (await peer.request("prompts/list"))["prompts"]]
            assert skills
            bench.settings["publish"] = {"prompts": False}
            assert (await proxy.edited())["settings_changed"] == ["publish"]
            await peer.wire.until_notices(1, "prompts")
            assert (await peer.request("prompts/list"))["prompts"] == []
            bench.settings["publish"] = {"resources": False}
            await proxy.edited()
            await peer.wire.until_notices(2, "prompts")
            await peer.wire.until_notices(1, "resources")
            assert [prompt["name"] for prompt in (await peer.request("prompts/list"))["prompts"]] == skills
            assert (await peer.request("resources/list"))["resources"] == []
            assert peer.wire.notices() == 0


async def test_an_activation_whose_skill_is_removed_meanwhile_says_so(bench: Bench):
    """It waits for a server that is slow; what it answers is what is true then."""
    bench.stdio("slow", silent=True)
    bench.skill("slow", {"slow": ["echo"]})
    bench.settings["activation_wait"] = 60
    results: list[Json] = []
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer, anyio.create_task_group() as tasks:

            async def activate() -> None:
                results.append(await peer.skill("activate", "slow"))

            tasks.start_soon(activate)
            await bench.event("slow", "request")
            del bench.skills["slow"], bench.servers["slow"]
            await proxy.edited()
            await until(lambda: len(results) == 1)
            assert results[0]["isError"]
            assert "skill not found" in text_of(results[0])
            assert await active(peer) == []
    assert not any(map(alive, bench.pids("slow")))


# --- calls -----------------------------------------------------------------------------------------------------------


async def test_a_running_call_survives_every_edit(bench: Bench, tmp_path: Path):
    """On a server that stays as it is: whatever happens around it, also to the skill that it was called by (B60)."""
    bench.skill("a", {"a": ["echo", "wait"]})
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer, anyio.create_task_group() as tasks:
            for skill in ("a", "b"):
                await peer.skill("activate", skill)
            call = Calling(bench, peer)
            await call.begin(tasks)
            bench.skill("a", {"a": []})
            await proxy.edited()
            file = tmp_path / "skills.yaml"
            good = file.read_text(encoding="utf-8")
            file.write_text(good[: len(good) // 2], encoding="utf-8")
            await proxy.said("config.refused")
            bench.skills.pop("b")
            new = file.with_name("new")
            new.write_text(good.replace("How to use a", "How else to use a"), encoding="utf-8")
            new.replace(file)
            await proxy.said("config.reloaded")
            await proxy.edited()
            bench.servers["b"]["args"] += ["--changed"]
            bench.skill("b", {"b": ["echo"]}, pinned=True)
            bench.stdio("c")
            bench.skill("c", {"c": []}, pinned=True)
            await proxy.edited()
            await proxy.hung_up()
            await bench.event("c", "spawned")
            bench.denied = {"a": ["wait"]}
            await proxy.edited()
            del bench.skills["a"]
            await proxy.edited()
            await call.end()
            assert await active(peer) == ["b", "c"]
    assert len(bench.events("a", "spawned")) == 1
    assert len(bench.events("b", "spawned")) == 2


# --- servers ---------------------------------------------------------------------------------------------------------


async def test_a_new_server_waits_for_the_word_of_the_user(bench: Bench):
    """It is said once in the log, and to the model that needs it; SIGHUP starts it for those who have it active."""
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer:
            bench.stdio("new")
            bench.skill("new", {"new": ["echo"]})
            await proxy.edited()
            waiting = await proxy.said("config.waiting")
            assert waiting["servers"] == ["new"]
            assert f"kill -HUP {proxy.proxy.process.pid}" in waiting["until"]
            result = await peer.skill("activate", "new")
            problems = not_ready(result)
            assert problems.keys() == {"new"}
            assert "SIGHUP" in problems["new"]
            refused = await peer.call("new__echo")
            assert refused["isError"]
            assert "SIGHUP" in text_of(refused)
            bench.skills["a"]["desc"] = "another edit"
            await proxy.edited()
            assert not bench.log("new").exists()

            await peer.wire.until_notices(2)  # of what `SKILL` says
            await proxy.hung_up()
            await peer.wire.until_notices(3)
            assert await peer.tools() == ["SKILL", "SKILL_CALL", "new__echo"]
            assert peer.wire.notices() == 3
            assert not (await peer.call("new__echo")).get("isError")
            assert len(proxy.logged("config.waiting")) == 1


async def test_a_changed_server_goes_on_as_it_was_until_the_user_says_so(bench: Bench):
    """Then it alone restarts; what it became is told once, and again only when it becomes something else."""
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer:
            for skill in ("a", "b"):
                await peer.skill("activate", skill)
            for version in ("--two", "--three"):
                bench.servers["a"]["args"] = [*bench.servers["a"]["args"][:4], version]
                assert (await proxy.edited())["servers_changed"] == ["a"]
                assert (await proxy.said("config.waiting"))["servers"] == ["a"]
                assert not (await peer.call("a__echo")).get("isError")
            assert len(bench.events("a", "spawned")) == 1
            await proxy.hung_up()
            await bench.event("a", "spawned", argv=["--three"])
            assert not (await peer.call("a__echo")).get("isError")
            assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__echo", "b__echo"]
    assert len(bench.events("a", "spawned")) == 2
    assert len(bench.events("b", "spawned")) == 1
    assert len(proxy.logged("config.waiting")) == 2


async def test_with_reload_full_servers_change_at_once(bench: Bench):
    """The user has said so beforehand."""
    bench.settings["reload"] = "full"
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer:
            await peer.skill("activate", "a")
            bench.stdio("new")
            bench.skill("new", {"new": ["echo"]}, pinned=True)
            await proxy.edited()
            await bench.event("new", "spawned")
            assert not (await peer.call("new__echo")).get("isError")
            assert not proxy.logged("config.waiting")
    assert len(bench.events("a", "spawned")) == 1


async def test_a_file_cannot_lift_its_own_brake(bench: Bench):
    """An edit that sets `reload: full` together with a new server starts nothing, nor does the edit after it."""
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer:
            bench.settings["reload"] = "full"
            bench.stdio("new")
            bench.skill("new", {"new": ["echo"]}, pinned=True)
            await proxy.edited()
            bench.skills["a"]["desc"] = "another edit"
            await proxy.edited()
            assert (await peer.call("new__echo"))["isError"]
            assert not bench.log("new").exists()
            await proxy.hung_up()
            await bench.event("new", "spawned")
            bench.stdio("newer")
            bench.skill("newer", {"newer": ["echo"]}, pinned=True)
            await proxy.edited()  # by now the user has said so
            await bench.event("newer", "spawned")


async def test_with_reload_off_only_the_user_applies_anything(bench: Bench):
    bench.settings["reload"] = "off"
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer:
            bench.skill("new", {"a": ["echo"]}, pinned=True)
            bench.write()
            assert await active(peer) == []
            await proxy.hung_up()
            assert await active(peer) == ["new"]
            assert len(proxy.logged("config.reloaded")) == 1


async def test_a_server_that_is_switched_off_ends_and_comes_back_without_approval(bench: Bench):
    """Its process ends at once, its tools go; switched on again as it was, it starts for those who need it."""
    bench.skill("both", {"a": ["echo"], "b": ["echo"]})
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer:
            await peer.skill("activate", "both")
            bench.servers["a"]["disabled"] = True
            assert (await proxy.edited())["servers_removed"] == ["a"]
            await bench.event("a", "eof")
            assert await peer.tools() == ["SKILL", "SKILL_CALL", "b__echo"]
            problems = not_ready(await peer.skill("activate", "both"))
            assert problems == {"a": "is switched off: the configuration says so"}

            bench.servers["a"]["disabled"] = False
            assert (await proxy.edited())["servers_added"] == ["a"]
            await bench.event("a", "spawned", count=2)
            assert not (await peer.call("a__echo")).get("isError")
            assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__echo", "b__echo"]
            assert not proxy.logged("config.waiting")

            bench.skill("both", {"b": ["echo"]})
            del bench.servers["a"], bench.skills["a"]
            await proxy.edited()
            await bench.event("a", "eof", count=2)
    assert len(bench.events("b", "spawned")) == 1


# --- what is said ----------------------------------------------------------------------------------------------------


def cut_off(good: str) -> str:
    return good[: len(good) // 2]


def misspelled(good: str) -> str:
    return good.replace('"usage"', '"usgae"', 1)


def unknown_server(good: str) -> str:
    return json.dumps({**json.loads(good), "skill_configs": {"x": {"tool_list": {"nobody": []}}}})


@pytest.mark.parametrize("spoil", [cut_off, misspelled, unknown_server, lambda _good: ""])
async def test_a_bad_file_changes_nothing_and_is_said_once(bench: Bench, tmp_path: Path, spoil: Callable[[str], str]):
    """Then a good one is applied."""
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer:
            await peer.skill("activate", "a")
            file = tmp_path / "skills.yaml"
            file.write_text(spoil(file.read_text(encoding="utf-8")), encoding="utf-8")
            refused = await proxy.said("config.refused")
            assert refused["level"] == "error"
            assert refused["problems"]
            assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__echo"]
            assert not (await peer.call("a__echo")).get("isError")
            bench.skill("a", {"a": ["echo", "wait"]})
            await proxy.edited()
            await peer.wire.until_notices(2)
            assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__echo", "a__wait"]
            assert len(proxy.logged("config.refused")) == 1


async def test_what_the_user_should_know_of_an_edit_is_logged(bench: Bench):
    """New notes, settings that count from the next start on, and that nothing is offered any more."""
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer:
            bench.settings |= {"max_message_size": "1MiB", "list_wait": 0.2}
            bench.servers["a"]["alwaysAllow"] = ["echo"]
            changed = (await proxy.edited())["settings_changed"]
            assert sorted(changed) == ["list_wait", "max_message_size"]
            assert (await proxy.said("config.restart_needed"))["settings"] == ["max_message_size"]
            assert "alwaysAllow" in (await proxy.said("config.note"))["note"]

            bench.skills = {key: {**skill, "enabled": False} for key, skill in bench.skills.items()}
            await proxy.edited()
            assert (await proxy.said("config.nothing_offered"))["level"] == "error"
            assert await peer.tools() == []
            notes = [event["note"] for event in proxy.logged("config.note")]
            assert len(notes) == len(set(notes))


async def test_secrets_that_a_changed_file_brings_are_masked(bench: Bench, tmp_path: Path):
    """In the log, from the moment that it is applied; the model reads nothing that the server has written."""
    secret = "n3w-s3cr3t-value"
    bench.settings["reload"] = "full"
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer:
            (tmp_path / "new.env").write_text(f"NEW={secret}\n", encoding="utf-8")
            bench.stdio("new", {"env_file": "new.env"}, dies=True, stderr=f"the token {secret} was refused")
            bench.skill("new", {"new": []})
            before = peer.wire.notices()
            await proxy.edited()
            await peer.wire.until_notices(before + 1)
            told = text_of(await peer.skill("activate", "new"))
            assert "the process ended with exit code" in told
            assert secret not in told
            failed = await proxy.said("server.failed")
            assert "the token *** was refused" in failed["detail"]
    assert secret not in proxy.proxy.log.read_text(encoding="utf-8")


# --- what was not there before ---------------------------------------------------------------------------------------


async def test_resources_and_prompts_that_come_with_an_edit_can_be_used(bench: Bench, tmp_path: Path):
    """By a client that was there before, and that hears of them."""
    record = Record(tmp_path / "record.jsonl", "rec")
    bench.servers["rec"] = record.entry()
    bench.skill("rec", {"rec": ["echo"]})
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer:
            await peer.skill("activate", "rec")
            bench.skill("rec", {"rec": []})
            await proxy.edited()
            for kind in ("tools", "resources", "prompts"):
                await peer.wire.until_notices(2 if kind == "tools" else 1, kind)
            listed = of_servers((await peer.request("resources/list"))["resources"])
            assert [resource["uri"] for resource in listed] == ["memo://one", "memo://two"]
            assert (await peer.request("resources/read", {"uri": "memo://one"}))["contents"]
            (prompt,) = of_servers((await peer.request("prompts/list"))["prompts"])
            assert (await peer.request("prompts/get", {"name": prompt["name"]}))["messages"]

            bench.skill("rec", {"rec": ["echo"]})
            await proxy.edited()
            assert of_servers((await peer.request("resources/list"))["resources"]) == []
            with pytest.raises(MCPError):
                await peer.request("resources/read", {"uri": "memo://one"})


async def test_a_configuration_that_offers_nothing_declares_tools_alone(bench: Bench, raw: Raw):
    """Clients that come once there is a skill are told of all that skills bring."""
    skills, bench.skills = bench.skills, {}
    with live(bench) as proxy:

        async def declared() -> set[str]:
            return set((await raw.open_answer(proxy.proxy.url)).reply["result"]["capabilities"])

        assert await declared() == {"tools"}
        bench.skills = skills
        await proxy.edited()
        assert await declared() >= {"tools", "resources", "prompts", "extensions"}


@pytest.mark.parametrize("era", SERVER_ERAS)
async def test_who_subscribed_still_hears_after_the_server_was_replaced(bench: Bench, tmp_path: Path, era: str):
    """The new process is told what is wanted, without any request of the client."""
    talk = Talk(tmp_path / "talk.jsonl", "up")
    bench.servers["up"] = talk.entry(era=era)
    bench.skill("up", {"up": []})
    uri = "memo://one"
    with live(bench) as proxy:
        async with connected(proxy.proxy.url, "legacy") as peer:
            await peer.skill("activate", "up")
            await peer.request("resources/subscribe", {"uri": uri})
            asks = "resources/subscribe" if era == "handshake" else "subscriptions/listen"
            await talk.until_received(asks, uri)
            bench.servers["up"]["env"] = {"CHANGED": "yes"}
            await proxy.edited()
            await proxy.hung_up()
            await talk.until_received(asks, uri, times=2)
            await peer.call("up__update", {"uri": uri})
            await peer.wire.until(
                lambda: bool(peer.wire.where(lambda m: m.get("method") == "notifications/resources/updated"))
            )


async def test_over_stdio_it_is_the_same_for_the_one_client(bench: Bench, tmp_path: Path):
    """An edit changes its skills, SIGHUP starts a new server, and a bad file costs nothing (B60)."""
    record = Record(tmp_path / "record.jsonl", "rec")
    async with serving(bench.write()) as program:

        async def tools() -> list[str]:
            return [tool["name"] for tool in (await program.request("tools/list"))["tools"]]

        def notices(kind: str) -> int:
            return sum(f"notifications/{kind}/list_changed".encode() in line for line in program.lines)

        async def until_notices(count: int, kind: str = "tools") -> None:
            with anyio.fail_after(20):
                while notices(kind) < count:
                    assert await program.read()

        await program.greet()
        await program.activate("a")
        await until_notices(1)
        bench.skill("a", {"a": ["echo", "wait"]})
        bench.write()
        await until_notices(2)
        assert await tools() == ["SKILL", "SKILL_CALL", "a__echo", "a__wait"]

        (tmp_path / "skills.yaml").write_text("servers: [", encoding="utf-8")
        await program.said("config.refused")
        assert await tools() == ["SKILL", "SKILL_CALL", "a__echo", "a__wait"]

        bench.servers["rec"] = record.entry()
        bench.skill("rec", {"rec": []}, pinned=True)
        bench.write()
        await program.said("config.waiting")
        assert await tools() == ["SKILL", "SKILL_CALL", "a__echo", "a__wait"]
        assert not record.log.exists()
        program.process.send_signal(signal.SIGHUP)
        for kind in ("resources", "prompts"):  # the skill's own, then the server's
            await until_notices(2, kind)
        assert "rec__echo" in await tools()
        assert (await program.request("resources/read", uri="memo://two"))["contents"]
        assert not (await program.call("a__echo")).get("isError")
        assert len(bench.events("a", "spawned")) == 1
        assert program.process.stdin is not None
        await program.process.stdin.aclose()
        assert await program.ended(bench.pids("a")) == 0
        await program.rest()
        assert program.is_clean()


async def test_over_stdio_an_edit_before_the_client_has_come_is_in_effect_when_it_does(bench: Bench):
    """A server that was started ahead is not greeted before its client has said what it can be asked."""
    bench.stdio("a", {"start": "eager"})
    bench.skills["a"]["active"] = True
    async with serving(bench.write()) as program:
        await bench.event("a", "spawned")
        bench.skill("b", {"b": ["echo", "wait"]})
        bench.write()
        await program.said("config.reloaded")
        bench.servers["a"]["args"] += ["--changed"]
        bench.write()
        await program.said("config.waiting")
        program.process.send_signal(signal.SIGHUP)
        await until(lambda: program.log().count('"config.reloaded"') == 3)
        assert not bench.events("a", "request")

        await program.greet()
        assert not (await program.call("a__echo")).get("isError")
        ahead, answering = bench.pids("a")
        assert [event["pid"] for event in bench.events("a", "ran")] == [answering]
        assert [event["argv"] for event in bench.events("a", "spawned")] == [[], ["--changed"]]
        assert not alive(ahead)
        assert program.process.stdin is not None
        await program.process.stdin.aclose()
        assert await program.ended(bench.pids("a")) == 0
        await program.rest()
        assert program.is_clean()
