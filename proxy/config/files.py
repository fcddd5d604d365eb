"""Reads the files and folders of a configuration, and keeps of each what tells whether it has changed since."""

import errno
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO, Final

from proxy.config.tree import Tree, walked

LARGEST: Final = 4 * 1024 * 1024
"""Bytes of a file that is read: no configuration comes near, and reading YAML holds up everything else meanwhile."""

_FOLDER: Final = os.O_DIRECTORY | os.O_NOFOLLOW | getattr(os, "O_PATH", os.O_RDONLY)
"""How a folder is opened to go on from there."""


class _ReadOnce(OSError):
    """A pipe or a device: what it held is gone once it is read, and reading it may have no end."""


class _TooLarge(OSError):
    """A file that was named by mistake, or grows without an end."""


class Files:
    """The files that were read, in order, each with a digest: of its content, or the kind of error.

    `again`: they are read not for the first time, so that pipes and devices are left alone.
    """

    def __init__(self, *, again: bool = False) -> None:
        self._contents: dict[Path, str] = {}
        self._stamps: dict[Path, str] = {}
        self._again = again

    @property
    def digests(self) -> Mapping[Path, str]:
        """What tells whether they have changed: files first, then folders."""
        return {**self._contents, **self._stamps}

    @property
    def roots(self) -> tuple[Path, ...]:
        """Those that are folders which were walked as a whole."""
        return tuple(self._stamps)

    def read(self, path: Path) -> bytes:
        """The content of a file.

        Raises `OSError`, also where it holds more than `LARGEST`, or `ValueError` where the path can be none.
        """
        try:
            mode = path.stat().st_mode
            special = not S_ISREG(mode) and not S_ISDIR(mode)
            if special and self._again:
                raise _ReadOnce(errno.EINVAL, "it is a pipe or a device, which is read at the start only")
            with path.open("rb") as file:
                content = content_of(file, LARGEST)
        except (OSError, ValueError) as error:
            self._contents[path] = type(error).__name__
            raise
        self._contents[path] = _ReadOnce.__name__ if special else sha256(content).hexdigest()
        return content

    def tree(self, root: Path) -> Tree:
        """All that is below a folder; its digest covers names, sizes and times, and no content."""
        tree = walked(root)
        self._stamps[root] = tree.stamp
        return tree


def digests(paths: Iterable[Path], roots: Collection[Path] = ()) -> Mapping[Path, str]:
    """What `Files` keeps of each of `paths`, and of the folders `roots` as a whole, as they are now."""
    files = Files(again=True)
    for path in paths:
        if path not in roots:
            with suppress(OSError, ValueError):
                files.read(path)
    for root in roots:
        files.tree(root)
    return files.digests


def open_regular(path: Path) -> BinaryIO:
    """The regular file at an absolute `path`, to be read; never waits for a pipe.

    It is opened step by step from the top of the file system, and no step follows a link: nothing that is put there
    between looking and opening leads elsewhere.

    Raises `OSError`, also where it is no regular file, or a link is on the way.
    """
    top, *folders, name = path.parts
    at = os.open(top, _FOLDER)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER, dir_fd=at)
            os.close(at)
            at = inner
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=at)
    finally:
        os.close(at)
    if not S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is no regular file")
    return os.fdopen(file, "rb")


def read_regular(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes, of which nothing is kept.

    Raises `OSError` as `open_regular`, and where it is larger.
    """
    with open_regular(path) as file:
        return content_of(file, most)


def content_of(file: BinaryIO, most: int) -> bytes:
    """What an open file holds, at most `most` bytes. Raises `OSError`, also where it is more."""
    content = file.read(most + 1)
    if len(content) > most:
        raise _TooLarge(errno.EFBIG, f"it holds more than {most // 1024**2} MiB")
    return content
