"""`runs`: what became of runs, by the file that a proxy has written, for people and as JSON."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.core.run import Run, StepRecord, json_of
from proxy.store.state_file import StateFile
from tests.conftest import program, write_config

STEPS = (
    StepRecord("find it", "crm/find", 0.01, 0.25, "completed"),
    StepRecord("tell", "tell", 0.26, 0.0, "skipped"),
    StepRecord("close", "skill closing", 0.3, 1.5, "failed", "the server hung"),
)
ONE = Run("abcd1111", "case", "namespace work", {"customer": "ü"}, "failed", 1e9, 1.85, STEPS, "close failed", 0, "up7")
TWO = Run("abcd22223333", "report", "process", {}, "completed", 1e9 + 60, 0.5, STEPS[:1], "", 1234)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration that keeps its state in a file."""
    state = {"backend": "sqlite", "path": "state/état?.db"}
    return write_config(tmp_path / "c.yaml", {}, {"case": {"usage": "u"}}, proxy={"state": state})


@pytest.fixture
def state(config: Path) -> Path:
    return config.parent / "state" / "état?.db"


def write(path: Path, *runs: Run) -> None:
    """Runs of a proxy."""
    StateFile(path).write({}, runs)


def told(*arguments: object, code: int = 0) -> str:
    """What the program prints: to people where it is done, else about what is wrong."""
    done = subprocess.run(
        program("runs", *map(str, arguments)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "TZ": "XYZ-2"},
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert (done.stderr if code == 0 else done.stdout) == ""
    return done.stderr if code else done.stdout


def test_runs_are_listed_newest_first_a_line_each(config: Path, state: Path):
    """By the clock on the wall; those of a skill, or so many, where that is said."""
    write(state, ONE, TWO)
    one = "abcd1111  2001-09-09 03:46:40  case    namespace work  failed     1.850 s  1 of 3 steps"
    two = "abcd2222  2001-09-09 03:47:40  report  process         completed  0.500 s  1 of 1 step"
    assert told("list", "--config", config) == f"{two}\n{one}\n"
    assert " ".join(told("list", "--config", config, "--skill", "case").split()) == " ".join(one.split())
    assert " ".join(told("list", "--config", config, "--limit", 1).split()) == " ".join(two.split())


def test_twenty_are_listed_unless_told_otherwise(config: Path, state: Path):
    write(state, *(replace(ONE, id=f"run{number}") for number in range(25)))
    assert len(told("list", "--config", config).splitlines()) == 20
    assert len(told("list", "--config", config, "--limit", 24, "--json").splitlines()) == 24


def test_a_run_is_shown_with_all_that_is_known(config: Path, state: Path):
    """Named by a beginning of its id that no other has. What it does not have is left out."""
    write(state, ONE, TWO)
    assert told("show", "abcd1", "--config", config).splitlines() == [
        "id: abcd1111",
        "skill: case",
        "scope: namespace work",
        "status: failed",
        "error: close failed",
        "began: 2001-09-09 03:46:40",
        "took: 1.850 s",
        "part of run: up7",
        'parameters: {"customer": "ü"}',
        "outcome: Completed, and not undone: find it. Failed: close.",
        "steps:",
        "  find it (crm/find): completed after 0.250 s, begun at 0.010 s",
        "  tell: skipped",
        "  close (skill closing): failed after 1.500 s, begun at 0.300 s: the server hung",
    ]
    assert told("show", TWO.id, "--config", config).splitlines() == [
        "id: abcd22223333",
        "skill: report",
        "scope: process",
        "status: completed",
        "began: 2001-09-09 03:47:40",
        "took: 0.500 s",
        "parameters: {}",
        "output: 1,234 bytes of JSON",
        "steps:",
        "  find it (crm/find): completed after 0.250 s, begun at 0.010 s",
    ]


def test_programs_get_json(config: Path, state: Path):
    """An object a line, all of it."""
    write(state, ONE, TWO)
    listed = [json.loads(line) for line in told("list", "--config", config, "--json").splitlines()]
    assert listed == [json_of(TWO), json_of(ONE)]
    assert json.loads(told("show", "abcd1", "--config", config, "--json")) == json_of(ONE)


def test_a_run_is_named_by_what_no_other_begins_with(config: Path, state: Path):
    """Else it is said how many there are; too little to go by is refused, whatever there is."""
    write(state, ONE, TWO)
    many = told("show", "abcd", "--config", config, code=2)
    assert many == "mcp-skill-proxy: 2 runs have an id that begins with abcd: write more of it\n"
    none = told("show", "a%cd", "--config", config, code=2)
    assert none == "mcp-skill-proxy: no run that is kept has an id that begins with a%cd\n"
    short = told("show", "abc", "--config", config, code=2)
    assert short == "mcp-skill-proxy: abc: write at least 4 characters of the run's id\n"


def test_where_nothing_has_run_yet_there_are_none(config: Path, state: Path):
    """Whether there is a file or not: none is made."""
    for made in (False, True):
        if made:
            write(state)
        assert told("list", "--config", config) == "No runs yet.\n"
        assert told("list", "--config", config, "--skill", "case") == "No runs of skill case yet.\n"
        assert told("list", "--config", config, "--json") == ""
        assert "no run that is kept" in told("show", "abcd", "--config", config, code=2)
        assert state.exists() is made


@pytest.mark.parametrize("command", [("list",), ("show", "abcd1111")])
def test_without_a_file_it_is_said_how_to_keep_runs(tmp_path: Path, command: tuple[str, ...]):
    """They are in the memory of the proxy alone."""
    config = write_config(tmp_path / "c.yaml", {}, {"case": {"usage": "u"}})
    said = told(*command, "--config", config, code=2)
    assert "only in the memory of the proxy that runs" in said
    assert "proxy.state: {backend: sqlite, path: FILE}" in said
    assert said.count("\n") == 1


def test_what_a_terminal_would_take_for_orders_is_not_printed(config: Path, state: Path):
    """Texts of servers and clients are data, also in JSON."""
    bad = "\x1b[2J\x9b1m\r\nx\u202e\ud800"
    step = StepRecord(bad, bad, 0.0, 0.0, "failed", bad)
    write(state, Run(f"abcd{bad}", bad, bad, {bad: bad}, "failed", 1e9, 0.0, (step,), bad, 0, bad))
    for command in (("list",), ("list", "--json"), ("show", "abcd"), ("show", "abcd", "--json")):
        said = told(*command, "--config", config)
        assert all(character.isprintable() for character in said.replace("\n", "")), command
        assert said.count("\n") == (12 if command == ("show", "abcd") else 1)


@pytest.mark.parametrize("limit", ["0", "-1", "many", "1.5", "²"])
def test_a_limit_that_is_none_is_refused(config: Path, limit: str):
    assert f"{limit} is no number of runs" in told("list", "--config", config, f"--limit={limit}", code=2)


def test_a_file_that_cannot_be_read_is_named(config: Path, state: Path):
    """In a line, with code 1; it is left as it is."""
    state.parent.mkdir()
    state.write_bytes(b"what I did last summer\n" * 500)
    said = (
        f"mcp-skill-proxy: {state}: it belongs to another program, and is left as it is: write the path of a file of "
        "its own\n"
    )
    assert told("list", "--config", config, code=1) == told("show", "abcd", "--config", config, code=1) == said
    assert [each.name for each in state.parent.iterdir()] == [state.name]
