"""What skills do when they begin and end, from the use case's side: order, failures, and who waits for whom."""

from dataclasses import replace
from functools import partial
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from proxy.core.catalogue import Allow, Skill
from proxy.core.scope import ScopeId
from proxy.core.steps import Call, Parallel
from proxy.gateway import hooks
from tests.answers import current_skills
from tests.gateway.acting import OTHER, Doing, World, acting, call, client, failure, settle, skill, steps, text_of
from tests.gateway.world import SCOPE, Channel

pytestmark = pytest.mark.anyio

KNOWN = {"event": "{{ event }}", "heap": "{{ heap }}"}
CASE = skill(
    "case",
    on_activate=[call("begin", save_as="case", arguments={"id": 7}), call("two", arguments=KNOWN)],
    on_offload=[call("end", arguments={"id": "{{ heap.case.id }}", "event": "{{ event }}"})],
)


def named(id_: str, **more: Any) -> Skill:
    """A skill whose hooks call `begin` and `end` with its id; it grants nothing."""
    return skill(
        id_,
        on_activate=[call("begin", arguments={"of": id_})],
        on_offload=[call("end", arguments={"of": id_, "reason": "{{ event.reason }}"})],
        **{"tools": {}, **more},
    )


def ends(world: World) -> list[str]:
    """The skills that have ended, in order."""
    return [arguments["of"] for tool, arguments in world.desk.called if tool == "end"]


def begins(world: World) -> list[str]:
    """The skills that have begun, in order."""
    return [arguments["of"] for tool, arguments in world.desk.called if tool == "begin"]


# --- beginning -------------------------------------------------------------------------------------------------------


async def test_hooks_run_in_order_before_the_answer_and_know_the_occasion():
    """What they save is there for the next step, and for the end."""
    async with acting(CASE) as world:
        answer = await world.skill("activate", "case")
        assert current_skills(answer) == ["case"]
        activate = {"name": "activate", "skill": "case", "reason": "client"}
        heap = {"case": {"id": 7}}
        assert world.desk.called == [("begin", {"id": 7}), ("two", {"event": activate, "heap": heap})]
        assert (await world.state()).heap == heap

        assert text_of(await world.skill("offload", "case")) == "skill case offloaded, current skills: []"
        assert world.desk.called[2:] == [("end", {"id": 7, "event": {**activate, "name": "offload"}})]
        assert world.quiet


async def test_who_is_active_does_not_begin_again():
    async with acting(CASE) as world:
        await world.skill("activate", "case")
        assert "already activated" in text_of(await world.skill("activate", "case"))
        assert world.desk.tools == ["begin", "two"]


async def test_while_it_begins_nothing_is_granted_and_no_notice_goes_out():
    """Neither to who activates it, nor to another client of the scope; then to all."""
    async with acting(CASE) as world:
        go_on, channel, other = world.desk.holds("two"), Channel(), client(connection="other")
        activation = Doing(world.tasks, partial(world.skill, "activate", "case", client(channel)))
        await settle()

        assert world.desk.tools == ["begin", "two"]
        for by in (client(), other):
            assert "desk__granted" not in await world.names(by)
            assert "is not active" in text_of(await world.ask("desk__granted", by=by))
        assert channel.sent == []

        go_on.set()
        await activation.outcome()
        assert channel.sent == ["tools"]
        assert "desk__granted" in await world.names(other)
        assert not (await world.ask("desk__granted", by=other)).get("isError")


async def test_while_it_ends_nothing_is_granted_any_more():
    """From the moment of the change; the notice goes out when it has ended."""
    async with acting(CASE) as world:
        await world.skill("activate", "case")
        go_on, channel = world.desk.holds("end"), Channel()
        offloading = Doing(world.tasks, partial(world.skill, "offload", "case", client(channel)))
        await settle()

        assert "desk__granted" not in await world.names()
        assert (await world.ask("desk__granted")).get("isError")
        assert not offloading.done
        go_on.set()
        await offloading.outcome()
        assert "granted" not in world.desk.tools
        assert channel.sent == ["tools"]


