"""What a skill can be invoked with: the two ways to write it, what is wrong with values, and what is recorded."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.masking import MASK
from proxy.core.parameters import (
    TYPES,
    BadSchema,
    filled,
    invalid,
    masked,
    result_schema_of,
    schema_fault,
    schema_of,
    secrets_in,
)
from tests.core.strategies import law

ALL_TYPES = ", ".join(TYPES)
MISSING = "customer: is required"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 0.5, "a", "1"])
ITEMS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner), max_leaves=4
)


def bad(written: dict[str, Any]) -> str:
    with pytest.raises(BadSchema) as caught:
        schema_of(written)
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "properties", "required"),
    [
        ({"summary": "string"}, {"summary": {"type": "string"}}, ["summary"]),
        ({"title": "string", "format": "string"}, {"title": {"type": "string"}, "format": {"type": "string"}}, None),
        ({"type": "string", "n": "integer"}, {"type": {"type": "string"}, "n": {"type": "integer"}}, None),
        (
            {"a": {"type": "string", "required": False}, "b": {"type": "number", "default": 1}, "c": {"enum": [1]}},
            {"a": {"type": "string"}, "b": {"type": "number", "default": 1}, "c": {"enum": [1]}},
            ["c"],
        ),
    ],
)
def test_a_short_result_schema_is_that_of_an_object_that_has_what_is_named(
    written: Any, properties: Any, required: list[str] | None
):
    """All of it, but for what says otherwise; more may be there."""
    schema = {"type": "object", "properties": properties, "required": required or [*properties]}
    assert result_schema_of(written) == schema
    assert not invalid(schema, {"summary": "x", "title": "", "format": "", "type": "", "n": 1, "c": 1, "more": 2})
    assert invalid(schema, {})


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string"},
        {"type": "object", "properties": {"a": {"type": "string"}}, "x-order": 1},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
        {"title": "The result", "type": "string", "description": "string"},
        {"required": ["a"]},
    ],
)
def test_a_json_schema_of_a_result_stays_as_it_is(schema: Any):
    """With annotations, references and keys that are only somebody's own beside others."""
    assert result_schema_of(schema) == schema


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ({"summary": "strng"}, "summary: there is no type 'strng', did you mean 'string'?"),
        ({"summary": "A summary of it"}, "summary: there is no type"),
        ({"summary": 3}, "summary: is neither a type"),
        ({"type": "text"}, "type: 'text' is no type"),
    ],
)
def test_a_result_schema_that_would_mean_nothing_is_refused(written: Any, told: str):
    """In words that name the member."""
    with pytest.raises(BadSchema) as refused:
        result_schema_of(written)
    assert str(refused.value).startswith(told)


def test_the_short_form_becomes_a_schema_of_an_object_with_nothing_else_in_it():
    written = {
        "customer": {"type": "string", "description": "Whose", "required": True},
        "limit": {"type": "integer", "default": 5, "minimum": 1, "required": True},
        "tags": {"type": "array", "items": {"type": "string"}, "required": False},
        "address": {"type": "object", "properties": {"city": {}}, "required": ["city"]},
        "note": "string",
        "any": {},
    }

    assert schema_of(written) == {
        "type": "object",
        "properties": {
            "customer": {"type": "string", "description": "Whose"},
            "limit": {"type": "integer", "default": 5, "minimum": 1},
            "tags": {"type": "array", "items": {"type": "string"}},
            "address": {"type": "object", "properties": {"city": {}}, "required": ["city"]},
            "note": {"type": "string"},
            "any": {},
        },
        "additionalProperties": False,
        "required": ["customer"],
    }


@pytest.mark.parametrize(
    "written",
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"properties": {"a": {"type": "string"}}},
        {"properties": {}},
        {"$schema": DRAFT_7, "properties": {"a": True}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"required": ["b"]}}},
    ],
)
def test_a_json_schema_is_taken_as_it_is(written: dict[str, Any]):
    assert schema_of(written) == {"type": "object", **written}


def refusal(written: dict[str, Any]) -> str:
    """Why parameters cannot be used, empty where they can."""
    try:
        schema_of(written)
    except BadSchema as fault:
        return str(fault)
    return ""


def test_what_json_schema_says_of_a_value_is_not_taken_for_a_misspelling():
    """Of any draft; nor is what is written for others, beginning with `x-`."""
    from jsonschema.validators import Draft4Validator, Draft7Validator, Draft202012Validator  # noqa: PLC0415 - slow

    notes = {"title", "examples", "deprecated", "readOnly", "writeOnly", "then", "else", "definitions", "x-type"}
    keys = notes.union(Draft4Validator.VALIDATORS, Draft7Validator.VALIDATORS, Draft202012Validator.VALIDATORS)

    assert [key for key in keys - {"type", "required"} if "did you mean" in refusal({"a": {key: 1}})] == []


