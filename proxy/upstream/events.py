"""Events of an event stream (HTML, server-sent events), each of which comes in one piece from `Bounds`.

`Bounds` has also taken away a byte order mark at the beginning of the stream.
"""

import re
from dataclasses import dataclass
from typing import Final

from proxy.core.exchange import MAX_ASKED_PAUSE_S

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_MAX_DIGITS: Final = 9
"""Digits of a `retry` that is read; a longer one is as long as a pause may be."""


@dataclass
class EventStream:
    """What the events of one stream, and of those that continue it, have said so far."""

    last_id: bytes = b""
    """The id to continue after; empty for none."""
    retry: float | None = None
    """Seconds until the stream may be opened again, where the server has said so."""

    def take(self, event: bytes) -> bytes | None:
        """The data of an event, None where it is not a message; the last event of a stream may lack its blank line."""
        name, data = b"", list[bytes]()
        for line in _LINE_END.split(event):
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value
            elif field == b"id" and b"\0" not in value:
                self.last_id = value
            elif field == b"retry" and value.isdigit():  # anything else is ignored
                self.retry = MAX_ASKED_PAUSE_S if len(value) > _MAX_DIGITS else int(value) / 1000
        return b"\n".join(data) if data and name in (b"", b"message") else None
