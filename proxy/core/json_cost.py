"""What a JSON text would cost to parse, bounded before it is: each value in it takes time and some 100 bytes."""

from typing import Final

MAX_JSON_VALUES: Final = 250_000
"""Commas and opening brackets of a JSON text, outside of strings: parsing them takes 0.1 s, in which nothing else runs.
"""
UNCOUNTED_BYTES: Final = 2 * 1024 * 1024
"""Bytes of a server's message up to which nothing is counted: it is parsed within 0.2 s, whatever it holds."""
BYTES_PER_VALUE: Final = 16
"""How long values are on average, at least, where texts may be so large that they hold more than `MAX_JSON_VALUES`."""

CHUNK_BYTES: Final = 64 * 1024


def most_values(size: int) -> int:
    """How many values a JSON text may hold that may be `size` bytes long."""
    return max(MAX_JSON_VALUES, size // BYTES_PER_VALUE)


def may_have_more_values(text: bytes, limit: int) -> bool:
    """Whether it takes `has_more_values` to tell that it has not; takes a tenth of a millisecond for 1 MiB."""
    return len(text) > limit and _structure(text) > limit


def has_more_values(text: bytes, limit: int) -> bool:
    """Whether a JSON text has more than `limit` commas and opening brackets outside of its strings.

    Takes a millisecond for 1 MiB; for a text that has more of them within its strings, some more. In UTF-16 and UTF-32,
    which some parsers take, those within strings count, too.
    """
    if not may_have_more_values(text, limit):
        return False
    if b"\0" in text:
        return True
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    count, inside = 0, False
    for start in range(0, len(plain), CHUNK_BYTES):
        parts = plain[start : start + CHUNK_BYTES].split(b'"')
        count += _structure(b"".join(parts[inside::2]))
        inside ^= len(parts) % 2 == 0
        if count > limit:
            return True
    return False


def _structure(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")
