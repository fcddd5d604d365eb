"""Activating and offloading: what comes and goes with a skill, and what stands in the way."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import relations
from proxy.core.catalogue import Catalogue, Skill
from proxy.core.names import Naming
from proxy.core.relations import Blocked, Hindrance, begin, expired, not_begun, refitted, required, told
from proxy.core.scope import ScopeState, begun, connected
from proxy.core.steps import Call
from tests.core.changes import activated, offloaded, plain, tried
from tests.core.strategies import SKILL_IDS, closure, law, related

# --- skills that have nothing to do with each other ------------------------------------------------------------------

skills = st.sampled_from(("a", "b", "c", "d"))
FREE = plain("a", "b", "c", "d")


def conflict(one: Skill, other: Skill) -> bool:
    """Whether they cannot be active together."""
    return other.id in one.conflicts or one.id in other.conflicts or fill_in_differently(one, other)


def fill_in_differently(one: Skill, other: Skill) -> bool:
    """Whether they give an argument of a tool different values."""
    return any(
        other.bind.get(server, {}).get(tool, {}).get(argument, value) != value
        for server, tools in one.bind.items()
        for tool, arguments in tools.items()
        for argument, value in arguments.items()
    )


@st.composite
def states(draw: st.DrawFn) -> ScopeState:
    """What some activating and offloading leads to."""
    state = ScopeState()
    for change, skill in draw(st.lists(st.tuples(st.sampled_from((activated, offloaded)), skills), max_size=8)):
        state = change(FREE, state, skill)
    return state


@law
@given(state=states(), skill=skills)
def test_offloading_undoes_activating(state: ScopeState, skill: str):
    """But for the memory that it was here."""
    if skill in state.active:
        return

    undone = offloaded(FREE, activated(FREE, state, skill), skill)

    assert replace(undone, offloaded=frozenset()) == replace(state, offloaded=frozenset())
    assert undone.offloaded == state.offloaded | {skill}


@law
@given(state=states(), skill=skills)
def test_a_skill_is_active_or_offloaded_never_both(state: ScopeState, skill: str):
    """Activating puts it at the end and leaves the order of the others."""
    active = activated(FREE, state, skill)

    assert not set(active.active) & active.offloaded
    assert [other for other in active.active if other != skill] == [other for other in state.active if other != skill]
    assert skill in state.active or active.active[-1] == skill
    assert skill not in offloaded(FREE, state, skill).active


@law
@given(state=states(), skill=skills)
def test_no_change_changes_a_state_in_place(state: ScopeState, skill: str):
    """The record that somebody else holds stays what it was."""
    before = repr(state)

    activated(FREE, state, skill)
    offloaded(FREE, state, skill)
    expired(FREE, state, [skill])
    refitted(state, plain(skill))

    assert repr(state) == before


def test_a_scope_begins_with_the_active_and_the_pinned_skills():
    """In the order of the file; nothing was offloaded, nothing announced."""
    catalogue = of(
        Skill("plain", "", "", ""), Skill("pinned", "", "", "", pinned=True), Skill("active", "", "", "", active=True)
    )

    assert begin(catalogue) == ScopeState(active=("pinned", "active"))


@law
@given(state=states(), present=st.lists(skills, unique=True), pinned=st.sets(skills))
def test_a_state_is_refitted_to_what_there_is(state: ScopeState, present: list[str], pinned: set[str]):
    """Skills that are gone are dropped, pinned ones come at the end in the order of the file, all else stays."""
    catalogue = of(*(Skill(skill, "", "", "", pinned=skill in pinned) for skill in present))

    fitted = refitted(state, catalogue)

    kept = [skill for skill in state.active if skill in present]
    assert list(fitted.active) == kept + [skill for skill in present if skill in pinned and skill not in kept]
    assert fitted.offloaded == {skill for skill in state.offloaded if skill in present and skill not in pinned}
    assert refitted(fitted, catalogue) is fitted


def test_a_state_that_fits_is_the_very_same_object():
    """By which everybody sees that nothing changed; what is known of its clients stays in any case."""
    state = activated(FREE, offloaded(FREE, activated(FREE, ScopeState(), "a"), "a"), "b")
    state = replace(connected(state, "c1"), handed_out={"x:1": "s"})

    assert refitted(state, of(Skill("b", "", "", "", pinned=True), Skill("a", "", "", ""))) is state
    assert refitted(state, plain("a")) == replace(state, active=())


# --- skills that require others --------------------------------------------------------------------------------------


def of(*skills: Skill, most: int | None = None) -> Catalogue:
    return Catalogue((), Naming({}), skills, max_active=most)


def skill(
    id_: str,
    *requires: str,
    conflicts: Iterable[str] = (),
    exclusive: bool = False,
    pinned: bool = False,
    active: bool = False,
) -> Skill:
    return Skill(
        id_,
        "",
        "",
        "",
        requires=requires,
        conflicts=tuple(conflicts),
        exclusive=exclusive,
        pinned=pinned,
        active=active,
    )


def after(catalogue: Catalogue, *wanted: str, state: ScopeState | None = None) -> ScopeState:
    """The state after these were activated one after the other."""
    state = ScopeState() if state is None else state
    for one in wanted:
        state = activated(catalogue, state, one)
    return state


CHAIN = of(skill("base"), skill("middle", "base"), skill("side"), skill("top", "middle", "side"))
"""`top` requires `middle`, which requires `base`, and `side`."""


def test_what_a_skill_requires_comes_with_it_and_before_it():
    """Directly or not, each once, in the order in which the skills name it."""
    assert required(CHAIN, "top") == ("base", "middle", "side")
    assert required(CHAIN, "base") == required(CHAIN, "unknown") == ()

    state = after(CHAIN, "top")

    assert state.active == ("base", "middle", "side", "top")
    assert state.by_demand == {"base", "middle", "side"}


def test_what_is_required_twice_comes_once():
    """And goes when the last that requires it goes."""
    catalogue = of(skill("base"), skill("one", "base"), skill("two", "base"))

    state = after(catalogue, "one", "two")
    assert state.active == ("base", "one", "two")

    state = offloaded(catalogue, state, "one")
    assert state.active == ("base", "two")
    state = offloaded(catalogue, state, "two")
    assert state.active == ()
    assert state.offloaded == {"base", "one", "two"}


@pytest.mark.parametrize("order", [("base", "top"), ("top", "base")])
def test_what_the_user_wanted_besides_stays(order: tuple[str, str]):
    """Whether before it was required or after."""
    state = offloaded(CHAIN, after(CHAIN, *order), "top")

    assert state.active == ("base",)
    assert state.by_demand == frozenset()


def test_offloading_what_an_active_skill_needs_is_refused_by_name():
    """Also where it needs it through another."""
    state = after(CHAIN, "side", "top")

    assert relations.offloaded(CHAIN, state, "base") == Blocked(Hindrance.NEEDED, "base", ("middle", "top"))
    assert relations.offloaded(CHAIN, state, "side") == Blocked(Hindrance.NEEDED, "side", ("top",))


def test_a_pinned_skill_and_what_it_requires_stay():
    """For good; what is not active is as wished."""
    catalogue = of(skill("base"), skill("top", "base", pinned=True), skill("other"))
    state = begin(catalogue)

    assert state.active == ("base", "top")
    assert relations.offloaded(catalogue, state, "top") == Blocked(Hindrance.PINNED, "top")
    assert relations.offloaded(catalogue, state, "base") == Blocked(Hindrance.NEEDED, "base", ("top",))
    assert relations.offloaded(catalogue, state, "other") is state
    assert relations.offloaded(catalogue, state, "unknown") is state


# --- skills that conflict --------------------------------------------------------------------------------------------

RIVALS = of(skill("red", conflicts=["blue"]), skill("blue"), skill("needs-blue", "blue"), skill("free"))


@pytest.mark.parametrize(("there", "wanted"), [("red", "blue"), ("blue", "red")])
def test_of_two_that_conflict_one_is_active_whichever_says_so(there: str, wanted: str):
    """The other is refused, with the one in its way."""
    state = after(RIVALS, "free", there)

    assert RIVALS.rivals == {"red": {"blue"}, "blue": {"red"}}
    assert replace(RIVALS, skills=(Skill("x", "", "", "", conflicts=("x", "none")),)).rivals == {}
    assert relations.activated(RIVALS, state, wanted) == Blocked(Hindrance.CONFLICT, wanted, (there,))


def test_a_skill_is_refused_where_what_it_requires_conflicts():
    """The required one is named, too; nothing of it has become active."""
    state = after(RIVALS, "red")

    assert relations.activated(RIVALS, state, "needs-blue") == Blocked(Hindrance.CONFLICT, "blue", ("red",))


ALONE = of(
    skill("alone", conflicts=["one", "two"], exclusive=True),
    skill("base"),
    skill("one", "base"),
    skill("two"),
    skill("needs-two", "two"),
    skill("free"),
)


def test_an_exclusive_skill_takes_the_place_of_those_it_conflicts_with():
    """What only they required goes with them; others stay."""
    state = after(ALONE, "one", "free", "two", "alone")

    assert state.active == ("free", "alone")
    assert state.offloaded == {"base", "one", "two"}


def test_room_is_made_by_those_alone_whose_place_is_taken():
    """With what only they required; the same object where nobody's place is taken, or the skill may not come."""
    state = after(ALONE, "one", "free", "two")
    room = relations.made_room(ALONE, state, "alone")
    assert (room.active, room.offloaded, room.by_demand) == (("free",), {"base", "one", "two"}, frozenset())
    assert relations.made_room(ALONE, room, "alone") is room
    needed = after(ALONE, "needs-two")
    assert relations.made_room(ALONE, needed, "alone") is needed


