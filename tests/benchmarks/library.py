"""What ten thousand skills in folders cost a proxy, beside ten: its start, its first answers, its memory.

    python tests/benchmarks/library.py [--many 10000] [--few 10] [--rounds 3]

Each skill is a folder with a SKILL.md of 2 KiB and one more file, a hundred of them together. The table has medians
over the rounds. Memory needs /proc.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

from processes import mebibytes, running
from stdio_client import StdioClient
from table import TIMES

TOGETHER = 100
"""Skills in one folder."""
GUIDE = "Begin with what the user wants, and say what you have left out. " * 32
SEARCH = {"action": "list", "query": "invoices of number 7"}


@dataclass(frozen=True)
class Costs:
    """Seconds from the start of the process to the end of the handshake; for its first list of tools; for its first
    search, which reads all guides; for the second; and the MiB that it holds then, None where nothing tells.
    """

    start: float
    first_list: float
    first_search: float
    second_search: float
    memory: float | None


LABELS = {
    "start": "start to handshake, s",
    "first_list": "first list of tools, s",
    "first_search": "first search, s",
    "second_search": "second search, s",
    "memory": "memory (RSS), MiB",
}


def write(folder: Path, count: int) -> Path:
    """A configuration with so many skills."""
    for number in range(count):
        skill = folder / "skills" / f"{number // TOGETHER:03}" / f"skill-{number:05}"
        (skill / "references").mkdir(parents=True)
        front = f"name: {skill.name}\ndescription: Checks the invoices of number {number} and says what is wrong.\n"
        (skill / "SKILL.md").write_text(f"---\n{front}---\n\n{GUIDE}\n", encoding="utf-8")
        (skill / "references" / "more.md").write_text("More.\n", encoding="utf-8")
    config = folder / "skills.yaml"
    config.write_text(json.dumps({"skill_paths": ["skills"]}), encoding="utf-8")
    return config


def measure(config: Path, count: int) -> Costs:
    """The costs of one proxy, which has so many skills.

    Raises:
        ValueError: it has not.
    """
    begun = time.monotonic()
    command = [sys.executable, "-m", "proxy", "serve", "--config", str(config)]
    with running(command, subprocess.DEVNULL, piped=True) as process:
        client = StdioClient(process)
        client.greet()
        times = [time.monotonic() - begun]
        search: dict[str, Any] = {"name": "SKILL", "arguments": SEARCH}
        for method, params in (("tools/list", dict[str, Any]()), ("tools/call", search), ("tools/call", search)):
            begun = time.monotonic()
            client.request(method, params)
            times.append(time.monotonic() - begun)
        memory = mebibytes(process.pid, "Rss")
        listed = client.request("tools/call", {"name": "SKILL", "arguments": {"action": "list"}})
        told: str = listed["content"][0]["text"]
        if not told.startswith(f"{count} skills, "):
            raise ValueError(f"{told.splitlines()[0]!r}, not {count} skills")
    start, first_list, first_search, second_search = times
    return Costs(start, first_list, first_search, second_search, memory)


def medians(rounds: Iterable[Costs]) -> dict[str, float | None]:
    """The median of each cost."""
    taken = list(rounds)
    found: dict[str, float | None] = {}
    for each in fields(Costs):
        values = [value for costs in taken if (value := getattr(costs, each.name)) is not None]
        found[each.name] = median(values) if values else None
    return found


def main() -> None:
    """Measure, with progress on stderr, and print the table."""
    grammar = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    grammar.add_argument("--many", type=int, default=10_000, metavar="N", help="skills of one proxy")
    grammar.add_argument("--few", type=int, default=10, metavar="N", help="skills of the other")
    grammar.add_argument("--rounds", type=int, default=3, metavar="N")
    given = grammar.parse_args()
    results: dict[int, list[Costs]] = {given.few: [], given.many: []}
    with tempfile.TemporaryDirectory() as scratch:
        configs = {count: write(Path(scratch) / str(count), count) for count in results}
        for turn in range(given.rounds):
            for count, config in configs.items():
                results[count].append(measure(config, count))
                print(f"round {turn + 1}: {count:,} skills: {results[count][-1]}", file=sys.stderr, flush=True)
    few, many = medians(results[given.few]), medians(results[given.many])
    print(f"| | {given.few:,} skills | {given.many:,} skills |\n|---|---:|---:|")
    for name, label in LABELS.items():
        small, large = few[name], many[name]
        if small is not None and large is not None:
            print(f"| {label} | {small:.3g} | {large:.3g} ({TIMES}{large / small:.3g}) |")


if __name__ == "__main__":
    main()
