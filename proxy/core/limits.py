"""What one principal may use of the proxy at a time, as it is configured: numbers alone, without a clock."""

from dataclasses import dataclass, fields
from math import floor, inf
from typing import Final, Literal, TypeAlias

LimitName: TypeAlias = Literal[
    "sessions", "namespaces", "processes", "calls_in_flight", "calls_per_minute", "held_questions"
]

UNLIMITED: Final = inf
"""The value of a limit that any number keeps."""
WINDOW_S: Final = 60
"""Seconds over which `calls_per_minute` counts."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Whole numbers greater than 0, or `UNLIMITED`; None where nothing is said, and something else counts."""

    sessions: float | None = None
    """Open HTTP sessions, in namespaces or not."""

    namespaces: float | None = None
    """Live namespaces."""

    processes: float | None = None
    """Connections of its own to servers with `isolation: scope`, at all of them together."""

    calls_in_flight: float | None = None
    """Calls of tools, and other requests that go on to servers, in work; a run of a skill's steps is one."""

    calls_per_minute: float | None = None
    """The same in any 60 seconds; each step of a run that calls a tool is one, too."""

    held_questions: float | None = None
    """Questions of servers that wait for an answer of its clients."""


NOTHING_SAID: Final = Limits()
LIMIT_NAMES: Final[tuple[LimitName, ...]] = tuple(field.name for field in fields(Limits))  # pyright: ignore[reportAssignmentType] - checked by a test

DEFAULT_CALLS_IN_FLIGHT: Final = 1_000
DEFAULT_CALLS_PER_MINUTE: Final = 12_000
"""Of each of several principals; one that is alone has nobody to leave room for."""
DEFAULT_HELD_QUESTIONS: Final = 100


def share(bound: int, principals: int) -> float:
    """How much of an overall bound one of so many principals may use where nothing is configured.

    Equal parts, so that no principal can use what is another's; all of it where there is one alone. At least 1: of a
    bound below the number of principals, the first ones to come have it.
    """
    return UNLIMITED if principals < 2 else max(1, bound // principals)  # noqa: PLR2004 - one is alone


def seconds_until_room(previous: int, left: float, current: int, most: float) -> float:
    """Seconds until one more call keeps `most`, of which the calls at that moment have to be fewer.

    Calls are counted by windows of `WINDOW_S` seconds. Those of the `previous` one count for the part of it that is not
    a whole window ago, which are the `left` seconds that the current one still lasts.
    """
    if previous * left / WINDOW_S + current < most:
        return 0.0
    if current < most:
        return left - (most - current) * WINDOW_S / previous
    return left + WINDOW_S * (1 - most / current)


def whole_seconds(wait: float) -> int:
    """A wait as `Retry-After` has it: the whole number of seconds after which it is over, also where it was rounded."""
    return floor(wait + 0.001) + 1
