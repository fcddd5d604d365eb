"""A loop of asyncio whose time is made up: it passes when a test says so, and never while anything can still run."""

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class _NeverWaits(selectors.DefaultSelector):
    """Asks the loop what to do where it would wait."""

    loop: "MadeUpTime"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self.loop.nothing_to_do(timeout)
        return super().select(0)


class MadeUpTime(asyncio.SelectorEventLoop):
    """Runs until nothing can run any more; the time jumps from one timer to the next, as far as it may go."""

    def __init__(self) -> None:
        self._now = self._until = 1000.0
        selector = _NeverWaits()
        selector.loop = self
        self.complaints: list[Mapping[str, Any]] = []
        super().__init__(selector)
        self.set_exception_handler(lambda _loop, context: self.complaints.append(context))

    def time(self) -> float:
        return self._now

    def nothing_to_do(self, next_timer: float | None) -> None:
        """The next timer is due in so many seconds: let them pass, or stop here."""
        if next_timer is not None and self._now + next_timer <= self._until:
            self._now += next_timer
        else:
            self._now = self._until
            self.stop()

    def advance(self, seconds: float = 0.0) -> None:
        """Run everything that there is to run within these seconds; without any, all that can run now."""
        self._until = self._now + seconds
        self.run_forever()

    def outcome(self, work: Coroutine[Any, Any, T], within: float = 0.0) -> T:
        """What `work` comes to, which takes at most so many seconds."""
        task = self.create_task(work)
        self.advance(within)
        assert task.done(), "it still waits"
        return task.result()
