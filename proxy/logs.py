"""Logging to stderr: readable on a terminal, JSON otherwise, every text masked and cut, what repeats itself folded."""

import atexit
import logging
import sys
import threading
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from proxy.core.masking import Masker
from proxy.core.texts import printable

log = structlog.stdlib.get_logger("proxy")

MAX_TEXT_CHARACTERS: Final = 2048
"""The longest text that a value of a line has: it may be another's."""
MAX_TRACEBACK_CHARACTERS: Final = 16 * 1024
MAX_LIST_CHARACTERS: Final = 32 * 1024
"""All texts of a list together."""
FOLD_AFTER: Final = 10
"""Lines of one kind that are written in `FOLD_WITHIN`; the others are counted."""
FOLD_WITHIN: Final = 10.0
"""Seconds."""
CAUSED_BY_CLIENTS: Final = frozenset(
    {
        *("client.noise", "connection.refused", "http.refused", "message.not_taken"),
        *("scope.refused", "session.refused", "token.wrong"),
    }
)
"""Events of ours that whoever reaches the proxy can cause as often as they like. No other event is ever folded."""


@dataclass
class _Kind:
    of: str
    message: str | None
    times: int = 0


class RepeatedLines:
    """Lets the first lines of each kind through, and says of the others how many there were."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, _Kind] = {}
        self._since = time.monotonic()
        self._lock = threading.Lock()

    def allows(self, kind: Hashable, of: str, message: str | None = None) -> bool:
        """Whether another line of this kind is to be written. `of`, `message`: how it is told of where it is not."""
        if time.monotonic() - self._since >= FOLD_WITHIN:
            self.tell()
        with self._lock:
            repeated = self._kinds.setdefault(kind, _Kind(of, message))
            repeated.times += 1
            return repeated.times <= FOLD_AFTER

    def tell(self) -> None:
        """Say what was left out since the last time, a line for each kind; from now on all are let through again."""
        with self._lock:
            now = time.monotonic()
            seconds, self._since = round(now - self._since, 1), now
            kinds, self._kinds = self._kinds, {}
        for one in kinds.values():
            if (left_out := one.times - FOLD_AFTER) > 0:
                told = {} if one.message is None else {"message": one.message}
                log.warning("log.repeated", of=one.of, **told, left_out=left_out, seconds=seconds)

    def ours(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """A processor: drops an event that clients cause, where there were many with the same setting."""
        name = event["event"]
        if name in CAUSED_BY_CLIENTS and not self.allows((name, event.get("setting")), name):
            raise structlog.DropEvent
        return event

    def of_libraries(self, record: logging.LogRecord) -> bool:
        """A filter: whether a line is to be written; those of one place in a library's code are of a kind."""
        if isinstance(record.msg, dict):  # an event of ours
            return True
        return self.allows((record.name, record.lineno), record.name, str(record.msg))


_repeated_lines = RepeatedLines()
tell_repeated = _repeated_lines.tell


def configure(level: str, masker: Masker) -> None:
    """Send our events, and those of libraries from warnings up, to stderr; never to stdout, which is the protocol's."""

    def mask(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {key: _masked(masker, value) for key, value in event.items()}

    def plain(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {key: printable(v, lines=True) if isinstance(v, str) else v for key, v in event.items()}

    terminal = sys.stderr.isatty()
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=not terminal),
        structlog.processors.format_exc_info if level == "debug" else _without_traceback,
        mask,
        _cut,
        *([plain] if terminal else ()),  # JSON has escapes of its own
    ]
    renderer: Processor = (
        structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    structlog.configure(
        processors=[_repeated_lines.ours, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(level),  # what is below the level costs next to nothing
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
            foreign_pre_chain=[structlog.stdlib.add_logger_name, _from_a_library, *shared],
        )
    )
    handler.addFilter(_repeated_lines.of_libraries)
    atexit.register(tell_repeated)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)  # of libraries, also at debug: they log whole messages, with what tools return
    logging.getLogger("proxy").setLevel(level.upper())
    if level != "debug":  # they say no server's name, time after time; what is wrong with one, events of ours say
        for name in ("mcp.client.sse", "mcp.client.streamable_http"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _from_a_library(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """A library's text as the message of an event of ours."""
    return {**event, "event": "library.message", "message": event.get("event")}


def _without_traceback(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """An exception in one line; its traceback is there at level debug."""
    info: object = event.pop("exc_info", None)
    error = cast("tuple[object, object, object]", info)[1] if isinstance(info, tuple) else None
    return event if error is None else {**event, "error": f"{type(error).__name__}: {error}"}


def _masked(masker: Masker, value: object) -> object:
    """Texts without secrets; numbers and truth values as they are; anything else as text without secrets."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, list | tuple):
        return [_masked(masker, inner) for inner in cast("Sequence[object]", value)]
    return masker.mask(value if isinstance(value, str) else repr(value))


def _cut(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Values without what is beyond the longest that a line is to have."""
    return {key: _shortened(value, _longest(key)) for key, value in event.items()}


def _longest(key: str) -> int:
    return MAX_TRACEBACK_CHARACTERS if key == "exception" else MAX_TEXT_CHARACTERS


def _shortened(value: object, limit: int) -> object:
    """A text of at most `limit` characters and a mark; a list of such, as far as it goes."""
    if isinstance(value, str):
        return value if len(value) <= limit else f"{value[:limit]}… ({len(value):,} characters)"
    if not isinstance(value, list):
        return value
    values, kept, length = cast("list[object]", value), list[object](), 0
    for each in values:
        kept.append(_shortened(each, limit))
        length += len(str(kept[-1]))
        if length > MAX_LIST_CHARACTERS:
            return [*kept[:-1], f"… ({len(values):,} in all)"]
    return kept
