"""Who besides its owner can reach a file that holds secrets or state, by the modes of POSIX.

A link counts as its target. Where a system has no such modes, nothing is said.
"""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE, S_ISREG, S_ISVTX
from typing import Final

_OTHERS: Final = 0o077
"""What a group and others may do."""
_OTHERS_WRITE: Final = 0o022
_HAS_MODES: Final = os.name == "posix"


def open_to_others(path: Path) -> str | None:
    """What to say of a file with secrets that others than its owner can reach; None where they cannot."""
    found = _stat(path)
    if found is None or not S_ISREG(found.st_mode) or not found.st_mode & _OTHERS:
        return None
    return f"others than its owner can reach it (mode {_octal(found)}): chmod 600 {shlex.quote(str(path))}"


def changeable_by_others(path: Path) -> Iterator[str]:
    """What to say of the state file at `path`, and of its folder, where others than this user can change them."""
    for what, one in (("", path), (f"its folder {path.parent} ", path.parent)):
        found = _stat(one)
        if found is None:
            continue
        shown, written = shlex.quote(str(one)), found.st_mode & _OTHERS_WRITE
        if found.st_uid not in {os.geteuid(), 0}:  # root can change everything anyway
            yield f"{what}belongs to another user (uid {found.st_uid}): chown {os.geteuid()} {shown}"
        if written and found.st_mode & S_ISVTX:
            yield f"{what}is open to everybody (mode {_octal(found)}): write the path of a file in a folder of its own"
        elif written:
            yield f"{what}can be changed by others than its owner (mode {_octal(found)}): chmod go-w {shown}"


def _stat(path: Path) -> os.stat_result | None:
    """What is at `path`; None where nothing is, or the system has no modes."""
    try:
        return path.stat() if _HAS_MODES else None
    except (OSError, ValueError):
        return None


def _octal(found: os.stat_result) -> str:
    return f"{S_IMODE(found.st_mode):04o}"
