"""YAML is read by libyaml where PyYAML has it: much quicker, and with the same meaning."""

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.config import parser
from proxy.config.document import parse
from proxy.config.parser import DEPTH_LIMIT, NODE_LIMIT, composed
from proxy.config.problems import Refused

PIECES = [
    *("a", "b: ", "- ", "\n", "\n  ", "\n    ", " ", "\t", ": ", ":", "{", "}", "[", "]", ", ", "'", '"', "|", "|-\n"),
    *(">\n", "&x ", "*x", "# c", "#", "!!str ", "!", "~", "null", "<<: ", "---\n", "...\n", "%YAML 1.2\n", "\\x41"),
    *("é", "\u2028", "\x85", "\r\n", "\r", "\ufeff", "3", "-", "@", "`", "\\\n", "''", "k: v\n", "k:\n  - v\n"),
]


def meaning(node: yaml.Node | None) -> object:
    if isinstance(node, yaml.ScalarNode):
        return node.tag, node.value, bool(node.style)
    if isinstance(node, yaml.SequenceNode):
        return node.tag, [meaning(item) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        return node.tag, [(meaning(key), key.start_mark.line, meaning(value)) for key, value in node.value]
    return node


def said(text: str) -> object:
    try:
        return meaning(composed(text, "f"))
    except Refused as refused:
        return str(refused)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example("a:\tb")
@example("a: |#b\n  c")
@example("\n\ufeffa: b")
@example("! ")
def test_both_parsers_say_the_same(text):
    """Also what is wrong with a text, and where; so a file means the same on every machine."""
    quickly = said(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "_quick", parser._Loader)
        assert said(text) == quickly


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML was built without libyaml")
def test_libyaml_reads_what_is_right(monkeypatch):
    """The other parser is not even made."""
    monkeypatch.setattr(parser, "_Loader", None)
    assert composed("a: &x [b, 'c']\nd: *x\n", "f") is not None


@pytest.mark.parametrize("text", ["[" * (DEPTH_LIMIT + 1), "[" * 100_000, "- " * 5_000, "a: " + "{b: " * 3_000])
def test_what_is_nested_too_deep_is_refused(text):
    with pytest.raises(Refused, match="nested too deep"):
        composed(text, "f")


def test_what_holds_too_much_is_refused():
    with pytest.raises(Refused, match="too many values"):
        composed("[" + "a, " * NODE_LIMIT + "]", "f")


TABS = {
    "k:\tv\n": {"k": "v"},
    "k: v\t\n": {"k": "v"},
    "k: v \t \r\n": {"k": "v"},
    "k\t:\tv\n": {"k": "v"},
    "k:\t\n  a: b\n": {"k": {"a": "b"}},
    "k:\n  a:\tb\t\n": {"k": {"a": "b"}},
    "k:\t# c\n": {"k": None},
    "k: v\t# c\n": {"k": "v"},
    "k: 'v'\t# c\n": {"k": "v"},
    "k: v\t#c": {"k": "v"},
    "k: a\tb\n": {"k": "a\tb"},
    "k:\n-\tv\n- w\t\n": {"k": ["v", "w"]},
    "k: [a,\tb]\t\n": {"k": ["a", "b"]},
    "k: &a\tv\n": {"k": "v"},
    "k: |\t\n  v\n": {"k": "v\n"},
    "k:\t>-\t# c\n  v\n": {"k": "v"},
    "k: |2+\t\n   v\n": {"k": " v\n"},
    "\t\nk: v\n": {"k": "v"},
    "k: v\n \t\n": {"k": "v"},
    "k: v\n\t# c\nl: w\n": {"k": "v", "l": "w"},
    "---\t\nk: v\n": {"k": "v"},
    "k: a\t\n  b\n": {"k": "a b"},
    "k: |\n  a\n  \tb\n": {"k": "a\n\tb\n"},
}


@pytest.mark.parametrize("text", TABS)
def test_a_tab_stands_wherever_yaml_allows_it(text):
    """After a colon, at a line's end, between values; in a file with tabs as in a front matter."""
    assert parse(text.encode(), "").data == TABS[text]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        *(("k:\n\ta: b\n", 2), ("k:\n  a: b\n\tc: d\n", 3), ("\tk: v\n", 1), ("k:\n  \ta: b\n", 2)),
        *(("k:\n-\ta: b\n", 2), ("k:\n  - - \ta: b\n", 2), ("k:\n\t- a\n", 2)),
    ],
)
def test_a_tab_never_indents(text, line):
    with pytest.raises(Refused, match=f"^f:{line}: a tab cannot indent or separate here: use spaces$"):
        parse(text.encode(), "f")
