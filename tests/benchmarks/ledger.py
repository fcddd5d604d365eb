"""What became of each call that clients made while servers were killed."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from table import TIMES

UNSENT = re.compile(r"was not sent|was offloaded|is not active|^Unknown tool")
"""What the proxy says of a call that no server has seen."""
SHOWN = 5


@dataclass
class Ledger:
    """Calls by their markers, and what came back; `offences` are what must never happen."""

    made: set[str] = field(default_factory=set[str])
    unsent: set[str] = field(default_factory=set[str])
    outcomes: Counter[str] = field(default_factory=Counter[str])
    texts: Counter[str] = field(default_factory=Counter[str])
    seconds: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    offences: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def offend(self, what: str, how: str) -> None:
        """Note what must never happen."""
        self.offences.setdefault(what, []).append(how)

    def judge(
        self, marker: str, server: str, answers: list[dict[str, Any]], taken: float, *, refused: bool = False
    ) -> None:
        """Take note of all answers to one call, which took so many seconds.

        `refused`: its tool comes with a skill that is not active.
        """
        if not answers:
            self.offend("lost", f"{marker}: the stream ended without an answer")
        elif len(answers) > 1:
            self.offend("answered twice", f"{marker}: {answers}")
        else:
            what = self._judge(marker, server, answers[0], refused=refused)
            self.outcomes[what] += 1
            self.seconds.setdefault(what, []).append(taken)

    def judge_cancelled(self, marker: str, answers: list[dict[str, Any]]) -> None:
        """Take note of all answers to a call that its client has cancelled by a notification."""
        if len(answers) > 1:
            self.offend("answered twice", f"{marker}, cancelled: {answers}")
        how = "not answered" if not answers else answers[0].get("error", {}).get("message", "answered with a result")
        self.outcomes[f"cancelled by the client: {how}"] += 1

    def _judge(self, marker: str, server: str, answer: dict[str, Any], *, refused: bool) -> str:
        """What one answer is."""
        result = answer.get("result", {})
        text = answer["error"]["message"] if "error" in answer else result["content"][0]["text"]
        if UNSENT.search(text):
            self.unsent.add(marker)
        if not result.get("isError") and "error" not in answer:
            if text != marker:
                self.offend("answers to another call", f"{marker}: {text}")
            if refused:
                self.offend("run without an active skill", marker)
            return "answered with a result"
        if re.search(rf"\bserver {server}\b", text, re.IGNORECASE):
            self.texts[_plain(text)] += 1
            return "answered with an error that names the server"
        if refused and "SKILL(" in text:
            return "refused with the call that helps, as it should be"
        self.texts[f"OTHER: {_plain(text)}"] += 1
        return "answered with any other error"

    def compare(self, records: Iterable[Path]) -> None:
        """Hold what the servers have run against what was asked of them."""
        run = Counter(line for path in records if path.exists() for line in path.read_text().splitlines())
        self.outcomes["run by servers"] = run.total()
        for line, times in run.items():
            tool, marker = line.split()
            if tool == "do" and times > 1:
                self.offend("run more than once though not safe", f"{marker}: {times} times")
            if marker not in self.made:
                self.offend("run though never called", line)
            if marker in self.unsent:
                self.offend("run though said not to be", line)

    def lines(self) -> Iterator[str]:
        """The report."""
        yield f"calls made: {len(self.made):,}"
        for what, count in self.outcomes.most_common():
            taken = self.seconds.get(what)
            times = f" (median {median(taken):.2f} s, longest {max(taken):.2f} s)" if taken else ""
            yield f"  {what}: {count:,}{times}"
        yield "errors, by text:"
        yield from (f"  {count:,} {TIMES} {text}" for text, count in sorted(self.texts.items()))
        for what in MUST_BE_NONE:
            found = self.offences.get(what, [])
            yield f"{what}: {len(found)} (must be 0)"
            yield from (f"  {how[:300]}" for how in found[:SHOWN])


MUST_BE_NONE = (
    "lost",
    "answered twice",
    "answers to another call",
    "run more than once though not safe",
    "run though never called",
    "run though said not to be",
    "run without an active skill",
    "scopes whose active skills are not theirs",
    "clients that failed",
    "processes left",
    "tracebacks",
    "bad exit",
)


def _plain(text: str) -> str:
    """An error without what differs from call to call."""
    text = re.sub(r"\b(s)\d+(?=__|\b)", r"\1N", text)
    return re.sub(r"\d+", "N", text)[:200]
