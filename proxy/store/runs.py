"""Records of runs in this process's memory."""

from collections import deque
from itertools import islice
from typing import Final

from proxy.core.run import Run, shortened

KEPT: Final = 300
"""Runs that are kept, the newest ones."""


class MemoryRuns:
    """The `RunRecords` of this process: the newest `limit` runs, by their ends."""

    def __init__(self, limit: int = KEPT) -> None:
        self._runs: deque[Run] = deque(maxlen=limit)

    def add(self, run: Run) -> None:
        """Keep `run`, which has ended, as small as `shortened` makes it."""
        self._runs.append(shortened(run))

    def newest(self, limit: int) -> list[Run]:
        """At most `limit` runs, the newest first."""
        return [*islice(reversed(self._runs), limit)]

    def get(self, run: str) -> Run | None:
        """The run with that id; None where it is not known, or not any more."""
        return next((kept for kept in self._runs if kept.id == run), None)
