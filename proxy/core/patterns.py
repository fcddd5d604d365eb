r"""Regular expressions that others write, on an engine without backtracking: RE2, which takes linear time (google-re2).

What Python's `re` and JSON Schema (ECMA-262) have and RE2 spells otherwise is translated: `\uXXXX`, `\cX`, `\Z`,
`{,n}`, and `\d`, `\w`, `\s`, which mean the characters of all scripts; `\b`, and `\D`, `\W`, `\S` in a set of
characters, know those of ASCII alone. `$` is the end of the text. What RE2 cannot do is refused.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, Protocol, cast

from proxy.core.inventory import without_lone_surrogates
from proxy.core.texts import flat

MAX_REPETITIONS: Final = 1000
"""How often RE2 lets a part of a pattern be repeated by a count."""
CACHED_PATTERNS: Final = 512

_ESCAPE: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # one character of the astral planes
    r"|\\u[0-9a-fA-F]{4}|\\u\{[0-9a-fA-F]{1,6}\}|\\c[A-Za-z]|\\.|\[\^?\]?|\]|\{,(?=[0-9]+\})",
    re.DOTALL,
)
"""What a translation looks at: escapes, where a set of characters begins and ends, and counts without a minimum."""
_SETS: Final = {
    r"\d": r"\p{Nd}",
    r"\w": r"\p{L}\p{N}_",
    r"\s": r"\t-\r\x1c-\x20\x{85}\p{Z}",
}
"""What Python takes for a digit, a character of a word and white space."""
_UNSUPPORTED: Final = (
    (re.compile(r"\(\?<?[=!]"), "look-around is not supported"),
    (re.compile(r"escape sequence: \\[1-9k]|\(\?P$"), "back-references are not supported"),
    (re.compile(r"repetition size"), f"counts beyond {MAX_REPETITIONS} are not supported (maxLength may say the same)"),
    (re.compile(r"\(\?>|repetition operator"), "atomic groups and possessive or double repetitions are not supported"),
    (re.compile(r"too large"), "it is too large"),
)
"""What an error of RE2 means, by what its text contains."""


class BadPattern(ValueError):
    """A pattern that cannot be used; the text says why, without the pattern."""


class Pattern(Protocol):
    """A compiled pattern."""

    def search(self, text: str) -> object | None:
        """Something where the pattern matches anywhere in `text`, else None."""
        ...


@lru_cache(CACHED_PATTERNS)
def compiled(pattern: str) -> Pattern:
    """A pattern as it can be searched for.

    Raises:
        BadPattern: it is not a regular expression, or uses what RE2 does not support.
    """
    import re2  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] - takes 9 ms, which only who has patterns pays

    engine = cast("Any", re2)
    options = engine.Options()
    options.log_errors = False
    try:
        return cast("Pattern", engine.compile(_translated(pattern), options))
    except UnicodeEncodeError:
        raise BadPattern("half of a surrogate pair is not supported") from None
    except engine.error as error:
        raise BadPattern(_reason(error)) from None


def found(pattern: str, text: str) -> bool:
    """Whether `pattern` matches anywhere in `text`.

    Raises:
        BadPattern: as `compiled`.
    """
    try:
        return compiled(pattern).search(text) is not None
    except UnicodeEncodeError:
        return compiled(pattern).search(cast("str", without_lone_surrogates(text))) is not None


def _reason(error: Exception) -> str:
    told = error.args[0] if error.args else ""
    text = told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
    return next((why for sign, why in _UNSUPPORTED if sign.search(text)), flat(text, 100))


def _translated(pattern: str) -> str:
    return "".join(_pieces(pattern))


def _pieces(pattern: str) -> Iterator[str]:
    end, inside = 0, False
    for escape in _ESCAPE.finditer(pattern):
        yield pattern[end : escape.start()]
        end, part = escape.end(), escape.group()
        if part.startswith("\\"):
            yield _escape(part, inside=inside)
        elif part.startswith("{"):
            yield part if inside else "{0,"
        else:
            inside = part != "]" if not inside else not part.endswith("]")
            yield part
    yield pattern[end:]


def _escape(part: str, *, inside: bool) -> str:
    """An escape as RE2 has it; `inside`: in a set of characters."""
    kind = part[1]
    if kind == "u" and len(part) > len(r"\u"):
        codes = [int(code.strip("{}"), 16) for code in part.split(r"\u")[1:]]
        code = codes[0] if len(codes) == 1 else 0x10000 + ((codes[0] & 0x3FF) << 10) + (codes[1] & 0x3FF)
        return f"\\x{{{code:X}}}"
    if kind == "c" and len(part) > len(r"\c"):
        return f"\\x{{{ord(part[2]) % 32:X}}}"
    if kind == "Z" and not inside:
        return r"\z"
    if (characters := _SETS.get(part)) is not None:
        return characters if inside else f"[{characters}]"
    if (characters := _SETS.get(part.lower())) is not None and not inside:
        return f"[^{characters}]"
    return part
