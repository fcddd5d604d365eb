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

from proxy.core.bindings import Bound, bound, is_fixed, refused, without
from proxy.core.bound_schema import without_bound
from proxy.core.catalogue import Skill
from tests.core.strategies import law

Json = Mapping[str, Any]

FREE = ("b", "c", "d")
"""What clients may send; `a` is filled in, sometimes `e` too."""
BOUND = st.sampled_from((("a",), ("a", "e")))


def valid(schema: Json, arguments: Json) -> bool:
    return Draft202012Validator(schema, registry=Registry()).is_valid(arguments)


def sent() -> Iterator[dict[str, Any]]:
    """All that a client may send: any of the free arguments, with one value or another."""
    for size in range(len(FREE) + 1):
        for names in combinations(FREE, size):
            yield dict.fromkeys(names, "one")
            yield dict.fromkeys(names, 2)


def assert_the_same_is_left(listed: Json, original: Json, arguments: tuple[str, ...]) -> None:
    """What satisfies the one satisfies the other with what is filled in, and the other way round."""
    for given_ones in sent():
        filled = {**given_ones, **dict.fromkeys(arguments, 1)}
        assert valid(listed, given_ones) == valid(original, filled), (given_ones, listed)


NAMES = st.sampled_from(("a", "a", "e", *FREE))
BY_NAME = st.lists(NAMES, max_size=2, unique=True)
OF_A_VALUE = st.sampled_from(
    ({}, True, {"const": "one"}, {"enum": ["one", 1]}, {"type": "string"}, {"type": ["integer", "null"]})
)


def fitting(leaf: dict[str, Any]) -> dict[str, Any]:
    """A schema that what is filled in fits, as far as that says something of it; no other is promised to be kept."""
    properties = {name: {} if name in ("a", "e") else of for name, of in leaf.get("properties", {}).items()}
    if not {"additionalProperties", "unevaluatedProperties"}.isdisjoint(leaf):
        properties |= {"a": True, "e": {"title": "E"}}
    return {**leaf, "properties": properties} if properties else leaf


LEAF = st.fixed_dictionaries(
    {},
    optional={
        "properties": st.dictionaries(NAMES, OF_A_VALUE, max_size=2),
        "required": BY_NAME,
        "dependentRequired": st.dictionaries(NAMES, BY_NAME, max_size=2),
        "additionalProperties": OF_A_VALUE | st.just(False),
        "unevaluatedProperties": st.just(False),
        "title": st.just("T"),
    },
).map(fitting)


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
    by_name = [schema.get(key, {}) for key in ("properties", "dependentRequired", "dependentSchemas")]
    named = [schema.get("required", ()), *by_name, *by_name[1].values()]
    below = [value for key, value in schema.items() if key in {"allOf", "anyOf", "oneOf", "not", "if", "then", "else"}]
    below += [*by_name[2].values(), *schema.get("$defs", {}).values()]
    return any(name in each for each in named) or mentions(below, name)


# --- what is promised ------------------------------------------------------------------------------------------------


