"""A tool's input schema without the arguments that are filled in: what clients may send is what the tool takes."""

import json
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from referencing import Registry

from proxy.core.bindings import Bound, bound, refused, without
from proxy.core.bound_schema import without_bound
from proxy.core.catalogue import Skill
from tests.core.strategies import law

Json = Mapping[str, Any]

FREE = ("b", "c", "d")
"""What clients may send; `a` is filled in, sometimes `z` too, which nothing speaks of by its name."""
VALUES = ("one", "two", 1, 1.0, 1.5, True, None, [1], {"b": 1})


def valid(schema: Json, arguments: Json) -> bool:
    return Draft202012Validator(schema, registry=Registry()).is_valid(arguments)


def sent() -> Iterator[dict[str, Any]]:
    """All that a client may send: any of the free arguments, with one value or another."""
    for size in range(len(FREE) + 1):
        for names in combinations(FREE, size):
            yield dict.fromkeys(names, "one")
            yield dict.fromkeys(names, 2)


NAMES = st.sampled_from(("a", "a", *FREE))
BY_NAME = st.lists(NAMES, max_size=2, unique=True)
OF_A_VALUE = st.sampled_from(
    (
        {},
        True,
        {"const": "one"},
        {"const": True},
        {"enum": ["one", 1]},
        {"type": "string"},
        {"type": ["integer", "null"]},
    )
)
LEAF = st.fixed_dictionaries(
    {},
    optional={
        "properties": st.dictionaries(NAMES, OF_A_VALUE, max_size=2),
        "required": BY_NAME,
        "dependentRequired": st.dictionaries(NAMES, BY_NAME, max_size=2),
        "minProperties": st.sampled_from((1, 2, 2.0)),
        "maxProperties": st.sampled_from((1, 2, 3)),
        "propertyNames": st.sampled_from(({"enum": ["a", "b", "z"]}, {"enum": ["a", "z"]}, {"const": "b"}, True)),
        "additionalProperties": OF_A_VALUE | st.just(False),
        "title": st.just("T"),
    },
)
REFERENCES = st.sampled_from(("#/$defs/one", "#/$defs/two", "#/definitions/a~1b%25", "#/allOf/0", "#/$defs/no", "#x"))


