"""Bytes as they arrive, taken apart into lines."""


class LineBuffer:
    """Collects chunks of bytes, and gives each line once, however many chunks it came in."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their ends."""
        first, end, others = chunk.partition(b"\n")
        if not end:
            self._parts.append(chunk)
            return []
        if self._parts:
            first = b"".join([*self._parts, first])
        *lines, rest = others.split(b"\n")
        self._parts = [rest] if rest else []
        return [first, *lines]

    def rest(self) -> bytes:
        """What came after the last end of line."""
        return b"".join(self._parts)
