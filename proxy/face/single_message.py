"""The body of a client's HTTP request as the SDK wants it: one message, whose ids are text or integers."""

import re
from codecs import BOM_UTF8
from typing import Any, Final, cast

from proxy.wire.codec import dumps, loads
from proxy.wire.ids import NO_BATCHES, id_fault, with_integer_ids

_BATCH: Final = re.compile(rb"\s*\[")
_UNUSUAL: Final = re.compile(rb'"(?:id|requestId|progressToken)"\s*:\s*(?:-?\d+[.eE]|[^"\d\s-])')
"""A member that may be an id and is neither text nor an integer as it stands."""


class NotSingle(Exception):
    """A body that is not one message with an id that MCP allows; the text says why."""


def single_message(body: bytes) -> bytes:
    """The body as the SDK reads it: without a byte order mark, with integers where ids are written as 1.0.

    What is no message in other ways is left to the SDK, which says so.

    Raises:
        NotSingle: it is a batch, or its id is none that MCP allows.
    """
    body = body.removeprefix(BOM_UTF8)
    if _BATCH.match(body):
        raise NotSingle(NO_BATCHES)
    if _UNUSUAL.search(body) is None:
        return body
    try:
        said = loads(body)
    except ValueError:
        return body
    if not isinstance(said, dict):
        return body
    whole = cast("dict[str, Any]", said)
    message = with_integer_ids(whole)
    if fault := id_fault(message):
        raise NotSingle(fault)
    return body if message is whole else dumps(message)
