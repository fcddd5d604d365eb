"""What is kept of each skill that was installed, and how its folder compares with that."""

import hashlib
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from proxy.config.members import BadPackage, Member, in_folder, plain, shown
from proxy.config.unpacking import MOST_BYTES, PackedFile, path_parts
from proxy.core.published import is_legal_name

LARGEST_RECORD: Final = 4 * 1024 * 1024
"""Bytes of a record that is read: that of the largest skill has fewer."""

SHOWN_CHANGES: Final = 8
"""Files of one skill that are told for each kind of change."""


@dataclass(frozen=True)
class Installed:
    """A skill that was installed.

    `source`: the name of the folder or archive that it came from, without the way there. `sha256`: of the archive, or
    what `digest_of_tree` said of the folder (hex). `installed_at`: UTC, as ISO 8601 has it. `files`: what was
    installed, by path. `changes`: what is different now, by path, each as `changed: PATH`, `missing: PATH` or
    `new: PATH`. `damage`: why all that cannot be told, in one line; empty where it can.
    """

    id: str
    source: str = ""
    sha256: str = ""
    installed_at: str = ""
    files: tuple[PackedFile, ...] = ()
    changes: tuple[str, ...] = ()
    damage: str = ""


def changes_of(one: Installed) -> list[str]:
    """What has changed in a skill since it was installed, in a line for each kind of change."""
    if one.damage:
        return [one.damage]
    files: dict[str, list[str]] = {}
    for change in one.changes:
        how, _, path = change.partition(": ")
        files.setdefault(how, []).append(path)
    return [f"{how} since it was installed: {_listed(paths)}" for how, paths in files.items()]


def _listed(paths: list[str]) -> str:
    more = f", … ({len(paths):,} in all)" if len(paths) > SHOWN_CHANGES else ""
    return f"{', '.join(paths[:SHOWN_CHANGES])}{more}"


_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    size: int = Field(ge=0, le=MOST_BYTES)
    sha256: _Sha256


class _Record(BaseModel):
    """What the file holds that is kept of a skill."""

    model_config = ConfigDict(extra="forbid", strict=True)
    format: Literal[1] = 1
    source: str
    sha256: _Sha256
    installed_at: str = Field(pattern="^[0-9T:+-]{1,32}$")
    files: dict[str, _File]


def is_installable(id: str) -> bool:  # noqa: A002 - the skill's id, as everywhere
    """Whether a skill can be installed under this id: a name of the standard, or one with underscores for hyphens."""
    return is_legal_name(id.replace("_", "-"))


def legal(id: str) -> str:  # noqa: A002 - the skill's id, as everywhere
    """`id`, where a skill can be installed under it, so that it leads nowhere as a name of a folder.

    Raises:
        BadPackage: it cannot.
    """
    if not is_installable(id):
        raise BadPackage(
            f"{shown(id)} cannot be the name of a skill: that is 1 to 64 of a-z and 0-9, with single hyphens or "
            "underscores between them; name the folder, or the skill in its SKILL.md, so, or give --as ID"
        )
    return id


def written(installed: Installed) -> str:
    """The record of a skill, as JSON."""
    return _Record(
        source=installed.source,
        sha256=installed.sha256,
        installed_at=installed.installed_at,
        files={file.path: _File(size=file.size, sha256=file.sha256) for file in installed.files},
    ).model_dump_json(indent=2)


def told(record: Path, folder: Path) -> Installed:
    """What a record says, and how `folder` compares; never an error."""
    try:
        legal(record.stem)
        kept = _Record.model_validate_json(_text(record))
        files = tuple(PackedFile(path, file.size, file.sha256) for path, file in kept.files.items())
        for file in files:
            path_parts(file.path, folder=False)
    except (OSError, ValueError, BadPackage):
        return Installed(plain(record.stem), damage="its record cannot be read: remove the skill, and install it anew")
    skill = Installed(record.stem, plain(kept.source), kept.sha256, kept.installed_at, files)
    try:
        return replace(skill, changes=_changes(files, folder))
    except OSError as error:
        return replace(skill, damage=f"its folder cannot be read: {error.strerror}")


def _text(record: Path) -> bytes:
    if not stat.S_ISREG(record.lstat().st_mode):
        raise ValueError("it is no file")
    with record.open("rb") as file:
        return file.read(LARGEST_RECORD)


def _changes(files: tuple[PackedFile, ...], folder: Path) -> tuple[str, ...]:
    left = {file.path: file for file in files}
    changes = dict[str, str]()
    members = in_folder(folder) if not folder.is_symlink() and folder.is_dir() else ()
    for member in members:
        if member.folder:
            continue
        if (file := left.pop(member.name, None)) is None:
            changes[member.name] = "new"
        elif not _holds(member, file):
            changes[member.name] = "changed"
    changes.update(dict.fromkeys(left, "missing"))
    return tuple(f"{how}: {plain(path)}" for path, how in sorted(changes.items()))


def _holds(member: Member, file: PackedFile) -> bool:
    """Whether a file is as it was installed; one that cannot be read is taken for another."""
    if member.flaw or member.size != file.size:
        return False
    with suppress(OSError, BadPackage), member.open() as opened:
        return hashlib.sha256(opened.read(file.size + 1)).hexdigest() == file.sha256
    return False
