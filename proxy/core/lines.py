"""Bytes as they arrive, taken apart into lines of text."""


class LineBuffer:
    """Collects chunks of bytes; what is not UTF-8 is replaced, a byte order mark is dropped."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that `chunk` completes, without their ends."""
        if b"\n" not in chunk:
            self._parts.append(chunk)
            return []
        *lines, rest = b"".join([*self._parts, chunk]).split(b"\n")
        self._parts = [rest] if rest else []
        return [_text(line) for line in lines]

    def rest(self) -> str:
        """What came after the last end of line."""
        return _text(b"".join(self._parts))


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").removeprefix("\ufeff")
