"""A help desk on real servers: skills that load a customer, open and close a case, and put together a briefing.

The configuration is config/help-desk.yaml as it is shipped; tools of its desk fail and hang when they are told to.
"""

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from anyio.abc import TaskGroup
from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult, ErrorData

from tests.answers import current_skills
from tests.conftest import (
    ERAS,
    ROOT,
    HttpProxy,
    Json,
    Peer,
    Raw,
    connected,
    http_proxy,
    program,
    stdio_program,
    text_of,
    write_config,
)
from tests.program.process import Program, serving
from tests.relay.talk import User, answering, until
from tests.servers import desk as help_desk

pytestmark = pytest.mark.anyio

SHIPPED = ROOT / "config" / "help-desk.yaml"
CASE_TOOLS = [f"desk__{tool}" for tool in ("list_orders", "track_order", "recent_notes", "add_note", "refund")]
FIRE = "the desk is on fire"
HEAP_CASE = "{{ heap.case.id }}"
HEAP_CUSTOMER = "{{ heap.customer.id }}"
CAREFUL: Json = {
    "desc": "Opens a case in three steps, and closes it in two.",
    "tool_list": {"desk": ["track_order"]},
    "internal_tools": {"desk": ["open_case", "add_note", "recent_notes", "close_case"]},
    "on_activate": [
        {
            "name": "open it",
            "tool": "desk/open_case",
            "arguments": {"customer_id": HEAP_CUSTOMER, "subject": "s"},
            "save_as": "case",
        },
        {"name": "note it", "tool": "desk/add_note", "arguments": {"case_id": HEAP_CASE, "text": "begun"}},
        {"name": "read it", "tool": "desk/recent_notes", "arguments": {"customer_id": HEAP_CUSTOMER}},
    ],
    "on_offload": [
        {"name": "note the end", "tool": "desk/add_note", "arguments": {"case_id": HEAP_CASE, "text": "ended"}},
        {"name": "close it", "tool": "desk/close_case", "arguments": {"case_id": HEAP_CASE, "resolution": "r"}},
    ],
}
ASKING: Json = {
    "desc": "Asks the person at the client.",
    "internal_tools": {"desk": ["ask_agent"]},
    "steps": [{"tool": "desk/ask_agent", "arguments": {"question": "Which colour?"}, "save_as": "asked"}],
    "output": {"colour": "{{ steps.asked.answer }}"},
}
GUARDED: Json = {
    "desc": "Runs in two steps, and only while it is active.",
    "internal_tools": {"desk": ["list_orders", "track_order"]},
    "activation": "required",
    "steps": [
        {"tool": "desk/list_orders", "arguments": {"customer_id": HEAP_CUSTOMER}, "save_as": "orders"},
        {"tool": "desk/track_order", "arguments": {"order_id": "{{ steps.orders.orders[0].id }}"}},
    ],
}
HASTY: Json = {
    "desc": "Has no patience.",
    "internal_tools": {"desk": ["open_case"]},
    "on_activate": [{"tool": "desk/open_case", "arguments": {"customer_id": HEAP_CUSTOMER, "subject": "s"}}],
    "hook_timeout": 0.2,
}
LOOKING: Json = {"desc": "Looks at orders, of whichever customer.", "tool_list": {"desk": ["list_orders"]}}
RIVAL: Json = {**LOOKING, "bind": {"desk/list_orders": {"customer_id": 1}}}
SOLE: Json = {
    "desc": "Takes the place of a case.",
    "conflicts_with": ["case"],
    "exclusive": True,
    "internal_tools": {"desk": ["recent_notes"]},
    "on_activate": [{"tool": "desk/recent_notes", "arguments": {"customer_id": HEAP_CUSTOMER}, "save_as": "notes"}],
}
TRIALS: Json = {
    "careful": CAREFUL,
    "asking": ASKING,
    "guarded": GUARDED,
    "hasty": HASTY,
    "looking": LOOKING,
    "rival": RIVAL,
    "sole": SOLE,
}
"""Skills beside those that are shipped."""


@dataclass(frozen=True)
class Desk:
    """The desk of a proxy as one test sees it: a customer of its own, and what was done since it began."""

    folder: Path
    customer: str
    customer_id: int
    since: int

    @property
    def _desk(self) -> help_desk.Desk:
        return help_desk.Desk(self.folder / "desk.db")

    def calls(self, *tools: str) -> list[tuple[str, str]]:
        """(tool, outcome) of every call, of these tools or of all; the outcome is `begun` until it has ended."""
        query = "SELECT tool, outcome FROM call WHERE id > ? ORDER BY id"
        with self._desk.rows() as rows:
            found = [(row["tool"], row["outcome"]) for row in rows.execute(query, (self.since,))]
        return [call for call in found if not tools or call[0] in tools]

    def cases(self, customer_id: int | None = None) -> list[tuple[str, str | None]]:
        """(status, resolution) of the customer's cases."""
        query = "SELECT status, resolution FROM cases WHERE customer_id = ? ORDER BY id"
        with self._desk.rows() as rows:
            return [tuple(row) for row in rows.execute(query, (customer_id or self.customer_id,))]

    def write(self, query: str, *values: object) -> None:
        """Change the desk's rows behind its back."""
        with self._desk.rows() as rows:
            rows.execute(query, values)

    def fails(self, tool: str, reason: str = FIRE) -> None:
        """Have a tool fail from now on."""
        (self.folder / f"{tool}.fails").write_text(reason, encoding="utf-8")

    def hangs(self, tool: str) -> None:
        """Have a tool hang from now on."""
        (self.folder / f"{tool}.hangs").touch()

    def works(self, tool: str) -> None:
        """Have a tool work again, also the calls of it that hang."""
        for mood in ("fails", "hangs"):
            (self.folder / f"{tool}.{mood}").unlink(missing_ok=True)

    async def until_begun(self, tool: str) -> None:
        """Wait until a call has reached the desk that has not ended."""
        await until(lambda: (tool, "begun") in self.calls(tool))


