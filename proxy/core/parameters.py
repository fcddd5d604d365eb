"""What a workflow can be given: the JSON Schema of its parameters, and values checked against it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from proxy.core.inventory import Json, is_json, items, members_of
from proxy.core.masking import MASK, tells_a_secret
from proxy.core.patterns import BadPattern, compiled, found
from proxy.core.texts import flat, shortened
from proxy.core.wording import alike

if TYPE_CHECKING:
    from jsonschema import FormatChecker
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator
    from referencing import Resource
    from referencing.jsonschema import SchemaRegistry


class _Resolver(Protocol):
    """What finds the schema that a reference means."""

    def lookup(self, ref: str) -> object: ...

    def in_subresource(self, subresource: Any) -> "_Resolver": ...  # noqa: ANN401 - a schema of any dialect


class _Descends(Protocol):
    """A validator of jsonschema, as its keywords get it."""

    def descend(
        self, instance: object, schema: object, path: str | None = None, schema_path: str | None = None
    ) -> Iterator["ValidationError"]: ...


TYPES: Final = ("string", "integer", "number", "boolean", "array", "object", "null")

_SHORT_FORM: Final = ("type", "description", "required", "default")
"""Keys of a parameter in the short form beside those that JSON Schema has, too, and that may be misspelled."""
_MISSPELLED: Final = 0.75
"""How like one of those a key is that is one of them misspelled; no keyword of JSON Schema is."""
_MOST: Final = 20
"""Faults that are told of a value."""
_LONGEST: Final = 200
"""Characters of a fault."""
_SHOWN: Final = 60
"""Characters of a value in a fault."""
_STRAY: Final = 5
"""Names in a fault."""
_DEEPEST: Final = 100
"""Levels of a value that are recorded."""
_MOST_SECRETS: Final = 100
_LONGEST_SECRET: Final = 1_000
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_OF_SHAPE: Final = frozenset(
    {"type", "required", "additionalProperties", "minItems", "maxItems", "minProperties", "maxProperties"}
)
"""Keywords that hold for a list or an object whatever the values in it are."""
_BY_OTHER_VALUES: Final = frozenset({"if", "then", "else", "not", "dependentSchemas", "unevaluatedProperties"})
"""Keywords whose schemas count, or not, by values elsewhere."""
_NO_SCHEMAS: Final = frozenset({"default", "enum", "const", "examples"})
"""Keys of a schema below which there are values."""
_KEYWORDS: Final = frozenset(
    {
        *("additionalItems", "additionalProperties", "allOf", "anyOf", "const", "contains", "contentEncoding"),
        *("contentMediaType", "contentSchema", "default", "definitions", "dependencies", "dependentRequired"),
        *("dependentSchemas", "deprecated", "description", "else", "enum", "examples", "exclusiveMaximum"),
        *("exclusiveMinimum", "format", "if", "items", "maxContains", "maxItems", "maxLength", "maxProperties"),
        *("maximum", "minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not", "oneOf"),
        *("pattern", "patternProperties", "prefixItems", "properties", "propertyNames", "readOnly", "required"),
        *("then", "title", "type", "unevaluatedItems", "unevaluatedProperties", "uniqueItems", "writeOnly"),
    }
)
"""The keywords of JSON Schema, from draft 7 to 2020-12, but for those that begin with `$`."""
_BY_NAME: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Keys of a schema below which there are schemas by name."""


class BadSchema(Exception):
    """Parameters that cannot be used as they are written; the text says why, in a line."""


def schema_of(written: Json) -> Json:
    """The JSON Schema (draft 2020-12 unless it says otherwise) of parameters as a skill has them. Raises BadSchema.

    They are a JSON Schema where they have a key that begins with `$`, `type: object`, or `properties` below which
    there are mappings alone. Else they are the short form, by name: a type, or a mapping of what JSON Schema says of a
    value and `required`, true or false. There, a parameter is required if it says so and has no default, and others
    than the named ones are refused.
    """
    schema = _whole(written) if _is_schema(written) else _from_short_form(written)
    if fault := schema_fault(schema) or next(_bad_defaults(schema), ""):
        raise BadSchema(fault)
    return schema


