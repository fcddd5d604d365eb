"""`check` and `try` with `--namespace` and `--principal`: what that client is offered, and nothing of it changes."""

import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from proxy.core.scope import ScopeId, ScopeState
from proxy.core.settings import every_kind
from proxy.store.state_file import Kept, StateFile
from tests.conftest import Json, Record, program, write_config

TOKENS = {"ada": "a" * 40, "bob": "b" * 40}
PROFILES = [
    {"principal": "bob", "namespace": "*", "allowed_skills": ["echo"]},
    {"principal": "ada", "namespace": "*", "allowed_skills": ["*"]},
    {"namespace": "empty", "allowed_skills": []},
    {"namespace": "*", "allowed_skills": ["echo", "other"]},
]
NOBODY_ELSE = 0o600


def run(command: str, config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = program(command, "--config", config, *arguments)
    return subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)


def told(done: subprocess.CompletedProcess[str], code: int = 0) -> str:
    """What a command has printed, in one line."""
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return " ".join(done.stdout.split())


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path / "log.jsonl")


@pytest.fixture
def config(tmp_path: Path, record: Record) -> Path:
    """`echo` for all, `other` (active at once) for clients without a token, and all for ada; state is in a file."""
    return configured(tmp_path, record)


def configured(folder: Path, record: Record, **echo: object) -> Path:
    skills = {
        "echo": {"desc": "D", "usage": "U", "tool_list": {"r": ["echo"]}, **echo},
        "other": {"desc": "D", "usage": "U", "tool_list": {"r": ["release"]}, "active": True},
        "secret": {"desc": "D", "usage": "U", "tool_list": {"r": ["fails"]}},
    }
    proxy: Json = {"tokens": TOKENS, "state": {"backend": "sqlite", "path": "state.db"}}
    config = write_config(folder / "c.yaml", {"r": record.entry()}, skills, proxy=proxy, profiles=PROFILES)
    config.chmod(NOBODY_ELSE)
    return config


def remember(config: Path, scope: ScopeId, *active: str) -> dict[ScopeId, ScopeState]:
    """Have `scope` remembered with these skills active; what the file has then."""
    StateFile(config.parent / "state.db").write({scope: Kept(ScopeState(active=active, started=True), 1.0)})
    return state_of(config)


def state_of(config: Path) -> dict[ScopeId, ScopeState]:
    return StateFile(config.parent / "state.db").snapshot(every_kind(1000))


def test_check_shows_the_skills_of_the_profile_alone(config: Path):
    """With what is active at the start, and the list of tools that it makes."""
    shown = told(run("check", config, "--principal", "bob"))
    assert "principal bob: it may use 1 skill active (at its start): none" in shown
    assert "Tools in its list now: SKILL skill echo" in shown
    assert "other" not in shown
    assert "secret" not in shown
    shown = told(run("check", config, "--namespace", "work"))
    assert "namespace work: it may use 2 skills active (at its start): other" in shown
    assert "Tools in its list now: SKILL, r__release" in shown
    assert not (config.parent / "state.db").exists()


def test_a_namespace_of_a_principal_is_not_that_of_others(config: Path):
    """Each has its own state, and its own profile."""
    remember(config, ScopeId("namespace", "work", "ada"), "secret", "echo")
    shown = told(run("check", config, "--namespace", "work", "--principal", "ada"))
    assert "namespace work of principal ada: it may use 3 skills active (remembered): secret, echo" in shown
    assert "Tools in its list now: SKILL, r__echo, r__fails" in shown.replace("r__fails, r__echo", "r__echo, r__fails")
    shown = told(run("check", config, "--namespace", "work", "--principal", "bob"))
    assert "namespace work of principal bob: it may use 1 skill active (at its start): none" in shown
    assert "namespace work: it may use 2 skills" in told(run("check", config, "--namespace", "work", "--offline"))


def test_what_is_remembered_and_no_longer_allowed_is_not_active(config: Path):
    """As when the client comes back."""
    remember(config, ScopeId("principal", "bob", "bob"), "secret", "echo")
    shown = told(run("check", config, "--principal", "bob", "--offline"))
    assert "active (remembered): echo" in shown
    assert "secret" not in shown


def test_a_state_file_that_cannot_be_read_is_said_and_left(config: Path):
    """The client is shown as it begins."""
    (config.parent / "state.db").write_bytes(b"another program's")
    for command, arguments in (("check", ["--offline"]), ("try", [])):
        shown = told(run(command, config, "--namespace", "work", *arguments))
        assert "hat is remembered of it cannot be read" in shown
        assert "it belongs to another program" in shown.replace("\n", " ")
    assert (config.parent / "state.db").read_bytes() == b"another program's"


def test_rows_that_cannot_be_read_do_not_stand_in_the_report(config: Path):
    """The log of a proxy is where they are told."""
    remember(config, ScopeId("namespace", "work"), "echo")
    with closing(sqlite3.connect(config.parent / "state.db")) as file:
        file.execute("UPDATE scope SET active = 'x'")
        file.commit()
    done = run("check", config, "--namespace", "work", "--offline")
    assert "active (at its start): other" in told(done)
    assert "rows_skipped" not in done.stdout + done.stderr


def test_a_client_that_may_use_nothing_is_told_so_without_starting_a_server(config: Path, record: Record):
    shown = told(run("check", config, "--namespace", "empty"))
    assert "namespace empty: it may use no skill, and sees no tool." in shown
    assert not record.received()