def configured(folder: Path, *, active: bool = False, **proxy: Any) -> Path:
    """The shipped configuration with a desk in `folder` that has moods, and with some skills more."""
    shipped = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    script, *_ = shipped["servers"]["desk"]["args"]
    arguments = [script, "--moods", str(folder), str(folder / "desk.db")]
    shipped["servers"]["desk"] |= {"args": arguments, "cwd": str(ROOT)}
    skills = shipped["skill_configs"] | TRIALS
    skills["case"]["active"] = active
    return write_config(
        folder / "help-desk.yaml",
        shipped["servers"],
        skills,
        proxy={**shipped["proxy"], **proxy},
        on_scope_start=shipped["on_scope_start"],
    )


def desk_of(folder: Path, customer: str) -> Desk:
    """The desk in `folder` with a new customer, who has an order that was delivered and one that is late."""
    desk = help_desk.Desk(folder / "desk.db")
    desk.prepare(ROOT, seed=True)
    with desk.rows() as rows:
        made = rows.execute(
            "INSERT INTO customer (name, email, plan, city, timezone, repository) VALUES (?, ?, 'team', 'Oslo', ?, ?)",
            ("Dana Lie", f"{customer}@shop.example", "Europe/Oslo", str(folder / "shop")),
        ).lastrowid
        assert made is not None
        for item, status in (("Lamp", "delivered"), ("Chair", "late")):
            query = (
                "INSERT INTO purchase (customer_id, item, price, status, whereabouts) VALUES (?, ?, 10, ?, 'in Hamar')"
            )
            rows.execute(query, (made, item, status))
        (since,) = rows.execute("SELECT coalesce(max(id), 0) FROM call").fetchone()
    return Desk(folder, customer, made, since)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[HttpProxy, Path]]:
    """A proxy over HTTP, and its folder; clients without a namespace work for Ben."""
    folder = tmp_path_factory.mktemp("desk")
    shop = str(folder / "shop")
    subprocess.run(["git", "init", "-q", shop], check=True)
    author = ["-c", "user.name=Dana", "-c", "user.email=dana@shop.example"]
    subprocess.run(["git", "-C", shop, *author, "commit", "-q", "--allow-empty", "-m", "Sell chairs"], check=True)
    with http_proxy(configured(folder), environ={"HELP_DESK_CUSTOMER": "ben"}) as proxy:
        yield proxy, folder


@pytest.fixture
def desk(place: tuple[HttpProxy, Path], namespace: str) -> Generator[Desk]:
    """The desk of the proxy over HTTP, with a customer for this test; all tools work again when it ends."""
    yield desk_of(place[1], namespace)
    for mood in (*place[1].glob("*.fails"), *place[1].glob("*.hangs")):
        mood.unlink()


@pytest.fixture
def url(place: tuple[HttpProxy, Path], desk: Desk) -> str:
    """Where clients work for the customer of this test."""
    return place[0].namespace(desk.customer)


async def invoke(peer: Peer, skill: str, arguments: Json | None = None, **params: Any) -> Json:
    """Call `SKILL_INVOKE`."""
    return await peer.call("SKILL_INVOKE", {"skill_name": skill, "arguments": arguments or {}}, **params)


async def briefing(peer: Peer, **arguments: Any) -> Json:
    """The result of a briefing that succeeds."""
    answer = await invoke(peer, "briefing", {"topic": "A late chair", **arguments})
    assert not answer.get("isError"), answer
    return answer["structuredContent"]["output"]


def stages(peer: Peer) -> list[tuple[str, str]]:
    """(step, status) of every event that came over the wire."""
    notes = [m["params"] for m in peer.wire.messages if m.get("method") == "notifications/progress"]
    numbers = [note["progress"] for note in notes]
    assert numbers == sorted(set(numbers)), "progress has to grow"
    found = [(note.get("_meta") or {}).get("stage") for note in notes]
    return [(stage["name"], stage["status"]) for stage in found if stage]


def is_failure(answer: Json, *said: str) -> bool:
    """Whether an answer is an error that says all of this."""
    assert answer.get("isError") is True, answer
    assert "Traceback" not in text_of(answer)
    assert all(word in text_of(answer) for word in said), (said, answer)
    return True


def aside(tasks: TaskGroup, call: Callable[[], Awaitable[Json]], answers: list[Json]) -> None:
    """Make a call beside what goes on."""

    async def run() -> None:
        answers.append(await call())

    tasks.start_soon(run)


async def given_up(desk: Desk, tool: str, call: Callable[[], Awaitable[Json]]) -> None:
    """Make a call, cancel it once this tool is running for it, and wait until the desk knows."""
    async with anyio.create_task_group() as tasks:
        aside(tasks, call, [])
        await desk.until_begun(tool)
        tasks.cancel_scope.cancel()
    await until(lambda: desk.calls(tool)[-1] == (tool, "cancelled"))


# --- the example -----------------------------------------------------------------------------------------------------


def test_the_example_is_sound(tmp_path: Path):
    """`check` starts its servers and finds nothing wrong."""
    environ = {"HELP_DESK_DB": str(tmp_path / "deep" / "desk.db"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        program("check", "--config", SHIPPED), cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "deep" / "desk.db").exists()


# --- when a scope starts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_the_customer_is_loaded_once_before_the_first_call_and_not_before_a_list(
    url: str, desk: Desk, mode: str
) -> None:
    async with connected(url, mode) as peer:
        for kind in ("tools", "prompts", "resources"):
            await peer.request(f"{kind}/list")
        assert desk.calls() == []
        assert not (await peer.skill("list")).get("isError")
        assert desk.calls() == [("find_customer", "done")]
        await peer.skill("list")
    async with connected(url, mode) as another:
        await another.skill("activate", "case")
    assert desk.calls() == [("find_customer", "done"), ("open_case", "done")]


