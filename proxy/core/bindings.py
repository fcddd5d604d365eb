"""Arguments that skills fill in for clients: which there are, and a tool's input schema without them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from proxy.core.bound_schema import without_bound
from proxy.core.catalogue import Skill
from proxy.core.inventory import Json, is_json


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


def without(definition: Json, arguments: Mapping[str, Bound]) -> Json:
    """The definition of a tool whose input schema has none of `arguments`; the same object where there are none."""
    schema = definition.get("inputSchema")
    if not arguments or not is_json(schema):
        return definition
    return {**definition, "inputSchema": without_bound(schema, arguments)}


def refused(bound_arguments: Mapping[str, Bound], given: Json) -> dict[str, str]:
    """Those of the arguments that a client gives that are filled in for it, each with the skill that does."""
    return {name: one.skill for name, one in bound_arguments.items() if name in given}


def is_fixed(value: object) -> bool:
    """Whether a JSON value is what it is: no text in it has an expression."""
    return "{{" not in json.dumps(value)
