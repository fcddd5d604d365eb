"""What clients see of a tool's input schema where some of the arguments are filled in for them.

Who satisfies what is listed satisfies the original once they are, if their values fit all that is said of them at any
place. Not promised is that where an alternative, a condition (`if`) or a `not` hangs on such a value, where members are
counted (`maxProperties`) or others than the named ones are ruled out, where the object is compared as a whole (`const`,
`enum`), and where something else than `#` or `#/...` refers to more of what is said of it: there, what is listed may be
too wide or too narrow. At worst a server, which checks its arguments itself, refuses a call.
"""

from collections.abc import Iterable
from itertools import count
from typing import Any, Final, TypeAlias, cast
from urllib.parse import unquote

from proxy.core.inventory import Json, is_json, items, members_of

_Use: TypeAlias = tuple[str, bool]
"""A reference, and whether it is said of the object itself; else it is said of another value."""

_DEFINITIONS: Final = ("$defs", "definitions")
_SAME: Final = ("required", "allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_DEPENDENT: Final = ("dependentRequired", "dependentSchemas", "dependencies")
_OF_ITS_PLACE: Final = ("$schema", "$id", "$anchor", "$dynamicAnchor", "x-mcp-header", *_DEFINITIONS)
"""What a copy of a part does not have in another place."""


def without_bound(schema: Json, arguments: Iterable[str]) -> Json:
    """`schema`, an object's, without `arguments`; one that is nested beyond all measure becomes that of any object."""
    try:
        return _Narrowing(schema, tuple(arguments)).listed()
    except RecursionError:
        return {"type": "object"}


class _Narrowing:
    """One schema on its way to be without `arguments`.

    A definition is narrowed in its place if all that refers to it says so of the object itself. What is referred to and
    is not in its place any more as it is needed is copied to the definitions.
    """

    def __init__(self, schema: Json, arguments: tuple[str, ...]) -> None:
        self._schema = schema
        self._arguments = arguments
        self._uses = _uses(schema)
        self._shared = {_way(reference)[:2] for reference, same in self._uses if not same}
        names = (name for n in count(1) if (name := f"given-{n}") not in members_of(schema.get("$defs")))
        self._copies = dict(zip((use for use in self._uses if not self._stays(use)), names, strict=False))

    def listed(self) -> Json:
        """The whole schema."""
        narrow = {_way(use[0]) for use in self._uses if use[1] and use not in self._copies}
        out = self._part(self._schema, same=True)
        for key in (key for key in _DEFINITIONS if is_json(out.get(key))):
            out[key] = {n: self._part(of, same=(key, n) in narrow) for n, of in self._schema[key].items()}
        if self._copies:
            out["$defs"] = {**members_of(out.get("$defs")), **{n: self._copy(use) for use, n in self._copies.items()}}
        return out

    def _stays(self, use: _Use) -> bool:
        """Whether what is referred to is in its place as it is needed there."""
        way, same = _way(use[0]), use[1]
        if same:
            return not way or (way[0] in _DEFINITIONS and way == way[:2] and way not in self._shared)
        return way[1:] != () and (way[0] in _DEFINITIONS or (way[0] == "properties" and way[1] not in self._arguments))

    def _copy(self, use: _Use) -> Any:  # noqa: ANN401 - any JSON value
        part = self._uses[use]
        moved = {key: of for key, of in part.items() if key not in _OF_ITS_PLACE} if is_json(part) else part
        return self._part(moved, same=use[1])

    def _part(self, value: Any, *, same: bool) -> Any:  # noqa: ANN401 - any JSON value
        """A part without the arguments where it is said of the object itself; what one of them entails always holds."""
        if isinstance(value, list):
            entries = cast("list[Any]", value)
            return [self._part(one, same=same) for one in entries if not same or one not in self._arguments]
        if not is_json(value):
            return value
        out = {key: self._keyword(key, of, same=same) for key, of in value.items()}
        if not same:
            return out
        if out.get("required") == [] != value["required"]:
            del out["required"]
        dependent = (part for key in _DEPENDENT for part in members_of(value.get(key)).items())
        entailed = [of for name, of in dependent if name in self._arguments]
        if always := [of for of in self._part(entailed, same=True) if of != []]:
            out["allOf"] = [*items(out.get("allOf")), *({"required": of} if items(of) else of for of in always)]
        return out

    def _keyword(self, key: str, value: Any, *, same: bool) -> Any:  # noqa: ANN401 - any JSON value
        if key == "$ref" and isinstance(value, str) and (value, same) in self._copies:
            return f"#/$defs/{self._copies[value, same]}"
        if same and key in ("properties", *_DEPENDENT) and is_json(value):
            others = {name: of for name, of in value.items() if name not in self._arguments}
            return {name: self._part(of, same=key != "properties") for name, of in others.items()}
        return self._part(value, same=same and key in _SAME)


def _uses(schema: Json) -> dict[_Use, Any]:
    """What the schema refers to in itself, by use; of its definitions, only what is referred to counts."""
    found: dict[_Use, Any] = {}
    todo: list[tuple[Any, bool]] = [(schema, True)]
    while todo:
        value, same = todo.pop()
        todo += [(one, same) for one in items(value)]
        for key, of in members_of(value).items():
            if key == "$ref" and isinstance(of, str) and (of, same) not in found:
                found[of, same] = _found(schema, of)
                todo.append((found[of, same], same))
            elif key in _DEPENDENT:
                todo += [(one, same) for one in members_of(of).values()]
            elif value is not schema or key not in _DEFINITIONS:
                todo.append((of, same and key in _SAME))
    return {use: part for use, part in found.items() if part is not None}


def _found(schema: Json, reference: str) -> Any:  # noqa: ANN401 - any JSON value
    """What a reference leads to in the schema itself; None where that is nothing, or elsewhere."""
    found: Any = schema if reference[:2] in ("#", "#/") else None
    for step in _way(reference):
        members = members_of(found) or {str(n): one for n, one in enumerate(items(found))}
        found = members.get(step)
    return found


def _way(reference: str) -> tuple[str, ...]:
    return tuple(unquote(step).replace("~1", "/").replace("~0", "~") for step in reference.split("/")[1:])
