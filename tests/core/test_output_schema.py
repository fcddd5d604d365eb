"""Output schemas that every client can compile, and others."""

from typing import Any

import pytest

from proxy.core.output_schema import compiles


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"} | {"type": "object"},
        {"properties": {"a": {"$ref": "#/$defs/a~1b"}, "b": True}, "$defs": {"a/b": {"type": ["null", "object"]}}},
        {
            "properties": {"a": {"$ref": "#/definitions/a"}},
            "definitions": {"a": {"$ref": "#/definitions/b"}, "b": True},
        },
        {"properties": {"a": {"items": {}}, "b": {"items": [True, {}]}}},
        {"properties": {"c": {"pattern": "^[a-z\\d]+(?:x|y){2,}$"}}},
        {"anyOf": [{"required": ["a"]}], "dependencies": {"a": ["b"], "b": {"minimum": 1}}, "not": {"enum": [1]}},
    ],
)
def test_these_compile(schema: dict[str, Any]) -> None:
    assert compiles({"type": "object", **{key: each for key, each in schema.items() if key != "$ref"}})


@pytest.mark.parametrize(
    "schema",
    [
        *({"type": "text"}, {"type": []}, {"type": 5}, {"enum": []}, {"minimum": "1"}, {"maxLength": 10**400}),
        *({"pattern": "("}, {"pattern": r"\_"}, {"pattern": 5}, {"pattern": "a{99999999999999999999}"}),
        *({"pattern": "a{2,1}"}, {"id": "x"}, {"required": [1]}, {"uniqueItems": 1}, {"format": 5}, {"items": 5}),
        *({"anyOf": [5]}, {"properties": {"a": None}}, {"patternProperties": {"(": {}}}, {"dependencies": []}),
        *({"$ref": "#/$defs/none"}, {"$ref": "#here"}, {"$ref": "https://example.com/a"}, {"$ref": "#/x"}),
        *({"$ref": 5}, {"formatMinimum": "2020-01-01"}, {"not": {"$anchor": "a"}}),
    ],
)
def test_these_do_not(schema: dict[str, Any]) -> None:
    assert not compiles({"type": "object", "properties": {"a": schema}, "x": {}})


def test_a_reference_that_leads_to_itself_does_not() -> None:
    assert not compiles({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})
