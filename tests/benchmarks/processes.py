"""The processes that are measured: started, weighed, and ended by their own ids."""

import os
import signal
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROC = Path("/proc")
GRACE = 5.0
READY = 60.0
"""Seconds for a process to serve."""
SERVERS = (b"raw_server.py", b"sdk_server.py", b"fragile_server.py")


@dataclass(frozen=True)
class Vitals:
    """What a process holds: MiB of memory, open files, threads, and the processes that come from it."""

    rss: float
    pss: float
    files: int
    threads: int
    children: int

    def __str__(self) -> str:
        return (
            f"RSS {self.rss:.1f} MiB, PSS {self.pss:.1f} MiB, {self.files} open files, {self.threads} threads, "
            f"{self.children} child processes"
        )


@contextmanager
def running(command: list[str], errors: IO[bytes] | int, *, piped: bool) -> Generator[subprocess.Popen[bytes]]:
    """`command`, from the repository's root; it ends at the end of its input, or by a signal, with what it started."""
    pipe = subprocess.PIPE if piped else subprocess.DEVNULL
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=errors, bufsize=0, start_new_session=True
    )
    try:
        yield process
    finally:
        started = [pid for pid in descendants(process.pid) if pid != process.pid]
        if process.stdin is not None:
            process.stdin.close()
        else:
            process.terminate()
        for last in (process.terminate, process.kill):
            try:
                process.wait(GRACE)
                break
            except subprocess.TimeoutExpired:
                last()
        process.wait(GRACE)
        if process.stdout is not None:
            process.stdout.close()
        for pid in started:
            if is_server(pid):  # one that was left behind
                with suppress(OSError):
                    os.kill(pid, signal.SIGTERM)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a process listens on its port.

    Raises:
        TimeoutError: it does not in a minute, or has ended.
    """
    end = time.monotonic() + READY
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise TimeoutError("nothing listens on its port")


def descendants(root: int) -> list[int]:
    """A process and all that come from it; itself alone where there is no /proc."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError):
            parent = (folder / "stat").read_bytes().rpartition(b")")[2].split()[1]
            children[int(parent)].append(int(folder.name))
    found = [root]
    for pid in found:  # grows meanwhile
        found += children[pid]
    return found


def is_server(pid: int) -> bool:
    """Whether a process is one of the servers behind a proxy."""
    with suppress(OSError):
        words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        return any(word.endswith(SERVERS) for word in words[:3])
    return False


def running_with(word: str) -> list[int]:
    """The processes with an argument that contains `word`."""
    found: list[int] = []
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError):
            if word.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def vitals(root: int) -> Vitals:
    """What a process holds now; the servers behind it count as processes only.

    Raises:
        OSError: it has ended, or there is no /proc here.
    """
    folder = PROC / str(root)
    threads = next(line for line in (folder / "status").read_text().splitlines() if line.startswith("Threads:"))
    return Vitals(
        rss=mebibytes(root, "Rss") or 0.0,
        pss=mebibytes(root, "Pss") or 0.0,
        files=len(list((folder / "fd").iterdir())),
        threads=int(threads.split()[1]),
        children=len(descendants(root)) - 1,
    )


def mebibytes(root: int, what: str) -> float | None:
    """`Rss` or `Pss` of a process and what it started, without the servers behind it; None where nothing tells it."""
    total = 0
    for pid in descendants(root):
        if pid == root or not is_server(pid):
            with suppress(OSError):
                lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
                total += next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:"))
    return total / 1024 or None
