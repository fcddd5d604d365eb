"""Has a skill's folder and its record take the place of older ones: both or, on an error, neither.

All is made ready in a folder of its own beside the target, so that only renames are left to do. Two of them put the
skill in its place: the old folder goes aside, then the new one comes. Between the two there is none, for a moment; who
loads the skill just then finds it missing, and finds it when it looks again. A program that is killed in that moment
leaves the old folder aside, and the next one that places or removes a skill after `LEFT_AFTER` puts it back.
"""

import fcntl
import os
import shutil
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from proxy.config.members import BadPackage
from proxy.config.tree import RECORDS, STAGING
from proxy.config.unpacking import writing

LEFT_AFTER: Final = 3600.0
"""Seconds after which a folder of a program that was killed is cleared away: none that runs needs as long."""


@dataclass(frozen=True)
class Staging:
    """A private folder in `into`, in which the skill `id` is made ready."""

    folder: Path
    into: Path
    id: str

    @property
    def new(self) -> Path:
        """The folder that is to come."""
        return self.folder / "new" / self.id

    @property
    def old(self) -> Path:
        """The folder that has to go."""
        return self.folder / "old" / self.id

    @property
    def new_record(self) -> Path:
        """The record that is to come."""
        return self.folder / "new.json"

    @property
    def old_record(self) -> Path:
        """A copy of the record that has to go."""
        return self.folder / "old.json"

    @property
    def target(self) -> Path:
        """Where the skill belongs."""
        return self.into / self.id

    @property
    def record(self) -> Path:
        """Where its record does."""
        return self.into / RECORDS / f"{self.id}.json"

    def place(self) -> None:
        """Put what is new in its place, and what was there aside.

        Raises:
            BadPackage: something is there that is not an installed skill.
            OSError: it cannot be done.
        """
        with _alone(self.into):
            self._refuse_others()
            self.old.parent.mkdir()
            if os.path.lexists(self.record):
                shutil.copyfile(self.record, self.old_record, follow_symlinks=False)
            try:
                self.record.parent.mkdir(exist_ok=True)
                if self.target.exists():
                    self.target.rename(self.old)
                self.new_record.replace(self.record)
                self.new.rename(self.target)
            except BaseException:
                self._put_back()
                raise

    def take_away(self) -> None:
        """Put whatever bears the skill's name aside, a link as a link, and delete its record.

        Raises:
            BadPackage: it has no record.
            OSError: it cannot be done.
        """
        with _alone(self.into):
            if not has_record(self.into, self.id):
                raise BadPackage(f"{self.id} is not installed in {self.into} (any more): there is nothing to remove")
            self.old.parent.mkdir()
            try:
                if os.path.lexists(self.target):
                    self.target.rename(self.old)
                self.record.unlink()
            except BaseException:
                if os.path.lexists(self.record) and os.path.lexists(self.old):
                    self.old.rename(self.target)
                raise

    def restore(self) -> None:
        """Put back what a program that was killed has put aside, unless the skill was placed or removed since."""
        with _alone(self.into):
            if os.path.lexists(self.old) and os.path.lexists(self.record) and not os.path.lexists(self.target):
                self._put_back()

    def _put_back(self) -> None:
        """Have all as it was, unless the last step was done."""
        if not os.path.lexists(self.new):
            return
        if os.path.lexists(self.old):
            self.old.rename(self.target)
        if os.path.lexists(self.old_record):
            self.old_record.replace(self.record)
        else:
            self.record.unlink(missing_ok=True)
            with suppress(OSError):  # such as: others are in it
                self.record.parent.rmdir()

    def _refuse_others(self) -> None:
        recorded = has_record(self.into, self.id)
        if self.target.is_symlink() or (self.target.exists() and not self.target.is_dir()):
            raise BadPackage(f"{self.target} is a link or a file, where the skill's folder belongs: move it away")
        if self.target.exists() and not recorded:
            raise BadPackage(f"{self.target} is there, and was not installed: move it away to install this skill")


def has_record(into: Path, skill: str) -> bool:
    """Whether the skill of this id, which is a legal one, was installed.

    Raises:
        BadPackage: the folder of records is none, or leads elsewhere.
    """
    records = into / RECORDS
    if records.is_symlink() or (records.exists() and not records.is_dir()):
        raise BadPackage(f"{records} is a link or a file, where the folder of records belongs: move it away")
    return os.path.lexists(records / f"{skill}.json")


@contextmanager
def staging(into: Path) -> Generator[Path]:
    """A private folder in `into`, which is made where it is missing.

    On an error nothing is left of either; folders that others left are cleared away.

    Raises:
        BadPackage: it cannot be made.
    """
    if os.path.lexists(into) and not into.is_dir():
        raise BadPackage(f"{into} is not a folder: give the path of one")
    missing = [folder for folder in (into, *into.parents) if not folder.exists()]
    try:
        with writing(str(into)):
            into.mkdir(parents=True, exist_ok=True)
            _clear_up(into)
            private = TemporaryDirectory(prefix=STAGING, dir=into, ignore_cleanup_errors=True)
        with private as folder:
            yield Path(folder)
    except BaseException:
        for folder in missing:
            with suppress(OSError):  # such as: another program has put something in it
                folder.rmdir()
        raise


def _clear_up(into: Path) -> None:
    for left in into.glob(f"{STAGING}*"):
        with suppress(OSError):
            found = left.lstat()
            if stat.S_ISDIR(found.st_mode) and time.time() - found.st_mtime > LEFT_AFTER:
                for folder in left.glob("old/*"):
                    Staging(left, into, folder.name).restore()
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _alone(into: Path) -> Generator[None]:
    """No other program places or removes skills in `into` meanwhile."""
    folder = os.open(into, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
