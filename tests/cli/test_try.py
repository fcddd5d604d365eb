"""`try`: the story of one skill on the terminal, told by a real client of the real program."""

import json
import subprocess
from pathlib import Path

from tests.conftest import Record, program, write_config


def attempt(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        program("try", "--config", config, *arguments), capture_output=True, text=True, timeout=90, check=False
    )


def config_of(folder: Path) -> tuple[Path, Record]:
    record = Record(folder / "log.jsonl")
    skills = {
        "s": {"desc": "D", "usage": "Guide of s", "tool_list": {"r": ["echo"]}},
        "other": {"desc": "D", "usage": "U", "tool_list": {"r": []}},
    }
    return write_config(folder / "c.yaml", {"r": record.entry()}, skills), record


def test_the_whole_story_is_shown(tmp_path: Path):
    """The list, the activation with its guide, the new list, a call, offloading, and the labelled estimate."""
    config, record = config_of(tmp_path)
    done = attempt(config, "--skill", "s", "--call", "r__echo", "--arguments", json.dumps({"marker": "by-try"}))
    assert done.returncode == 0, done.stdout + done.stderr
    assert record.calls("by-try")
    told = [
        "lists its tools",
        "skill s activated",
        "Guide of s",
        "r__echo",
        "by-try",
        "skill s offloaded",
        "tokens (estimate)",
        "an estimate: characters / 4",
    ]
    places = [" ".join(done.stdout.split()).find(word) for word in told]
    assert -1 not in places, done.stdout
    assert places == sorted(places)


def test_a_tool_and_its_arguments_are_found_where_none_is_named(tmp_path: Path):
    """Without options the first skill with tools is shown, and a tool that can be called is called."""
    config, record = config_of(tmp_path)
    done = attempt(config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert record.calls()


def test_what_cannot_be_tried_is_said(tmp_path: Path):
    """An unknown skill, an unknown tool and arguments that are no JSON object each get a clear line and exit code 1."""
    config, _ = config_of(tmp_path)
    for arguments, said in (
        (["--skill", "nope"], "There is no skill nope; there are: s, other"),
        (["--call", "nope"], "There is no tool nope"),
        (["--arguments", "{"], "--arguments is not JSON"),
        (["--arguments", "[]"], "--arguments must be a JSON object"),
    ):
        done = attempt(config, *arguments)
        assert done.returncode == 1, done.stdout
        assert said in done.stdout
        assert "Traceback" not in done.stdout + done.stderr
