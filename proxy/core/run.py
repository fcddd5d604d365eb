"""What is remembered of each run of a skill: a record, its JSON form, and how large it may be."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, TypeGuard, cast, get_args

from proxy.core.inventory import Json, is_json

TEXT_LIMIT: Final = 2000
"""Characters that are kept of a text in parameters, and of an error."""
PARAMETERS_LIMIT: Final = 16 * 1024
"""Bytes of the JSON of all parameters that are kept, in ASCII."""
LATEST: Final = 250_000_000_000.0
"""Seconds, in a record at most: since 1970, they last until the year 9892, where calendars end soon."""

RunStatus: TypeAlias = Literal["completed", "failed", "cancelled"]
StepStatus: TypeAlias = Literal["completed", "failed", "skipped", "cancelled"]
_Checks: TypeAlias = Mapping[str, Callable[[object], bool]]


@dataclass(frozen=True)
class StepRecord:
    """What became of one step of a run.

    `target`: what it called, as the configuration says it. `started`: seconds since the run began. `seconds`: how long
    it took. `error`: why it failed, empty where it did not.
    """

    name: str
    target: str
    started: float
    seconds: float
    status: StepStatus
    error: str = ""


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


def shortened(run: Run) -> Run:
    """`run` as it is kept: long texts are cut, and parameters that are too large all the same are left out."""
    return replace(
        run,
        parameters=_small(run.parameters),
        steps=tuple(replace(step, error=_cut(step.error)) for step in run.steps),
        error=_cut(run.error),
    )


def json_of(run: Run) -> Json:
    """The JSON form of `run`: an object with the names of its fields."""
    return {**vars(run), "steps": [{**vars(step)} for step in run.steps]}


def run_of(value: object) -> Run | None:
    """The run that a parsed JSON value is the form of; None where it is no record of a run."""
    if not _fits(value, _RUN):
        return None
    steps = tuple(StepRecord(**{name: step[name] for name in _STEP}) for step in value["steps"])
    return Run(**{name: value[name] for name in _RUN if name != "steps"}, steps=steps)


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


def _fits(value: object, checks: _Checks) -> TypeGuard[Json]:
    """Whether a JSON value is an object with members that are as they should be."""
    return is_json(value) and all(name in value and sound(value[name]) for name, sound in checks.items())


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_time(value: object) -> bool:
    """Whether it can be seconds; what is no number, or infinite, cannot."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LATEST


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_steps(value: object) -> bool:
    return isinstance(value, list) and all(_fits(step, _STEP) for step in cast("list[object]", value))


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