async def test_a_step_that_fails_makes_the_activation_fail_as_a_whole():
    """The answer says which step, where, why, and what had run; there is no end of what has not begun."""
    async with acting(CASE) as world:
        world.desk.fails("two", "no room")
        answer = await world.skill("activate", "case")

        assert answer["isError"]
        assert text_of(answer) == (
            "skill case not activated, current skills: []\n"
            "Its on_activate hook failed: step two (on_activate[1], desk/two) failed: no room. "
            "Completed, and not undone: begin. Failed: two."
        )
        assert await world.active() == ()
        await world.skill("offload", "case")
        assert "end" not in world.desk.tools

        del world.desk.does["two"]
        assert not (await world.skill("activate", "case")).get("isError")


async def test_a_step_that_lets_the_others_go_on_fails_no_activation():
    careless = skill("case", on_activate=[call("one", on_error="continue"), call("two")])
    async with acting(careless) as world:
        world.desk.fails("one")
        assert not (await world.skill("activate", "case")).get("isError")
        assert world.desk.tools == ["one", "two"]
        assert await world.active() == ("case",)


async def test_what_is_required_begins_first_and_ends_last():
    """In one change; where the second fails, nothing is active and what had run is said."""
    async with acting(named("base"), named("top", requires=("base",))) as world:
        await world.skill("activate", "top")
        assert begins(world) == ["base", "top"]
        await world.skill("offload", "top")
        assert ends(world) == ["top", "base"]

    failing = skill("top", requires=("base",), on_activate=[call("two")])
    async with acting(named("base"), failing) as world:
        world.desk.fails("two")
        answer = await world.skill("activate", "top")
        assert text_of(answer).endswith(" Completed, and not undone: begin. Failed: two.")
        assert await world.active() == ()

        world.desk.fails("begin")
        assert "hook of skill base, which it requires, failed" in text_of(await world.skill("activate", "top"))


async def test_a_hook_that_takes_too_long_is_cancelled_at_its_server():
    """All its steps together have that time."""
    slow = skill("case", on_activate=[call("one"), call("two")], hook_timeout=0.05)
    async with acting(slow) as world:
        world.desk.holds("two")
        answer = await world.skill("activate", "case")
        assert world.desk.cancelled == ["two"]
        assert "step two (on_activate[1], desk/two) failed: all steps together have 0.05 s" in text_of(answer)
        assert await world.active() == ()
        assert world.quiet


async def test_two_activations_at_a_time_begin_it_once():
    async with acting(CASE) as world:
        go_on = world.desk.holds("begin")
        both = [Doing(world.tasks, partial(world.skill, "activate", "case")) for _ in range(2)]
        await settle()
        go_on.set()
        texts = [text_of(await one.outcome()) for one in both]
        assert world.desk.tools == ["begin", "two"]
        assert ["already activated" in text for text in texts] == [False, True]
        assert world.quiet


async def test_an_activation_that_is_given_up_has_neither_begun_nor_an_end():
    """Who waits for it goes on, and begins it."""
    async with acting(CASE) as world:
        go_on = world.desk.holds("begin")
        first = Doing(world.tasks, partial(world.skill, "activate", "case"))
        await settle()
        second = Doing(world.tasks, partial(world.skill, "activate", "case"))
        third = Doing(world.tasks, partial(world.skill, "offload", "case"))
        await settle()
        await first.give_up()
        assert world.desk.cancelled == ["begin"]
        await third.give_up()
        go_on.set()
        assert not (await second.outcome()).get("isError")
        assert world.desk.tools == ["begin", "begin", "two"]
        assert await world.active() == ("case",)
        assert world.quiet


