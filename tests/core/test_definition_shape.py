"""What clients are given of definitions, whatever a server lists."""

import copy
import json
from typing import Any

import mcp_types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types import _v2025_11_25, _v2026_07_28
from pydantic import BaseModel

from proxy.core.definition_shape import MAX_FAULTS_TOLD, sound
from proxy.core.inventory import DEEPEST
from tests.transparent import strategies

RESULTS = {
    "tools": "ListToolsResult",
    "prompts": "ListPromptsResult",
    "resources": "ListResourcesResult",
    "resourceTemplates": "ListResourceTemplatesResult",
}
MODELS: list[Any] = [mcp_types, _v2025_11_25, _v2026_07_28]
OBJECT = {"type": "object"}


def accepted(kind: str, entries: list[Any]) -> None:
    """The Python SDK's models of every revision accept a page of these entries, as it is read from the wire."""
    page = {kind: entries, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    for module in MODELS:
        model: type[BaseModel] = getattr(module, RESULTS[kind])
        model.model_validate_json(json.dumps(page))


def tool(**fields: Any) -> dict[str, Any]:
    return {"name": "a", "inputSchema": OBJECT, **fields}


def one(kind: str, entry: Any) -> tuple[Any, list[str]]:
    """What becomes of one entry, None where it is left out; and what is told."""
    before = copy.deepcopy(entry)
    entries, told = sound(kind, [entry])
    assert json.dumps(entry) == json.dumps(before)
    accepted(kind, entries)
    return (entries[0] if entries else None), told


@settings(max_examples=100, deadline=None)
@given(lists=strategies.malformed_lists)
def test_the_python_sdk_accepts_every_list(lists: dict[str, list[Any]]) -> None:
    for kind, entries in lists.items():
        accepted(kind, sound(kind, entries)[0])


@settings(max_examples=60, deadline=None)
@given(lists=strategies.malformed_lists)
def test_what_was_made_sound_stays_as_it_is(lists: dict[str, list[Any]]) -> None:
    for kind, entries in lists.items():
        once = sound(kind, entries)[0]
        again, told = sound(kind, once)
        assert all(a is b for a, b in zip(again, once, strict=True))
        assert not told


@settings(max_examples=40, deadline=None)
@given(
    tools=st.lists(strategies.tools, max_size=3),
    prompts=st.lists(strategies.prompts, max_size=3),
    resources=st.lists(strategies.resources, max_size=3),
    templates=st.lists(strategies.templates, max_size=3),
)
def test_sound_entries_are_not_touched(tools: Any, prompts: Any, resources: Any, templates: Any) -> None:
    lists = {"tools": tools, "prompts": prompts, "resources": resources, "resourceTemplates": templates}
    for kind, entries in lists.items():
        found, told = sound(kind, entries)
        assert told == []
        assert all(a is b for a, b in zip(found, entries, strict=True))


@pytest.mark.parametrize("schema", [None, [], {}, True, OBJECT, {"type": ["object", "null"]}, {"type": None}])
def test_a_tool_without_a_schema_takes_any_object(schema: Any) -> None:
    entry, told = one("tools", tool(inputSchema=schema))
    assert entry == tool()
    assert bool(told) == (schema != OBJECT)


def test_a_tool_whose_schema_is_missing_takes_any_object() -> None:
    assert one("tools", {"name": "a"}) == (tool(), ['tool a: inputSchema: there is none: taken as {"type": "object"}'])


@pytest.mark.parametrize(
    ("schema", "mended"),
    [
        ({**OBJECT, "properties": []}, {**OBJECT, "properties": {}}),
        ({**OBJECT, "properties": None}, {**OBJECT, "properties": {}}),
        (
            {**OBJECT, "properties": {"a": True, "b": False, "c": {}, "d": None}},
            {**OBJECT, "properties": {"a": {}, "b": {"not": {}}, "c": {}, "d": {}}},
        ),
        ({**OBJECT, "required": "a"}, {**OBJECT, "required": ["a"]}),
        ({**OBJECT, "required": [1, "a"]}, {**OBJECT, "required": ["a"]}),
        ({**OBJECT, "required": True}, {**OBJECT, "required": []}),
        ({"properties": {"a": {}}}, {"properties": {"a": {}}, **OBJECT}),
        ({**OBJECT, "$schema": 5}, OBJECT),
    ],
)
def test_a_schema_is_mended_where_that_takes_nothing_away(schema: Any, mended: Any) -> None:
    entry, told = one("tools", tool(inputSchema=schema))
    assert entry == tool(inputSchema=mended)
    assert told


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (tool(inputSchema="x"), "tool a is left out: inputSchema must be an object"),
        (tool(inputSchema={"type": "string"}), "tool a is left out: inputSchema must have the type object"),
        (
            tool(inputSchema={**OBJECT, "properties": "x"}),
            "tool a is left out: inputSchema: properties must be an object",
        ),
        (
            tool(inputSchema={**OBJECT, "properties": {"p": 5}}),
            "tool a is left out: inputSchema: property p must be a schema",
        ),
        ({"inputSchema": OBJECT}, "tool number 1 is left out: name must be text that is not empty"),
        ({"name": 5, "inputSchema": OBJECT}, "tool number 1 is left out: name must be text that is not empty"),
        ("x", "tool number 1 is left out: must be an object"),
        (
            {"name": "\ud800", "inputSchema": OBJECT},
            "tool \ud800 is left out: its name or URI is not valid Unicode",
        ),
        (
            tool(execution={"taskSupport": "required"}),
            "tool a is left out: it can be run as a task only (execution.taskSupport), which is not supported",
        ),
    ],
)
def test_a_tool_that_cannot_be_mended_is_left_out(entry: Any, why: str) -> None:
    assert one("tools", entry) == (None, [why])


