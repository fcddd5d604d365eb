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


def test_limits_that_are_configured_are_shown(tmp_path: Path, record: Record):
    """Others are not."""
    servers, skills = {"r": record.entry()}, {"s": skill(r=["echo"])}
    done = check(write_config(tmp_path / "c.yaml", servers, skills), "--offline")
    assert "limits of each user" not in done.stdout
    limits = {"limits": {"calls_per_minute": 60}}
    done = check(write_config(tmp_path / "c.yaml", servers, skills, proxy=limits), "--offline")
    assert "limits of each user: sessions unlimited, " in done.stdout
    assert "calls_per_minute 60, " in done.stdout


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
    assert "server gone failed: command no-such-binary not found" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_a_disabled_server_is_one_note_that_names_its_skills(tmp_path: Path, record: Record):
    """A switched-off server is no problem, not even for a skill that has no other."""
    servers = {"r": record.entry(), "off": {**record.entry(), "disabled": "true"}}
    config = write_config(tmp_path / "c.yaml", servers, {"s": skill(r=["echo"], off=[]), "t": skill(off=[])})
    done = check(config)
    assert done.returncode == 0, done.stdout
    (note,) = [line for line in done.stdout.splitlines() if "servers.off" in line]
    assert note.endswith("servers.off: disabled: it is not started; skills s, t go without it")


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


@pytest.mark.parametrize(
    ("offline", "end"),
    [
        (
            ["--offline"],
            "The file is sound, but 1 skill cannot be used (see above); no server was started.\n",
        ),
        ([], "Something is not as the configuration says; see above.\n"),
    ],
)
def test_a_skill_in_a_folder_that_is_wrong_is_not_good(tmp_path: Path, offline: list[str], end: str):
    """It costs that skill alone; whoever runs `check` before a release learns of it by the exit code."""
    config = write_config(tmp_path / "c.yaml", {}, {"s": skill()})
    config.write_text(f"{config.read_text()}skill_paths: [{{path: lib, trusted: true}}]\n")
    document = tmp_path / "lib" / "wrong" / "SKILL.md"
    document.parent.mkdir(parents=True)
    document.write_text("---\nname: wrong\ndescription: d\nactive: maybe\n---\nGuide.\n")
    done = check(config, *offline)
    assert (done.returncode, done.stderr) == (1, "")
    assert "\n  wrong: line 4: active: must be true or false (lib/wrong/SKILL.md)\n" in done.stdout
    assert done.stdout.endswith(f"\n{end}")


@pytest.mark.parametrize("offline", [["--offline"], []])
def test_a_skill_that_only_needs_what_is_not_here_is_good(tmp_path: Path, offline: list[str]):
    """It is right as it is written, and offered elsewhere."""
    config = write_config(tmp_path / "c.yaml", {}, {"s": skill(), "t": {**skill(), "requires": {"bins": ["no-such"]}}})
    done = check(config, *offline)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nNot offered:\n  t: the program no-such is not on PATH\n" in done.stdout


ACTING = {
    **skill(),
    "on_activate": [{"tool": "r/echo", "arguments": {"text": "hello"}}],
    "internal_tools": {"r": ["echo", "fails"]},
    "bind": {"r/echo": {"text": "{{ heap.said }}"}},
    "parameters": {"what": {"type": "string", "required": True}},
    "steps": [{"parallel": [{"tool": "r/echo", "arguments": {"text": "{{ params.what }}"}}, {"tool": "r/fails"}]}],
}
DEEDS = """\
  on activation calls r/echo
  invoked with what calls r/echo | r/fails
  internal tools of r: echo, fails
  fills in r/echo: text
"""


@pytest.mark.parametrize("offline", [["--offline"], []])
def test_what_a_skill_does_by_itself_is_told(tmp_path: Path, record: Record, offline: list[str]):
    """Beside what it grants; and what is done when a client comes."""
    start = [{"tool": "r/echo", "arguments": {"text": "x"}}]
    config = write_config(tmp_path / "c.yaml", {"r": record.entry()}, {"s": ACTING}, on_scope_start=start)
    done = check(config, *offline)
    assert done.returncode == 0, done.stdout
    assert f"skill s: grants nothing\n{DEEDS}" in done.stdout
    assert "\n  before a client's first call: r/echo\n" in done.stdout


def test_a_step_that_no_server_can_do_is_a_problem_of_its_skill(tmp_path: Path, record: Record):
    """Named with its place, and the nearest name."""
    steps = [{"tool": "r/ecko"}, {"tool": "r/echo"}]
    config = write_config(tmp_path / "c.yaml", {"r": record.entry()}, {"s": skill(r=[]) | {"steps": steps}})
    done = check(config)
    assert done.returncode == 1
    assert "! steps[0]: server r offers no tool ecko; the nearest is echo" in done.stdout


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
    assert "skill s\n  grants r: echo\n" in done.stdout
    assert done.stdout.endswith("The file is sound; no server was started.\n")
    assert not record.log.exists()


