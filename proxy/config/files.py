"""Reads the files of a configuration, and keeps of each what tells whether it has changed since."""

import errno
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Final

LARGEST: Final = 4 * 1024 * 1024
"""Bytes of a file that is read: no configuration comes near, and reading YAML holds up everything else meanwhile."""


class _ReadOnce(OSError):
    """A pipe or a device: what it held is gone once it is read, and reading it may have no end."""


class _TooLarge(OSError):
    """A file that was named by mistake, or grows without an end."""


class Files:
    """The files that were read, in order, each with a digest: of its content, or the kind of error.

    `again`: they are read not for the first time, so that pipes and devices are left alone.
    """

    def __init__(self, *, again: bool = False) -> None:
        self.digests: dict[Path, str] = {}
        self._again = again

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
                content = file.read(LARGEST + 1)
            if len(content) > LARGEST:
                raise _TooLarge(errno.EFBIG, f"it holds more than {LARGEST // 1024**2} MiB")
        except (OSError, ValueError) as error:
            self.digests[path] = type(error).__name__
            raise
        self.digests[path] = _ReadOnce.__name__ if special else sha256(content).hexdigest()
        return content


def digests(paths: Iterable[Path]) -> Mapping[Path, str]:
    """What `Files` keeps of each of `paths` as it is now."""
    files = Files(again=True)
    for path in paths:
        with suppress(OSError, ValueError):
            files.read(path)
    return files.digests
