"""The file itself: whose it is, what may be in it, and what becomes of a bad one."""

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.core.run import Run, StepRecord
from proxy.core.scope import ScopeId, ScopeState
from proxy.core.settings import every_kind
from proxy.store import state_file
from proxy.store.state_file import CannotUse, Kept, StateFile
from tests.store.conftest import Said

A, B = ScopeId("namespace", "a"), ScopeId("namespace", "b")
MANY = every_kind(1000)
STEP = StepRecord("find it", "crm/find", 0.25, 1.5, "failed", "no")
RUN = Run("r1", "case", "namespace a", {"customer": "ü"}, "failed", 1_700_000_000.25, 2.5, (STEP,), "no", 7, "r0")


def load(path: Path) -> dict[ScopeId, ScopeState]:
    """What a new run knows."""
    return StateFile(path).load(MANY)


def write(path: Path, *scopes: ScopeId) -> None:
    """Have these scopes remembered with an active skill."""
    StateFile(path).write({scope: Kept(ScopeState(active=("x" * 50,)), 0.0) for scope in scopes})


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


WHOLE = ScopeState(
    active=("x", "y"),
    by_demand=frozenset({"x"}),
    offloaded=frozenset({"z"}),
    started=True,
    due=frozenset({"y"}),
    heap={"customer": {"id": "ü", "open": [1, 1.5, None, True]}},
)
"""A state with all that is remembered."""


def of_version_1(path: Path) -> ScopeState:
    """A file as the first version left it, with scope A, and what it says of that."""
    columns = "kind TEXT NOT NULL, name TEXT NOT NULL, principal TEXT NOT NULL, active TEXT NOT NULL"
    sql(
        path,
        f"CREATE TABLE scope ({columns}, offloaded TEXT, changed REAL, PRIMARY KEY (kind, name, principal))",
        """INSERT INTO scope VALUES ('namespace', 'a', '', '["x", "y"]', '["z"]', 1)""",
        f"PRAGMA application_id = {0x6D737078}",
        "PRAGMA user_version = 1",
    )
    return ScopeState(active=("x", "y"), offloaded=frozenset({"z"}))


def of_version_2(path: Path) -> ScopeState:
    """The same of the second version."""
    before = of_version_1(path)
    sql(
        path,
        "ALTER TABLE scope ADD COLUMN by_demand TEXT NOT NULL DEFAULT '[]'",
        """UPDATE scope SET by_demand = '["x"]'""",
        "PRAGMA user_version = 2",
    )
    return replace(before, by_demand=frozenset({"x"}))


@pytest.mark.parametrize("older", [of_version_1, of_version_2])
def test_a_file_of_an_older_version_is_taken_over(path: Path, said: Said, older: Callable[[Path], ScopeState]) -> None:
    """What it remembers stays, what it could not is remembered from now on; runs too."""
    state = older(path)
    assert load(path) == {A: state}
    StateFile(path).write({A: Kept(WHOLE, 2.0)}, [RUN])
    assert load(path) == {A: WHOLE}
    assert StateFile(path).runs() == [RUN]
    assert said == []


@pytest.mark.parametrize("older", [of_version_1, of_version_2])
def test_an_older_file_is_taken_over_by_the_first_writing_too(
    path: Path, said: Said, older: Callable[[Path], ScopeState]
) -> None:
    """As when it is put back from a copy while the proxy runs."""
    state = older(path)
    StateFile(path).write({B: Kept(WHOLE, 2.0)}, [RUN])
    assert load(path) == {A: state, B: WHOLE}
    assert StateFile(path).runs() == [RUN]
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
    sql(path, "PRAGMA user_version = 4")


def without_its_scopes(path: Path) -> None:
    a_file_of_ours(path)
    sql(path, "DROP TABLE scope")


def without_its_runs(path: Path) -> None:
    a_file_of_ours(path)
    sql(path, "DROP TABLE run")


