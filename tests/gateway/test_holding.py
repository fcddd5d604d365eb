"""Results of `SKILL` are held until their caller has read its list again : whose, how long, and for whom."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from proxy.core import known_clients
from proxy.core.catalogue import Allow, Skill
from proxy.core.inventory import Json
from proxy.core.scope import Evidence, ScopeId, connected, evidence_of
from proxy.core.settings import Settings
from proxy.gateway import announcing
from proxy.ports import Caller, Era, ListKind, Subscriber
from tests.answers import current_skills, schemas_told, text_of, tools_told
from tests.gateway.acting import OTHER, Doing, World, acting, call, client, settle, skill
from tests.gateway.world import SCOPE, Channel

pytestmark = pytest.mark.anyio

LONG = 3600.0
"""Seconds that no test waits: what is held so long is held until something ends that."""
SHORT = 0.01
SKILLS = (
    Skill("one", "One", "", "Do one.", tools={"desk": Allow.of(["one"])}),
    Skill("two", "Two", "", "Do two.", tools={"desk": Allow.of(["two"])}),
    Skill("three", "Three", "", "Do three.", tools={"desk": Allow.of(["three"])}),
    Skill("guide", "Guide", "", "Words alone."),
)
REREADS, UNKNOWN, DOES_NOT = "claude-code", "some-agent", "claude-ai"


@dataclass
class Streams:
    """A `Notifier`: who has a stream that tells of tools, and what went out on other ways than requests' own."""

    listening: set[str] = field(default_factory=set)
    told: list[tuple[ScopeId, ListKind, Era, str | None]] = field(default_factory=list)

    def list_changed(
        self, scope: ScopeId, kind: ListKind, era: Era, *, but: str | None = None, only: str | None = None
    ) -> None:
        self.told.append((scope, kind, era, but))

    def hears_of_tools(self, caller: Caller) -> bool:
        return caller.era == "handshake" or caller.key in self.listening

    def updated(self, subscriber: Subscriber, params: Json) -> None: ...