def test_what_the_new_one_requires_is_left_until_it_is_known_that_it_does_not_come():
    catalogue = of(skill("base"), skill("old", "base"), skill("new", "base", conflicts=["old"], exclusive=True))
    room = relations.made_room(catalogue, after(catalogue, "old"), "new")
    assert room.active == ("base",)
    assert relations.without_orphans(catalogue, room).active == ()
    assert relations.without_orphans(catalogue, room).offloaded == {"base", "old"}
    whole = after(catalogue, "new", state=room)
    assert relations.without_orphans(catalogue, whole) is whole


def test_being_exclusive_is_for_the_one_that_is_activated():
    """One that comes later and is not exclusive is refused."""
    state = after(ALONE, "alone")

    assert relations.activated(ALONE, state, "one") == Blocked(Hindrance.CONFLICT, "one", ("alone",))


def test_an_exclusive_skill_replaces_none_that_has_to_stay():
    """Neither a pinned one, nor one that another needs that stays."""
    needed = after(ALONE, "needs-two", "one")
    pinned = of(
        skill("alone", conflicts=["always", "free"], exclusive=True), skill("always", pinned=True), skill("free")
    )

    assert relations.activated(ALONE, needed, "alone") == Blocked(Hindrance.KEPT, "alone", ("two",))
    assert relations.activated(pinned, after(pinned, "free", state=begin(pinned)), "alone") == Blocked(
        Hindrance.KEPT, "alone", ("always",)
    )


