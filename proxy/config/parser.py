"""YAML text as nodes: PyYAML's parser with text left as text, bounds, and its errors in plain words."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (PyYAML's type stubs leave the inside of the parser untyped.)

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.reader import ReaderError
from yaml.scanner import ScannerError

from proxy.config.problems import Problem, Refused
from proxy.config.yaml_errors import explained

NODE_LIMIT = 100_000
"""Most values that a file may hold once its aliases are expanded."""
DEPTH_LIMIT = 64
"""Deepest nesting, in levels."""

NULLS = frozenset({"", "~", "null", "Null", "NULL"})
"""How a plain null is written."""
TAG = "tag:yaml.org,2002:"
"""What the tags of YAML's own types begin with."""
NULL, TEXT, LIST, MAPPING, MERGE = (f"{TAG}{name}" for name in ("null", "str", "seq", "map", "merge"))

_READ_OTHERWISE = re.compile(r"[\t!\ufeff]|[|>][-+0-9]*#")
"""Tabs, tags, byte order marks and comments glued to a block's mark: libyaml means something else by them."""

_BREAKS = "\r\n\x85\u2028\u2029"
_ENDS_A_LINE = f"#\0{_BREAKS}"


class _Composer(Composer):
    """Makes nodes of what the parser that it is joined to reads: text left as text, and within bounds."""

    peek_event: Callable[[], Any]

    _depth = 0
    _nodes = 0

    def resolve(self, kind: type[yaml.Node], value: object, implicit: Sequence[bool]) -> str:
        if kind is yaml.MappingNode:
            return MAPPING
        if kind is yaml.SequenceNode:
            return LIST
        if implicit[0] and value in NULLS:
            return NULL
        return MERGE if implicit[0] and value == "<<" else TEXT

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()
        self._nodes += 1
        self._depth += 1
        if self._depth > DEPTH_LIMIT or self._nodes > NODE_LIMIT:
            what = "nested too deep" if self._depth > DEPTH_LIMIT else "too many values"
            raise yaml.MarkedYAMLError(problem=what, problem_mark=event.start_mark)
        if not isinstance(event, yaml.AliasEvent):
            self.anchors.pop(getattr(event, "anchor", None), None)  # an anchor may be set anew, says YAML
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_scalar_node(self, anchor: dict[Any, yaml.Node]) -> yaml.ScalarNode:
        tagged = self.peek_event().tag is not None
        node = super().compose_scalar_node(anchor)
        if tagged and not node.style:
            node.style = "'"  # a tag says as well as quotes that `!!str 3` is text
        return node


class _Loader(_Composer, yaml.SafeLoader):
    """PyYAML's own parser, with tabs wherever YAML allows them; its errors are those that are explained."""

    def scan_to_next_token(self) -> None:
        super().scan_to_next_token()
        while self.peek() == "\t" and (self.flow_level or self._separates()):
            if not self.flow_level:
                self.allow_simple_key = False  # a key after a tab would be indented by it
            self.forward()
            super().scan_to_next_token()

    def _separates(self) -> bool:
        """Whether the tab here indents nothing: it is not at the left of its line, or nothing but a comment follows."""
        if self.buffer[self.pointer - self.column : self.pointer].strip(" \t"):
            return True
        end = self.pointer
        while self.buffer[end] in " \t":
            end += 1
        return self.buffer[end] in _ENDS_A_LINE

    def scan_plain_spaces(self, indent: int, start_mark: yaml.Mark) -> list[str]:
        length = 0
        while self.peek(length) in " \t":
            length += 1
        spaces = self.prefix(length)
        if "\t" not in spaces:
            return super().scan_plain_spaces(indent, start_mark) or []
        self.forward(length)
        return (super().scan_plain_spaces(indent, start_mark) or []) if self.peek() in _BREAKS else [spaces]

    def scan_block_scalar_indicators(self, start_mark: yaml.Mark) -> tuple[bool | None, int | None]:
        start = self.pointer
        try:
            return super().scan_block_scalar_indicators(start_mark)
        except ScannerError:
            if self.peek() != "\t":
                raise
        marks = self.buffer[start : self.pointer]
        indentation = marks.strip("+-")
        return (None if marks == indentation else "+" in marks), (int(indentation) if indentation else None)

    def scan_block_scalar_ignored_line(self, start_mark: yaml.Mark) -> None:
        while self.peek() in " \t":
            self.forward()
        super().scan_block_scalar_ignored_line(start_mark)


if yaml.__with_libyaml__:

    class _QuickLoader(_Composer, yaml.CSafeLoader):
        """The parser of libyaml, seven to ten times as quick, which PyYAML is built with nearly everywhere."""

        def __init__(self, text: str) -> None:
            Composer.__init__(self)
            yaml.CSafeLoader.__init__(self, text)

    _quick: Callable[[str], Composer] = _QuickLoader
else:
    _quick = _Loader


def composed(text: str, file: str) -> yaml.Node | None:
    """The top node of `text`, with the tags above for what has none of its own; None where there is no document.

    Raises `Refused`, naming `file`.
    """
    if not _READ_OTHERWISE.search(text):
        with suppress(yaml.YAMLError, ValueError, OverflowError):  # what is wrong is found again below, and explained
            return _quick(text).get_single_node()
    loader = None
    try:
        loader = _Loader(text)
        return loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        line, what = explained(error, text, partial(_tokens, text))
        raise Refused([Problem(file, line, "", what)]) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"the character U+{ord(text[error.position]):04X} cannot stand in YAML"
        raise Refused([Problem(file, line, "", what)]) from None
    except (ValueError, OverflowError):  # PyYAML leaves these to Python: `\UFFFFFFFF`, `%YAML 1.` and 5,000 digits
        line = loader.line + 1 if loader else 1
        raise Refused([Problem(file, line, "", "not valid YAML: a number or an escape is out of range")]) from None


def _tokens(text: str) -> Sequence[yaml.Token]:
    """The tokens of `text` up to the first that cannot be read."""
    loader = _Loader(text)
    tokens: list[yaml.Token] = []
    try:
        while loader.check_token():
            tokens.append(loader.get_token())
    except (yaml.YAMLError, ValueError, OverflowError):
        tokens += loader.tokens
    return tokens