async def test_calls_that_race_share_one_start(tmp_path: Path) -> None:
    """Of the scope, and of the skills that are active from the start; all of them wait for its end."""
    desk = desk_of(tmp_path, "dana")
    desk.hangs("find_customer")
    answers: list[Json] = []
    file = configured(tmp_path, active=True)
    async with connected(stdio_program(file, "--namespace", "dana")) as peer, anyio.create_task_group() as tasks:
        for _ in range(3):
            aside(tasks, lambda: peer.skill("list"), answers)
        await desk.until_begun("find_customer")
        await peer.tools()  # has come after the calls, which have all been read by now
        assert answers == []
        desk.works("find_customer")
        await until(lambda: len(answers) == 3)
        assert not any(answer.get("isError") for answer in answers)
        assert desk.calls() == [("find_customer", "done"), ("open_case", "done")]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_start_that_fails_is_said_and_tried_again(url: str, desk: Desk, mode: str) -> None:
    """Whatever is called: nothing is done until it has succeeded."""
    desk.fails("find_customer")
    async with connected(url, mode) as peer:
        for call in (lambda: peer.skill("activate", "case"), lambda: invoke(peer, "briefing", {"topic": "t"})):
            assert is_failure(await call(), "customer", "desk/find_customer", FIRE)
        assert {tool for tool, _ in desk.calls()} == {"find_customer"}
        desk.works("find_customer")
        assert current_skills(await peer.skill("activate", "case")) == ["case"]
        assert desk.calls("open_case", "close_case") == [("open_case", "done")]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_skill_that_is_active_from_the_start_and_cannot_begin(tmp_path: Path, mode: str) -> None:
    """Is not active any more: the first call says why, and it can be activated when the reason is gone."""
    desk = desk_of(tmp_path, "dana")
    desk.fails("open_case")
    async with connected(stdio_program(configured(tmp_path, active=True), "--namespace", "dana"), mode) as peer:
        told = await peer.skill("list")
        assert all(word in text_of(told) for word in ("case", "desk/open_case", FIRE)), told
        assert current_skills(told) == []
        assert not set(CASE_TOOLS) & set(await peer.tools())
        desk.works("open_case")
        assert current_skills(await peer.skill("activate", "case")) == ["case"]
        assert desk.calls("open_case", "close_case") == [("open_case", "failed"), ("open_case", "done")]


async def test_an_unknown_customer_is_told_at_the_first_call(place: tuple[HttpProxy, Path], desk: Desk) -> None:
    async with connected(place[0].namespace(f"{desk.customer}-typo")) as peer:
        said = f"no customer has the address {desk.customer}-typo@shop.example"
        assert is_failure(await peer.skill("list"), "customer", said)


# --- activating and offloading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_a_case_is_open_before_the_skill_is_active(url: str, desk: Desk, mode: str) -> None:
    """While it is being opened nothing is granted; the notice, and after it the result, come when it is open."""
    desk.hangs("open_case")
    answers: list[Json] = []
    async with connected(url, mode) as peer, peer.hearing():
        before = await peer.tools()
        async with anyio.create_task_group() as tasks:
            aside(tasks, lambda: peer.skill("activate", "case"), answers)
            await desk.until_begun("open_case")
            assert await peer.tools() == before
            assert is_failure(await peer.call("desk__list_orders"), "desk__list_orders")
            assert (peer.wire.notices(), answers, desk.calls("list_orders")) == (0, [], [])
            desk.works("open_case")
        assert current_skills(answers[0]) == ["case"]
        await peer.wire.until_notices(1)
        (notice,) = peer.wire.where(lambda message: message.get("method") == "notifications/tools/list_changed")
        (result,) = peer.wire.where(lambda message: "skill case activated" in json.dumps(message.get("result")))
        assert notice < result or not peer.handshake  # in the modern era they come on streams of their own
        assert set(CASE_TOOLS) < set(await peer.tools())
        assert desk.cases() == [("open", None)]


async def test_steps_know_the_customer_and_the_client(url: str, desk: Desk) -> None:
    async with connected(url, name="a-client") as peer:
        await peer.skill("activate", "case")
    with help_desk.Desk(desk.folder / "desk.db").rows() as rows:
        query = "SELECT subject FROM cases WHERE customer_id = ?"
        assert rows.execute(query, (desk.customer_id,)).fetchone()[0] == "Dana Lie, by a-client"


@pytest.mark.parametrize("mode", ERAS)
async def test_an_active_skill_is_not_begun_again(url: str, desk: Desk, mode: str) -> None:
    async with connected(url, mode) as peer:
        for _ in range(2):
            assert current_skills(await peer.skill("activate", "case")) == ["case"]
        assert desk.cases() == [("open", None)]


@pytest.mark.parametrize("mode", ERAS)
async def test_internal_tools_are_of_no_client(url: str, desk: Desk, mode: str) -> None:
    """Neither listed nor callable, also while the skill is active whose steps use them."""
    async with connected(url, mode) as peer:
        await peer.skill("activate", "case")
        assert not {"desk__open_case", "desk__close_case"} & set(await peer.tools())
        arguments = {"case_id": 1, "resolution": "mine"}
        assert await peer.refusal("tools/call", {"name": "desk__close_case", "arguments": arguments}) == (
            -32602,
            "Unknown tool: desk__close_case",
        )
        assert desk.calls("close_case") == []