def test_one_that_would_go_anyway_keeps_nothing():
    """`middle` needs `base`, but is itself only there for `top`, which is replaced."""
    catalogue = of(
        skill("base"),
        skill("middle", "base"),
        skill("top", "middle"),
        skill("x", conflicts=["base", "top"], exclusive=True),
    )

    assert after(catalogue, "top", "x").active == ("x",)


# --- as many as may be -----------------------------------------------------------------------------------------------


def test_no_more_are_active_than_may_be():
    """What is required counts, too; what is always there does not."""
    catalogue = of(
        skill("below"), skill("always", "below", pinned=True), skill("base"), skill("top", "base"), skill("c"), most=2
    )
    state = begin(catalogue)
    assert state.active == ("below", "always")

    full = after(catalogue, "top", state=state)
    assert full.active == ("below", "always", "base", "top")
    assert relations.activated(catalogue, full, "c") == Blocked(Hindrance.TOO_MANY, "c", full.active)

    some = after(catalogue, "c", state=state)
    assert relations.activated(catalogue, some, "top") == Blocked(Hindrance.TOO_MANY, "top", some.active)
    assert relations.activated(catalogue, full, "base") == replace(full, by_demand=frozenset({"below"}))


def test_one_that_takes_the_place_of_another_is_not_one_too_many():
    """It counts after the other has gone."""
    catalogue = of(skill("one"), skill("other", conflicts=["one"], exclusive=True), most=1)

    assert after(catalogue, "one", "other").active == ("other",)