async def test_a_scope_waits_for_no_other():
    async with acting(CASE) as world:
        world.desk.holds("begin")
        Doing(world.tasks, partial(world.skill, "activate", "case"))
        await settle()
        del world.desk.does["begin"]
        await world.skill("activate", "case", client(scope=OTHER))
        assert await world.active(OTHER) == ("case",)
        assert await world.active() == ()
        assert (await world.state()).heap == {}


async def test_what_is_required_and_has_ended_meanwhile_begins_again():
    """It was active when the activation began, and idled out while another hook ran: once it has ended."""
    top = skill("top", requires=("base",), on_activate=[call("two")])
    async with acting(named("base", idle_limit=60.0), top) as world:
        await world.skill("activate", "base")
        go_on, end = world.desk.holds("two"), world.desk.holds("end")
        activation = Doing(world.tasks, partial(world.skill, "activate", "top"))
        await settle()
        world.now[0] = 100.0
        await world.wired.idling.sweep(_nobody)
        assert await world.active() == ()
        go_on.set()
        await settle()
        assert (begins(world), ends(world)) == (["base"], ["base"])
        end.set()
        assert not (await activation.outcome()).get("isError")

        assert await world.active() == ("base", "top")
        assert (begins(world), ends(world)) == (["base", "base"], ["base"])
        assert world.desk.tools == ["begin", "two", "end", "begin"]


async def test_what_is_pinned_while_it_begins_has_begun():
    """The configuration makes it active and due meanwhile: it is not begun a second time."""
    async with acting(named("case")) as world:
        go_on = world.desk.holds("begin")
        activation = Doing(world.tasks, partial(world.skill, "activate", "case"))
        await settle()
        await world.becomes(named("case", pinned=True))
        go_on.set()
        await activation.outcome()
        await world.skill("list", "")
        assert begins(world) == ["case"]
        assert (await world.state()).due == frozenset()


async def test_who_activates_what_has_yet_to_begin_begins_it():
    """It was pinned while the activation waited for another change."""
    async with acting(named("case"), CASE_OF_TWO) as world:
        go_on = world.desk.holds("two")
        first = Doing(world.tasks, partial(world.skill, "activate", "other"))
        await settle()
        second = Doing(world.tasks, partial(world.skill, "activate", "case"))
        await settle()
        await world.becomes(named("case", pinned=True), CASE_OF_TWO)
        assert (await world.state()).due == {"case"}
        go_on.set()
        await first.outcome()
        await second.outcome()
        assert begins(world) == ["case"]
        assert (await world.state()).due == frozenset()


CASE_OF_TWO = skill("other", on_activate=[call("two")], tools={})


async def test_what_has_been_removed_while_it_began_is_not_active():
    """And has no end; where something is in its way by now, that is said."""
    async with acting(CASE, named("rival")) as world:
        go_on = world.desk.holds("two")
        activation = Doing(world.tasks, partial(world.skill, "activate", "case"))
        await settle()
        await world.becomes(named("rival"))
        go_on.set()
        assert (await activation.outcome())["isError"]
        assert await world.active() == ()

    async with acting(CASE, named("rival")) as world:
        go_on = world.desk.holds("two")
        activation = Doing(world.tasks, partial(world.skill, "activate", "case"))
        await settle()
        await world.becomes(CASE, named("rival", pinned=True, conflicts=("case",)))
        go_on.set()
        assert "rival" in text_of(await activation.outcome())
        assert await world.active() == ("rival",)
        assert "end" not in world.desk.tools


# --- ending ----------------------------------------------------------------------------------------------------------


async def test_a_failing_end_never_keeps_a_skill_active():
    """The answer says what failed, and the log too."""
    async with acting(CASE) as world:
        await world.skill("activate", "case")
        world.desk.fails("end", "no pen")
        with capture_logs() as logs:
            answer = await world.skill("offload", "case")
        assert not answer.get("isError")
        why = "step end (on_offload[0], desk/end) failed: no pen."
        assert f"skill case is offloaded, but its on_offload hook failed: {why}" in text_of(answer)
        assert await world.active() == ()
        told = [entry for entry in logs if entry["event"] == "hook.failed"]
        assert [(entry["hook"], entry["skill"], entry["step"]) for entry in told] == [("offload", "case", "end")]