def by(name: str, era: Era = "handshake", scope: ScopeId = SCOPE, connection: str = "own", **more: Any) -> Caller:
    """A client that calls itself so."""
    return client(scope=scope, client=name, era=era, connection=connection if era == "handshake" else None, **more)


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets how long results are held at most, for clients known to read their list again and for others."""

    def set_to(known: float, unknown: float | None = None) -> None:
        monkeypatch.setattr(known_clients, "HOLD_FOR_KNOWN_S", known)
        monkeypatch.setattr(known_clients, "HOLD_FOR_OTHERS_S", known if unknown is None else unknown)

    set_to(LONG)
    monkeypatch.setattr(announcing, "AFTER_RESULT_S", LONG)
    return set_to


class Holding:
    """A world with a client that is connected, and what it waits for."""

    def __init__(self, world: World, streams: Streams) -> None:
        self.world = world
        self.streams = streams

    async def come(self, caller: Caller) -> Caller:
        """A client connects, or opens a stream that tells of tools."""
        if caller.connection is None:
            self.streams.listening.add(caller.key)
        else:
            await self.world.gate.change(caller.scope, partial(connected, connection=caller.connection))
        return caller

    def skill(self, action: str, id_: str, caller: Caller) -> Doing:
        """A call of `SKILL` that is on its way."""
        return Doing(self.world.tasks, partial(self.world.skill, action, id_, caller))

    async def evidence(self, caller: Caller) -> Evidence:
        return evidence_of(await self.world.state(caller.scope), caller.key)

    @property
    def quiet(self) -> bool:
        """Whether nothing is kept of changes and holds that are over."""
        wired = self.world.wired
        return not (wired.reads._expected or wired.announcer._in_change) and self.world.quiet


@pytest.fixture
async def holding(hold: Callable[[float], None]):
    streams = Streams()
    async with acting(*SKILLS, settings=Settings(), notifier=streams) as world:
        yield Holding(world, streams)


ERAS: tuple[Era, ...] = ("handshake", "modern")
ACTIONS = ("activate", "offload")

# --- what is held, and until when ------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", [REREADS, UNKNOWN])
async def test_the_notice_goes_out_first_and_the_result_when_the_list_was_read(holding: Holding, era: Era, name: str):
    """On activation and on offloading; the list that is read has what the notice was about."""
    channel = Channel()
    caller = await holding.come(by(name, era, channel=channel))

    def notices() -> int:
        ways = [kind for _, kind, to, _ in holding.streams.told if to == era]
        return (channel.sent if era == "handshake" else ways).count("tools")

    ours = ["SKILL"] if name == REREADS else ["SKILL", "SKILL_CALL"]
    for number, (action, tools) in enumerate((("activate", ["desk__one"]), ("offload", [])), start=1):
        doing = holding.skill(action, "one", caller)
        await settle()
        assert notices() == number
        assert not doing.done
        assert await holding.world.names(caller) == [*ours, *tools]
        assert f"skill one {action}" in text_of(await doing.outcome())
    assert (await holding.evidence(caller)).rereads_in_time
    assert notices() == 2
    assert holding.quiet


async def test_a_result_is_held_on_for_a_moment_after_the_list_was_given(
    holding: Holding, monkeypatch: pytest.MonkeyPatch
):
    """Until that has arrived and been taken in; then it comes by itself."""
    monkeypatch.setattr(announcing, "HOLD_MARGIN_S", LONG)
    caller = await holding.come(by(REREADS))
    doing = holding.skill("activate", "one", caller)
    await settle()
    await holding.world.names(caller)
    await settle()
    assert not doing.done
    await doing.give_up()
    assert await holding.world.active() == ("one",)

    monkeypatch.setattr(announcing, "HOLD_MARGIN_S", SHORT)
    doing = holding.skill("activate", "two", caller)
    await settle()
    await holding.world.names(caller)
    assert "skill two activated" in text_of(await doing.outcome())


async def test_a_read_of_the_list_as_it_was_before_ends_no_hold(hold: Callable[[float], None]):
    """As of a client that reads while the skill begins: what it got then does not have the tool."""
    streams = Streams()
    opens = skill("case", on_activate=[call("begin")])
    async with acting(opens, settings=Settings(), notifier=streams) as world:
        holding = Holding(world, streams)
        caller = await holding.come(by(REREADS))
        go_on = world.desk.holds("begin")
        doing = holding.skill("activate", "case", caller)
        await settle()
        assert "desk__granted" not in await world.names(caller)
        go_on.set()
        await settle()
        assert await world.active() == ("case",)
        assert not doing.done
        assert "desk__granted" in await world.names(caller)
        assert "skill case activated" in text_of(await doing.outcome())


@pytest.mark.parametrize(
    ("action", "id_"), [("activate", "one"), ("activate", "guide"), ("activate", "nonsense"), ("offload", "two")]
)
async def test_what_changes_no_list_of_tools_is_not_held(holding: Holding, action: str, id_: str):
    """Whatever else it does."""
    caller = await holding.come(by(REREADS))
    await holding.world.gate.change(SCOPE, lambda state: state)
    doing = holding.skill("activate", "one", caller)
    await settle()
    await holding.world.names(caller)
    await doing.outcome()

    answer = await holding.world.skill(action, id_, caller)

    assert "skill" in text_of(answer)
    assert (await holding.evidence(caller)).missed_reads == 0


async def test_with_lists_that_never_change_nothing_is_held(hold: Callable[[float], None]):
    """There is nothing to read again, and SKILL_CALL for everybody."""
    streams = Streams()
    async with acting(*SKILLS, settings=Settings(listing="stable"), notifier=streams) as world:
        channel = Channel()
        caller = await Holding(world, streams).come(by(REREADS, channel=channel))
        assert await world.names(caller) == ["SKILL", "SKILL_CALL"]

        answer = await world.skill("activate", "one", caller)

        assert schemas_told(answer).keys() == {"desk__one"}
        assert "SKILL_CALL(" in text_of(answer)
        assert (channel.sent, streams.told) == ([], [])
        assert await world.names(caller) == ["SKILL", "SKILL_CALL"]


@pytest.mark.parametrize("era", ERAS)
async def test_clients_known_not_to_read_again_are_not_held(holding: Holding, era: Era):
    """Their results come at once, with schemas and the other way to call."""
    caller = await holding.come(by(DOES_NOT, era))

    answer = await holding.world.skill("activate", "one", caller)

    assert schemas_told(answer).keys() == {"desk__one"}
    assert "SKILL_CALL(" in text_of(answer)
    assert await holding.evidence(caller) == Evidence()


@pytest.mark.parametrize("name", [REREADS, UNKNOWN])
async def test_a_modern_client_without_a_stream_is_not_held(holding: Holding, name: str):
    """It hears of nothing; another one's stream in its scope is not its own."""
    await holding.come(by("listener", "modern"))
    caller = by(name, "modern")

    answer = await holding.world.skill("activate", "one", caller)

    assert schemas_told(answer).keys() == {"desk__one"}
    assert (await holding.world.names(caller))[:2] == ["SKILL", "SKILL_CALL"]