def test_a_scope_begins_with_as_many_as_may_be():
    """The first of the file."""
    catalogue = of(skill("a", active=True), skill("b", active=True), skill("c", pinned=True), most=1)

    assert begin(catalogue) == ScopeState(active=("a", "c"))


def test_a_scope_begins_with_the_pinned_skills_whatever_stands_before_them():
    """Also where it is what they require that conflicts; of two others, the first in the file comes."""
    catalogue = of(
        skill("first", active=True, conflicts=["base"], exclusive=True),
        skill("base"),
        skill("always", "base", pinned=True),
        skill("one", active=True, conflicts=["two"]),
        skill("two", active=True, exclusive=True),
    )

    assert begin(catalogue) == ScopeState(active=("base", "always", "one"), by_demand=frozenset({"base"}))


# --- skills that have something to do when they begin ----------------------------------------------------------------

OPENING = (Call("on_activate[0]", "open", "crm", "open"),)


def test_what_is_active_from_the_start_is_due_where_it_has_hooks():
    """Also what it requires; what is activated later has begun by then."""
    catalogue = of(
        replace(skill("base"), on_activate=OPENING),
        skill("plain", active=True),
        replace(skill("case", "base", active=True), on_offload=OPENING),
        replace(skill("later"), on_activate=OPENING),
    )

    state = after(catalogue, "later", state=begin(catalogue))

    assert state.active == ("plain", "base", "case", "later")
    assert state.due == {"base", "case"}
    assert offloaded(catalogue, state, "case").due == frozenset()


def test_what_is_replaced_before_it_has_begun_is_not_due_any_more():
    """Nor what goes with it."""
    first = replace(skill("first", "base", active=True, conflicts=["other"]), on_activate=OPENING)
    catalogue = of(replace(skill("base"), on_activate=OPENING), first, skill("other", exclusive=True))
    state = begin(catalogue)
    assert state.due == {"base", "first"}

    assert after(catalogue, "other", state=state) == ScopeState(
        active=("other",), offloaded=frozenset({"base", "first"})
    )


def test_what_becomes_active_with_another_catalogue_is_due_besides_what_was():
    """What has begun is not done again."""
    before = of(replace(skill("old", pinned=True), on_activate=OPENING), replace(skill("begun"), on_activate=OPENING))
    state = after(before, "begun", state=begin(before))

    fitted = refitted(state, of(*before.skills, replace(skill("new", pinned=True), on_activate=OPENING)))

    assert fitted.active == ("old", "begun", "new")
    assert fitted.due == {"old", "new"}


def test_what_could_not_begin_goes_with_what_requires_it_and_what_only_that_required():
    """All else stays; so does a skill that is always active, or that such a one requires: then nothing changes."""
    catalogue = of(
        skill("base"),
        skill("side"),
        skill("top", "base", "side"),
        skill("free"),
        skill("below"),
        skill("always", "below", pinned=True),
    )
    state = after(catalogue, "free", "top", state=begin(catalogue))

    assert not_begun(catalogue, state, "base") == begun(
        replace(state, active=("below", "always", "free"), by_demand=frozenset({"below"})), []
    )
    assert not_begun(catalogue, state, "below") is None
    assert not_begun(catalogue, state, "always") is None


# --- skills that nobody uses -----------------------------------------------------------------------------------------


def test_what_is_not_used_goes_with_what_only_it_required():
    """It is remembered until the client has been told."""
    state = expired(CHAIN, after(CHAIN, "base", "top"), ["top"])

    assert state.active == ("base",)
    assert state.expired == state.offloaded == {"middle", "side", "top"}
    assert told(state) == replace(state, expired=frozenset())
    assert told(told(state)).expired == frozenset()


def test_nothing_to_tell_changes_nothing():
    """The very same object."""
    state = after(CHAIN, "top")

    assert told(state) is state
    assert expired(CHAIN, state, ["unknown", "base"]) is state