@pytest.mark.parametrize("mode", ERAS)
async def test_offloading_closes_the_case_once(url: str, desk: Desk, mode: str) -> None:
    async with connected(url, mode) as peer:
        for round_ in (1, 2):
            await peer.skill("activate", "case")
            await peer.call("desk__add_note", {"text": f"round {round_}"})
            for _ in range(2):
                assert current_skills(await peer.skill("offload", "case")) == []
            assert [status for status, _ in desk.cases()] == ["closed"] * round_
            assert desk.calls("close_case") == [("close_case", "done")] * round_
        assert all((resolution or "").startswith("offloaded: ") for _, resolution in desk.cases())
        assert not set(CASE_TOOLS) & set(await peer.tools())


async def test_while_a_case_is_being_closed_nothing_is_granted(url: str, desk: Desk) -> None:
    answers: list[Json] = []
    async with connected(url, "legacy") as peer:
        await peer.skill("activate", "case")
        desk.hangs("close_case")
        async with anyio.create_task_group() as tasks:
            aside(tasks, lambda: peer.skill("offload", "case"), answers)
            await desk.until_begun("close_case")
            assert not set(CASE_TOOLS) & set(await peer.tools())
            assert is_failure(await peer.call("desk__list_orders"), "case")
            assert answers == []
            desk.works("close_case")
        assert current_skills(answers[0]) == []


async def test_offloading_waits_for_the_activation(url: str, desk: Desk) -> None:
    """One change at a time: the case is opened and then closed, whichever client asks."""
    desk.hangs("open_case")
    answers: list[Json] = []
    async with connected(url) as one, connected(url) as two, anyio.create_task_group() as tasks:
        aside(tasks, lambda: one.skill("activate", "case"), answers)
        await desk.until_begun("open_case")
        aside(tasks, lambda: two.skill("offload", "case"), answers)
        await two.tools()
        desk.works("open_case")
        await until(lambda: len(answers) == 2)
    assert desk.calls("open_case", "close_case") == [("open_case", "done"), ("close_case", "done")]
    assert [status for status, _ in desk.cases()] == ["closed"]


async def test_two_activations_at_a_time_open_one_case(url: str, desk: Desk) -> None:
    desk.hangs("open_case")
    answers: list[Json] = []
    async with connected(url) as one, connected(url, "legacy") as two, anyio.create_task_group() as tasks:
        for peer in (one, two):
            aside(tasks, partial(peer.skill, "activate", "case"), answers)
        await desk.until_begun("open_case")
        desk.works("open_case")
        await until(lambda: len(answers) == 2)
    assert [current_skills(answer) for answer in answers] == [["case"], ["case"]]
    assert desk.calls("open_case") == [("open_case", "done")]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_server_hangs_in_a_hook(url: str, desk: Desk, mode: str) -> None:
    """Its time is over at some point: the call is cancelled, and the activation fails."""
    desk.hangs("open_case")
    async with connected(url, mode) as peer:
        assert is_failure(await peer.skill("activate", "hasty"), "hasty", "desk/open_case", "0.2 s")
        await until(lambda: desk.calls("open_case") == [("open_case", "cancelled")])
        assert current_skills(await peer.skill("list")) == []
        desk.works("open_case")
        assert current_skills(await peer.skill("activate", "case")) == ["case"]


async def test_the_end_of_an_idle_scope_closes_its_case(tmp_path: Path, raw: Raw) -> None:
    desk = desk_of(tmp_path, "dana")
    with http_proxy(configured(tmp_path, scope_idle=0.2), environ={"HELP_DESK_CUSTOMER": "dana"}) as proxy:
        headers = await raw.open(proxy.url)
        await raw.skill(proxy.url, headers, "activate", "case")
        await until(lambda: desk.calls("close_case") == [("close_case", "done")])
        assert desk.cases() == [("closed", "offloaded: scope_ended")]


async def test_a_skill_that_the_configuration_no_longer_has_closes_its_case(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, "dana")
    file = configured(tmp_path)
    async with connected(stdio_program(file, "--namespace", "dana"), "legacy") as peer:
        await peer.skill("activate", "case")
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
        del data["skill_configs"]["case"], data["skill_configs"]["sole"]  # which names it as its rival
        file.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
        await peer.wire.until_notices(2)
        await until(lambda: desk.calls("close_case") == [("close_case", "done")])
        assert not set(CASE_TOOLS) & set(await peer.tools())
    assert [status for status, _ in desk.cases()] == ["closed"]


async def test_a_skill_that_takes_the_place_of_a_case_closes_it(url: str, desk: Desk) -> None:
    """Each step is told in turn, first those of what ends and then those of what begins."""
    async with connected(url, "legacy") as peer:
        await peer.skill("activate", "case")
        arguments = {"action": "activate", "skill_name": "sole"}
        assert current_skills(await peer.call("SKILL", arguments, _meta={"progressToken": 1})) == ["sole"]
        steps = ("desk/close_case", "notes")
        assert stages(peer) == [(step, status) for step in steps for status in ("running", "completed")]
    assert [status for status, _ in desk.cases()] == ["closed"]


