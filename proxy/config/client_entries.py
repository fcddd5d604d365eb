"""Entries of servers as clients document them, in the keys that are used here."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from proxy.config.document import Plain
from proxy.config.problems import Findings, Place


class _Key(NamedTuple):
    """A key of clients: the one here that says the same, and which values it is understood with."""

    name: str
    fits: Callable[[Plain], bool]


def _is_text(value: Plain) -> bool:
    return isinstance(value, str)


def _is_mapping(value: Plain) -> bool:
    return isinstance(value, dict)


def _is_list_of_texts(value: Plain) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


READ_AS: Final[Mapping[str, _Key]] = {
    "transportType": _Key("type", _is_text),  # Cline, Roo
    "transport": _Key("type", _is_text),  # FastMCP, LangChain
    "cmd": _Key("command", _is_text),  # Goose
    "envs": _Key("env", _is_mapping),  # Goose
    "uri": _Key("url", _is_text),  # Goose
    "environment": _Key("env", _is_mapping),  # opencode
    "env_vars": _Key("inherit_env", _is_list_of_texts),  # Codex
    "env_keys": _Key("inherit_env", _is_list_of_texts),  # Goose
    "workingDirectory": _Key("cwd", _is_text),
    "http_headers": _Key("headers", _is_mapping),  # Codex
}
"""Keys that clients document and that mean one thing here."""
_TYPES: Final = {
    **dict.fromkeys(("stdio", "local"), "stdio"),
    **dict.fromkeys(("http", "streamablehttp", "remote"), "http"),
    "sse": "sse",
}
"""What clients call the ways to reach a server, without case and punctuation."""


def in_our_keys(entry: Mapping[str, Plain], place: Place, findings: Findings) -> dict[str, Plain]:
    """An entry, which stands at `place`, with the keys of clients that mean one thing as ours.

    What says the same as another key of the entry stays as it is, to be refused.
    """
    written = {**entry}
    for key, (name, fits) in READ_AS.items():
        if key in written and name not in written and fits(written[key]):
            written[name] = written.pop(key)
            findings.note((*place, key), f"read as {name}")
    command = written.get("command")
    if isinstance(command, list) and command and "args" not in written and _is_list_of_texts(command):  # opencode
        written["command"], written["args"] = command[0], command[1:]
        findings.note((*place, "command"), "a list: read as command and args")
    kind = written.get("type")
    if isinstance(kind, str) and (known := _TYPES.get("".join(filter(str.isalnum, kind.casefold())))):
        written["type"] = known
    return written
