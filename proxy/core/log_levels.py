"""The severities of log messages (RFC 5424), as MCP has them."""

from typing import Final

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The least severe first."""


def severe_enough(level: object, wanted: str) -> bool:
    """Whether a log message of `level` is at least as severe as `wanted`; unknown levels always are."""
    return level not in LEVELS or LEVELS.index(level) >= LEVELS.index(wanted)


def least_severe(levels: "set[str] | frozenset[str]") -> str | None:
    """The least severe of the levels that clients want, which a server has to send; None when nobody has said."""
    return min(levels, key=LEVELS.index, default=None)
