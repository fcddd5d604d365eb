"""The shape that definitions of servers must have so that no client refuses the list that they stand in.

The official clients validate a whole page: one malformed entry costs them the list. Each entry is held against what
the Python SDK's and the TypeScript SDK's models accept in every protocol revision. What is missing or malformed and can
be done without is mended, an entry that cannot be used is left out, and both are told. A sound entry is not touched.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from functools import partial
from math import inf
from typing import Any, Final, TypeAlias, cast

from proxy.core.foreign_text import one_line
from proxy.core.inventory import DEEPEST, Json, is_json, items, json_size, without_lone_surrogates
from proxy.core.output_schema import compiles
from proxy.core.texts import NAME_LIMIT

MAX_FAULTS_TOLD: Final = 20
"""Faults of one list that are told one by one."""
_LARGEST_SIZE: Final = 2**63
"""Of a resource, in bytes; larger numbers are infinite to some clients."""
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)T(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
"""An ISO 8601 time with an offset, as the TypeScript SDK wants `lastModified`."""
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.", re.DOTALL)
"""How an absolute URI begins (RFC 3986, 3)."""
_TASKS_ONLY: Final = "it can be run as a task only (execution.taskSupport), which is not supported"

Tell: TypeAlias = Callable[[str], None]
Mend: TypeAlias = Callable[[Any, Tell], Any]
"""Gives a value that is sound back as it is, else a mended one; told is what was done.

Raises:
    Malformed: it cannot be mended.
"""


class Malformed(Exception):
    """A value that no client can be given; the text says what it must be."""


def sound(kind: str, listed: Iterable[object]) -> tuple[list[object], list[str]]:
    """The entries of a list that clients can be given, and what is wrong with the others, or was mended.

    `kind`: the name of the list in its result (`tools`, `resources`, `resourceTemplates`, `prompts`); entries of
    another list are given back as they are.
    """
    told: list[str] = []
    found: list[object] = []
    if (shape := _ENTRIES.get(kind)) is None:
        return [*listed], told
    for number, entry in enumerate(listed, 1):
        where = _called(kind, entry, number)

        def tell(what: str, where: str = where) -> None:
            told.append(f"{where}: {what}")

        try:
            found.append(shape(_encodable(entry, tell), tell))
        except Malformed as problem:
            told.append(f"{where} is left out: {problem}")
    if (more := len(told) - MAX_FAULTS_TOLD) > 0:
        told[MAX_FAULTS_TOLD:] = [f"{more:,} more"]
    return found, told


def _called(kind: str, entry: object, number: int) -> str:
    key = "uri" if kind == "resources" else "uriTemplate" if kind == "resourceTemplates" else "name"
    name = entry.get(key) if is_json(entry) else None
    one = {"tools": "tool", "resources": "resource", "resourceTemplates": "resource template"}.get(kind, "prompt")
    return f"{one} {one_line(name, NAME_LIMIT)}" if isinstance(name, str) and name else f"{one} number {number}"


def _encodable(entry: object, tell: Tell) -> object:
    """An entry that can be written as UTF-8 and is not too deep for those who read it."""
    if json_size(entry) == inf:
        raise Malformed(f"it is nested more than {DEEPEST} deep")
    try:
        json.dumps(entry, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        mended = without_lone_surrogates(entry)
        if is_json(entry) and any(entry.get(key) != mended.get(key) for key in ("name", "uri", "uriTemplate")):
            raise Malformed("its name or URI is not valid Unicode") from None
        tell("halves of characters in its texts are replaced")
        return mended
    return entry


# --- values ----------------------------------------------------------------------------------------------------------


def _only_if(check: Callable[[Any], bool], what: str) -> Mend:
    def mend(value: Any, _tell: Tell) -> Any:  # noqa: ANN401 - any JSON value
        if not check(value):
            raise Malformed(f"must be {what}")
        return value

    return mend


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_size(value: Any) -> bool:  # noqa: ANN401 - any JSON value
    return _is_number(value) and abs(value) < _LARGEST_SIZE and value == int(value)


def _is_time(value: object) -> bool:
    if not isinstance(value, str) or not (found := _TIME.fullmatch(value)):
        return False
    try:
        date.fromisoformat(found[1])
    except ValueError:
        return False
    return True


def _is_all(check: Callable[[Any], bool], value: Any) -> bool:  # noqa: ANN401 - any JSON value
    return isinstance(value, list) and all(map(check, items(cast("list[Any]", value))))


_text: Final = _only_if(_is_text, "text")
_name: Final = _only_if(lambda value: isinstance(value, str) and value != "", "text that is not empty")
_flag: Final = _only_if(lambda value: isinstance(value, bool), "true or false")
_texts: Final = _only_if(partial(_is_all, _is_text), "an array of texts")
_uri: Final = _only_if(lambda value: isinstance(value, str) and bool(_SCHEME.match(value)), "a URI with a scheme")


def _one_of(*values: str) -> Mend:
    return _only_if(lambda value: isinstance(value, str) and value in values, " or ".join(values))


def _object(fields: Mapping[str, Mend], required: Mapping[str, Mend] | None = None) -> Mend:
    """An object; of its `fields` those that are null or malformed are left out, and those that are `required` mended.

    An empty array is taken as an empty object, which some languages cannot tell apart. The Python SDK's models read
    each field under the name of their attribute, too (`mime_type`).
    """
    needed = required or {}
    optional = {name: mend for field, mend in fields.items() for name in (field, _attribute(field))}
    also = {_attribute(field): mend for field, mend in needed.items() if _attribute(field) != field}

    def mend(value: Any, tell: Tell) -> Any:  # noqa: ANN401 - any JSON value
        if value == []:
            tell("an empty array is taken as an empty object")
            value = {}
        if not is_json(value):
            raise Malformed("must be an object")
        changed: dict[str, Any] = {}
        for field, mend_one in needed.items():
            mended = _within(field, mend_one, value.get(field), tell)
            if field not in value or mended is not value[field]:
                changed[field] = mended
        dropped = {
            field
            for field, mend_one in (optional | also).items()
            if field in value and _is_dropped(field, mend_one, value[field], changed, tell)
        }
        if not changed and not dropped:
            return value
        return {key: member for key, member in {**value, **changed}.items() if key not in dropped}

    return mend


def _within(field: str, mend: Mend, value: Any, tell: Tell) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return mend(value, lambda what: tell(f"{field}: {what}"))
    except Malformed as problem:
        raise Malformed(f"{field}{_between(problem)}{problem}") from None


def _between(problem: Malformed) -> str:
    return " " if str(problem).startswith("must ") else ": "


def _is_dropped(field: str, mend: Mend, value: object, changed: dict[str, Any], tell: Tell) -> bool:
    """Whether an optional field is to be left out; where it is mended, it is put into `changed`."""
    if value is None:
        tell(f"{field} is left out: it is null")
        return True
    try:
        mended = mend(value, lambda what: tell(f"{field}: {what}"))
    except Malformed as problem:
        tell(f"{field} is left out: it {problem}")
        return True
    if mended is not value:
        changed[field] = mended
    return False


def _attribute(field: str) -> str:
    """The name that an attribute of the Python SDK's models has for a field."""
    return "schema_" if field == "$schema" else re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", field.lstrip("_"))


