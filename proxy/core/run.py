"""What is remembered of each run of a skill: a record, its JSON form, and how large it may be."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeGuard, cast, get_args

from proxy.core.inventory import Json, is_json, items

TEXT_LIMIT: Final = 2000
"""Characters that are kept of a text in parameters, and of an error."""
PARAMETERS_LIMIT: Final = 16 * 1024
"""Bytes of the JSON of all parameters that are kept, in ASCII."""
LATEST: Final = 250_000_000_000.0
"""Seconds, in a record at most: since 1970, they last until the year 9892, where calendars end soon."""

RunStatus: TypeAlias = Literal["running", "completed", "failed", "cancelled", "interrupted"]
"""`interrupted`: the proxy ended without recording what became of the run."""
StepStatus: TypeAlias = Literal["not_begun", "running", "completed", "failed", "skipped", "cancelled"]
ValueStatus: TypeAlias = Literal["not_begun", "running", "completed", "failed", "may_have_run", "skipped"]
_RANGE: Final = 3
"""Entries of the JSON of `Values`."""
_Checks: TypeAlias = Mapping[str, Callable[[object], bool]]


class Values(NamedTuple):
    """Values of a `for_each` next to each other that have come to the same; `first` and `last` count from 0."""

    status: ValueStatus
    first: int
    last: int


def ranges(statuses: Sequence[ValueStatus]) -> tuple[Values, ...]:
    """The status of each value, in order, as ranges."""
    grouped = (list(group) for _, group in groupby(enumerate(statuses), key=lambda one: one[1]))
    return tuple(Values(group[0][1], group[0][0], group[-1][0]) for group in grouped)


@dataclass(frozen=True)
class StepRecord:
    """What became of one step of a run."""

    name: str
    target: str
    """What it calls, as the configuration says it."""
    started: float
    """Seconds since the run began; 0 where the step has not."""
    seconds: float
    """How long it took."""
    status: StepStatus
    error: str = ""
    """Why it failed, empty where it did not."""
    may_have_run: bool = False
    """It failed, and whether the call took effect is unknown."""
    attempts: int = 1
    """How often it was tried; of several values, the one that was tried most."""
    values: tuple[Values, ...] = ()
    """Of a `for_each`, what its values have come to."""
    inside: tuple["StepRecord", ...] = ()
    """Of an invoked skill, its steps, where not all of them were completed."""


@dataclass(frozen=True)
class Run:
    """What became of one run of a skill.

    `scope`: whose it was, as logs name it. `parameters`: those it was invoked with, secrets masked. `began`: seconds
    since 1970. `seconds`: how long it took. `steps`: in the order in which they began. `error`: why it failed, empty
    where it did not. `output_size`: bytes of the JSON of its output, 0 where it had none. `parent`: the id of the run
    that it was a step of, empty for none.
    """

    id: str
    skill: str
    scope: str
    parameters: Json
    status: RunStatus
    began: float
    seconds: float
    steps: tuple[StepRecord, ...] = ()
    error: str = ""
    output_size: int = 0
    parent: str = ""
    limit: float = 0.0
    """Seconds that it may take; 0 where that is not known."""
    process: int = 0
    """The id of the operating system's process that runs it; 0 where that is not known."""


def shortened(run: Run) -> Run:
    """`run` as it is kept: long texts are cut, and parameters that are too large all the same are left out."""
    return replace(
        run,
        parameters=_small(run.parameters),
        steps=tuple(replace(step, error=_cut(step.error)) for step in run.steps),
        error=_cut(run.error),
    )


def interrupted(run: Run) -> Run:
    """A run that was at work when its proxy ended: what became of its steps that were running is unknown."""
    steps = tuple(replace(one, status="cancelled") if one.status == "running" else one for one in run.steps)
    return replace(run, status="interrupted", steps=steps, error="the proxy ended while it ran", process=0)


