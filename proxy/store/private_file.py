"""Files for the user alone, which are there whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path


def write_private_file(file: Path, content: bytes) -> None:
    """Write a file of mode 0600, in the place of an older one once it is whole.

    Raises:
        OSError: it cannot be written; an older one is as it was.
    """
    written = file.with_name(f"{file.stem}.{os.getpid()}.new")
    try:
        with open(written, "wb", opener=_with_mode_0600) as new:
            new.write(content)
        written.replace(file)
    except OSError:
        with suppress(OSError):
            written.unlink(missing_ok=True)
        raise


def _with_mode_0600(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
