"""Fixtures for the life of servers behind the proxy, which runs in the test's own process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.upstream.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()
