"""`try`: the story of one skill on the terminal, told by a real client of the real program."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from mcp_types import Tool, ToolAnnotations

from proxy.cli.sample import chosen
from tests.conftest import Json, Record, program, write_config


def attempt(config: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = program("try", "--config", config, *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=False, env=env)


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
    expected = [
        "lists its tools",
        "skill s activated",
        "Guide of s",
        "r__echo",
        "by-try",
        "skill s offloaded",
        "tokens (estimate)",
        "an estimate: characters / 4",
    ]
    places = [" ".join(done.stdout.split()).find(word) for word in expected]
    assert -1 not in places, done.stdout
    assert places == sorted(places)


def test_a_tool_and_its_arguments_are_found_where_none_is_named(tmp_path: Path):
    """Without options the first skill with tools is shown, and a tool that can be called is called."""
    config, record = config_of(tmp_path)
    done = attempt(config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert record.calls()
    assert "activate, offload, list, read skills: s, other" in done.stdout
    assert "skills_guide" not in done.stdout


def one_skill(folder: Path, tools: Json, **more: Any) -> tuple[Path, Record]:
    """A configuration with one skill, `s`, of these tools of the recorder `r`; `no` is a server that cannot start."""
    record = Record(folder / "log.jsonl")
    servers = {"r": record.entry(), "no": {"command": "/nowhere/server"}}
    skills = {"s": {"desc": "D", "usage": "U", "tool_list": tools, **more}}
    return write_config(folder / "c.yaml", servers, skills), record


def told(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join(done.stdout.split())


def test_the_words_of_a_guide_are_not_taken_for_those_of_the_proxy(tmp_path: Path):
    """It may say what stands in answers of `SKILL`, too."""
    guide = "Begin.\n\nNot ready:\n- server r failed: so it says\n\nTools you can use now: none\n\nEnd."
    config, record = one_skill(tmp_path, {"r": ["echo"]}, usage=guide)
    done = attempt(config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [name for name, _ in record.calls()] == ["echo"]
    assert "Not counted" not in done.stdout


def test_a_skill_whose_tools_need_arguments_is_told_to_its_end(tmp_path: Path):
    """No call is made, the options for one are given, and the story goes on."""
    config, record = one_skill(tmp_path, {"r": ["release"]})
    done = attempt(config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not record.calls()
    call = """--call r__release --arguments '{"key": "…"}'"""
    assert f"(No call: r__release needs arguments; give {call})" in told(done)
    assert "And its list is again:" in done.stdout
    assert "the tools of all skills at once" in done.stdout
    assert attempt(config, "--call", "r__release").returncode == 1


def test_a_skill_that_works_by_itself_is_not_said_to_save_nothing(tmp_path: Path):
    """It has no tools in a list; what it does is told."""
    steps = [{"tool": "r/echo", "arguments": {"text": "x"}}]
    config, _ = one_skill(tmp_path, {}, internal_tools={"r": ["echo"]}, steps=steps, on_activate=steps)
    done = attempt(config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "saves nothing" not in told(done)
    assert "By itself it does this: on activation calls r/echo." in told(done)
    assert "Nothing is compared" in told(done)


def test_the_tools_of_a_skill_with_hooks_are_counted(tmp_path: Path):
    """It is the one that is tried: its hooks have run anyway."""
    steps = [{"tool": "r/echo", "arguments": {"text": "x"}}]
    config, _ = one_skill(tmp_path, {"r": ["echo"]}, on_activate=steps)
    done = attempt(config)
    assert re.search(r"the tools of all skills at once +1 ", done.stdout)


def test_a_skill_that_brings_no_tools_is_told_to_its_end(tmp_path: Path):
    """Why is said, and the exit code tells whether a server is to blame."""
    config, _ = one_skill(tmp_path, {"no": []})
    done = attempt(config)
    assert done.returncode == 1
    assert 'The skill brought no tools; see "Not ready" above.' in done.stdout
    assert "Not counted (not ready, impossible beside others, or with hooks): server no." in done.stdout
    config, _ = one_skill(tmp_path, {})
    done = attempt(config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The skill brought no tools." in done.stdout


def test_arguments_are_taken_as_given(tmp_path: Path):
    """`{}` is an answer, not a question."""
    config, record = one_skill(tmp_path, {"r": ["release"]})
    attempt(config, "--call", "r__release", "--arguments", "{}")
    assert record.calls() == [("release", {})]


def test_an_error_of_the_tool_is_said(tmp_path: Path):
    """A result with the error flag and an error of the protocol are shown, and the story goes on."""
    for tool, said in (("fails", "it failed"), ("explodes", "exploded on purpose")):
        config, _ = one_skill(tmp_path, {"r": [tool]})
        done = attempt(config)
        assert done.returncode == 1
        assert said in done.stdout
        assert ("answered with an error" if tool == "fails" else "The call failed") in done.stdout
        assert "the tools of all skills at once" in done.stdout


def test_a_skill_that_is_active_from_the_start(tmp_path: Path):
    """The story says so, and what offloading does to the list; a pinned skill is not offloaded."""
    config, _ = one_skill(tmp_path, {"r": ["echo"]}, active=True)
    done = attempt(config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Skill s is active from the start" in done.stdout
    assert "And its list is now:" in done.stdout
    config, _ = one_skill(tmp_path, {"r": ["echo"]}, pinned=True)
    done = attempt(config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Skill s is pinned: it cannot be offloaded." in done.stdout


def test_the_estimate_says_where_nothing_is_saved(tmp_path: Path):
    """One skill with the only tool costs more than the tool: that is said, with what the activation added."""
    config, _ = one_skill(tmp_path, {"r": ["echo"]})
    done = attempt(config)
    assert "saves nothing at the start and nothing with the skill" in told(done)
    assert "the activation's result, once" in done.stdout


def test_lists_stay_in_their_lines(tmp_path: Path):
    """A list has a line for each tool, at any width, and nothing from a server steers the terminal."""
    config, _ = config_of(tmp_path)
    for width in ("80", "120"):
        done = attempt(config, env={**os.environ, "COLUMNS": width})
        assert all(len(line) <= int(width) for line in done.stdout.splitlines())
        assert "  SKILL       activate, offload, list, read skills: s, other\n" in done.stdout
        assert "  SKILL_CALL  Calls a tool of an active skill that the result of SKILL names" in done.stdout


READS = ToolAnnotations(read_only_hint=True)


def tool(name: str, *required: str, hints: ToolAnnotations | None = None) -> Tool:
    schema = {"type": "object", "properties": {r: {"default": 1} for r in required}, "required": list(required)}
    return Tool(name=name, input_schema=schema, annotations=hints)


def test_the_call_that_needs_no_thought():
    """A tool that only reads, with few arguments and a telling name; never one that says it destroys."""
    tools = [tool("write"), tool("a__diff_staged", "x", hints=READS), tool("a__show", "x", "y", hints=READS)]
    assert chosen(tools)[0].name == "a__diff_staged"
    assert chosen([*tools, tool("a__git_log", "x", hints=READS)]) == (tool("a__git_log", "x", hints=READS), {"x": 1})
    assert chosen([*tools, tool("a__now", hints=READS)])[0].name == "a__now"
    assert chosen([tool("reset", hints=ToolAnnotations(destructive_hint=True))])[1] is None


def test_what_cannot_be_tried_is_said(tmp_path: Path):
    """An unknown skill, and arguments that are no JSON object or for no tool, each get a clear line."""
    config, _ = config_of(tmp_path)
    example = """for example: --arguments '{"url": "https://example.com"}'"""
    for arguments, said in (
        (["--skill", "nope"], "There is no skill nope; known here: s, other"),
        (["--skill", "othr"], "There is no skill othr; did you mean 'other'?"),
        (["--arguments", "{}"], "--arguments goes with --call: say which tool they are for."),
        (["--call", "x", "--arguments", "{x: 1}"], "--arguments: not JSON: a key in double quotes is missing here"),
        (["--call", "x", "--arguments", "{x: 1}"], example),
        (["--call", "x", "--arguments", "[]"], f"--arguments must be a JSON object; {example}"),
    ):
        done = attempt(config, *arguments)
        assert done.returncode == 2, done.stdout
        assert said in told(done)
        assert "Traceback" not in done.stdout + done.stderr


def test_a_configuration_without_skills_has_no_story(tmp_path: Path):
    """That is said."""
    done = attempt(write_config(tmp_path / "c.yaml", {}, {}))
    assert done.returncode == 2
    assert "There is no skill in" in done.stdout


def test_an_unknown_tool_is_said(tmp_path: Path):
    """The nearest tool is named."""
    config, _ = config_of(tmp_path)
    done = attempt(config, "--call", "echo")
    assert done.returncode == 1
    assert "There is no tool echo; did you mean 'r__echo'?" in done.stdout