def test_an_entry_that_is_nested_too_deeply_is_left_out() -> None:
    deep: Any = 1
    for _ in range(DEEPEST + 1):
        deep = [deep]
    assert one("tools", tool(x=deep)) == (None, ["tool a is left out: it is nested more than 100 deep"])


@pytest.mark.parametrize(
    "field",
    [
        *({"description": 5}, {"title": []}, {"title": None}, {"annotations": "x"}, {"annotations": None}),
        *({"icons": "x"}, {"_meta": "x"}, {"execution": "x"}, {"meta": 5}, {"output_schema": 5}, {"outputSchema": 5}),
        *({"outputSchema": {"type": "string"}}, {"outputSchema": {"type": "object", "$id": 5}}),
    ],
)
def test_an_optional_field_that_is_malformed_is_left_out(field: Any) -> None:
    entry, told = one("tools", tool(**field))
    assert entry == tool()
    assert len(told) == 1
    assert told[0].startswith(f"tool a: {next(iter(field))} is left out: it ")


def test_of_a_field_only_what_is_malformed_is_left_out() -> None:
    hints = {"readOnlyHint": "yes", "destructiveHint": False, "x": 1}
    icons = [{"src": "a", "sizes": "any"}, {"mimeType": "image/png"}, "x"]
    entry, _ = one("tools", tool(annotations=hints, icons=icons, _meta=[], execution={"taskSupport": "often"}))
    assert entry == tool(annotations={"destructiveHint": False, "x": 1}, icons=[{"src": "a"}], _meta={}, execution={})


def test_half_characters_in_texts_are_replaced() -> None:
    entry, told = one("tools", tool(description="a\ud800"))
    assert entry == tool(description="a\ufffd")
    assert told == ["tool a: halves of characters in its texts are replaced"]


@pytest.mark.parametrize("kind", ["resources", "resourceTemplates"])
def test_a_resource_without_a_name_goes_by_its_uri(kind: str) -> None:
    key = "uri" if kind == "resources" else "uriTemplate"
    for given_name in ({}, {"name": None}, {"name": 5}):
        assert one(kind, {key: "a://b", **given_name})[0] == {key: "a://b", "name": "a://b"}


@pytest.mark.parametrize("uri", [None, 5, "", "no scheme", "//a", []])
def test_a_resource_without_a_uri_is_left_out(uri: Any) -> None:
    entry, told = one("resources", {"uri": uri, "name": "a"})
    assert entry is None
    assert told[0].endswith("is left out: uri must be a URI with a scheme")


def test_the_fields_of_a_resource_are_held_against_their_types() -> None:
    annotations = {"priority": 2, "audience": ["else"], "lastModified": "2026-02-29T00:00:00Z"}
    entry, told = one(
        "resources", {"uri": "a:b", "name": "a", "size": "big", "mimeType": 3, "annotations": annotations}
    )
    assert entry == {"uri": "a:b", "name": "a", "annotations": {}}
    assert len(told) == 5
    assert one("resources", {"uri": "a:b", "name": "a", "annotations": {"lastModified": "today"}})[0] is not None


def test_the_arguments_of_a_prompt_are_held_against_their_types() -> None:
    assert one("prompts", {"name": "a", "arguments": {}})[0] == {"name": "a", "arguments": []}
    arguments = [{"name": "b", "required": "yes"}, {"required": True}]
    assert one("prompts", {"name": "a", "arguments": arguments})[0] == {"name": "a", "arguments": [{"name": "b"}]}
    left_out = (None, ["prompt a is left out: arguments must be an array"])
    assert one("prompts", {"name": "a", "arguments": {"b": {}}}) == left_out


def test_entries_of_other_lists_are_given_back() -> None:
    assert sound("skills", [5]) == ([5], [])


def test_of_very_many_faults_the_first_are_told() -> None:
    told = sound("tools", [5] * (MAX_FAULTS_TOLD + 3))[1]
    assert len(told) == MAX_FAULTS_TOLD + 1
    assert told[-1] == "3 more"
