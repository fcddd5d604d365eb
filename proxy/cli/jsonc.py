"""JSON as editors keep it: with comments and trailing commas."""

import json
import re
from typing import Final

_STRING: Final = r'("(?:[^"\\\n]|\\.)*+"?)'
_COMMENT: Final = re.compile(_STRING + r"|//[^\n]*|/\*.*?(\*/|\Z)", re.DOTALL)
_TRAILING_COMMA: Final = re.compile(_STRING + r"|,(?=\s*[\]}])")
_KEY_OR_BRACKET: Final = re.compile(_STRING + r"(\s*:)?|[\[{\]}]")
_PLAIN_WORDS: Final = {
    "Expecting value": "a value is missing here, or a text without double quotes",
    "Expecting property name": "a key in double quotes is missing here",
    "Expecting ':'": "a : is missing after the key",
    "Expecting ','": "a comma or a closing bracket is missing before this",
    "Extra data": "more text after the end",
    "Unterminated string": "a text begins here whose closing quote is missing",
    "Invalid control": "a text in quotes goes over the end of the line, or holds a tab: write \\n or \\t",
    "Invalid \\": "a backslash in a text must be doubled: \\\\",
}


class NotJson(Exception):
    """The text says what is wrong in plain words; `line` (from 1) where."""

    def __init__(self, what: str, line: int = 1) -> None:
        super().__init__(what)
        self.line = line


def parse(text: str) -> object:
    """What JSON with comments and trailing commas says.

    Raises `NotJson`, also for a key that is given twice.
    """
    clean = _TRAILING_COMMA.sub(_blank, _COMMENT.sub(_blank, text))
    if not clean.strip():
        raise NotJson("is empty")
    try:
        value = json.loads(clean)
    except json.JSONDecodeError as error:
        what = next((words for begin, words in _PLAIN_WORDS.items() if error.msg.startswith(begin)), error.msg)
        if not clean[error.pos :].strip():
            what = "it ends too early: a closing bracket is missing"
        raise NotJson(f"not JSON: {what}", error.lineno) from None
    except RecursionError:
        raise NotJson("nested too deep") from None
    except ValueError:  # Python reads no number of more than 4,300 digits
        raise NotJson("a number is too long") from None
    _refuse_twins(clean)
    return value


def _blank(found: re.Match[str]) -> str:
    """Spaces instead of what was found, unless it is a string; lines stay where they are."""
    if found[1] is not None:
        return found[1]
    if found[0].startswith("/*") and not found[2]:
        raise NotJson("a comment begins here whose */ is missing", found.string.count("\n", 0, found.start()) + 1)
    return re.sub(r"[^\n]", " ", found[0])


def _refuse_twins(text: str) -> None:
    """Refuse a key that stands twice in one object of `text`, which is JSON."""
    inside: list[set[str]] = []
    for found in _KEY_OR_BRACKET.finditer(text):
        if found[0] in "[{":
            inside.append(set())
        elif found[0] in "]}":
            inside.pop()
        elif found[2]:
            if (key := json.loads(found[1])) in inside[-1]:
                raise NotJson(f"the key {found[1]} is given twice: keep one", text.count("\n", 0, found.start()) + 1)
            inside[-1].add(key)
