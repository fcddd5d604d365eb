"""What is expected of clients once their list of tools has changed: by what they have shown, then by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.known_clients import (
    DOES_NOT_REREAD,
    HOLD_FOR_KNOWN_S,
    HOLD_FOR_OTHERS_S,
    MISSES_OF_KNOWN,
    REREADS,
    Rereading,
    hold_seconds,
    is_named,
    rereading,
)
from proxy.core.scope import Evidence
from tests.core.strategies import law


@pytest.mark.parametrize(
    ("client", "patterns", "named"),
    [
        ("claude-code", ["claude-code"], True),
        ("claude-code", ["other", "claude-*"], True),
        ("claude-code", ["claude"], False),
        ("claude-code-2", ["claude-code"], False),
        ("Claude-Code", ["claude-code"], False),
        ("claude-code (via mcp-remote 0.1.37)", ["claude-code"], True),
        ("claude-code (via mcp-remote 0.1.37)", ["claude-code (via mcp-remote 0.1.37)"], False),
        ("claude-code (via a) (via b)", ["claude-code"], False),
        ("claude-code (via mcp-remote 0.1.37) ", ["claude-code"], False),
        ("claude-code(via mcp-remote)", ["claude-code"], False),
        (" (via mcp-remote)", [""], True),
        ("", ["claude-code"], False),
        ("", ["*"], True),
        ("anything", [], False),
        ("a[b]", ["a[b]"], False),
        ("a\nb", ["a*"], True),
    ],
)
def test_a_client_is_known_by_its_name_or_a_pattern(client: str, patterns: list[str], named: bool):
    """Whole and in its own case; a bridge in between, which says so, does not count."""
    assert is_named(client, patterns) is named


@pytest.mark.parametrize("client", REREADS)
def test_clients_that_read_again_are_known_by_name(client: str):
    """After two missed reads in a row it counts as late, and can show again what it does."""
    missed = [rereading(client, Evidence(missed_reads=number), REREADS) for number in range(4)]

    assert missed == ["while_held", "while_held", "late", "late"]
    assert MISSES_OF_KNOWN == 2


@pytest.mark.parametrize("client", REREADS)
def test_a_client_that_reads_again_after_the_result_is_held_briefly(client: str):
    """However many reads it has missed: the next one may come in time."""
    for number in range(3):
        evidence = Evidence(missed_reads=number, rereads_after_result=True)
        assert rereading(client, evidence, REREADS) == "after_result"
    assert hold_seconds("after_result") == HOLD_FOR_OTHERS_S
    assert rereading("some client", Evidence(missed_reads=1, rereads_after_result=True), REREADS) == "none"


@pytest.mark.parametrize("client", [pattern.replace("*", "-v1.0") for pattern in DOES_NOT_REREAD])
def test_clients_that_do_not_read_again_are_known_by_name(client: str):
    """What one of them shows counts more."""
    assert rereading(client, Evidence(), REREADS) == "none"
    assert rereading(client, Evidence(rereads_in_time=True), REREADS) == "while_held"


def test_no_client_is_known_for_both():
    """Nor is one of them named by a pattern of the others."""
    assert not [client for client in REREADS if is_named(client, DOES_NOT_REREAD)]
    assert not [client for client in DOES_NOT_REREAD if is_named(client, REREADS)]


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        (Evidence(), "unknown"),
        (Evidence(missed_reads=1), "none"),
        (Evidence(rereads_in_time=True), "while_held"),
        (Evidence(rereads_in_time=True, missed_reads=1), "while_held"),
        (Evidence(rereads_in_time=True, missed_reads=2), "late"),
        (Evidence(sees_call_route=True), "unknown"),
    ],
)
def test_of_any_other_client_it_counts_what_it_has_shown(evidence: Evidence, expected: Rereading):
    """One missed read is enough for one that never read in time."""
    assert rereading("some client", evidence, REREADS) == expected
    assert rereading("", evidence, REREADS) == expected


def test_the_names_are_those_of_the_configuration():
    """Which takes the place of ours: one that is named there reads again, one that is not is unknown."""
    assert rereading("acme-agent", Evidence(), ["acme-*"]) == "while_held"
    assert rereading("claude-code", Evidence(), ["acme-*"]) == "unknown"
    assert rereading("claude-ai", Evidence(), ["claude-*"]) == "while_held"
    assert rereading("claude-code", Evidence(), []) == "unknown"


def test_a_result_is_held_the_longer_the_more_is_known():
    """In seconds; not at all where nothing is to be expected."""
    assert hold_seconds("while_held") == HOLD_FOR_KNOWN_S == 1.0
    assert hold_seconds("unknown") == hold_seconds("late") == HOLD_FOR_OTHERS_S == 0.15
    assert hold_seconds("none") == 0


evidence = st.builds(
    Evidence, rereads_in_time=st.booleans(), rereads_after_result=st.booleans(), missed_reads=st.integers(0, 5)
)


@law
@given(st.text() | st.sampled_from((*REREADS, *DOES_NOT_REREAD)), evidence)
def test_nobody_waits_for_a_client_for_long_that_never_comes(client: str, known: Evidence):
    """However it is called, and whatever it did before."""
    expected = rereading(client, known, REREADS)

    if known.missed_reads >= MISSES_OF_KNOWN:
        assert hold_seconds(expected) <= HOLD_FOR_OTHERS_S
    if known.missed_reads and not known.rereads_in_time and client not in REREADS:
        assert hold_seconds(expected) == 0
    if known.missed_reads == 0 and known.rereads_in_time:
        assert expected == ("after_result" if known.rereads_after_result else "while_held")