async def test_an_end_that_is_given_up_is_not_run_a_second_time():
    """The skill is offloaded all the same."""
    async with acting(CASE) as world:
        await world.skill("activate", "case")
        world.desk.holds("end")
        offloading = Doing(world.tasks, partial(world.skill, "offload", "case"))
        await settle()
        await offloading.give_up()
        assert await world.active() == ()
        await world.skill("offload", "case")
        assert world.desk.tools.count("end") == 1
        assert world.quiet


@pytest.mark.parametrize("way", [("offload", "top"), ("activate", "alone")])
async def test_what_ends_with_others_ends_also_when_the_request_is_given_up(way: tuple[str, str]):
    """While the first of them ended; whoever comes next waits for that."""
    alone = named("alone", conflicts=("top", "base"), exclusive=True)
    async with acting(named("base"), named("top", requires=("base",)), alone, named("next")) as world:
        await world.skill("activate", "top")
        go_on = world.desk.holds("end")
        change = Doing(world.tasks, partial(world.skill, *way))
        await settle()
        await change.give_up()
        await settle()
        assert ends(world) == ["top", "base"]
        again = Doing(world.tasks, partial(world.skill, "activate", "next"))
        await settle()
        assert "next" not in begins(world)
        go_on.set()
        await again.outcome()
        assert world.desk.called[-1] == ("begin", {"of": "next"})
        assert world.quiet


# --- a skill that takes the place of others --------------------------------------------------------------------------

OLD = skill("old", on_activate=[call("begin")], on_offload=[call("end", save_as="left", arguments={"n": 5})])


def new(**more: Any) -> Skill:
    """A skill that takes the place of `old`, and whose entry reads what that has left."""
    entry = [call("two", arguments={"left": "{{ heap.left.n }}"})]
    return skill("new", conflicts=("old",), exclusive=True, on_activate=entry, tools={}, **more)


async def test_what_an_exclusive_skill_replaces_ends_first():
    """What it saves is there for the new one; the client has one notice of it all."""
    channel = Channel()
    async with acting(OLD, new()) as world:
        await world.skill("activate", "old")
        answer = await world.skill("activate", "new", client(channel))
        assert current_skills(answer) == ["new"]
        assert "Offloaded, since they cannot be active beside it: old." in text_of(answer)
        assert world.desk.called == [("begin", {}), ("end", {"n": 5}), ("two", {"left": 5})]
        assert channel.sent == ["tools"]


async def test_where_the_new_one_cannot_begin_the_old_one_stays_off_and_that_is_told():
    """As after an offload; the next activation has nothing more to end."""
    channel = Channel()
    async with acting(OLD, new()) as world:
        await world.skill("activate", "old")
        world.desk.fails("two", "no room")
        answer = await world.skill("activate", "new", client(channel))
        assert answer["isError"]
        assert "skill new not activated, current skills: []" in text_of(answer)
        assert text_of(answer).endswith("Offloaded before that, to make room for skill new: old.")
        assert channel.sent == ["tools"]
        assert await world.active() == ()
        del world.desk.does["two"]
        assert current_skills(await world.skill("activate", "new")) == ["new"]
        assert world.desk.tools.count("end") == 1
        assert world.quiet


