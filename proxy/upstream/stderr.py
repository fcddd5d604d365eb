"""What a server says on stderr: its last lines are kept, and a bounded number of them is logged."""

from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final

import anyio
import structlog

from proxy.wire.lines import LineBuffer
from proxy.wire.pipes import Source
from proxy.wire.turns import Allowance, Turns

log = structlog.stdlib.get_logger("proxy.upstream")

MAX_STDERR_LINE_BYTES: Final = 64 * 1024
MAX_STDERR_LINES_PER_S: Final = 100
"""Lines that are logged within a second; of the others their number is."""
READ_S: Final = 5e-5
"""Seconds that reading a chunk costs beside what is done with it."""
TAIL_LINES: Final = 5
TAIL_WIDTH: Final = 300


class Stderr:
    """Reads the stderr of the server `key` from `source`; `mask` takes secrets out of it.

    A carriage return ends a line as well: progress bars have no other end. A line that is too long is cut.
    """

    def __init__(self, key: str, source: Source, mask: Callable[[str], str], turns: Turns) -> None:
        self.ended = anyio.Event()
        """Set when nothing more comes."""
        self._key = key
        self._source = source
        self._mask = mask
        self._turns = turns
        self._allowance = Allowance()
        self._buffer = LineBuffer(MAX_STDERR_LINE_BYTES)
        self._tail: deque[bytes] = deque(maxlen=TAIL_LINES)
        self._second = 0.0
        self._logged = 0
        self._left_out = 0

    async def start(self) -> None:
        """Read from now on."""
        await self._source.start(self._hear, self._end)

    def tail(self) -> str:
        """The last lines as one, without secrets; empty where there were none."""
        together = self._text(b"\n".join(self._tail))  # a secret may go on in the next line
        return " | ".join(line[:TAIL_WIDTH] for line in together.split("\n"))

    def _hear(self, chunk: bytes) -> None:
        begun = perf_counter()
        for line in self._buffer.feed(chunk.replace(b"\r", b"\n")):
            if said := line[:MAX_STDERR_LINE_BYTES].strip():
                self._tail.append(said)
                self._log(said, begun)
        now = perf_counter()
        self._allowance.spend(now - begun + READ_S, now)
        if self._allowance.spent(now):
            self._source.pause()
            self._turns.ask(self._source.resume)

    def _log(self, line: bytes, now: float) -> None:
        if now - self._second >= 1:
            self._tell_left_out()
            self._second, self._logged = now, 0
        if self._logged < MAX_STDERR_LINES_PER_S:
            self._logged += 1
            log.debug("server.stderr", server=self._key, line=self._text(line))
        else:
            self._left_out += 1

    def _tell_left_out(self) -> None:
        if self._left_out:
            log.debug("server.stderr_left_out", server=self._key, lines=self._left_out)
            self._left_out = 0

    def _end(self) -> None:
        self._hear(b"\n")
        self._tell_left_out()
        self.ended.set()

    def _text(self, line: bytes) -> str:
        return self._mask(line.decode("utf-8", "replace"))
