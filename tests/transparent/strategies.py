"""Random messages: arguments, results, errors and definitions of every shape that the wire can carry."""

from typing import Any

from hypothesis import strategies as st

plain_text = st.text(max_size=12)
texts = plain_text | st.sampled_from(
    ["", "\u2028\x85\x0b\r\n", "\ufeff", "\x00", "<skill_guide>", "\U0001f600", "data: x"]
)
numbers = (
    st.integers()
    | st.integers(min_value=-(10**300), max_value=10**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0, -0.0, 1, 1.0, 2**53, 2**63, 2**64, 1e16, 1e22, 1e-7, 5e-324, 1.7976931348623157e308])
)
leaves = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)
nested = st.builds(
    lambda depth, as_list: _nested(depth, as_list=as_list), st.integers(min_value=20, max_value=100), st.booleans()
)
anything = values | nested
objects = st.dictionaries(texts, anything, max_size=4)

vendor_keys = st.sampled_from(["vendor/trace", "com.example/a.b", "traceparent", "x", "", "größe", "io.example/y"])
meta = st.dictionaries(vendor_keys, values, max_size=3)
extras = st.dictionaries(st.sampled_from(["x-future", "x-none", "vendorField", "größe"]), values, max_size=2)


def _nested(depth: int, *, as_list: bool) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if as_list else {"": value}
    return value