async def test_an_old_one_whose_end_fails_is_off_and_the_new_one_begins():
    """As with an offload, it is told."""
    async with acting(OLD, skill("new", conflicts=("old",), exclusive=True, on_activate=[call("two")])) as world:
        await world.skill("activate", "old")
        world.desk.fails("end", "no pen")
        answer = await world.skill("activate", "new")
        assert current_skills(answer) == ["new"]
        assert "skill old is offloaded, but its on_offload hook failed" in text_of(answer)
        await world.skill("offload", "new")
        await world.skill("activate", "old")
        world.desk.fails("two", "no room")
        answer = await world.skill("activate", "new")
        assert "Its on_activate hook failed" in text_of(answer)
        assert "skill old is offloaded, but its on_offload hook failed" in text_of(answer)


@pytest.mark.parametrize("moment", ["end", "two"])
async def test_a_change_that_is_given_up_leaves_the_old_one_off(moment: str):
    """While that ends, or the new one begins; the end of the old one is not run a second time."""
    async with acting(OLD, new()) as world:
        await world.skill("activate", "old")
        world.desk.holds(moment)
        change = Doing(world.tasks, partial(world.skill, "activate", "new"))
        await settle()
        await change.give_up()
        await settle()
        assert await world.active() == ()
        assert world.desk.tools.count("end") == 1
        assert world.quiet


async def test_what_the_old_one_required_stays_where_the_new_one_requires_it_too():
    """Unless the new one cannot begin: then nobody requires it any more, and it ends as well."""
    skills = (
        named("base"),
        named("old", requires=("base",)),
        named("new", requires=("base",), conflicts=("old",), exclusive=True),
    )
    async with acting(*skills) as world:
        await world.skill("activate", "old")
        await world.skill("activate", "new")
        assert (await world.active(), ends(world), begins(world)) == (("base", "new"), ["old"], ["base", "old", "new"])
        await world.skill("offload", "new")
        await world.skill("activate", "old")
        world.desk.called.clear()
        world.desk.fails("begin")
        answer = await world.skill("activate", "new")
        await settle()
        assert text_of(answer).endswith("to make room for skill new: old, base.")
        assert (await world.active(), ends(world)) == ((), ["old", "base"])
        assert world.quiet


async def test_a_skill_that_may_not_be_replaced_is_not_ended():
    """It is pinned: nothing runs, and nothing changes."""
    async with acting(replace(OLD, pinned=True), new()) as world:
        await world.skill("activate", "new")
        called = len(world.desk.called)
        answer = await world.skill("activate", "new")
        assert "skill new would take the place of old, which has to stay active" in text_of(answer)
        assert len(world.desk.called) == called
        assert "end" not in world.desk.tools


async def test_a_new_one_that_is_gone_by_the_time_the_old_one_has_ended_is_not_found():
    """The configuration changed meanwhile."""
    async with acting(OLD, new()) as world:
        await world.skill("activate", "old")
        go_on = world.desk.holds("end")
        change = Doing(world.tasks, partial(world.skill, "activate", "new"))
        await settle()
        await world.becomes(OLD)
        go_on.set()
        assert "skill not found: 'new'" in text_of(await change.outcome())
        assert await world.active() == ()


async def test_a_new_one_that_is_in_conflict_by_then_says_what_it_has_ended():
    async with acting(OLD, new(), skill("other", tools={})) as world:
        for one in ("old", "other"):
            await world.skill("activate", one)
        go_on = world.desk.holds("end")
        change = Doing(world.tasks, partial(world.skill, "activate", "new"))
        await settle()
        await world.becomes(OLD, replace(new(), conflicts=("other",), exclusive=False), skill("other", tools={}))
        go_on.set()
        told = text_of(await change.outcome())
        assert "skill new cannot be active beside other" in told
        assert told.endswith("Offloaded before that, to make room for skill new: old.")


async def _nobody(_scope: ScopeId) -> None: ...


