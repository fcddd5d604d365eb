"""What principals use, counted: nobody takes what is another's, and everything that was taken is given back."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from proxy.core.catalogue import Catalogue
from proxy.core.errors import PastLimit
from proxy.core.limits import LIMIT_NAMES, UNLIMITED, LimitName, Limits
from proxy.core.names import Naming
from proxy.core.profiles import Policy
from proxy.core.scope import ScopeId
from proxy.core.settings import PerKind, Settings
from proxy.gateway.quotas import Quotas, Slot

NOTHING = Policy(Catalogue((), Naming({})))
ALICE, BOB = ScopeId("namespace", "n", "alice"), ScopeId("namespace", "n", "bob")
USERS = ("alice", "bob", "carol")
BOUND = 10


def settings(limits: Limits | None = None) -> Settings:
    most = PerKind(session=BOUND, namespace=BOUND, principal=BOUND)
    return Settings(tokens={user: user for user in USERS}, limits=limits or Limits(), max_scopes=most)


def quotas(limits: Limits | None = None) -> Quotas:
    return Quotas(NOTHING, settings(limits))


def refused(do: Callable[[], object]) -> PastLimit:
    with pytest.raises(PastLimit) as raised:
        do()
    return raised.value


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> "Time":
    """A clock that stands at the beginning of a minute until the test moves it."""
    found = Time()
    monkeypatch.setattr(time, "time", lambda: found.now)
    return found


class Time:
    now = 60_000_000.0


STEPS = st.lists(st.tuples(st.sampled_from(USERS), st.booleans()), max_size=80)


@given(STEPS, st.sampled_from(("sessions", "namespaces")))
def test_no_order_of_events_lets_a_principal_take_the_share_of_another(steps: list[tuple[str, bool]], limit: LimitName):
    """Each has its part whatever the others do, all together keep to the bound, and what was given back is free."""
    counted = quotas()
    part = BOUND // len(USERS)
    held: dict[str, list[Slot]] = {user: [] for user in USERS}
    for user, more in steps:
        scope = ScopeId("namespace", "n", user)
        if not more:
            if held[user]:
                held[user].pop().give_back()
        elif len(held[user]) < part:
            held[user].append(counted.take(limit, scope))
        else:
            assert refused(lambda scope=scope: counted.take(limit, scope)).most == part
        assert sum(map(len, held.values())) <= BOUND
    for slots in held.values():
        for slot in slots:
            slot.give_back()
    assert not counted._counts


@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from(USERS), st.booleans()), max_size=60))
def test_namespaces_count_while_they_live(steps: list[tuple[int, str, bool]]):
    """Once each, however often one begins or ends, and none where it was refused."""
    counted, live = quotas(Limits(namespaces=3)), set[ScopeId]()
    for number, user, begins in steps:
        scope = ScopeId("namespace", str(number), user)
        if not begins:
            counted.end(scope)
            live.discard(scope)
        elif scope in live or Counter(each.user for each in live)[user] < 3:
            counted.check_room(scope)
            assert counted.begin(scope) is (scope not in live)
            live.add(scope)
        else:
            refused(lambda scope=scope: counted.check_room(scope))
            refused(lambda scope=scope: counted.begin(scope))
    for scope in live:
        counted.end(scope)
    assert not counted._counts


def test_scopes_of_other_kinds_are_no_namespaces():
    """A session is counted where it is opened, and of a principal or process there is one."""
    counted = quotas(Limits(namespaces=1))
    for kind in ("session", "principal", "process"):
        for name in ("a", "b"):
            counted.check_room(ScopeId(kind, name, "alice"))
            assert not counted.begin(ScopeId(kind, name, "alice"))
            counted.end(ScopeId(kind, name, "alice"))


def test_a_slot_is_given_back_once():
    """A second time does nothing."""
    counted = quotas(Limits(held_questions=2))
    first, _ = counted.take("held_questions", ALICE), counted.take("held_questions", ALICE)
    first.give_back()
    first.give_back()
    with counted.take("held_questions", ALICE):
        refused(lambda: counted.take("held_questions", ALICE))


@pytest.mark.anyio
async def test_calls_that_fail_or_are_cancelled_give_back_their_place():
    """As those do that end well."""
    counted = quotas(Limits(calls_in_flight=1))
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), counted.call(ALICE):
            raise ZeroDivisionError
        with anyio.CancelScope() as cancelled, counted.call(ALICE):
            cancelled.cancel()
            await anyio.sleep_forever()
        with counted.call(ALICE), counted.call(BOB):
            error = refused(lambda: counted.call(ALICE).__enter__())
            assert (error.limit, error.most, error.retry_after) == ("calls_in_flight", 1, 1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def calls(counted: Quotas, scope: ScopeId) -> int:
    """How many more calls can be made now."""
    for made in count():
        try:
            with counted.call(scope):
                pass
        except PastLimit:
            return made
    raise AssertionError


def test_calls_of_a_minute_are_counted_for_each_principal(clock: Time):
    """There is room again at the time that was told, and not before; a refused call is not counted."""
    counted = quotas(Limits(calls_per_minute=30))
    clock.now += 20
    assert (calls(counted, ALICE), calls(counted, ALICE), calls(counted, BOB)) == (30, 0, 30)
    error = refused(lambda: counted.call(ALICE).__enter__())
    assert (error.limit, error.setting) == ("calls_per_minute", "proxy.limits.calls_per_minute")
    clock.now += error.retry_after - 1
    assert calls(counted, ALICE) == 0
    clock.now += 1
    assert calls(counted, ALICE) == 1
    clock.now += 120
    assert calls(counted, ALICE) == 30
    assert not counted._counts


def test_calls_of_steps_are_counted_and_never_refused(clock: Time):
    """What they are too many, the client's next calls wait for."""
    counted = quotas(Limits(calls_per_minute=30))
    for _ in range(90):
        counted.count_step(ALICE)
    assert (calls(counted, ALICE), calls(counted, BOB)) == (0, 30)
    error = refused(lambda: counted.call(ALICE).__enter__())
    assert error.retry_after == 101
    clock.now += error.retry_after
    assert calls(counted, ALICE) == 2  # of 90, three in two seconds leave the window


