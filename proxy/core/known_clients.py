"""What is known, by `clientInfo.name`, of how clients handle a changed list of tools (docs/clients.md)."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias

from proxy.core.scope import Evidence

Rereading: TypeAlias = Literal["while_held", "after_result", "late", "unknown", "none"]
"""Whether, and when, a client that is told of a change reads its list of tools again: while the result of its call is
held for that; right after the result, and before its model's next request; usually in time, but it was late the last
few times; not known; or only with the user's next message, if at all."""

REREADS: Final = ("claude-code", "opencode", "kilo", "copilot-cli", "gemini-cli-mcp-client")
"""Clients that read their list again before their model's next request, if the result is held for them."""
DOES_NOT_REREAD: Final = (
    "claude-ai",
    "codex-mcp-client",
    "qwen-cli-mcp-client*",
    "@cline/core",
    "continue-cli-client",
    "ai-sdk-mcp-client",
    "mcporter",
    "inspector-cli",
)
"""Clients that ignore the notice, or read the list again only with the user's next message."""

HOLD_FOR_KNOWN_S: Final = 1.0
"""Longest time in seconds that a result is held for a client that is known to read its list again meanwhile."""
HOLD_FOR_OTHERS_S: Final = 0.15
"""The same for one that may read it again meanwhile."""
MISSES_OF_KNOWN: Final = 2
"""Reads in a row that a client which is known to read its list again may miss before it is treated as late."""

_BRIDGED: Final = re.compile(r" \(via [^()]*\)\Z")
"""The suffix that mcp-remote appends to the name of the client in front of it."""


def is_named(client: str, patterns: Iterable[str]) -> bool:
    """Whether a client calls itself by one of these names or shell-style patterns; a bridge in between is ignored."""
    name = _BRIDGED.sub("", client)
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def rereading(client: str, evidence: Evidence, rereads: Iterable[str]) -> Rereading:
    """What `client` is expected to do: what it has shown counts first, then its name.

    `rereads`: the names and patterns of clients that read their list again.
    """
    if evidence.rereads_in_time or is_named(client, rereads):
        if evidence.rereads_after_result:
            return "after_result"
        return "while_held" if evidence.missed_reads < MISSES_OF_KNOWN else "late"
    return "none" if evidence.missed_reads or is_named(client, DOES_NOT_REREAD) else "unknown"


def hold_seconds(expected: Rereading) -> float:
    """How long a result is held at most for a client of which this is expected; 0 for not at all."""
    if expected == "none":
        return 0.0
    return HOLD_FOR_KNOWN_S if expected == "while_held" else HOLD_FOR_OTHERS_S
