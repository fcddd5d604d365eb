"""The way to a file: the links that lead there, and the file at its end."""

import os
from collections.abc import Iterator
from pathlib import Path

_MOST_LINKS = 40
"""As many as the system follows."""


def way(path: Path) -> Iterator[Path]:
    """Every link that leads to the file at `path` (absolute), then the file itself; all without links in their folders.

    What is missing is taken for no link: the way ends where the file would be. A circle leads to no file.
    """
    at, left, links = Path(path.anchor), list(reversed(path.parts)), 0
    while left and links <= _MOST_LINKS:
        part = left.pop()
        step = at.parent if part == os.pardir else at / part
        try:
            target = step.readlink()
        except OSError:
            at = step
        else:
            yield step
            links += 1
            left += reversed(target.parts)
    if not left:
        yield at