def shape(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with these keys, and with keys that no specification knows."""
    return st.builds(lambda known, more: {**more, **known}, st.fixed_dictionaries(required, optional=optional), extras)


# --- calls -----------------------------------------------------------------------------------------------------------

annotations = shape(
    {},
    {
        "audience": st.lists(st.sampled_from(["user", "assistant", "else"]), max_size=2),
        "priority": st.sampled_from([0, 1, 0.5, 1.0, 2]),
        "lastModified": texts,
    },
)
"""Of results, which are passed on as they are, sound or not."""
icons = st.lists(shape({"src": texts}, {"mimeType": texts, "sizes": st.lists(texts, max_size=2)}), max_size=2)
on_blocks: dict[str, Any] = {"annotations": annotations, "_meta": meta}
contents = shape({"uri": texts}, {"text": texts, "blob": texts, "mimeType": texts, "_meta": meta})
blocks = st.one_of(
    shape({"type": st.just("text"), "text": texts}, on_blocks),
    shape({"type": st.just("image"), "data": texts, "mimeType": texts}, on_blocks),
    shape({"type": st.just("audio"), "data": texts, "mimeType": texts}, on_blocks),
    shape({"type": st.just("resource"), "resource": contents}, on_blocks),
    shape({"type": st.just("resource_link"), "uri": texts, "name": texts}, {**on_blocks, "size": numbers}),
    shape({"type": st.sampled_from(["hologram", "", "TEXT", "tool_use"])}, on_blocks),
    values,
)
results = shape(
    {},
    {
        "content": st.lists(blocks, max_size=4),
        "structuredContent": anything,
        "isError": st.booleans() | st.none(),
        "_meta": meta,
    },
)
codes = st.sampled_from([-32700, -32600, -32601, -32602, -32603, -32000, -32001, -32002, -32042, -1, 0, 1, 404])
errors = st.fixed_dictionaries(
    {"code": codes | st.integers(min_value=-(2**31), max_value=2**31), "message": texts},
    optional={"data": anything.filter(lambda data: data is not None)},
)
bodies = st.builds(lambda result: {"result": result}, results) | st.builds(lambda error: {"error": error}, errors)
"""What a server answers: the response without what makes it one."""
reads = shape({}, {"contents": st.lists(contents | values, max_size=3), "_meta": meta})
messages = shape({"role": st.sampled_from(["user", "assistant", "else"]), "content": blocks}, {"_meta": meta})
prompts_got = shape({}, {"description": texts, "messages": st.lists(messages | values, max_size=3), "_meta": meta})
completions = shape({}, {"completion": objects | values, "_meta": meta})

call_params = shape({}, {"arguments": objects, "_meta": meta})
string_arguments = st.dictionaries(texts, texts, max_size=3)

# --- definitions -----------------------------------------------------------------------------------------------------

names = (st.text(min_size=1, max_size=60) | st.from_regex(r"[A-Za-z0-9_.-]{1,20}", fullmatch=True)).filter(
    lambda name: name not in {"big", "die", "echo", "lists", "say"}
)
property_names = st.sampled_from(["a", "b", "", "$ref", "größe", "type", "properties", "x-mcp"])
schemas = st.recursive(
    st.booleans()
    | st.sampled_from(
        [
            {},
            {"type": "string", "format": "uri"},
            {"type": ["null", "integer"], "minimum": 1.0, "maximum": 2**70},
            {"$ref": "#/$defs/node"},
            {"$ref": "#here"},
            {"$ref": "#"},
            {"$ref": "http://127.0.0.1:9/never.json"},
            {"const": None},
            {"enum": [1, 1.0, "1", None, True]},
        ]
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", ["object", "null"]]),
            "properties": st.dictionaries(property_names, inner, max_size=3),
            "items": inner,
            "additionalProperties": inner,
            "anyOf": st.lists(inner, max_size=2),
            "not": inner,
            "$defs": st.dictionaries(st.sampled_from(["node", "leaf", "a/b", ""]), inner, max_size=2),
            "$anchor": st.just("here"),
            "$dynamicAnchor": st.just("meta"),
            "default": values,
            "x-vendor": values,
        },
    ),
    max_leaves=8,
)


def _of_object(schema: Any, more: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object, whose own properties are objects themselves, as the TypeScript SDK wants them."""
    known: dict[str, Any] = {**schema, **more} if isinstance(schema, dict) else more
    properties = {key: each for key, each in known.get("properties", {}).items() if isinstance(each, dict)}
    return {**known, "type": "object", **({"properties": properties} if properties else {"properties": {}})}


object_schemas = st.builds(
    _of_object,
    schemas,
    st.sampled_from(
        [
            {},
            {"$schema": "https://json-schema.org/draft/2020-12/schema"},
            {"$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}, "any": True, "none": False}}}},
        ]
    ),
)
output_schemas = st.sampled_from(
    [
        {"type": "object"},
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/node"}},
            "$defs": {"node": {"type": ["null", "array"]}},
        },
        {"type": "object", "required": ["größe"], "x-vendor": [1.0, None], "additionalProperties": False},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"n": {"minimum": 1.0}}},
        {"type": "object", "properties": {"next": {"$ref": "#"}, "s": {"pattern": "^[a-z0-9_.-]+$", "format": "uri"}}},
    ]
)
"""Such as every client can compile."""
sound_annotations = shape(
    {},
    {
        "audience": st.lists(st.sampled_from(["user", "assistant"]), max_size=2),
        "priority": st.sampled_from([0, 1, 0.5, 1.0]),
        "lastModified": st.sampled_from(["2026-07-28T00:00:00Z", "2024-02-29T23:59:59.25+05:30"]),
    },
)
base: dict[str, Any] = {"title": texts, "description": texts, "icons": icons, "_meta": meta}
tools = shape(
    {"name": names, "inputSchema": object_schemas},
    {
        **base,
        "outputSchema": output_schemas,
        "annotations": shape({}, {"readOnlyHint": st.booleans(), "destructiveHint": st.booleans(), "title": texts}),
        "execution": shape({}, {"taskSupport": st.sampled_from(["optional", "forbidden"])}),
    },
)
prompts = shape(
    {"name": names},
    {**base, "arguments": st.lists(shape({"name": texts}, {"required": st.booleans(), "title": texts}), max_size=2)},
)
sizes = st.integers(min_value=0, max_value=2**53) | st.sampled_from([1.0, 2**62])
uris = st.builds(lambda name: f"other://{name}", st.text(max_size=20))
resources = shape(
    {"uri": uris, "name": texts}, {**base, "mimeType": texts, "size": sizes, "annotations": sound_annotations}
)
templates = shape({"uriTemplate": uris, "name": texts}, {**base, "mimeType": texts, "annotations": sound_annotations})


