"""Tokens that change while the proxy runs: who comes in from then on, and what ends of whom nobody lets in any more."""

import json
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.conftest import MODERN, PATIENCE, ROOT, HttpProxy, Json, Launch, Raw, connected, program
from tests.conftest import write_config as write
from tests.face.held import Held, held
from tests.relay.talk import Talk, User, answering, skill, until
from tests.relay.test_isolation import place_of, runs
from tests.relay.test_state import begin, brought, refused

pytestmark = pytest.mark.anyio

ALICE, BOB, NEW = "the-token-of-alice", "the-token-of-bob--", "alices-second-token"
KEYS = ("session", "room", "bob")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class Place:
    """A proxy before a process that all share and one that each scope has to itself, and its file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "skills.yaml"
        self.shared = Talk(folder / "shared.jsonl", "shared")
        self.own = Talk(folder / "own.jsonl", "own")
        self.proxy: HttpProxy

    def write(self, tokens: Json, **settings: Any) -> Path:
        """Write the configuration with these tokens."""
        servers = {"shared": self.shared.entry(), "own": self.own.entry(era="handshake", isolation="scope")}
        patient = {"list_wait": 60, "activation_wait": 60}
        skills = {key: skill(key) for key in servers}
        return write(self.file, servers, skills, proxy={"tokens": tokens, **patient, **settings})

    async def hung_up(self, event: str = "config.reloaded") -> Json:
        """Have all of the file applied; what the log says of it."""
        before = len(self.proxy.logged(event))
        self.proxy.process.send_signal(signal.SIGHUP)
        await self.proxy.until_logged(event, before + 1)
        return self.proxy.logged(event)[-1]

    async def edited(self, tokens: Json, event: str = "config.reloaded", **settings: Any) -> Json:
        """Write the configuration with these tokens, and wait until the proxy has seen it."""
        before = len(self.proxy.logged(event))
        self.write(tokens, **settings)
        await self.proxy.until_logged(event, before + 1)
        return self.proxy.logged(event)[-1]

    async def status(self, raw: Raw, token: str | None) -> int:
        """What a request with this token is answered with."""
        return (await raw.open_answer(self.proxy.url, bearer(token) if token else {})).status


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class Call:
    """A call of `wait` at the shared server, by hand, and how it was answered."""

    def __init__(self, place: Place, url: str, headers: dict[str, str], key: str) -> None:
        self.place, self.url, self.headers, self.key = place, url, headers, key
        self.status: int | None = None
        self.text = ""

    async def run(self, raw: Raw) -> None:
        params = {"name": "shared__wait", "arguments": {"key": self.key}}
        if "Mcp-Session-Id" in self.headers:
            answer = await raw.post(self.url, "tools/call", params, self.headers)
        else:
            answer = await raw.modern(self.url, "tools/call", params, self.headers)
        self.text, self.status = answer.text, answer.status

    def gone(self) -> bool:
        """Whether the server knows that nobody waits for it any more."""
        (call,) = self.place.shared.of("tools/call", self.key)
        return any(gone["id"] == call["id"] for gone in self.place.shared.received("gone"))


@asynccontextmanager
async def listening(url: str, token: str) -> AsyncGenerator[Held]:
    """A listen stream of revision 2026-07-28."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": body["method"], **bearer(token)}
    async with held(url, {**sent, "Accept": "application/json, text/event-stream"}, "POST", body) as stream:
        await stream.until(lambda stream: stream.messages)
        yield stream


@pytest.mark.parametrize("new", [None, NEW], ids=["removed", "changed"])
async def test_what_a_token_has_opened_ends_with_it_and_disturbs_nobody_else(
    place: Place, launch: Launch, raw: Raw, new: str | None
) -> None:
    """Sessions, event and listen streams, calls in work and calls that wait for an answer, and processes of its own."""
    place.proxy = launch(place.write({"alice": ALICE, "bob": BOB}))
    url, room = place.proxy.url, place.proxy.namespace("room")
    async with AsyncExitStack() as stack:
        mine, bobs = await raw.open(url, ALICE), await raw.open(url, BOB)
        streams = [await stack.enter_async_context(held(url, headers)) for headers in (mine, bobs)]
        streams.append(await stack.enter_async_context(listening(room, ALICE)))
        own = await stack.enter_async_context(answering(room, MODERN, User(), bearer(ALICE)))
        for key in ("own", "shared"):
            await own.skill("activate", key)
        for headers in (mine, bobs):
            await raw.skill(url, headers, "activate", "shared")
        given, asked = await begin(own, "own", "held")
        pid = await place_of(own, "own")
        calls = [
            Call(place, url, mine, "session"),
            Call(place, room, bearer(ALICE), "room"),
            Call(place, url, bobs, "bob"),
        ]
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for call in calls:
            tasks.start_soon(call.run, raw)
            await place.shared.until_received("tools/call", call.key)

        place.write({"bob": BOB} if new is None else {"bob": BOB, "alice": new})
        await place.hung_up()
        for stream in (streams[0], streams[2]):
            await stream.until(lambda stream: stream.ended)
        await until(lambda: all(call.status is not None for call in calls[:2]))
        await until(lambda: all(call.gone() for call in calls[:2]))
        await until(lambda: not runs(pid))
        assert not any('"result"' in call.text for call in calls[:2])
        for headers in (bearer(ALICE), mine):
            for target in (url, room):
                assert (await raw.modern(target, "tools/list", {}, headers)).status == 401
                assert (await raw.post(target, "tools/list", {}, headers)).status == 401
        assert place.proxy.logged("tokens.revoked")[-1]["users"] == ["alice"]

        if new is not None:  # the session, and what waited for an answer, are nothing in the hands of the new one
            assert (await raw.post(url, "tools/list", {}, {**mine, **bearer(new)})).status == 404
            async with answering(room, MODERN, User(), bearer(new)) as later:
                assert await later.tools() == ["SKILL", "SKILL_CALL"]
                await later.skill("activate", "own")
                await refused(later, "tools/call", {"name": "own__ask", "arguments": given, **brought(asked)})

        assert calls[2].status is None
        assert streams[1].ended is None
        async with connected(url, "legacy", token=BOB) as bob:
            await bob.skill("activate", "shared")
            await bob.call("shared__release", {"key": "bob"})
        await until(lambda: calls[2].status is not None)
        assert '"result"' in calls[2].text
        assert streams[1].ended is None
        assert "shared__echo" in await raw.tools(url, bobs)
        tasks.cancel_scope.cancel()
    assert "Traceback" not in place.proxy.log.read_text(encoding="utf-8")