def test_offline_tells_what_is_known_without_starting(tmp_path: Path):
    """A command that is not there and a variable that is not set, and which PATH was searched."""
    servers = {"gone": {"command": "no-such-binary"}, "unset": {"command": "x", "args": ["${NOT_SET_ANYWHERE}"]}}
    done = check(write_config(tmp_path / "c.yaml", servers, {"s": skill(gone=[], unset=[])}), "--offline")
    assert done.returncode == 0
    assert "note: server gone cannot be started: command no-such-binary not found: neither " in done.stdout
    assert "note: server unset cannot be started: variable NOT_SET_ANYWHERE is not set\n" in done.stdout
    assert "servers.gone.command: searched PATH=" in done.stdout


def test_offline_says_when_nothing_is_offered(tmp_path: Path):
    """A file without an enabled skill is sound, but nobody would call it so."""
    done = check(write_config(tmp_path / "c.yaml", {"a": {"command": "x"}}, {}), "--offline")
    assert done.returncode == 0
    assert done.stdout.endswith("\nNothing is offered: clients will see no tool.\n")
    assert "sound" not in done.stdout


@pytest.mark.parametrize("offline", [["--offline"], []])
def test_a_skill_without_servers_is_called_instructions_only(tmp_path: Path, offline: list[str]):
    """With servers started or not."""
    done = check(write_config(tmp_path / "c.yaml", {}, {"s": skill(), "t": {**skill(), "pinned": True}}), *offline)
    assert done.returncode == 0
    assert "skill s: instructions only\n" in done.stdout
    assert "skill t, pinned: instructions only\n" in done.stdout


def test_grants_are_wrapped_by_server(tmp_path: Path):
    """A line for each server, and no name is taken apart."""
    tools = [f"a-long-name-of-a-tool-{number}" for number in range(5)]
    servers = {"a": {"url": "http://h"}, "b": {"url": "http://h"}}
    done = check(write_config(tmp_path / "c.yaml", servers, {"s": skill(a=tools, b=[])}), "--offline")
    assert f"  grants a: {', '.join(tools[:2])},\n    {', '.join(tools[2:])}\n  grants b: all\n" in done.stdout, (
        done.stdout
    )


