"""Logging to stderr: readable on a terminal, JSON otherwise, every text masked."""

import logging
import sys
from collections.abc import Sequence
from typing import cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from proxy.core.masking import Masker
from proxy.core.texts import printable


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
        *([plain] if terminal else ()),  # JSON has escapes of its own
    ]
    renderer: Processor = (
        structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
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