@pytest.mark.parametrize("name", ["type", "properties", "required", "description", "items"])
def test_a_parameter_can_have_a_name_that_json_schema_uses(name: str):
    assert schema_of({name: {"type": "string"}})["properties"] == {name: {"type": "string"}}
    assert schema_of({name: "string"})["properties"] == {name: {"type": "string"}}


def test_no_parameters_are_parameters_too():
    schema = schema_of({})

    assert invalid(schema, {}) == []
    assert invalid(schema, {"a": 1}) == ["'a' is not expected"]


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ({"a": "int"}, "a: there is no type 'int', did you mean 'integer'?"),
        (
            {"a": {"type": "zzz"}},
            f"a: there is no type 'zzz': {ALL_TYPES}",
        ),
        ({"a": None}, "a: is neither a type, such as string, nor a mapping such as {type: string}"),
        ({"a": {"required": "yes"}}, "a: required is true or false"),
        ({"a": {"typ": "string"}}, "a: there is no key 'typ', did you mean 'type'?"),
        ({"a": {"requird": True}}, "a: there is no key 'requird', did you mean 'required'?"),
        ({"a": {"type": "string", "default": 3}}, "the default of a: 3 is not of type 'string'"),
        ({"a": {"minimum": "x"}}, "properties.a.minimum: 'x' is not of type 'number'"),
        ({"a": {"pattern": "("}}, "properties.a.pattern: '(' cannot be used: missing ): ("),
        (
            {"a": {"pattern": "(?!b)"}},
            "properties.a.pattern: '(?!b)' cannot be used: look-around is not supported",
        ),
        (
            {"type": "object", "patternProperties": {"(.)\\1": {}}},
            "patternProperties: '(.)\\\\1' cannot be used: back-references are not supported",
        ),
        (
            {"type": "object", "properties": {"a": {"$ref": "#/mine"}}, "mine": {"pattern": "(?>a)"}},
            "pattern: '(?>a)' cannot be used: atomic groups and possessive or double repetitions are not supported",
        ),
        (
            {"type": "object", "patternProperties": {"^a": {}}, "unevaluatedProperties": False},
            "unevaluatedProperties is not supported beside patternProperties",
        ),
        ({"a": {"type": ["string", "int"]}}, f"properties.a.type: it is no type: there are {ALL_TYPES}"),
        ({"a": {"anyOf": [{"type": 1}]}}, f"properties.a.anyOf[0].type: 1 is no type: there are {ALL_TYPES}"),
        ({"$schema": DRAFT_7, "type": "string"}, "type: parameters are an object"),
        ({"$schema": "https://example.com/mine"}, "$schema: 'https://example.com/mine' is not known"),
        ({"$schema": 7}, "$schema: 7 is not known"),
        ({"a": {"$ref": "#/nowhere"}}, "$ref: there is no #/nowhere in the schema"),
        ({"a": {"$ref": "#nowhere"}}, "$ref: there is no #nowhere in the schema"),
        (
            {"a": {"items": {"$ref": "https://example.com/a.json"}}},
            "$ref: https://example.com/a.json is not in the schema itself; nothing is fetched",
        ),
        ({"a": {"$dynamicRef": "b.json"}}, "$dynamicRef: b.json is not in the schema itself; nothing is fetched"),
        ({"$ref": "file:///etc/passwd"}, "$ref: file:///etc/passwd is not in the schema itself; nothing is fetched"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(written: dict[str, Any], fault: str):
    assert bad(written) == fault


def test_a_schema_may_refer_to_itself_and_hold_references_as_values():
    schema = schema_of(
        {
            "$id": "https://example.com/parameters",
            "properties": {
                "tree": {"$ref": "#/$defs/tree"},
                "named": {"$ref": "#named"},
                "other": {"const": {"$ref": "https://example.com/x"}},
                "$ref": {"type": "string"},
            },
            "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}, "n": {"$anchor": "named"}},
        }
    )

    assert invalid(schema, {"tree": [[], [[]]], "named": 1}) == []
    assert invalid(schema, {"tree": [[], [["x"]]]}) == ["tree[1][0][0]: 'x' is not of type 'array'"]


def test_schemas_nested_without_end_are_refused():
    deep: dict[str, Any] = {}
    for _ in range(1_000):
        deep = {"not": deep}

    assert schema_fault(deep) == "it is nested too deeply"
    assert schema_fault({"type": "object"}) == ""


def test_a_schema_has_the_dialect_that_it_says():
    dependencies = {"properties": {"a": {}}, "dependencies": {"a": ["b"]}}
    draft_3 = {"$schema": "http://json-schema.org/draft-03/schema#", "properties": {"a": {"required": True}}}

    assert invalid(schema_of({"$schema": DRAFT_7, **dependencies}), {"a": 1}) == ["'b' is a dependency of 'a'"]
    assert invalid(schema_of(dependencies), {"a": 1}) == []
    assert invalid(schema_of(draft_3), {}) == ["a: 'a' is a required property"]


# --- values ----------------------------------------------------------------------------------------------------------


def test_defaults_are_filled_in_where_nothing_is_given():
    schema = schema_of({"a": {"default": [1]}, "b": {"default": 2}, "c": "string"})
    arguments = {"b": None}

    value = filled(schema, arguments)
    value["a"].append(2)

    assert value == {"a": [1, 2], "b": None}
    assert filled(schema, arguments) == {"a": [1], "b": None}
    assert arguments == {"b": None}
    assert filled({"type": "object"}, arguments) == arguments
    assert filled({"properties": {"a": True}}, arguments) == arguments


SCHEMA = schema_of(
    {
        "customer": {"type": "string", "required": True},
        "limit": {"type": "integer", "minimum": 1},
        "rows": {"type": "array", "items": {"type": "object", "required": ["id"]}, "maxItems": 3},
        "api_key": {"type": "string", "minLength": 50},
        "pin": {"type": "string", "format": "password", "pattern": "^\\d+$"},
        "either": {"anyOf": [{"type": "string"}, {"type": "number"}]},
    }
)


@pytest.mark.parametrize(
    ("value", "faults"),
    [
        ({"customer": "anna", "limit": 3, "rows": [{"id": 1}]}, []),
        ({}, [MISSING]),
        ({"customer": 3, "limit": "x"}, ["customer: 3 is not of type 'string'", "limit: 'x' is not of type 'integer'"]),
        ({"customer": "", "limit": 0}, ["limit: 0 is less than the minimum of 1"]),
        ({"customer": "", "rows": [{"id": 1}, {}]}, ["rows[1].id: is required"]),
        ({"customer": "", "rows": [{"id": 1}] * 4}, ["rows: it is too long"]),
        ({"customer": "", "either": {"a": "b"}}, ["either: it is not valid under any of the given schemas"]),
        ({"customer": "", "x": 1}, ["'x' is not expected"]),
        (
            {"custmer": "", "x": 1},
            ["'custmer' is not expected (did you mean 'customer'?), 'x' is not expected", MISSING],
        ),
        ([], ["it is not of type 'object'"]),
        ("x", ["'x' is not of type 'object'"]),
    ],
)
def test_what_is_wrong_is_said_with_its_place(value: Any, faults: list[str]):
    assert invalid(SCHEMA, value) == faults


def test_no_fault_shows_a_secret():
    """Neither by its name nor by what the schema says of it; nor where a whole object is at fault."""
    schema = {**SCHEMA, "maxProperties": 2}

    told = invalid(schema, {"customer": "c", "api_key": "hunter2", "pin": "hunter2"})

    assert told == [
        f"api_key: {MASK} is too short",
        f"pin: {MASK} does not match '^\\\\d+$'",
        "it has too many properties",
    ]


def test_what_is_said_is_bounded():
    told = invalid(SCHEMA, {"customer": "a" * 1_000_000, "limit": "b" * 1_000_000, "rows": [{}] * 1_000})

    assert len(told) == 20
    assert all(len(fault) <= 200 for fault in told)
    assert told[0].startswith("limit: 'bbbbb")
    assert told[0].endswith("… is not of type 'integer'")


def test_values_nested_without_end_are_refused():
    schema = schema_of(
        {"$defs": {"tree": {"items": {"$ref": "#/$defs/tree"}}}, "properties": {"a": {"$ref": "#/$defs/tree"}}}
    )
    deep: list[Any] = []
    for _ in range(2_000):
        deep = [deep]

    assert invalid(schema, {"a": deep}) == ["it is nested too deeply"]


@law
@given(items=st.lists(ITEMS, max_size=4))
def test_equal_items_are_found_as_jsonschema_finds_them(items: list[Any]):
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - tests start faster without

    schema = {"type": "array", "uniqueItems": True}

    assert (not invalid(schema, items)) == Draft202012Validator(schema).is_valid(items)


def test_equal_items_are_found_among_very_many():
    """In a time that goes with their number; each with each other would take the better part of an hour."""
    many = [{"n": n} for n in range(30_000)]
    schema = {"uniqueItems": True}

    assert invalid(schema, many) == []
    assert invalid(schema, [*many, {"n": 7}]) == ["has items that are equal"]
    assert invalid(schema, [{"n": 1}, {"n": 1.0}]) == ["has items that are equal"]
    assert invalid(schema, [1, True, 1.5, [1]]) == []
    assert invalid({"uniqueItems": False}, [1, 1]) == []
    assert invalid(schema, "aa") == []


def test_nothing_is_fetched_even_by_a_schema_that_nobody_has_looked_at():
    """In a program of its own that has no network to speak of."""
    code = (
        "import socket; socket.socket = None; socket.create_connection = None\n"
        "from proxy.core.parameters import schema_fault\n"
        "print(schema_fault({'$ref': 'https://example.com/x.json'}))"
    )

    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)

    assert "nothing is fetched" in ran.stdout


