"""`why`: one tool's whole story on real servers, and what would change it."""

import os
import subprocess
from pathlib import Path

import pytest

from proxy.core.definitions import Pin
from proxy.store.pins import PinFiles
from tests.conftest import Json, Record, program, write_config


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "mcp-skill-proxy"


def why(config: Path, *arguments: str, code: int = 0) -> str:
    """What the program prints: of tools, or where there are none to standard error."""
    done = subprocess.run(
        program("why", *arguments, "--config", config),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(config.parent / "cache")},
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if code == 2 else done.stdout


@pytest.fixture
def servers(tmp_path: Path) -> Json:
    return {"r": Record(tmp_path / "log.jsonl").entry(), "q": Record(tmp_path / "log.jsonl").entry()}


@pytest.fixture
def config(tmp_path: Path, servers: Json) -> Path:
    skills = {
        "s": {"usage": "U", "tool_list": {"r": ["ec*"]}},
        "t": {"usage": "U", "tool_list": {"q": ["echo"]}, "active": "true"},
        "u": {"usage": "U", "tool_list": {"r": ["fails"]}},
    }
    return write_config(tmp_path / "c.yaml", servers, skills, denied={"r": ["fails"]})


@pytest.mark.parametrize("name", ["r__echo", "r/echo", "r.echo"])
def test_a_tool_is_explained_from_its_server_to_the_call_that_helps(config: Path, name: str):
    """Under each of its names."""
    told = why(config, name).splitlines()

    assert told[0] == "tool r/echo"
    assert "  definition: offered as echo" in told
    assert "  list: skill s grants it (pattern ec*)" in told
    assert "  name: r__echo, the prefix r before its own name" in told
    assert told[-1] == 'Visible when skill s is active: SKILL({"action": "activate", "skill_name": "s"})'


def test_every_tool_of_that_name_is_explained(config: Path):
    """One after the other, also one that is visible from the start."""
    told = why(config, "echo")

    assert "tool r/echo\n" in told
    assert "\n\ntool q/echo\n" in told
    assert told.endswith("\nVisible now: skill t is active.\n")


def test_a_denied_tool_is_never_visible(config: Path):
    """Which the exit code says, too."""
    assert why(config, "r/fails", code=1).endswith(
        "\nNever visible: because black_tool_actions denies it; it would be if black_tool_actions did not.\n"
    )


def test_an_unknown_tool_is_refused_with_the_nearest(config: Path):
    """Whatever stands in its name."""
    assert "did you mean r__echo" in why(config, "r__ecko", code=2)
    assert "\x1b" not in why(config, "\x1b[2J", code=2)


def test_a_server_that_does_not_start_is_told_with_its_reason(tmp_path: Path, servers: Json):
    """Of a tool that only a pattern grants, too, if it is named with its server."""
    broken = servers | {"gone": {"command": "no-such-binary"}}
    config = write_config(tmp_path / "c.yaml", broken, {"s": {"usage": "U", "tool_list": {"gone": []}}})

    told = why(config, "gone/anything", code=1)

    assert "server: gone: failed: command no-such-binary not found" in " ".join(told.split())
    assert "it would be if server gone ran and offered it." in told
    assert "server gone: failed: command no-such-binary not found" in why(config, "anything", code=2)


def test_what_a_profile_may_not_use_is_never_visible_to_its_clients(tmp_path: Path, servers: Json):
    """By namespace and by user; who is not a user is refused with the nearest name."""
    skills = {name: {"usage": "U", "tool_list": {key: []}} for name, key in (("s", "r"), ("t", "q"))}
    config = write_config(
        tmp_path / "c.yaml",
        servers,
        skills,
        proxy={"tokens": {"alice": "a" * 20, "bob": "b" * 20}},
        profiles=[
            {"principal": "alice", "allowed_skills": ["s"]},
            {"namespace": "*", "allowed_skills": ["t"], "active": ["t"]},
        ],
    )

    assert why(config, "r/echo", "--principal", "alice", "--namespace", "any").endswith('"skill_name": "s"})\n')
    told = why(config, "r/echo", "--principal", "bob", code=1)
    assert "profile: 1 (principal alice) may use s" in told
    assert "Never visible: because its profile may not use skill s; it would be if the profile had skill s." in told
    assert why(config, "q/echo", "--namespace", "any").endswith("Visible now: skill t is active.\n")
    assert why(config, "r/echo").endswith('"skill_name": "s"})\n')
    assert "did you mean 'alice'?" in why(config, "q/echo", "--principal", "alise", code=2)


def test_what_nobody_may_use_is_never_visible(tmp_path: Path, servers: Json):
    """Where no profile is configured, too: nobody has a capability then."""
    skills = {"s": {"usage": "U", "tool_list": {"r": []}, "required_capabilities": ["ship"]}}

    told = why(write_config(tmp_path / "c.yaml", servers, skills), "r/echo", code=1)

    assert "profile: 1 (everybody) may not use s (lacks capability ship)" in told


def test_a_changed_definition_is_withheld_until_it_is_approved(tmp_path: Path, servers: Json, cache: Path):
    """By the pins that a proxy has kept."""
    skills = {"s": {"usage": "U", "tool_list": {"r": []}}}
    config = write_config(tmp_path / "c.yaml", servers, skills, proxy={"definitions": "hold"})
    pins = {"echo": Pin({"description": "a" * 32})}
    PinFiles(cache, config, lambda _: True).update("r", None, lambda _: pins)

    told = why(config, "r__echo", code=1)

    assert "definition: withheld, since it has changed (" in told
    assert "it would be if `mcp-skill-proxy pins approve r/echo` approved that." in told


def test_offline_goes_by_what_was_kept(config: Path):
    """Which is nothing as long as no proxy ran; no server is started."""
    told = why(config, "r/echo", "--offline", code=1)

    assert "what it offers is not kept" in " ".join(told.split())
    assert not (config.parent / "log.jsonl").exists()
