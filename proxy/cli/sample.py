"""A call that needs no thought: which tool, and arguments made from its schema."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from mcp_types import Tool

from proxy.core.inventory import Json, is_json, items

_TELLING: Final = re.compile(r"(?<![a-z])(?:status|list|log|get|current|search)", re.IGNORECASE)
"""What names of tools hold whose result says something by itself."""


def chosen(tools: Iterable[Tool]) -> tuple[Tool, Json | None]:
    """The tool to show (there is one), and arguments for it; None where a person must give them."""
    ranked = sorted(tools, key=lambda tool: (not _only_reads(tool), len(_required(tool)), not _tells(tool)))
    safe = ((tool, arguments_for(tool)) for tool in ranked if not _destroys(tool))
    return next((pair for pair in safe if pair[1] is not None), (ranked[0], None))


def arguments_for(tool: Tool) -> Json | None:
    """Arguments for `tool`, made from its schema; None when that does not suffice."""
    made: dict[str, Any] = {}
    properties = tool.input_schema.get("properties")
    for name in _required(tool):
        schema = properties.get(name) if is_json(properties) else None
        value = _example(name, schema) if is_json(schema) else None
        if value is None:
            return None
        made[name] = value
    return made


def how_to_call(tool: Tool) -> str:
    """The options by which a person has `tool` called."""
    arguments = json.dumps(dict.fromkeys(map(str, _required(tool)), "…"), ensure_ascii=False)
    return f"--call {tool.name} --arguments '{arguments}'"


def _required(tool: Tool) -> list[Any]:
    return list(items(tool.input_schema.get("required")))


def _tells(tool: Tool) -> bool:
    return _TELLING.search(tool.name) is not None


def _only_reads(tool: Tool) -> bool:
    return tool.annotations is not None and tool.annotations.read_only_hint is True


def _destroys(tool: Tool) -> bool:
    return tool.annotations is not None and tool.annotations.destructive_hint is True and not _only_reads(tool)


def _example(name: str, schema: Json) -> object:
    """A value for the argument `name` from its schema; where it asks for a folder, the one we are in, if it fits."""
    if "repo" in name and not Path(".git").exists():
        return None
    if schema.get("type") == "string" and re.search(r"path|folder|dir(ectory)?$|cwd", name):
        return str(Path.cwd())
    quoted = re.search(r"e\.g\.,?\s*['\"`]([^'\"`]+)['\"`]", str(schema.get("description", "")))
    candidates = [
        schema.get("const"),
        schema.get("default"),
        *items(schema.get("examples")),
        *items(schema.get("enum")),
    ]
    return next((found for found in candidates if found is not None), quoted.group(1) if quoted else None)
