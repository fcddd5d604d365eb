"""How many descriptors the program may have open: raised for itself, and left as it was for the servers it starts.

A program that waits with select() breaks where its own can have numbers beyond 1,023; servers may be such programs.
"""

import sys
from contextlib import suppress
from typing import Final

if sys.platform != "win32":
    import resource

SAFE_FOR_SELECT: Final = 1024
"""The limit to which it is raised where a child cannot be given another one after its start."""
UNKNOWN_LIMIT: Final = 512
"""What is taken for the limit where the system has none to ask for."""

_inherited: list[tuple[int, int]] = []
"""The limits before they were raised, once they have been; those of a process, as they are."""


def raise_limit() -> None:
    """Let this process open as many descriptors as it may; children get the limit that it had (`restore_limit`)."""
    if sys.platform == "win32" or _inherited:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return
    wanted = hard if sys.platform == "linux" or 0 <= hard < SAFE_FOR_SELECT else max(soft, SAFE_FOR_SELECT)
    if wanted == soft:
        return
    with suppress(OSError, ValueError):  # it goes on with what it has
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        _inherited.append((soft, hard))


def restore_limit(pid: int) -> None:
    """Give a child that has just been started the limits that this process had at first."""
    if sys.platform == "linux" and _inherited:
        with suppress(OSError):  # it has ended already
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _inherited[0])


def descriptor_limit() -> int:
    """How many descriptors this process may have open by now."""
    if sys.platform == "win32":
        return UNKNOWN_LIMIT
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
