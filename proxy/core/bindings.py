"""Arguments that skills fill in for clients: which there are, and a tool's input schema without them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from proxy.core.catalogue import Skill
from proxy.core.inventory import Json, is_json, items

_ALSO_WITHIN: Final = ("allOf", "anyOf", "oneOf")
_BRANCHES: Final = ("if", "then", "else")
_BY_ARGUMENT: Final = ("properties", "dependentRequired", "dependentSchemas", "dependencies")
"""What a schema has by the name of an argument."""


class Bound(NamedTuple):
    """What an argument is filled in with, which may hold expressions, and the skill that says so."""

    value: Any
    skill: str


def bound(skills: Iterable[Skill], server: str, tool: str) -> dict[str, Bound]:
    """By argument, what `skills`, which can be active together, fill in for a tool."""
    found: dict[str, Bound] = {}
    for skill in skills:
        for argument, value in skill.bind.get(server, {}).get(tool, {}).items():
            found.setdefault(argument, Bound(value, skill.id))
    return found


def without(definition: Json, arguments: Collection[str]) -> Json:
    """The definition of a tool with an input schema that has none of `arguments`; the same object where there are none.

    Also the parts of the schema that hold for the same object (JSON Schema's in-place applicators) lose them, and the
    ones by reference, where it refers to its own definitions.
    """
    schema = definition.get("inputSchema")
    if not arguments or not is_json(schema):
        return definition
    return {**definition, "inputSchema": _without(_inlined(schema, schema), arguments)}


def _without(schema: Json, arguments: Collection[str]) -> Json:
    out = dict(schema)
    for key in _BY_ARGUMENT:
        if is_json(by_argument := schema.get(key)):
            out[key] = {name: value for name, value in by_argument.items() if name not in arguments}
    if isinstance(schema.get("required"), list):
        out["required"] = [name for name in items(schema["required"]) if name not in arguments]
    for key in _ALSO_WITHIN:
        if isinstance(schema.get(key), list):
            out[key] = [_without(part, arguments) if is_json(part) else part for part in items(schema[key])]
    for key in _BRANCHES:
        if is_json(part := schema.get(key)):
            out[key] = _without(part, arguments)
    return out


def _inlined(schema: Json, root: Json) -> Json:
    """A schema that is a mere reference to a definition of its own, as what it refers to."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    found: object = root
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if is_json(found) else None
    if not is_json(found) or "$ref" in found:
        return schema
    rest = {key: value for key, value in schema.items() if key != "$ref"}
    return {**rest, **found, **{key: rest[key] for key in ("$defs", "definitions") if key in rest}}


def refused(bound_arguments: Mapping[str, Bound], given: Json) -> dict[str, str]:
    """Those of the arguments that a client gives that are filled in for it, each with the skill that does."""
    return {name: one.skill for name, one in bound_arguments.items() if name in given}