# --- several at a time -----------------------------------------------------------------------------------------------


async def test_two_changes_at_a_time_are_each_held_for_its_own_list(holding: Holding):
    """A read between the two ends the first one's; one after both ends both."""
    caller = await holding.come(by(REREADS))
    first = holding.skill("activate", "one", caller)
    await settle()
    second = holding.skill("activate", "two", caller)
    third = holding.skill("offload", "one", caller)
    await settle()
    assert not any(each.done for each in (first, second, third))

    assert await holding.world.names(caller) == ["SKILL", "desk__two"]

    answers = [await each.outcome() for each in (first, second, third)]
    assert [current_skills(answer) for answer in answers[1:]] == [["two"], ["two"]]
    assert holding.quiet


async def test_a_read_between_two_changes_is_none_for_the_second(holding: Holding):
    """Which is held for the next one."""
    caller = await holding.come(by(REREADS))
    first = holding.skill("activate", "one", caller)
    await settle()
    await holding.world.names(caller)
    second = holding.skill("activate", "two", caller)
    assert tools_told(await first.outcome()) == ["desk__one"]
    await settle()
    assert not second.done
    await holding.world.names(caller)
    assert tools_told(await second.outcome()) == ["desk__two"]


async def test_a_client_that_lists_all_the_time_gets_its_result(holding: Holding):
    """As soon as one of its lists has what has changed; it is no more than a client that reads again."""
    caller = await holding.come(by(UNKNOWN))
    lists: list[list[str]] = []

    async def list_on() -> None:
        while True:
            lists.append(await holding.world.names(caller))
            await anyio.lowlevel.checkpoint()

    listing = Doing(holding.world.tasks, list_on)
    for action, id_ in (("activate", "one"), ("activate", "two"), ("offload", "one")):
        answer = await holding.skill(action, id_, caller).outcome()
        assert id_ in text_of(answer)
    await listing.give_up()
    assert lists[0] == ["SKILL", "SKILL_CALL"]
    assert lists[-1] == ["SKILL", "SKILL_CALL", "desk__two"]
    assert (await holding.evidence(caller)).missed_reads == 0
    assert holding.quiet


