"""The capabilities of clients: what servers may ask for, and what they are told."""

from collections.abc import Mapping
from typing import Any, Final

from proxy.core.errors import Rejection
from proxy.core.inventory import Json, is_json, members_of
from proxy.core.mcp_apps import EXTENSION as USER_INTERFACE

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


def askable(capabilities: Json) -> dict[str, Any]:
    """The part of a client's capabilities by which it can be asked something through the proxy."""
    return {key: capabilities[key] for key in ANYTHING if key in capabilities}


def relayed(capabilities: Json) -> dict[str, Any]:
    """The part of a client's capabilities that a server is told of: what it can be asked, and that it shows pages."""
    extensions = members_of(capabilities.get("extensions"))
    if USER_INTERFACE not in extensions:
        return askable(capabilities)
    return {**askable(capabilities), "extensions": {USER_INTERFACE: extensions[USER_INTERFACE]}}


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
