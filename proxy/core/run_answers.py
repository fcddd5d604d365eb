"""What a client reads of the runs of a skill in its scope: a list of them, and one as a whole; both are JSON."""

import json
from collections.abc import Sequence
from typing import Final

from proxy.core.catalogue import Skill
from proxy.core.failing import what_ran
from proxy.core.inventory import Json
from proxy.core.run import Run, json_of

RUNS: Final = ".runs"
"""The path, as of a file of the skill, at which its runs are read; no file of one has it: it begins with a dot."""
SHOWN: Final = 20
"""Runs in a list."""
_OURS: Final = frozenset({"scope", "process"})
"""Members of a record that are not for clients."""


def concerns_runs(skill: Skill, path: str) -> bool:
    """Whether a path of a skill is that of its runs, or of one of them."""
    return skill.workflow is not None and (path == RUNS or path.startswith(f"{RUNS}/"))


def runs_at(path: str, runs: Sequence[Run]) -> str | None:
    """What is read at a path that `concerns_runs`; `runs` in the order of the list. None where there is no such run."""
    if path == RUNS:
        return _text({"runs": [_summary(run) for run in runs[:SHOWN]]})
    found = next((run for run in runs if path == f"{RUNS}/{run.id}"), None)
    return None if found is None else _text(_shown(found))


def _shown(run: Run) -> Json:
    return {name: value for name, value in json_of(run).items() if name not in _OURS}


def _summary(run: Run) -> Json:
    told = {name: value for name, value in _shown(run).items() if name not in {"parameters", "steps", "limit"}}
    running = [step.name for step in run.steps if step.status == "running"]
    return {key: value for key, value in (told | {"running": running, "told": what_ran(run.steps)}).items() if value}


def _text(told: Json) -> str:
    return json.dumps(told, ensure_ascii=False)
