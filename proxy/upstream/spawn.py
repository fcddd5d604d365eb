"""Starting a server's process; with the standard library alone, so that it can be done before all else is imported."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from proxy.core.server import Server, StdioServer
from proxy.wire.descriptors import restore_limit


@dataclass(frozen=True)
class Spawned:
    """A process, the leader of a group of its own, and our ends of its pipes."""

    process: subprocess.Popen[bytes]
    stdin: int
    stdout: int
    stderr: int

    def signal(self, number: int) -> None:
        """Send a signal to the whole group, what the process has left behind included."""
        with suppress(OSError):
            if sys.platform == "win32":
                self.process.kill()
            else:
                os.killpg(self.process.pid, number)

    def group_lives(self) -> bool:
        """Whether anything of the group is left."""
        if sys.platform == "win32":
            return False
        try:
            os.killpg(self.process.pid, 0)
        except OSError:
            return False
        return True


def spawn(server: StdioServer) -> Spawned:
    """Start the process of `server`.

    Raises:
        OSError: it cannot be started.
    """
    pipes = [os.pipe() for _ in range(3)]
    (its_stdin, stdin), (stdout, its_stdout), (stderr, its_stderr) = pipes
    try:
        process = subprocess.Popen(  # noqa: S603 - the program that the configuration names
            [server.command, *server.args],
            env=server.env,
            cwd=server.cwd,
            stdin=its_stdin,
            stdout=its_stdout,
            stderr=its_stderr,
            start_new_session=True,
        )
    except BaseException:
        for fd in (stdin, stdout, stderr):
            os.close(fd)
        raise
    finally:
        for fd in (its_stdin, its_stdout, its_stderr):
            os.close(fd)
    restore_limit(process.pid)
    return Spawned(process, stdin, stdout, stderr)


class Early:
    """Processes that were started ahead, by server; at the end those that nobody has taken are killed."""

    def __init__(self, servers: Iterable[Server]) -> None:
        self._servers = servers
        self._spawned: dict[str, tuple[StdioServer, Spawned]] = {}

    def __enter__(self) -> Self:
        try:
            for server in self._servers:
                if isinstance(server, StdioServer):
                    with suppress(OSError):  # told when the server is to be started in earnest
                        self._spawned[server.key] = (server, spawn(server))
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._kill()

    def _kill(self) -> None:
        for _, spawned in self._spawned.values():
            _kill(spawned)

    def take(self, server: StdioServer) -> Spawned:
        """The process that was started ahead, once; or a new one, also where the server is no longer as it was then.

        Raises:
            OSError: it cannot be started.
        """
        as_it_was, spawned = self._spawned.pop(server.key, (server, None))
        if spawned is not None and as_it_was != server:
            _kill(spawned)
            spawned = None
        return spawned or spawn(server)


def _kill(spawned: Spawned) -> None:
    spawned.signal(signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
    spawned.process.wait()
    for fd in (spawned.stdin, spawned.stdout, spawned.stderr):
        os.close(fd)