def test_without_a_limit_calls_are_not_counted():
    """Of clients, and of steps."""
    counted = quotas(Limits(calls_per_minute=UNLIMITED, calls_in_flight=UNLIMITED))
    with ExitStack() as stack:
        for _ in range(2000):
            counted.count_step(ALICE)
            stack.enter_context(counted.call(ALICE))
    assert counted._rate is None


def test_what_is_over_is_not_remembered(clock: Time):
    """Of each principal two minutes are."""
    counted = quotas()
    for _ in range(10):
        for number in range(100):
            counted.count_step(ScopeId("principal", str(number), str(number)))
        clock.now += 60
    assert counted._rate is not None
    assert len(counted._rate.storage) == len(counted._rate.expirations) <= 200


@pytest.mark.parametrize("limit", sorted({*LIMIT_NAMES} - {"processes", "calls_per_minute"}))
def test_a_changed_limit_counts_at_once_and_ends_nothing(limit: LimitName):
    """What is in use stays, and counts by the new one."""
    counted = quotas(Limits(**{limit: 3}))
    held = [counted.take(limit, ALICE) for _ in range(3)]
    counted.adopt(NOTHING, settings(Limits(**{limit: 2})))
    held.pop().give_back()
    assert refused(lambda: counted.take(limit, ALICE)).most == 2
    held.pop().give_back()
    held.append(counted.take(limit, ALICE))
    counted.adopt(NOTHING, settings(Limits(**{limit: 4})))
    held += [counted.take(limit, ALICE) for _ in range(2)]
    refused(lambda: counted.take(limit, ALICE))


def test_a_changed_limit_of_calls_counts_those_that_were_made(clock: Time):
    """Also where it was lowered below them."""
    counted = quotas(Limits(calls_per_minute=10))
    assert calls(counted, ALICE) == 10
    counted.adopt(NOTHING, settings(Limits(calls_per_minute=15)))
    assert calls(counted, ALICE) == 5
    counted.adopt(NOTHING, settings(Limits(calls_per_minute=5)))
    error = refused(lambda: counted.call(ALICE).__enter__())
    clock.now += error.retry_after - 1
    assert calls(counted, ALICE) == 0
    clock.now += 1
    assert calls(counted, ALICE) == 1


def test_refusals_are_logged_once_a_minute():
    """For each user and limit: a client that never stops fills no log."""
    now = 0.0
    counted = Quotas(NOTHING, settings(Limits(held_questions=1)), lambda: now)
    with counted.take("held_questions", ALICE), counted.take("held_questions", BOB), capture_logs() as logs:
        for at in (0.0, 0.0, 59.0, 60.0, 61.0):
            now = at
            refused(lambda: counted.take("held_questions", ALICE))
        refused(lambda: counted.take("held_questions", BOB))
    assert [entry["user"] for entry in logs] == ["alice", "alice", "bob"]
    setting = "proxy.limits.held_questions"
    assert logs[0] == {
        "event": "limit.reached",
        "log_level": "warning",
        "limit": "held_questions",
        "most": 1,
        "setting": setting,
        "user": "alice",
    }
