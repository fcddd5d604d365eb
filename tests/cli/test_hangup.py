"""What SIGHUP means to a program, by real terminals."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

PROGRAM = """
import os, signal, sys
import anyio
from proxy.cli.hangup import Hangup

said, terminal = map(int, sys.argv[1:])
if terminal >= 0:
    os.login_tty(terminal)

async def main():
    hangup = Hangup()
    with anyio.open_signal_receiver(signal.SIGHUP, signal.SIGTERM) as signals:
        os.write(said, b"ready\\n")
        async for number in signals:
            if number == signal.SIGTERM:
                return
            os.write(said, (await hangup.meaning()).encode() + b"\\n")

anyio.run(main)
"""
SHELL = """
import os, subprocess, sys

program, said, terminal = sys.argv[1], *map(int, sys.argv[2:])
os.login_tty(terminal)
started = subprocess.Popen([sys.executable, "-c", program, str(said), "-1"], pass_fds=[said])
os.write(said, b"%d\\n" % started.pid)
started.wait()
"""
NOHUP = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"


@dataclass(frozen=True)
class Started:
    """A program that was started, and the side of its terminal that a terminal's window has."""

    process: subprocess.Popen[bytes]
    said: Callable[[], str]
    close_the_window: Callable[[], None]


@contextmanager
def started(*arguments: str, terminal: bool = True, before: tuple[str, ...] = ()) -> Generator[Started]:
    """A Python program with a session of its own, perhaps with a terminal; `arguments` go before its descriptors."""
    window, its_terminal = pty.openpty() if terminal else (-1, -1)
    reading, writing = os.pipe()
    passed = [fd for fd in (writing, its_terminal) if fd >= 0]
    command = [sys.executable, *before, "-c", *arguments, str(writing), str(its_terminal)]
    with subprocess.Popen(command, pass_fds=passed, start_new_session=not terminal) as process, ExitStack() as ending:
        ending.callback(process.terminate)
        for fd in passed:
            os.close(fd)
        lines = ending.enter_context(os.fdopen(reading))
        open_window = ending.enter_context(ExitStack())
        if terminal:
            open_window.callback(os.close, window)
        yield Started(process, lambda: lines.readline().strip(), open_window.close)


def test_it_ends_with_its_terminal():
    """As any program does whose window is closed."""
    with started(PROGRAM) as program:
        assert program.said() == "ready"
        program.close_the_window()
        assert program.said() == "end"


def test_it_ends_with_the_shell_that_started_it():
    """The window stays, but nobody is there who could bring the program back to it."""
    with started(SHELL, PROGRAM) as shell:
        pid = int(shell.said())
        try:
            assert shell.said() == "ready"
            shell.process.kill()
            assert shell.said() == "end"
        finally:
            os.kill(pid, signal.SIGTERM)


def test_on_a_terminal_a_signal_from_somebody_asks_it_to_read():
    """The terminal is still there; when that is gone later, it ends."""
    with started(PROGRAM) as program:
        assert program.said() == "ready"
        program.process.send_signal(signal.SIGHUP)
        assert program.said() == "read"
        program.close_the_window()
        assert program.said() == "end"


def test_without_a_terminal_a_signal_asks_it_to_read():
    """As under a service manager, or a client that starts it."""
    with started(PROGRAM, terminal=False) as program:
        assert program.said() == "ready"
        program.process.send_signal(signal.SIGHUP)
        assert program.said() == "read"


def test_started_to_outlive_its_terminal_it_does():
    """By nohup, which ignores the signal for it; a closed window is nobody's word, the next signal is somebody's."""
    with started(PROGRAM, before=("-c", NOHUP, sys.executable)) as program:
        assert program.said() == "ready"
        program.close_the_window()
        assert program.said() == "nothing"
        program.process.send_signal(signal.SIGHUP)
        assert program.said() == "read"