def test_listings_that_never_change_show_the_pinned_skills(tmp_path: Path, record: Record):
    """Whatever is active, and with the tool that calls the others."""
    skills = {"echo": {"desc": "D", "usage": "U", "tool_list": {"r": ["echo"]}, "active": True}}
    config = write_config(tmp_path / "c.yaml", {"r": record.entry()}, skills, proxy={"listing": "stable"})
    assert "Tools in its list now: SKILL, SKILL_CALL skill" in told(run("check", config, "--namespace", "n"))


@pytest.mark.parametrize("command", ["check", "try"])
def test_an_unknown_client_is_refused(config: Path, tmp_path: Path, record: Record, command: str):
    """With the nearest principal, or that there are none; a namespace in the words of `serve`."""
    without = write_config(tmp_path / "d.yaml", {"r": record.entry()}, {"s": {"usage": "U"}})
    for file, arguments, said in (
        (config, ("--principal", "adda"), "proxy.tokens: no principal adda; did you mean 'ada'?"),
        (without, ("--principal", "ada"), "no principal ada; there are no principals: no tokens are configured"),
        (config, ("--namespace", "a/b"), "'a/b' is no name: 1 to 128 of A-Z a-z 0-9 . _ ~ -, not dots alone"),
    ):
        done = run(command, file, *arguments)
        assert done.returncode == 2, done.stdout
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert not record.received()


@pytest.mark.parametrize("option", [("--trial",), ("--principal", "ada")])
def test_a_proxy_for_many_clients_is_not_one_client_s_trial(config: Path, option: tuple[str, ...]):
    """Their state would be lost with it."""
    done = run("serve", config, "--transport", "http", *option)
    assert done.returncode == 2
    assert "--trial and --principal are for --transport stdio" in done.stderr


def test_try_is_the_client_and_leaves_its_state_as_it_is(config: Path, record: Record):
    """It begins with what is active for the client, and what it activates and offloads is gone with it."""
    scope = ScopeId("namespace", "work", "ada")
    before = remember(config, scope, "secret")
    shown = told(run("try", config, "--namespace", "work", "--principal", "ada", "--skill", "echo"))
    assert "The client of namespace work of principal ada connects to" in shown
    assert "current skills: ['secret', 'echo']" in shown
    assert "skill echo offloaded" in shown
    assert [name for name, _ in record.calls()] == ["echo"]
    assert state_of(config) == before


def test_try_of_a_skill_that_is_active_for_the_client_leaves_it_so(config: Path):
    """In the file; the client that is tried reads it, and offloads it."""
    before = remember(config, ScopeId("principal", "ada", "ada"), "echo")
    shown = told(run("try", config, "--principal", "ada", "--skill", "echo"))
    assert "Skill echo is active already; it reads its guide" in shown
    assert state_of(config) == before


def test_try_runs_no_hook_that_ends_what_stays_active(tmp_path: Path, record: Record):
    """Neither by offloading the skill, nor at the end of the program; what it activated itself ends as ever."""
    config = configured(tmp_path, record, on_offload=[{"tool": "r/echo", "arguments": {"bye": "now"}}])
    before = remember(config, ScopeId("principal", "ada", "ada"), "echo")
    shown = told(run("try", config, "--principal", "ada", "--skill", "echo"))
    assert "Skill echo stays active for the client" in shown
    told(run("try", config, "--principal", "ada", "--skill", "other"))
    assert not record.calls("bye")
    assert state_of(config) == before
    told(run("try", config, "--principal", "bob", "--skill", "echo"))
    assert record.calls("bye")
    assert state_of(config) == before


def test_try_puts_no_skill_in_the_place_of_one_whose_hooks_would_run(tmp_path: Path, record: Record):
    """Neither the one that is tried, nor another for the estimate."""
    config = configured(tmp_path, record, on_offload=[{"tool": "r/echo", "arguments": {"bye": "now"}}])
    config.write_text(
        config.read_text().replace("  secret:", "  secret:\n    conflicts_with: [echo]\n    exclusive: true")
    )
    before = remember(config, ScopeId("principal", "ada", "ada"), "echo")
    refused = told(run("try", config, "--principal", "ada", "--skill", "secret"), 2)
    assert "Skill secret would take the place of echo, and hooks of that run in earnest" in refused
    shown = told(run("try", config, "--principal", "ada", "--skill", "other"))
    assert "skill echo (hooks), skill secret (hooks)" in shown
    assert not record.calls("bye")
    assert state_of(config) == before


def test_try_keeps_the_pins_of_the_client(tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch):
    """What it is granted in a trial is not pinned for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = configured(tmp_path, record)
    config.write_text(config.read_text().replace("  r:\n", "  r:\n    isolation: scope\n", 1))
    remember(config, ScopeId("namespace", "work"), "other")
    told(run("try", config, "--namespace", "work", "--skill", "echo"))
    assert [name for name, _ in record.calls()] == ["echo"]
    assert not [*tmp_path.glob("cache/**/pins/*.json")]


def test_try_of_a_skill_that_is_for_others_is_refused(config: Path):
    """With those that there are."""
    assert told(run("try", config, "--principal", "bob", "--skill", "secret"), 2) == (
        "Skill secret is not for principal bob; known here: echo"
    )
    assert "There is no skill" in told(run("try", config, "--principal", "bob", "--skill", "nope"), 2)
    assert "that namespace empty may use." in told(run("try", config, "--namespace", "empty"), 2)
