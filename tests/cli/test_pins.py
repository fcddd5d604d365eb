"""`pins`: what is pinned, and approving what has changed, by the files that a proxy has written."""

import os
import subprocess
from pathlib import Path

import pytest

from proxy.core.definitions import Pin, Pins
from proxy.core.scope import ScopeId
from proxy.store.pins import PinFiles, pin_files
from tests.conftest import program, write_config

A, B = {"description": "a" * 32}, {"description": "b" * 32, "_meta": "c" * 32}
PINS: Pins = {"log": Pin(A), "push": Pin(A, B), "clone": Pin(A, B), "x\x1b[2J": Pin(None, B)}
HERE = ScopeId("namespace", "here")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "mcp-skill-proxy"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path / "c.yaml", {}, {"s": {"usage": "u"}})


def write(cache: Path, config: Path, server: str, pins: Pins, scope: ScopeId | None = None) -> None:
    """What a proxy has written."""
    PinFiles(cache, config, lambda _: True).update(server, scope, lambda _: pins)


def read(cache: Path, config: Path, server: str, scope: ScopeId | None = None) -> Pins:
    return PinFiles(cache, config, lambda _: True).read(server, scope)


def told(cache: Path, *arguments: object, code: int = 0) -> str:
    """What the program prints: to people where it is done, else about what is wrong."""
    done = subprocess.run(
        program("pins", *map(str, arguments)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cache.parents[1],
        env={**os.environ, "XDG_CACHE_HOME": str(cache.parent)},
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if code else done.stdout


def test_pins_are_listed_by_configuration(cache: Path, config: Path):
    """With what has changed of those that are held; nothing that a terminal would obey."""
    write(cache, config, "git", PINS)
    write(cache, config, "browser", {"open": Pin(A)}, HERE)

    assert told(cache, "list") == (
        f"{config}:\n"
        "  browser/open (namespace here): as it was granted\n"
        "  git/clone: held: changed description, _meta\n"
        "  git/log: as it was granted\n"
        "  git/push: held: changed description, _meta\n"
        "  git/x [2J: held: what clients were granted is not known any more\n"
        "3 tools held; `pins approve` takes over the changed definition.\n"
    )
    assert told(cache, "list", "--config", "c.yaml") == told(cache, "list")


def test_without_any_it_says_so(cache: Path, config: Path):
    """Of all configurations, or of one."""
    assert told(cache, "list") == "Nothing is pinned yet: no client was granted a tool.\n"
    write(cache, Path("/other.yaml"), "git", PINS)
    assert told(cache, "list", "--config", config) == "Nothing is pinned yet: no client was granted a tool.\n"


def test_what_is_named_is_approved_and_nothing_else(cache: Path, config: Path):
    """A tool, or all of a server; what was seen last is what counts from then on."""
    write(cache, config, "git", PINS)

    assert told(cache, "approve", "git/push") == "approved git/push: description, _meta\n"
    assert read(cache, config, "git") == {**PINS, "push": Pin(B)}
    assert told(cache, "approve", "git") == (
        "approved git/clone: description, _meta\napproved git/x [2J: description, _meta\n"
    )
    assert read(cache, config, "git") == {"log": Pin(A), "push": Pin(B), "clone": Pin(B), "x\x1b[2J": Pin(B)}


def test_everything_is_approved_where_nothing_is_named(cache: Path, config: Path):
    """Also what a scope has to itself."""
    write(cache, config, "git", {"log": Pin(A), "push": Pin(A, B)})
    write(cache, config, "git", {"push": Pin(A, B)}, HERE)

    assert told(cache, "approve") == (
        "approved git/push: description, _meta\napproved git/push (namespace here): description, _meta\n"
    )
    assert read(cache, config, "git", HERE) == {"push": Pin(B)}
    assert told(cache, "approve", code=2) == (
        "mcp-skill-proxy: nothing is held: all definitions are those that clients were granted\n"
    )


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["git/psh"], "no pinned tool or server is called git/psh; did you mean git/push"),
        (["gti"], "no pinned tool or server is called gti; did you mean git?"),
        (["elsewhere"], "no pinned tool or server is called elsewhere\n"),
        (["push"], "no pinned tool or server is called push"),
        (["git/log"], "nothing is held of git/log: its definition is the one that clients were granted"),
        (["git/push", "git/log"], "nothing is held of git/log"),
    ],
)
def test_what_cannot_be_approved_is_said_and_nothing_done(cache: Path, config: Path, names: list[str], why: str):
    """Not the rest of what is named either."""
    write(cache, config, "git", PINS)

    assert why in told(cache, "approve", *names, code=2)
    assert read(cache, config, "git") == PINS


def test_where_several_configurations_have_such_a_tool_one_has_to_be_named(cache: Path, config: Path):
    """One name may be two servers."""
    other = config.with_name("other.yaml")
    for path in (config, other):
        write(cache, path, "git", PINS)

    assert f"say which one by --config ({config}, {other})" in told(cache, "approve", "git/push", code=2)
    assert read(cache, config, "git") == read(cache, other, "git") == PINS
    told(cache, "approve", "git/push", "--config", config)
    assert read(cache, config, "git") != read(cache, other, "git")


def test_a_damaged_file_is_named_and_the_others_are_used(cache: Path, config: Path):
    """With an exit code that says so."""
    write(cache, config, "git", PINS)
    write(cache, config, "hub", PINS)
    damaged, sound = pin_files(cache)
    damaged.write_bytes(b"{")

    assert str(damaged) in told(cache, "list", code=1)
    told(cache, "approve", code=1)
    assert b'"held"' not in sound.read_bytes()
    assert damaged.read_bytes() == b"{"


def test_a_bad_configuration_is_refused(cache: Path, config: Path):
    """As by every command."""
    config.write_text("servers: 1")

    assert "c.yaml:1" in told(cache, "list", "--config", config, code=2)