# --- bindings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_an_agent_works_as_one_customer_without_knowing_the_id(url: str, desk: Desk, mode: str) -> None:
    """The id is in no schema; it is filled in; who sends one is refused, and the desk hears nothing of that."""
    async with connected(url, mode) as peer:
        await peer.skill("activate", "case")
        schemas = {tool["name"]: tool["inputSchema"] for tool in await peer.definitions()}
        for tool in ("list_orders", "recent_notes", "refund"):
            assert "customer_id" not in json.dumps(schemas[f"desk__{tool}"])
        assert schemas["desk__refund"]["required"] == ["order_id"]
        assert schemas["desk__add_note"]["required"] == ["text"]
        orders = (await peer.call("desk__list_orders"))["structuredContent"]["orders"]
        assert [order["item"] for order in orders] == ["Lamp", "Chair"]
        refund = await peer.call("desk__refund", {"order_id": orders[1]["id"]})
        assert refund["structuredContent"] == {"order_id": orders[1]["id"], "amount": 10.0}
        heard = desk.calls()
        for tool in ("list_orders", "recent_notes"):
            assert is_failure(await peer.call(f"desk__{tool}", {"customer_id": 1}), "customer_id", "case")
        assert is_failure(await peer.call("desk__refund", {"customer_id": 1, "order_id": 11}), "customer_id", "case")
        assert desk.calls() == heard
        of_another = await peer.call("desk__refund", {"order_id": 11})
        assert is_failure(of_another, f"customer {desk.customer_id} has no order 11")


@pytest.mark.parametrize("mode", ERAS)
async def test_a_binding_holds_whoever_else_grants_the_tool(url: str, desk: Desk, mode: str) -> None:
    """As long as its skill is active."""
    async with connected(url, mode) as peer:
        await peer.skill("activate", "looking")
        assert len((await peer.call("desk__list_orders", {"customer_id": 1}))["structuredContent"]["orders"]) == 3
        await peer.skill("activate", "case")
        assert is_failure(await peer.call("desk__list_orders", {"customer_id": 1}), "customer_id", "case")
        assert len((await peer.call("desk__list_orders"))["structuredContent"]["orders"]) == 2
        await peer.skill("offload", "case")
        assert len((await peer.call("desk__list_orders", {"customer_id": 1}))["structuredContent"]["orders"]) == 3


@pytest.mark.parametrize("mode", ERAS)
async def test_two_skills_that_bind_differently_cannot_be_active_together(url: str, desk: Desk, mode: str) -> None:
    """The second one is refused before anything runs for it."""
    async with connected(url, mode) as peer:
        await peer.skill("activate", "rival")
        assert is_failure(await peer.skill("activate", "case"), "case", "rival")
        assert desk.calls("open_case") == []
        await peer.skill("offload", "rival")
        assert current_skills(await peer.skill("activate", "case")) == ["case"]


# --- invoking --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_a_briefing_gathers_three_sources_in_one_answer(url: str, desk: Desk, mode: str) -> None:
    """Without activating anything and without granting a tool; it is told as it begins and ends, and each step, too."""
    arguments = {"skill_name": "briefing", "arguments": {"topic": "A late chair"}}
    async with connected(url, mode) as peer:
        before = await peer.tools()
        assert "SKILL_INVOKE" in before
        answer = await peer.call("SKILL_INVOKE", arguments, _meta={"progressToken": "run"})
        assert await peer.tools() == before
        told = stages(peer)
    result = answer["structuredContent"]
    assert json.loads(text_of(answer)) == result
    output = result.pop("output")
    assert result == {"skill_id": "briefing", "success": True}
    assert {key: output[key] for key in ("topic", "customer", "notes")} == {
        "topic": "A late chair",
        "customer": "Dana Lie (team), Oslo",
        "notes": [],
    }
    assert output["local_time"][-6:] in ("+01:00", "+02:00")
    assert [order["item"] for order in output["orders"]] == ["Lamp", "Chair"]
    assert [late["whereabouts"] for late in output["late"]] == ["in Hamar"]
    assert "Message: Sell chairs" in output["work"]
    begun = told[told.index(("briefing", "running")) :]  # what a scope's start does is told before
    for step in ("orders", "clock", "work"):
        places = [begun.index(one) for one in ((step, "running"), (step, "completed"), ("late", "running"))]
        assert places == sorted(places)
    assert begun[-2:] == [("late", "completed"), ("briefing", "completed")]
    each = ("briefing", "orders", "clock", "work", "late")
    assert sorted(begun) == sorted((name, status) for name in each for status in ("running", "completed"))
    assert not any(status == "failed" for _, status in told)
    assert desk.calls("recent_notes", "open_case") == []


async def test_the_sources_are_asked_side_by_side(url: str, desk: Desk) -> None:
    """One that hangs keeps no other one waiting."""
    desk.hangs("list_orders")
    arguments = {"skill_name": "briefing", "arguments": {"topic": "t"}}
    answers: list[Json] = []
    async with connected(url, "legacy") as peer, anyio.create_task_group() as tasks:
        call = {"_meta": {"progressToken": 1}}
        aside(tasks, lambda: peer.call("SKILL_INVOKE", arguments, **call), answers)
        await peer.wire.until(lambda: {("clock", "completed"), ("work", "completed")} <= set(stages(peer)))
        assert ("orders", "completed") not in stages(peer)
        desk.works("list_orders")
        await peer.wire.until(lambda: ("late", "completed") in stages(peer))
    assert answers[0]["structuredContent"]["success"] is True


async def test_who_approves_one_tool_approves_no_more(url: str) -> None:
    """`SKILL` can open a case, so it is not harmless; what `SKILL_INVOKE` runs here only reads."""
    async with connected(url) as peer:
        await briefing(peer)
        await invoke(peer, "guarded")  # from now on all tools are known
        hints = {tool["name"]: tool["annotations"] for tool in await peer.definitions()}
    assert (hints["SKILL"]["destructiveHint"], hints["SKILL_INVOKE"].get("destructiveHint")) == (True, False)
    assert hints["SKILL_INVOKE"]["readOnlyHint"] is True