@law
@given(part=PARTS, arguments=BOUND)
@example(part={"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, arguments=("a",))
@example(part={"not": {"required": ["a", "b"]}}, arguments=("a",))
@example(part={"dependentRequired": {"a": ["e", "b"], "e": ["b", "c"]}}, arguments=("a", "e"))
@example(part={"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": False}, arguments=("a",))
def test_what_satisfies_the_listed_schema_satisfies_the_original_one_with_what_is_filled_in(
    part: Any, arguments: tuple[str, ...]
):
    """And nothing else does, as long as the values fit; of the arguments nothing is left."""
    root = {"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [part]}

    listed = without_bound(root, arguments)

    assert not any(mentions(listed, name) for name in arguments)
    Draft202012Validator.check_schema(listed)
    assert_the_same_is_left(listed, root, arguments)


@law
@given(part=PARTS, one=PARTS, two=PARTS, data=st.data())
def test_that_holds_too_where_parts_are_referred_to(part: Any, one: Any, two: Any, data: st.DataObject):
    """From one place or several, for the object and for other values; what leads nowhere is no reason to fail."""
    ways = (
        "#/$defs/one",
        "#/definitions/a~1b%25",
        "#/allOf/0",
        "#/$defs/one/$defs/x",
        "#/properties/a",
        "#/$defs/given-1",
    )
    references = st.sampled_from(ways)
    root = {
        "allOf": [{"properties": {"b": {"$ref": "#/$defs/one"}}}],
        "anyOf": [{"$ref": data.draw(references)}, {"$ref": "#/$defs/one", **part}],
        "properties": {"a": True, "c": {"$ref": data.draw(references)}, "d": {"$ref": "#/properties/b/x"}},
        "$defs": {"one": {**one, "$defs": {"x": two}}, "given-1": two},
        "definitions": {"a/b%": {**two, "$schema": "https://json-schema.org/draft/2020-12/schema"}},
    }
    root["properties"]["b"] = {"x": {"type": "string"}}

    assert_the_same_is_left(without_bound(root, ("a",)), root, ("a",))


@law
@given(part=PARTS, definition=PARTS, of_others=st.booleans())
def test_a_schema_that_does_not_know_the_argument_stays_as_it_is(part: Any, definition: Any, of_others: bool):
    """To the byte, also the order of its keys."""
    reference = {"$ref": "#/$defs/one"}
    root = {
        "anyOf": [part],
        **({"properties": {"b": reference}} if of_others else reference),
        "$defs": {"one": definition},
    }

    assert json.dumps(without_bound(root, ("unheard-of",))) == json.dumps(root)


def test_only_what_speaks_of_the_argument_is_gone():
    """`required` too, where nothing is left of it; what a member says of its own members has nothing to do with it."""
    schema = {
        "type": "object",
        "title": "Order",
        "required": ["customer"],
        "properties": {
            "n": {"type": "integer", "default": 1},
            "customer": {"type": "string"},
            "to": {"properties": {"customer": {}}, "required": ["customer"]},
        },
        "additionalProperties": False,
        "minProperties": 1,
        "x-more": [{"required": ["customer"]}],
    }

    listed = without_bound(schema, ("customer",))

    del schema["required"], schema["properties"]["customer"]
    assert json.dumps(listed) == json.dumps(schema)


@pytest.mark.parametrize(
    ("part", "listed"),
    [
        ({"required": ["c", "a", "b"]}, {"required": ["c", "b"]}),
        ({"required": []}, {"required": []}),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"oneOf": [{}, {"required": ["b"]}]}),
        ({"not": {"required": ["a", "b"]}}, {"not": {"required": ["b"]}}),
        ({"dependentRequired": {"c": ["a", "d"], "b": ["a"]}}, {"dependentRequired": {"c": ["d"], "b": []}}),
        ({"dependentRequired": {"a": ["a"]}}, {"dependentRequired": {}}),
        ({"dependentRequired": {"a": ["b"]}}, {"dependentRequired": {}, "allOf": [{"required": ["b"]}]}),
        ({"dependencies": {"a": {"required": ["b", "a"]}}}, {"dependencies": {}, "allOf": [{"required": ["b"]}]}),
        ({"dependentSchemas": {"a": False}, "allOf": [True]}, {"dependentSchemas": {}, "allOf": [True, False]}),
        ({"dependentSchemas": {"b": {"required": ["a"]}}}, {"dependentSchemas": {"b": {}}}),
        ({"patternProperties": {"^a": {"type": "string"}}}, {"patternProperties": {"^a": {"type": "string"}}}),
    ],
)
def test_each_keyword_says_what_is_left_to_the_client(part: Json, listed: Json):
    """Written out, as lists show it; what would come with the argument always holds, since it is there."""
    assert without_bound(part, ("a",)) == listed


# --- references ------------------------------------------------------------------------------------------------------


def test_a_definition_of_the_object_itself_is_narrowed_where_it_is():
    """One for other values stays; so does one that nothing refers to."""
    person = {"properties": {"customer": {}}, "required": ["customer"]}
    schema = {
        "anyOf": [{"$ref": "#/$defs/Order"}, {"$ref": "#/definitions/Old"}],
        "properties": {"of": {"$ref": "#/$defs/Person"}},
        "$defs": {"Unused": person, "Order": {**person, "title": "Order"}, "Person": person},
        "definitions": {"Old": person},
    }

    listed = without_bound(schema, ("customer",))

    assert json.dumps(listed) == json.dumps(
        {
            **schema,
            "$defs": {"Unused": person, "Order": {"properties": {}, "title": "Order"}, "Person": person},
            "definitions": {"Old": {"properties": {}}},
        }
    )


def test_a_definition_for_the_object_and_for_other_values_stays_and_has_a_narrow_copy():
    """Also where only a part of it is for other values; the copy has a name that nothing has."""
    schema = {
        "$ref": "#/$defs/Order",
        "properties": {"copy": {"$ref": "#/$defs/Order/properties/customer"}},
        "$defs": {
            "Order": {"$id": "https://example.com/order", "properties": {"customer": {"type": "string"}}},
            "given-1": {},
        },
    }

    assert without_bound(schema, ("customer",)) == {
        "$ref": "#/$defs/given-2",
        "properties": {"copy": {"$ref": "#/$defs/Order/properties/customer"}},
        "$defs": {**schema["$defs"], "given-2": {"properties": {}}},
    }


def test_what_another_value_has_in_common_with_the_argument_is_still_there():
    """Generators that say a thing once refer to where they said it first."""
    schema = {
        "properties": {
            "owner": {"type": "string", "x-mcp-header": "Owner"},
            "page": {"type": "integer", "x-mcp-header": "Page"},
            "also": {"$ref": "#/properties/owner"},
            "third": {"$ref": "#/properties/page"},
        },
    }

    listed = without_bound(schema, ("owner",))

    assert listed == {
        "properties": {
            "page": {"type": "integer", "x-mcp-header": "Page"},
            "also": {"$ref": "#/$defs/given-1"},
            "third": {"$ref": "#/properties/page"},
        },
        "$defs": {"given-1": {"type": "string"}},
    }
    assert find_invalid_x_mcp_header(listed) is None
    assert x_mcp_header_map(listed) == {("page",): "Page"}


def test_a_schema_that_holds_itself_ends():
    """Below the object it is as it was; of the object itself it is what is left."""
    schema = {
        "properties": {"a": {}, "child": {"$ref": "#"}},
        "required": ["a"],
        "anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/round"}],
        "$defs": {"round": {"required": ["a"], "allOf": [{"$ref": "#/$defs/round"}]}},
    }

    listed = without_bound(schema, ("a",))

    narrow, whole = "#/$defs/given-1", "#/$defs/given-2"
    assert listed == {
        "properties": {"child": {"$ref": whole}},
        "anyOf": [{"$ref": "#"}, {"$ref": narrow}],
        "$defs": {
            **schema["$defs"],
            "given-1": {"allOf": [{"$ref": narrow}]},
            "given-2": {
                "properties": {"a": {}, "child": {"$ref": whole}},
                "required": ["a"],
                "anyOf": [{"$ref": whole}, {"$ref": "#/$defs/round"}],
            },
        },
    }