async def test_what_idles_out_or_is_removed_ends_with_the_reason():
    """By what the configuration said of it; the next change waits until it has."""
    async with acting(named("idle", idle_limit=60.0), named("gone")) as world:
        await world.skill("activate", "idle")
        await world.skill("activate", "gone")
        world.now[0] = 61.0
        await world.wired.idling.sweep(_nobody)
        go_on = world.desk.holds("end")
        await settle()
        await world.becomes(named("idle", idle_limit=60.0))
        again = Doing(world.tasks, partial(world.skill, "activate", "idle"))
        await settle()
        reasons = [arguments["reason"] for tool, arguments in world.desk.called if tool == "end"]
        assert (ends(world), reasons) == (["idle"], ["idle"])
        assert not again.done
        go_on.set()
        await again.outcome()
        reasons = [arguments["reason"] for tool, arguments in world.desk.called if tool == "end"]
        assert (ends(world), reasons) == (["idle", "gone"], ["idle", "removed"])
        assert world.quiet


async def test_what_was_removed_ends_without_what_is_denied_by_now():
    """It has its own grants, under the deny list in force."""
    case = skill("case", on_activate=[call("begin")], on_offload=[call("one", on_error="continue"), call("two")])
    async with acting(case) as world:
        await world.skill("activate", "case")
        await world.becomes(denied={"desk": Allow.of(["one"])})
        await settle()
        assert world.desk.tools == ["begin", "two"]


# --- the end of a scope, and of the proxy ----------------------------------------------------------------------------


async def test_with_a_scope_all_that_is_active_in_it_ends_and_then_its_servers():
    """With what was on the heap, in the reverse order; the scope is not begun again for that."""
    case = replace(CASE, idle_limit=600.0)  # a skill with a limit makes the proxy ask what is in use
    async with acting(case, named("base")) as world:
        await world.skill("activate", "case")
        await world.skill("activate", "base")
        go_on = world.desk.holds("end")
        released = await world.ends()
        await settle()
        assert released == []
        go_on.set()
        await settle()
        assert released == ["released"]
        assert [told.get("of", told.get("id")) for tool, told in world.desk.called if tool == "end"] == ["base", 7]
        assert world.desk.called[-1][1]["event"]["reason"] == "scope_ended"
        assert await world.gate.store.get(SCOPE) is None
        assert world.quiet


async def test_a_skill_that_runs_as_a_scope_ends_knows_what_was_on_the_heap():
    """And begins the scope no more than any other step."""
    closing = skill("closing", call("two", arguments={"case": "{{ heap.case }}"}), runs={"needs_activation": True})
    filing = skill("filing", call("two", arguments={"case": "{{ heap.case }}"}))
    invoked = [
        Call("", "closing", skill="closing", on_error="continue"),
        Call("", "filing", skill="filing"),
    ]
    case = skill("case", on_activate=[call("begin", save_as="case", arguments={"id": 7})], on_offload=invoked)
    async with acting(case, closing, filing) as world:
        await world.skill("activate", "case")
        released = await world.ends()
        await settle()
        assert world.desk.called == [("begin", {"id": 7}), ("two", {"case": {"id": 7}})]
        assert released == ["released"]
        assert await world.gate.store.get(SCOPE) is None


async def test_the_servers_of_a_scope_are_let_go_when_all_in_it_has_ended():
    """Also what has ended by itself a moment before; and with nothing to end, at once."""
    async with acting(named("idle", idle_limit=60.0)) as world:
        await world.skill("activate", "idle")
        go_on = world.desk.holds("end")
        world.now[0] = 61.0
        await world.wired.idling.sweep(_nobody)
        await settle()
        released = await world.ends()
        await settle()
        assert released == []
        go_on.set()
        await settle()
        assert released == ["released"]
        assert await world.ends() == ["released"]


async def test_a_scope_that_is_back_keeps_its_servers_and_waits_for_its_end():
    """What it knew before is not there any more."""
    async with acting(CASE) as world:
        await world.skill("activate", "case")
        go_on = world.desk.holds("end")
        released = await world.ends()
        again = Doing(world.tasks, partial(world.skill, "activate", "case"))
        await settle()
        assert world.desk.tools == ["begin", "two", "end"]
        assert (await world.state()).heap == {}
        go_on.set()
        await again.outcome()
        assert world.desk.tools == ["begin", "two", "end", "begin", "two"]
        assert released == []