def result_schema_of(written: Json) -> Json:
    """The JSON Schema of the result that a skill promises, as a skill has it. Raises BadSchema.

    Without a keyword of JSON Schema it is the short form, by name: a type, or a mapping of what JSON Schema says of a
    value and `required`. There the result is an object, and what is named is required unless it says `required: false`
    or has a default; other members are allowed.
    """
    schema = _expanded(written) if _is_short(written) else written
    if fault := schema_fault(schema):
        raise BadSchema(fault)
    return schema


def _is_short(written: Json) -> bool:
    """Whether a schema names members with their types, where JSON Schema would see words that mean nothing to it."""
    unknown = [key for key in written if key not in _KEYWORDS and not key.startswith("$")]
    types = all(told in TYPES if isinstance(told, str) else "type" in members_of(told) for told in written.values())
    if unknown:
        return types or len(unknown) == len(written)
    return bool(written) and types and "type" not in written


def _expanded(written: Json) -> Json:
    properties = {name: _property(name, told) for name, told in written.items()}
    optional = [
        name
        for name, told in written.items()
        if members_of(told).get("required") is False or "default" in members_of(told)
    ]
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }


def _is_schema(written: Json) -> bool:
    properties = written.get("properties")
    return (
        any(key.startswith("$") for key in written)
        or written.get("type") == "object"
        or (is_json(properties) and all(map(is_json, properties.values())))
    )


def _whole(schema: Json) -> Json:
    if schema.get("type", "object") != "object":
        raise BadSchema("type: parameters are an object")
    return {"type": "object", **schema}


def _from_short_form(written: Json) -> Json:
    properties = {name: _property(name, told) for name, told in written.items()}
    required = [
        name
        for name, told in written.items()
        if is_json(told) and told.get("required") is True and "default" not in told
    ]
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _property(name: str, told: object) -> Json:
    told = {"type": told} if isinstance(told, str) else told
    if not is_json(told):
        raise BadSchema(f"{name}: is neither a type, such as string, nor a mapping such as {{type: string}}")
    kind = told.get("type")
    if isinstance(kind, str) and kind not in TYPES:
        close = alike(kind, TYPES)
        raise BadSchema(
            f"{name}: there is no type {kind!r}"
            + (f", did you mean {close[0]!r}?" if close else f": {', '.join(TYPES)}")
        )
    for key in told:
        if key not in _SHORT_FORM and key.isalpha() and (meant := get_close_matches(key, _SHORT_FORM, 1, _MISSPELLED)):
            raise BadSchema(f"{name}: there is no key {key!r}, did you mean {meant[0]!r}?")
    if not isinstance(told.get("required", False), (bool, list)):
        raise BadSchema(f"{name}: required is true or false")
    return {key: value for key, value in told.items() if key != "required" or isinstance(value, list)}


def schema_fault(schema: Json) -> str:
    """What is wrong with a JSON Schema, in a line; empty where nothing is.

    References beyond the schema itself are wrong: nothing is ever fetched.
    """
    dialect = schema.get("$schema", _DIALECT)
    kind = _kind_of_validator(dialect) if isinstance(dialect, str) else None
    if kind is None:
        return f"$schema: {flat(repr(dialect), _SHOWN)} is not known"
    checker = kind(kind.META_SCHEMA, registry=_nothing_else(), format_checker=_formats(kind))
    try:
        error = next(iter(checker.iter_errors(cast("Any", schema))), None)
        if error is None and (fault := _unbounded(schema)):
            return fault
    except RecursionError:
        return "it is nested too deeply"
    if error is None:
        return next(_bad_references(schema, dialect), "")
    if error.validator == "anyOf" and [*error.absolute_path][-1:] == ["type"]:
        error.message = f"{error.instance!r} is no type: there are {', '.join(TYPES)}"
    if isinstance(error.cause, BadPattern):
        error.message = f"{error.instance!r} cannot be used: {error.cause}"
    return _told(error)


def _formats(kind: "type[Validator]") -> "FormatChecker":
    """What checks the formats that a dialect has for schemas, with patterns as they are taken here."""
    from jsonschema import FormatChecker  # noqa: PLC0415 - as in `_kind_of_validator`

    formats = FormatChecker()
    formats.checkers = {**kind.FORMAT_CHECKER.checkers, "regex": (_is_pattern, BadPattern)}
    return formats


