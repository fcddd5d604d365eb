"""What servers offered last, kept as files from one run to the next."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from proxy.core.inventory import Offer
from proxy.core.masking import Masker
from proxy.core.server import HttpServer, Server, StdioServer
from proxy.store import offers
from proxy.store.offers import KEPT_FOR, OfferFiles

SECRET = "s3cr3t-t0k3n"
OTHER = "0th3r-t0k3n"
GIT = StdioServer(key="git", command="/bin/git", args=("--token", SECRET, "-v"), env={"TOKEN": SECRET}, cwd="/srv")
TRACKER = HttpServer(key="tracker", url=f"https://h.example/mcp?key={SECRET}", headers={"Authorization": SECRET})
OFFER = Offer.of(
    tools=[{"name": "echo", "inputSchema": {"type": "object"}, "x-future": {"none": None, "n": 1.0, "big": 10**30}}],
    resources=[{"uri": "memo://one", "name": "Größe"}],
    templates=[{"uriTemplate": "memo://{day}", "name": "by-day"}],
    prompts=[{"name": "greet"}],
    instructions="Be kind \ud800.",
    skills=[
        {"uri": "skill://a/SKILL.md", "frontmatter": {"name": "a", "description": ""}, "resources": "dynamic", "x": 1.0}
    ],
    extension={"directoryRead": True, "x-future": None},
)

FOLDER = "cache/here"
CONFIGURATION = Path("/etc/skills.yaml")


def files(place: Path, configuration: Path = CONFIGURATION, secret: str = SECRET) -> OfferFiles:
    """What a run of the program has: it knows only what other runs have left in the folder."""
    return OfferFiles(place / FOLDER, configuration, Masker([secret]))


def kept(place: Path) -> list[Path]:
    return sorted((place / FOLDER).iterdir())


@pytest.mark.parametrize("server", [GIT, TRACKER])
def test_what_was_kept_is_read_by_the_next_run(tmp_path: Path, server: Server):
    """As it was sent: unknown fields, numbers as they were written, and what is no UTF-8."""
    files(tmp_path).keep(server, OFFER)

    read = files(tmp_path).read(server)

    assert read is not None
    assert read.digest == OFFER.digest


def test_what_was_never_kept_is_not_there(tmp_path: Path):
    """Nor is anything made by looking for it."""
    assert files(tmp_path).read(GIT) is None
    assert list(tmp_path.iterdir()) == []


def test_the_newest_counts(tmp_path: Path):
    """One file a server, and nothing half written beside it."""
    one = files(tmp_path)
    for instructions in (None, "first", "second"):
        one.keep(GIT, Offer(instructions=instructions))
    one.keep(TRACKER, OFFER)

    assert one.read(GIT) == Offer(instructions="second")
    assert one.read(TRACKER) == OFFER
    assert [file.suffix for file in kept(tmp_path)] == [".json", ".json"]


@pytest.mark.parametrize(
    "another",
    [
        replace(GIT, key="gut"),
        replace(GIT, command="/bin/sh"),
        replace(GIT, args=("--token", SECRET)),
        replace(GIT, args=("--token", SECRET, "-w")),
        replace(GIT, cwd=None),
        replace(GIT, era="handshake"),
        HttpServer(key="git", url="http://127.0.0.1/mcp"),
    ],
)
def test_a_process_that_is_started_in_another_way_may_offer_something_else(tmp_path: Path, another: Server):
    """By what is run, and where."""
    files(tmp_path).keep(GIT, OFFER)

    assert files(tmp_path).read(another) is None


@pytest.mark.parametrize(
    "another",
    [
        replace(TRACKER, url=TRACKER.url.replace("mcp", "sse")),
        replace(TRACKER, transport="sse"),
        replace(TRACKER, headers={"Authorization": SECRET, "X-Tenant": "two"}),
    ],
)
def test_another_place_may_offer_something_else(tmp_path: Path, another: Server):
    """By its address, and the names of the headers that it gets."""
    files(tmp_path).keep(TRACKER, OFFER)

    assert files(tmp_path).read(another) is None


def test_the_environment_secrets_and_limits_make_no_other_server(tmp_path: Path):
    """A new token, or the terminal that the proxy is started from, does not make it forget."""
    files(tmp_path).keep(GIT, OFFER)
    files(tmp_path).keep(TRACKER, OFFER)
    renewed = replace(GIT, env={"TERM": "dumb"}, args=("--token", OTHER, "-v"), timeout=1.0, isolation="scope")
    moved = replace(TRACKER, url=f"https://h.example/mcp?key={OTHER}", headers={"Authorization": OTHER})

    assert files(tmp_path, secret=OTHER).read(renewed) == OFFER
    assert files(tmp_path, secret=OTHER).read(moved) == OFFER


def test_another_configuration_file_keeps_its_own(tmp_path: Path):
    """Two of them may mean different things by one entry."""
    files(tmp_path).keep(GIT, OFFER)

    assert files(tmp_path, Path("/home/me/skills.yaml")).read(GIT) is None


def test_no_secret_is_in_the_folder(tmp_path: Path):
    """Not in the files, and not in their names."""
    files(tmp_path).keep(GIT, OFFER)
    files(tmp_path).keep(TRACKER, OFFER)

    for file in kept(tmp_path):
        assert SECRET not in file.name
        assert SECRET.encode() not in file.read_bytes()


@pytest.mark.skipif(os.name != "posix", reason="permissions of a POSIX system")
def test_only_the_user_can_read_it(tmp_path: Path):
    """What a server offers to one user is none of the others' business."""
    files(tmp_path).keep(GIT, OFFER)

    assert (tmp_path / FOLDER).stat().st_mode & 0o077 == 0
    assert [file.stat().st_mode & 0o077 for file in kept(tmp_path)] == [0]