def _array(mend: Mend, *, keep: bool = False) -> Mend:
    """An array of which malformed entries are left out; with `keep`, what is neither an array nor empty is refused."""

    def mend_all(value: Any, tell: Tell) -> Any:  # noqa: ANN401 - any JSON value
        if keep and is_json(value) and not value:
            return []
        if not isinstance(value, list):
            raise (_Unusable if keep else Malformed)("must be an array")
        kept: list[Any] = []
        for number, each in enumerate(cast("list[Any]", value), 1):
            try:
                kept.append(mend(each, lambda what, number=number: tell(f"entry {number}: {what}")))
            except Malformed as problem:
                tell(f"entry {number} is left out: {_between(problem).strip(': ')}{problem}")
        entries = items(cast("list[Any]", value))
        return entries if len(kept) == len(entries) and all(map(_is_same, kept, entries)) else kept

    return mend_all


def _is_same(one: object, other: object) -> bool:
    return one is other


class _Unusable(Exception):
    """A field that is optional, and without which the entry would be another one."""


# --- schemas ---------------------------------------------------------------------------------------------------------


def _schema(value: Any, tell: Tell) -> Any:  # noqa: ANN401 - any JSON value
    """The schema of an object, with the keywords sound that clients look at."""
    if value is None or value is True or value == []:
        tell('there is none: taken as {"type": "object"}')
        return {"type": "object"}
    if not is_json(value):
        raise Malformed("must be an object")
    changed: dict[str, Any] = {}
    if (type_ := value.get("type")) != "object":
        if type_ is not None and "object" not in items(type_):
            raise Malformed("must have the type object")
        tell("its type is taken as object")
        changed["type"] = "object"
    if "properties" in value and (properties := _properties(value["properties"], tell)) is not value["properties"]:
        changed["properties"] = properties
    dropped = {
        key for key in ("$schema", "schema_") if key in value and _is_dropped(key, _text, value[key], changed, tell)
    }
    if "required" in value and not _is_all(_is_text, value["required"]):
        given = value["required"]
        names = [given] if isinstance(given, str) else [name for name in items(given) if isinstance(name, str)]
        tell("required must be an array of texts: what is not text is left out")
        changed["required"] = names
    if not changed and not dropped:
        return value
    return {key: member for key, member in {**value, **changed}.items() if key not in dropped}


