"""Writes the members of a source into a fresh folder, and refuses whatever could do harm there."""

import hashlib
import os
import re
import unicodedata
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proxy.config.members import MOST_MEMBERS, BadPackage, Member, left_out, shown

MOST_FILES: Final = 2_000
MOST_BYTES: Final = 64 * 1024 * 1024
"""Of all files together."""
DEEPEST: Final = 16
"""Parts of a path."""
LONGEST_PATH: Final = 512
"""Bytes of a path, as UTF-8."""
LONGEST_NAME: Final = 255
"""Bytes of a part of it: what file systems can do."""

_DRIVE: Final = re.compile("[A-Za-z]:")
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Zl", "Zp"})
"""Categories of characters that steer what shows a name: NUL, line feeds, escapes, a change of direction."""


@dataclass(frozen=True)
class PackedFile:
    """A file of a skill: its path in the skill's folder, with "/" between parts, its bytes and their SHA-256 (hex)."""

    path: str
    size: int
    sha256: str


def unpack(members: Generator[Member], into: Path | None) -> tuple[PackedFile, ...]:
    """Write the files among `members`, by path as the source has it, to `into`, an empty folder; None: only look.

    What `left_out` names is passed over, and so are folders without files. Modes are 0644, and 0755 for folders,
    whatever the source says and the umask is.

    Raises:
        BadPackage: a name could lead elsewhere or mean two things, a member is neither file nor folder, there is too
            much, or it cannot be written.
        Exception: one of `DAMAGE`; the source cannot be read.
    """
    paths, files, space = _Paths(), list[PackedFile](), MOST_BYTES
    with closing(members):
        for number, member in enumerate(members, 1):
            if number > MOST_MEMBERS:
                raise BadPackage(f"it holds more than {MOST_MEMBERS:,} members: take out what is not needed")
            parts = path_parts(member.name, folder=member.folder)
            if any(map(left_out, parts)):
                continue
            if member.flaw:
                raise BadPackage(f"{shown(member.name)} {member.flaw}: a skill holds plain files and folders only")
            paths.enter(parts, folder=member.folder)
            if member.folder:
                continue
            if len(files) == MOST_FILES:
                raise BadPackage(f"it holds more than {MOST_FILES:,} files: take out what is not needed")
            content = _content(member, space)
            space -= len(content)
            if into is not None:
                _write(content, into, parts)
            files.append(PackedFile("/".join(parts), len(content), hashlib.sha256(content).hexdigest()))
    return tuple(sorted(files, key=lambda file: file.path))


def digest(files: Iterable[PackedFile]) -> str:
    """The SHA-256 (hex) of a line for each file, by path: `path NUL size NUL sha256 LF`."""
    lines = sorted(f"{file.path}\0{file.size}\0{file.sha256}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def path_parts(name: str, *, folder: bool) -> tuple[str, ...]:
    """The parts of the path that `name` means; none for the top folder itself.

    Raises:
        BadPackage: it could lead out, or is read in different ways by different systems.
    """
    path = name.removesuffix("/") if folder else name
    parts = path.split("/")
    if parts[0] == ".":
        del parts[0]
    categories = set(map(unicodedata.category, path))
    size = len(path.encode(errors="surrogatepass"))
    flaws = (
        ("Cs" in categories, "is not UTF-8"),
        (bool(categories & _INVISIBLE), "has control characters in it"),
        ("\\" in path, "has a backslash in it"),
        (path.startswith("/") or _DRIVE.match(path) is not None, "is absolute"),
        (".." in parts, "leads out of its folder"),
        ("" in parts or "." in parts or not (parts or folder), "is no plain path"),
        (len(parts) > DEEPEST, f"is more than {DEEPEST} levels deep"),
        (size > LONGEST_PATH, f"is longer than {LONGEST_PATH} bytes"),
        (any(len(part.encode(errors="surrogatepass")) > LONGEST_NAME for part in parts), "has a part that is too long"),
    )
    for wrong, how in flaws:
        if wrong:
            raise BadPackage(f"the name {shown(name)} {how}: rename it, and pack the skill anew")
    return tuple(parts)


class _Paths:
    """The paths that are taken, also on a file system that ignores case or how characters are composed."""

    def __init__(self) -> None:
        self._taken: dict[str, tuple[str, bool]] = {}

    def enter(self, parts: tuple[str, ...], *, folder: bool) -> None:
        """Take a path, and those of the folders that it lies in.

        Raises:
            BadPackage: it is taken, or by something too much like it.
        """
        for end in range(1, len(parts) + 1):
            path, is_folder = "/".join(parts[:end]), folder or end < len(parts)
            taken = self._taken.get(_folded(path))
            self._taken[_folded(path)] = path, is_folder
            if taken is None or taken == (path, True) == (path, is_folder):
                continue
            if taken[0] != path:
                how = f"{shown(taken[0])} and {shown(path)} are one name to some systems"
            elif taken[1] != is_folder:
                how = f"{shown(path)} is both a file and a folder"
            else:
                how = f"{shown(path)} is there twice"
            raise BadPackage(f"{how}: rename or take out one, and pack the skill anew")


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())


def _content(member: Member, space: int) -> bytes:
    """All that a file holds: what is read counts, and not what a header says."""
    if member.size > space:
        raise BadPackage(f"it holds more than {MOST_BYTES // 1024**2} MiB: take out what is not needed")
    with member.open() as file:
        content = file.read(member.size + 1) if member.size >= 0 else b""
    if len(content) != member.size:
        raise BadPackage(f"{shown(member.name)} does not hold the {member.size} bytes it is said to: pack it anew")
    return content


def _write(content: bytes, into: Path, parts: tuple[str, ...]) -> None:
    with writing(shown("/".join(parts))):
        folder = into
        for part in parts[:-1]:
            folder /= part
            if not folder.exists():
                folder.mkdir()
                folder.chmod(0o755)
        with (folder / parts[-1]).open("xb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(content)


@contextmanager
def writing(what: str) -> Generator[None]:
    """Words what keeps `what` from being written, as `BadPackage`."""
    try:
        yield
    except OSError as error:
        raise BadPackage(f"{what} cannot be written: {error.strerror or type(error).__name__}") from None
