"""Records of runs in memory: the newest of each scope, whoever else runs how much."""

from dataclasses import replace

from proxy.core.run import Run
from proxy.core.scope import ScopeId
from proxy.store.runs import KEPT, MemoryRuns

A, B = ScopeId("session", "12345678-a"), ScopeId("session", "12345678-b")
"""Two sessions that logs name alike."""


def run(number: int) -> Run:
    return Run(f"r{number}", "case", "process", {}, "completed", 1e9 - number, 0.5)


def test_the_newest_are_kept():
    """By their beginnings; the newest first."""
    runs = MemoryRuns()
    assert runs.newest(5) == []
    for number in range(KEPT + 5):
        runs.keep(A, run(number))
    assert runs.newest(2) == [run(KEPT + 4), run(KEPT + 3)]
    assert [each.id for each in runs.newest(10 * KEPT)] == [f"r{number}" for number in range(KEPT + 4, 4, -1)]


def test_a_record_takes_the_place_of_an_earlier_one_of_its_run():
    """It stays where the run began."""
    runs = MemoryRuns()
    runs.keep(A, replace(run(1), status="running"))
    runs.keep(A, run(2))
    runs.keep(A, run(1))
    assert runs.of(A, "case") == [run(2), run(1)]


def test_a_scope_reads_its_own_runs_of_a_skill_alone():
    """Also where logs have one name for two scopes."""
    runs = MemoryRuns()
    runs.keep(A, run(1))
    runs.keep(B, run(2))
    runs.keep(A, replace(run(3), skill="other"))
    assert (runs.of(A, "case"), runs.of(B, "case"), runs.of(B, "other")) == ([run(1)], [run(2)], [])


def test_a_scope_that_runs_much_costs_no_other_its_records():
    """Those of the one that has the most go first; at last, one has none left."""
    runs = MemoryRuns(3)
    runs.keep(B, run(0))
    for number in range(1, 10):
        runs.keep(A, run(number))
    assert runs.of(B, "case") == [run(0)]
    assert runs.of(A, "case") == [run(9), run(8)]
    none = MemoryRuns(0)
    none.keep(A, run(1))
    assert none.newest(1) == []
