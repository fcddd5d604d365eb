"""Free values have the types of YAML's core schema (design rule 21)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.core_schema import of_node, of_text
from proxy.config.parser import composed
from proxy.config.problems import Refused


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *[(null, None) for null in ("", "~", "null", "Null", "NULL")],
        *[("true", True), ("True", True), ("TRUE", True), ("false", False), ("False", False), ("FALSE", False)],
        *[("0", 0), ("7", 7), ("-19", -19), ("+3", 3), ("0123", 123), ("0o14", 12), ("0x3A", 58), ("-0", 0)],
        *[("1.10", 1.1), (".5", 0.5), ("-0.0", -0.0), ("12e03", 12000.0), ("-2E+05", -200000.0), ("1.", 1.0)],
        ("1" * 309, int("1" * 309)),
    ],
)
def test_a_plain_value_has_the_type_that_it_looks_like(written, value):
    read = of_text(f"a: {written}\n", "f")
    assert read == {"a": value}
    assert isinstance(read, dict)
    assert type(read["a"]) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        *("yes", "no", "on", "off", "y", "tRUE", "nULL", "none", "None"),
        *("12:30", "12:30:45", "2026-11-05", "2026-11-05T10:00:00Z", "1_000", "0b11", "0o8", "0xG", "-0x1", "+0o7"),
        *(".inf", "-.inf", ".nan", "1e999", "9" * 310, "0x" + "f" * 400, "1e", "e1", ".", "+", "٣", "1 2"),
    ],
)
def test_all_else_is_text(text):
    """As are numbers that JSON has not, or that are out of range."""
    assert of_text(f"a: {text}\n", "f") == {"a": text}


@pytest.mark.parametrize("written", ["'3'", '"3"', "!!str 3", "|-\n  3", ">-\n  3", "! 3"])
def test_what_is_quoted_is_text(written):
    assert of_text(f"a: {written}\n", "f") == {"a": "3"}


def test_lists_and_mappings_hold_typed_values():
    """Keys are text; aliases and merges mean what YAML says."""
    text = "1: &a {x: 1, y: [true, ~, '~']}\nb: *a\nc: {<<: *a, x: 2}\n"
    inner = [True, None, "~"]
    expected = {"1": {"x": 1, "y": inner}, "b": {"x": 1, "y": inner}, "c": {"x": 2, "y": inner}}
    assert of_text(text, "f") == expected
    node = composed(text, "f")
    assert node is not None
    assert of_node(node, "f") == expected


def test_a_text_without_a_value_is_null():
    assert of_text("# nothing\n", "f") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\na: 2\n", "f:2: a: given twice (first on line 1): keep one"),
        ("a: !!int '3'\n", "f:1: a: the tag !!int means nothing here: remove it"),
        ("? [a]\n: b\n", "f:1: a key must be text, not a list or a mapping"),
        ("a: [1\n", "f:1: a [ opens here and is not closed"),
        ("a: &a [*a]\n", "f:1: a[0]: an alias stands inside what it names"),
        ("a: &a [1, 2, 3]\nb: [*a, *a, *a]\n", "f:1: b[1]: more than 12 values once the aliases are expanded"),
    ],
)
def test_what_has_no_single_meaning_is_refused(text, problem):
    with pytest.raises(Refused) as refused:
        of_text(text, "f", 12)
    assert str(refused.value) == problem


_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
_SCALARS = st.none() | st.booleans() | st.integers() | _TEXTS


@given(st.recursive(_SCALARS, lambda inner: st.lists(inner) | st.dictionaries(_TEXTS, inner)))
def test_json_is_read_as_what_it_says(value):
    assert of_text(json.dumps(value), "f") == value