def of_another_program_in_wal_mode(path: Path) -> None:
    """With what is not yet in the database itself beside it, which SQLite would put there."""
    made = path.with_name("made.db")
    with closing(sqlite3.connect(made, isolation_level=None)) as file:
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("CREATE TABLE note (text)")
        for end in ("", "-wal"):
            path.with_name(path.name + end).write_bytes(made.with_name(made.name + end).read_bytes())
    made.unlink()


def too_short(path: Path) -> None:
    path.write_bytes(b"x")


def a_header_alone(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + bytes(84))


def a_directory(path: Path) -> None:
    path.mkdir()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_link_to_a_text(path: Path) -> None:
    (path.parent / "notes.txt").write_bytes(b"what I did last summer\n")
    path.symlink_to("notes.txt")


FOREIGN: dict[Callable[[Path], None], str] = {
    not_a_database: "it belongs to another program",
    of_another_program: "it belongs to another program",
    of_a_program_without_a_mark: "it belongs to another program",
    of_another_program_in_wal_mode: "it belongs to another program",
    too_short: "it belongs to another program",
    a_header_alone: "it belongs to another program",
    a_directory: "it is a directory",
    a_pipe: "it is not a regular file",
    a_link_to_a_text: "it belongs to another program",
}


def seen(folder: Path) -> dict[str, object]:
    """All that is in a folder."""
    return {each.name: each.read_bytes() if each.is_file() else each.stat().st_mode for each in folder.iterdir()}


@pytest.mark.parametrize("foreign", FOREIGN)
def test_what_is_not_of_this_program_stays_as_it_is(path: Path, said: Said, foreign: Callable[[Path], None]) -> None:
    """To reading, writing, copying and listing of runs, whatever is at the path."""
    foreign(path)
    before = seen(path.parent)
    for use in (
        lambda: load(path),
        lambda: write(path, A),
        lambda: StateFile(path).runs(),
        lambda: StateFile(path).snapshot(MANY),
    ):
        with pytest.raises(CannotUse, match=FOREIGN[foreign]):
            use()
    assert seen(path.parent) == before
    assert not said


BAD: dict[Callable[[Path], None], str] = {
    cut_off: "",
    overwritten: "",
    of_a_newer_version: "it has version 4, and this program knows 3",
    without_its_scopes: "no such table: scope",
    without_its_runs: "no such table: run",
}


@pytest.mark.parametrize("bad", BAD)
def test_a_damaged_file_is_set_aside(path: Path, said: Said, bad: Callable[[Path], None]) -> None:
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
    ours = b"SQLite format 3\0" + bytes(52) + state_file.APPLICATION.to_bytes(4)
    contents = {ours + f"bad {number}".encode() * 300 for number in range(4)}
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
    new = "'[]', '{}', 0, '[]'"
    rows = [f"{row}, {new}" for row in (*bad, readable)]
    bad_ends = ["'[]', '{}', 7, '[]'", "'[]', '{}', 'yes', '[]'", "'[]', '{}', 0, '[1]'"]
    rows += [f"'namespace', 'm{number}', '', {good}, {end}" for number, end in enumerate(bad_ends)]
    sql(path, *(f"INSERT INTO scope VALUES ({row})" for row in rows))  # noqa: S608 - all are above
    assert load(path) == {A: ScopeState(active=("x" * 50,)), ScopeId("namespace", "\ufffd"): ScopeState()}
    bad += bad_ends
    assert said == [{"event": "state.rows_skipped", "level": "warning", "file": str(path), "rows": len(bad)}]
    write(path, ScopeId("namespace", "n4"))
    assert ScopeId("namespace", "n4") in load(path)


@pytest.mark.parametrize("heap", ["'[]'", "'{'", "7", "x'7b7d'", f"""'{'{"a":' * 100_000}'"""])
def test_a_heap_that_cannot_be_read_costs_no_more(path: Path, said: Said, heap: str) -> None:
    """The skills are active as before, and nothing that was done is done again; the loss is said."""
    StateFile(path).write({A: Kept(WHOLE, 0.0), B: Kept(WHOLE, 0.0)})
    sql(path, f"UPDATE scope SET heap = {heap} WHERE name = 'a'")  # noqa: S608 - it is above
    assert load(path) == {A: replace(WHOLE, heap={}), B: WHOLE}
    assert said == [{"event": "state.heaps_lost", "level": "warning", "file": str(path), "scopes": 1}]


