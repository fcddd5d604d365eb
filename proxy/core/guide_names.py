"""Where a skill's guide names tools, and by which names: models call what a guide says, letter by letter.

A word of prose is not a name: `search` counts only in code and in calls, `search_issues` and `searchIssues` everywhere.
"""

import re
from collections.abc import Collection, Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

Form: TypeAlias = Literal["call", "code", "word"]
"""How a name stands in a guide: called or given as a tool, alone in code, or as a word of the text."""

MOST_READ: Final = 256 * 1024
"""Characters of a guide that are looked at."""
_CODE: Final = re.compile(r"(?<!`)(`+)(?!`)([^`\n]{1,300})\1(?!`)")
"""Code within a line, in Markdown."""
_CALL: Final = re.compile(r"(?<![\w./\\@#$:-])([\w.:/-]{1,200})\((?!s\))")
"""What is called, `search(`; `issue(s)` is a plural."""
_GIVEN: Final = re.compile(r"""\b(?:tool|tool_name|toolName)["']?\s*[:=]\s*["']([^"'\n]{1,200})["']""")
"""A tool that is given as an argument: `{"tool": "search"}`."""
_WORD: Final = re.compile(r"(?<![\w./\\@#$:-])[A-Za-z][\w-]{0,199}(?![\w/\\=-]|\.\w)")
"""A word that is not part of a path, an option, a variable or an assignment."""
_UNMISTAKABLE: Final = re.compile(r"[A-Za-z0-9]_+[A-Za-z0-9]|[a-z0-9][A-Z]")
"""What no word of prose has: `get_time`, `getTime`."""


class Named(NamedTuple):
    """A name in a guide; `line` counts from 1."""

    name: str
    line: int
    form: Form


def is_unmistakable(name: str) -> bool:
    """Whether no word of prose is written like this."""
    return _UNMISTAKABLE.search(name) is not None


def names_in(guide: str, known: Collection[str], ambiguous: Collection[str] = ()) -> dict[str, Named]:
    """Those of the `known` names that stand in a guide as names, each where it does so first.

    `ambiguous`: those that mean something else, too, such as arguments; they count where they are called alone.
    """
    found: dict[str, Named] = {}
    for number, line in enumerate(guide[:MOST_READ].splitlines(), 1):
        for name, form in _in_line(line):
            if name in known and name not in found and (form == "call" or name not in ambiguous):
                found[name] = Named(name, number, form)
    return found


def _in_line(line: str) -> Iterator[tuple[str, Form]]:
    for pattern in (_GIVEN, _CALL):
        for match in pattern.finditer(line):
            yield match[1], "call"
    for match in _CODE.finditer(line):
        yield match[2].strip(), "code"
    for match in _WORD.finditer(line):
        if is_unmistakable(match[0]):
            yield match[0], "word"
