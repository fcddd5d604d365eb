"""Fixtures for faults of servers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.front import FaultBench
from tests.faults.stage import LONG, Stage, act


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[FaultBench]:
    bench = FaultBench(tmp_path)
    yield bench
    bench.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """With a skill `healthy` that does all that skills can do, at the healthy server."""
    stage = Stage(tmp_path)
    stage.unruly("a", {"timeout": LONG, "start": "eager"})
    stage.unruly("b")
    stage.acts("healthy", tool_list={"b": ["echo"]}, on_activate=[act(tool="b/act")], steps=[act(tool="b/act")])
    yield stage
    stage.close()
