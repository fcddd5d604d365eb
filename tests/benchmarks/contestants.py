"""Who is measured, and the command that starts each in front of given servers."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import HERE

Servers = dict[str, dict[str, Any]]
"""Key to `command` and `args`, or to `url`: the entries of any client's configuration."""
Command = Callable[[Servers, Path, int | None], list[str]]
"""The command line in front of `servers`: on stdio, or on a port; the configuration may be written to a path."""


@dataclass(frozen=True)
class Contestant:
    """One of those that are compared. `many`: whether it can stand in front of several servers.

    `dormant`: the command with a skill of all servers that is yet to be activated, where there are skills.
    """

    name: str
    command: Command
    many: bool = True
    dormant: Command | None = None


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
    product = Contestant("product", _product(active=True), dormant=_product(active=False))
    found = [Contestant("direct", _direct, many=False), product, Contestant("sdk", _sdk)]
    if fastmcp:
        found.append(Contestant("fastmcp", lambda *given: _script(fastmcp, "fastmcp_proxy.py", *given)))
    return found


def _direct(servers: Servers, _config: Path, port: int | None) -> list[str]:
    entry = servers["u0"]
    return [entry["command"], *entry["args"]] if port is None else http_server(port)


def _product(*, active: bool) -> Command:
    def command(servers: Servers, config: Path, port: int | None) -> list[str]:
        skill = {"desc": "All tools.", "usage": "", "active": active, "tool_list": {key: [] for key in servers}}
        entries = {key: ({"type": "http"} if "url" in entry else {}) | entry for key, entry in servers.items()}
        config.write_text(json.dumps({"servers": entries, "skill_configs": {"all": skill}}), encoding="utf-8")
        over = [] if port is None else ["--transport", "http", "--port", str(port)]
        return [sys.executable, "-m", "proxy", "serve", "--config", str(config), *over]

    return command


def _sdk(servers: Servers, config: Path, port: int | None) -> list[str]:
    return _script(sys.executable, "sdk_proxy.py", servers, config, port)


def _script(python: str, name: str, servers: Servers, config: Path, port: int | None) -> list[str]:
    config.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return [python, str(HERE / name), str(config), *([] if port is None else [str(port)])]
