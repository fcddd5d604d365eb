"""Who is measured, and the command that starts each in front of given servers."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from processes import HERE, ROOT

Servers = dict[str, dict[str, Any]]
"""Key to `command` and `args`, or to `url`: the entries of any client's configuration."""
Command = Callable[[Servers, Path, int | None], list[str]]
"""The command line in front of `servers`: on stdio, or on a port; the configuration may be written to a path."""


@dataclass(frozen=True)
class Contestant:
    """One of those that are compared. `many`: whether it can stand in front of several servers.

    `dormant`: the command with a skill of all servers that is yet to be activated, where there are skills. `openings`:
    by what it has to read first, the commands whose first answers are measured.
    """

    name: str
    command: Command
    many: bool = True
    dormant: Command | None = None
    openings: Mapping[str, Command] = field(default_factory=dict[str, Command])


def stdio_servers(count: int, tools: int, delay: float = 0) -> Servers:
    """So many hand-written servers with so many tools each, which begin to answer after `delay` seconds."""
    script = str(HERE / "raw_server.py")
    return {
        f"u{number}": {"command": sys.executable, "args": [script, f"u{number}", str(tools), str(delay)]}
        for number in range(count)
    }


def http_server(port: int) -> list[str]:
    """The command of one SDK server over HTTP."""
    return [sys.executable, str(HERE / "sdk_server.py"), "u0", "10", str(port)]


def contestants(fastmcp: str | None) -> list[Contestant]:
    """All there are here; `fastmcp`: a Python that has FastMCP, if any."""
    dormant = _product(active=False)
    openings = {"": dormant, "folders": _product(active=False, folders=True), "200": _product(active=False, more=199)}
    product = Contestant("product", _product(active=True), dormant=dormant, openings=openings)
    sdk = Contestant("sdk", _sdk, openings={"": _bare})
    found = [Contestant("direct", _direct, many=False), product, sdk]
    if fastmcp:
        found.append(Contestant("fastmcp", lambda *given: _script(fastmcp, "fastmcp_proxy.py", *given)))
    return found


def _direct(servers: Servers, _config: Path, port: int | None) -> list[str]:
    entry = servers["u0"]
    return [entry["command"], *entry["args"]] if port is None else http_server(port)


def _product(*, active: bool, folders: bool = False, more: int = 0) -> Command:
    """The program with a skill of all servers, and `more` skills, or those in the folders that are shipped."""

    def command(servers: Servers, config: Path, port: int | None) -> list[str]:
        skill = {"desc": "All tools.", "usage": "", "active": active, "tool_list": {key: [] for key in servers}}
        skills = {"all": skill, **{f"skill-{number}": {**skill, "active": False} for number in range(more)}}
        entries = {key: ({"type": "http"} if "url" in entry else {}) | entry for key, entry in servers.items()}
        paths = [{"path": str(ROOT / "config" / "skills"), "trusted": False}] if folders else []
        whole = {"servers": entries, "skill_configs": skills, "skill_paths": paths}
        config.write_text(json.dumps(whole, indent=1), encoding="utf-8")
        over = [] if port is None else ["--transport", "http", "--port", str(port)]
        return [sys.executable, "-m", "proxy", "serve", "--config", str(config), *over]

    return command


def _sdk(servers: Servers, config: Path, port: int | None) -> list[str]:
    return _script(sys.executable, "sdk_proxy.py", servers, config, port)


def _bare(_servers: Servers, _config: Path, _port: int | None) -> list[str]:
    """A server of the SDK, with nothing behind it."""
    return [sys.executable, str(HERE / "sdk_server.py"), "u0", "10"]


def _script(python: str, name: str, servers: Servers, config: Path, port: int | None) -> list[str]:
    config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return [python, str(HERE / name), str(config), *([] if port is None else [str(port)])]
