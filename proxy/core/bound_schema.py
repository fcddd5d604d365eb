"""The schema of a tool's arguments as it is for somebody for whom some of them are filled in.

Who satisfies it satisfies the original one once they are. They are taken to fit what the schema says of them for good;
where it has alternatives, a value that is known is held against the `const`, `enum` and `type` of each.
"""

import json
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import count
from typing import Any, Final, cast
from urllib.parse import quote, unquote

from proxy.core.inventory import Json, is_json, items

_DEFINITIONS: Final = ("$defs", "definitions")
_DEPENDENCIES: Final = ("dependentRequired", "dependentSchemas", "dependencies")
_SEVERAL: Final = ("allOf", "anyOf", "oneOf")
_BRANCHES: Final = ("if", "then", "else")
_OPENING: Final = frozenset({"patternProperties", "additionalProperties", "$dynamicRef", "$recursiveRef"})
"""What may allow any argument."""
_APART: Final = frozenset({*_DEFINITIONS, *_BRANCHES, "required", "maxProperties"})
"""What is looked at for a schema as a whole."""
_NOTES: Final = frozenset({"title", "description", "default", "examples", "$comment", "deprecated", "x-mcp-header"})
"""What a schema has that decides nothing."""
_OF_ITS_PLACE: Final = frozenset({"$schema", "$id", "$anchor", "$dynamicAnchor", "x-mcp-header", *_DEFINITIONS})
"""What a copy of a part of a schema does not have in another place."""
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "boolean": bool,
    "number": (int, float),
    "integer": (int, float),
    "object": dict,
    "array": list,
    "null": type(None),
}


class _Doubt(Enum):
    """How a value is taken where it is not known whether it fits what is said of it.

    `NONE`: it has to fit, so it does. `FITS`, `FAILS`: whichever makes the whole hold; below a `not` it is the latter.
    """

    NONE = "it fits"
    FITS = "taken to fit"
    FAILS = "taken not to fit"

    def inside(self) -> "_Doubt":
        """The same for one of several alternatives, of which not all have to hold."""
        return _Doubt.FITS if self is _Doubt.NONE else self

    def negated(self) -> "_Doubt":
        """The same for what must not hold."""
        return _Doubt.FITS if self is _Doubt.FAILS else _Doubt.FAILS


def is_fixed(value: object) -> bool:
    """Whether a JSON value is what it is: no text in it has an expression."""
    return "{{" not in json.dumps(value)


def without_bound(schema: Json, values: Json) -> dict[str, Any]:
    """`schema`, an object's, without the members of `values`, which are filled in; texts in these may be expressions.

    A schema nested beyond all measure becomes that of any object.
    """
    try:
        return _Narrowing(schema, values).root()
    except RecursionError:
        return {"type": "object"}


