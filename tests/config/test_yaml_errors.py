"""What is no YAML: the line to look at, and what to do there (case B58)."""

import pytest

GUIDE = "must be indented deeper than usage, and no line less than the first"
INDENT = "the indentation does not fit: this line must begin in the same column as its neighbours"
AFTER_QUOTE = "text goes on after the closing quote; a ' inside '…' is written '', a \" inside \"…\" is written \\\""
BACKSLASH = "\\ has a special meaning in double quotes: use single quotes"
COLON = 'text with ": " in it needs quotes, or a value stands on the wrong line'
ELSE_QUOTES = ", or the text above, if it goes on here, needs quotes"
PAIR = 'not of the form "key: value"'
STAR = 'a * that stands for itself needs quotes: "*"'
MISSING = ": the colon is missing, or the text above goes on here and must be indented deeper"

CASES = [
    # colons
    ("desc: Note: this has a colon\n", f"1: {COLON}"),
    ("a: b: c\n", f"1: {COLON}"),
    ("a: {desc: Note: x}\n", '1: text with ": " in it needs quotes, or a comma is missing'),
    ("a:\n  command:x\n  args: [y]\n", f"2: {PAIR} (a space is missing after the colon?)"),
    ("a:\n  args: [x]\n  command:x\n", f"3: {PAIR} (a space is missing after the colon?)"),
    ("a:\n  command: x\n  junk\n  args: [y]\n", f"3: {PAIR}{MISSING}"),
    ("a\nb: c\n", f"1: {PAIR}{MISSING}"),
    # indentation
    ("a:\n  b: c\n   d: [e]\n", f"3: {INDENT} (from line 2 on){ELSE_QUOTES}"),
    ("s:\n  a:\n    b: c\n   d: e\n", f"4: {INDENT} (from line 2 on)"),
    ("s:\n  a: {b: c}\n   b: {b: c}\n", f"3: {INDENT} (from line 2 on)"),
    ("a:\n  b:\n     - x\n    - y\n", f"4: {INDENT} (from line 2 on)"),
    ("  a: b\nc: d\n", "2: not part of what stands above: begin it in the same column as the first line"),
    ('{"a": "b"}\nc: d\n', "2: not part of what stands above: "),
    ("a:\n  - x\n  b: c\n", '3: a key cannot stand among list items ("- ", from line 2 on)'),
    ("a:\n  b: c\n  - d\n", '3: a list item ("- ") cannot stand among keys (from line 2 on)'),
    ("a: - b\n", '1: text that begins with "- " needs quotes; a list item has its own line'),
    ("a: b\n\tc: d\n", "2: a tab cannot indent or separate here: use spaces"),
    # text after | and >
    ("s:\n  usage: |\n  text\n  more: x\n", f"3: the text below usage: | {GUIDE}"),
    ("s:\n  usage: >-\n  text\n", f"3: the text below usage: > {GUIDE}"),
    ("s:\n  - usage: |\ntext\n", f"3: the text below usage: | {GUIDE}"),
    ("s:\n  usage: |\n  - text\n", f"3: the text below usage: | {GUIDE}"),
    ("s:\n  usage: |\n    text\n  more\n  a: b\n", f"4: the text below usage: | {GUIDE}"),
    ("s:\n  usage: |\n      text\n    more\n", f"4: the text below usage: | {GUIDE}"),
    ("s:\n  ? |\n    text\n  more\n  a: b\n", f"4: {PAIR}{MISSING}"),
    ("usage: | text\n", "1: after | or > the text begins on the next line; as plain text it needs quotes"),
    ("a: {usage: |\n x}\n", "1: | cannot stand inside { } or [ ] (is one of them not closed?)"),
    # brackets
    ("s:\n  a: {b: c\n  d: {e: f}\n", "2: a { opens here and is not closed"),
    ("s:\n  a: [b, c\n  d: [e]\n", "2: a [ opens here and is not closed"),
    ("s: {a: b\n", "1: a { opens here and is not closed"),
    ("s: [\n", "1: a [ opens here and is not closed"),
    ("s: [a]\nb: [{c: [d]},\n", "2: a [ opens here and is not closed"),
    ("s: {a: [\n}\n", "1: a [ opens here and is not closed"),
    ("s: {a: {\n", "1: a { opens here and is not closed"),
    ("s: {a:\n", "1: a { opens here and is not closed"),
    ("s: [a,,b]\n", "1: a comma too many, or text that is missing before it"),
    ("s: ,b\n", "1: a comma separates only inside { } and [ ]; as text it needs quotes"),
    ("s: ]\n", "1: a ] closes here what no [ has opened; as text it needs quotes"),
    ("s: {a: [b}\n", "1: a [ opens here and is not closed"),
    (
        '{"a": {"b": "c"\n   "d": "e"}}\n',
        "2: a comma is missing before this, or the { that opens on line 1 is not closed",
    ),
    ('a: ["b" "c"]\n', "1: text with any of { } [ ] , in it needs quotes, or a comma is missing"),
    ("a: {b: ${C}}\n", "1: text with any of { } [ ] , in it needs quotes, or a comma is missing"),
    ("a: {b: c}}\n", "1: a } closes here what no { has opened"),
    ("a: [b]]\n", "1: a ] closes here what no [ has opened"),
    ("a: {b: c},\n", "1: a comma separates only inside { } and [ ]"),
    ("a: [b] c\n", "1: text goes on after the closing bracket; text that begins with { or [ needs quotes"),
    # quotes
    ("a: b\nc: 'd\ne: f\n\n", "2: a quote opens here and is not closed"),
    ('a: "b\n---\nc: d\n', "1: a quote opens here and is not closed"),
    ('a: "b\nc: "d"\n', "1: a quote opens here and is not closed before line 2, where more follows it"),
    ('a: "b\nc: ""\n', "1: a quote opens here and is not closed before line 2, where more follows it"),
    ('a: {b: "c}\nd: "e"\n', "1: a quote opens here and is not closed before line 2, where more follows it"),
    ('a: "b\nc": d\n', "1: a quote opens here and is not closed before line 2, where more follows it"),
    ("a: 'it's'\n", f"1: {AFTER_QUOTE}"),
    (
        "a: 'b'\n    c\n",
        "2: not valid YAML: expected <block end>, but found '<scalar>' (while parsing a block mapping that",
    ),
    ('a: "C:\\Users\\x"\n', f"1: {BACKSLASH}"),
    ('a: "C:\\Temp"\n', f"1: {BACKSLASH}"),
    # characters with a meaning
    ("tool_list: {time: *}\n", f"1: {STAR}"),
    ("tool_list:\n  time: *\n", f"2: {STAR}"),
    ("a: *_b*\n", f"1: {STAR}"),
    ("a: @b\n", "1: text that begins with @ needs quotes"),
    ("a: ? b\n", '1: text that begins with "?" needs quotes'),
    ("%a b\nc: d\n", "2: not valid YAML: expected '<document start>'"),
]


@pytest.mark.parametrize(("text", "problem"), CASES)
def test_what_is_no_yaml_is_said_with_the_line_to_look_at(room, text, problem):
    """B58: one line of words that say what to do."""
    (said,) = room.problems(text)
    assert said.startswith(problem)


@pytest.mark.parametrize(("text", "problem"), CASES)
def test_lines_may_end_as_on_windows(room, text, problem):
    """The same words for the same text."""
    (said,) = room.problems(text.replace("\n", "\r\n"))
    assert said.startswith(problem)
