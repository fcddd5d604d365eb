"""What servers may ask of a client, and how severe its log messages have to be."""

from collections.abc import Mapping
from typing import Any, Final

from proxy.core.errors import Rejection
from proxy.core.inventory import Json, is_json

MISSING_CAPABILITY: Final = -32021
"""The code for a client capability that a request would need (2026-07-28, basic/index)."""

QUESTIONS: Final[Mapping[str, str]] = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
"""What a server may ask a client, with the capability that the client answers by."""

ANYTHING: Final[Mapping[str, Any]] = {
    "elicitation": {"form": {}, "url": {}},
    "roots": {},
    "sampling": {"context": {}, "tools": {}},
}
"""All that a client can be asked through the proxy."""

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""The severities of log messages (RFC 5424), the least severe first."""


def relayed(capabilities: Json) -> dict[str, Any]:
    """The part of a client's capabilities that a server can be offered through the proxy."""
    return {key: capabilities[key] for key in ANYTHING if key in capabilities}


def lacking(capabilities: Json, method: str, params: Json) -> dict[str, Any] | None:
    """The capabilities that a client with `capabilities` would need to answer a question; None when it has them.

    An elicitation capability that names no mode means forms (2025-11-25, client/elicitation).
    """
    key = QUESTIONS[method]
    has = capabilities.get(key)
    if key == "elicitation":
        mode = "url" if params.get("mode") == "url" else "form"
        form_by_default = mode == "form" and is_json(has) and "url" not in has
        return None if is_json(has) and (mode in has or form_by_default) else {key: {mode: {}}}
    if key == "sampling" and ("tools" in params or "toolChoice" in params):
        return None if is_json(has) and "tools" in has else {key: {"tools": {}}}
    return None if is_json(has) else {key: {}}


def refusal(needed: Json) -> Rejection:
    """The error that tells a server, or a modern client, which capabilities the client would need."""
    names = [f"{key}.{'.'.join(inner)}" if inner else key for key, inner in needed.items()]
    return Rejection(
        MISSING_CAPABILITY, f"The client does not support {', '.join(names)}", {"requiredCapabilities": dict(needed)}
    )


def severe_enough(level: object, wanted: str) -> bool:
    """Whether a log message of `level` is at least as severe as `wanted`; levels that nobody knows are."""
    return level not in LEVELS or LEVELS.index(level) >= LEVELS.index(wanted)


def least_severe(levels: "set[str] | frozenset[str]") -> str | None:
    """The least severe of the levels that clients want, which a server has to send; None when nobody has said."""
    return min(levels, key=LEVELS.index, default=None)