@pytest.mark.parametrize(
    "reference", ["#anchor", "https://example.com/schema.json", "#/$defs/none", "#/allOf/7", "#/allOf/x", "#/$defs/x/y"]
)
def test_a_reference_to_something_else_stays(reference: str):
    """Nothing is fetched, and what leads nowhere still does."""
    schema = {
        "allOf": [{"$ref": reference}],
        "properties": {"b": {"$ref": reference}},
        "$defs": {"x": {"$anchor": "anchor"}},
    }

    assert without_bound(schema, ("a",)) == schema


# --- schemas of any make ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": 1, "required": "a", "allOf": 2, "anyOf": None, "not": [], "if": 3, "then": 4, "$ref": 5},
        {"required": [["b"], {}, 1, "b"], "dependencies": {"b": [[]], "c": 7}, "propertyNames": {"enum": [{}, []]}},
        {"$defs": 9, "definitions": [], "$ref": "#/definitions", "properties": {"$ref": {"$ref": "#/$defs"}}},
        {"$ref": f"#/allOf/{'9' * 5000}", "allOf": [{"$ref": "#/allOf/1"}, True]},
    ],
)
def test_a_schema_that_is_none_is_no_reason_to_fail(schema: Json):
    """Servers send what they like; what does not speak of the argument as a schema does stays."""
    listed = without_bound(schema, ("a",))

    assert {key: listed[key] for key in schema if key not in ("$ref", "$defs", "properties", "allOf")} == {
        key: value for key, value in schema.items() if key not in ("$ref", "$defs", "properties", "allOf")
    }


def test_a_schema_nested_beyond_all_measure_is_that_of_any_object():
    """One that a client could not read either."""
    nested: dict[str, Any] = {}
    for _ in range(5000):
        nested = {"not": nested}

    assert without_bound(nested, ("a",)) == {"type": "object"}


def test_parts_that_refer_to_each_other_many_times_stay_small():
    """A chain in which each refers twice to the next, for the object and for other values, is not doubled each time."""
    links = {str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(40)}
    last = {"required": ["a"]}
    schema = {"$ref": "#/$defs/0", "properties": {"b": {"$ref": "#/$defs/0"}}, "$defs": {**links, "40": last}}

    listed = without_bound(schema, ("a",))

    assert len(listed["$defs"]) == 2 * 41
    assert [of for of in listed["$defs"].values() if "anyOf" not in of] == [last, {}]


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


def test_a_value_is_fixed_if_no_text_in_it_has_an_expression():
    """Wherever it stands; what looks like one may be one."""
    assert is_fixed({"customer": ["c", 5, None, {"deep": "}} { {"}]})
    assert not is_fixed({"customer": ["c", {"deep": "of {{ heap.customer }}"}]})