def _is_pattern(value: object) -> bool:
    """Whether a value is a pattern, as whatever is not text is. Raises BadPattern."""
    return not isinstance(value, str) or bool(compiled(value))


def _unbounded(schema: Json) -> str:
    """What in a schema cannot be evaluated in linear time; empty where all can.

    Looks also where only a reference makes a schema of what is there. jsonschema would look for unevaluated properties
    by patterns of its own accord, with backtracking.
    """
    keys: set[str] = set()
    for key, below in _keywords(schema):
        keys.add(key)
        patterns = [below] if key == "pattern" else members_of(below) if key == "patternProperties" else ()
        for pattern in patterns:
            try:
                _is_pattern(pattern)
            except BadPattern as fault:
                return f"{key}: {flat(repr(pattern), _SHOWN)} cannot be used: {fault}"
    if {"unevaluatedProperties", "patternProperties"} <= keys:
        return "unevaluatedProperties is not supported beside patternProperties"
    return ""


def _keywords(value: object) -> Iterator[tuple[str, object]]:
    """The keys in a schema and what is below them, at any depth."""
    for key, below in members_of(value).items():
        yield key, below
        if key not in _NO_SCHEMAS:
            yield from _keywords(below)
    for below in items(value):
        yield from _keywords(below)


def _bad_references(schema: Json, dialect: str) -> Iterator[str]:
    from referencing import Resource  # noqa: PLC0415 - as in `_kind_of_validator`
    from referencing.jsonschema import specification_with  # noqa: PLC0415 - as above

    root = Resource(contents=cast("Any", schema), specification=specification_with(dialect))
    name = root.id() or ""
    return _bad_below(root, _nothing_else().with_resource(name, root).resolver(name))


def _bad_below(resource: "Resource[Any]", resolver: _Resolver) -> Iterator[str]:
    contents: object = resource.contents
    for key in _REFERENCES if is_json(contents) else ():
        reference = cast("Json", contents).get(key)
        if isinstance(reference, str) and not reference.startswith("#"):
            yield f"{key}: {flat(reference, _SHOWN)} is not in the schema itself; nothing is fetched"
        elif isinstance(reference, str) and not _is_there(resolver, reference):
            yield f"{key}: there is no {flat(reference, _SHOWN)} in the schema"
    for below in resource.subresources():
        yield from _bad_below(below, resolver.in_subresource(below))


def _is_there(resolver: _Resolver, reference: str) -> bool:
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - as above

    try:
        resolver.lookup(reference)
    except Unresolvable:
        return False
    return True


def _bad_defaults(schema: Json) -> Iterator[str]:
    defaults = filled(schema, {})
    for error in _errors(schema, defaults):
        if error.absolute_path and error.absolute_path[0] in defaults:
            yield f"the default of {_told(error)}"


def filled(schema: Json, arguments: Json) -> Json:
    """`arguments` with the defaults of the parameters that are not among them."""
    properties = schema.get("properties")
    told = properties.items() if is_json(properties) else ()
    defaults = {name: of["default"] for name, of in told if is_json(of) and "default" in of and name not in arguments}
    return {**arguments, **deepcopy(defaults)}


def invalid(schema: Json, value: object) -> list[str]:
    """What is wrong with a value, in words, each with its place: `limit: 'x' is not of type 'integer'`; at most 20.

    `schema`: one without faults. Values are shown shortened, and secret ones not at all. `format` says what a value
    is, as JSON Schema has it, and is not checked.
    """
    try:
        return [_told(error) for error in _errors(schema, value)]
    except RecursionError:
        return ["it is nested too deeply"]


def invalid_constants(
    schema: Json, value: Json, is_open: Callable[[object], bool], *, partial: bool = False
) -> list[str]:
    """As `invalid`, of an object some of whose values are not known yet: what is wrong with it whatever they will be.

    `is_open`: whether a value is not known, or holds one that is not. `partial`: the object may get more members. A
    schema with faults of its own finds nothing.
    """
    if schema_fault(schema):
        return []
    try:
        decisive = _BY_OTHER_VALUES if is_open(value) else frozenset[str]()
        return [
            _told(error)
            for error in _errors(schema, value)
            if decisive.isdisjoint(error.absolute_schema_path)
            and _is_certain(error, is_open)
            and not (partial and error.validator == "required" and len(error.absolute_path) == 1)
        ]
    except RecursionError:
        return []


