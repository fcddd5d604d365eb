"""Processes that end, with all that they have started, whatever happens."""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

GRACE_S = 5.0
"""How long a process may take to end after SIGTERM."""
MARK = "MCP_CLIENT_RUN"
"""The variable by which what a run has started is known."""

Word = str | Path


@dataclass(frozen=True)
class Processes:
    """Starts processes with a mark in their environment, which what they start inherits."""

    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @contextmanager
    def running(
        self,
        command: Sequence[Word],
        environment: Mapping[str, str],
        folder: Path,
        output: IO[bytes],
    ) -> Generator[subprocess.Popen[bytes]]:
        """A process that ends with the block."""
        process = subprocess.Popen(
            list(map(str, command)),
            env={**environment, MARK: self.mark},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _end(process)

    def end_all(self) -> None:
        """End what is left of what was started, also where it has left its process group."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + GRACE_S
            left = self._left()
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, sign)
            while left and time.monotonic() < deadline:
                time.sleep(0.05)
                left = self._left()

    def _left(self) -> list[int]:
        """The running processes with the mark; none where there is no /proc."""
        wanted = f"{MARK}={self.mark}".encode()
        found: list[int] = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(OSError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
            break
    process.wait(GRACE_S)
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