async def test_at_the_end_of_the_proxy_all_scopes_end_side_by_side():
    """What hangs does not hold it up for longer than its time; a scope that is kept goes on in the next run."""
    async with acting(named("case")) as world:
        for scope in (SCOPE, OTHER):
            await world.skill("activate", "case", client(scope=scope))
        both = anyio.Event()

        async def meets(_arguments, _caller):
            if ends(world) == ["case", "case"]:
                both.set()
            await both.wait()
            return {}

        world.desk.does["end"] = meets
        await world.wired.hooks.shut_down()
        assert both.is_set()
        assert world.quiet


async def test_what_hangs_does_not_hold_up_the_end_of_the_proxy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hooks, "AT_THE_END", 0.05)
    async with acting(named("case")) as world:
        await world.skill("activate", "case")
        world.desk.holds("end")
        await world.wired.hooks.shut_down()
        assert ends(world) == ["case"]


async def test_what_is_kept_does_not_end_with_the_proxy(monkeypatch: pytest.MonkeyPatch):
    async with acting(named("case")) as world:
        await world.skill("activate", "case")
        monkeypatch.setattr(world.gate.store, "keeps", lambda _scope: True)
        await world.wired.hooks.shut_down()
        assert ends(world) == []


# --- the start of a scope --------------------------------------------------------------------------------------------

START = steps("on_scope_start", call("one", save_as="customer", arguments={"event": "{{ event.name }}"}))


async def test_a_scope_starts_once_before_its_first_call_and_not_before_a_list():
    """Whoever else comes meanwhile waits for it, and every other scope has its own."""
    async with acting(CASE, on_start=START) as world:
        await world.names()
        assert world.desk.called == []
        go_on = world.desk.holds("one")
        both = [
            Doing(world.tasks, partial(world.ask, "SKILL", {"action": "list"}, client(connection=name)))
            for name in ("a", "b")
        ]
        await settle()
        assert world.desk.tools == ["one"]
        assert not any(one.done for one in both)
        go_on.set()
        for one in both:
            await one.outcome()
        await world.skill("activate", "case")
        assert world.desk.tools == ["one", "begin", "two"]
        assert (await world.state()).heap["customer"] == {"event": "scope_start"}
        assert (await world.state(OTHER)).heap == {}
        await world.skill("activate", "case", client(scope=OTHER))
        assert world.desk.tools.count("one") == 2
        assert world.quiet


async def test_a_start_that_fails_stands_in_the_way_of_the_call_and_is_tried_again():
    async with acting(CASE, on_start=START) as world:
        world.desk.fails("one", "who are you?")
        answer = await world.skill("activate", "case")
        assert answer["isError"]
        why = "step one (on_scope_start[0], desk/one) failed: who are you?"
        assert f"on_scope_start hook has to run first, and failed: {why}" in text_of(answer)
        assert world.desk.tools == ["one"]
        del world.desk.does["one"]
        assert not (await world.skill("activate", "case")).get("isError")


async def test_a_start_that_is_given_up_is_taken_over():
    """By the next one that waits for it."""
    async with acting(CASE, on_start=START) as world:
        go_on = world.desk.holds("one")
        first = Doing(world.tasks, partial(world.skill, "activate", "case"))
        await settle()
        second = Doing(world.tasks, partial(world.skill, "activate", "case"))
        await settle()
        await first.give_up()
        await settle()
        assert (world.desk.tools, world.desk.cancelled) == (["one", "one"], ["one"])
        go_on.set()
        assert not (await second.outcome()).get("isError")
        assert world.quiet


