"""The program for a user without a home directory, as a container under any uid has it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

LAUNCHER = """
import os, pwd, sys

def unknown(uid):
    raise KeyError("getpwuid(): uid not found")

pwd.getpwuid = unknown
sys.argv[0] = "mcp-skill-proxy"
from proxy.cli.main import main
sys.exit(main())
"""
"""The program for a user that the system's list of users does not have."""
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "HOME" and not name.startswith(("XDG_", "COVERAGE"))
}
HOMES = [{}, {"HOME": "/proc/nowhere"}, {"HOME": ""}]
"""None, one that is not there and cannot be made, and an empty one."""
CONFIG = f"""
servers: {{r: {{command: {json.dumps(sys.executable)}, args: ["{ROOT}/tests/servers/recorder.py", --log, r.log]}}}}
skill_configs: {{a: {{desc: d, tool_list: {{r: []}}}}}}
"""


def run(folder: Path, home: dict[str, str], *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "c.yaml").write_text(CONFIG)
    return subprocess.run(
        [sys.executable, "-c", LAUNCHER, *arguments],
        input=given,
        env={**ENVIRONMENT, **home, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize(
    ("command", "codes"),
    [
        (("check", "--config", "c.yaml", "--offline"), {0}),
        (("try", "--config", "c.yaml", "--call", "r__echo"), {0}),
        (("skills", "list", "--config", "c.yaml"), {0}),
        (("skills", "list"), {0, 2}),
        (("skills", "add", str(ROOT / "config/skills/changelog"), "--to", "skills"), {0}),
        (("pins", "list"), {0, 2}),
        (("init", "--output", "new.yaml"), {0}),
    ],
)
def test_every_command_works_without_a_home_directory(tmp_path: Path, home: dict[str, str], command, codes):
    """What needs one says so; nothing is made in a folder that is called ~."""
    done = run(tmp_path, home, *command)
    assert done.returncode in codes, done.stderr
    assert "Traceback" not in done.stderr
    if done.returncode == 2:
        assert "there is no home directory" in done.stderr
    assert "~" not in [each.name for each in tmp_path.iterdir()]


@pytest.mark.parametrize("home", HOMES)
def test_the_proxy_serves_without_a_home_directory(tmp_path: Path, home: dict[str, str]):
    """That nothing is remembered from one run to the next is said once."""
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
    done = run(tmp_path, home, "serve", "--config", "c.yaml", given=f"{json.dumps(begin)}\n")
    assert json.loads(done.stdout.splitlines()[0])["result"]["protocolVersion"] == "2025-11-25"
    assert "Traceback" not in done.stderr
    assert done.stderr.count("cache.none") == 1
    assert "~" not in [each.name for each in tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("skill_paths: [~/skills]", "skill_paths[0]: ~ is the home directory, and there is none: set HOME"),
        ("proxy: {state: {backend: sqlite, path: ~/s.db}}", "proxy.state.path: ~ is the home directory"),
        ("env_file: ~/.env", "env_file: ~ is the home directory, and there is none"),
        ("servers: {s: {command: ~/bin/x}}", "command ~/bin/x: ~ is the home directory, and there is none"),
        ("servers: {s: {command: sh, cwd: ~/x}}", "cwd ~/x: ~ is the home directory, and there is none"),
        ("skill_paths: [~nobody.here/skills]", "skill_paths[0]: there is no user nobody.here"),
    ],
)
def test_a_path_in_the_home_directory_is_named_where_there_is_none(tmp_path: Path, text: str, said: str):
    (tmp_path / "d.yaml").write_text(f"{text}\n")
    done = run(tmp_path, {}, "check", "--config", "d.yaml", "--offline")
    assert said in done.stdout + done.stderr
