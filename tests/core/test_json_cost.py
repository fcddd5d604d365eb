"""How many values a JSON text holds is known before it is parsed; what its strings hold does not count."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import json_cost
from proxy.core.inventory import object_of
from proxy.core.json_cost import BYTES_PER_VALUE, MAX_JSON_VALUES, has_more_values, most_values
from tests.core.strategies import law

TEXTS = st.text(st.sampled_from('a,[{"\\}]é∀\n'), max_size=8)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=30,
)


def structure(value: Any) -> int:
    """Its commas and opening brackets."""
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(0, len(value) - 1) + sum(map(structure, inner))


@law
@given(VALUES, st.booleans(), st.sampled_from([1, 2, 3, 7, 64 * 1024]))
def test_the_count_is_that_of_commas_and_brackets_outside_of_strings(value: Any, escaped: bool, chunk: int):
    text = json.dumps(value, ensure_ascii=escaped).encode()
    count = structure(value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_cost, "CHUNK_BYTES", chunk)
        assert not has_more_values(text, count)
        assert count == 0 or has_more_values(text, count - 1) or len(text) <= count - 1


def test_a_text_in_which_strings_cannot_be_told_is_counted_whole():
    """UTF-16 has the byte of a quotation mark in other characters."""
    assert has_more_values(json.dumps(["∀,,,,"]).encode("utf-16-le"), 3)
    assert not has_more_values(json.dumps(["∀,,,,"]).encode(), 3)


def test_where_requests_may_be_larger_they_may_hold_more():
    assert most_values(1) == most_values(4 * 1024 * 1024 - BYTES_PER_VALUE * 15_000) == MAX_JSON_VALUES
    assert most_values(1024 * 1024 * 1024) == 64 * 1024 * 1024


def test_arguments_as_text_hold_as_many_values_as_a_request_may():
    fitting = json.dumps({"a": [0] * (MAX_JSON_VALUES - 1)})

    assert object_of(fitting) == json.loads(fitting)
    assert object_of(json.dumps({"a": [0] * MAX_JSON_VALUES})) is None
    assert object_of(json.dumps({"a": "," * 2 * MAX_JSON_VALUES})) == {"a": "," * 2 * MAX_JSON_VALUES}
