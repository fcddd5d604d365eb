"""The table: medians over the rounds, and ratios to the floor of the same round."""

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

TIMES = "\N{MULTIPLICATION SIGN}"

Results = dict[str, dict[str, list[dict[str, float]]]]
"""Measure to contestant to what each round gave."""


@dataclass(frozen=True)
class Row:
    """One line: a number, and which contestant's number in the same round is its floor (none: no ratio).

    `only`: the one contestant that can do it, where the others cannot.
    """

    measure: str
    key: str
    text: str
    floor: tuple[str, str] | None
    only: str | None = None


def _direct(measure: str, key: str, text: str, floor: str | None = None) -> Row:
    return Row(measure, key, text, ("direct", floor or key))


ACTIVATION = "activating a skill of ten servers that take 1 s, s"
ROWS = [
    _direct("calls", "call ms 1", "one call, ms"),
    _direct("calls", "call ms 3", "… of three servers", "call ms 1"),
    _direct("calls", "call ms 10", "… of ten servers", "call ms 1"),
    _direct("calls", "calls/s 1", "64 calls in flight, calls/s"),
    _direct("calls", "calls/s 3", "… of three servers", "calls/s 1"),
    _direct("calls", "calls/s 10", "… of ten servers", "calls/s 1"),
    _direct("calls", "MiB ms 1", "a result of 1 MiB, ms"),
    _direct("calls", "MiB ms 3", "… of three servers", "MiB ms 1"),
    _direct("calls", "MiB ms 10", "… of ten servers", "MiB ms 1"),
    _direct("calls", "sleeping s", "50 calls at once that take 0.5 s each, s"),
    _direct("list", "list ms 1000", "list of 1,000 tools, ms"),
    _direct("list", "list ms 5000", "list of 5,000 tools, ms"),
    _direct("http", "HTTP calls/s", "over HTTP, 50 sessions, calls/s"),
    Row("http", "to HTTP ms", "one call to a server over HTTP, ms", ("sdk", "to HTTP ms")),
    Row("http", "to HTTP calls/s", "… 64 in flight, calls/s", ("sdk", "to HTTP calls/s")),
    Row("first", "answer s ", "start to the answer of `initialize`, s (sdk: a bare server)", ("sdk", "answer s ")),
    Row("first", "answer s folders", "… with ten skill folders", ("sdk", "answer s "), only="product"),
    Row("first", "answer s 200", "… with 200 skills", ("sdk", "answer s "), only="product"),
    Row("first", "first list s ", "… to the first list without active skills, s", ("sdk", "answer s ")),
    _direct("start", "first list s", "start to first list with an active skill, s"),
    _direct("start", "all tools s", "start to all tools of ten servers that take 1 s, s"),
    Row("start", "activation s", ACTIVATION, ("direct", "all tools s"), only="product"),
    _direct("memory", "RSS MiB", "memory at rest (RSS), MiB"),
    _direct("memory", "PSS MiB", "… (PSS), MiB"),
    _direct("memory", "session KiB", "an open HTTP session, KiB"),
    Row("memory", "left MiB", "left by 1,000 ended HTTP sessions, MiB", None),
]


def table(results: Results, names: list[str]) -> str:
    """A markdown table of all rows that some contestant has a number for."""
    lines = ["| | " + " | ".join(names) + " |", "|---" + "|---:" * len(names) + "|"]
    for row in ROWS:
        rounds = results.get(row.measure, {})
        if any(row.key in numbers for name in names for numbers in rounds.get(name, [])):
            lines.append(f"| {row.text} | " + " | ".join(_cell(row, rounds, name) for name in names) + " |")
    return "\n".join(lines)


def _cell(row: Row, rounds: dict[str, list[dict[str, float]]], name: str) -> str:
    own = rounds.get(name, [])
    values = [numbers[row.key] for numbers in own if row.key in numbers]
    if not values:
        return "failed" if own and name != "direct" and row.only in (None, name) else ""
    cell = _number(median(values))
    if row.floor is None or row.floor[0] == name:
        return cell
    floor, key = row.floor
    pairs = zip(own, rounds.get(floor, []), strict=False)
    ratios = [mine[row.key] / theirs[key] for mine, theirs in pairs if row.key in mine and theirs.get(key)]
    return f"{cell} ({TIMES}{_number(median(ratios))})" if ratios else cell


def _number(value: float) -> str:
    size = abs(value)
    if size >= 10:
        return f"{value:,.0f}" if size >= 100 else f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.1 else f"{value:.3f}" if size >= 0.001 or not value else "<0.001"


def machine(fastmcp: str | None) -> str:
    """What it was measured on and with, in one line."""
    parts = [f"{_cpu()}, {os.cpu_count()} cores", platform.system(), f"Python {platform.python_version()}"]
    parts += [f"{package} {version(package)}" for package in ("mcp", "anyio", "pydantic", "uvicorn")]
    if fastmcp:
        code = "from importlib.metadata import version; print('fastmcp', version('fastmcp'))"
        parts.append(subprocess.run([fastmcp, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
    return "; ".join(parts)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
