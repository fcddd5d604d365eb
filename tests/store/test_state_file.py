"""The file itself: whose it is, what may be in it, and what becomes of a bad one."""

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from proxy.core.scope import ScopeId, ScopeState
from proxy.core.settings import every_kind
from proxy.store.state_file import Kept, StateFile
from tests.store.conftest import Said

A, B = ScopeId("namespace", "a"), ScopeId("namespace", "b")
MANY = every_kind(1000)


def load(path: Path) -> dict[ScopeId, ScopeState]:
    """What a new run knows."""
    return StateFile(path).load(MANY)


def write(path: Path, *scopes: ScopeId) -> None:
    """Have these scopes remembered with an active skill."""
    StateFile(path).write({scope: Kept(("x" * 50,), frozenset(), 0.0) for scope in scopes})


def sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        for statement in statements:
            file.execute(statement)


def test_a_file_that_is_taken_away_is_made_again(path: Path) -> None:
    """The next change goes into a new one."""
    write(path, A)
    path.unlink()
    write(path, B)
    assert list(load(path)) == [B]


def test_the_file_and_its_folders_are_for_nobody_else(tmp_path: Path) -> None:
    """Those that the proxy makes; folders that are there stay as they are."""
    tmp_path.chmod(0o755)
    path = tmp_path / "new" / "newer" / "state.db"
    before = os.umask(0)
    try:
        write(path, A)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, path.parent.parent, tmp_path)]
    assert modes == [0o600, 0o700, 0o700, 0o755]
    assert [each.name for each in path.parent.iterdir()] == ["state.db"]


def test_a_file_of_the_first_version_is_taken_over(path: Path, said: Said) -> None:
    """What is remembered there was active by the client's wish; what others require is remembered from now on."""
    columns = "kind TEXT NOT NULL, name TEXT NOT NULL, principal TEXT NOT NULL, active TEXT NOT NULL"
    sql(
        path,
        f"CREATE TABLE scope ({columns}, offloaded TEXT, changed REAL, PRIMARY KEY (kind, name, principal))",
        """INSERT INTO scope VALUES ('namespace', 'a', '', '["x", "y"]', '["z"]', 1)""",
        f"PRAGMA application_id = {0x6D737078}",
        "PRAGMA user_version = 1",
    )
    assert load(path) == {A: ScopeState(active=("x", "y"), offloaded=frozenset({"z"}))}
    StateFile(path).write({A: Kept(("x", "y"), frozenset(), 2.0, frozenset({"x"}))})
    assert load(path) == {A: ScopeState(active=("x", "y"), by_demand=frozenset({"x"}))}
    assert said == []


def test_an_empty_file_is_begun(path: Path, said: Said) -> None:
    """As a program leaves it that makes a temporary one."""
    path.touch()
    assert load(path) == {}
    write(path, A)
    assert list(load(path)) == [A]
    assert not said


def a_file_of_ours(path: Path) -> None:
    write(path, *(ScopeId("namespace", f"{number}" * 20) for number in range(200)))


def not_a_database(path: Path) -> None:
    path.write_bytes(b"what I did last summer\n" * 500)


def cut_off(path: Path) -> None:
    a_file_of_ours(path)
    os.truncate(path, path.stat().st_size // 2)


def overwritten(path: Path) -> None:
    a_file_of_ours(path)
    with path.open("r+b") as file:
        file.seek(4096 + 50)
        file.write(b"\xff" * 8000)


def of_another_program(path: Path) -> None:
    sql(path, "PRAGMA application_id = 77")


def of_a_program_without_a_mark(path: Path) -> None:
    sql(path, "CREATE TABLE scope (kind, name, principal, active, offloaded, changed)")


def of_a_newer_version(path: Path) -> None:
    a_file_of_ours(path)
    sql(path, "PRAGMA user_version = 3")


def without_its_table(path: Path) -> None:
    a_file_of_ours(path)
    sql(path, "DROP TABLE scope")


BAD: dict[Callable[[Path], None], str] = {
    not_a_database: "file is not a database",
    cut_off: "",
    overwritten: "",
    of_another_program: "it belongs to another program",
    of_a_program_without_a_mark: "it belongs to another program",
    of_a_newer_version: "it has version 3, and this program knows 2",
    without_its_table: "no such table: scope",
}


@pytest.mark.parametrize("bad", BAD)
def test_a_damaged_or_foreign_file_is_set_aside(path: Path, said: Said, bad: Callable[[Path], None]) -> None:
    """As it is, under a name that says so, with one warning; the proxy begins a new one."""
    bad(path)
    before = path.read_bytes()
    assert load(path) == {}
    write(path, A)
    assert list(load(path)) == [A]
    (aside,) = [each for each in path.parent.iterdir() if each != path]
    assert aside.name.startswith("state.db.set-aside-2")
    assert aside.read_bytes() == before
    (warning,) = said
    assert warning.pop("reason").startswith(BAD[bad])
    assert warning == {
        "event": "state.set_aside",
        "level": "warning",
        "file": str(path),
        "set_aside": str(aside),
    }


def test_setting_aside_overwrites_nothing_and_takes_the_journal_along(path: Path) -> None:
    """However many there are within a second; SQLite would apply a journal that is left to the new file."""
    contents = {f"bad {number}".encode() * 300 for number in range(4)}
    for content in contents:
        path.write_bytes(content)
        path.with_name("state.db-journal").write_bytes(b"\0" + content)  # not one that SQLite would apply
        assert load(path) == {}
    left = {each.name: each.read_bytes() for each in path.parent.iterdir() if each != path}
    assert {content for name, content in left.items() if not name.endswith("-journal")} == contents
    for name, content in left.items():
        if not name.endswith("-journal"):
            assert left[f"{name}-journal"] == b"\0" + content
    assert len(left) == 8


def test_rows_that_cannot_be_read_are_skipped(path: Path, said: Said) -> None:
    """The others count."""
    write(path, A)
    good = "'[]', '[]', 0"
    bad = [
        f"'kind', 'n1', '', {good}",
        f"'session', 'n2', '', {good}",
        f"'namespace', x'00', '', {good}",
        f"'namespace', 'n3', x'00', {good}",
        *(
            f"'namespace', 'n{number}', '', {active}, '[]', 0"
            for number, active in enumerate(["'x'", "'{}'", "'[1]'", "7", "x'5b5d'", f"'{'[' * 100_000}'"], 4)
        ),
        "'namespace', 'n10', '', '[]', 'null', 0",
    ]
    readable = f"'namespace', CAST(x'ff' AS TEXT), '', {good}"
    sql(path, *(f"INSERT INTO scope VALUES ({row}, '[]')" for row in (*bad, readable)))  # noqa: S608 - both are above
    assert load(path) == {A: ScopeState(active=("x" * 50,)), ScopeId("namespace", "\ufffd"): ScopeState()}
    assert said == [{"event": "state.rows_skipped", "level": "warning", "file": str(path), "rows": len(bad)}]
    write(path, ScopeId("namespace", "n4"))
    assert ScopeId("namespace", "n4") in load(path)
