"""Plain values with the types of YAML 1.2's core schema, as JSON has them (design rule 21)."""

import math
import re
from typing import TypeAlias

import yaml

from proxy.config.document import Bare, Plain, Reading, Tree
from proxy.config.parser import NODE_LIMIT, composed
from proxy.config.problems import Refused

Scalar: TypeAlias = str | int | float | bool | None
Json: TypeAlias = "Tree[Scalar]"

_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_BASES = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LONGEST = 309
"""Characters of a number: the largest that every reader of JSON knows has as many digits."""


def of_text(text: str, file: str, limit: int = NODE_LIMIT) -> Json:
    """What the YAML `text` says, with at most `limit` values once its aliases are expanded; None where it is empty.

    Raises `Refused`, naming `file`, with every problem: also keys given twice, tags, and what is beyond the bounds.
    """
    root = composed(text, file)
    return None if root is None else of_node(root, file, limit)


def of_node(node: yaml.Node, file: str, limit: int = NODE_LIMIT) -> Json:
    """What a node that `composed` made says. Raises `Refused` as `of_text`."""
    reading = Reading[Scalar](file, _of_scalar_node, limit)
    value = reading.value(node, ())
    if reading.problems:
        raise Refused(reading.problems)
    return value


def _of_scalar_node(node: yaml.ScalarNode, text: str | None) -> Scalar:
    return text if text is None or node.style else of_plain(text)


def typed(value: Plain) -> Json:
    """What a part of a document says: its text without quotes as `of_plain` has it."""
    if isinstance(value, Bare):
        return of_plain(str(value))
    if isinstance(value, dict):
        return {key: typed(inner) for key, inner in value.items()}
    return [typed(inner) for inner in value] if isinstance(value, list) else value


def of_plain(text: str) -> Scalar:
    """What `text` means without quotes around it, null aside.

    What JSON has no number for stays text: `.inf`, `.nan`, and numbers out of range.
    """
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if len(text) > _LONGEST:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OTHER_BASES.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text
