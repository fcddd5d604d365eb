"""Whether a tool's `outputSchema` can be compiled by clients that do so while they read a list.

The TypeScript SDK compiles each one with Ajv (JSON Schema draft 7) when it reads the list of tools: one that cannot be
compiled costs it the whole list. What is said to be compilable here is; some rare schemas that are not could be.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from proxy.core.inventory import Json, is_json, items

_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_FORBIDDEN: Final = frozenset({"$anchor", "$async", "$dynamicAnchor", "$id", "id", "nullable"})
"""Keywords that Ajv refuses in some places, or that change what a `$ref` means."""
_FORMAT_LIMITS: Final = frozenset(
    {"formatMinimum", "formatMaximum", "formatExclusiveMinimum", "formatExclusiveMaximum"}
)
_LARGEST_NUMBER: Final = 1e300
"""Larger ones are infinite to some clients."""
_NUMBERS: Final = (
    *("multipleOf", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "maxLength", "minLength"),
    *("maxItems", "minItems", "maxProperties", "minProperties"),
)
_ONE_SCHEMA: Final = (
    *("additionalItems", "additionalProperties", "contains", "else", "if", "not", "propertyNames", "then"),
)
_SCHEMAS: Final = ("allOf", "anyOf", "oneOf")
_SCHEMAS_BY_NAME: Final = ("$defs", "definitions", "patternProperties", "properties")

_CLASS_ITEM: Final = r"(?:[^\\\[\]]|\\[dDwWsSfnrtv^$\\.*+?()\[\]{}|/-])"
_PATTERN: Final = re.compile(
    rf"(?:(?:[^\\*+?()\[\]{{}}|/]|\\[dDwWsSbBfnrtv^$\\.*+?()\[\]{{}}|/]|\[\^?{_CLASS_ITEM}+\]|\((?:\?:)?|\)|\||/)"
    r"(?:(?:[*+?]|\{\d+(?:,\d*)?\})\??)?)*"
)
"""Regular expressions of the parts that Python's and JavaScript's (in Unicode mode) both have and write alike."""


def compiles(schema: Json) -> bool:
    """Whether an object schema surely can be compiled."""
    visited: list[Json] = []
    rest: list[object] = [schema]
    while rest:
        each = rest.pop()
        if is_json(each):
            if not _is_sound(each):
                return False
            visited.append(each)
            rest += _below(each)
        elif not isinstance(each, bool):
            return False
    schemas = {id(each) for each in visited}
    return all("$ref" not in each or _resolves(each["$ref"], schema, schemas) for each in visited)


def _is_sound(schema: Json) -> bool:
    return (
        _FORBIDDEN.isdisjoint(schema)
        and _FORMAT_LIMITS.isdisjoint(schema)
        and all(check(schema[key]) for key, check in _CHECKS.items() if key in schema)
    )


def _below(schema: Json) -> Iterator[object]:
    """The values that have to be schemas."""
    for key in _ONE_SCHEMA:
        if key in schema:
            yield schema[key]
    for key in _SCHEMAS:
        yield from items(schema.get(key))
    for key in _SCHEMAS_BY_NAME:
        yield from schema.get(key, {}).values()
    for each in schema.get("dependencies", {}).values():
        if not _is_texts(each):
            yield each
    if "items" in schema:
        inner = schema["items"]
        yield from inner if isinstance(inner, list) else (inner,)


def _resolves(ref: object, schema: Json, schemas: set[int]) -> bool:
    """Whether a reference, and those that it leads to, end at one of the `schemas` within `schema`."""
    seen: set[str] = set()
    while isinstance(ref, str) and ref not in seen and (ref == "#" or ref.startswith("#/")) and "%" not in ref:
        seen.add(ref)
        found: object = schema
        for part in ref.split("/")[1:]:
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if is_json(found) else None
        if isinstance(found, bool):
            return True
        if not is_json(found) or id(found) not in schemas:
            return False
        if "$ref" not in found:
            return True
        ref = found["$ref"]
    return False


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST_NUMBER


def _is_texts(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    return isinstance(value, list) and all(isinstance(each, str) for each in cast("list[Any]", value))


def _is_type(value: object) -> bool:
    names = [value] if isinstance(value, str) else items(value)
    return bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)


def _is_pattern(value: object) -> bool:
    if not isinstance(value, str) or not _PATTERN.fullmatch(value):
        return False
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_filled(value: object) -> bool:
    return bool(items(value))


_CHECKS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "$ref": _is_text,
    "$schema": _is_text,
    "format": _is_text,
    "type": _is_type,
    "enum": _is_filled,
    "pattern": _is_pattern,
    "required": _is_texts,
    "uniqueItems": lambda value: isinstance(value, bool),
    "patternProperties": lambda value: is_json(value) and all(map(_is_pattern, value)),
    "dependencies": is_json,
    **dict.fromkeys(("$defs", "definitions", "properties"), is_json),
    **dict.fromkeys(_SCHEMAS, _is_filled),
    **dict.fromkeys(_NUMBERS, _is_number),
}
