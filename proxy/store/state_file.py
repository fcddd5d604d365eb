"""The SQLite file that remembers scopes: what is read from it, what is written to it, and when it is set aside.

Several proxies may use one file, so each reading and writing is a connection and a transaction of its own.
"""

import json
import os
import sqlite3
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple, cast

import structlog

from proxy.core.scope import LASTING, ScopeId, ScopeKind, ScopeState
from proxy.core.settings import PerKind

log = structlog.stdlib.get_logger("proxy.store")

APPLICATION: Final = 0x6D737078
"""By which the file is known to be ours (`PRAGMA application_id`): "mspx"."""
VERSION: Final = 2
"""Of the tables (`PRAGMA user_version`)."""
LOAD_WAIT: Final = 2.0
"""Seconds that reading waits for other proxies that use the file."""
WRITE_WAIT: Final = 0.5
"""Seconds that writing does."""

_SCHEMA: Final = """
CREATE TABLE scope (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    principal TEXT NOT NULL,  -- empty for none
    active TEXT NOT NULL,     -- JSON: ids of skills, in order of activation
    offloaded TEXT NOT NULL,  -- JSON: ids of skills
    changed REAL NOT NULL,    -- seconds since 1970
    by_demand TEXT NOT NULL DEFAULT '[]',  -- JSON: ids of active skills that are so because others require them
    PRIMARY KEY (kind, name, principal)
)
"""
_FROM_1: Final = "ALTER TABLE scope ADD COLUMN by_demand TEXT NOT NULL DEFAULT '[]'"
"""What makes version 2 of version 1."""
_DELETE_OLD: Final = """
DELETE FROM scope WHERE rowid IN (SELECT rowid FROM scope WHERE kind = ? ORDER BY changed DESC LIMIT -1 OFFSET ?)
"""
_KINDS: Final[Mapping[object, ScopeKind]] = {kind: kind for kind in LASTING}
_DAMAGE: Final = frozenset(
    {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_SCHEMA}
)
"""Errors that come from what the file holds, as a missing table does; others come from the disk or from who uses it."""
_BESIDE: Final = ("-journal", "-wal", "-shm")
"""What SQLite may put beside a file, by how the names end."""


class CannotUse(Exception):
    """The file cannot be read or written; the text says why in one line."""


class Kept(NamedTuple):
    """What is remembered of a scope; `changed`: when it changed, in seconds since 1970."""

    active: tuple[str, ...]
    offloaded: frozenset[str]
    changed: float
    by_demand: frozenset[str] = frozenset()


class StateFile:
    """The file at `path`; its methods block."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self, limits: PerKind[int]) -> dict[ScopeId, ScopeState]:
        """What is remembered, of each kind at most so many scopes as `limits` says; older ones are deleted.

        A file that is not there is made. One that is damaged or not ours is set aside, and a new one made.

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

    def write(self, changes: Mapping[ScopeId, Kept | None]) -> None:
        """Remember these scopes, and forget those without a value; all of them or, on an error, none.

        Raises:
            CannotUse: it cannot be done, or not yet.
        """
        forgotten = [_key(scope) for scope, kept in changes.items() if kept is None]
        rows = [
            (
                *_key(scope),
                json.dumps(kept.active),
                json.dumps(sorted(kept.offloaded)),
                kept.changed,
                json.dumps(sorted(kept.by_demand)),
            )
            for scope, kept in changes.items()
            if kept is not None
        ]
        try:
            with self._transaction(WRITE_WAIT) as file:
                file.executemany("DELETE FROM scope WHERE kind = ? AND name = ? AND principal = ?", forgotten)
                file.executemany("INSERT OR REPLACE INTO scope VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        except (OSError, sqlite3.Error) as error:
            raise CannotUse(_reason(error)) from None

    def _load(self, limits: PerKind[int]) -> dict[ScopeId, ScopeState]:
        with self._transaction(LOAD_WAIT) as file:
            (found,) = file.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(found)
            file.executemany(_DELETE_OLD, [(kind, limits.of(kind)) for kind in LASTING])
            rows = file.execute("SELECT kind, name, principal, active, offloaded, by_demand FROM scope").fetchall()
        states = {scope: state for row in rows if (scope := _scope(*row[:3])) and (state := _state(*row[3:]))}
        if len(states) < len(rows):
            log.warning("state.rows_skipped", file=str(self._path), rows=len(rows) - len(states))
        return states

    @contextmanager
    def _transaction(self, wait: float) -> Generator[sqlite3.Connection]:
        """The file, with nobody else writing to it, for at most `wait` seconds of waiting; rolled back on an error."""
        self._make()
        with closing(sqlite3.connect(self._path, timeout=wait, isolation_level=None)) as file:
            file.text_factory = partial(str, encoding="utf-8", errors="replace")
            file.execute("BEGIN IMMEDIATE")
            _prepare(file)
            yield file
            file.execute("COMMIT")

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


def _prepare(file: sqlite3.Connection) -> None:
    """Give an empty file its table and marks.

    Raises:
        sqlite3.DatabaseError: the file is not ours, or of a newer version.
    """
    (application,) = file.execute("PRAGMA application_id").fetchone()
    (version,) = file.execute("PRAGMA user_version").fetchone()
    if (application, version) == (APPLICATION, VERSION):
        return
    if (application, version) == (APPLICATION, 1):
        file.execute(_FROM_1)
        file.execute(f"PRAGMA user_version = {VERSION}")
        return
    if application == APPLICATION:
        raise sqlite3.DatabaseError(f"it has version {version}, and this program knows {VERSION}")
    (tables,) = file.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application or version or tables:
        raise sqlite3.DatabaseError("it belongs to another program")
    file.execute(_SCHEMA)
    file.execute(f"PRAGMA application_id = {APPLICATION}")
    file.execute(f"PRAGMA user_version = {VERSION}")


def _key(scope: ScopeId) -> tuple[str, str, str]:
    return scope.kind, scope.name, scope.principal or ""


def _scope(kind: object, name: object, principal: object) -> ScopeId | None:
    """The scope that a row is of, None where that cannot be read."""
    known = _KINDS.get(kind)
    if known is None or not isinstance(name, str) or not isinstance(principal, str):
        return None
    return ScopeId(known, name, principal or None)


def _state(active: object, offloaded: object, by_demand: object) -> ScopeState | None:
    """The state that a row holds, None where it cannot be read."""
    skills, gone, demanded = _texts(active), _texts(offloaded), _texts(by_demand)
    if skills is None or gone is None or demanded is None:
        return None
    return ScopeState(
        active=tuple(dict.fromkeys(skills)),
        by_demand=frozenset(demanded) & {*skills},
        offloaded=frozenset(gone) - {*skills},
    )


def _texts(written: object) -> list[str] | None:
    """The list of texts that JSON holds, None where it holds something else."""
    try:
        found: object = json.loads(written) if isinstance(written, str) else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list):
        return None
    texts = [text for text in cast("list[object]", found) if isinstance(text, str)]
    return texts if len(texts) == len(cast("list[object]", found)) else None


def _code(error: sqlite3.Error) -> int:
    """The primary result code of SQLite; that of a general error where it was not SQLite that found it."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