@pytest.mark.parametrize("others", ["another connection", "another scope", "the same client"])
async def test_nobody_else_waits_while_a_result_is_held(holding: Holding, others: str):
    """Neither for a list, nor for a tool, nor for a change of their own."""
    caller = await holding.come(by(REREADS))
    held = holding.skill("activate", "one", caller)
    await settle()
    scope = OTHER if others == "another scope" else SCOPE
    who = await holding.come(by(DOES_NOT, scope=scope, connection="another"))
    if others != "the same client":
        assert "SKILL_CALL" in await holding.world.names(who)
        assert tools_told(await holding.world.skill("activate", "two", who)) == ["desk__two"]
        await holding.world.ask("desk__two", {}, who)
        await holding.world.skill("offload", "two", who)
    else:
        await holding.world.ask("desk__one", {}, caller)
        assert "Do two." in text_of(await holding.world.skill("read", "two", caller))
    assert not held.done
    await holding.world.names(caller)
    assert tools_told(await held.outcome()) == ["desk__one"]


# --- what becomes of the request -------------------------------------------------------------------------------------


async def test_a_request_that_is_cancelled_while_it_is_held_leaves_the_skill_active(holding: Holding):
    """One notice has gone out, and no other; nothing is learned of the client, and nothing is left behind."""
    channel = Channel()
    caller = await holding.come(by(REREADS, channel=channel))
    doing = holding.skill("activate", "one", caller)
    await settle()
    told = list(holding.streams.told)

    await doing.give_up()

    await settle()
    assert await holding.world.active() == ("one",)
    assert channel.sent == ["tools"]
    assert holding.streams.told == told
    known = await holding.evidence(caller)
    assert (known.rereads_in_time, known.missed_reads) == (False, 0)
    assert holding.quiet
    assert await holding.world.names(caller) == ["SKILL", "desk__one"]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("all_of_them", [True, False])
async def test_a_client_that_leaves_while_it_is_held_is_not_waited_for(
    holding: Holding, action: str, all_of_them: bool
):
    """Its connection is gone, or the proxy's input has ended: the change stands, and nothing is learned from it."""
    caller = await holding.come(by(REREADS))
    if action == "offload":
        await holding.world.skill("activate", "one", by(DOES_NOT))
    doing = holding.skill(action, "one", caller)
    await settle()
    assert not doing.done
    if all_of_them:
        holding.world.wired.reads.give_up_all()
    else:
        holding.world.wired.reads.give_up(SCOPE, caller.key)
    assert f"skill one {action}" in text_of(await doing.outcome())
    known = await holding.evidence(caller)
    assert (known.rereads_in_time, known.missed_reads) == (False, 0)
    assert holding.quiet


async def test_the_hold_of_one_client_does_not_end_with_another(holding: Holding):
    """Though it leaves the same scope."""
    caller = await holding.come(by(REREADS))
    doing = holding.skill("activate", "one", caller)
    await settle()
    holding.world.wired.reads.give_up(SCOPE, "another")
    holding.world.wired.reads.give_up(OTHER, caller.key)
    await settle()
    assert not doing.done
    await holding.world.names(caller)
    await doing.outcome()


# --- what is learned -------------------------------------------------------------------------------------------------


async def test_an_unknown_client_that_does_not_read_in_time_is_not_held_again(
    holding: Holding, hold: Callable[..., None]
):
    """One result in vain is enough."""
    caller = await holding.come(by(UNKNOWN))
    hold(LONG, SHORT)
    answer = await holding.world.skill("activate", "one", caller)
    assert schemas_told(answer).keys() == {"desk__one"}
    assert (await holding.evidence(caller)).missed_reads == 1

    hold(LONG)
    answer = await holding.world.skill("activate", "two", caller)

    assert schemas_told(answer).keys() == {"desk__two"}
    assert (await holding.evidence(caller)).missed_reads == 1