def _properties(value: Any, tell: Tell) -> Any:  # noqa: ANN401 - any JSON value
    """The properties of a schema, each of which has to be an object: a schema that is true or false becomes one."""
    if value is None or value == []:
        tell("properties must be an object: taken as an empty one")
        return {}
    if not is_json(value):
        raise Malformed("properties must be an object")
    changed: dict[str, Any] = {}
    for name, each in value.items():
        if is_json(each):
            continue
        if each is False:
            changed[name] = {"not": {}}
        elif each is True or each is None or each == []:
            changed[name] = {}
            if each is not True:
                tell(f"property {one_line(name, NAME_LIMIT)} has no schema: anything is taken")
        else:
            raise Malformed(f"property {one_line(name, NAME_LIMIT)} must be a schema")
    return {**value, **changed} if changed else value


def _output_schema(value: Any, tell: Tell) -> Any:  # noqa: ANN401 - any JSON value
    if not is_json(value):
        raise Malformed("must be an object")
    mended = _schema(value, tell)
    if not compiles(mended):
        raise Malformed("has keywords or references by which some clients refuse the whole list")
    return mended


# --- entries ---------------------------------------------------------------------------------------------------------

_meta: Final = _object({})
_icons: Final = _array(
    _object({"mimeType": _text, "sizes": _texts, "theme": _one_of("light", "dark")}, {"src": _text}),
)
_annotations: Final = _object(
    {
        "audience": _only_if(partial(_is_all, lambda one: one in ("user", "assistant")), "an array of user, assistant"),
        "priority": _only_if(lambda value: _is_number(value) and 0 <= value <= 1, "a number from 0 to 1"),
        "lastModified": _only_if(_is_time, "a time in ISO 8601 with an offset"),
    }
)
_hints: Final = _object(
    {"title": _text, **dict.fromkeys(("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"), _flag)}
)
_execution: Final = _object({"taskSupport": _one_of("forbidden", "optional", "required")})


def _named_by(key: str, mend: Mend) -> Mend:
    """An entry whose name stands for it in a list alone: the URI at `key` does, where it has none."""

    def mend_named(value: Any, tell: Tell) -> Any:  # noqa: ANN401 - any JSON value
        if is_json(value) and not isinstance(value.get("name"), str) and isinstance(value.get(key), str):
            tell(f"name must be text: its {key} is taken")
            value = {**value, "name": value[key]}
        return mend(value, tell)

    return mend_named


_every: Final[Mapping[str, Mend]] = {"title": _text, "description": _text, "icons": _icons, "_meta": _meta}
_argument: Final = _object({"title": _text, "description": _text, "required": _flag}, {"name": _text})
_tool: Final = _object(
    {**_every, "outputSchema": _output_schema, "annotations": _hints, "execution": _execution},
    {"name": _name, "inputSchema": _schema},
)
_of_resources: Final[Mapping[str, Mend]] = {**_every, "mimeType": _text, "annotations": _annotations}


def _callable_tool(value: Any, tell: Tell) -> Any:  # noqa: ANN401 - any JSON value
    tool: Json = _tool(value, tell)
    execution = tool.get("execution")
    if is_json(execution) and execution.get("taskSupport") == "required":
        raise Malformed(_TASKS_ONLY)
    return tool


def _with_arguments(value: Any, tell: Tell) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return _prompt(value, tell)
    except _Unusable as problem:
        raise Malformed(f"arguments {problem}") from None


_prompt: Final = _object({**_every, "arguments": _array(_argument, keep=True)}, {"name": _name})
_ENTRIES: Final[Mapping[str, Mend]] = {
    "tools": _callable_tool,
    "resources": _named_by(
        "uri", _object({**_of_resources, "size": _only_if(_is_size, "a whole number")}, {"uri": _uri, "name": _text})
    ),
    "resourceTemplates": _named_by("uriTemplate", _object(_of_resources, {"uriTemplate": _name, "name": _text})),
    "prompts": _with_arguments,
}