@pytest.mark.parametrize(("named", "shown"), [("c.yaml", "c.yaml"), ("x/../c.yaml", "c.yaml"), ("../c.yaml", None)])
def test_the_file_is_shown_by_its_shortest_path(tmp_path: Path, named: str, shown: str | None):
    """From the folder we are in, or whole."""
    folder = tmp_path / "y"
    (folder / "x").mkdir(parents=True)
    for at in (tmp_path, folder):
        write_config(at / "c.yaml", {}, {"s": skill()})
    done = subprocess.run(
        program("check", "--offline", "--config", named), capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.stdout.startswith(f"{shown or (tmp_path / 'c.yaml').resolve()}: 0 servers, 1 skill\n")


def test_a_missing_file_has_no_line(tmp_path: Path):
    """There is nothing to look at in it."""
    done = check(tmp_path / "none.yaml")
    assert done.returncode == 2
    assert done.stderr == f"{tmp_path / 'none.yaml'}: the file does not exist\n"


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


# --- folders with skills ----------------------------------------------------------------------------------------------


def put(path: Path, more: str = "", guide: str = "Guide.") -> Path:
    """A skill in the folder at `path`."""
    path.mkdir(parents=True)
    (path / "SKILL.md").write_text(f"---\nname: {path.name}\ndescription: D\n{more}---\n{guide}\n")
    return path


def offline(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    """What is said of a configuration with this text, from its own folder."""
    (tmp_path / "c.yaml").write_text(text)
    return subprocess.run(
        program("check", "--config", "c.yaml", "--offline"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )


def test_every_collision_of_skills_is_named_with_who_counts(tmp_path: Path):
    """Of folders among each other, by trust and by order, and with the file."""
    for path in ("s/pdf", "t/pdf", "u/pdf", "t/ocr", "u/ocr", "u/own", "u/OTHER"):
        put(tmp_path / path)
    done = offline(
        tmp_path,
        "skill_paths: [{path: s, trusted: true}, t, u]\nskill_configs: {own: {desc: Mine}, other: {desc: x}}\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("c.yaml: 0 servers, 4 skills\n")
    trusted = "s/pdf/SKILL.md has the same id pdf, and counts because it is in a trusted folder (s)"
    later = "u/ocr/SKILL.md has the same id ocr, and counts because it is in a later folder of skill_paths (u)"
    for note in (
        f"t/pdf/SKILL.md: not used: {trusted}",
        f"u/pdf/SKILL.md: not used: {trusted}",
        f"t/ocr/SKILL.md: not used: {later}",
        "c.yaml:2: skill_configs.own: laid over u/own/SKILL.md: desc",
        "c.yaml:2: skill_configs.other: u/OTHER/SKILL.md is not used: OTHER is the same id but for its spelling",
    ):
        assert f"note: {note}\n" in done.stdout


def test_skills_that_are_not_offered_are_named_with_the_reason(tmp_path: Path):
    """Those that lack something here are no problem, one that is written wrong is; lines fit into a terminal."""
    put(tmp_path / "s/far", "requires: {bins: [no-such-program, nor-this-one], servers: gone}\n")
    put(tmp_path / "s/wrong", "enabled: maybe\n")
    done = offline(
        tmp_path, "skill_paths: [{path: s, trusted: true}]\nskill_configs: {off: {enabled: false}, on: {usage: U}}\n"
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert (
        done.stdout
        == """\
c.yaml: 0 servers, 1 skill, 3 not offered

Not offered:
  wrong: line 4: enabled: must be true or false (s/wrong/SKILL.md)
  off: it is switched off: enabled: false
  far: the program no-such-program is not on PATH; the program nor-this-one is
    not on PATH; there is no server gone in the configuration (s/far/SKILL.md)

skill on: instructions only

The file is sound, but 1 skill cannot be used (see above); no server was started.
"""
    )


def test_what_has_changed_in_an_installed_skill_is_named(tmp_path: Path):
    """What was installed is known by its digest."""
    for name in ("pdf", "ocr"):
        package = put(tmp_path / "packages" / name)
        add = program("skills", "add", package, "--to", tmp_path / "s")
        subprocess.run(add, capture_output=True, timeout=60, check=True)
    assert "since it was installed" not in offline(tmp_path, "skill_paths: [s]\n").stdout
    (tmp_path / "s/pdf/SKILL.md").write_text((tmp_path / "s/pdf/SKILL.md").read_text().replace("Guide", "Guise"))
    (tmp_path / "s/pdf/new.txt").touch()
    done = offline(tmp_path, "skill_paths: [s]\n")
    assert done.returncode == 0
    assert "note: s/pdf: changed since it was installed: SKILL.md\n" in done.stdout
    assert "note: s/pdf: new since it was installed: new.txt\n" in done.stdout
    assert "s/ocr: " not in done.stdout


def test_what_a_trusted_folder_s_skill_grants_is_held_against_the_servers(tmp_path: Path, record: Record):
    """As for one of the file."""
    put(tmp_path / "s/tools", "tool_list: {r: [echo]}\n")
    config = write_config(tmp_path / "c.yaml", {"r": record.entry()}, {})
    config.write_text(f"{config.read_text()}skill_paths: [{{path: s, trusted: true}}]\n")
    done = check(config)
    assert (done.returncode, done.stderr) == (0, "")
    assert "skill tools: 1 tool\n  grants r: echo\n  + r__echo\n" in done.stdout


@pytest.mark.parametrize("in_folder", [False, True])
def test_a_guide_that_names_a_tool_by_its_own_name_is_worth_knowing(tmp_path: Path, record: Record, in_folder: bool):
    """Wherever the guide stands; it may well be right, so that the exit code stays 0."""
    named = {} if in_folder else {"s": {"desc": "D", "usage": "Call `echo`.", "tool_list": {"r": ["echo"]}}}
    config = write_config(tmp_path / "c.yaml", {"r": record.entry()}, named)
    if in_folder:
        put(tmp_path / "lib/s", "tool_list: {r: [echo]}\n", guide="Call `echo`.")
        config.write_text(f"{config.read_text()}skill_paths: [{{path: lib, trusted: true}}]\n")
    done = check(config)
    assert (done.returncode, done.stderr) == (0, "")
    assert "  skill s: its guide, line 1, names echo: clients see that tool as r__echo\n" in done.stdout


def test_a_constant_that_does_not_fit_and_steps_without_end_are_problems(tmp_path: Path, record: Record):
    steps = [{"tool": "r/wait", "arguments": {"file": 5}}, {"skill": "s"}]
    config = write_config(tmp_path / "c.yaml", {"r": record.entry()}, {"s": {**skill(r=["wait"]), "steps": steps}})
    done = check(config)
    assert done.returncode == 1
    assert "  ! steps[0]: r/wait: file: 5 is not of type 'string'\n" in done.stdout
    assert "  ! steps[1]: it invokes itself for ever: s -> s\n" in done.stdout


def test_pins_in_memory_alone_are_told(tmp_path: Path):
    """Where inventories are not kept, a definition can change from one run to the next."""
    for settings, there in (({"keep_inventories": False}, True), ({"definitions": "ignore"}, False), ({}, False)):
        config = write_config(tmp_path / "c.yaml", {}, {"s": {"usage": "u"}}, proxy=settings)
        assert ("pinned in memory alone" in check(config, "--offline").stdout) is there
