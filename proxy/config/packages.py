"""Installs skills from folders and archives, removes them, and tells what was installed and has changed since.

A skill is a folder with a `SKILL.md` (or `skill.md`). Of each that was installed a record is kept beside it, in
`.installed`; a folder without a record is somebody's own, and is neither replaced nor removed.
"""

import hashlib
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Final

from proxy.config.members import DAMAGE, LARGEST_ARCHIVE, BadPackage, Member, in_archive, in_folder, plain, shown
from proxy.config.placing import Staging, has_record, staging
from proxy.config.records import Installed, is_installable, legal, told, written
from proxy.config.tree import RECORDS
from proxy.config.unpacking import PackedFile, digest, unpack, writing
from proxy.core.published import is_legal_name

_SKILL_FILES: Final = ("SKILL.md", "skill.md")
_SHA256: Final = re.compile("[0-9A-Fa-f]{64}")


def add(
    source: Path,
    into: Path,
    validate: Callable[[Path], None],
    name_of: Callable[[Path], str],
    sha256: str | None = None,
    as_id: str | None = None,
) -> Installed:
    """Install the skill in `source`, a folder, a zip or a gzipped tar, as a folder in `into`; an older one is replaced.

    Its id is `as_id`; else the name of its folder, which is `source` or the only one at the top of an archive, whose
    `SKILL.md` may also be at the top itself; else, where that cannot be an id, what `name_of` reads in the `SKILL.md`.
    `validate` is given the folder, of that name, before it is in its place. What either raises passes. `sha256`: what
    must come out (hex): the SHA-256 of the archive, or what `digest_of_tree` says of the folder; it is compared before
    anything is written.
    What `left_out` names is not installed. On an error nothing has changed.

    Raises:
        BadPackage: it cannot be, or must not be, installed.
    """
    with _about(source):
        members, found = _opened(source)
        if sha256 is not None and _checked(sha256) != found:
            raise BadPackage(f"its SHA-256 is {found}, and {sha256} is expected: do not use it, or correct that")
    with staging(into) as private:
        unpacked = private / "unpacked"
        with writing(str(into)):
            unpacked.mkdir()
        with _about(source):
            files = unpack(members, unpacked)
            top = _top(files)
        if source.is_dir():
            with _about(source):
                _check_folder(top, unchanged=digest(files) == found)
        folder = _name(source) if source.is_dir() else top
        document = next(path for name in _SKILL_FILES if (path := unpacked / top / name).is_file())
        names = [as_id] if as_id is not None else [folder] if is_legal_name(folder) else [folder, name_of(document)]
        with _about(source):
            name = _id_of([name for name in names if name])
            staged = Staging(private, into, name)
        with writing(str(into)):
            staged.new.parent.mkdir()
            (unpacked / top).rename(staged.new)
            staged.new.chmod(0o755)
        validate(staged.new)
        skill = Installed(
            id=name,
            source=plain(_name(source)),
            sha256=found,
            installed_at=datetime.now(UTC).isoformat(timespec="seconds"),
            files=tuple(replace(file, path=file.path.removeprefix(f"{top}/")) for file in files),
        )
        with writing(str(into)):
            staged.new_record.write_text(written(skill), encoding="utf-8")
            staged.place()
    return skill


def remove(id: str, into: Path) -> None:  # noqa: A002 - the skill's id, as everywhere
    """Remove the skill `id` from `into`, with its record and whatever was changed in it.

    Only what has a record is removed, be the record damaged: a folder without one is its owner's to delete. Where a
    link or a file has come in the place of the folder, that goes, and nothing that it leads to. On an error nothing
    has changed.

    Raises:
        BadPackage: it was not installed, or cannot be removed.
    """
    if not has_record(into, legal(id)):
        raise BadPackage(f"{id} was not installed in {into}: delete its folder yourself, if there is one")
    with staging(into) as folder, writing(str(into)):
        Staging(folder, into, id).take_away()


def installed(into: Path) -> tuple[Installed, ...]:
    """Every skill that has a record in `into`, by id, and what has changed in it; what is damaged says so."""
    records = sorted((into / RECORDS).glob("*.json"), key=lambda record: record.stem)
    return tuple(told(record, into / record.stem) for record in records)


def digest_of_tree(folder: Path) -> str:
    """The SHA-256 (hex) of what would be installed from `folder`: see `digest`.

    Raises:
        BadPackage: it cannot be read, or must not be installed.
    """
    with _about(folder):
        return digest(unpack(in_folder(folder.resolve()), None))


def _opened(source: Path) -> tuple[Generator[Member], str]:
    """The members of a source, not yet looked at, and its SHA-256."""
    if source.is_dir():
        folder = source.resolve()
        return in_folder(folder), digest(unpack(in_folder(folder), None))
    if not source.exists():
        raise BadPackage("there is no such file or folder: correct the path")
    if source.name in _SKILL_FILES:
        raise BadPackage("it is the document of a skill: give the folder that holds it")
    if not source.is_file():
        raise BadPackage("it is neither a file nor a folder: correct the path")
    with source.open("rb") as file:
        content = file.read(LARGEST_ARCHIVE + 1)
    return in_archive(content), hashlib.sha256(content).hexdigest()


def _id_of(names: list[str]) -> str:
    """The first of `names` that the standard allows, else the first that can be an id.

    Raises:
        BadPackage: none can.
    """
    if not names:
        raise BadPackage("its SKILL.md has no name: write one there, pack its folder, of that name, or give --as ID")
    good = [*filter(is_legal_name, names), *filter(is_installable, names)]
    return good[0] if good else legal(names[0])


def _checked(sha256: str) -> str:
    if not _SHA256.fullmatch(sha256):
        raise BadPackage(f"{shown(sha256)} is no SHA-256: that is 64 digits of 0-9 and a-f")
    return sha256.lower()


def _top(files: tuple[PackedFile, ...]) -> str:
    """The folder at the top that is the skill; empty where the skill's files are at the top themselves."""
    paths = [PurePosixPath(file.path) for file in files]
    folders = {path.parent for path in paths if path.name in _SKILL_FILES}
    skills = sorted(folder for folder in folders if folders.isdisjoint(folder.parents))
    names = ", ".join(shown(str(skill)) for skill in skills)
    if not skills:
        raise BadPackage("there is no SKILL.md in it: give a skill, which is a folder that holds one")
    if len(skills) > 1:
        raise BadPackage(f"it holds several skills ({names}): install one at a time, each from a source of its own")
    if len(skills[0].parts) > 1:
        raise BadPackage(f"its skill is in {names}, below its top folder: give or pack that folder")
    if beside := sorted({path.parts[0] for path in paths} - {*skills[0].parts}) if skills[0].parts else []:
        raise BadPackage(f"beside its skill {names} it holds {shown(beside[0])}: give or pack that folder alone")
    return "".join(skills[0].parts)


def _check_folder(top: str, *, unchanged: bool) -> None:
    if top:
        raise BadPackage(f"it is no skill, but {shown(top)} in it is one: give the path of that folder")
    if not unchanged:
        raise BadPackage("it changed while it was read: leave it alone, and try again")


def _name(source: Path) -> str:
    return source.resolve().name if source.name in {"", ".."} else source.name


@contextmanager
def _about(source: Path) -> Generator[None]:
    """Says of which source a refusal is, and that it cannot be read where that is so."""
    try:
        yield
    except BadPackage as bad:
        raise BadPackage(f"{plain(str(source))}: {bad}") from None
    except DAMAGE as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is damaged or cut off"
        raise BadPackage(f"{plain(str(source))} cannot be read: {why}") from None
