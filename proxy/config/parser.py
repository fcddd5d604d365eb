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
    """PyYAML's own parser, with tabs between the tokens of JSON; its errors are those that are explained."""

    def scan_to_next_token(self) -> None:
        super().scan_to_next_token()
        while self.flow_level and self.peek() == "\t":
            self.forward()
            super().scan_to_next_token()


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
