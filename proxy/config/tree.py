"""Everything below a folder, walked within bounds, with what tells whether any of it has changed."""

import os
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Final, Literal, NamedTuple, TypeAlias

DOCUMENTS: Final = ("SKILL.md", "skill.md")
"""What the document of a skill is called; the first that is there is meant."""
DEEPEST: Final = 8
"""Levels of folders below the first that are looked at."""
MOST_FOLDERS: Final = 50_000
MOST_ENTRIES: Final = 200_000
RECORDS, STAGING = ".installed", ".staging-"
"""The folder where is kept what was installed, and how those begin in which skills are unpacked."""
IGNORED: Final = frozenset({".git", "node_modules", "__pycache__", RECORDS})
"""Names of folders that hold what programs have put there; nothing in them is looked at."""
_UNTELLABLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that are no UTF-8, or steer what shows a name: line feeds, changes of direction."""

Kind: TypeAlias = Literal["file", "folder", "other", "outside", "dangling"]
"""A regular file, a folder, a pipe or socket or device; a link out of the tree, a link to nothing."""


class Entry(NamedTuple):
    """A name in a folder, and what stands there, links followed.

    `size`: in bytes, of files. `target`: where a link really leads, None where it is none. `version`: of files, what
    differs after every change.
    """

    name: str
    kind: Kind
    size: int = 0
    target: str | None = None
    version: tuple[int, ...] = ()


@dataclass(frozen=True)
class Tree:
    """What is below the folder `root`.

    `below`: by the path of a folder, relative to the root (empty for itself, parts joined by `/`), its entries by name;
    files whose name begins with a dot and what is IGNORED left out. `notes`: a relative path and what was not looked
    at there, and why. `stamp`: differs after every change of anything that was looked at.
    `top`: where the root really was; `targets`: by relative path, where links really led.
    """

    root: Path
    below: Mapping[str, tuple[Entry, ...]]
    notes: tuple[tuple[str, str], ...]
    stamp: str
    top: str
    targets: Mapping[str, str]

    @property
    def folders(self) -> tuple[Path, ...]:
        """Every folder that was looked at, for watching."""
        return tuple(self.root / folder for folder in self.below)

    def real(self, folder: str) -> str:
        """Where a folder below the root really was: a path without links, whatever has been put there since."""
        above, below = folder, ""
        while above and above not in self.targets:
            above, _, name = above.rpartition("/")
            below = f"{name}/{below}" if below else name
        return os.path.join(self.targets.get(above, self.top), below).rstrip("/") or "/"  # noqa: PTH118 - thousands


def walked(root: Path) -> Tree:
    """The tree below `root`, an absolute path; an empty one, with a note, where there is no folder to be read.

    No folder is looked at twice, whatever links and mounts lead to it. Links to what is below the root are followed,
    after all that can be reached without them. So are links directly below the root to folders of skills elsewhere, as
    installers make them, and in these links to what is below them, unless the root is a skill itself; others are not.
    """
    walk = _Walk(str(root))
    walk.run()
    return Tree(root, walk.below, tuple(walk.notes), walk.digest.hexdigest(), walk.top, walk.targets)


def tellable(name: str) -> bool:
    """Whether a name is UTF-8 that looks like what it is, so that it can be told to anybody."""
    return name.isprintable() or _UNTELLABLE.isdisjoint(map(unicodedata.category, name))


def joined(folder: str, name: str) -> str:
    """The relative path of what is called `name` in `folder`."""
    return f"{folder}/{name}" if folder else name


def is_within(path: str, folder: str) -> bool:
    """Whether `path` is below `folder`; both are real paths."""
    return path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)


def reason(error: OSError | ValueError) -> str:
    """What an error of the file system says, for people."""
    if isinstance(error, PermissionError):
        return "permission denied"
    return getattr(error, "strerror", None) or str(error)


@dataclass
class _Walk:
    """One walk, and what it has found so far."""

    root: str
    below: dict[str, tuple[Entry, ...]] = field(default_factory=dict[str, tuple[Entry, ...]])
    notes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def __post_init__(self) -> None:
        self.digest = sha256()
        self.top = os.path.realpath(self.root)
        self.targets: dict[str, str] = {}
        self._left = MOST_ENTRIES
        self._seen: set[tuple[int, int]] = set()
        self._waiting: list[str] = []
        self._links: list[str] = []

    def run(self) -> None:
        """Look at every folder once: those without a link first, in the order of their names."""
        if not self._enters(""):
            return
        while self._waiting or self._linked():
            folder = self._waiting.pop()
            if len(self.below) == MOST_FOLDERS or not self._left:
                most = f"{MOST_FOLDERS:,} folders" if self._left else f"{MOST_ENTRIES:,} files and folders"
                self._skip(folder, f"not looked at, nor what comes after it: there are more than {most}")
                return
            entries = tuple(self._entries(folder))
            self.below[folder] = entries
            self._tell(folder, *map(tuple, entries))
            inner = [joined(folder, entry.name) for entry in reversed(entries) if entry.kind == "folder"]
            self.targets |= {joined(folder, entry.name): entry.target for entry in entries if entry.target is not None}
            for path in inner:
                if path in self.targets:
                    self._links.append(path)
                else:
                    self._enters(path)

    def _linked(self) -> bool:
        """Whether one of the links leads to a folder that was not looked at; it is the next."""
        self._links.sort(reverse=True)
        while self._links:
            if self._enters(self._links.pop()):
                return True
        return False

    def _enters(self, folder: str) -> bool:
        """Whether a folder is to be looked at; it then waits for that."""
        try:
            found = os.stat(self._path(folder))  # noqa: PTH116 - there are thousands, and paths take ten times as long
        except FileNotFoundError:
            self._skip(folder, "the folder does not exist")
            return False
        except (OSError, ValueError) as error:
            self._skip(folder, f"the folder cannot be read: {reason(error)}")
            return False
        if not S_ISDIR(found.st_mode):
            self._skip(folder, "is no folder")
            return False
        if folder.count("/") >= DEEPEST:
            self._skip(folder, f"not looked at: more than {DEEPEST} folders deep")
            return False
        identity = (found.st_dev, found.st_ino)
        if identity in self._seen:
            return False
        self._seen.add(identity)
        self._waiting.append(folder)
        return True

    def _entries(self, folder: str) -> Iterator[Entry]:
        try:
            with os.scandir(self._path(folder)) as all_of_them:
                found = list(islice(all_of_them, self._left + 1))
        except OSError as error:
            self._skip(folder, f"the folder cannot be read: {reason(error)}")
            return
        if len(found) > self._left:
            self._skip(folder, f"not all of it is looked at: there are more than {MOST_ENTRIES:,} files and folders")
            found.pop()
        self._left -= len(found)
        for each in sorted(found, key=lambda each: each.name):
            if each.name not in IGNORED and not each.name.startswith(STAGING) and (entry := self._entry(folder, each)):
                yield entry

    def _entry(self, folder: str, found: "os.DirEntry[str]") -> Entry | None:
        try:
            if found.is_symlink():
                return self._link(folder, found)
            if found.is_dir(follow_symlinks=False):
                return Entry(found.name, "folder")
            if found.name.startswith("."):
                return None
            return _of_file(found.name, found.stat(follow_symlinks=False))
        except OSError:  # gone in the meantime
            return None

    def _link(self, folder: str, link: "os.DirEntry[str]") -> Entry:
        try:
            there = link.stat()
        except OSError:  # nothing is there, or a loop
            return Entry(link.name, "dangling")
        target = os.path.realpath(link.path)
        if not self._follows(folder, target):
            what = "the link leads out of the folder and is not followed: to use it, name its target in skill_paths"
            self._skip(joined(folder, link.name), what)
            return Entry(link.name, "outside")
        if S_ISDIR(there.st_mode):
            return Entry(link.name, "folder", target=target)
        return _of_file(link.name, there)._replace(target=target)

    def _follows(self, folder: str, target: str) -> bool:
        """Whether a link in `folder` that really leads to `target` is followed."""
        linked = self.targets.get(folder.partition("/")[0], self.top)
        if any(target == top or is_within(target, top) for top in (self.top, linked)):
            return True
        return not folder and _is_skill(target) and not is_within(self.top, target) and not _is_skill(self.top)

    def _skip(self, path: str, what: str) -> None:
        self.notes.append((path, what))
        self._tell(path, what)

    def _tell(self, *what: object) -> None:
        self.digest.update(repr(what).encode())

    def _path(self, folder: str) -> str:
        return f"{self.root}/{folder}" if folder else self.root


def _is_skill(folder: str) -> bool:
    return any(os.path.isfile(f"{folder}/{name}") for name in DOCUMENTS)  # noqa: PTH113 - strings, as all paths here


def _of_file(name: str, found: os.stat_result) -> Entry:
    if not S_ISREG(found.st_mode):
        return Entry(name, "other")
    version = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return Entry(name, "file", found.st_size, None, version)
