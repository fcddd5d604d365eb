"""Files that hold secrets or state, and that others can reach: a note says so, and what to do."""

import os
from pathlib import Path

import pytest

from proxy.config.permissions import changeable_by_others

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the system has no such modes")
OPEN, CLOSED = 0o644, 0o600
LITERAL = {
    "token of the proxy": 'proxy: {tokens: {alice: "t0ken-of-alice"}}',
    "name of a variable": "servers: {s: {command: python, env: {DB_PASS: hunter2}}}",
    "a default": "servers: {s: {command: python, env: {DB_PASS: '${P:-hunter2}'}}}",
    "random value": "servers: {s: {command: python, env: {THING: a1b2c3d4e5f6g7h8i9}}}",
    "argument": "servers: {s: {command: python, args: [--pat, x12345]}}",
    "URL in a variable": "servers: {s: {command: python, env: {URL: 'redis://:x12345@h'}}}",
    "header": "servers: {s: {url: 'http://h/', headers: {Authorization: Bearer x12345}}}",
    "userinfo": "servers: {s: {url: 'http://me:x12345@h/'}}",
    "query": "servers: {s: {url: 'http://h/?api_key=x12345'}}",
    "switched off": "servers: {s: {command: python, enabled: false, env: {DB_PASS: hunter2}}}",
}
NOT_LITERAL = {
    "variables": """
        servers:
          a: {command: python, env: {DB_PASS: '${P}', URL: 'redis://:${P}@h'}, args: [--pat, '${P}']}
          b: {url: 'http://h/?api_key=${P}', headers: {Authorization: 'Bearer ${P}'}}
        proxy: {tokens: {alice: '${P}'}}
        """,
    "plain settings": """
        servers:
          a: {command: python, env: {URL: 'postgres://db/app?sslmode=require', NAME: customers-db, AUTH_ON: 'true'}}
          b: {url: 'http://h/mcp?mode=all', headers: {Accept: application/json, X-Tenant: some-tenant}}
        """,
}


def of_modes(notes: list[str]) -> list[str]:
    return [note for note in notes if "chmod" in note or "chown" in note or "open to everybody" in note]


def load(room, text: str, mode: int) -> list[str]:
    room.file.touch()
    room.file.chmod(mode)
    return of_modes(list(room.load(text, {"P": "s3cret"}).notes))


@pytest.mark.parametrize("text", LITERAL.values(), ids=LITERAL)
def test_a_file_with_literal_secrets_that_others_can_read_is_noted(room, text: str):
    """With the command that helps; for its owner alone it is as it should be."""
    expected = (
        f"{room.file}: it holds secrets, and others than its owner can reach it (mode 0644): chmod 600 {room.file}"
    )
    assert [note.replace(":1: ", ": ") for note in load(room, text, OPEN)] == [expected]
    assert load(room, text, CLOSED) == []


@pytest.mark.parametrize("text", NOT_LITERAL.values(), ids=NOT_LITERAL)
def test_a_file_whose_secrets_come_from_variables_is_for_everybody(room, text: str):
    """It holds the names alone."""
    assert load(room, text, OPEN) == []


def test_the_mode_of_what_a_link_leads_to_counts(room):
    """A link itself is open to everybody."""
    real = room.folder / "real.yaml"
    real.write_text("")
    room.file.symlink_to(real)
    assert load(room, LITERAL["argument"], CLOSED) == []
    assert len(load(room, LITERAL["argument"], 0o640)) == 1


def test_an_env_file_that_others_can_read_is_noted_where_it_is_named(room):
    """That of the whole file, and that of a server; one without secrets is not."""
    for name, content in (("a.env", "DB_PASS=hunter2"), ("b c.env", "KEY=x12345"), ("d.env", "MODE=production")):
        (room.folder / name).write_text(content)
        (room.folder / name).chmod(0o604)
    text = """
        env_file: a.env
        servers:
          s: {command: python, env_file: 'b c.env'}
          t: {command: python, env_file: d.env}
        """
    one, other = [note.split(": ", 1)[1] for note in load(room, text, OPEN)]
    assert one.startswith("env_file: the file holds secrets, and others")
    assert one.endswith(f"(mode 0604): chmod 600 {room.folder / 'a.env'}")
    assert other.startswith("servers.s.env_file: ")
    assert other.endswith(f"chmod 600 '{room.folder / 'b c.env'}'")


def state(room) -> list[str]:
    notes = load(room, "proxy: {state: {backend: sqlite, path: data/state.db}}", OPEN)
    return [note.split("proxy.state.path: ", 1)[1] for note in notes]


def test_a_state_file_that_others_can_change_is_noted(room):
    """It says which skills are active; one that others can only read is not, nor one that is not there."""
    folder = room.folder / "data"
    folder.mkdir(mode=0o700)
    file = folder / "state.db"
    assert state(room) == []
    file.touch(mode=0o644)
    assert state(room) == []
    file.chmod(0o666)
    assert state(room) == [f"can be changed by others than its owner (mode 0666): chmod go-w {file}"]


def test_a_folder_of_the_state_file_that_others_can_change_is_noted(room):
    """They could put another file in its place; or one beside it, where the folder is like /tmp."""
    folder = room.folder / "data"
    folder.mkdir()
    folder.chmod(0o770)
    change = f"its folder {folder} can be changed by others than its owner (mode 0770): chmod go-w {folder}"
    assert state(room) == [change]
    folder.chmod(0o1777)
    (told,) = state(room)
    assert (
        told == f"its folder {folder} is open to everybody (mode 1777): write the path of a file in a folder of its own"
    )


def test_a_state_file_of_another_user_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Unless that is root, who can change everything anyway."""
    file = tmp_path / "state.db"
    file.touch(mode=0o600)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        assert list(changeable_by_others(file)) == []
        os.chown(file, 54321, -1)
        owner = 54321
    told = next(iter(changeable_by_others(file)))
    assert told == f"belongs to another user (uid {owner}): chown {os.geteuid()} {file}"


def test_where_there_are_no_modes_nothing_is_said(room, monkeypatch: pytest.MonkeyPatch):
    """Nor of a path that can be none."""
    monkeypatch.setattr("proxy.config.permissions._HAS_MODES", False)
    assert load(room, LITERAL["argument"], 0o666) == []
    monkeypatch.undo()
    assert list(changeable_by_others(Path("a\0b"))) == []
