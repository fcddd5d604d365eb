"""`check`: what each skill grants on real servers, and what is wrong, by exit code and in words."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Record, program, write_config


def check(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        program("check", "--config", config, *arguments), capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path / "log.jsonl")


def skill(**lists: object) -> dict[str, object]:
    return {"desc": "D", "usage": "U", "tool_list": lists}


def test_a_sound_configuration_is_good(tmp_path: Path, record: Record):
    """Every tool that a skill grants is listed under its exposed name, and the exit code is 0."""
    config = write_config(tmp_path / "c.yaml", {"r": record.entry()}, {"s": skill(r=["echo"])})
    done = check(config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skill s: 1 tool\n  grants r: echo\n  + r__echo\n" in done.stdout
    assert "All is good." in done.stdout


def test_what_no_server_offers_is_named_with_the_nearest(tmp_path: Path, record: Record):
    """A misspelled tool and a pattern that matches nothing are problems of their skill; the exit code is 1."""
    config = write_config(tmp_path / "c.yaml", {"r": record.entry()}, {"s": skill(r=["ecko", "nope_*", "echo"])})
    done = check(config)
    assert done.returncode == 1
    assert "! server r offers no tool ecko; the nearest is echo" in done.stdout
    assert "! server r: the pattern nope_* matches no tool" in done.stdout


def test_a_server_that_does_not_start_costs_only_its_own(tmp_path: Path, record: Record):
    """The report names the server with its reason, and still says what the others grant."""
    servers = {"r": record.entry(), "gone": {"command": "no-such-binary"}}
    config = write_config(tmp_path / "c.yaml", servers, {"s": skill(r=["echo"], gone=[])})
    done = check(config)
    assert done.returncode == 1
    assert "  + r__echo" in done.stdout
    assert "server gone does not start: command no-such-binary not found" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_disabled_server_is_said_at_each_skill_that_names_it(tmp_path: Path, record: Record):
    """A switched-off server is not started, and the skill that wants it says so."""
    servers = {"r": record.entry(), "off": {**record.entry(), "disabled": "true"}}
    config = write_config(tmp_path / "c.yaml", servers, {"s": skill(r=["echo"], off=[])})
    done = check(config)
    assert done.returncode == 0
    assert "server 'off' is disabled: skill 's' goes without it" in done.stdout


def test_what_is_only_worth_knowing_does_not_spoil_the_exit_code(tmp_path: Path, record: Record):
    """Unreached, denied and altered tools are told, and all is good."""
    config = write_config(
        tmp_path / "c.yaml",
        {"r": record.entry()},
        {"s": skill(r=["a/b", "fails"])},
        denied={"r": ["fails"]},
    )
    done = check(config)
    assert done.returncode == 0, done.stdout
    assert "server r: no skill reaches " in done.stdout
    assert "server r: denied to every skill: fails" in done.stdout
    assert "server r: tool a/b is shown as r__a_b_" in done.stdout


def test_a_skill_that_grants_nothing_is_a_problem(tmp_path: Path, record: Record):
    """A skill whose tools are all denied grants nothing, which nobody means."""
    config = write_config(tmp_path / "c.yaml", {"r": record.entry()}, {"s": skill(r=["echo"])}, denied={"r": ["echo"]})
    done = check(config)
    assert done.returncode == 1
    assert "! it grants nothing" in done.stdout


def test_no_skill_at_all_is_said_loudly(tmp_path: Path, record: Record):
    """Without an enabled skill clients see no tool: the exit code is 1."""
    config = write_config(tmp_path / "c.yaml", {"r": record.entry()}, {})
    done = check(config)
    assert done.returncode == 1
    assert "no skill is enabled: clients will see no tool at all" in done.stdout


def test_offline_starts_nothing(tmp_path: Path, record: Record):
    """`--offline` shows the effective grants, and no server has been started."""
    config = write_config(tmp_path / "c.yaml", {"r": record.entry()}, {"s": skill(r=["echo"])})
    done = check(config, "--offline")
    assert done.returncode == 0
    assert "skill s: r: echo" in done.stdout
    assert not record.log.exists()


def test_a_refused_file_exits_with_2_and_every_problem(tmp_path: Path):
    """Each problem is a line `file:line: path: what`, and there is no traceback."""
    config = tmp_path / "c.yaml"
    config.write_text("servers:\n  a: {comand: x}\nskill_configs:\n  s: {tool_list: {b: }}\n", encoding="utf-8")
    done = check(config)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert any(line.startswith(f"{config}:2: ") and "comand" in line for line in lines)
    assert any(line.startswith(f"{config}:4: ") for line in lines)
    assert "Traceback" not in done.stderr


def test_an_unknown_command_exits_with_2():
    """Wrong arguments are argparse's to refuse."""
    done = subprocess.run([sys.executable, "-m", "proxy", "nope"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
