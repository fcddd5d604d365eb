"""Texts of servers, clients and folders that are not trusted, made safe to stand in a text of ours (design rule 18).

In one line, in a block whose every line is quoted, or as JSON: none of them can make a line that looks like ours, hold
what nobody sees, or end or imitate our own tags. The guides of the user keep their shape: only our tags are taken out.
"""

import json
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

from proxy.core.lookalikes import INVISIBLE, INVISIBLE_CHARACTER, skeleton
from proxy.core.texts import flat

QUOTE: Final = "|"
"""What every line of a quoted text begins with, before a space."""
REASON_LIMIT: Final = 4_000
"""Characters of a reason, or of a name, that others have given."""

_TAGS: Final = (
    "skills_guide",
    "skill_guide",
    "skills_info",
    "skill",
    "skill_name",
    "skill_desc",
    "skill_file",
    "server_instructions",
)
_OPENER: Final = re.compile("[<\u02c2\u1438\u16b2\u2039\u2329\u276e\u27e8\u3008\ufe64\uff1c]")
"""The sign that opens a tag, and those that look like it."""
_BETWEEN: Final = re.compile(r"[^\w<>]*+")
"""Whatever stands between that sign and the name: spaces, a slash."""
_NAME_READ: Final = 64
"""Characters of what follows that are held against the names of our tags."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]")
"""Control characters that neither end a line nor are a tab."""
_UNSEEN_IN_JSON: Final = re.compile(f"[\x7f-\x9f\u2028\u2029{INVISIBLE}]")
_JSON_ESCAPE: Final = re.compile(r"\\(?:u[0-9a-f]{4}|.)")
_LAST_OF_FOUR_DIGITS: Final = 0xFFFF


def without_our_tags(text: str) -> str:
    """`text` with our own tags in it made harmless, so that it cannot end or imitate them; all else as it is.

    However they are spelled: with spaces, in any case, in other scripts' letters, with what nobody sees.
    """
    return _harmless(text, text, lambda _: "&lt;")


def one_line(text: str, limit: int = REASON_LIMIT) -> str:
    """`text` as one line of at most `limit` characters (before our tags in it are made harmless)."""
    return without_our_tags(flat(text, limit))


def quoted(text: str) -> str:
    """`text` as a block of which every line begins with `QUOTE`; empty where it holds nothing to be seen.

    Whatever Unicode takes for the end of a line ends one. Blank lines around it are left out.
    """
    seen = _CONTROL.sub(" ", INVISIBLE_CHARACTER.sub("", text))
    lines = [line.rstrip() for line in without_our_tags(seen).splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    start = next((place for place, line in enumerate(lines) if line), 0)
    return "\n".join(f"{QUOTE} {line}".rstrip() for line in lines[start:])


def json_line(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """The JSON of a value in one line that shows all that it holds: what nobody sees, and our tags, are escaped."""
    written = json.dumps(value, ensure_ascii=False)
    read = _JSON_ESCAPE.sub(lambda found: " " * len(found[0]), written)
    return _UNSEEN_IN_JSON.sub(lambda found: _escaped(found[0]), _harmless(written, read, _escaped))


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= _LAST_OF_FOUR_DIGITS else json.dumps(character)[1:-1]


def _harmless(text: str, read: str, told: Callable[[str], str]) -> str:
    """`text` with `told` in place of each sign that opens a tag of ours in `read`, the text as it is understood."""
    opening = [found.start() for found in _OPENER.finditer(read)]
    if not opening:
        return text
    ends = [*opening[1:], len(text)]
    ours = [at for at, end in zip(opening, ends, strict=True) if _names_our_tag(read[at + 1 : end])]
    parts = [text[start:end] for start, end in pairwise([0, *(cut for at in ours for cut in (at, at + 1)), len(text)])]
    return "".join(told(part) if place % 2 else part for place, part in enumerate(parts))


def _names_our_tag(piece: str) -> bool:
    """Whether what follows an opening sign is the name of a tag of ours, with spaces inside or without."""
    seen = piece if piece.isascii() else INVISIBLE_CHARACTER.sub("", piece)
    start = _BETWEEN.match(seen)
    head = seen[start.end() if start else 0 :][:_NAME_READ].translate(_LETTERS)
    return any(_NAME.match(each) for each in (head, "".join(head.partition(">")[0].split())))


@lru_cache(maxsize=4096)
def _letters(code: int) -> str:
    """The letters that people take a character for, without marks above and below; of i and l one."""
    apart = unicodedata.normalize("NFKD", skeleton(unicodedata.normalize("NFKD", chr(code))))
    return "".join(each for each in apart if not unicodedata.category(each).startswith("M")).replace("i", "l")


class _Letters(dict[int, str]):
    """`_letters` by the code of a character; those of ASCII are kept."""

    def __missing__(self, code: int) -> str:
        return _letters(code)


_LETTERS: Final = _Letters({code: _letters(code) for code in range(128)})
_NAME: Final = re.compile(rf"(?:{'|'.join(tag.translate(_LETTERS) for tag in _TAGS)})\b")