class _Narrowing:
    """One schema on its way to be without `values`.

    What it refers to is copied to its definitions: as it is for those who are filled in where it is about the same
    object, else as it was. What nothing refers to any more is left out.
    """

    def __init__(self, schema: Json, values: Json) -> None:
        self._schema = schema
        self._values = values
        self._made: dict[tuple[str, _Doubt | None], str] = {}
        self._definitions: dict[str, dict[str, Any]] = {key: {} for key in _DEFINITIONS}
        self._numbers = count(1)
        self._verbatim = False
        """Whether something refers to definitions in a way that is not followed here; all of them stay then."""
        self._doubts = 0
        self._doubtful: set[tuple[str, _Doubt | None]] = set()

    def root(self) -> dict[str, Any]:
        """The whole schema."""
        out = self._narrowed(self._schema, _Doubt.NONE)
        for key, made in self._definitions.items():
            kept = self._schema.get(key) if self._verbatim else None
            if found := {**(kept if is_json(kept) else {}), **made}:
                out[key] = found
        return out

    def _part(self, part: object, doubt: _Doubt) -> Any:  # noqa: ANN401 - a schema: an object or a boolean
        """A part of the schema that is about the same object; `doubt`: of the filled-in values."""
        if not is_json(part):
            return part
        if _stands_alone(part):
            self._verbatim = True
            return part
        if doubt is not _Doubt.NONE and not self._fit(part, doubt):
            return False
        return self._narrowed(part, doubt)

    def _narrowed(self, part: Json, doubt: _Doubt) -> dict[str, Any]:
        out = {key: self._keyword(key, value, doubt) for key, value in part.items() if key not in _APART}
        needed = [*items(part.get("required"))]
        besides: list[Any] = []
        for key in _DEPENDENCIES:
            for name, of in _members(part.get(key)):
                if name in self._values:
                    needed += items(of)
                    besides += [self._part(of, doubt)] if _is_schema(of) else []
        if "if" in part:
            before = self._doubts
            condition = self._part(part["if"], _Doubt.FITS)
            branches = {key: self._part(part[key], doubt.inside()) for key in ("then", "else") if key in part}
            if self._doubts == before:
                out |= {"if": condition, **branches}
            else:  # whatever the condition comes to
                besides += branches.values()
        if isinstance(most := part.get("maxProperties"), int | float):
            out["maxProperties"] = max(most - len(self._values), 0)
            besides += [False] if most < len(self._values) else []
        if required := [*dict.fromkeys(self._others(needed))]:
            out["required"] = required
        if besides:
            out["allOf"] = [*items(out.get("allOf")), *besides]
        return out

    def _keyword(self, key: str, value: object, doubt: _Doubt) -> Any:  # noqa: ANN401 - any JSON value
        """What a schema says by `key`, where that is about the same object."""
        match key:
            case "allOf":
                return [self._part(one, doubt) for one in items(value)]
            case "anyOf" | "oneOf":
                return [self._part(one, doubt.inside()) for one in items(value)]
            case "not":
                return self._part(value, doubt.negated())
            case "$ref" if isinstance(value, str):
                return self._referred(value, doubt)
            case "dependentRequired" | "dependentSchemas" | "dependencies":
                return {name: self._dependent(of, doubt) for name, of in _members(value) if name not in self._values}
            case _:
                return self._of_members(key, value)

    def _of_members(self, key: str, value: object) -> Any:  # noqa: ANN401 - any JSON value
        """What a schema says by `key`, where that is about the members of the object."""
        match key:
            case "properties":
                return {name: self._copied(of) for name, of in _members(value) if name not in self._values}
            case "minProperties" if isinstance(value, int | float):
                return max(value - len(self._values), 0)
            case "propertyNames" if is_json(value) and isinstance(value.get("enum"), list):
                names = self._others(items(value["enum"]))
                return {**value, "enum": names} if names else False
            case "default" if is_json(value):
                return self._without(value)
            case "examples":
                return [self._without(one) if is_json(one) else one for one in items(value)]
            case _:
                return self._copied(value)

    def _dependent(self, of: object, doubt: _Doubt) -> Any:  # noqa: ANN401 - names, or a schema
        """What holds where another argument is there."""
        return self._part(of, doubt.inside()) if _is_schema(of) else self._others(items(of))

    def _others(self, names: Iterable[object]) -> list[str]:
        return [name for name in names if isinstance(name, str) and name not in self._values]

    def _without(self, example: Json) -> Json:
        return {name: value for name, value in example.items() if name not in self._values}

    def _fit(self, part: Json, doubt: _Doubt) -> bool:
        """Whether the filled-in values fit what one of several alternatives says of them."""
        for name, value in self._values.items():
            of_value = self._said_of(part, name)
            for said in (_says(of_value, value), _says(part.get("propertyNames", True), name)):
                self._doubts += said is None
                if said is False or (said is None and doubt is _Doubt.FAILS):
                    return False
        return True

    def _said_of(self, part: Json, name: str) -> object:
        """The schema that the value of an argument has to fit at this part: its own, or the one of all others."""
        properties = part.get("properties")
        if is_json(properties) and name in properties:
            return properties[name]
        if "patternProperties" in part:
            return True
        if "additionalProperties" in part:
            return part["additionalProperties"]
        closing = part.get("unevaluatedProperties", True)
        return True if closing is True or self._speaks_of(part, name, set()) else closing

    def _speaks_of(self, part: object, name: str, seen: set[str]) -> bool:
        """Whether a part of the schema, or one of those in it that are about the same object, may allow an argument."""
        if not is_json(part):
            return False
        properties = part.get("properties")
        if (is_json(properties) and name in properties) or not _OPENING.isdisjoint(part):
            return True
        below = [one for key in _SEVERAL for one in items(part.get(key))]
        below += [part[key] for key in _BRANCHES if key in part]
        below += [of for _, of in _members(part.get("dependentSchemas"))]
        if isinstance(reference := part.get("$ref"), str) and reference not in seen:
            seen.add(reference)
            below.append(_found(self._schema, reference))
        return any(self._speaks_of(one, name, seen) for one in below)

    def _referred(self, reference: str, doubt: _Doubt | None) -> str:
        """The reference to a copy of what `reference` refers to; `doubt` is None where that is about other values."""
        key = (reference, doubt)
        if key in self._made:
            self._doubts += key in self._doubtful
            return self._made[key]
        found = _found(self._schema, reference)
        if found is None or (found is not self._schema and _stands_alone(found)):
            self._verbatim = True
            return reference
        container, name = ("$defs", self._new_name()) if doubt is not None else self._place(reference)
        self._made[key] = f"#/{container}/{_escaped(name)}"
        before = self._doubts
        moved = {k: v for k, v in found.items() if k not in _OF_ITS_PLACE} if is_json(found) else found
        self._definitions[container][name] = None  # taken, also by what it refers to itself
        self._definitions[container][name] = self._copied(moved) if doubt is None else self._part(moved, doubt)
        if self._doubts > before:
            self._doubtful.add(key)
        return self._made[key]

    def _place(self, reference: str) -> tuple[str, str]:
        """Where the copy of what was not changed stands: where it stood, if that was among the definitions."""
        container, _, name = reference.removeprefix("#/").partition("/")
        if container in _DEFINITIONS and name and "/" not in name:
            return container, _unescaped(name)
        return "$defs", self._new_name()

    def _new_name(self) -> str:
        taken = dict(_members(self._schema.get("$defs")))
        return next(name for number in self._numbers if (name := f"given-{number}") not in taken)

    def _copied(self, value: Any) -> Any:  # noqa: ANN401 - any JSON value
        """A part of the schema that is about other values, with what it refers to."""
        if isinstance(value, list):
            return [self._copied(one) for one in cast("list[Any]", value)]
        if not is_json(value):
            return value
        if _stands_alone(value):
            self._verbatim = True
            return value
        out = {key: self._copied(of) for key, of in value.items()}
        if isinstance(reference := value.get("$ref"), str):
            out["$ref"] = self._referred(reference, None)
        self._verbatim = self._verbatim or "$dynamicRef" in value or "$recursiveRef" in value
        return out