async def test_every_run_is_recorded_once(tmp_path: Path) -> None:
    """With what became of it; `runs list` shows them, the newest first."""
    desk = desk_of(tmp_path, "dana")
    file = configured(tmp_path, state={"backend": "sqlite", "path": "state.db"})
    async with connected(stdio_program(file, "--namespace", "dana"), "legacy") as peer:
        await briefing(peer)
        desk.fails("track_order")
        await invoke(peer, "briefing", {"topic": "t"})
        await invoke(peer, "briefing", {"topic": 5})  # is no run: nothing has run
        desk.hangs("list_orders")
        await given_up(desk, "list_orders", lambda: invoke(peer, "briefing", {"topic": "t"}))
        desk.works("list_orders")
    done = await anyio.run_process(program("runs", "list", "--config", file, "--json"), cwd=ROOT)
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [run["skill"] for run in runs] == ["briefing"] * 3
    assert [run["status"] for run in runs] == ["cancelled", "failed", "completed"]
    assert [step["name"] for step in runs[2]["steps"]][-2:] == ["late", "notes"]


WRONG: dict[str, Json] = {"topic": {}, "days": {"topic": "t", "days": "many"}, "x": {"topic": "t", "x": 1}}
"""Arguments of a briefing, by the parameter that is wrong."""


@pytest.mark.parametrize("mode", ERAS)
async def test_parameters_are_checked_before_anything_runs(url: str, desk: Desk, mode: str) -> None:
    async with connected(url, mode) as peer:
        await peer.skill("list")
        heard = desk.calls()
        for wrong, arguments in WRONG.items():
            answer = await invoke(peer, "briefing", arguments)
            assert is_failure(answer, wrong)
            assert set(answer["structuredContent"]["expected_parameters"]["properties"]) == {"topic", "days"}
        assert desk.calls() == heard


async def test_a_briefing_in_a_case_has_its_notes(url: str) -> None:
    """The step that looks for them is left out where no case was opened."""
    async with connected(url) as peer:
        assert (await briefing(peer))["notes"] == []
        await peer.skill("activate", "case")
        await peer.call("desk__add_note", {"text": "wants a chair"})
        assert [note["text"] for note in (await briefing(peer))["notes"]] == ["wants a chair"]


async def test_a_briefing_needs_no_history(url: str, desk: Desk) -> None:
    """`on_error: continue` lets a run do without a step."""
    desk.write("UPDATE customer SET repository = ? WHERE id = ?", str(desk.folder / "nowhere"), desk.customer_id)
    async with connected(url) as peer:
        output = await briefing(peer)
    assert (output["work"], len(output["orders"])) == ("", 2)


# --- every step failing in turn --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(
    ("tool", "index", "steps"),
    [
        ("open_case", 0, "No step had been completed. Failed: open it. Not begun: note it, read it."),
        ("add_note", 1, "Completed, and not undone: open it. Failed: note it. Not begun: read it."),
        ("recent_notes", 2, "Completed, and not undone: open it, note it. Failed: read it."),
    ],
)
async def test_a_step_of_an_activation_fails(
    url: str, desk: Desk, mode: str, tool: str, index: int, steps: str
) -> None:
    """The activation fails as a whole: the answer has the reason and what each step has come to; then it works."""
    desk.fails(tool)
    async with connected(url, mode) as peer, peer.hearing():
        before = await peer.tools()
        answer = await peer.skill("activate", "careful")
        step = CAREFUL["on_activate"][index]["name"]
        why = f"Its on_activate hook failed: step {step} (on_activate[{index}], desk/{tool}) failed: {FIRE}."
        assert is_failure(answer)
        assert text_of(answer).splitlines()[1:] == [f"{why} {steps}"]
        assert current_skills(await peer.skill("list")) == []
        assert (await peer.tools(), peer.wire.notices()) == (before, 0)
        assert desk.calls("close_case") == []  # what had run is not undone behind anyone's back
        desk.works(tool)
        assert current_skills(await peer.skill("activate", "careful")) == ["careful"]
        assert "desk__track_order" in await peer.tools()
        assert current_skills(await peer.skill("offload", "careful")) == []
        assert desk.calls("close_case") == [("close_case", "done")]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(("tool", "step"), [("add_note", "note the end"), ("close_case", "close it")])
async def test_a_step_of_an_end_fails(url: str, desk: Desk, mode: str, tool: str, step: str) -> None:
    """The skill is offloaded all the same, and the answer says what has failed; it is not tried again."""
    async with connected(url, mode) as peer:
        await peer.skill("activate", "careful")
        desk.fails(tool)
        answer = await peer.skill("offload", "careful")
        assert all(word in text_of(answer) for word in (step, f"desk/{tool}", FIRE)), answer
        assert current_skills(answer) == []
        assert "desk__track_order" not in await peer.tools()
        desk.works(tool)
        heard = desk.calls()
        await peer.skill("offload", "careful")
        assert (desk.calls(), desk.cases()) == (heard, [("open", None)])
        assert current_skills(await peer.skill("activate", "careful")) == ["careful"]
        assert current_skills(await peer.skill("offload", "careful")) == []
        assert [status for status, _ in desk.cases()] == ["open", "closed"]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(
    ("tool", "step", "had_run"),
    [
        ("list_orders", "orders", []),
        ("track_order", "late", ["orders", "clock", "work"]),
        ("recent_notes", "notes", ["orders", "clock", "work", "late"]),
    ],
)
async def test_a_step_of_a_run_fails(url: str, desk: Desk, mode: str, tool: str, step: str, had_run: list[str]) -> None:
    """The answer has no success: it names the step, the reason and what had been done; then it works."""
    async with connected(url, mode) as peer:
        await peer.skill("activate", "case")
        desk.fails(tool)
        answer = await invoke(peer, "briefing", {"topic": "t"}, _meta={"progressToken": 1})
        assert is_failure(answer, step, FIRE, *had_run)
        told = answer["structuredContent"]
        assert (told["skill_id"], told["success"]) == ("briefing", False)
        assert (step, "failed") in stages(peer)
        assert set(had_run) <= {name for name, status in stages(peer) if status == "completed"}
        desk.works(tool)
        assert len((await briefing(peer))["orders"]) == 2


