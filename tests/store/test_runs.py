"""Records of runs in memory, where no file keeps them."""

from dataclasses import replace

from proxy.core.run import TEXT_LIMIT, Run
from proxy.store.runs import KEPT, MemoryRuns


def run(number: int) -> Run:
    return Run(f"r{number}", "case", "process", {}, "completed", 1e9 - number, 0.5)


def test_the_newest_are_kept():
    """By their ends, which come when they are added; the newest first."""
    runs = MemoryRuns()
    assert runs.newest(5) == []
    for number in range(KEPT + 5):
        runs.add(run(number))
    assert runs.newest(2) == [run(KEPT + 4), run(KEPT + 3)]
    assert [each.id for each in runs.newest(10 * KEPT)] == [f"r{number}" for number in range(KEPT + 4, 4, -1)]


def test_a_run_is_found_by_its_id():
    """As long as it is kept."""
    runs = MemoryRuns(2)
    for number in range(3):
        runs.add(run(number))
    assert [runs.get(f"r{number}") for number in range(4)] == [None, run(1), run(2), None]


def test_a_run_takes_no_more_room_than_a_record_should():
    """However long what it was given is."""
    runs = MemoryRuns()
    runs.add(replace(run(1), error="x" * 100_000))
    assert len(runs.newest(1)[0].error) == TEXT_LIMIT