def _is_certain(error: "ValidationError", is_open: Callable[[object], bool]) -> bool:
    """Whether an error stays, whatever the values of what it is about will be."""
    instance = cast("object", error.instance)
    return not is_open(instance) or (not isinstance(instance, str) and error.validator in _OF_SHAPE)


def _errors(schema: Json, value: object) -> Iterator["ValidationError"]:
    kind = _kind_of_validator(schema.get("$schema", _DIALECT))
    checker = cast("type[Validator]", kind)(schema, registry=_nothing_else())
    return islice(checker.iter_errors(cast("Any", value)), _MOST)


def _told(error: "ValidationError") -> str:
    """An error in a line: where, and what. It shows the value in question only where that is short and no secret."""
    place = ""
    for key in error.absolute_path:
        place += f"[{key}]" if isinstance(key, int) else f".{key}" if place else str(key)
    written = repr(cast("object", error.instance))
    if isinstance(error.instance, (dict, list)):
        shown = "it"
    elif _is_secret(error.schema) or any(tells_a_secret(str(key)) for key in error.absolute_path):
        shown = MASK
    else:
        shown = shortened(written, _SHOWN)
    message = _unexpected(error) or error.message.replace(written, shown)
    return flat(f"{place}: {message}" if place else message, _LONGEST)


def _unexpected(error: "ValidationError") -> str:
    """What an object has that its schema does not name; empty where that is not the error."""
    schema, value = cast("object", error.schema), cast("object", error.instance)
    if error.validator != "additionalProperties" or not is_json(schema) or not is_json(value):
        return ""
    if schema["additionalProperties"] is not False or "patternProperties" in schema:
        return ""
    named = schema.get("properties", {})
    stray = islice((name for name in value if name not in named), _STRAY)
    return ", ".join(_not_expected(name, named) for name in stray)


def _not_expected(name: str, known: Json) -> str:
    close = alike(name, known)
    return f"{name!r} is not expected" + (f" (did you mean {close[0]!r}?)" if close else "")


def _nothing_else() -> "SchemaRegistry":
    """Where schemas are looked up besides the one in question: nowhere, so that nothing is ever fetched."""
    from referencing import Registry  # noqa: PLC0415 - as above

    return cast("SchemaRegistry", Registry[Any]())


@cache
def _kind_of_validator(dialect: str) -> "type[Validator] | None":
    """What checks by a dialect of JSON Schema; None where that is not known."""
    from jsonschema import validators  # noqa: PLC0415 - takes 100 ms, which only those who have parameters shall pay

    kind = cast("type[Validator] | None", validators.validator_for({"$schema": dialect}, default=cast("Any", None)))
    if kind is None:
        return None
    extend = cast("Callable[..., type[Validator]]", validators.extend)  # pyright: ignore[reportUnknownMemberType] - untyped
    own = {"required": _required, "uniqueItems": _unique, "pattern": _pattern, "patternProperties": _by_pattern}
    return extend(kind, {**own, "additionalProperties": _additional})


