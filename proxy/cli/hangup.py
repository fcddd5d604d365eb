"""What SIGHUP means: the terminal is gone and the program ends with it, or its user wants the configuration read."""

import errno
import os
import signal

import anyio

TERMINAL = "/dev/tty"
"""Opens where the process has a controlling terminal, whatever its standard streams are."""
GONE = (errno.ENXIO, errno.EIO)
LATE = 0.1
"""Seconds: when a shell ends, its programs get the signal a moment before they lose the terminal."""


class Hangup:
    """Made before SIGHUP gets a handler, since it remembers what held then. For systems that have the signal."""

    def __init__(self) -> None:
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as nohup starts a program: it is to outlive ...
        self._ends_with_terminal = not ignored and _terminal_error() is None  # ... the terminal

    async def ends_the_program(self) -> bool:
        """Whether the SIGHUP that has just come says that the terminal is gone and the program should end, too."""
        if not self._ends_with_terminal:
            return False
        if _terminal_error() not in GONE:
            await anyio.sleep(LATE)
        return _terminal_error() in GONE


def _terminal_error() -> int | None:
    """Why there is no controlling terminal to open, as an `errno`; None where there is one."""
    try:
        terminal = os.open(TERMINAL, os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        return error.errno
    os.close(terminal)
    return None
