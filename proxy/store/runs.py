"""Records of runs in this process's memory."""

from collections import Counter
from typing import Final

from proxy.core.run import Run
from proxy.core.scope import ScopeId

KEPT: Final = 300
"""Runs that are kept."""


class MemoryRuns:
    """The runs of this process, at most `limit`; beyond that the scope with the most runs loses its oldest one."""

    def __init__(self, limit: int = KEPT) -> None:
        self._limit = limit
        self._runs: dict[str, tuple[ScopeId, Run]] = {}
        self._counts: Counter[ScopeId] = Counter()

    def keep(self, scope: ScopeId, run: Run) -> None:
        """Keep a run of `scope`, in place of an earlier record with its id."""
        if run.id not in self._runs:
            self._counts[scope] += 1
        self._runs[run.id] = scope, run
        if len(self._runs) > self._limit:
            ((most, _),) = self._counts.most_common(1)
            oldest = next(id_ for id_, (owner, _) in self._runs.items() if owner == most)
            del self._runs[oldest]
            self._counts[most] -= 1
            if not self._counts[most]:
                del self._counts[most]

    def newest(self, limit: int) -> list[Run]:
        """At most `limit` runs, those that began last first."""
        return [run for _, run in reversed(self._runs.values())][:limit]

    def of(self, scope: ScopeId, skill: str) -> list[Run]:
        """The runs of a skill in `scope`, those that began last first."""
        return [run for owner, run in reversed(self._runs.values()) if owner == scope and run.skill == skill]
