"""YAML text as plain data in which text stays text, with the line of every place (design rule 21)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import yaml

from proxy.config.parser import DEPTH_LIMIT, LIST, MAPPING, MERGE, NODE_LIMIT, NULL, NULLS, TAG, TEXT, composed
from proxy.config.problems import Place, Problem, Refused, shown
from proxy.config.triple_quotes import without_triple_quotes

Plain: TypeAlias = "str | list[Plain] | dict[str, Plain] | None"
"""What a file says: every scalar is text as written, except plain nulls, which are None.

Text without quotes is `Bare`, for the few places where it may stand for a number or a boolean.
"""

Leaf = TypeVar("Leaf")
Tree: TypeAlias = "Leaf | list[Tree[Leaf]] | dict[str, Tree[Leaf]]"
"""The same with other scalars."""


class Bare(str):
    """Text that stands without quotes."""

    __slots__ = ()


_NO_KEY = "a key must be text, not a list or a mapping"
_TOP = "the top level must be a mapping with keys such as servers and skill_configs"


@dataclass(frozen=True)
class Document:
    """A file's content. `data`: its top level, empty for an empty file. `problems`: keys and tags it may not have."""

    file: str
    data: Mapping[str, Plain]
    lines: Mapping[Place, int]
    problems: tuple[Problem, ...] = ()
    empty: bool = False

    def line(self, place: Place) -> int:
        """The line (from 1) of a place, or of the deepest part of it that is in the file."""
        return line_in(self.lines, place)


def line_in(lines: Mapping[Place, int], place: Place) -> int:
    """The line (from 1) that `lines` have for a place, or for the deepest part of it that is in there; else 1."""
    return next((lines[place[:end]] for end in range(len(place), 0, -1) if place[:end] in lines), 1)


def parse(content: bytes, file: str) -> Document:
    """The document that `content`, the bytes of the file called `file`, holds.

    Texts between three quotes are read, too. Raises `Refused` for what is not UTF-8 (a byte order mark is fine), not
    YAML, more than one document, not a mapping at the top, or too large once its aliases are expanded.
    """
    return parse_text(without_triple_quotes(decoded(content, file)), file, _TOP)


