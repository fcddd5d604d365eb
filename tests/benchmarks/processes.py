"""The processes that are measured: started, weighed, and ended by their own ids."""

import os
import signal
import subprocess
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROC = Path("/proc")
GRACE = 5.0


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
        return any(word.endswith((b"raw_server.py", b"sdk_server.py")) for word in words[:3])
    return False


def mebibytes(root: int, what: str) -> float | None:
    """`Rss` or `Pss` of a process and what it started, without the servers behind it; None where nothing tells it."""
    total = 0
    for pid in descendants(root):
        if pid == root or not is_server(pid):
            with suppress(OSError):
                lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
                total += next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:"))
    return total / 1024 or None