@pytest.mark.parametrize("idle", [("base", "top"), ("top", "base")])
def test_skills_that_are_idle_together_go_together(idle: tuple[str, str]):
    """Whatever the order in which they are named."""
    catalogue = of(skill("base"), skill("top", "base"))

    assert expired(catalogue, after(catalogue, "base", "top"), idle).active == ()


def test_what_has_to_stay_does_not_expire():
    """A pinned skill, and one that an active skill needs."""
    catalogue = of(skill("base"), skill("top", "base"), skill("always", pinned=True))
    state = after(catalogue, "top", state=begin(catalogue))

    assert expired(catalogue, state, ["base", "always"]) is state


def test_activating_again_ends_the_news_that_it_had_expired():
    """There is nothing more to be said of it."""
    state = after(CHAIN, "side", state=expired(CHAIN, after(CHAIN, "top"), ["top"]))

    assert state.expired == {"base", "middle", "top"}


def test_what_is_offloaded_by_the_user_is_no_news():
    """The client knows: it has done it."""
    assert offloaded(CHAIN, after(CHAIN, "top"), "top").expired == frozenset()


# --- another catalogue -----------------------------------------------------------------------------------------------


def test_what_a_skill_requires_by_now_comes():
    """And what it no longer requires goes."""
    state = after(CHAIN, "top")

    fitted = refitted(
        state, of(skill("base"), skill("middle"), skill("side"), skill("new"), skill("top", "new", "side"))
    )

    assert fitted.active == ("new", "side", "top")
    assert fitted.by_demand == {"new", "side"}
    assert fitted.offloaded == {"base", "middle"}


def test_of_those_that_conflict_by_now_the_first_stays():
    """Though the second is exclusive: nobody has activated it now."""
    state = after(plain("a", "b", "c"), "b", "a", "c")

    fitted = refitted(state, of(skill("a", conflicts=["b"], exclusive=True), skill("b"), skill("c")))

    assert fitted.active == ("b", "c")
    assert fitted.offloaded == {"a"}


def test_what_is_pinned_by_now_comes_whatever_conflicts_with_it():
    """Or with what it requires, or is required by what does."""
    state = after(plain("a", "b", "c", "d"), "a", "b", "c", "d")
    catalogue = of(
        skill("a"),
        skill("b", conflicts=["base"]),
        skill("c", "b"),
        skill("d", conflicts=["always"], exclusive=True),
        skill("base"),
        skill("always", "base", pinned=True),
    )

    fitted = refitted(state, catalogue)

    assert fitted.active == ("a", "base", "always")
    assert fitted.offloaded == {"b", "c", "d"}


def test_where_two_that_are_pinned_conflict_nothing_better_is_tried_again():
    """The second cannot come; every later refit leaves the very same state."""
    catalogue = of(skill("a", conflicts=["b"], pinned=True), skill("b", pinned=True))

    fitted = refitted(after(plain("a", "b"), "a", "b"), catalogue)

    assert fitted.active == ("a",)
    assert refitted(fitted, catalogue) is fitted


def test_of_more_than_may_be_by_now_the_first_stay():
    """In the order of activation."""
    state = after(plain("a", "b", "c"), "c", "a", "b")

    assert refitted(state, of(skill("a"), skill("b"), skill("c"), most=2)).active == ("c", "a")


def test_what_is_pinned_by_now_is_there_for_itself():
    """It stays when the one that required it goes."""
    before = of(skill("base"), skill("top", "base"))
    now = of(skill("base", pinned=True), skill("top", "base"))

    fitted = refitted(after(before, "top"), now)
    assert fitted.active == ("base", "top")
    assert fitted.by_demand == frozenset()
    assert offloaded(now, fitted, "top").active == ("base",)


# --- the laws, over any skills and any changes -----------------------------------------------------------------------