async def test_a_start_takes_no_longer_than_it_may():
    async with acting(CASE, on_start=START, start_timeout=0.05) as world:
        world.desk.holds("one")
        answer = await world.skill("activate", "case")
        assert "all steps together have 0.05 s" in text_of(answer)
        assert world.desk.cancelled == ["one"]


async def test_what_is_active_from_the_start_begins_before_the_first_call():
    """Once, and after the start."""
    async with acting(named("auto", active=True), on_start=START) as world:
        assert await world.active() == ("auto",)
        await world.names()
        assert world.desk.called == []
        await world.ask("SKILL", {"action": "list"})
        await world.ask("SKILL", {"action": "list"})
        assert world.desk.tools == ["one", "begin"]
        await world.skill("offload", "auto")
        assert ends(world) == ["auto"]


async def test_what_cannot_begin_is_not_active_from_the_start():
    """With all that requires it; the others are, and what has begun and goes with it ends. `SKILL` tells."""
    base, top = named("base", active=True), skill("top", requires=("base",), active=True, on_activate=[call("two")])
    async with acting(base, top, named("other", active=True)) as world:
        world.desk.fails("two")
        answer = await world.ask("SKILL", {"action": "list"})
        assert await world.active() == ("base", "other")
        assert "skill top is not active from the start, since its on_activate hook failed" in text_of(answer)
        await world.ends()
        await settle()
        assert ends(world) == ["other", "base"]

    async with acting(skill("base", active=True, on_activate=[call("two")]), named("top", requires=("base",))) as world:
        world.desk.fails("two")
        await world.becomes(
            skill("base", active=True, on_activate=[call("two")]), named("top", requires=("base",), active=True)
        )
        await world.ask("SKILL", {"action": "list"})
        assert "base" not in await world.active()


async def test_what_is_pinned_and_cannot_begin_stands_in_the_way_of_every_call():
    async with acting(named("pinned", pinned=True), CASE) as world:
        world.desk.fails("begin")
        answer = await world.skill("activate", "case")
        assert "the on_activate hook of skill pinned has to run first, and failed" in text_of(answer)
        assert await world.active() == ("pinned",)
        del world.desk.does["begin"]
        assert not (await world.skill("activate", "case")).get("isError")


async def test_a_skill_that_never_began_does_not_end():
    """It was active from the start, and the scope ends before its first call."""
    async with acting(named("auto", active=True)) as world:
        await world.names()
        assert await world.ends() == ["released"]
        await settle()
        assert world.desk.called == []


async def test_a_call_waits_for_what_has_become_active_while_it_waited():
    """The configuration has pinned a skill while the server of the call came up."""
    case = named("case", tools={"desk": Allow.of(["granted"])})
    async with acting(skill("plain", active=True), case) as world:
        await world.ask("desk__granted")
        world.servers.there = anyio.Event()
        calling = Doing(world.tasks, partial(world.ask, "desk__granted"))
        await settle()
        await world.becomes(skill("plain", active=True), replace(case, pinned=True))
        world.servers.there.set()
        assert not (await calling.outcome()).get("isError")
        assert world.desk.tools == ["granted", "begin", "granted"]


async def test_steps_of_hooks_side_by_side_all_end_before_the_skill_is_active():
    """A failing one makes the activation fail, and cancels the others."""
    both = skill("case", on_activate=[Parallel("", (call("one"), call("log/two")))])
    async with acting(both) as world:
        world.log.holds("two")
        activation = Doing(world.tasks, partial(world.skill, "activate", "case"))
        await settle()
        assert (world.desk.tools, world.log.tools) == (["one"], ["two"])
        assert not activation.done
        await activation.give_up()

        async def fails_later(_arguments: object, _caller: object) -> Any:
            await settle()
            return failure()

        world.desk.does["one"] = fails_later
        assert (await world.skill("activate", "case"))["isError"]
        assert world.log.cancelled == ["two", "two"]
        assert await world.active() == ()