def _pattern(_: "Validator", pattern: str, value: object, __: object) -> Iterator["ValidationError"]:
    """As JSON Schema has it, in linear time."""
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415 - as above

    if isinstance(value, str) and not found(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _by_pattern(validator: _Descends, by_pattern: Json, value: object, _: object) -> Iterator["ValidationError"]:
    """As JSON Schema has `patternProperties`, in linear time."""
    for pattern, schema in by_pattern.items():
        for name, below in members_of(value).items():
            if found(pattern, name):
                yield from validator.descend(below, schema, path=name, schema_path=pattern)


def _additional(validator: _Descends, said: object, value: object, schema: Json) -> Iterator["ValidationError"]:
    """As JSON Schema has `additionalProperties`, in linear time."""
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415 - as above

    named, patterns = members_of(schema.get("properties")), members_of(schema.get("patternProperties"))
    others = [
        name for name in members_of(value) if name not in named and not any(found(each, name) for each in patterns)
    ]
    if is_json(said):
        for name in others:
            yield from validator.descend(members_of(value)[name], said, path=name)
    elif not said and others:
        told = ", ".join(map(repr, sorted(others)))
        verb = "does" if len(others) == 1 else "do"
        yield ValidationError(f"{told} {verb} not match any of the regexes: {', '.join(map(repr, sorted(patterns)))}")


def _required(_: "Validator", names: object, value: object, __: object) -> Iterator["ValidationError"]:
    """As JSON Schema has it; each error has its place at what is missing."""
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415 - as above

    if is_json(value):
        yield from (ValidationError("is required", path=(name,)) for name in items(names) if name not in value)


def _unique(_: "Validator", wanted: object, value: object, __: object) -> Iterator["ValidationError"]:
    """As JSON Schema has it, in a time that goes with the number of items, not with its square."""
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415 - as above

    if wanted and isinstance(value, list):
        each = items(cast("object", value))
        if len({json.dumps(_canonical(item), sort_keys=True) for item in each}) < len(each):
            yield ValidationError("has items that are equal")


def _canonical(value: object) -> object:
    """`value` with numbers that are whole as such, since 1.0 is 1."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _canonical(below) for key, below in cast("Json", value).items()}
        case list():
            return [_canonical(below) for below in cast("list[object]", value)]
        case _:
            return value


# --- for records -----------------------------------------------------------------------------------------------------


def masked(schema: Json, arguments: Json, mask: Callable[[str], str]) -> Json:
    """`arguments` as they can be recorded.

    What is below a key that tells a secret becomes `***`, at any depth; so does what is below one to which the schema
    gives `writeOnly: true` or `format: password`, wherever it does. Other texts are as `mask` gives them back.
    """
    return _masked(arguments, frozenset(_secret_names(schema, schema)), mask, 0)


def secrets_in(schema: Json, arguments: Json) -> list[str]:
    """What `masked` makes `***` of, as texts: at most 100, without those of more than 1,000 characters."""
    found = _secrets(arguments, frozenset(_secret_names(schema, schema)), 0, inside=False)
    return [*islice((text for text in found if len(text) <= _LONGEST_SECRET), _MOST_SECRETS)]


def _secrets(value: object, secret: frozenset[str], depth: int, *, inside: bool) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    if is_json(value):
        for key, below in value.items():
            hidden = inside or key in secret or tells_a_secret(key)
            yield from _secrets(below, secret, depth + 1, inside=hidden)
    elif inside and isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)
    for below in items(value):
        yield from _secrets(below, secret, depth + 1, inside=inside)


def _masked(value: Any, secret: frozenset[str], mask: Callable[[str], str], depth: int) -> Any:  # noqa: ANN401 - JSON
    if depth > _DEEPEST:
        return MASK
    match value:
        case str():
            return mask(value)
        case Mapping():
            return {
                key: MASK if key in secret or tells_a_secret(key) else _masked(below, secret, mask, depth + 1)
                for key, below in cast("Json", value).items()
            }
        case list():
            return [_masked(below, secret, mask, depth + 1) for below in cast("list[Any]", value)]
        case _:
            return value


def _secret_names(schema: object, root: Json) -> Iterator[str]:
    """The names of properties, anywhere in a schema, that it says are secret."""
    if is_json(schema):
        properties = schema.get("properties")
        for name, of in properties.items() if is_json(properties) else ():
            if _is_secret(of, root):
                yield name
        for key, below in schema.items():
            if key not in _NO_SCHEMAS:
                yield from _secret_names(below, root)
    for below in items(schema):
        yield from _secret_names(below, root)


def _is_secret(schema: object, root: Json | None = None, followed: Sequence[str] = ()) -> bool:
    """Whether a schema says that a value is secret, itself or in a part that is for the same value or its items.

    References are followed where there is a `root`.
    """
    if not is_json(schema):
        return any(_is_secret(below, root, followed) for below in items(schema))
    if schema.get("writeOnly") is True or schema.get("format") == "password":
        return True
    reference = schema.get("$ref")
    if root is not None and isinstance(reference, str) and reference not in followed:
        found: object = root
        for part in reference.removeprefix("#").split("/")[1:]:
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if is_json(found) else None
        if _is_secret(found, root, (*followed, reference)):
            return True
    return any(_is_secret(below, root, followed) for key, below in schema.items() if key not in _NO_SCHEMAS | _BY_NAME)