def assert_sound(catalogue: Catalogue, state: ScopeState) -> None:
    """What is active may be so together, and nothing is missing or left over."""
    requires = {skill.id: skill.requires for skill in catalogue.skills}
    active = set(state.active)
    assert len(state.active) == len(active) <= len(active & catalogue.by_id.keys())
    for one in active:
        assert closure(requires, one) <= active
        assert not any(conflict(catalogue.by_id[one], catalogue.by_id[other]) for other in active)
    always = {one for pinned in catalogue.pinned for one in closure(requires, pinned)}
    for pinned in catalogue.pinned - active:
        assert any(
            conflict(catalogue.by_id[one], catalogue.by_id[other])
            for one in closure(requires, pinned)
            for other in always
        )
    assert state.by_demand <= active - catalogue.pinned
    for one in state.by_demand:
        assert any(one in closure(requires, other) for other in active - {one})
    assert catalogue.max_active is None or len(active - always) <= catalogue.max_active
    assert not active & state.offloaded
    assert state.expired <= state.offloaded
    assert state.due <= active


@dataclass(frozen=True)
class Lived:
    """A catalogue, and a state that came about in it and in earlier ones."""

    catalogue: Catalogue
    state: ScopeState


@st.composite
def lives(draw: st.DrawFn) -> list[Lived]:
    """What any changes lead to, step by step."""
    catalogue = draw(related())
    steps = [Lived(catalogue, begin(catalogue))]
    for _ in range(draw(st.integers(0, 10))):
        catalogue, state = steps[-1].catalogue, steps[-1].state
        known = st.sampled_from(list(catalogue.by_id))
        done = ("activate", "activate", "activate", "offload", "expire", "refit", "begin", "fail to begin")
        match draw(st.sampled_from(done)):
            case "activate":
                state = tried(relations.activated, catalogue, state, draw(known))
            case "offload":
                state = tried(relations.offloaded, catalogue, state, draw(known))
            case "expire":
                state = expired(catalogue, state, draw(st.lists(st.sampled_from(SKILL_IDS), max_size=3)))
            case "begin":
                state = begun(state, draw(st.lists(st.sampled_from(SKILL_IDS), max_size=3)))
            case "fail to begin":
                state = not_begun(catalogue, state, draw(known)) or state
            case _:
                catalogue = draw(related())
                state = refitted(state, catalogue)
        steps.append(Lived(catalogue, state))
    return steps


lived = lives().map(lambda steps: steps[-1])


@law
@given(lives())
def test_whatever_is_done_what_is_active_may_be_so_together(steps: list[Lived]):
    """All that is required is there, no two conflict, pinned ones are there, and no more than may be."""
    for life in steps:
        assert_sound(life.catalogue, life.state)


@law
@given(lives())
def test_no_two_that_fill_in_an_argument_differently_are_ever_active_together(steps: list[Lived]):
    """Whatever is done, and however the configuration changes: a call has one value for it."""
    for life in steps:
        active = [life.catalogue.by_id[one] for one in life.state.active]
        assert not any(fill_in_differently(one, other) for one in active for other in active)


@law
@given(lives())
def test_what_becomes_active_by_itself_is_due_if_it_has_hooks(steps: list[Lived]):
    """At the start, and when the configuration changes; what a client activates has begun before it is active."""
    for before, life in zip([Lived(steps[0].catalogue, ScopeState()), *steps], steps, strict=False):
        by_itself = life is steps[0] or before.catalogue is not life.catalogue
        new = {*life.state.active} - {*before.state.active}
        hooked = {one for one in new if life.catalogue.by_id[one].hooked}
        assert life.state.due & new == (hooked if by_itself else set())
        assert life.state.due - new <= before.state.due


@law
@given(lived, st.sampled_from(SKILL_IDS))
def test_a_skill_that_could_not_begin_goes_unless_it_has_to_stay(life: Lived, failed: str):
    """With all that requires it, and what only those required; it is none that was offloaded, since it never began."""
    catalogue, state = life.catalogue, life.state
    requires = {skill.id: skill.requires for skill in catalogue.skills}
    always = {one for pinned in catalogue.pinned for one in closure(requires, pinned)}

    after = not_begun(catalogue, state, failed)

    if after is None:
        assert failed in always
        return
    assert failed not in always
    assert_sound(catalogue, after)
    gone = {*state.active} - {*after.active}
    assert {one for one in state.active if failed in closure(requires, one)} <= gone
    assert all(failed in closure(requires, one) or one in state.by_demand for one in gone)
    assert after == replace(
        state,
        active=tuple(one for one in state.active if one not in gone),
        by_demand=state.by_demand - gone,
        due=state.due - gone,
    )


