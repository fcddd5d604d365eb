"""Fixtures for faults of servers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.front import FaultBench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[FaultBench]:
    bench = FaultBench(tmp_path)
    yield bench
    bench.close()
