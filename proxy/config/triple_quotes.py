"""Texts between three quotes, as Python has them, in YAML and JSON: put as what both can read, on the same lines."""

import json
import re
from textwrap import dedent
from typing import Final

QUOTES: Final = ('"""', "'''")

_OPENING: Final = re.compile(r"""(?:[^#\n"']|"[^"\n]*"|'[^'\n]*')*?:[ \t]*(?P<quote>\"{3}|'{3}(?=[ \t]*\r?$))""")
"""Not inside of other quotes; `'''` only at the end of a line, since `'''x'` is YAML for a text with an apostrophe."""
_BLOCK: Final = re.compile(r"(?P<indent>[ \t]*(?:- +)*)(?P<key>[^\n]*?:[ \t]+)?[|>][-+0-9]*[ \t]*(?:#.*)?\r?")


def without_triple_quotes(text: str) -> str:
    """`text` with every value between three quotes as one in double quotes; what follows stays on its line.

    What stands in a block text (`|`, `>`) is left alone.
    """
    if not any(quote in text for quote in QUOTES):
        return text
    lines = text.split("\n")
    out: list[str] = []
    block: int | None = None
    while len(out) < len(lines):
        line = lines[len(out)]
        if block is not None and (not line.strip() or len(line) - len(line.lstrip()) > block):
            out.append(line)
            continue
        block = _block_indent(line)
        out += [line] if block is not None else _rewritten(lines, len(out))
    return "\n".join(out)


def unquoted(text: str) -> str:
    """What stands between three quotes, where all of `text` does, else `text`."""
    bare = text.strip()
    for quote in QUOTES:
        if len(bare) >= 2 * len(quote) and bare.startswith(quote) and bare.endswith(quote):
            return _shifted(bare.removeprefix(quote).removesuffix(quote))
    return text


def _block_indent(line: str) -> int | None:
    """How deep the key stands whose block text begins on the next line; None where none does."""
    if (found := _BLOCK.fullmatch(line)) is None or not (found["key"] or "-" in found["indent"]):
        return None
    return len(found["indent"]) if found["key"] else found["indent"].rindex("-")


def _rewritten(lines: list[str], index: int) -> list[str]:
    """The lines for those from `index` on, as many as a text there has."""
    done, rest, last = "", lines[index], index
    while opening := _OPENING.match(rest):
        quote, begun = opening["quote"], rest[opening.end() :]
        remaining = "\n".join([begun, *lines[last + 1 :]])
        inside, closed, after = remaining.partition(quote)
        count = inside.count("\n")
        if not closed:
            break
        done += rest[: opening.start("quote")] + json.dumps(_shifted(inside), ensure_ascii=False)
        rest, last = after.partition("\n")[0], last + count
    return [done + rest, *[""] * (last - index)]


def _shifted(inside: str) -> str:
    """A text without the indentation that its lines have in common, and without empty lines around it."""
    first, *others = inside.replace("\r\n", "\n").split("\n")
    return "\n".join([first.strip(), dedent("\n".join(others))] if others else [first]).strip("\n").rstrip(" \t\n")