def decoded(content: bytes, file: str) -> str:
    """The text that `content` is. Raises `Refused` where it is not UTF-8; a byte order mark is fine."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Refused([Problem(file, line, "", "not UTF-8 text: save the file as UTF-8")]) from None


def parse_text(text: str, file: str, otherwise: str, limit: int = NODE_LIMIT) -> Document:
    """The document that `text` holds, with at most `limit` values once its aliases are expanded.

    Raises `Refused` as `parse`; `otherwise` is what to say where the top is no mapping.
    """
    root = composed(text, file)
    if root is None or (isinstance(root, yaml.ScalarNode) and root.tag == NULL):
        return Document(file, {}, {}, empty=True)
    reading = Reading(file, as_text, limit)
    data = reading.value(root, ())
    if not isinstance(data, dict):
        raise Refused([*reading.problems, Problem(file, _line(root), "", otherwise)])
    return Document(file, data, reading.lines, tuple(reading.problems))


def as_text(node: yaml.ScalarNode, text: str | None) -> str | None:
    """A scalar as `Plain` has it."""
    return text if text is None or node.style else Bare(text)


class Reading(Generic[Leaf]):
    """Turns nodes of the file called `file` into plain data, within the bound `limit` on the number of values.

    `leaf` makes the values of scalars, of the node and its text, None for a plain null. `lines` has the line of every
    place that was met, `problems` what is wrong.
    """

    def __init__(self, file: str, leaf: Callable[[yaml.ScalarNode, str | None], Leaf], limit: int = NODE_LIMIT) -> None:
        self.lines: dict[Place, int] = {}
        self.problems: list[Problem] = []
        self._file = file
        self._leaf = leaf
        self._limit = limit
        self._left = limit
        self._inside: list[yaml.Node] = []

    def value(self, node: yaml.Node, place: Place) -> "Tree[Leaf]":
        """What `node`, which stands at `place`, says. Raises `Refused` beyond the bounds."""
        self.lines.setdefault(place, _line(node))
        self._spend(node, place)
        if isinstance(node, yaml.ScalarNode):
            return self._leaf(node, self._scalar(node, place))
        self._inside.append(node)
        plain: Tree[Leaf]
        if isinstance(node, yaml.SequenceNode):
            self._tag(node, LIST, place)
            plain = [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
        else:
            plain = mapping = dict[str, "Tree[Leaf]"]()
            for key, (key_node, value) in self._entries(node, place).items():
                self.lines[*place, key] = _line(key_node)
                mapping[key] = self.value(value, (*place, key))
        self._inside.pop()
        return plain

    def _entries(self, node: yaml.Node, place: Place) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """The keys of a mapping, merged ones first, each with its node and its value."""
        self._tag(node, MAPPING, place)
        own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merges = 0
        for key_node, value in node.value:
            if key_node.tag == MERGE:
                merges += 1
                if merges > 1:
                    self._problem(key_node, place, "<< is given twice here: merge a list, <<: [*a, *b]")
                for source in self._sources(value, place):
                    for key, entry in self._merged(source, place).items():
                        merged.setdefault(key, entry)
            elif (key := self._key(key_node, place)) is not None:
                if key in own:
                    first = _line(own[key][0])
                    self._problem(key_node, (*place, key), f"given twice (first on line {first}): keep one")
                else:
                    own[key] = (key_node, value)
        return {**merged, **own}

    def _sources(self, value: yaml.Node, place: Place) -> Iterator[yaml.Node]:
        for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
            if isinstance(source, yaml.MappingNode):
                yield source
            else:
                self._problem(value, place, "<< merges a mapping or a list of mappings")

    def _merged(self, source: yaml.Node, place: Place) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        self._spend(source, place)
        self._left -= len(source.value)
        self._inside.append(source)
        entries = self._entries(source, place)
        self._inside.pop()
        return entries

    def _key(self, node: yaml.Node, place: Place) -> str | None:
        if not isinstance(node, yaml.ScalarNode):
            what = 'an expression needs quotes: write "{{ … }}"' if _was_an_expression(node) else _NO_KEY
            self._problem(node, place, what)
            return None
        key = self._scalar(node, place)
        if key is None:
            self._problem(node, place, f"a key cannot be {node.value or 'empty'}: quote it if it is a name")
        return key

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> str | None:
        if node.tag == NULL and node.value in NULLS:
            return None
        if node.tag != MERGE:
            self._tag(node, TEXT, place)
        text = node.value
        if "\0" in text:
            self._problem(node, place, "text cannot hold the character NUL")
            text = text.replace("\0", "")
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")  # JSON writes some characters as two halves
        except UnicodeDecodeError:
            self._problem(node, place, "half of a \\u pair: the other half is missing")
            return text.encode("utf-8", "replace").decode()

    def _spend(self, node: yaml.Node, place: Place) -> None:
        self._left -= 1
        if any(node is outer for outer in self._inside):
            raise self._fatal(node, place, "an alias stands inside what it names")
        if len(self._inside) > DEPTH_LIMIT:
            raise self._fatal(node, place, "nested too deep")
        if self._left < 0:
            what = f"more than {self._limit:,} values once the aliases are expanded"
            raise self._fatal(node, place, what)

    def _tag(self, node: yaml.Node, usual: str, place: Place) -> None:
        if node.tag != usual:
            tag = node.tag.replace(TAG, "!!", 1)
            self._problem(node, place, f"the tag {tag} means nothing here: remove it")

    def _problem(self, node: yaml.Node, place: Place, what: str) -> None:
        self.problems.append(Problem(self._file, _line(node), shown(place), what))

    def _fatal(self, node: yaml.Node, place: Place, what: str) -> Refused:
        return Refused([*self.problems, Problem(self._file, _line(node), shown(place[:2]), what)])


def _was_an_expression(key: yaml.Node) -> bool:
    """Whether a key is what YAML makes of the inner half of `{{ … }}`."""
    return isinstance(key, yaml.MappingNode) and bool(key.flow_style)


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1 if node.start_mark else 1
