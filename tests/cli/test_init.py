"""`init`: a configuration with one skill per server, from what a client has."""

import json
import subprocess
from pathlib import Path

import pytest

from proxy.config.load import load
from tests.conftest import program

ENTRY = {"command": "mcp-server-time", "args": ["--local-timezone", "UTC"], "env": {"V": "1.10", "FLAG": "on"}}


def init(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        program("init", *arguments), cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return name


SOURCES = {
    "claude.json": json.dumps({"mcpServers": {"time": ENTRY}}),
    "vscode.json": "{\n  // for the team\n" + json.dumps({"servers": {"time": {"type": "stdio", **ENTRY}}})[1:],
    "settings.json": json.dumps({"mcp": {"servers": {"time": ENTRY}}}),
    "codex.toml": '[mcp_servers.time]\ncommand = "mcp-server-time"\nargs = ["--local-timezone", "UTC"]\n'
    'env = {V = "1.10", FLAG = "on"}\n',
    "mine.yaml": "# kept\nservers:\n  time:\n    command: mcp-server-time\n    args: [--local-timezone, UTC]\n"
    "    env: {V: 1.10, FLAG: on}\n",
}


@pytest.mark.parametrize("name", SOURCES)
def test_what_a_client_has_is_taken_over(name: str, tmp_path: Path):
    """Each client's form gives a configuration that loads, with the server untouched and a skill of all its tools."""
    done = init(tmp_path, "--from", written(tmp_path, name, SOURCES[name]))
    assert done.returncode == 0, done.stderr
    loaded = load(tmp_path / "skills.yaml", {"PATH": "/nowhere"})
    (skill,) = loaded.catalogue.skills
    assert skill.tools["time"].everything
    server = loaded.servers["time"]
    assert getattr(server, "args", None) == ("--local-timezone", "UTC")
    assert {"V": "1.10", "FLAG": "on"}.items() <= dict(getattr(server, "env", {})).items()


def test_a_yaml_keeps_its_comments(tmp_path: Path):
    """The text of a YAML source is kept as it is; the skills are put below."""
    init(tmp_path, "--from", written(tmp_path, "mine.yaml", SOURCES["mine.yaml"]))
    assert SOURCES["mine.yaml"] in (tmp_path / "skills.yaml").read_text(encoding="utf-8")


def test_without_a_source_there_is_something_to_begin_with(tmp_path: Path):
    """Plain `init` writes a configuration that loads."""
    assert init(tmp_path).returncode == 0
    assert load(tmp_path / "skills.yaml", {"PATH": "/nowhere"}).catalogue.skills


def test_nothing_is_overwritten(tmp_path: Path):
    """A file that is there stays, and the message says what to do."""
    written(tmp_path, "skills.yaml", "mine")
    done = init(tmp_path)
    assert done.returncode == 2
    assert "exists already" in done.stderr
    assert (tmp_path / "skills.yaml").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("empty.json", "{}", "has no servers"),
        ("broken.json", "{", "broken.json"),
        ("broken.yaml", "a: [", "broken.yaml"),
        ("list.yaml", "- a", "has no servers"),
        ("done.yaml", "servers: {t: {command: x}}\nskill_configs: {}\n", "has skill_configs already"),
    ],
)
def test_a_source_that_cannot_be_used_is_named(name: str, text: str, said: str, tmp_path: Path):
    """What is wrong with the source is said in a line, without a traceback and without a file written."""
    done = init(tmp_path, "--from", written(tmp_path, name, text))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "skills.yaml").exists()


def test_a_missing_source_is_named(tmp_path: Path):
    """A file that is not there is said to be so."""
    done = init(tmp_path, "--from", "nope.json")
    assert done.returncode == 2
    assert "nope.json: No such file" in done.stderr


def test_to_standard_output(tmp_path: Path):
    """`--output -` prints the configuration."""
    done = init(tmp_path, "--output", "-")
    assert done.returncode == 0
    assert "skill_configs:" in done.stdout
    assert not (tmp_path / "skills.yaml").exists()