def larger(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas of what others allow or not, all about the same object."""
    several = st.lists(parts | st.booleans(), min_size=1, max_size=2)
    keys = {
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": parts,
        "if": parts,
        "then": parts,
        "else": parts | st.booleans(),
        "dependentSchemas": st.dictionaries(NAMES, parts, min_size=1, max_size=1),
    }
    return st.builds(lambda leaf, more: {**leaf, **more}, LEAF, st.fixed_dictionaries({}, optional=keys))


PARTS = st.recursive(LEAF, larger, max_leaves=6)


def mentions(schema: Any, name: str) -> bool:
    """Whether a schema speaks of an argument, at any place that is about the same object, or is referred to."""
    if isinstance(schema, list):
        return any(mentions(one, name) for one in schema)
    if not isinstance(schema, dict):
        return False
    by_name = [schema.get(key, {}) for key in ("properties", "dependentRequired", "dependencies", "dependentSchemas")]
    named = [schema.get("required", ()), *by_name, *by_name[1].values(), *by_name[2].values()]
    names = schema["propertyNames"].get("enum", ()) if isinstance(schema.get("propertyNames"), dict) else ()
    below = [value for key, value in schema.items() if key in {"allOf", "anyOf", "oneOf", "not", "if", "then", "else"}]
    below += [*by_name[3].values(), *schema.get("$defs", {}).values()]
    return any(name in each for each in (*named, names)) or mentions(below, name)


@law
@given(part=PARTS, value=st.sampled_from(VALUES))
@example(part={"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, value=1)
@example(part={"anyOf": [{"properties": {"a": {"type": "integer"}}}]}, value=1.5)
@example(part={"not": {"required": ["a", "b"]}}, value=1)
@example(part={"anyOf": [{"properties": {"a": {"const": 1}}}]}, value=True)
@example(part={"if": {"properties": {"a": {"const": "one"}}}, "then": {"required": ["b"]}, "else": False}, value="one")
def test_what_satisfies_the_listed_schema_satisfies_the_original_one_with_what_is_filled_in(part: Any, value: Any):
    """And nothing else does: no client is refused what the tool would take, nor let send what it would not."""
    root = {"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [part]}
    listed = without_bound(root, {"a": value})

    assert not mentions(listed, "a")
    Draft202012Validator.check_schema(listed)
    for arguments in sent():
        assert valid(listed, arguments) == valid(root, {**arguments, "a": value}), (arguments, listed)


@law
@given(part=PARTS, one=PARTS, two=PARTS, data=st.data())
def test_that_holds_too_where_parts_are_referred_to(part: Any, one: Any, two: Any, data: st.DataObject):
    """From one place or several, and round in a circle below the object; what leads nowhere is no reason to fail."""
    reference = data.draw(st.sampled_from(("#/$defs/one", "#/definitions/a~1b%25", "#/allOf/0", "#/$defs/one/$defs/x")))
    root = {
        "allOf": [{"properties": {"b": {"$ref": "#/$defs/one"}}}],
        "anyOf": [{"$ref": reference}, {"$ref": "#/$defs/one", **part}],
        "properties": {"a": True, "c": {"$ref": reference}, "d": {"$ref": "#/properties/b/x"}},
        "$defs": {"one": {**one, "$defs": {"x": two}}, "given-1": two},
        "definitions": {"a/b%": {**two, "$schema": "https://json-schema.org/draft/2020-12/schema"}},
    }
    root["properties"]["b"] = {"x": {"type": "string"}}

    listed = without_bound(root, {"a": "one"})

    for arguments in sent():
        assert valid(listed, arguments) == valid(root, {**arguments, "a": "one"}), (arguments, listed)


def test_the_schema_stays_that_of_an_object_with_what_else_it_says():
    """Only what speaks of the argument is gone; `required` too, where nothing is left of it."""
    schema = {
        "type": "object",
        "title": "Order",
        "properties": {"customer": {"type": "string"}, "n": {"type": "integer", "default": 1}},
        "required": ["customer"],
        "default": {"customer": "x", "n": 1},
        "examples": [{"customer": "x", "n": 2}, "odd"],
        "additionalProperties": False,
        "x-more": [{"y": 1}],
    }

    assert without_bound(schema, {"customer": "c"}) == {
        "type": "object",
        "title": "Order",
        "properties": {"n": {"type": "integer", "default": 1}},
        "default": {"n": 1},
        "examples": [{"n": 2}, "odd"],
        "additionalProperties": False,
        "x-more": [{"y": 1}],
    }


@pytest.mark.parametrize(
    ("part", "listed"),
    [
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"oneOf": [{}, {"required": ["b"]}]}),
        ({"dependentRequired": {"a": ["b"], "c": ["a", "d"]}}, {"dependentRequired": {"c": ["d"]}, "required": ["b"]}),
        ({"dependencies": {"a": {"required": ["b"]}}}, {"dependencies": {}, "allOf": [{"required": ["b"]}]}),
        ({"minProperties": 3}, {"minProperties": 2}),
        ({"minProperties": 1}, {"minProperties": 0}),
        ({"maxProperties": 3}, {"maxProperties": 2}),
        ({"maxProperties": 0}, {"maxProperties": 0, "allOf": [False]}),
        ({"propertyNames": {"enum": ["a", "b"]}}, {"propertyNames": {"enum": ["b"]}}),
        ({"propertyNames": {"enum": ["a"]}}, {"propertyNames": False}),
        ({"patternProperties": {"^a": {"type": "string"}}}, {"patternProperties": {"^a": {"type": "string"}}}),
        ({"unevaluatedProperties": False}, {"unevaluatedProperties": False}),
    ],
)
def test_each_keyword_says_what_is_left_to_the_client(part: Json, listed: Json):
    """Written out, as lists show it."""
    assert without_bound(part, {"a": "one"}) == listed


KIND = {
    "oneOf": [
        {"properties": {"kind": {"const": "mail"}, "to": {}}, "required": ["kind", "to"]},
        {"properties": {"kind": {"const": "chat"}, "room": {}}, "required": ["kind", "room"]},
    ]
}


def test_of_alternatives_those_stay_that_the_value_leaves():
    """A value that is known chooses; one that is an expression fits all."""
    assert without_bound(KIND, {"kind": "chat"}) == {
        "oneOf": [False, {"properties": {"room": {}}, "required": ["room"]}]
    }
    assert without_bound(KIND, {"kind": "{{ heap.kind }}"}) == {
        "oneOf": [{"properties": {name: {}}, "required": [name]} for name in ("to", "room")]
    }


def test_where_a_condition_hangs_on_what_is_not_known_both_branches_hold():
    """Whatever the expression comes to, the arguments are those that the tool takes."""
    mail = {"properties": {"kind": {"const": "mail"}}}
    schema = {"if": mail, "then": {"required": ["to"]}, "else": {"required": ["room"]}}
    by_reference = {**schema, "if": {"allOf": [{"$ref": "#/$defs/mail"}]}, "not": {"$ref": "#/$defs/mail"}}

    listed = without_bound(schema, {"kind": "{{ heap.kind }}"})
    other = without_bound({**by_reference, "$defs": {"mail": mail}}, {"kind": "{{ heap.kind }}"})
    twice = without_bound(
        {"anyOf": [{"$ref": "#/$defs/mail"}], **schema, "if": {"$ref": "#/$defs/mail"}, "$defs": {"mail": mail}},
        {"kind": "{{ x }}"},
    )

    assert listed == {"allOf": [{"required": ["to"]}, {"required": ["room"]}]}
    assert other["allOf"] == twice["allOf"] == listed["allOf"]
    assert other["$defs"][other["not"]["$ref"].removeprefix("#/$defs/")] is False
    assert "if" not in {*other, *twice}


def test_what_must_not_be_is_not_taken_to_be():
    """Else nothing could be sent wherever a value is not known."""
    schema = {"not": {"properties": {"kind": {"const": "mail"}}, "required": ["kind"]}}

    assert without_bound(schema, {"kind": "{{ heap.kind }}"}) == {"not": False}
    assert without_bound(schema, {"kind": "mail"}) == {"not": {"properties": {}}}
    assert without_bound({"not": schema}, {"kind": "{{ heap.kind }}"}) == {"not": {"not": {"properties": {}}}}


def test_an_alternative_that_knows_no_such_argument_is_none():
    """By `additionalProperties`, or by `unevaluatedProperties` where nothing else in it may allow the argument."""

    def alternative(part: Json) -> Any:
        definitions = {
            "knows": {"properties": {"a": {}}},
            "round": {"$ref": "#/$defs/round"},
            "no": {"required": ["b"]},
        }
        return without_bound({"anyOf": [part], "$defs": definitions}, {"a": 1})["anyOf"][0]

    closed, unevaluated = {"additionalProperties": False}, {"unevaluatedProperties": False}
    for part in (
        {**closed, "properties": {"b": {}}},
        {**unevaluated, "properties": {"b": {}}},
        {**unevaluated, "allOf": [True, {"$ref": "#/$defs/no"}, {"$ref": "#/$defs/no"}]},
        {**unevaluated, "if": {"$ref": "#/$defs/round"}, "dependentSchemas": {"b": {}}},
    ):
        assert alternative(part) is False
    for part in (
        {**closed, "patternProperties": {"a": {}}},
        {**unevaluated, "patternProperties": {"a": {}}},
        {**unevaluated, "additionalProperties": True},
        {**unevaluated, "oneOf": [{"$ref": "#/$defs/knows"}]},
        {**unevaluated, "then": {"properties": {"a": {}}}},
    ):
        assert alternative(part) is not False


def test_what_is_referred_to_is_there_and_says_nothing_of_the_argument():
    """Also where it stood at the argument that is gone, as generators write it that say a thing once."""
    schema = {
        "$ref": "#/$defs/Order",
        "properties": {"copy": {"$ref": "#/$defs/Order/properties/customer"}, "tree": {"$ref": "#/$defs/Tree"}},
        "$defs": {
            "Order": {"properties": {"customer": {"type": "string", "x-mcp-header": "C"}}, "required": ["customer"]},
            "Tree": {"properties": {"customer": {}, "below": {"$ref": "#/$defs/Tree"}}},
            "Unused": {},
        },
    }

    assert without_bound(schema, {"customer": 1}) == {
        "$ref": "#/$defs/given-1",
        "properties": {"copy": {"$ref": "#/$defs/given-2"}, "tree": {"$ref": "#/$defs/Tree"}},
        "$defs": {
            "given-1": {"properties": {}},
            "given-2": {"type": "string"},
            "Tree": {"properties": {"customer": {}, "below": {"$ref": "#/$defs/Tree"}}},
        },
    }


def test_a_schema_that_holds_itself_is_done_once():
    """Below the object it is as it was; of the object itself it is what is left."""
    schema = {"properties": {"a": {}, "child": {"$ref": "#"}}, "required": ["a"], "anyOf": [{"$ref": "#"}]}

    listed = without_bound(schema, {"a": 1})

    assert listed["properties"]["child"] == {"$ref": "#/$defs/given-1"}
    assert listed["$defs"]["given-1"]["required"] == ["a"]
    assert listed["anyOf"] == [{"$ref": "#/$defs/given-2"}]
    assert "required" not in listed["$defs"]["given-2"]


@pytest.mark.parametrize(
    "part",
    [
        {"$ref": "#anchor"},
        {"$ref": "https://example.com/schema.json"},
        {"properties": {"b": {"$dynamicRef": "#node"}}},
        {"properties": {"b": {"$id": "https://example.com/b", "$ref": "#/$defs/x"}}},
        {"allOf": [{"$id": "https://example.com/b", "required": ["a"]}]},
        {"$ref": "#/$defs/own"},
    ],
)
def test_what_is_referred_to_in_other_ways_stays_where_it_is(part: Json):
    """Nothing is fetched, and nothing is torn from what leads to it."""
    definitions = {"x": {"$anchor": "anchor"}, "own": {"$id": "https://example.com/own"}}

    listed = without_bound({**part, "$defs": definitions}, {"a": 1})

    assert listed == {**part, "$defs": definitions}


ODD = [
    {"properties": 1, "required": "a", "allOf": 2, "anyOf": None, "not": [], "if": 3, "then": 4, "$ref": 5},
    {"required": [["a"], {}, 1, "b"], "dependencies": {"a": 7, "b": [[]]}, "propertyNames": {"enum": [{}, []]}},
    {"minProperties": "1", "maxProperties": "2", "examples": 1, "default": 1, "propertyNames": 1, "$defs": 9},
    {
        "anyOf": [
            {"properties": {"a": {"type": 5}}},
            {"properties": {"a": {"type": "odd", "enum": 4}}},
            {"properties": {"a": 1}},
        ]
    },
    {"$ref": f"#/allOf/{'9' * 5000}", "allOf": [{"properties": {"b": {"properties": {"$id": {"$ref": "#/allOf/0"}}}}}]},
    {"$ref": "#/allOf/9/x", "allOf": [{"$ref": "#/allOf/x"}, {"$ref": "#/allOf/0/$ref/y"}]},
]


def test_a_name_for_a_copy_is_one_that_nothing_has():
    """Also where the schema has definitions of that name."""
    schema = {"$id": "https://example.com/root", "allOf": [{"$ref": "#"}], "$defs": {"given-1": {}, "given-2": {}}}

    listed = without_bound(schema, {"a": 1})

    assert listed["allOf"] == [{"$ref": "#/$defs/given-3"}]
    assert listed["$defs"] == {"given-3": {"allOf": [{"$ref": "#/$defs/given-3"}]}}


@pytest.mark.parametrize("schema", ODD)
def test_a_schema_that_is_none_is_no_reason_to_fail(schema: Json):
    """Servers send what they like."""
    json.dumps(without_bound(schema, {"a": 1}))


def test_a_schema_nested_beyond_all_measure_is_that_of_an_object():
    """Any that a client could not read either."""
    nested: dict[str, Any] = {}
    for _ in range(5000):
        nested = {"not": nested}

    assert without_bound(nested, {"a": 1}) == {"type": "object"}


def test_parts_that_refer_to_each_other_many_times_stay_small():
    """A chain in which each refers twice to the next would else be a million parts."""
    links = {str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(20)}
    schema = {"$ref": "#/$defs/0", "$defs": {**links, "20": {"required": ["a"]}}}

    listed = without_bound(schema, {"a": 1})

    assert len(listed["$defs"]) == 21
    assert listed["$defs"]["given-21"] == {}


def test_what_goes_into_headers_is_what_the_client_gives():
    """The annotation goes with the argument, and none is left where a client would take it for a mistake."""
    schema = {
        "type": "object",
        "properties": {
            "owner": {"type": "string", "x-mcp-header": "Owner"},
            "page": {"type": "integer", "x-mcp-header": "Page"},
            "also": {"$ref": "#/properties/owner"},
        },
    }

    listed = without_bound(schema, {"owner": "octo"})

    assert x_mcp_header_map(listed) == {("page",): "Page"}
    assert find_invalid_x_mcp_header(listed) is None
    assert valid(listed, {"also": "x"})
    assert not valid(listed, {"also": 1})


# --- which they are --------------------------------------------------------------------------------------------------


def test_the_first_skill_that_fills_an_argument_in_is_named():
    """All that are active together fill in the same."""
    skills = [
        Skill("one", "", "", "", bind={"crm": {"find": {"customer": "c"}}}),
        Skill("two", "", "", "", bind={"crm": {"find": {"customer": "c", "limit": 5}}, "other": {"find": {"x": 1}}}),
    ]

    found = bound(skills, "crm", "find")

    assert found == {"customer": Bound("c", "one"), "limit": Bound(5, "two")}
    assert refused(found, {"limit": 1, "query": "x"}) == {"limit": "two"}
    assert bound(skills, "crm", "add") == {}


def test_a_definition_is_as_it_came_but_for_its_input_schema():
    """The very object where nothing is filled in, or where there is no schema."""
    definition = {"name": "find", "inputSchema": {"properties": {"customer": {}}}, "x": [1.0]}
    filled = {"customer": Bound("c", "one")}

    assert without(definition, filled) == {"name": "find", "inputSchema": {"properties": {}}, "x": [1.0]}
    assert without(definition, {}) is definition
    assert without(odd := {"name": "find", "inputSchema": 1}, filled) is odd