def json_of(run: Run) -> Json:
    """The JSON form of `run`: an object with the names of its fields; of steps, without what says nothing."""
    return {**vars(run), "steps": [_json_of_step(step) for step in run.steps]}


def run_of(value: object) -> Run | None:
    """The run that a parsed JSON value is the form of; None where it is not a record of a run."""
    if not _fits(value, _RUN, _RUN_SINCE):
        return None
    known = {name: value[name] for name in (*_RUN, *_RUN_SINCE) if name in value and name != "steps"}
    return Run(**known, steps=_steps_of(value["steps"]))


def _json_of_step(step: StepRecord) -> Json:
    told: Json = {name: value for name, value in vars(step).items() if name in _STEP}
    if step.may_have_run:
        told |= {"may_have_run": True}
    if step.attempts != 1:
        told |= {"attempts": step.attempts}
    if step.values:
        told |= {"values": [list(values) for values in step.values]}
    if step.inside:
        told |= {"inside": [_json_of_step(each) for each in step.inside]}
    return told


def _steps_of(written: Sequence[Json]) -> tuple[StepRecord, ...]:
    """The steps that checked JSON holds."""
    return tuple(
        StepRecord(
            **{name: step[name] for name in _STEP},
            may_have_run=step.get("may_have_run", False),
            attempts=step.get("attempts", 1),
            values=tuple(Values(*values) for values in step.get("values", ())),
            inside=_steps_of(step.get("inside", ())),
        )
        for step in written
    )


def _small(parameters: Json) -> Json:
    try:
        cut: Json = _cut_inside(parameters)
        size = len(json.dumps(cut))
    except RecursionError:
        return {"…": "left out: nested too deeply"}
    return cut if size <= PARAMETERS_LIMIT else {"…": f"left out: more than {PARAMETERS_LIMIT // 1024} KiB"}


def _cut_inside(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A JSON value with the texts in it cut."""
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, dict):
        return {name: _cut_inside(member) for name, member in cast("Json", value).items()}
    if isinstance(value, list):
        return [_cut_inside(entry) for entry in cast("list[Any]", value)]
    return value


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else f"{text[: TEXT_LIMIT - 1]}…"


def _fits(value: object, checks: _Checks, optional: _Checks) -> TypeGuard[Json]:
    """Whether a JSON value is an object with members that are as they should be; `optional` ones may be absent."""
    if not is_json(value) or not all(name in value and sound(value[name]) for name, sound in checks.items()):
        return False
    return all(sound(value[name]) for name, sound in optional.items() if name in value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_time(value: object) -> bool:
    """Whether it can be seconds; what is no number, or infinite, cannot."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LATEST


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_steps(value: object) -> bool:
    return isinstance(value, list) and all(_fits(step, _STEP, _STEP_SINCE) for step in cast("list[object]", value))


def _are_values(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_range, cast("list[object]", value)))


def _is_range(value: object) -> bool:
    given = items(value)
    return len(given) == _RANGE and given[0] in get_args(ValueStatus) and all(map(_is_size, given[1:]))


_STEP: Final[_Checks] = {
    "name": _is_text,
    "target": _is_text,
    "started": _is_time,
    "seconds": _is_time,
    "status": lambda value: value in get_args(StepStatus),
    "error": _is_text,
}
_RUN: Final[_Checks] = {
    "id": _is_text,
    "skill": _is_text,
    "scope": _is_text,
    "parameters": is_json,
    "status": lambda value: value in get_args(RunStatus),
    "began": _is_time,
    "seconds": _is_time,
    "steps": _are_steps,
    "error": _is_text,
    "output_size": _is_size,
    "parent": _is_text,
}
_STEP_SINCE: Final[_Checks] = {
    "may_have_run": lambda value: isinstance(value, bool),
    "attempts": _is_size,
    "values": _are_values,
    "inside": _are_steps,
}
_RUN_SINCE: Final[_Checks] = {"limit": _is_time, "process": _is_size}
