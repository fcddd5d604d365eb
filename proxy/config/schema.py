"""The JSON Schema of the configuration file for editors (draft-07); `python -m proxy.config.schema` prints it."""

import json
import sys
from typing import Any, cast

from proxy.config.client_entries import READ_AS
from proxy.config.models import CLIENT_KEYS, File

DRAFT = "http://json-schema.org/draft-07/schema#"

_UNUSED: dict[str, Any] = {"description": "Not used: only some clients understand it."}
_NAMES_INSIDE = frozenset({"properties", "definitions"})


def schema() -> dict[str, Any]:
    """The schema of the file, generated from the models."""
    generated = cast("dict[str, Any]", _draft_07(File.model_json_schema(by_alias=True)))
    definitions = generated.pop("definitions")
    server = definitions["ServerEntry"]
    server["properties"] |= {key: dict(_UNUSED) for key in sorted(CLIENT_KEYS)}
    server["properties"] |= {key: {"description": f"Read as {known.name}."} for key, known in READ_AS.items()}
    return {
        "$schema": DRAFT,
        "title": "mcp-skill-proxy configuration",
        **generated,
        "definitions": definitions,
    }


def text() -> str:
    """The schema as it stands in `config/skills.schema.json`."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _draft_07(node: object, *, names: bool = False) -> object:
    """`node` (2020-12, from pydantic) in draft-07, without nulls and generated titles; `names`: its keys are names."""
    if isinstance(node, list):
        return [_draft_07(item) for item in cast("list[object]", node) if item != {"type": "null"}]
    if not isinstance(node, dict):
        return node
    source = cast("dict[str, object]", node)
    if names:
        return {name: _draft_07(inner) for name, inner in source.items()}
    out: dict[str, Any] = {}
    for key, value in source.items():
        if key == "title" or (key == "default" and value in (None, {}, [])):
            continue
        renamed = "definitions" if key == "$defs" else key
        if key == "$ref":
            out["$ref"] = str(value).replace("#/$defs/", "#/definitions/")
        elif key in {"default", "enum", "const"}:
            out[renamed] = value
        else:
            out[renamed] = _draft_07(value, names=renamed in _NAMES_INSIDE)
    return _with_reference_apart(_with_one_choice_unfolded(out))


def _with_one_choice_unfolded(node: dict[str, Any]) -> dict[str, Any]:
    choices = node.get("anyOf")
    if not isinstance(choices, list) or len(cast("list[Any]", choices)) != 1:
        return node
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    return {**cast("dict[str, Any]", choices[0]), **rest}


def _with_reference_apart(node: dict[str, Any]) -> dict[str, Any]:
    """Draft-07 ignores what stands beside a `$ref`, so it goes into an `allOf` of its own."""
    if "$ref" not in node or len(node) == 1:
        return node
    return {**{key: value for key, value in node.items() if key != "$ref"}, "allOf": [{"$ref": node["$ref"]}]}


if __name__ == "__main__":
    sys.stdout.write(text())
