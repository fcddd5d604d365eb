"""This process's standard input and output, claimed for the protocol; with the standard library alone."""

import os
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

if sys.platform == "linux":
    import fcntl

PIPE_SIZE: Final = 1024 * 1024
"""Bytes that a pipe can hold, where the system allows it."""


@dataclass(frozen=True)
class StandardStreams:
    """Descriptors of what were standard input and output, which nothing else can read or write any more."""

    stdin: int
    stdout: int

    @property
    def polled(self) -> bool:
        """Whether an event loop may wait for both.

        Where both are one socket, asyncio would treat incoming data as a sign that the reader has closed.
        """
        return not os.path.sameopenfile(self.stdin, self.stdout)


def claim() -> StandardStreams:
    """Take over stdin and stdout: other readers get end of file, other writers write to stderr."""
    streams = StandardStreams(os.dup(0), os.dup(1))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    widen(streams.stdin)
    widen(streams.stdout)
    return streams


def can_be_polled(fd: int) -> bool:
    """Whether one can wait for `fd` with others; a file, a terminal or /dev/null needs a thread."""
    mode = os.fstat(fd).st_mode
    return sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


def widen(fd: int) -> None:
    """Let the pipe `fd` hold a large message in one piece, where the system allows it."""
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