# --- what else may be there ------------------------------------------------------------------------------------------


def overwrite(place: Path, content: bytes) -> None:
    (file,) = kept(place)
    file.write_bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"\xff\xfe{}",
        b"{",
        b'{"format": 3, "tools": [{"name": "ec',
        b"null",
        b"[1]",
        b"{}",
        b'{"format": 0, "tools": []}',
        b'{"format": 1, "tools": []}',
        b'{"format": "1", "tools": []}',
        b'{"format": 3, "tools": ' + b"[" * 100_000,
        b'{"format": 3, "tools": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_file_that_is_damaged_or_of_somebody_else_is_none(tmp_path: Path, content: bytes):
    """It is no error, and is written anew by the next keeping."""
    one = files(tmp_path)
    one.keep(GIT, OFFER)
    overwrite(tmp_path, content)

    assert one.read(GIT) is None

    one.keep(GIT, OFFER)
    assert one.read(GIT) == OFFER


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "uri", "x"]), inner),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    content=st.dictionaries(
        st.sampled_from(["tools", "resources", "templates", "prompts", "instructions", "skills", "extension"]), anything
    )
)
def test_whatever_a_file_says_only_sound_entries_are_read(tmp_path: Path, content: dict[str, object]):
    """Of each list the objects that have a name, or an address."""
    one = files(tmp_path)
    one.keep(GIT, OFFER)
    overwrite(tmp_path, json.dumps({"format": 3, **content}).encode())

    read = one.read(GIT)

    assert read is not None
    for key, entries in (("name", read.tools), ("uri", read.resources), ("name", read.prompts)):
        assert all(isinstance(entry[key], str) and entry[key] for entry in entries)
    assert read.instructions is None or isinstance(read.instructions, str)
    assert read.extension is None or isinstance(read.extension, dict)


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It would only cost memory and time, at a moment when a client waits."""
    one = files(tmp_path)
    one.keep(GIT, OFFER)
    (file,) = kept(tmp_path)
    monkeypatch.setattr(offers, "LARGEST", file.stat().st_size)
    assert one.read(GIT) == OFFER
    monkeypatch.setattr(offers, "LARGEST", file.stat().st_size - 1)

    assert one.read(GIT) is None


def no_folder_because_of_a_file(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("")


def a_folder_where_the_file_would_be(folder: Path) -> None:
    folder.mkdir(parents=True)
    files(folder.parents[1]).keep(GIT, OFFER)
    (file,) = folder.iterdir()
    file.unlink()
    (file / "inside").mkdir(parents=True)


@pytest.mark.parametrize("spoil", [no_folder_because_of_a_file, a_folder_where_the_file_would_be])
def test_what_cannot_be_kept_costs_one_warning(tmp_path: Path, spoil: Callable[[Path], None]):
    """However often it is tried; nothing is half written, and nothing is read."""
    spoil(tmp_path / FOLDER)
    with capture_logs() as log:
        one = files(tmp_path)
        for _ in range(3):
            one.keep(GIT, OFFER)
        assert one.read(GIT) is None

    warnings = [event for event in log if event["log_level"] == "warning"]
    assert [event["event"] for event in warnings] == ["offers.not_kept"]
    assert warnings[0]["folder"] == str(tmp_path / FOLDER)
    assert warnings[0]["reason"]
    assert not list(tmp_path.rglob("*.new"))


def test_what_no_run_has_kept_for_long_is_removed(tmp_path: Path):
    """Such as that of a server whose entry has changed since; what is used stays, as each run writes it anew."""
    one = files(tmp_path)
    one.keep(TRACKER, OFFER)
    (old,) = kept(tmp_path)
    one.keep(GIT, OFFER)
    (used,) = set(kept(tmp_path)) - {old}
    long_ago = time.time() - KEPT_FOR - 60
    for file in (old, used):
        os.utime(file, (long_ago, long_ago))

    one.keep(GIT, OFFER)

    assert kept(tmp_path) == [used]
    assert one.read(GIT) == OFFER