def test_a_skill_that_is_not_active_is_not_due(path: Path) -> None:
    """Whatever the file says."""
    StateFile(path).write({A: Kept(ScopeState(active=("x",), due=frozenset({"x", "y"})), 0.0)})
    assert load(path) == {A: ScopeState(active=("x",), due=frozenset({"x"}))}


# --- runs ------------------------------------------------------------------------------------------------------------


def write_runs(path: Path, *ids: str, skill: str = "case") -> None:
    StateFile(path).write({}, [replace(RUN, id=each, skill=skill) for each in ids])


def ids(found: list[Run]) -> list[str]:
    return [run.id for run in found]


def test_runs_are_found_newest_first_by_their_skill_and_the_beginning_of_their_id(path: Path) -> None:
    """At most as many as wanted; what might be a pattern is text."""
    write_runs(path, "aa1", "ab2", "a%_3")
    write_runs(path, "ab4", "b*5", skill="größe")
    file = StateFile(path)
    assert ids(file.runs()) == ["b*5", "ab4", "a%_3", "ab2", "aa1"]
    assert ids(file.runs(2)) == ["b*5", "ab4"]
    assert ids(file.runs(2, skill="case")) == ["a%_3", "ab2"]
    assert ids(file.runs(skill="größe", beginning="ab")) == ["ab4"]
    assert ids(file.runs(beginning="a%")) == ["a%_3"]
    assert file.runs(beginning="_") == file.runs(beginning="*") == file.runs(skill="other") == []
    assert file.runs(skill="\udcff", beginning="\udcff") == []


def test_the_clock_has_no_say_in_which_runs_are_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were written last are, whenever they began; also when the bound has become lower."""
    monkeypatch.setattr(state_file, "RUNS", 3)
    for number in range(5):
        StateFile(path).write({}, [replace(RUN, id=f"r{number}", began=1e9 - number)])
    assert ids(StateFile(path).runs()) == ["r4", "r3", "r2"]
    write_runs(path, "r5", "r6", "r7", "r8")
    assert ids(StateFile(path).runs()) == ["r8", "r7", "r6"]
    monkeypatch.setattr(state_file, "RUNS", 1)
    load(path)
    assert ids(StateFile(path).runs()) == ["r8"]


def test_a_run_that_is_written_again_is_there_once(path: Path) -> None:
    """As after an error at the very end of writing."""
    for _ in range(2):
        write_runs(path, "r1", "r2")
    assert ids(StateFile(path).runs()) == ["r2", "r1"]


def test_halves_of_characters_are_kept_as_far_as_can_be(path: Path) -> None:
    """In what SQLite cannot hold they are replaced; the record has them."""
    run = replace(RUN, id="r\ud800", parameters={"q": "\ud800"})
    StateFile(path).write({}, [run])
    assert StateFile(path).runs(beginning="r\ufffd") == [run]


def test_records_that_cannot_be_read_are_skipped(path: Path, said: Said) -> None:
    """The others count, as many as are wanted."""
    write_runs(path, *(f"r{number}" for number in range(6)))
    bad = ["'x'", "7", "x'7b7d'", f"'{'[' * 100_000}'"]
    sql(path, *(f"UPDATE run SET record = {value} WHERE id = 'r{n}'" for n, value in enumerate(bad, 1)))  # noqa: S608
    assert ids(StateFile(path).runs(2)) == ["r5", "r0"]
    assert said == [{"event": "state.rows_skipped", "level": "warning", "file": str(path), "rows": len(bad)}]


@pytest.mark.parametrize("older", [of_version_1, of_version_2, Path.touch, lambda _path: None])
def test_reading_runs_neither_makes_nor_changes_the_file(path: Path, older: Callable[[Path], object]) -> None:
    """An older file has none; neither has an empty one, or one that is not there."""
    older(path)
    before = path.read_bytes() if path.exists() else None
    assert StateFile(path).runs() == []
    assert (path.read_bytes() if path.exists() else None) == before
    assert [each.name for each in path.parent.iterdir()] == ([] if before is None else ["state.db"])


@pytest.mark.parametrize("bad", [bad for bad in BAD if bad not in {without_its_scopes, cut_off, overwritten}])
def test_a_bad_file_is_left_where_it_is_by_who_reads_runs(path: Path, bad: Callable[[Path], None]) -> None:
    """What is wrong is told."""
    bad(path)
    before = path.read_bytes()
    with pytest.raises(CannotUse, match=BAD[bad]):
        StateFile(path).runs()
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["state.db"]


def test_runs_are_read_while_a_proxy_writes_but_not_while_it_holds_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than one waits."""
    write_runs(path, "r1")
    monkeypatch.setattr(state_file, "LOAD_WAIT", 0.01)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM run")
        assert ids(StateFile(path).runs()) == ["r1"]
        other.execute("ROLLBACK")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(CannotUse, match="database is locked"):
            StateFile(path).runs()