# --- records ---------------------------------------------------------------------------------------------------------


def test_records_hold_no_secrets():
    schema = schema_of(
        {
            "properties": {
                "pin": {"type": "string", "format": "password"},
                "list": {"type": "array", "items": {"writeOnly": True}},
                "either": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/hidden"}]},
                "loop": {"$ref": "#/$defs/loop"},
                "rows": {"type": "array", "items": {"properties": {"inner": {"writeOnly": True}}}},
                "open": {"type": "object", "default": {"format": "password"}, "properties": {"pin": {}}},
                "anything": True,
                "elsewhere": {"$dynamicRef": "#here"},
            },
            "$defs": {"hidden": {"writeOnly": True}, "loop": {"$ref": "#/$defs/loop"}, "here": {"$anchor": "here"}},
            "allOf": [{"properties": {"late": {"format": "password"}}}],
        }
    )
    arguments = {
        "pin": "1234",
        "list": [1],
        "either": None,
        "loop": ["secret words", 1, None],
        "rows": [{"inner": "x", "outer": "y"}],
        "open": {"pin": 1, "token": {"a": "b"}, "deep": [{"api_key": 1}]},
        "late": {},
        "password": "x",
    }

    assert masked(schema, arguments, lambda text: text.replace("secret", MASK)) == {
        "pin": MASK,
        "list": MASK,
        "either": MASK,
        "loop": [f"{MASK} words", 1, None],
        "rows": [{"inner": MASK, "outer": "y"}],
        "open": {"pin": MASK, "token": MASK, "deep": [{"api_key": MASK}]},
        "late": MASK,
        "password": MASK,
    }


