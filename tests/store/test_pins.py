"""Pins of definitions, kept as files that several programs change."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.core.definitions import Pin, Pins, PinsLost
from proxy.core.scope import ScopeId
from proxy.store import pins as store
from proxy.store.pins import PinFiles, change_pins, pin_files

CONFIGURATION = Path("/etc/skills.yaml")
A, B = {"description": "a" * 32}, {"description": "b" * 32, "other fields": "c" * 32}
PINS: Pins = {"read": Pin(A), "wr\ud800ite": Pin(A, B), "lost": Pin(None, B), "bare": Pin({})}
HERE, SESSION = ScopeId("namespace", "here", "alice"), ScopeId("session", "x")


def files(place: Path, configuration: Path = CONFIGURATION) -> PinFiles:
    return PinFiles(place, configuration, lambda scope: scope.kind != "session")


def test_what_was_written_is_read_by_the_next_run(tmp_path: Path):
    """By configuration, server and scope, each for itself; only the user can read it."""
    one = files(tmp_path)
    assert one.read("git", None) == {}
    assert one.stamp("git", None) is None
    assert one.update("git", None, lambda _: PINS) == PINS
    one.update("git", HERE, lambda _: {"read": Pin(B)})

    assert files(tmp_path).read("git", None) == PINS
    assert files(tmp_path).read("git", HERE) == {"read": Pin(B)}
    for other in (files(tmp_path, Path("/other.yaml")).read("git", None), one.read("gut", None)):
        assert other == {}
    assert one.read("git", ScopeId("namespace", "here")) == {}
    assert {content.scope for content in pin_files(tmp_path).values() if not isinstance(content, PinsLost)} == {
        "",
        "namespace here of alice",
    }
    assert pin_files(tmp_path, Path("/other.yaml")) == {}
    assert (tmp_path / "pins").stat().st_mode & 0o077 == 0
    assert [file.stat().st_mode & 0o077 for file in pin_files(tmp_path)] == [0, 0]


def test_the_pins_of_a_scope_that_is_over_are_removed(tmp_path: Path):
    """And of no other; those of sessions are never kept."""
    one = files(tmp_path)
    for scope in (None, HERE):
        one.update("git", scope, lambda _: PINS)
    one.remove("git", HERE)
    one.remove("git", HERE)

    assert one.read("git", HERE) == {}
    assert one.read("git", None) == PINS
    assert (one.keeps(None), one.keeps(HERE), one.keeps(SESSION)) == (True, True, False)


def test_only_what_is_different_is_written(tmp_path: Path):
    """So that its stamp tells of changes."""
    one = files(tmp_path)
    one.update("git", None, lambda _: PINS)
    stamp = one.stamp("git", None)
    one.update("git", None, lambda before: before or {})
    assert one.stamp("git", None) == stamp
    (file,) = pin_files(tmp_path)
    change_pins(file, lambda before: {**before, "read": Pin(B)})
    assert one.stamp("git", None) != stamp
    assert one.read("git", None)["read"] == Pin(B)


def test_changes_at_one_time_are_all_there(tmp_path: Path):
    """None overwrites what another has just written."""

    def add(number: int) -> None:
        for tool in range(20):
            pins = {f"{number} {tool}": Pin(A)}
            files(tmp_path).update("git", None, lambda before, pins=pins: {**(before or {}), **pins})

    threads = [threading.Thread(target=add, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(files(tmp_path).read("git", None)) == 80
    assert [file.suffix for file in (tmp_path / "pins").iterdir()] == [".json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"\xff\xfe{}",
        b"{",
        b"null",
        b"[1]",
        b"{}",
        b'{"format": 2, "tools": {}}',
        b'{"format": 1, "tools": []}',
        b'{"format": 1, "tools": {"a": 1}}',
        b'{"format": 1, "tools": {"a": {}}}',
        b'{"format": 1, "tools": {"a": {"granted": {}, "more": 1}}}',
        b'{"format": 1, "tools": {"a": {"granted": {"description": 1}}}}',
        b'{"format": 1, "tools": {"a": {"granted": {"foreign": "x"}}}}',
        b'{"format": 1, "tools": {"a": {"granted": []}}}',
        b'{"format": 1, "tools": ' + b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_said_to_be_so(tmp_path: Path, content: bytes):
    """It is never read in part; what is known in memory takes its place."""
    one = files(tmp_path)
    one.update("git", None, lambda _: PINS)
    (file,) = pin_files(tmp_path)
    file.write_bytes(content)

    with pytest.raises(PinsLost):
        one.read("git", None)
    assert isinstance(pin_files(tmp_path)[file], PinsLost)
    with pytest.raises(PinsLost):
        change_pins(file, lambda before: before)
    assert one.update("git", None, lambda before: PINS if before is None else {}) == PINS
    assert one.read("git", None) == PINS


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It would only cost memory and time."""
    one = files(tmp_path)
    one.update("git", None, lambda _: PINS)
    (file,) = pin_files(tmp_path)
    monkeypatch.setattr(store, "MAX_PIN_FILE_BYTES", file.stat().st_size)
    assert one.read("git", None) == PINS
    monkeypatch.setattr(store, "MAX_PIN_FILE_BYTES", file.stat().st_size - 1)
    with pytest.raises(PinsLost, match="it has more than"):
        one.read("git", None)


def a_folder_in_its_place(place: Path) -> None:
    files(place).update("git", None, lambda _: PINS)
    (file,) = pin_files(place)
    file.unlink()
    file.mkdir()
    (file / "inside").touch()


def no_folder_because_of_a_file(place: Path) -> None:
    (place / "pins").write_text("")


@pytest.mark.parametrize("spoil", [a_folder_in_its_place, no_folder_because_of_a_file])
def test_what_cannot_be_kept_costs_one_warning(tmp_path: Path, spoil: Callable[[Path], None]):
    """However often it is tried; nothing is half written."""
    spoil(tmp_path)
    one = files(tmp_path)
    with capture_logs() as log:
        for _ in range(3):
            assert one.update("git", None, lambda _: PINS) is None
    (warning,) = log
    assert (warning["event"], warning["log_level"]) == ("pins.not_kept", "warning")
    assert warning["reason"]
    assert not list(tmp_path.rglob("*.new"))


def test_a_file_that_may_not_be_read_is_lost(tmp_path: Path):
    """It is not as if there were none."""
    one = files(tmp_path)
    one.update("git", None, lambda _: PINS)
    (file,) = pin_files(tmp_path)
    file.unlink()
    file.mkdir()  # as unreadable as a file without the right to it, also to root
    with pytest.raises(PinsLost):
        one.read("git", None)
