"""Transitions of a scope's state (design rules 2, 6 and 17)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.names import Naming
from proxy.core.relations import activated, begin, offloaded, refitted
from proxy.core.scope import (
    HANDED_OUT_LIMIT,
    Lists,
    ScopeId,
    ScopeState,
    announced,
    called,
    connected,
    disconnected,
    handed_out,
    relists,
)
from tests.core.strategies import law

skills = st.sampled_from(("a", "b", "c", "d"))


@st.composite
def states(draw: st.DrawFn) -> ScopeState:
    """What some activating and offloading leads to."""
    state = ScopeState()
    for change, skill in draw(st.lists(st.tuples(st.sampled_from((activated, offloaded)), skills), max_size=8)):
        state = change(state, skill)
    return state


# --- skills ----------------------------------------------------------------------------------------------------------


@law
@given(state=states(), skill=skills)
def test_offloading_undoes_activating(state: ScopeState, skill: str):
    """But for the memory that it was here."""
    if skill in state.active:
        return

    undone = offloaded(activated(state, skill), skill)

    assert replace(undone, offloaded=frozenset()) == replace(state, offloaded=frozenset())
    assert undone.offloaded == state.offloaded | {skill}


@law
@given(state=states(), skill=skills)
def test_doing_it_twice_is_doing_it_once(state: ScopeState, skill: str):
    """The second time gives the very same object, by which everybody sees that nothing changed."""
    for change in (activated, offloaded):
        once = change(state, skill)
        assert change(once, skill) is once


@law
@given(state=states(), skill=skills)
def test_a_skill_is_active_or_offloaded_never_both(state: ScopeState, skill: str):
    """Activating puts it at the end and leaves the order of the others."""
    active = activated(state, skill)

    assert not set(active.active) & active.offloaded
    assert [other for other in active.active if other != skill] == [other for other in state.active if other != skill]
    assert skill in state.active or active.active[-1] == skill
    assert skill not in offloaded(state, skill).active


@law
@given(state=states(), skill=skills, connection=st.text())
def test_no_transition_changes_a_state_in_place(state: ScopeState, skill: str, connection: str):
    """The record that somebody else holds stays what it was."""
    before = repr(state)

    for changed in (activated(state, skill), offloaded(state, skill), connected(state, connection)):
        announced(changed, Lists(tools=frozenset({skill})))
        called(changed, connection, skill)
        handed_out(changed, "gh", ["x:1"])
        disconnected(changed, connection)

    assert repr(state) == before


def test_a_scope_begins_with_the_active_and_the_pinned_skills():
    """In the order of the file; nothing was offloaded, nothing announced."""
    catalogue = Catalogue(
        (),
        Naming({}),
        (
            Skill("plain", "", "", ""),
            Skill("pinned", "", "", "", pinned=True),
            Skill("active", "", "", "", active=True),
        ),
    )

    assert begin(catalogue) == ScopeState(active=("pinned", "active"))


def catalogue_of(present: list[str], pinned: set[str]) -> Catalogue:
    return Catalogue((), Naming({}), tuple(Skill(skill, "", "", "", pinned=skill in pinned) for skill in present))


@law
@given(state=states(), present=st.lists(skills, unique=True), pinned=st.sets(skills))
def test_a_state_is_refitted_to_what_there_is(state: ScopeState, present: list[str], pinned: set[str]):
    """Skills that are gone are dropped, pinned ones come at the end in the order of the file, all else stays."""
    fitted = refitted(state, catalogue_of(present, pinned))

    kept = [skill for skill in state.active if skill in present]
    assert list(fitted.active) == kept + [skill for skill in present if skill in pinned and skill not in kept]
    assert fitted.offloaded == {skill for skill in state.offloaded if skill in present and skill not in pinned}
    assert refitted(fitted, catalogue_of(present, pinned)) is fitted


def test_a_state_that_fits_is_the_very_same_object():
    """By which everybody sees that nothing changed; what is known of its clients stays in any case."""
    state = replace(
        connected(activated(offloaded(activated(ScopeState(), "a"), "a"), "b"), "c1"), handed_out={"x:1": "s"}
    )

    assert refitted(state, catalogue_of(["b", "a"], {"b"})) is state
    assert refitted(state, catalogue_of(["a"], set())) == replace(state, active=())


def test_scopes_differ_by_kind_name_and_principal():
    """One name in two kinds, or of two principals, is two scopes (rule 10)."""
    ids = {
        ScopeId("namespace", "a"),
        ScopeId("session", "a"),
        ScopeId("namespace", "a", principal="p"),
        ScopeId("namespace", "a"),
    }
    assert len(ids) == 3


# --- evidence --------------------------------------------------------------------------------------------------------


def tools(*names: str) -> Lists:
    return Lists(tools=frozenset(names))


def test_a_call_of_an_announced_tool_shows_that_the_client_lists_again():
    """It can know the name only from the new list."""
    state = connected(ScopeState(), "c1")
    assert not relists(state, "c1")

    state = called(announced(state, tools("new")), "c1", "new")

    assert relists(state, "c1")
    assert called(state, "c1", "new") is state


def test_a_call_of_a_tool_that_was_listed_before_shows_nothing():
    """The client may still have its first list."""
    state = connected(replace(ScopeState(), lists=tools("old")), "c1")
    state = announced(state, tools("old", "new"))

    assert called(state, "c1", "old") is state
    assert called(state, "c1", "unheard of") is state


def test_a_tool_that_comes_back_was_in_the_first_list():
    """Only what *first* appeared after a notice is evidence (rule 17): this client may never have listed again."""
    state = connected(replace(ScopeState(), lists=tools("old")), "c1")
    state = announced(announced(state, tools()), tools("old"))

    assert not relists(called(state, "c1", "old"), "c1")


def test_what_one_connection_shows_says_nothing_of_another():
    """Also when they share a scope."""
    state = connected(connected(ScopeState(), "c1"), "c2")
    state = called(announced(state, tools("new")), "c1", "new")

    assert relists(state, "c1")
    assert not relists(state, "c2")


def test_a_connection_made_after_a_notice_learns_nothing_from_it():
    """It began with the list that has the tool."""
    state = connected(announced(ScopeState(), tools("new")), "late")

    assert not relists(called(state, "late", "new"), "late")


@pytest.mark.parametrize("connection", [None, "unknown"])
def test_without_a_connection_there_is_no_evidence(connection: str | None):
    """The modern era has none (rule 17)."""
    state = announced(connected(ScopeState(), "c1"), tools("new"))

    assert called(state, connection, "new") is state
    assert not relists(state, connection)


def test_the_same_lists_announced_again_change_nothing():
    """The very same object: no notice."""
    state = announced(connected(ScopeState(), "c1"), tools("new"))

    assert announced(state, tools("new")) is state
    assert announced(state, Lists(digests={"tools": "other"}, tools=frozenset({"new"}))) is not state


def test_a_connection_is_known_from_its_begin_to_its_end():
    """Knowing it twice and forgetting a stranger change nothing."""
    state = connected(ScopeState(), "c1")

    assert connected(state, "c1") is state
    assert disconnected(state, "stranger") is state
    assert disconnected(connected(state, "c2"), "c2") == state


names = st.sampled_from(("t1", "t2", "t3"))
events = st.lists(
    st.one_of(
        st.tuples(st.just("connect"), st.just("")),
        st.tuples(st.just("disconnect"), st.just("")),
        st.tuples(st.just("call"), names),
        st.tuples(st.just("announce"), st.sets(names)),
    ),
    max_size=12,
)


@law
@given(events)
def test_a_connection_relists_exactly_when_it_called_what_first_appeared_after_a_notice(
    events: list[tuple[str, str | set[str]]],
):
    """Against a model that remembers everything that the connection was ever shown, and how."""
    state, listed = ScopeState(), set[str]()
    here, first, told, proven = False, set[str](), set[str](), False
    for event, value in events:
        match event, value:
            case "connect", _:
                state = connected(state, "c")
                if not here:
                    here, first, told, proven = True, set(listed), set(), False
            case "disconnect", _:
                state, here, proven = disconnected(state, "c"), False, False
            case "call", str(name):
                state = called(state, "c", name)
                proven = proven or (here and name in told - first)
            case _, set() as now:
                state, listed = announced(state, tools(*now)), now
                told |= now
            case _:
                raise AssertionError(event)
        assert relists(state, "c") is proven


# --- resources that tool results hand out ----------------------------------------------------------------------------


def test_handed_out_resources_are_remembered_with_the_server_that_did():
    """The last one to hand a URI out is asked for it."""
    state = handed_out(ScopeState(), "gh", ["x:1", "x:2"])
    state = handed_out(state, "gl", ["x:1"])

    assert dict(state.handed_out) == {"x:2": "gh", "x:1": "gl"}


def test_nothing_new_handed_out_changes_nothing():
    """The very same object."""
    state = handed_out(ScopeState(), "gh", ["x:1"])

    assert handed_out(state, "gh", ["x:1"]) is state
    assert handed_out(state, "gh", []) is state


@law
@given(st.lists(st.tuples(st.sampled_from(("gh", "gl")), st.integers(0, 1500), st.integers(0, 1500)), max_size=4))
def test_no_scope_remembers_more_than_the_limit(calls: list[tuple[str, int, int]]):
    """Whatever the servers hand out; the newest stay."""
    state = ScopeState()
    for server, start, count in calls:
        uris = [f"x:{number}" for number in range(start, start + count)]
        state = handed_out(state, server, uris)
        assert len(state.handed_out) <= HANDED_OUT_LIMIT
        assert all(state.handed_out[uri] == server for uri in uris[-HANDED_OUT_LIMIT:])


def test_what_is_handed_out_again_is_new_again():
    """The oldest beyond the limit are forgotten, not what the last result but one has named."""
    state = handed_out(ScopeState(), "gh", [f"x:{number}" for number in range(HANDED_OUT_LIMIT)])
    state = handed_out(state, "gh", ["x:0"])
    state = handed_out(state, "gh", ["x:new"])

    assert "x:0" in state.handed_out
    assert "x:1" not in state.handed_out


def test_a_scope_is_named_in_logs_without_what_opens_it():
    """A session's id is as good as a key: only its beginning is shown."""
    named = [
        str(scope)
        for scope in (
            ScopeId("process"),
            ScopeId("namespace", "a"),
            ScopeId("namespace", "a", "alice"),
            ScopeId("principal", "alice", "alice"),
            ScopeId("session", "0123456789abcdef", "alice"),
        )
    ]

    assert named == ["process", "namespace a", "namespace a of alice", "principal alice", "session 01234567… of alice"]
