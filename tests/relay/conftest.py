"""What the tests of relaying share: one proxy over HTTP with talkers behind it, in either era and isolation."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import HttpProxy, http_proxy, write_config
from tests.relay.talk import SERVER_ERAS, Talk, served, skill


@dataclass(frozen=True)
class World:
    """A proxy over HTTP; a skill is called like the server whose tools it grants.

    `handshake`, `modern`: processes behind it that all scopes share, each of one era. `shared-...`, `own-...`: the one
    talker over HTTP, with a connection for all scopes, and with one for each. `one-by-one-...`: it too, one call at a
    time. `bare`: a process that has neither logs nor completions.
    """

    proxy: HttpProxy
    talks: dict[str, Talk]


@pytest.fixture(scope="session")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Generator[Talk]:
    """A talker over Streamable HTTP."""
    with served(tmp_path_factory.mktemp("remote"), "remote") as talk:
        yield talk


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, remote: Talk) -> Generator[World]:
    with world_in(tmp_path_factory.mktemp("relay"), remote) as world:
        yield world


@pytest.fixture(scope="module")
def own_world(tmp_path_factory: pytest.TempPathFactory, remote: Talk) -> Generator[World]:
    """For tests that give up calls, of which servers may speak for a while: nobody else is told meanwhile."""
    with world_in(tmp_path_factory.mktemp("own"), remote) as world:
        yield world


@contextmanager
def world_in(folder: Path, remote: Talk) -> Generator[World]:
    talks = {era: Talk(folder / f"{era}.jsonl", era) for era in SERVER_ERAS}
    talks["bare"] = Talk(folder / "bare.jsonl", "bare", options=("--without", "logging,completions"))
    servers = {era: talks[era].entry(era=era) for era in SERVER_ERAS}
    servers["bare"] = talks["bare"].entry(era="handshake")
    for era in SERVER_ERAS:
        servers[f"shared-{era}"] = remote.entry(era=era)
        servers[f"own-{era}"] = remote.entry(era=era, isolation="scope")
        servers[f"one-by-one-{era}"] = remote.entry(era=era, max_concurrency=1)
    talks |= {key: remote for key in servers if key not in talks}
    config = write_config(folder / "skills.yaml", servers, {key: skill(key) for key in servers})
    with http_proxy(config) as proxy:
        yield World(proxy, talks)


@pytest.fixture(scope="session")
def stdio_config(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Talk]]:
    """A configuration for a proxy over stdio with a talker of each era, active from the start."""
    folder = tmp_path_factory.mktemp("stdio")
    talks = {era: Talk(folder / f"{era}.jsonl", era) for era in SERVER_ERAS}
    servers = {era: talks[era].entry(era=era) for era in SERVER_ERAS}
    return write_config(folder / "skills.yaml", servers, {"s": skill(*SERVER_ERAS) | {"active": True}}), talks
