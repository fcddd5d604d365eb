"""Limits by arithmetic alone: shares that leave room for others, and the time until there is room again."""

from math import inf
from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.core.allowances import Account, Allowances
from proxy.core.catalogue import Catalogue
from proxy.core.errors import LIMIT_REACHED, PastLimit
from proxy.core.limits import (
    LIMIT_NAMES,
    UNLIMITED,
    WINDOW_S,
    LimitName,
    Limits,
    seconds_until_room,
    share,
    whole_seconds,
)
from proxy.core.names import Naming
from proxy.core.profiles import EVERYBODY, Policy, Profile
from proxy.core.scope import ScopeId
from proxy.core.settings import PerKind, Settings, every_kind

NOTHING = Catalogue((), Naming({}))
BOUNDS = PerKind(session=100, namespace=20, principal=5)
ALICE = ScopeId("namespace", "ci-1", "alice")


def allowances(*profiles: Profile, users: int = 2, limits: Limits | None = None) -> Allowances:
    tokens = {f"user-{number}": str(number) for number in range(users)}
    settings = Settings(tokens=tokens, limits=limits or Limits(), max_scopes=BOUNDS)
    return Allowances(Policy(NOTHING, profiles or (EVERYBODY,)), settings, BOUNDS)


@given(st.integers(1, 10**6), st.integers(2, 1000))
def test_all_shares_together_fit_the_bound(bound: int, principals: int):
    """So that what one principal uses is never another's; where the bound is lower than their number, each may one."""
    part = share(bound, principals)
    assert part >= 1
    assert part * principals <= max(bound, principals)


def test_who_is_alone_may_use_all():
    """There is nobody to leave room for."""
    assert share(10, 1) == UNLIMITED


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 3000), st.floats(0, 59.999))
def test_there_is_room_after_the_time_that_is_told(previous: int, current: int, most: int, passed: float):
    """And none a second before, as long as nothing else is called; two minutes are the longest."""
    left = WINDOW_S - passed
    wait = seconds_until_room(previous, left, current, most)
    assert 0 <= wait <= 2 * WINDOW_S
    told = whole_seconds(wait)
    assert wait < told <= wait + 1.001
    assert used(previous, current, passed + told) < most
    assume(wait > 1)
    assert used(previous, current, passed + wait - 1) >= most


def used(previous: int, current: int, at: float) -> float:
    """What counts `at` seconds after the current window has begun, where nothing is called any more."""
    windows, passed = divmod(at, WINDOW_S)
    before, now = ((previous, current), (current, 0), (0, 0))[min(2, int(windows))]
    return before * (WINDOW_S - passed) / WINDOW_S + now


def test_the_names_are_those_of_the_fields():
    """Each limit is counted by its name."""
    assert get_args(LimitName) == LIMIT_NAMES


def test_the_profile_wins_over_the_settings_and_these_over_the_defaults():
    """Each limit by itself; what a profile says is counted within it, for each user."""
    ci = Profile(namespace="ci-*", limits=Limits(calls_per_minute=60, sessions=UNLIMITED))
    known = allowances(ci, EVERYBODY, limits=Limits(calls_per_minute=600, namespaces=7))
    assert known.of("calls_per_minute", ALICE) == ("calls_per_minute", Account("alice", ("ci-*", None)), 60)
    assert known.of("calls_per_minute", ALICE).setting == "limits.calls_per_minute of the profile"
    assert known.of("sessions", ALICE).most == inf
    assert known.of("namespaces", ALICE) == ("namespaces", Account("alice"), 7)
    assert known.of("namespaces", ALICE).setting == "proxy.limits.namespaces"
    elsewhere = ScopeId("principal", "alice", "alice")
    assert known.of("calls_per_minute", elsewhere) == ("calls_per_minute", Account("alice"), 600)
    assert known.of("calls_in_flight", ALICE).most == 1000
    assert known.of("held_questions", ScopeId("process")) == ("held_questions", Account(None), 100)


def test_who_has_no_profile_has_the_limits_of_the_settings():
    """Though nothing exists there."""
    ci = Profile(namespace="ci-*", limits=Limits(sessions=1))
    assert allowances(ci).of("sessions", ScopeId("session", "", "bob")) == ("sessions", Account("bob"), 50)


@pytest.mark.parametrize(("users", "most"), [(0, UNLIMITED), (1, UNLIMITED), (2, 12_000), (50, 12_000)])
def test_calls_of_a_minute_are_bounded_by_default_where_there_are_others(users: int, most: float):
    assert allowances(users=users).of("calls_per_minute", ALICE).most == most


def test_the_defaults_are_parts_of_the_overall_bounds():
    """Of the bound that is reached first, where there are two."""
    known = allowances(users=10)
    assert {limit: known.of(limit, ALICE).most for limit in ("sessions", "namespaces")} == {
        "sessions": 10,
        "namespaces": 2,
    }
    wide = Allowances(Policy(NOTHING), Settings(tokens={"a": "1", "b": "2"}), every_kind(50_000))
    assert wide.of("sessions", ALICE).most == 5000
    assert allowances(users=0).of("sessions", ScopeId("session")).most == UNLIMITED
    assert allowances(users=1).of("sessions", ALICE).most == UNLIMITED


def test_connections_are_shared_at_each_server_unless_processes_says_otherwise():
    """In the settings, or in the profile."""
    assert allowances().of("processes", ALICE).most == UNLIMITED
    assert allowances().at_server(ALICE, 101) == 50
    assert allowances(users=1).at_server(ALICE, 101) == UNLIMITED
    assert allowances(limits=Limits(processes=UNLIMITED)).at_server(ALICE, 101) == UNLIMITED
    ci = Profile(namespace="ci-*", limits=Limits(processes=3))
    assert allowances(ci, EVERYBODY).at_server(ALICE, 101) == UNLIMITED
    assert allowances(ci, EVERYBODY).at_server(ScopeId("session", "s", "bob"), 101) == 50


def test_people_are_told_of_limits_where_there_is_something_to_tell():
    """Of those that are configured, and of the parts of several users."""
    assert allowances(users=0).described() == []
    (line,) = allowances(limits=Limits(sessions=1500), users=0).described()
    assert line.startswith("limits of each user: sessions 1,500, namespaces unlimited, ")
    ci = Profile(namespace="ci-*", limits=Limits(calls_in_flight=UNLIMITED, calls_per_minute=60))
    line, own = allowances(EVERYBODY, ci).described()
    assert line.startswith("limits of each user: sessions 50, namespaces 10, processes unlimited, ")
    assert own == "limits of each user within profiles[1]: calls_in_flight unlimited, calls_per_minute 60"


@pytest.mark.parametrize(("seconds", "wait"), [(1, "1 second"), (12, "12 seconds")])
def test_a_refusal_says_which_limit_it_is_and_when_to_try_again(seconds: int, wait: str):
    """In words, and as data."""
    error = PastLimit("calls_per_minute", 1200, "proxy.limits.calls_per_minute", seconds)
    assert str(error) == (
        f"At most 1,200 calls may be made in a minute (proxy.limits.calls_per_minute): try again in {wait}"
    )
    rejection = error.as_rejection()
    assert (rejection.code, rejection.message) == (LIMIT_REACHED, str(error))
    assert rejection.data == {
        "limit": "calls_per_minute",
        "value": 1200,
        "setting": "proxy.limits.calls_per_minute",
        "retryAfter": seconds,
    }
