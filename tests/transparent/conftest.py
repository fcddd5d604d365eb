"""Pairs of clients, one at a server and one at the proxy before it, for every era and transport."""

from collections.abc import Generator

import pytest

from tests.answers import not_ready
from tests.transparent.wires import Pair, pair

PAIRS = (
    ("handshake", "stdio", "handshake"),
    ("handshake", "http", "handshake"),
    ("modern", "stdio", "modern"),
    ("modern", "http", "modern"),
    ("handshake", "stdio", "modern"),
    ("modern", "http", "handshake"),
)
"""The client's era, the transport of both hops, and the era of the server behind the proxy."""


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Pair]:
    era, transport, upstream_era = request.param
    with pair(tmp_path_factory.mktemp("pair"), era, transport, upstream_era=upstream_era) as both:
        assert not_ready(both.activate("all")) == {}
        yield both