def listed(definitions: st.SearchStrategy[dict[str, Any]], key: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Definitions that can be told apart."""
    return st.lists(definitions, max_size=10, unique_by=lambda definition: definition[key])


# --- malformed definitions -------------------------------------------------------------------------------------------

wrong = values | st.sampled_from([None, [], {}, "", "x", 5, True, [1], {"a": 1}, {"": None}, "\ud800", 10**400, 1e300])
"""What may stand in any field."""
_schema_keywords = st.sampled_from(
    [
        *("type", "properties", "required", "$schema", "schema_", "$ref", "$id", "id", "$anchor", "enum", "pattern"),
        *("items", "anyOf", "not", "if", "additionalProperties", "patternProperties", "dependencies", "format"),
        *("minimum", "maxLength", "uniqueItems", "nullable", "definitions", "$defs", "const", "formatMinimum"),
    ]
)
_schema_values = wrong | st.sampled_from(
    [
        *("object", "string", ["object", "null"], "text", "(", "a{,3}", r"\_", "[a-z]+", "date", "#", "#/$defs/a"),
        *("#here", "https://example.com/a.json", {"type": "string"}, {"a": True}, {"a": False}, {"a": {"type": 5}}),
        *({"a": {"$ref": "#/$defs/a"}}, {"a": {"$ref": "#/definitions/none"}}, {"a": {"id": "x"}}, {"(": {}}),
    ]
)
malformed_schemas = (
    wrong
    | object_schemas
    | st.dictionaries(_schema_keywords, _schema_values, max_size=4)
    | st.builds(
        lambda keywords: {"type": "object", **keywords},
        st.dictionaries(_schema_keywords, _schema_values | schemas, max_size=4),
    )
)


def _malformed(fields: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Entries with some of these fields, sound ones and others; and what are no entries at all."""
    attributes = ("meta", "mime_type", "input_schema", "output_schema", "uri_template", "x")
    optional = {**fields, **dict.fromkeys(attributes, wrong)}
    return st.fixed_dictionaries({}, optional=optional) | wrong


def _either(sound: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(sound, sound, wrong)


_hints: dict[str, Any] = dict.fromkeys(("readOnlyHint", "destructive_hint", "openWorldHint", "title"), wrong)
_icon = st.fixed_dictionaries(
    {}, optional={"src": _either(texts), "sizes": wrong, "theme": wrong | st.just("dark"), "mime_type": wrong}
)
_anything_on: dict[str, Any] = {
    "title": _either(texts),
    "description": _either(texts),
    "icons": _either(icons) | st.lists(_icon, max_size=2),
    "_meta": _either(meta),
    "annotations": wrong | annotations | st.fixed_dictionaries({}, optional=_hints),
}
malformed_tools = _malformed(
    {
        **_anything_on,
        "name": _either(names),
        "inputSchema": malformed_schemas,
        "outputSchema": malformed_schemas,
        "execution": wrong | st.fixed_dictionaries({}, optional={"taskSupport": wrong | st.just("required")}),
    }
)
malformed_prompts = _malformed(
    {
        **_anything_on,
        "name": _either(names),
        "arguments": wrong
        | st.lists(st.fixed_dictionaries({}, optional={"name": wrong, "required": wrong}), max_size=2),
    }
)
malformed_resources = _malformed(
    {
        **_anything_on,
        "uri": _either(uris),
        "name": _either(texts),
        "size": _either(numbers),
        "mimeType": _either(texts),
    }
)
malformed_templates = _malformed(
    {**_anything_on, "uriTemplate": _either(uris), "name": _either(texts), "mimeType": _either(texts)}
)
malformed_lists = st.fixed_dictionaries(
    {
        "tools": st.lists(malformed_tools, max_size=6),
        "prompts": st.lists(malformed_prompts, max_size=4),
        "resources": st.lists(malformed_resources, max_size=4),
        "resourceTemplates": st.lists(malformed_templates, max_size=4),
    }
)
"""By the name of the list in its result."""