def test_what_records_hide_is_known_so_that_it_can_be_hidden_elsewhere():
    """Numbers, too, as they are written; of what is long or deep or much nothing, or a part."""
    schema = schema_of({"pin": {"writeOnly": True}, "rows": {}, "open": {}})
    deep: list[Any] = ["deep"]
    for _ in range(200):
        deep = [deep]

    assert secrets_in(schema, {"pin": {"a": ["one", 2.5, None, True]}, "open": "x", "rows": [{"token": 7}, "y"]}) == [
        "one",
        "2.5",
        "7",
    ]
    assert secrets_in(schema, {"pin": deep}) == []
    assert secrets_in(schema, {"pin": ["a" * 1_000, "b" * 1_001]}) == ["a" * 1_000]
    assert len(secrets_in(schema, {"pin": [*range(500)]})) == 100


def test_what_may_have_other_names_is_told_as_jsonschema_tells_it():
    """By a pattern, or by a schema that such values have to fit."""
    patterns = {"type": "object", "patternProperties": {"^a": {}}, "additionalProperties": False}
    fitting = {"type": "object", "additionalProperties": {"type": "string"}}

    assert invalid(patterns, {"b": 1}) == ["'b' does not match any of the regexes: '^a'"]
    assert invalid(fitting, {"b": 1}) == ["b: 1 is not of type 'string'"]


def test_patterns_take_linear_time():
    """Where backtracking would take longer than the universe is old, also where only names are looked at."""
    text = "a" * 5_000
    schema = {
        "type": "object",
        "properties": {"text": {"pattern": "^(a+)+$"}},
        "patternProperties": {"^(a|a)*b$": {"type": "string"}},
        "additionalProperties": {"type": "integer"},
    }

    assert schema_fault(schema) == ""
    assert invalid(schema, {"text": text, text: 1}) == []
    (wrong,) = invalid(schema, {"text": f"{text}!"})
    assert wrong.startswith("text: 'aaa")
    assert wrong.endswith("does not match '^(a+)+$'")
    (wrong,) = invalid(schema, {f"{text}b": 1})
    assert wrong.startswith("aaa")
    assert invalid({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": "x"}) == [
        "a: 'x' is not of type 'integer'"
    ]


def test_patterns_are_of_texts_and_of_names_in_objects_alone():
    schema = {"pattern": "^a$", "patternProperties": {"^a": False}, "additionalProperties": False}

    assert [invalid(schema, value) for value in (1, ["b"], None, "a", {})] == [[]] * 5
    assert invalid(schema, "b") == ["'b' does not match '^a$'"]


def test_records_are_only_so_deep():
    deep: list[Any] = []
    for _ in range(2_000):
        deep = [deep]

    value = masked({"type": "object"}, {"a": deep}, str)["a"]
    for _ in range(99):
        value = value[0]

    assert value == [MASK]
