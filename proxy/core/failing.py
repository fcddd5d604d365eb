"""How steps fail: which one, why, and what had run before."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from proxy.core.errors import ProxyError, Rejection, ServerLost, ServerSilent, ServerUnavailable, Unanswered
from proxy.core.inventory import json_size
from proxy.core.run import TEXT_LIMIT, StepRecord, Values
from proxy.core.texts import NAME_LIMIT, fitting, shortened

NAMES_LIMIT: Final = 700
"""Bytes of the names of steps that stand under one heading."""
STEPS_LIMIT: Final = 2_500
"""Bytes of the JSON of steps in structured content."""
ERROR_LIMIT: Final = 300
"""Characters of the error of a step in structured content."""
_INTERNAL_ERROR: Final = -32603
_TRANSIENT_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses of which a later attempt may know nothing (RFC 9110 15.5.9 and 15.6, RFC 6585 4, RFC 8470 5.2)."""
_HEADINGS: Final[Mapping[str, str]] = {
    "completed": "Completed, and not undone",
    "failed": "Failed",
    "may_have_run": "May have run",
    "running": "May have run",
    "cancelled": "May have run",
    "not_begun": "Not begun",
}
"""What steps and values are told under, by status; nothing is told of those that were skipped."""

Event: TypeAlias = Literal["activate", "offload", "scope_start"]
"""What a hook belongs to."""


class StepFailed(Exception):
    """A step has failed, and with it what it was part of.

    `name`: how people are told of it. `place`: where the configuration has it. `target`: what it calls, empty for
    nothing. `reason`: of which a beginning is kept: it may be all that a server says. `transient`: it may go through
    when it is tried again. `may_have_run`: whether the call took effect is unknown.
    """

    def __init__(
        self, name: str, place: str, target: str, reason: str, *, transient: bool = False, may_have_run: bool = False
    ) -> None:
        reason = shortened(reason, TEXT_LIMIT)
        where = f"{place}, {target}" if target not in {"", name} else place
        super().__init__(f"step {name} ({where}) failed: {reason}")
        self.name = name
        self.place = place
        self.target = target
        self.reason = reason
        self.transient = transient
        self.may_have_run = may_have_run

    @property
    def told(self) -> dict[str, Any]:
        """The failure as structured content."""
        told = {"step": self.name, "place": self.place, "target": self.target, "reason": self.reason}
        return {key: value for key, value in told.items() if value}


class OutOfBounds(StepFailed):
    """A step has failed in a way that ends all, whatever it says of errors."""


@dataclass(frozen=True)
class HookFailed:
    """A hook has failed: of `skill`, or of a scope's start where that is empty.

    `done`: what its steps, and those of hooks before it, have come to.
    """

    event: Event
    skill: str
    step: StepFailed
    done: tuple[StepRecord, ...]


def may_have_run(error: ProxyError) -> bool:
    """Whether a call that failed so may have taken effect."""
    return isinstance(error, ServerLost | ServerSilent) or (isinstance(error, Unanswered) and error.ran)


def is_transient(error: ProxyError) -> bool:
    """Whether a call that failed so may go through when it is tried again: never what the proxy itself refuses."""
    if isinstance(error, Unanswered):
        return error.status is None or error.status in _TRANSIENT_STATUSES
    if isinstance(error, Rejection):
        return error.code == _INTERNAL_ERROR
    return isinstance(error, ServerUnavailable | ServerLost | ServerSilent)


def what_ran(steps: Sequence[StepRecord]) -> str:
    """What steps have come to, in one line: what was completed, what failed, what may have run, what was not begun."""
    named: dict[str, list[str]] = {heading: [] for heading in _HEADINGS.values()}
    for heading, name in _outcomes(steps):
        named[heading].append(name)
    told = [f"{heading}: {_some(names)}." for heading, names in named.items() if names]
    if not named[_HEADINGS["completed"]]:
        told.insert(0, "No step had been completed.")
    return " ".join(told)


def steps_told(done: Sequence[StepRecord]) -> tuple[list[dict[str, Any]], int]:
    """Steps as structured content, as many as fit in `STEPS_LIMIT` bytes of JSON, and how many do not."""
    told: list[dict[str, Any]] = []
    room = STEPS_LIMIT
    steps = [step for step in done if step.status != "skipped"]
    for step in steps:
        one = _structured(step)
        room -= json_size(one)
        if room < 0:
            break
        told.append(one)
    return told, len(steps) - len(told)


def _structured(step: StepRecord) -> dict[str, Any]:
    values: dict[str, list[Values]] = {}
    for one in step.values:
        values.setdefault(one.status, []).append(one)
    told: dict[str, Any] = {
        "step": step.name,
        "target": step.target,
        "status": step.status,
        "error": shortened(step.error, ERROR_LIMIT),
        "may_have_run": step.may_have_run or step.status == "cancelled",
        "attempts": step.attempts if step.attempts > 1 else None,
        "values": {status: _some(_numbers(of)) for status, of in values.items()},
        "steps": [_structured(each) for each in step.inside if each.status != "skipped"],
    }
    return {key: value for key, value in told.items() if value}


def _outcomes(steps: Iterable[StepRecord], above: str = "") -> Iterator[tuple[str, str]]:
    """What steps have come to: a heading, and what stands under it."""
    for step in steps:
        name = above + step.name
        tried = f"{name} ({step.attempts} attempts)" if step.attempts > 1 else name
        inside = [*_outcomes_of_values(step, name), *_outcomes(step.inside, f"{name} / ")]
        yield from inside
        status = "may_have_run" if step.may_have_run else step.status
        bad = {_HEADINGS["failed"], _HEADINGS["may_have_run"]}
        if status in _HEADINGS and (not inside or (status == "failed" and bad.isdisjoint(one for one, _ in inside))):
            yield _HEADINGS[status], tried


def _outcomes_of_values(step: StepRecord, name: str) -> Iterator[tuple[str, str]]:
    for status, heading in _HEADINGS.items():
        if numbers := _numbers(values for values in step.values if values.status == status):
            one = len(numbers) == 1 and " to " not in numbers[0]
            yield heading, f"{name} ({'value' if one else 'values'} {_some(numbers)})"


def _numbers(ranges: Iterable[Values]) -> list[str]:
    return [str(one.first) if one.first == one.last else f"{one.first} to {one.last}" for one in ranges]


def _some(names: Sequence[str]) -> str:
    """Names with commas between, as far as they fit in `NAMES_LIMIT` bytes, and how many more there are."""
    cut = [shortened(name, NAME_LIMIT) for name in names]
    shown = fitting(cut, NAMES_LIMIT) or cut[:1]
    return ", ".join(shown) + (f" and {len(cut) - len(shown):,} more" if len(shown) < len(cut) else "")
