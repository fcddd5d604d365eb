"""Reads a front matter; where it is not valid YAML, key by key, so that one wrong line costs that key alone."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Final

from proxy.config.document import Document, Plain, parse_text
from proxy.config.problems import Place, Problem, Refused, shown

MAX_KEYS: Final = 200
"""Keys that are read one by one at most: each is parsed for itself."""

_KEY: Final = re.compile(r"(?![\s#\]})]|-(?:\s|$))(?P<key>[^\n:]+?|\"[^\"\n]*\"|'[^'\n]*')[ \t]*:(?=\s|$)")
_QUOTED: Final = re.compile(r"(?P<quote>[\"'])(?P<text>.*)(?P=quote)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
_CLOSING: Final = {"[": "]", "{": "}"}


@dataclass(frozen=True)
class Unreadable:
    """A key whose value cannot be read."""

    place: Place
    problem: Problem
    text: str
    """What is written there, with the key."""

    is_open: bool
    """Whether a quote or a bracket opens there and is not closed, so that it is doubtful what is inside of it."""


@dataclass(frozen=True)
class FrontMatter:
    """What a front matter says, as far as it can be read."""

    document: Document
    fault: Problem | None = None
    """Why it is not valid YAML."""

    quoted: tuple[Problem, ...] = ()
    """Texts that were read as if they were in quotes, each with what is wrong with them as they stand."""

    unreadable: tuple[Unreadable, ...] = ()


def read_front_matter(
    text: str, file: str, otherwise: str, limit: int, texts: Collection[str], nested: str
) -> FrontMatter:
    """The front matter `text`, whose lines are those of `file`.

    Where it is not valid YAML, its keys are read one by one, and those below the key `nested`. Keys of `texts` are then
    text as the line has it. `limit`, `otherwise`: as for `parse_text`.

    Raises `Refused` as `parse_text`, where it has no keys that could be read one by one, or too many.
    """
    try:
        document = parse_text(text, file, otherwise, limit)
    except Refused as refused:
        problems = refused.problems
    else:
        problems = document.problems
        if not problems:
            return FrontMatter(document)
    reading = _ByKey(file, limit, texts, nested)
    if not reading.read(text, 1, ()):
        raise Refused(problems)
    return FrontMatter(
        Document(file, reading.data, reading.lines), problems[0], tuple(reading.quoted), tuple(reading.unreadable)
    )


def as_text(text: str, key: str, file: str) -> str | None:
    """The value of `key`, which stands at the left of a line of `text`, as its lines have it; None for none."""
    block = next((block for block in _blocks(text, 1) if block.key == key), None)
    return None if block is None else _text_of(block, file)


@dataclass(frozen=True)
class _Block:
    """A key at the left, and what stands there until the next one; `line`: its first, from 1."""

    key: str
    line: int
    text: str

    @property
    def value(self) -> str:
        """What stands after the key."""
        found = _KEY.match(self.text)
        lines = self.text[found.end() if found else 0 :].splitlines()
        while lines and (not lines[-1].strip() or lines[-1].startswith("#")):
            lines.pop()
        return "\n".join(lines).strip()

    @property
    def is_open(self) -> bool:
        """Whether a quote or a bracket opens the value and is not closed."""
        value = _ESCAPED.sub("", self.value)
        first = value[:1]
        if first in _CLOSING:
            return value.count(first) > value.count(_CLOSING[first])
        return first in {"'", '"'} and value.count(first) % 2 == 1


@dataclass
class _ByKey:
    """One reading of all keys."""

    file: str
    limit: int
    texts: Collection[str]
    nested: str
    data: dict[str, Plain] = field(default_factory=dict[str, Plain])
    lines: dict[Place, int] = field(default_factory=dict[Place, int])
    quoted: list[Problem] = field(default_factory=list[Problem])
    unreadable: list[Unreadable] = field(default_factory=list[Unreadable])

    def read(self, text: str, line: int, above: Place) -> bool:
        """Read the keys of the mapping `text`, which begins on `line`; whether it has any, and not too many."""
        blocks = [*_blocks(text, line)]
        if not 1 <= len(blocks) <= MAX_KEYS:
            return False
        mapping = self.data
        if above:
            mapping = self.data[self.nested] = {}
        for block in blocks:
            self._add(block, mapping, above)
        return True

    def _add(self, block: _Block, mapping: dict[str, Plain], above: Place) -> None:
        place: Place = (*above, block.key)
        if (first := self.lines.get(place)) is not None:
            self._give_up(block, place, f"given twice (first on line {first}): keep one")
            return
        self.lines[place] = block.line
        try:
            document = parse_text(block.text, self.file, "", self.limit)
            problem = next(iter(document.problems), None)
        except Refused as refused:
            document, problem = None, refused.problems[0]
        if document is not None and problem is None and [*document.data] == [block.key]:
            mapping[block.key] = document.data[block.key]
            self.lines |= {(*above, *at): line + block.line - 1 for at, line in document.lines.items() if at}
            return
        what = problem.what if problem else 'not of the form "key: value"'
        line = block.line - 1 + (problem.line if problem else 1)
        if block.key in self.texts and (value := _text_of(block, self.file)) is not None:
            mapping[block.key] = value
            self.quoted.append(Problem(self.file, line, shown(place), what))
        elif place != (self.nested,) or not self._read_nested(block):
            self._give_up(block, place, what, line)

    def _read_nested(self, block: _Block) -> bool:
        first, _, rest = block.text.partition("\n")
        return not first.partition(":")[2].strip() and self.read(dedent(rest), block.line + 1, (self.nested,))

    def _give_up(self, block: _Block, place: Place, what: str, line: int = 0) -> None:
        problem = Problem(self.file, line or block.line, shown(place), what)
        self.unreadable.append(Unreadable(place, problem, block.text, block.is_open))


def _blocks(text: str, line: int) -> Iterator[_Block]:
    """The keys at the left of `text`, which begins on `line`; what stands above the first is one with an empty key."""
    key, start, lines = "", line, list[str]()
    for number, each in enumerate(text.splitlines(keepends=True), line):
        if found := _KEY.match(each):
            if key or any(above.strip() and not above.startswith("#") for above in lines):
                yield _Block(key, start, "".join(lines))
            key, start, lines = found["key"].strip("\"'"), number, list[str]()
        lines.append(each)
    if key:
        yield _Block(key, start, "".join(lines))


def _text_of(block: _Block, file: str) -> str | None:
    """The value of a block as if it stood in quotes; None where no text can hold it."""
    value = block.value
    if found := _QUOTED.fullmatch(value):
        value = found["text"]
    lines = value.replace("'", "''").splitlines()
    try:
        document = parse_text("k: '" + "\n ".join(lines) + "'", file, "")
    except Refused:
        return None
    text = document.data["k"]
    return text if isinstance(text, str) and not document.problems else None