async def test_a_client_known_by_name_is_held_twice_in_vain_at_most(holding: Holding, hold: Callable[..., None]):
    """Then it counts as late, and gets SKILL_CALL: it is told of that once its list has it."""
    caller = await holding.come(by(REREADS))
    assert await holding.world.names(caller) == ["SKILL"]
    hold(SHORT, LONG)
    for id_ in ("one", "two"):
        answer = await holding.world.skill("activate", id_, caller)
        assert schemas_told(answer).keys() == {f"desk__{id_}"}
    assert (await holding.evidence(caller)).missed_reads == 2

    hold(LONG, SHORT)
    answer = await holding.world.skill("activate", "three", caller)

    assert "SKILL_CALL(" not in text_of(answer)
    assert (await holding.evidence(caller)).missed_reads == 3
    assert (await holding.world.names(caller))[:2] == ["SKILL", "SKILL_CALL"]
    await holding.world.skill("offload", "three", caller)
    answer = await holding.world.skill("activate", "three", caller)
    assert "SKILL_CALL(" in text_of(answer)


async def test_a_client_that_reads_again_once_it_has_the_result_is_held_once(
    holding: Holding, hold: Callable[..., None]
):
    """It does so before its model goes on, whenever the result comes: nothing is held for it, or shown besides."""
    caller = await holding.come(by(REREADS))
    hold(SHORT, LONG)
    await holding.world.skill("activate", "one", caller)
    await settle()
    assert await holding.world.names(caller) == ["SKILL", "desk__one"]
    await settle()
    assert (await holding.evidence(caller)).rereads_after_result

    hold(LONG, SHORT)
    for id_ in ("two", "three"):
        await holding.world.skill("activate", id_, caller)
        assert "SKILL_CALL" not in await holding.world.names(caller)
        await settle()
    assert (await holding.evidence(caller)).rereads_after_result


async def test_a_client_that_was_slow_once_is_held_as_before_when_it_reads_in_time(
    holding: Holding, hold: Callable[..., None]
):
    """A read that came a little later than the result may have been meant for the notice."""
    caller = await holding.come(by(REREADS))
    hold(SHORT, LONG)
    await holding.world.skill("activate", "one", caller)
    await settle()
    await holding.world.names(caller)
    await settle()
    assert (await holding.evidence(caller)).rereads_after_result

    for number, id_ in enumerate(("two", "three")):
        hold(SHORT if number == 0 else LONG, LONG if number == 0 else SHORT)
        doing = holding.skill("activate", id_, caller)
        await settle()
        assert not doing.done
        await holding.world.names(caller)
        await doing.outcome()
    assert await holding.evidence(caller) == Evidence(rereads_in_time=True)


