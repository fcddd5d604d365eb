"""What `allowed-tools` of the Agent Skills standard grants at the servers of the configuration."""

import re
from collections.abc import Collection, Iterable, Mapping

_TOKEN = re.compile(r"(?:\([^()]*\)|[^\s,])+")
"""Tools are set apart by white space or commas, but `Bash(git status:*)` is one."""
_OF_MCP = "mcp__"


def granted(texts: Iterable[str], servers: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """By server, the tools that `texts` name, as a `tool_list` has them; `servers`: the keys that there are.

    A tool is written `mcp__SERVER__TOOL`, `SERVER__TOOL` or `SERVER:TOOL`, with `*` for all, as also `mcp__SERVER` is;
    patterns are allowed. What is written otherwise is about tools of the client itself, and is left alone.
    """
    found: dict[str, dict[str, None]] = {}
    for text in texts:
        for token in _TOKEN.findall(text):
            if ("__" in token or ":" in token) and "(" not in token and (grant := _grant(token, servers)):
                server, tool = grant
                found.setdefault(server, {})[tool] = None
    return {server: () if "*" in tools else tuple(tools) for server, tools in found.items()}


def united(one: Mapping[str, tuple[str, ...]], other: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Both lists: at each server the tools of either, or all where one of them has all."""
    both = {**one, **other}
    for server in one.keys() & other.keys():
        all_of_them = not one[server] or not other[server]
        both[server] = () if all_of_them else tuple(dict.fromkeys([*one[server], *other[server]]))
    return both


def tool_named(text: str, servers: Collection[str]) -> tuple[str, str] | None:
    """The server and the tool that `text` names: `SERVER/TOOL`, `SERVER.TOOL`, or as `granted` has it; None for none.

    The tool is `*` for all of a server. `servers`: the keys that there are.
    """
    return _grant(text, servers) or _taken_apart(text, servers, ("/", "."))


def _grant(token: str, servers: Collection[str]) -> tuple[str, str] | None:
    """A server and a tool."""
    named = token.removeprefix(_OF_MCP)
    if named != token:
        if named in servers:
            return named, "*"
        if grant := _taken_apart(named, servers, ("__",)):
            return grant
    return _taken_apart(token, servers, ("__", ":"))


def _taken_apart(text: str, servers: Iterable[str], marks: Iterable[str]) -> tuple[str, str] | None:
    """A server and a tool with a mark between them; the longest key that fits, as keys may hold marks too."""
    fitting = [(key, text[len(key + mark) :]) for key in servers for mark in marks if text.startswith(key + mark)]
    server, tool = max(fitting, key=lambda fit: len(fit[0]), default=("", ""))
    return (server, tool) if tool else None
