"""What messages of JSON-RPC may be: one at a time, whose ids and progress tokens peers may write in their own way."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

Id: TypeAlias = str | int
"""What MCP allows as an id or a progress token (2025-11-25, basic/index and basic/utilities/progress)."""

NO_BATCHES: Final = "This proxy takes one message at a time: send each message of a batch by itself"
"""What is answered to a batch, which 2025-03-26 alone had, and no revision before or after it."""
_IN_PARAMS: Final = {"notifications/cancelled": "requestId", "notifications/progress": "progressToken"}
"""Notifications, and the parameter that names a request."""


def id_of(value: object) -> Id | None:
    """The id that `value` is; None where MCP does not allow it as one.

    A number without a fraction is an integer however it is written: to JSON, 1.0 and 1 are the same number.
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def id_fault(message: Mapping[str, Any]) -> str:
    """Why a message cannot be a request or a notification by its id; empty where it can, or is neither.

    A notification whose id is null is one: some libraries write all members that they know.
    """
    if "id" not in message or "method" not in message or id_of(message["id"]) is not None:
        return ""
    if message["id"] is None and str(message["method"]).startswith("notifications/"):
        return ""
    return "The id of a request has to be text or an integer"


def with_integer_ids(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose ids and tokens are integers where they are numbers without a fraction; else as it is."""
    if isinstance(message.get("id"), float):
        message = _replaced(message, "id")
    params = message.get("params")
    if not isinstance(params, dict):
        return message
    changed = cast("dict[str, Any]", params)
    named = _IN_PARAMS.get(message["method"]) if isinstance(message.get("method"), str) else None
    if named is not None and isinstance(changed.get(named), float):
        changed = _replaced(changed, named)
    meta = changed.get("_meta")
    if isinstance(meta, dict) and isinstance(cast("dict[str, Any]", meta).get("progressToken"), float):
        changed = {**changed, "_meta": _replaced(cast("dict[str, Any]", meta), "progressToken")}
    return message if changed is params else {**message, "params": changed}


def _replaced(members: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = id_of(members[key])
    return {**members, key: members[key] if found is None else found}
