"""Letters that look like others: what people take a text for, and which scripts it is written in.

A small part of Unicode's security mechanisms (UTS #39): Latin, Cyrillic and Greek letters, small capitals, and what
nobody sees. Letters of other scripts that resemble these are told by the mixture of scripts alone.
"""
# ruff: noqa: RUF001 - the table of letters that look like others holds them

import re
import unicodedata
from collections.abc import Mapping
from typing import Final

INVISIBLE: Final = (
    "\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""For a class of characters: all format characters (category Cf), variation selectors, fillers and blank letters.

That takes soft hyphens, tag characters and changes of direction, and the joiners that some scripts and emoji have.
"""
INVISIBLE_CHARACTER: Final = re.compile(f"[{INVISIBLE}]")

_SEEN_AS: Final = str.maketrans(
    {
        other: letter
        for letter, others in {
            "a": "аАαΑɑᴀ",
            "b": "вВьЬβΒʙ",
            "c": "сСςϲϹᴄ",
            "d": "ԁᴅ",
            "e": "еЕεΕᴇ",
            "f": "ꜰ",
            "g": "ԍɡɢ",
            "h": "һнНΗʜ",
            "i": "іιıɩɪ",
            "j": "јЈϳᴊ",
            "k": "кКκΚᴋ",
            "l": "I1|ІΙӏӀʟ",
            "m": "мМΜᴍ",
            "n": "пηΝɴ",
            "o": "0оОοΟσᴏ",
            "p": "рРρΡᴘ",
            "q": "ԛ",
            "r": "гʀ",
            "s": "ѕЅꜱ",
            "t": "тТτΤᴛ",
            "u": "μυᴜ",
            "v": "ѵѴνᴠ",
            "w": "ԝωᴡ",
            "x": "хХχΧ",
            "y": "уУүҮΥγʏ",
            "z": "ζΖᴢ",
        }.items()
        for other in others
    }
)
"""Cyrillic, Greek and some Latin letters, of either case, by the letter that people take them for."""

_ALLOWED_TOGETHER: Final = (
    frozenset({"CJK", "HIRAGANA", "KATAKANA"}),
    frozenset({"CJK", "HANGUL"}),
    frozenset({"CJK", "BOPOMOFO"}),
)
"""Scripts that one word is written in: Japanese, Korean, Chinese (UTS #39, augmented script sets)."""
_SCRIPTS: Final[Mapping[str, str]] = {"IDEOGRAPHIC": "CJK"}
_LATIN: Final = "LATIN"
_OF_NO_SCRIPT: Final = frozenset({"DIGIT", "MODIFIER", "KATAKANA-HIRAGANA", ""})
"""First words of the names of letters and digits that any script has."""


def skeleton(text: str) -> str:
    """What all texts have in common that look the same, or nearly so (UTS #39, section 4); not for people."""
    seen = unicodedata.normalize("NFKC", INVISIBLE_CHARACTER.sub("", text))
    return unicodedata.normalize("NFKC", seen.translate(_SEEN_AS).casefold())


def stray_character(text: str) -> str:
    """A character of `text` that does not belong there; empty where the text is of one script, as far as it is of any.

    That is one that nobody sees, or one of another script: than Latin where the text has Latin letters, else than the
    first of its letters. Digits of ASCII, marks and signs belong to all.
    """
    if unseen := INVISIBLE_CHARACTER.search(text):
        return unseen[0]
    scripts = {character: script for character in text if (script := _script(character))}
    found = frozenset(scripts.values())
    if len(found) <= 1 or any(found <= together for together in _ALLOWED_TOGETHER):
        return ""
    main = _LATIN if _LATIN in found else next(iter(scripts.values()))
    return next(character for character, script in scripts.items() if script != main)


def told(character: str) -> str:
    """A character by its code and Unicode's name: `U+0430 CYRILLIC SMALL LETTER A`."""
    return f"U+{ord(character):04X} {unicodedata.name(character, '')}".rstrip()


def _script(character: str) -> str:
    """The script of a letter or digit, by the first word of its name; empty for what is common to all."""
    base = unicodedata.normalize("NFKC", character)[:1]
    if unicodedata.category(base) not in {"Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl"}:
        return ""
    first = unicodedata.name(base, "").partition(" ")[0]
    return "" if first in _OF_NO_SCRIPT else _SCRIPTS.get(first, first.partition("-")[0])
