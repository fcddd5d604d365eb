"""What waits for a client is bounded in number and in bytes, alone and beside others; what is dropped is said once."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.byte_budget import GUARANTEED_BYTES, MAX_BYTES_FOR_CLIENTS, ByteBudget, message_size
from proxy.core.inventory import Listed
from proxy.core.waiting_messages import LOG_MESSAGE, WaitingMessages
from tests.core.strategies import law

CHANGED = "notifications/tools/list_changed"
KIB = 1024


def queue(limit: int = 10 * KIB, most: int = 5, budget: ByteBudget | None = None) -> WaitingMessages:
    return WaitingMessages((budget or ByteBudget()).share(limit), most)


def logged(text: str) -> dict[str, Any]:
    return {"level": "error", "data": text}


def all_of(waiting: WaitingMessages) -> list[str]:
    """What is taken until nothing waits: the data of log messages, the methods of others."""
    found: list[str] = []
    while waiting:
        method, params = waiting.take()
        found.append(params["data"] if method == LOG_MESSAGE else method)
    return found


def test_what_fits_comes_in_its_order_and_what_is_replaced_once():
    waiting = queue()
    waiting.put("a", CHANGED, {})
    waiting.put("b", LOG_MESSAGE, logged("one"))
    waiting.put("a", CHANGED, {})

    assert all_of(waiting) == [CHANGED, "one"]


def test_log_messages_go_first_the_oldest_of_them_and_one_word_says_how_many():
    waiting = queue(most=3)
    waiting.put("a", CHANGED, {})
    for number in range(5):
        waiting.put(number, LOG_MESSAGE, logged(str(number)))

    assert all_of(waiting) == ["3 log messages were dropped here, which were not taken in time", CHANGED, "3", "4"]
    waiting.put(1, LOG_MESSAGE, logged("x" * 20 * KIB))
    assert all_of(waiting) == ["1 log message was dropped here, which were not taken in time"]


def test_of_other_messages_the_oldest_go_without_a_word():
    waiting = queue(most=2)
    for name in ("a", "b", "c"):
        waiting.put(name, name, {})

    assert all_of(waiting) == ["b", "c"]


def test_bytes_are_counted_of_what_waits_and_of_all_that_wait_together():
    budget = ByteBudget(64 * KIB)
    one, other = queue(48 * KIB, 1000, budget), queue(48 * KIB, 1000, budget)
    for number in range(20):
        one.put(number, LOG_MESSAGE, logged("x" * 4 * KIB))
    assert 40 * KIB < budget.used <= 48 * KIB
    for number in range(20):
        other.put(number, LOG_MESSAGE, logged("x" * 4 * KIB))
    assert budget.used <= 64 * KIB + GUARANTEED_BYTES
    assert [len(all_of(each)) for each in (one, other)] == [12, 5]
    assert budget.used == 0


def test_a_queue_keeps_what_is_guaranteed_where_others_have_used_up_all():
    budget = ByteBudget(10 * KIB)
    greedy, modest = queue(48 * KIB, 1000, budget), queue(48 * KIB, 1000, budget)
    greedy.put(1, "notifications/other", {"x": "x" * 15 * KIB})
    for number in range(3):
        modest.put(number, LOG_MESSAGE, logged(str(number)))

    assert all_of(modest) == ["0", "1", "2"]


def test_what_has_to_be_said_again_comes_first_and_once():
    budget = ByteBudget()
    waiting = queue(budget=budget)
    waiting.put("a", LOG_MESSAGE, logged("one"))
    waiting.put_first(CHANGED, CHANGED, {})
    waiting.put_first(CHANGED, CHANGED, {})

    assert budget.used == message_size({}) + message_size(logged("one"))
    assert all_of(waiting) == [CHANGED, "one"]


def test_nothing_waits_once_all_is_forgotten():
    budget = ByteBudget()
    waiting = queue(most=1, budget=budget)
    for number in range(3):
        waiting.put(number, LOG_MESSAGE, logged(str(number)))
    waiting.clear()

    assert not waiting
    assert budget.used == 0


@law
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 5000)), max_size=40), st.integers(1, 8))
def test_a_queue_never_holds_more_than_its_share(steps: list[tuple[int, bool, int]], most: int):
    budget = ByteBudget()
    waiting = queue(10 * KIB, most, budget)
    count = 0
    for key, logs, size in steps:
        waiting.put(key, LOG_MESSAGE if logs else CHANGED, logged("x" * size))
        assert budget.used <= 10 * KIB
    while waiting:
        count += 1
        waiting.take()
    assert budget.used == 0
    assert count <= most + 1


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"a": [1, "é"]}, 14),
        (None, 4),
        ({"a": 2**70}, len('{"a": ' + str(2**70) + "}")),
        ({"a": "\ud800"}, 10),
    ],
)
def test_the_size_is_that_of_the_json(value: Any, size: int):
    assert abs(message_size(value) - size) <= 3


def test_a_list_that_is_sent_again_and_again_is_measured_once():
    listed = Listed([{"name": "a"}])

    assert message_size({"tools": listed}) == message_size({"tools": listed}) == len('[{"name":"a"}]')
    assert listed.encoded == b'[{"name":"a"}]'
    assert json.loads(listed.encoded) == listed


def test_what_is_nested_beyond_measure_is_larger_than_anything():
    deep: Any = []
    for _ in range(2000):
        deep = [deep]

    assert message_size(deep) == MAX_BYTES_FOR_CLIENTS