def test_a_file_that_a_proxy_was_killed_in_is_mended_by_the_next_one(tmp_path: Path, path: Path) -> None:
    """Who only reads runs leaves that alone, and says so."""
    write_runs(path, *(f"r{number}" for number in range(100)))
    left = tmp_path / "left.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA cache_size = 1")  # so that what is not committed is in the file
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE run SET record = 'x'")
        for end in ("", "-journal"):
            left.with_name(left.name + end).write_bytes(path.with_name(path.name + end).read_bytes())
        other.execute("ROLLBACK")
    with pytest.raises(CannotUse, match="a proxy was ended while it wrote: the next one that starts mends it"):
        StateFile(left).runs()
    assert load(left) == {}
    assert len(StateFile(left).runs()) == 100


@pytest.mark.parametrize("older", [of_version_1, of_version_2])
def test_a_snapshot_reads_an_older_file_and_leaves_it_as_it_is(path: Path, older: Callable[[Path], ScopeState]) -> None:
    """What it lacks is added to a copy."""
    state = older(path)
    before = seen(path.parent)
    assert StateFile(path).snapshot(MANY) == {A: state}
    assert seen(path.parent) == before


def test_a_snapshot_of_a_full_file_has_the_newest_scopes_and_deletes_none(path: Path) -> None:
    """As a proxy would begin with them."""
    for number, scope in enumerate((A, B)):
        StateFile(path).write({scope: Kept(WHOLE, float(number))}, [RUN])
    before = seen(path.parent)
    assert StateFile(path).snapshot(every_kind(1)) == {B: WHOLE}
    assert seen(path.parent) == before
    assert load(path) == {A: WHOLE, B: WHOLE}


def test_a_snapshot_makes_no_file(path: Path) -> None:
    """Nor folders; where nothing is, nothing is remembered, and in an empty file neither."""
    assert StateFile(path.parent / "not" / "there.db").snapshot(MANY) == {}
    assert not (path.parent / "not").exists()
    path.touch()
    assert StateFile(path).snapshot(MANY) == {}
    assert path.stat().st_size == 0


@pytest.mark.parametrize("bad", BAD)
def test_a_snapshot_of_a_damaged_file_fails_and_sets_nothing_aside(path: Path, bad: Callable[[Path], None]) -> None:
    """That is for the proxy, which begins a new one."""
    bad(path)
    before = seen(path.parent)
    with pytest.raises(CannotUse) as raised:
        StateFile(path).snapshot(MANY)
    assert str(raised.value).startswith(BAD[bad])
    assert seen(path.parent) == before


def test_a_snapshot_waits_for_a_writer_for_a_while_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that goes on does not keep it for ever."""
    monkeypatch.setattr(state_file, "LOAD_WAIT", 0.05)
    write(path, A)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(CannotUse, match="locked"):
            StateFile(path).snapshot(MANY)
        writer.execute("ROLLBACK")
    assert list(StateFile(path).snapshot(MANY)) == [A]
