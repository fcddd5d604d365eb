"""How what the commands print is laid out: counts, paths and lines as people like to read them."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from proxy.config.library import LeftOut
from proxy.core.texts import printable

WIDTH: Final = 80
"""Columns of a terminal, as far as lines can be wrapped."""
LINES: Final = 2
"""Lines of a description that are shown."""
LONGEST: Final = 1000
"""Characters of it that are looked at."""


def counted(number: int, what: str) -> str:
    """`1 skill`, `10,000 skills`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def short(path: Path) -> Path:
    """`path` as short as it can be said: from the folder we are in, where it is in there."""
    real = path.parent.resolve() / path.name
    here = Path.cwd().resolve()
    return real.relative_to(here) if real.is_relative_to(here) else real


def indented(text: str) -> str:
    """`text` in lines that fit, further in where it goes on."""
    return textwrap.fill(
        printable(text),
        WIDTH,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def abridged(text: str) -> str:
    """The beginning of a text that may be long and hold anything, indented; empty where there is nothing to see."""
    plain = " ".join(printable(text[:LONGEST]).split())
    return textwrap.indent(textwrap.fill(plain, WIDTH - 2, max_lines=LINES, placeholder=" …"), "  ")


def say(line: str) -> None:
    """Print one line, whatever it holds."""
    print(printable(line))


def not_offered(skills: Sequence[LeftOut]) -> str:
    """What is to be said of skills that are not offered, set apart."""
    lines = [indented(f"{left.id}: {left.why}" + (f" ({left.file})" if left.file else "")) for left in skills]
    return "\n".join(["\nNot offered:", *lines])
