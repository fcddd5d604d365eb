"""The SQLite file that remembers scopes and runs: what is read from and written to it, and when it is set aside.

Several proxies may use one file, so each reading and writing is a connection and a transaction of its own.
"""

import errno
import json
import os
import sqlite3
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, count
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Final, NamedTuple, cast

import structlog

from proxy.core.inventory import Json, is_json, without_lone_surrogates
from proxy.core.run import Run, interrupted, json_of, run_of
from proxy.core.scope import LASTING, ScopeId, ScopeKind, ScopeState
from proxy.core.settings import PerKind

log = structlog.stdlib.get_logger("proxy.store")

APPLICATION: Final = 0x6D737078
"""By which the file is known to be ours (`PRAGMA application_id`): "mspx"."""
VERSION: Final = 3
"""Of the tables (`PRAGMA user_version`)."""
LOAD_WAIT: Final = 2.0
"""Seconds that reading waits for other proxies that use the file."""
WRITE_WAIT: Final = 0.5
"""Seconds that writing does."""
RUNS: Final = 10_000
"""Runs that are kept, those that began last."""

_SCOPES: Final = """
CREATE TABLE scope (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    principal TEXT NOT NULL,  -- empty for none
    active TEXT NOT NULL,     -- JSON: ids of skills, in order of activation
    offloaded TEXT NOT NULL,  -- JSON: ids of skills
    changed REAL NOT NULL,    -- seconds since 1970
    by_demand TEXT NOT NULL DEFAULT '[]',  -- JSON: ids of active skills that are so because others require them
    heap TEXT NOT NULL DEFAULT '{}',       -- JSON: what steps have put there, by name
    started INTEGER NOT NULL DEFAULT 0,    -- 1: what has to be done before the first call is done
    due TEXT NOT NULL DEFAULT '[]',        -- JSON: ids of active skills that have not begun yet
    PRIMARY KEY (kind, name, principal)
)
"""
_RUNS: Final = """
CREATE TABLE run (
    id TEXT NOT NULL PRIMARY KEY,
    skill TEXT NOT NULL,
    scope TEXT NOT NULL,   -- as logs name it
    status TEXT NOT NULL,
    began REAL NOT NULL,   -- seconds since 1970
    seconds REAL NOT NULL,
    record TEXT NOT NULL   -- JSON: all of it
)
"""
"""Rows are numbered by SQLite in the order in which they are first written, so no clock has a say in which are old."""
_SCHEMA: Final = (_SCOPES, _RUNS)
_CHANGES: Final = (
    ("ALTER TABLE scope ADD COLUMN by_demand TEXT NOT NULL DEFAULT '[]'",),
    (
        "ALTER TABLE scope ADD COLUMN heap TEXT NOT NULL DEFAULT '{}'",
        "ALTER TABLE scope ADD COLUMN started INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE scope ADD COLUMN due TEXT NOT NULL DEFAULT '[]'",
        _RUNS,
    ),
)
"""What makes each version, from 2 on, of the one before."""
_SINCE_RUNS: Final = 3
"""The first version that has runs."""
_DELETE_OLD: Final = """
DELETE FROM scope WHERE rowid IN (SELECT rowid FROM scope WHERE kind = ? ORDER BY changed DESC LIMIT -1 OFFSET ?)
"""
_DELETE_OLD_RUNS: Final = "DELETE FROM run WHERE rowid <= (SELECT max(rowid) FROM run) - ?"
_KEEP_RUN: Final = """
INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET
    status = excluded.status, seconds = excluded.seconds, record = excluded.record
"""
_FIND_RUNS: Final = """
SELECT record FROM run
WHERE (:skill IS NULL OR skill = :skill) AND substr(id, 1, length(:beginning)) = :beginning
ORDER BY rowid DESC
"""
_LATE_S: Final = 60.0
"""Seconds by which a run may be over its time until it cannot be running any more."""
_KINDS: Final[Mapping[object, ScopeKind]] = {kind: kind for kind in LASTING}
_DAMAGE: Final = frozenset(
    {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA}
)
"""Errors that come from what the file holds, as a missing table does; others come from the disk or from who uses it."""
_TEXT: Final = partial(str, encoding="utf-8", errors="replace")
"""How texts are read."""
_BESIDE: Final = ("-journal", "-wal", "-shm")
"""What SQLite may put beside a file, by how the names end."""


