"""Transitions of a scope's state."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.scope import (
    HANDED_OUT_LIMIT,
    HEAP_LIMIT,
    MODERN_CLIENTS_LIMIT,
    Evidence,
    ScopeId,
    ScopeState,
    announced,
    begun,
    client_key,
    client_scope,
    connected,
    disconnected,
    evidence_of,
    handed_out,
    instructed,
    missed_read,
    observed_after_result,
    put,
    reread_in_time,
    saw_call_route,
    started,
)
from tests.core.strategies import law


@law
@given(names=st.sets(st.text()), connection=st.text())
def test_no_transition_changes_a_state_in_place(names: set[str], connection: str):
    """The record that somebody else holds stays what it was."""
    for state in (ScopeState(), announced(connected(ScopeState(), connection), tools(*names))):
        before = repr(state)

        for changed in (state, connected(state, connection), connected(state, "another")):
            announced(changed, tools(*names, "new"))
            missed_read(changed, connection)
            observed_after_result(changed, connection, read=True)
            reread_in_time(changed, connection)
            saw_call_route(changed, MODERN)
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

MODERN = client_key(None, "client", "1")


def tools(*names: str) -> dict[str, str]:
    """The lists of a scope with these tools."""
    return {"tools": " ".join(sorted(names))}


def test_what_one_client_shows_says_nothing_of_another():
    """Also when they share a scope, and are of one era."""
    state = connected(connected(ScopeState(), "c1"), "c2")
    other = client_key(None, "client", "2")
    state = saw_call_route(saw_call_route(state, MODERN), other)

    state = reread_in_time(reread_in_time(state, "c1"), MODERN)

    assert evidence_of(state, "c1").rereads_in_time
    assert evidence_of(state, MODERN).rereads_in_time
    assert evidence_of(state, "c2") == Evidence()
    assert evidence_of(state, other) == Evidence(sees_call_route=True)


def test_a_modern_client_is_known_by_name_and_version():
    """It has no connection; the names of no two kinds of clients meet."""
    assert len({client_key(None, "a", "1"), client_key(None, "a", "2"), client_key(None, "b", "1"), "a/1"}) == 4
    assert client_key("c1", "a", "1") == "c1"
    assert client_key(None, "", "") not in ("", "c1")


@pytest.mark.parametrize("client", ["unknown", "modern"])
def test_nothing_is_known_of_a_connection_that_is_not_there(client: str):
    """What a request does whose connection has ended meanwhile leaves nothing behind."""
    state = connected(ScopeState(), "c1")

    assert reread_in_time(state, client) is state
    assert missed_read(state, client) is state
    assert observed_after_result(state, client, read=True) is state
    assert saw_call_route(state, client) is state
    assert evidence_of(state, client) == Evidence()


@pytest.mark.parametrize("client", ["c1", MODERN])
def test_a_read_in_time_clears_the_misses_before_it(client: str):
    """What is known of reads after results, too; that it has read in time stays known after the next miss."""
    state = observed_after_result(
        missed_read(missed_read(connected(ScopeState(), "c1"), client), client), client, read=True
    )
    assert evidence_of(state, client) == Evidence(missed_reads=2, rereads_after_result=True)

    state = reread_in_time(state, client)
    assert evidence_of(state, client) == Evidence(rereads_in_time=True)
    assert reread_in_time(state, client) is state

    assert evidence_of(missed_read(state, client), client) == Evidence(rereads_in_time=True, missed_reads=1)


def test_a_read_after_a_result_counts_until_one_is_missed_there_too():
    """The last observation holds."""
    state = observed_after_result(connected(ScopeState(), "c1"), "c1", read=True)
    assert evidence_of(state, "c1").rereads_after_result
    assert observed_after_result(state, "c1", read=True) is state
    assert not evidence_of(observed_after_result(state, "c1", read=False), "c1").rereads_after_result


def test_a_client_that_was_shown_the_other_way_to_call_keeps_it():
    """Whatever it shows later."""
    state = saw_call_route(connected(ScopeState(), "c1"), "c1")
    assert saw_call_route(state, "c1") is state

    assert evidence_of(reread_in_time(state, "c1"), "c1").sees_call_route


def test_so_many_modern_clients_of_a_scope_are_remembered():
    """The newest ones; connections, which are forgotten when they end, have no part in it."""
    state = connected(ScopeState(), "c1")
    clients = [client_key(None, "client", str(number)) for number in range(MODERN_CLIENTS_LIMIT + 2)]
    for client in clients:
        state = saw_call_route(state, client)

    assert [*state.evidence] == ["c1", *clients[2:]]
    assert reread_in_time(state, clients[5]).evidence.keys() == state.evidence.keys()


def test_the_same_lists_announced_again_change_nothing():
    """The very same object: no notice."""
    state = announced(connected(ScopeState(), "c1"), tools("new"))

    assert announced(state, tools("new")) is state
    assert announced(state, {"tools": "other"}) is not state


def test_the_version_of_a_list_of_tools_counts_its_changes():
    """Other lists have no part in it."""
    state = ScopeState()
    versions: list[int] = []
    for digests in ({"tools": "a"}, {"tools": "a", "prompts": "b"}, {"tools": "b", "prompts": "b"}, {"tools": "a"}):
        state = announced(state, digests)
        versions.append(state.tools_version)

    assert versions == [1, 1, 2, 3]


def test_a_connection_is_known_from_its_begin_to_its_end():
    """Knowing it twice and forgetting a stranger change nothing."""
    state = connected(ScopeState(), "c1")

    assert connected(state, "c1") is state
    assert disconnected(state, "stranger") is state
    assert disconnected(connected(state, "c2"), "c2") == state


events = st.lists(
    st.sampled_from(("connect", "disconnect", "in time", "missed", "after", "not after", "shown")), max_size=16
)


def after(state: ScopeState, event: str, client: str) -> ScopeState:
    """The state after `client` did that."""
    match event:
        case "connect":
            return connected(state, client)
        case "disconnect":
            return disconnected(state, client)
        case "in time":
            return reread_in_time(state, client)
        case "missed":
            return missed_read(state, client)
        case "shown":
            return saw_call_route(state, client)
        case _:
            return observed_after_result(state, client, read=event == "after")


@law
@given(events)
def test_evidence_is_of_what_was_seen_since_a_connection_began(events: list[str]):
    """Nothing before it, or after its end, counts."""
    state = ScopeState()
    for event in events:
        state = after(state, event, "c")

    begun_last = max(
        (place for place, event in enumerate(events) if event == "connect" and _is_new(events, place)), default=None
    )
    ended = begun_last is None or "disconnect" in events[begun_last:]
    since = [] if begun_last is None or ended else events[begun_last:]
    known = evidence_of(state, "c")
    assert ("c" in state.evidence) is not ended
    assert known.rereads_in_time == ("in time" in since)
    assert known.sees_call_route == ("shown" in since)
    behind = since[len(since) - since[::-1].index("in time") :] if "in time" in since else since
    assert known.missed_reads == behind.count("missed")
    observed = [event for event in behind if event in ("after", "not after")]
    assert known.rereads_after_result == (observed[-1:] == ["after"])


def _is_new(events: list[str], place: int) -> bool:
    """Whether the connection that begins at that place was not there before."""
    before = [event for event in events[:place] if event in ("connect", "disconnect")]
    return before[-1:] != ["connect"]


# --- resources that tool results hand out ----------------------------------------------------------------------------


def test_whose_instructions_were_given_is_remembered_while_another_skill_of_theirs_is_active():
    """`known` are the servers of these; what was given before is not, once no skill of theirs is."""
    state = instructed(ScopeState(), ["gh"], [])

    assert state.instructed == {"gh"}
    assert instructed(state, ["gl"], ["gh", "gl"]).instructed == {"gh", "gl"}
    assert instructed(state, ["gl"], ["gl"]).instructed == {"gl"}
    assert instructed(state, [], []).instructed == frozenset()
    assert instructed(state, [], ["gh"]) is state


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


def test_the_scope_of_a_client_goes_by_namespace_first():
    """A namespace is its principal's own; a principal alone is a scope; without both there is the process."""
    assert client_scope("work", None) == ScopeId("namespace", "work")
    assert client_scope("work", "ada") == ScopeId("namespace", "work", "ada")
    assert client_scope(None, "ada") == ScopeId("principal", "ada", "ada")
    assert client_scope(None, None) == ScopeId("process")
