"""What SIGHUP means: the terminal is gone, and the program ends with it, or its user wants the configuration read."""

import errno
import os
import signal
from typing import Literal, TypeAlias

import anyio

Meaning: TypeAlias = Literal["read", "end", "nothing"]
"""Read the configuration; end with the terminal; nothing, where the program was started to outlive its terminal."""
TERMINAL = "/dev/tty"
"""Opens where the process has a controlling terminal, whatever its standard streams are."""
GONE = (errno.ENXIO, errno.EIO)
LATE = 0.1
"""Seconds: when a shell ends, its programs get the signal a moment before they lose the terminal."""


class Hangup:
    """Made before SIGHUP gets a handler, since it remembers what held then. For systems that have the signal."""

    def __init__(self) -> None:
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as nohup starts a program
        self._without_terminal: Meaning = "nothing" if ignored else "end"
        self._has_terminal = _terminal_error() is None

    async def meaning(self) -> Meaning:
        """What the SIGHUP that has just come means."""
        if not self._has_terminal:
            return "read"
        if _terminal_error() not in GONE:
            await anyio.sleep(LATE)
        if _terminal_error() not in GONE:
            return "read"
        self._has_terminal = False  # it goes but once: whoever sends the next signal is somebody
        return self._without_terminal


def _terminal_error() -> int | None:
    """Why there is no controlling terminal to open, as an `errno`; None where there is one."""
    try:
        terminal = os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        return error.errno
    os.close(terminal)
    return None
