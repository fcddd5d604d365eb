"""Transitions of a scope's state (design rules 6 and 17)."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.scope import (
    HANDED_OUT_LIMIT,
    HEAP_LIMIT,
    Lists,
    ScopeId,
    ScopeState,
    announced,
    begun,
    called,
    connected,
    disconnected,
    handed_out,
    put,
    relists,
    started,
)
from tests.core.strategies import law


@law
@given(names=st.sets(st.text()), connection=st.text())
def test_no_transition_changes_a_state_in_place(names: set[str], connection: str):
    """The record that somebody else holds stays what it was."""
    for state in (ScopeState(), announced(connected(ScopeState(), connection), Lists(tools=frozenset(names)))):
        before = repr(state)

        for changed in (state, connected(state, connection), connected(state, "another")):
            announced(changed, Lists(tools=frozenset({*names, "new"})))
            called(changed, connection, "new")
            handed_out(changed, "gh", ["x:1"])
            disconnected(changed, connection)
            started(begun(changed, ["a"]))
            put(changed, "name", [*names])

        assert repr(state) == before


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


# --- what skills do by themselves ------------------------------------------------------------------------------------


def test_what_was_due_and_has_begun_is_due_no_more():
    """Where nothing of it was, nothing changes."""
    state = ScopeState(active=("a", "b"), due=frozenset({"a", "b"}))
    assert begun(state, ["a", "c"]).due == {"b"}
    assert begun(state, ["c"]) is state
    assert begun(state, []) is state


def test_a_scope_has_started_once_for_all():
    """What has to be done before its first call is done."""
    assert started(ScopeState()) == started(started(ScopeState())) == ScopeState(started=True)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@law
@given(st.lists(st.tuples(st.sampled_from(("case", "customer")), values), max_size=4))
def test_the_heap_has_what_was_put_there_last(puts: list[tuple[str, Any]]):
    """By name, as it was put."""
    state = ScopeState()
    for name, value in puts:
        after = put(state, name, value)
        assert after is not None
        state = after

    assert state == ScopeState(heap=dict(puts))


@pytest.mark.parametrize("character", ["x", "é", "\ud800"])
def test_a_heap_never_holds_more_than_it_may(character: str):
    """In bytes of the JSON of all of it, to the last one; a value that takes the place of another needs no more."""
    bare = len(json.dumps({"other": 1, "big": ""}).encode())
    most = (HEAP_LIMIT - bare) // len(character.encode("utf-8", "replace"))
    state = put(ScopeState(), "other", 1)
    assert state is not None

    full = put(state, "big", character * most)

    assert full is not None
    assert put(state, "big", character * (most + 1)) is None
    assert put(full, "more", 1) is None
    assert put(full, "big", character) is not None


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