async def test_a_server_of_a_step_that_does_not_start(tmp_path: Path) -> None:
    """Is a reason like any other; once it starts, the run succeeds."""
    desk = desk_of(tmp_path, "dana")
    file = configured(tmp_path)
    data = yaml.safe_load(file.read_text(encoding="utf-8"))
    command = Path(sys.executable).with_name("mcp-server-time")
    go = tmp_path / "go"
    data["servers"]["time"] = {"command": "sh", "args": ["-c", f'test -e "{go}" && exec "{command}"']}
    file.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    async with connected(stdio_program(file, "--namespace", "dana")) as peer:
        assert is_failure(await invoke(peer, "briefing", {"topic": "t"}), "clock", "time/get_current_time")
        assert desk.calls("track_order") == []
        go.touch()
        assert (await briefing(peer))["customer"] == "Dana Lie (team), Oslo"


async def test_another_server_of_a_step_fails(url: str, desk: Desk) -> None:
    """With its own words."""
    desk.write("UPDATE customer SET timezone = 'Nowhere' WHERE id = ?", desk.customer_id)
    async with connected(url) as peer:
        assert is_failure(await invoke(peer, "briefing", {"topic": "t"}), "clock", "time/get_current_time", "Nowhere")


async def test_an_expression_that_has_no_value(url: str, desk: Desk) -> None:
    """Fails its step: the answer names the step, the place and the expression."""
    desk.write("DELETE FROM purchase WHERE customer_id = ?", desk.customer_id)
    async with connected(url) as peer:
        await peer.skill("activate", "guarded")
        answer = await invoke(peer, "guarded")
        assert is_failure(answer, "track_order", "arguments.order_id", "steps.orders.orders[0].id")
    assert desk.calls("track_order") == []


# --- questions -------------------------------------------------------------------------------------------------------


class Painter(User):
    """Who says a colour when asked."""

    async def elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        self.asked.append(params.message)
        return ElicitResult(action="accept", content={"answer": "blue"})


async def asks(peer: Peer, user: User) -> None:
    with anyio.fail_after(20):
        result = await peer.client.call_tool("SKILL_INVOKE", {"skill_name": "asking", "arguments": {}})
    assert result.structured_content == {"skill_id": "asking", "output": {"colour": "blue"}, "success": True}
    assert user.asked == ["Which colour?"]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_question_of_a_step_reaches_the_client_of_the_run(url: str, mode: str) -> None:
    """And no other one, also of the same namespace."""
    other = Painter()
    user = Painter()
    async with answering(url, mode, other), answering(url, mode, user) as peer:
        await asks(peer, user)
    assert other.asked == []


@pytest.mark.parametrize("mode", ERAS)
async def test_a_question_of_a_step_over_stdio(tmp_path: Path, mode: str) -> None:
    desk_of(tmp_path, "dana")
    user = Painter()
    async with answering(stdio_program(configured(tmp_path), "--namespace", "dana"), mode, user) as peer:
        await asks(peer, user)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_question_to_a_client_that_answers_none(url: str, mode: str) -> None:
    """Makes the step fail, and the run with it."""
    async with answering(url, mode) as peer:
        assert is_failure(await invoke(peer, "asking"), "asked", "desk/ask_agent")


# --- cancelling, vanishing, ending -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_an_activation_is_given_up(url: str, desk: Desk, mode: str) -> None:
    """Its step is cancelled at the server and nothing is active; the next one succeeds."""
    desk.hangs("open_case")
    async with connected(url, mode) as peer:
        await given_up(desk, "open_case", lambda: peer.skill("activate", "case"))
        desk.works("open_case")
        assert current_skills(await peer.skill("list")) == []
        assert not set(CASE_TOOLS) & set(await peer.tools())
        assert (desk.cases(), desk.calls("close_case")) == ([], [])
        assert current_skills(await peer.skill("activate", "case")) == ["case"]
        assert desk.cases() == [("open", None)]


@pytest.mark.parametrize("mode", ERAS)
async def test_an_offloading_is_given_up(url: str, desk: Desk, mode: str) -> None:
    """The skill is offloaded all the same, and its end is not run a second time."""
    async with connected(url, mode) as peer:
        await peer.skill("activate", "case")
        desk.hangs("close_case")
        await given_up(desk, "close_case", lambda: peer.skill("offload", "case"))
        desk.works("close_case")
        assert current_skills(await peer.skill("offload", "case")) == []
        assert desk.calls("close_case") == [("close_case", "cancelled")]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_run_is_given_up(url: str, desk: Desk, mode: str) -> None:
    """It stops at its step, which is cancelled at the server."""
    desk.hangs("list_orders")
    async with connected(url, mode) as peer:
        await given_up(desk, "list_orders", lambda: invoke(peer, "briefing", {"topic": "t"}))
        desk.works("list_orders")
        assert desk.calls("track_order") == []
        assert len((await briefing(peer))["orders"]) == 2


async def test_a_session_ends_during_a_run(place: tuple[HttpProxy, Path], desk: Desk, raw: Raw) -> None:
    """The run is cancelled at its server, and the case of the session is closed."""
    url = place[0].url
    headers = await raw.open(url)
    await raw.skill(url, headers, "activate", "case")
    desk.hangs("list_orders")
    arguments = {"name": "SKILL_INVOKE", "arguments": {"skill_name": "briefing", "arguments": {"topic": "t"}}}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(raw.post, url, "tools/call", arguments, headers)
        await desk.until_begun("list_orders")
        assert (await raw.send("DELETE", url, headers=headers)).status == 200
        await until(lambda: desk.calls("list_orders", "close_case")[-1:] == [("close_case", "done")])
        await until(lambda: desk.calls("list_orders") == [("list_orders", "cancelled")])
        tasks.cancel_scope.cancel()
    assert desk.calls("track_order") == []


