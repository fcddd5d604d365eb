"""Messages of JSON-RPC as the SDK models them, read from what a server over HTTP sends."""

from typing import Any, cast

import structlog
from mcp_types import JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter

from proxy.wire.codec import loads
from proxy.wire.dispatcher import MAX_BATCH_MESSAGES, NO_ANSWER
from proxy.wire.ids import id_of, with_integer_ids

log = structlog.stdlib.get_logger("proxy.wire")


def messages_in(text: str) -> list[JSONRPCMessage]:
    """The messages that `text` holds: one, or those of a batch (2025-03-26); what is not a message is left out.

    A response that cannot be read counts as the error `NO_ANSWER` of its request, so that nobody waits for it.
    """
    try:
        said = loads(text.encode("utf-8", "replace"))
    except ValueError as problem:
        log.debug("server.noise", problem=str(problem))
        return []
    each = cast("list[object]", said)[:MAX_BATCH_MESSAGES] if isinstance(said, list) else [said]
    return [message for message in map(_message, each) if message is not None]


def message_of(body: bytes) -> JSONRPCMessage | None:
    """The one message that `body` holds, if it is one."""
    found = messages_in(body.decode("utf-8", "replace")) if body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{" else []
    return found[0] if found else None


def _message(said: object) -> JSONRPCMessage | None:
    if not isinstance(said, dict):
        log.debug("server.noise", problem="it is not an object")
        return None
    message = with_integer_ids(cast("dict[str, Any]", said))
    try:
        return jsonrpc_message_adapter.validate_python(message, by_name=False)
    except ValueError:
        request_id = id_of(message.get("id"))
        if request_id is not None and "method" not in message and message.get("jsonrpc") == "2.0":
            return JSONRPCError(jsonrpc="2.0", id=request_id, error=NO_ANSWER)
        log.debug("server.noise", problem="it is not a message of JSON-RPC")
        return None
