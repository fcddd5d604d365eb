"""Bytes as they arrive, taken apart into lines of a bounded length."""

from math import inf


class LineBuffer:
    """Collects chunks of bytes, and gives each line once, however many chunks it came in.

    Of a line that is longer than `limit` bytes the first `limit + 1` are given, as soon as they are there, and the rest
    is skipped: never more than that and one chunk is held.
    """

    def __init__(self, limit: float = inf) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._skips = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their ends, and the beginning of one that has become too long."""
        first, end, others = chunk.partition(b"\n")
        if not end:
            return self._add(chunk)
        if not (others or self._parts or self._skips) and len(first) <= self._limit:  # one whole line, as most are
            return [first]
        if self._skips:
            self._skips = False
            lines: list[bytes] = []
        else:
            lines = [b"".join([*self._parts, first]) if self._parts else first]
        *more, rest = others.split(b"\n")
        lines += more
        self._parts, self._size = [], 0
        if len(chunk) + len(lines[0] if lines else b"") > self._limit:  # else none of them can be too long
            lines = [line if len(line) <= self._limit else self._cut(line) for line in lines]
        return lines + self._add(rest) if rest else lines

    def rest(self) -> bytes:
        """What came after the last end of line."""
        return b"".join(self._parts)

    def _add(self, part: bytes) -> list[bytes]:
        """Keep the beginning of a line; returns what there is of it once it is too long."""
        if self._skips:
            return []
        self._parts.append(part)
        self._size += len(part)
        if self._size <= self._limit:
            return []
        cut = self._cut(b"".join(self._parts))
        self._parts, self._size, self._skips = [], 0, True
        return [cut]

    def _cut(self, line: bytes) -> bytes:
        return line[: int(self._limit) + 1]