async def test_a_client_vanishes_during_a_run(url: str, desk: Desk, raw: Raw) -> None:
    """In the modern era the end of its connection says so; others go on in its namespace."""
    desk.hangs("list_orders")
    arguments = {"name": "SKILL_INVOKE", "arguments": {"skill_name": "briefing", "arguments": {"topic": "t"}}}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(raw.modern, url, "tools/call", arguments)
        await desk.until_begun("list_orders")
        tasks.cancel_scope.cancel()
    await until(lambda: desk.calls("list_orders") == [("list_orders", "cancelled")])
    desk.works("list_orders")
    async with connected(url) as peer:
        assert len((await briefing(peer))["orders"]) == 2


@pytest.mark.parametrize("mode", ERAS)
async def test_a_skill_is_offloaded_during_its_run(url: str, desk: Desk, mode: str) -> None:
    """Where it has to be active, the run does not go on to the next step, and says why."""
    answers: list[Json] = []
    async with connected(url, mode) as peer:
        assert is_failure(await invoke(peer, "guarded"), "guarded", "activate")
        await peer.skill("activate", "guarded")
        desk.hangs("list_orders")
        async with anyio.create_task_group() as tasks:
            aside(tasks, lambda: invoke(peer, "guarded"), answers)
            await desk.until_begun("list_orders")
            assert current_skills(await peer.skill("offload", "guarded")) == []
            desk.works("list_orders")
        assert is_failure(answers[0], "guarded", "track_order", "orders")
        assert answers[0]["structuredContent"]["success"] is False
        assert desk.calls("track_order") == []


async def test_the_end_of_a_session_closes_its_case(place: tuple[HttpProxy, Path], desk: Desk, raw: Raw) -> None:
    """It was Ben's, whom the environment names for clients without a namespace."""
    url = place[0].url
    headers = await raw.open(url)
    await raw.skill(url, headers, "activate", "case")
    assert desk.cases(2)[-1] == ("open", None)
    assert (await raw.send("DELETE", url, headers=headers)).status == 200
    await until(lambda: desk.calls("close_case") == [("close_case", "done")])
    assert desk.cases(2)[-1][0] == "closed"


async def by_sigterm(served: Program) -> None:
    served.process.terminate()


async def by_end_of_input(served: Program) -> None:
    assert served.process.stdin is not None
    await served.process.stdin.aclose()


@pytest.mark.parametrize("way", [by_sigterm, by_end_of_input])
async def test_the_end_of_the_proxy_during_a_run(tmp_path: Path, way: Callable[[Program], Awaitable[None]]) -> None:
    """The run ends with it, at the server too, and the case is closed."""
    desk = desk_of(tmp_path, "dana")
    async with serving(configured(tmp_path), "--namespace", "dana") as served:
        await served.greet()
        await served.activate("case")
        desk.hangs("list_orders")
        run = {"skill_name": "briefing", "arguments": {"topic": "t"}}
        await served.ask("tools/call", name="SKILL_INVOKE", arguments=run)
        await desk.until_begun("list_orders")
        await way(served)
        assert await served.ended() == 0
        await served.rest()
        assert served.is_clean()
    assert [status for status, _ in desk.cases()] == ["closed"]
    assert desk.calls("list_orders", "track_order") == [("list_orders", "cancelled")]


@pytest.mark.parametrize("hanging", [False, True])
@pytest.mark.parametrize("way", [by_sigterm, by_end_of_input])
async def test_the_end_of_the_proxy_closes_the_case(
    tmp_path: Path, way: Callable[[Program], Awaitable[None]], *, hanging: bool
) -> None:
    """Within its 5 seconds; a desk that hangs does not hold it up."""
    desk = desk_of(tmp_path, "dana")
    async with serving(configured(tmp_path), "--namespace", "dana") as served:
        await served.greet()
        assert current_skills(await served.activate("case")) == ["case"]
        if hanging:
            desk.hangs("close_case")
        await way(served)
        assert await served.ended() == 0
        await served.rest()
        assert served.is_clean()
    assert [tool for tool, _ in desk.calls("close_case")] == ["close_case"]
    assert [status for status, _ in desk.cases()] == ["open" if hanging else "closed"]


async def test_a_kept_scope_goes_on_after_a_restart(tmp_path: Path) -> None:
    """With state in a file: the customer and the case are still known, and nothing is opened or closed in between."""
    desk = desk_of(tmp_path, "dana")
    file = configured(tmp_path, state={"backend": "sqlite", "path": "state.db"})
    with http_proxy(file) as proxy:
        async with connected(proxy.namespace("dana")) as peer:
            await peer.skill("activate", "case")
            await peer.call("desk__add_note", {"text": "before"})
    assert desk.cases() == [("open", None)]
    with http_proxy(file) as proxy:
        async with connected(proxy.namespace("dana")) as peer:
            assert set(CASE_TOOLS) < set(await peer.tools())
            await peer.call("desk__add_note", {"text": "after"})
            notes = (await peer.call("desk__recent_notes"))["structuredContent"]["notes"]
            assert [note["text"] for note in notes] == ["after", "before"]
            assert desk.calls("find_customer", "open_case", "close_case") == [
                ("find_customer", "done"),
                ("open_case", "done"),
            ]
            assert current_skills(await peer.skill("offload", "case")) == []
    assert [status for status, _ in desk.cases()] == ["closed"]
    assert desk.calls("open_case", "close_case") == [("open_case", "done"), ("close_case", "done")]
