"""Texts of others as they can be shown: shortened, and in one line that shows all that it holds."""

import re
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from proxy.core.lookalikes import INVISIBLE_CHARACTER

NAME_LIMIT: Final = 100
"""Characters of a name or another word about a skill."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
"""Breaks between lines, and what steers terminals."""


def shortened(text: str, limit: int) -> str:
    """`text` in at most `limit` characters, of which the last one says where something is missing."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def clipped(text: str, limit: int) -> str:
    """The beginning of `text` that takes at most `limit` bytes of UTF-8."""
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def size(text: str) -> int:
    """Bytes of `text` in UTF-8."""
    return len(text.encode("utf-8", "replace"))


def fitting(texts: Sequence[str], limit: int, length: Callable[[str], int] = size) -> list[str]:
    """The first of `texts` whose lengths add up to `limit` at most; `length` counts bytes of UTF-8 by default."""
    return [text for text, end in zip(texts, accumulate(map(length, texts)), strict=True) if end <= limit]


def printable(text: str, *, lines: bool = False) -> str:
    """`text` without what a terminal might take for orders and what nobody sees; with `lines`, ends of lines stay."""
    return "".join(character if character.isprintable() or (lines and character == "\n") else " " for character in text)


def flat(text: str, limit: int = NAME_LIMIT) -> str:
    """`text` as one line of at most `limit` characters, all of which can be seen."""
    return shortened(" ".join(_CONTROL.sub(" ", INVISIBLE_CHARACTER.sub("", text)).split()), limit)