def _members(value: object) -> Iterable[tuple[str, Any]]:
    return value.items() if is_json(value) else ()


def _stands_alone(part: object) -> bool:
    """Whether a part of a schema is one of its own: what it refers to is inside it."""
    return is_json(part) and isinstance(part.get("$id"), str)


def _is_schema(value: object) -> bool:
    return isinstance(value, bool | dict)


def _found(schema: Json, reference: str) -> object:
    """What a reference into `schema` itself leads to, by the way through it; None where that is nothing."""
    if reference == "#":
        return schema
    if not reference.startswith("#/"):
        return None
    found: Any = schema
    for step in reference.removeprefix("#/").split("/"):
        if isinstance(found, list):
            entries = cast("list[Any]", found)
            found = next((one for place, one in enumerate(entries) if str(place) == step), None)
        else:
            found = found.get(_unescaped(step)) if is_json(found) else None
    return found


def _unescaped(step: str) -> str:
    return unquote(step).replace("~1", "/").replace("~0", "~")


def _escaped(step: str) -> str:
    return quote(step.replace("~", "~0").replace("/", "~1"), errors="surrogatepass")


def _says(schema: object, value: Any) -> bool | None:  # noqa: ANN401 - any JSON value
    """Whether `value` fits a schema as far as a look can tell; None where it cannot."""
    if isinstance(schema, bool) or not is_json(schema):
        return schema if isinstance(schema, bool) else None
    if schema.keys() <= _NOTES:
        return True
    if not is_fixed(value):
        return None
    if "const" in schema and not _equal(value, schema["const"]):
        return False
    if "enum" in schema and not any(_equal(value, one) for one in items(schema["enum"])):
        return False
    kind = schema.get("type")
    if kind is not None and not any(_is(value, one) for one in items(kind) or [kind]):
        return False
    return True if schema.keys() <= _NOTES | {"const", "enum", "type"} else None


def _is(value: object, kind: object) -> bool:
    """Whether a value is of a type of JSON Schema; of one that is not known there, everything is."""
    if kind == "integer" and isinstance(value, float) and not value.is_integer():
        return False
    known = _TYPES.get(kind) if isinstance(kind, str) else None
    return known is None or (isinstance(value, known) and (known is bool or not isinstance(value, bool)))


def _equal(one: object, other: object) -> bool:
    """Whether two JSON values are equal; to Python 1 and true would be."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
