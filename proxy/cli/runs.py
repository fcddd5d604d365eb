"""`runs`: what became of runs of skills, as the state file has them."""

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from proxy import logs
from proxy.cli.exits import GOOD, LIVE_PROBLEM, REFUSED
from proxy.cli.layout import counted, short
from proxy.config.load import Loaded
from proxy.core.failing import what_ran
from proxy.core.masking import Masker
from proxy.core.run import Run, StepRecord, json_of
from proxy.core.texts import printable
from proxy.store.state_file import CannotUse, StateFile

SHOWN: Final = 8
"""Characters of an id that `list` shows."""
SHORTEST: Final = 4
"""Characters of an id that `show` wants at least."""


def runs(loaded: Loaded, arguments: argparse.Namespace) -> int:
    """Run the command; 0 when it is done, 1 when the state file cannot be read, 2 when it is refused."""
    logs.configure("warning", Masker(loaded.secrets))
    if loaded.settings.state_file is None:
        return _refused(
            f"{short(loaded.path)} keeps no state in a file, so that runs are only in the memory of the proxy that "
            "runs, until it ends; to keep them, write proxy.state: {backend: sqlite, path: FILE}"
        )
    file = StateFile(Path(loaded.settings.state_file))
    try:
        if arguments.runs_command == "list":
            return _list(file.runs(arguments.limit, skill=arguments.skill), arguments)
        if len(arguments.id) < SHORTEST:
            return _refused(f"{arguments.id}: write at least {SHORTEST} characters of the run's id")
        return _show(file.runs(beginning=arguments.id), arguments)
    except CannotUse as error:
        print(f"mcp-skill-proxy: {printable(loaded.settings.state_file)}: {error}", file=sys.stderr)
        return LIVE_PROBLEM


def _list(found: Sequence[Run], arguments: argparse.Namespace) -> int:
    if arguments.json:
        for run in found:
            print(json.dumps(json_of(run)))
        return GOOD
    if not found:
        print("No runs yet." if arguments.skill is None else f"No runs of skill {printable(arguments.skill)} yet.")
    rows = [[printable(cell) for cell in _cells(run)] for run in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return GOOD


def _show(found: Sequence[Run], arguments: argparse.Namespace) -> int:
    if not found:
        return _refused(f"no run that is kept has an id that begins with {arguments.id}")
    if len(found) > 1:
        return _refused(f"{len(found):,} runs have an id that begins with {arguments.id}: write more of it")
    (run,) = found
    if arguments.json:
        print(json.dumps(json_of(run)))
        return GOOD
    told = {
        "id": run.id,
        "skill": run.skill,
        "scope": run.scope,
        "status": run.status,
        "error": run.error,
        "began": _when(run.began),
        "took": _seconds(run.seconds),
        "part of run": run.parent,
        "parameters": json.dumps(run.parameters, ensure_ascii=False),
        "outcome": "" if run.status == "completed" else what_ran(run.steps),
        "output": f"{run.output_size:,} bytes of JSON" if run.output_size else "",
    }
    for name, text in told.items():
        if text:
            print(f"{name}: {printable(text)}")
    if run.steps:
        print("steps:")
    for step in run.steps:
        print(f"  {printable(_told(step))}")
    return GOOD


def _cells(run: Run) -> tuple[str, ...]:
    done = sum(step.status == "completed" for step in run.steps)
    steps = f"{done} of {counted(len(run.steps), 'step')}"
    return run.id[:SHOWN], _when(run.began), run.skill, run.scope, run.status, _seconds(run.seconds), steps


def _told(step: StepRecord) -> str:
    """`find it (crm/find): completed after 0.250 s, begun at 0.010 s`, and why it failed."""
    what = step.name if step.name == step.target else f"{step.name} ({step.target})"
    times = (
        ""
        if step.status in {"skipped", "not_begun"}
        else f" after {_seconds(step.seconds)}, begun at {_seconds(step.started)}"
    )
    return f"{what}: {step.status.replace('_', ' ')}{times}" + (f": {step.error}" if step.error else "")


def _when(seconds: float) -> str:
    """A time, in seconds since 1970, by the clock on the wall."""
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f} s"


def _refused(why: str) -> int:
    print(f"mcp-skill-proxy: {printable(why)}", file=sys.stderr)
    return REFUSED
