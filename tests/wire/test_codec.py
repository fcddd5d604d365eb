"""Messages to JSON and back."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.codec import dumps, loads
from tests.core.strategies import law

texts = st.text(st.characters(exclude_categories=[])) | st.sampled_from(["", "\ud800", "\udfff\u2028", "é👍", "\x00\n"])
numbers = st.integers() | st.integers(-(10**400), 10**400) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@law
@given(value=values)
def test_what_is_written_is_read_again(value: object):
    """Integers of any size, floats to the last bit, every string, half of a surrogate pair too; by anybody."""
    line = dumps(value)

    assert b"\n" not in line
    assert same(loads(line), value)
    assert same(json.loads(line), value)


@law
@given(value=values, indent=st.sampled_from([None, 1]))
def test_what_others_write_is_read_as_they_meant_it(value: object, indent: int | None):
    """However they write it."""
    assert same(loads(json.dumps(value, indent=indent).encode()), value)


def same(one: object, other: object) -> bool:
    """Equal, and of the same types: 1 is not 1.0, nor True, and 0.0 not -0.0."""
    return repr(one) == repr(other)


@pytest.mark.parametrize("line", [b"", b" ", b"{", b"log line", b"\xff", b"[1,]", b'{"a": 1} {', b"[" * 100_000])
def test_what_is_no_json_is_told(line: bytes):
    """As one kind of error, also what is nested too deeply."""
    with pytest.raises(ValueError):
        loads(line)


def test_bytes_that_are_no_utf_8_cost_themselves_alone():
    """They are replaced, and a byte order mark is dropped."""
    assert loads(b'{"a": "caf\xe9"}') == {"a": "caf\ufffd"}
    assert loads("\ufeff{}".encode()) == {}


def test_numbers_that_json_cannot_say_are_read_and_become_null():
    """Some servers write NaN; nobody is sent it."""
    assert math.isnan(loads(b'{"a": NaN}')["a"])
    assert dumps({"a": math.nan, "b": math.inf}) == b'{"a":null,"b":null}'


@pytest.mark.parametrize("value", [object(), {"a": {1, object()}}, ["\ud800", math.nan]])
def test_what_json_cannot_say_is_told(value: object):
    """As one kind of error."""
    with pytest.raises(ValueError):
        dumps(value)


def test_what_is_nested_deeply_is_read_and_written_and_what_is_too_deep_is_not_read():
    """What is read has to be written again, also by what is less patient."""
    line = b"[" * 190 + b"]" * 190
    assert dumps(loads(line)) == line
    with pytest.raises(ValueError, match="too deeply"):
        loads(b"[" * 300 + b"]" * 300)