async def test_a_client_that_reads_neither_in_time_nor_after_the_result_counts_as_late(
    holding: Holding, hold: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    """Though it once read its list right after a result."""
    caller = await holding.come(by(REREADS))
    hold(SHORT)
    doing = holding.skill("activate", "one", caller)
    await doing.outcome()
    await holding.world.names(caller)
    await settle()
    assert (await holding.evidence(caller)).rereads_after_result

    monkeypatch.setattr(announcing, "AFTER_RESULT_S", SHORT)
    await holding.world.skill("activate", "two", caller)
    await anyio.sleep(2 * SHORT)
    await settle()

    assert await holding.evidence(caller) == Evidence(missed_reads=2)
    assert "SKILL_CALL" in await holding.world.names(caller)


@pytest.mark.parametrize("all_of_it", [True, False])
async def test_a_client_that_leaves_with_its_result_shows_nothing(
    holding: Holding, hold: Callable[..., None], all_of_it: bool
):
    """It can read no list then; and its scope is not begun again for what it did not do."""
    caller = await holding.come(by(REREADS))
    hold(SHORT)
    await holding.world.skill("activate", "one", caller)
    await settle()
    if all_of_it:
        await holding.world.gate.store.remove(SCOPE)
    holding.world.wired.reads.give_up(SCOPE, caller.key)
    await settle()
    if all_of_it:
        assert await holding.world.gate.store.get(SCOPE) is None
    else:
        assert await holding.evidence(caller) == Evidence(missed_reads=1)
    assert holding.quiet


async def test_a_client_that_only_reads_much_later_is_no_such_one(
    holding: Holding, hold: Callable[..., None], monkeypatch: pytest.MonkeyPatch
):
    """With its user's next message, perhaps."""
    monkeypatch.setattr(announcing, "AFTER_RESULT_S", SHORT)
    caller = await holding.come(by(REREADS))
    hold(SHORT, LONG)
    await holding.world.skill("activate", "one", caller)
    await anyio.sleep(2 * SHORT)
    await settle()
    await holding.world.names(caller)
    await settle()
    assert not (await holding.evidence(caller)).rereads_after_result


@pytest.mark.parametrize("era", ERAS)
async def test_an_unknown_client_that_reads_in_time_is_known_from_then_on(
    holding: Holding, hold: Callable[..., None], era: Era
):
    """It is held as long as those known by name; what it has been shown stays in its list."""
    caller = await holding.come(by(UNKNOWN, era))
    hold(SHORT, LONG)
    doing = holding.skill("activate", "one", caller)
    await settle()
    assert await holding.world.names(caller) == ["SKILL", "SKILL_CALL", "desk__one"]
    answer = await doing.outcome()
    assert text_of(answer).endswith("Tools you can use now:\n- desk__one")
    assert (await holding.evidence(caller)).rereads_in_time

    hold(LONG, SHORT)
    doing = holding.skill("activate", "two", caller)
    await settle()
    assert not doing.done
    assert await holding.world.names(caller) == ["SKILL", "SKILL_CALL", "desk__one", "desk__two"]
    await doing.outcome()


async def test_a_modern_client_that_has_shown_it_needs_a_stream_all_the_same(holding: Holding):
    """What it did while it heard of changes says nothing of what it does where it does not."""
    caller = await holding.come(by(UNKNOWN, "modern"))
    doing = holding.skill("activate", "one", caller)
    await settle()
    await holding.world.names(caller)
    await doing.outcome()
    holding.streams.listening.clear()

    answer = await holding.world.skill("activate", "two", caller)

    assert schemas_told(answer).keys() == {"desk__two"}


@pytest.mark.parametrize("name", [REREADS, UNKNOWN, DOES_NOT])
async def test_who_has_not_read_its_list_since_has_schemas_whatever_it_did_before(
    holding: Holding, hold: Callable[..., None], name: str
):
    """A client that reads its list with each message of its user calls tools directly, and still has the old one."""
    hold(SHORT)
    caller = await holding.come(by(name))
    await holding.world.skill("activate", "one", caller)
    await holding.world.names(caller)
    await holding.world.ask("desk__one", {}, caller)

    answer = await holding.world.skill("activate", "two", caller)

    assert schemas_told(answer).keys() == {"desk__two"}


# --- SKILL_CALL ------------------------------------------------------------------------------------------------------


async def test_what_a_modern_client_was_shown_stays_when_it_opens_a_stream(holding: Holding):
    """It listed before it listened: its list does not flap. Another version of it begins anew."""
    caller = by(REREADS, "modern")
    assert await holding.world.names(caller) == ["SKILL", "SKILL_CALL"]
    await holding.come(caller)
    assert await holding.world.names(caller) == ["SKILL", "SKILL_CALL"]
    doing = holding.skill("activate", "one", caller)
    await settle()
    assert not doing.done  # it is known to read again all the same
    await holding.world.names(caller)
    await doing.outcome()
    result = await holding.world.ask("SKILL_CALL", {"tool": "desk__one", "arguments": {"n": 1}}, caller)
    assert result["structuredContent"] == {"n": 1}

    newer = await holding.come(by(REREADS, "modern", version="2"))
    assert await holding.world.names(newer) == ["SKILL", "desk__one"]


async def test_a_connection_that_comes_back_begins_anew(holding: Holding):
    """What another connection of the same client was shown says nothing of it."""
    first = await holding.come(by(DOES_NOT))
    assert await holding.world.names(first) == ["SKILL", "SKILL_CALL"]
    second = await holding.come(by(REREADS, connection="second"))
    assert await holding.world.names(second) == ["SKILL"]
