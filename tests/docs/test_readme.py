"""Every command and every configuration in the README is run."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.config.models import ProfileEntry, ProxyBlock, ServerEntry, SkillEntry, StepEntry
from proxy.core.filters import FILTERS, TESTS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAM = Path(sys.executable).with_name("mcp-skill-proxy")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines() if line]
IN_ONE_LINE = re.findall(r"^\| \*\*.+?\*\* \| `.+?` \| `(\{.+?\})`", README, re.MULTILINE)
CLIENT_CONFIGS = [*map(json.loads, [*blocks("json"), *IN_ONE_LINE]), *map(tomllib.loads, blocks("toml"))]


def entries() -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for config in CLIENT_CONFIGS:
        (servers,) = config.values()
        found += servers.values() if isinstance(servers, dict) else servers
    assert len(IN_ONE_LINE) == 6
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the README's reader has it: the clone's configuration and a client's config."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "config", folder / "config")
    servers = {"time": {"command": "mcp-server-time", "args": []}}
    (folder / "claude_desktop_config.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return folder


@pytest.mark.parametrize("text", blocks("yaml"))
def test_each_configuration_loads(text: str, tmp_path: Path):
    """A YAML in the README is accepted as it stands, beside the folders of skills that are shipped."""
    file = tmp_path / "skills.yaml"
    file.write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "config" / "skills", tmp_path / "skills")
    loaded = load(file, {"TRACKER_TOKEN": "x", "PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    assert loaded.catalogue.skills
    assert not [note for note in loaded.notes if "unknown" in note]


@pytest.mark.parametrize("command", [line for line in COMMANDS if not line.startswith("make ")])
def test_each_command_succeeds(command: str, place: Path):
    """A command in the README does what it says and exits with 0; they are run in the README's order."""
    name, *arguments = shlex.split(command)
    assert name == ".venv/bin/mcp-skill-proxy"
    done = subprocess.run([PROGRAM, *arguments], cwd=place, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.startswith("make ")])
def test_each_make_target_exists(command: str):
    """The two set-up commands are targets of the Makefile."""
    make = shutil.which("make")
    assert make is not None
    subprocess.run([make, "--dry-run", *command.split()[1:]], cwd=ROOT, capture_output=True, check=True)


def test_make_run_serves_the_default_configuration():
    """`make run` prints the address, the skills and how to point a client at it, and ends by SIGINT with 0."""
    process = subprocess.Popen(
        ["make", "--no-print-directory", "run", "ARGS=--port 0"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if "proxy.ready" in line:
            break
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert "http://127.0.0.1:" in said
    assert all(word in said for word in ("clock", "repository", "claude mcp add"))


@pytest.mark.parametrize("entry", entries(), ids=str)
def test_each_client_is_pointed_at_the_program(entry: dict[str, object]):
    """A client's entry starts the program with arguments that it accepts, or names the address that it serves."""
    if "command" not in entry:
        assert entry.get("url", entry.get("httpUrl")) == "http://127.0.0.1:8765/mcp"
        return
    command, arguments = entry["command"], entry["args"]
    assert isinstance(command, str)
    assert isinstance(arguments, list)
    assert Path(command).name == PROGRAM.name
    real = [argument.replace("/path/to", str(ROOT)) for argument in arguments]
    done = subprocess.run(
        [PROGRAM, *real], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stdout


def test_every_setting_is_in_the_reference():
    """Every key of the configuration stands in the README."""
    keys = {
        field.alias or name
        for part in (ServerEntry, SkillEntry, StepEntry, ProfileEntry, ProxyBlock)
        for name, field in part.model_fields.items()
    }
    assert {key for key in keys if f"`{key}`" not in README} <= {"envFile"}


def test_every_filter_and_test_is_in_the_reference():
    """All that expressions have, and nothing else, stands in the table about them."""
    _, begins, rest = README.partition("What **expressions** have")
    rows = re.findall(r"^\| (?:filters:|…|tests) .*", rest.partition("\n\n**")[0], re.MULTILINE)
    named = re.findall(r"`([a-z]+)`", "\n".join(rows))
    assert begins
    assert {*named} == {name for name in (*FILTERS, *TESTS) if name.isalpha()}