_MAGIC: Final = b"SQLite format 3\0"
"""What every SQLite database begins with that is not empty."""
_HEADER_BYTES: Final = 100
_MARK: Final = slice(68, 72)
"""Where in the header the `application_id` stands, as a big-endian number."""
_LEFT_ALONE: Final = "is left as it is: write the path of a file of its own"


class CannotUse(Exception):
    """The file cannot be read or written; the text says why in one line."""


class Kept(NamedTuple):
    """A state that is to be remembered, in part; `changed`: when it changed, in seconds since 1970."""

    state: ScopeState
    changed: float


class StateFile:
    """The file at `path`; its methods block."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self, limits: PerKind[int]) -> dict[ScopeId, ScopeState]:
        """What is remembered, of each kind at most so many scopes as `limits` says; older ones are deleted.

        A file that is not there is made. One of ours that is damaged is set aside, and a new one made; what another
        program has put there stays as it is.

        Raises:
            CannotUse: that is not possible.
        """
        try:
            try:
                return self._load(limits)
            except sqlite3.DatabaseError as error:
                if _code(error) not in _DAMAGE:
                    raise
                self._set_aside(str(error))
            return self._load(limits)
        except (OSError, sqlite3.Error) as error:
            raise CannotUse(_reason(error)) from None

    def snapshot(self, limits: PerKind[int]) -> dict[ScopeId, ScopeState]:
        """What `load` would give, from a copy: the file is not made, changed or set aside; where it is not, nothing.

        Raises:
            CannotUse: it cannot be read, or not yet.
        """
        try:
            if not self._is_ours():
                return {}
            with closing(self._read_only()) as file, closing(sqlite3.connect("", isolation_level=None)) as copy:
                file.execute("BEGIN")
                file.execute("SELECT count(*) FROM sqlite_master")  # waits for writers here; a backup would without end
                file.backup(copy)
                copy.text_factory = _TEXT
                _prepare(copy)
                _check_whole(copy)
                return self._scopes(copy, limits)
        except (OSError, sqlite3.Error) as error:
            raise CannotUse(_reason(error)) from None

    def write(self, changes: Mapping[ScopeId, Kept | None], runs: Sequence[Run] = ()) -> None:
        """Remember these scopes and runs, and forget scopes without a value; all of that or, on an error, nothing.

        Of more than 10,000 runs the older ones are deleted.

        Raises:
            CannotUse: it cannot be done, or not yet.
        """
        forgotten = [_key(scope) for scope, kept in changes.items() if kept is None]
        rows = [(*_key(scope), *_columns(*kept)) for scope, kept in changes.items() if kept is not None]
        try:
            with self._transaction(WRITE_WAIT) as file:
                file.executemany("DELETE FROM scope WHERE kind = ? AND name = ? AND principal = ?", forgotten)
                file.executemany("INSERT OR REPLACE INTO scope VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
                file.executemany(_KEEP_RUN, map(_row, runs))
                file.execute(_DELETE_OLD_RUNS, (RUNS,))
        except (OSError, sqlite3.Error) as error:
            raise CannotUse(_reason(error)) from None

    def runs(self, limit: int | None = None, *, skill: str | None = None, beginning: str = "") -> list[Run]:
        """At most `limit` runs, the newest first: those of `skill` alone, or whose id begins so.

        The file is neither made nor changed; where it is not there, or of a version before runs, there are none.

        Raises:
            CannotUse: it cannot be read, or not yet.
        """
        try:
            if not self._is_ours():
                return []
            with closing(self._read_only()) as file:
                file.text_factory = _TEXT
                if _version(file) < _SINCE_RUNS:
                    return []
                wanted = without_lone_surrogates({"skill": skill, "beginning": beginning})
                return self._runs(file.execute(_FIND_RUNS, wanted), limit)
        except (OSError, sqlite3.Error) as error:
            raise CannotUse(_reason(error)) from None

    def _runs(self, rows: sqlite3.Cursor, limit: int | None) -> list[Run]:
        """The first `limit` runs of `rows`."""
        found: list[Run] = []
        skipped = 0
        for (record,) in rows:
            if len(found) == limit:
                break
            if (run := run_of(_parsed(record))) is None:
                skipped += 1
            else:
                found.append(run)
        if skipped:
            log.warning("state.rows_skipped", file=str(self._path), rows=skipped)
        return found

    def _load(self, limits: PerKind[int]) -> dict[ScopeId, ScopeState]:
        with self._transaction(LOAD_WAIT) as file:
            _check_whole(file)
            file.executemany(_KEEP_RUN, map(_row, _interrupted(file)))
            return self._scopes(file, limits)

    def _scopes(self, file: sqlite3.Connection, limits: PerKind[int]) -> dict[ScopeId, ScopeState]:
        """The scopes in `file`, of each kind at most so many as `limits` says; older ones, and runs, are deleted."""
        file.execute(_DELETE_OLD_RUNS, (RUNS,))
        file.executemany(_DELETE_OLD, [(kind, limits.of(kind)) for kind in LASTING])
        rows = file.execute(
            "SELECT kind, name, principal, active, offloaded, by_demand, started, due, heap FROM scope"
        ).fetchall()
        states: dict[ScopeId, ScopeState] = {}
        lost = 0
        for row in rows:
            scope, state, heap = _scope(*row[:3]), _state(*row[3:8]), _heap(row[8])
            if scope is not None and state is not None:
                states[scope] = replace(state, heap=heap or {})
                lost += heap is None
        if len(states) < len(rows):
            log.warning("state.rows_skipped", file=str(self._path), rows=len(rows) - len(states))
        if lost:
            log.warning("state.heaps_lost", file=str(self._path), scopes=lost)
        return states

    def _read_only(self) -> sqlite3.Connection:
        return sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True, timeout=LOAD_WAIT)

    @contextmanager
    def _transaction(self, wait: float) -> Generator[sqlite3.Connection]:
        """The file, with nobody else writing to it, for at most `wait` seconds of waiting; rolled back on an error."""
        if not self._is_ours():
            self._make()
        with closing(sqlite3.connect(self._path, timeout=wait, isolation_level=None)) as file:
            file.text_factory = _TEXT
            file.execute("BEGIN IMMEDIATE")
            _prepare(file)
            yield file
            file.execute("COMMIT")

    def _is_ours(self) -> bool:
        """Whether something is there, which is then of this program or an empty file; links are followed.

        Looked at as bytes, for SQLite changes files of other programs already by opening them.

        Raises:
            CannotUse: it belongs to another program.
        """
        try:
            mode = self._path.stat().st_mode
        except FileNotFoundError:
            return False
        if not S_ISREG(mode):
            raise CannotUse(f"it is {'a directory' if S_ISDIR(mode) else 'not a regular file'}, and {_LEFT_ALONE}")
        with self._path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
        if header and not (header.startswith(_MAGIC) and header[_MARK] == APPLICATION.to_bytes(4)):
            raise CannotUse(f"it belongs to another program, and {_LEFT_ALONE}")
        return True

    def _make(self) -> None:
        """Make the file and its folders, for nobody else to read, where they are not there."""
        for folder in reversed([folder for folder in self._path.parents if not folder.exists()]):
            folder.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def _set_aside(self, why: str) -> None:
        """Rename the file, unless another proxy was faster.

        What belongs to it goes first, for SQLite would apply a journal that is left to a new file.
        """
        stem = f"{self._path.name}.set-aside-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        names = (stem if number == 0 else f"{stem}-{number}" for number in count())
        aside = next(path for name in names if not os.path.lexists(path := self._path.with_name(name)))
        for end in _BESIDE:
            with suppress(FileNotFoundError):
                self._path.with_name(self._path.name + end).rename(aside.with_name(aside.name + end))
        with suppress(FileNotFoundError):
            self._path.rename(aside)
            log.warning("state.set_aside", file=str(self._path), set_aside=str(aside), reason=why)


def _check_whole(file: sqlite3.Connection) -> None:
    """Refuse a file that is damaged.

    Raises:
        sqlite3.DatabaseError: it is.
    """
    (found,) = file.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(found)


def _prepare(file: sqlite3.Connection) -> None:
    """Give an empty file its tables and marks, and one of an older version what it lacks.

    Raises:
        sqlite3.DatabaseError: it is of a newer version.
        CannotUse: it belongs to another program.
    """
    version = _version(file)
    if version == VERSION:
        return
    for statement in _SCHEMA if version == 0 else chain(*_CHANGES[version - 1 :]):
        file.execute(statement)
    file.execute(f"PRAGMA application_id = {APPLICATION}")
    file.execute(f"PRAGMA user_version = {VERSION}")


def _version(file: sqlite3.Connection) -> int:
    """The version of the file; 0 for an empty one.

    Raises:
        sqlite3.DatabaseError: it is of a newer version.
        CannotUse: it belongs to another program.
    """
    (application,) = file.execute("PRAGMA application_id").fetchone()
    (version,) = file.execute("PRAGMA user_version").fetchone()
    if application == APPLICATION:
        if 1 <= version <= VERSION:
            return version
        raise sqlite3.DatabaseError(f"it has version {version}, and this program knows {VERSION}")
    (tables,) = file.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application or version or tables:
        raise CannotUse(f"it belongs to another program, and {_LEFT_ALONE}")
    return 0


def _interrupted(file: sqlite3.Connection) -> list[Run]:
    """The runs that count as running in the file and cannot be: their process is gone, or their time is over."""
    rows = file.execute("SELECT record FROM run WHERE status = 'running'").fetchall()
    found = [run for (record,) in rows if (run := run_of(_parsed(record))) is not None]
    now = time.time()
    return [interrupted(run) for run in found if not _is_alive(run.process) or run.began + run.limit + _LATE_S < now]


def _is_alive(process: int) -> bool:
    """Whether another process has this id; this one has begun no run yet that is in a file."""
    if process in {0, os.getpid()}:
        return False
    if os.name == "nt":  # there, a signal cannot ask
        return True
    try:
        os.kill(process, 0)
    except OSError as error:
        return error.errno != errno.ESRCH
    except OverflowError:
        return False
    return True


def _key(scope: ScopeId) -> tuple[str, str, str]:
    return scope.kind, scope.name, scope.principal or ""


def _scope(kind: object, name: object, principal: object) -> ScopeId | None:
    """The scope that a row is of, None where that cannot be read."""
    known = _KINDS.get(kind)
    if known is None or not isinstance(name, str) or not isinstance(principal, str):
        return None
    return ScopeId(known, name, principal or None)


def _columns(state: ScopeState, changed: float) -> tuple[str | float, ...]:
    """The row of a state, from `active` on."""
    return (
        json.dumps(state.active),
        json.dumps(sorted(state.offloaded)),
        changed,
        json.dumps(sorted(state.by_demand)),
        json.dumps(state.heap),
        int(state.started),
        json.dumps(sorted(state.due)),
    )


def _row(run: Run) -> tuple[str | float, ...]:
    return (
        *(without_lone_surrogates(text) for text in (run.id, run.skill, run.scope)),
        run.status,
        run.began,
        run.seconds,
        json.dumps(json_of(run)),
    )


def _state(active: object, offloaded: object, by_demand: object, started: object, due: object) -> ScopeState | None:
    """The state that a row holds, without its heap; None where it cannot be read."""
    skills, gone, demanded, to_begin = _texts(active), _texts(offloaded), _texts(by_demand), _texts(due)
    if skills is None or gone is None or demanded is None or to_begin is None or started not in {0, 1}:
        return None
    return ScopeState(
        active=tuple(dict.fromkeys(skills)),
        by_demand=frozenset(demanded) & {*skills},
        offloaded=frozenset(gone) - {*skills},
        started=started == 1,
        due=frozenset(to_begin) & {*skills},
    )


def _heap(written: object) -> Json | None:
    """The heap that a row holds, None where it cannot be read."""
    found = _parsed(written)
    return found if is_json(found) else None


def _texts(written: object) -> list[str] | None:
    """The list of texts that JSON holds, None where it holds something else."""
    found = _parsed(written)
    if not isinstance(found, list):
        return None
    texts = [text for text in cast("list[object]", found) if isinstance(text, str)]
    return texts if len(texts) == len(cast("list[object]", found)) else None


def _parsed(written: object) -> object:
    """The value that JSON holds, None where it is no JSON."""
    try:
        return json.loads(written) if isinstance(written, str) else None
    except (ValueError, RecursionError):
        return None


def _code(error: sqlite3.Error) -> int:
    """The primary result code of SQLite; that of a general error where it was not SQLite that found it."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _reason(error: Exception) -> str:
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_ROLLBACK:
        return "a proxy was ended while it wrote: the next one that starts mends it"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
