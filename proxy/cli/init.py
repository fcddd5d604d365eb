"""`init`: write a configuration with one skill per server, ready to edit."""

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Final

import yaml

from proxy.core.inventory import Json, is_json

GOOD, REFUSED = 0, 2
DEFAULT_OUTPUT: Final = Path("skills.yaml")
KEYS: Final = ("servers", "mcpServers", "mcp_servers")

HEAD: Final = """\
# One skill for each server, to be edited. The model chooses a skill by its desc and works by its usage; tool_list says
# which tools it gets: [] for all of a server, or names and patterns such as [search_issues, "get_*"].
# Check it with: mcp-skill-proxy check --config {path}
"""
STARTER: Final = """\
servers:
  time: {command: mcp-server-time}   # pip install mcp-server-time
"""


class CannotRead(Exception):
    """The source has no servers that could be taken over; the text says what is wrong."""


def init(source: Path | None, output: Path | None) -> int:
    """Write a configuration to `output` (`-` for stdout) from the servers of `source`; 2 when that cannot be done."""
    target = output or DEFAULT_OUTPUT
    try:
        servers, text = _servers_of(source) if source is not None else (["time"], STARTER)
        written = f"{HEAD.format(path=target)}{text.rstrip()}\n\n{_skills(servers)}"
        if str(target) == "-":
            print(written, end="")
            return GOOD
        with target.open("x", encoding="utf-8") as file:
            file.write(written)
    except FileExistsError:
        print(f"{target} exists already; name another file with --output", file=sys.stderr)
        return REFUSED
    except (CannotRead, OSError) as error:
        what = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
        print(f"mcp-skill-proxy: {what}", file=sys.stderr)
        return REFUSED
    print(f"{target}: {len(servers)} servers with a skill each; edit it, then: mcp-skill-proxy check --config {target}")
    return GOOD


def _servers_of(source: Path) -> tuple[list[str], str]:
    """The keys of the servers in a client's config or a YAML, and YAML text that has them as they stand."""
    text = source.read_text(encoding="utf-8-sig")
    suffix = source.suffix.lower()
    try:
        if suffix == ".toml":
            document: object = tomllib.loads(text)
        elif suffix == ".json":
            document = json.loads(re.sub(r"(?m)^\s*//.*$", "", text))
        else:
            document = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506 - builds text, lists and mappings alone
    except (ValueError, yaml.YAMLError) as error:
        raise CannotRead(f"{source}: {' '.join(str(error).split())}") from None
    servers = _find(document)
    if not servers:
        raise CannotRead(f"{source} has no servers: looked for {', '.join(KEYS)}")
    if suffix in (".json", ".toml"):
        return list(servers), _yaml({"servers": servers})
    if is_json(document) and "skill_configs" in document:
        raise CannotRead(f"{source} has skill_configs already: edit it")
    return list(servers), text


def _find(document: object) -> Json:
    """The servers of a document: at the top, or below `mcp` (VS Code's settings)."""
    if not is_json(document):
        return {}
    for holder in (document, document.get("mcp")):
        for key in KEYS:
            if is_json(holder) and is_json(found := holder.get(key)):
                return found
    return {}


def _skills(servers: list[str]) -> str:
    skills: dict[str, Json] = {
        server: {
            "name": server,
            "desc": f"The tools of {server}. (Say what they are for: the model chooses by this line.)",
            "usage": f"Use the tools of {server} as their descriptions say. (Say what the model should know.)",
            "tool_list": {server: []},
        }
        for server in servers
    }
    return _yaml({"skill_configs": skills})


def _yaml(document: Json) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)  # pyright: ignore[reportUnknownMemberType] - the stubs leave its `width` open