@law
@given(lived, st.sampled_from(SKILL_IDS))
def test_activating_twice_is_activating_once(life: Lived, wanted: str):
    """The second time gives the very same object, by which everybody sees that nothing changed."""
    if wanted not in life.catalogue.by_id:
        return
    once = relations.activated(life.catalogue, life.state, wanted)

    if isinstance(once, ScopeState):
        assert wanted in once.active
        assert wanted not in once.by_demand
        assert relations.activated(life.catalogue, once, wanted) is once


@law
@given(lived, st.sampled_from(SKILL_IDS))
def test_offloading_twice_is_offloading_once(life: Lived, wanted: str):
    """Likewise."""
    once = relations.offloaded(life.catalogue, life.state, wanted)

    if isinstance(once, ScopeState):
        assert wanted not in once.active
        assert relations.offloaded(life.catalogue, once, wanted) is once


@law
@given(lived, st.sampled_from(SKILL_IDS))
def test_offloading_undoes_activating_unless_it_took_something_over(life: Lived, wanted: str):
    """A place that was another's, or a skill that was there by demand."""
    catalogue, state = life.catalogue, life.state
    if wanted not in catalogue.by_id or wanted in state.active:
        return
    then = relations.activated(catalogue, state, wanted)
    if isinstance(then, Blocked) or not {*state.active} <= {*then.active}:
        return

    undone = offloaded(catalogue, then, wanted)

    assert undone.active == state.active
    assert undone.by_demand == state.by_demand


@law
@given(lived, st.lists(st.sampled_from(SKILL_IDS), max_size=4))
def test_what_expires_is_idle_or_was_only_there_for_what_is(life: Lived, idle: list[str]):
    """All that may go does; what is told is what has gone."""
    state = expired(life.catalogue, life.state, idle)

    gone = {*life.state.active} - {*state.active}
    assert gone <= {*idle} | life.state.by_demand
    assert state.expired - life.state.expired == gone
    assert expired(life.catalogue, state, idle) is state
    for one in idle:
        assert one not in state.active or isinstance(relations.offloaded(life.catalogue, state, one), Blocked)


@law
@given(lived, related())
def test_a_state_is_refitted_once_for_all(life: Lived, catalogue: Catalogue):
    """Whatever the two catalogues have to do with each other; no skill comes that nobody asked for."""
    state = refitted(life.state, catalogue)

    assert_sound(catalogue, state)
    assert refitted(state, catalogue) is state
    if life.catalogue.pinned <= {*life.state.active}:  # else pinned ones are in each other's way, which loading refuses
        assert refitted(life.state, life.catalogue) is life.state
    wanted = ({*life.state.active} & catalogue.by_id.keys()) | catalogue.pinned
    requires = {skill.id: skill.requires for skill in catalogue.skills}
    assert {*state.active} <= {one for skill in wanted for one in closure(requires, skill)}


@law
@given(lived, st.sampled_from(SKILL_IDS))
def test_a_refusal_names_what_is_in_the_way(life: Lived, wanted: str):
    """Active skills all, or none where it is the wanted one itself; what is refused was not there, or is still."""
    catalogue, state = life.catalogue, life.state
    changes = [relations.offloaded, *([relations.activated] if wanted in catalogue.by_id else [])]
    for change in changes:
        match change(catalogue, state, wanted):
            case Blocked(Hindrance.PINNED, skill, by):
                assert (skill, by) == (wanted, ())
                assert wanted in catalogue.pinned
            case Blocked(Hindrance.NEEDED, skill, by):
                assert skill == wanted
                assert by
                assert all(wanted in required(catalogue, other) for other in by)
            case Blocked(Hindrance.CONFLICT, skill, by):
                assert skill in (*required(catalogue, wanted), wanted)
                assert by
                assert all(conflict(catalogue.by_id[skill], catalogue.by_id[other]) for other in by)
            case Blocked(Hindrance.KEPT, skill, by):
                assert skill == wanted
                assert by
                assert all(isinstance(relations.offloaded(catalogue, state, other), Blocked) for other in by)
            case Blocked(Hindrance.TOO_MANY, skill, by):
                assert skill == wanted
                assert set(by) <= set(state.active)
                assert catalogue.max_active is not None
            case ScopeState():
                pass
