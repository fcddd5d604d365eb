"""Turns at the event loop for what peers send unasked: a flood of some leaves the time to the others."""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final

SHARE: Final = 0.1
"""Part of the loop's time that what all flooding peers send takes together."""
BURST_S: Final = 0.05
"""Seconds of work that one peer may cause at once before it has to wait for turns."""
TURN_S: Final = 0.001
"""Seconds after which the work of one turn ends."""


class Turns:
    """Gives turns to those who ask for them, one after the other, for `SHARE` of the loop's time."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], None], float]] = deque()
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def ask(self, work: Callable[[], None], besides: float = 0.0) -> None:
        """Call `work` once, when its turn comes; `besides`: seconds of work that it causes outside of the call."""
        self._waiting.append((work, besides))
        self._schedule()

    async def wait(self, cost: float) -> None:
        """Wait for a turn in which work of `cost` seconds is done."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ask(lambda: None if turn.done() else turn.set_result(None), cost)
        await turn

    def _schedule(self) -> None:
        if self._timer is None and self._waiting:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._next, loop.time()), self._run)

    def _run(self) -> None:
        self._timer = None
        work, besides = self._waiting.popleft()
        begun = perf_counter()
        try:
            work()
        finally:
            took = perf_counter() - begun + besides
            self._next = asyncio.get_running_loop().time() + took * (1 / SHARE - 1)
            self._schedule()


class Allowance:
    """What one peer may cause without a turn: `BURST_S` seconds of work at once, and `SHARE` of the time for good."""

    def __init__(self) -> None:
        self._due = 0.0

    def spend(self, seconds: float, now: float) -> None:
        """Work of so many seconds was done for the peer, unasked; `now` as of `perf_counter`."""
        self._due = max(self._due, now) + seconds / SHARE

    def spent(self, now: float) -> bool:
        """Whether the peer has to wait for a turn."""
        return self._due > now + BURST_S / SHARE