async def test_tokens_can_come_and_go_where_no_other_machine_reaches_the_proxy(
    place: Place, launch: Launch, raw: Raw
) -> None:
    """What was open without a token ends when one is needed, and the other way round."""
    place.proxy = launch(place.write({}))
    url = place.proxy.url
    nobody = await raw.open(url)
    async with held(url, nobody) as stream:
        place.write({"alice": "short"})
        await place.hung_up()
        await stream.until(lambda stream: stream.ended)
        assert [await place.status(raw, token) for token in (None, "short")] == [401, 200]
        assert json.loads((await raw.send("GET", f"{place.proxy.base}/health")).text).keys() == {"status"}
        alice = await raw.open(url, "short")
        place.write({})
        await place.hung_up()
        assert [await place.status(raw, token) for token in (None, "short")] == [200, 200]
        assert (await raw.post(url, "tools/list", {}, alice)).status == 404
        assert (await raw.post(url, "tools/list", {}, nobody)).status == 404


@pytest.mark.parametrize("mode", ["skills", "full"])
async def test_a_changed_file_changes_tokens_by_itself_only_where_it_may_change_all(
    place: Place, launch: Launch, raw: Raw, mode: str
) -> None:
    """Else they wait for SIGHUP, and the log says whose."""
    place.proxy = launch(place.write({"alice": ALICE}, reload=mode))
    await place.edited({"alice": NEW, "bob": BOB}, reload=mode)
    if mode == "skills":
        assert place.proxy.logged("config.waiting")[-1]["users"] == ["alice", "bob"]
        assert not place.proxy.logged("config.restart_needed")
        assert [await place.status(raw, token) for token in (ALICE, NEW, BOB)] == [200, 401, 401]
        await place.hung_up()
    await place.proxy.until_logged("tokens.revoked", 1)
    assert [await place.status(raw, token) for token in (ALICE, NEW, BOB)] == [401, 200, 200]
    assert ALICE not in place.proxy.log.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("tokens", "words"), [({}, "set proxy.tokens"), ({"alice": ALICE, "bob": "too-short"}, "16 characters for bob")]
)
async def test_where_others_reach_the_proxy_a_reload_cannot_let_them_in(
    place: Place, launch: Launch, raw: Raw, tokens: Json, words: str
) -> None:
    """Without a token or with a short one, it is refused as a whole, and what was there stays; also at the start."""
    hosts = ["proxy.example"]
    place.proxy = launch(place.write({"alice": ALICE}, allowed_hosts=hosts))
    place.write(tokens, allowed_hosts=[], reload="full")  # which hosts are allowed counts from the next start on
    (problem,) = (await place.hung_up("config.refused"))["problems"]
    assert words in problem
    assert "proxy.allowed_hosts: proxy.example" in problem
    assert "too-short" not in problem
    assert [await place.status(raw, token) for token in (None, ALICE, "too-short")] == [401, 200, 401]
    await place.edited({"alice": ALICE, "bob": BOB}, allowed_hosts=hosts)
    assert await place.status(raw, BOB) == 401  # nor has that file lifted the brake
    await place.hung_up()
    assert [await place.status(raw, token) for token in (ALICE, BOB)] == [200, 200]

    command = program("serve", "--config", place.write(tokens, allowed_hosts=hosts), "--transport", "http")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)  # noqa: ASYNC221
    assert done.returncode == 2
    assert words in done.stderr
    assert "too-short" not in done.stderr
    done = subprocess.run(  # noqa: ASYNC221
        program("check", "--config", place.file, "--offline"), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ("note:" in done.stdout and "proxy.tokens.bob: has fewer than 16" in done.stdout) is bool(tokens)


async def test_many_wrong_tokens_from_an_address_are_told_to_wait_and_right_ones_are_let_in(
    place: Place, launch: Launch, raw: Raw
) -> None:
    """Whoever shares the address with somebody who guesses still gets in; the log has one line of it."""
    place.proxy = launch(place.write({"alice": ALICE}))
    health = f"{place.proxy.base}/health"
    statuses = [(await raw.send("GET", health, headers=bearer(f"{number}{'x' * 20}"))).status for number in range(15)]
    assert statuses == [401] * 10 + [429] * 5
    answer = await raw.open_answer(place.proxy.url, bearer("wrong"))
    assert answer.status == 429
    assert 0 < int(answer.headers["retry-after"]) <= 60
    assert await place.status(raw, ALICE) == 200
    assert await place.status(raw, None) == 401
    (told,) = place.proxy.logged("token.wrong")
    assert (told["address"], told["times"]) == ("127.0.0.1", 11)
