"""What PyYAML's errors mean to whoever wrote the file: the line to look at, and what to do there."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (PyYAML's type stubs leave the inside of the parser untyped.)

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Final, TypeAlias

import yaml

from proxy.config.problems import MAYBE_A_SPACE, lacks_a_space

Tokens: TypeAlias = Callable[[], Sequence[yaml.Token]]
Said: TypeAlias = tuple[int, str]
"""A line (from 1) and what to say about it."""

_LINE_BREAK = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")
_BLOCK_TEXT = re.compile(r"\s*(?:- +)*(?P<key>.+?)\s*:\s+(?P<mark>[|>])")
_WORDLESS = (yaml.BlockEndToken, yaml.BlockMappingStartToken, yaml.KeyToken)

_TAB: Final = "a tab cannot indent or separate here: use spaces"
_TAB_BEFORE_KEY: Final = re.compile(r"[ ]*(?:-[ ]+)*-[ ]*\t")
_QUOTE: Final = "a quote opens here and is not closed"
_PAIR: Final = 'not of the form "key: value"'
_NO_PAIR: Final = ": the colon is missing, or the text above goes on here and must be indented deeper"


class _Fault:
    """An error and its surroundings. `at`: where PyYAML stopped; `begun`: where what it was reading had begun."""

    def __init__(self, error: yaml.MarkedYAMLError, at: yaml.Mark, text: str, tokens: Tokens) -> None:
        self.context, self.problem = error.context or "", error.problem or ""
        self.at, self.begun = at, error.context_mark or at
        self._text = text
        self._tokens = tokens

    @cached_property
    def lines(self) -> list[str]:
        return _LINE_BREAK.split(self._text)

    def character(self, mark: yaml.Mark) -> str:
        """That at `mark`; empty at the end."""
        return self._text[mark.index : mark.index + 1]

    def indentation(self, line: int) -> int:
        """Of a line, counted from 0."""
        return len(self.lines[line]) - len(self.lines[line].lstrip())

    def before(self, mark: yaml.Mark) -> yaml.Token | None:
        """The last token that ends before `mark` and stands for something in the text."""
        ended = [t for t in self._tokens() if t.end_mark.index <= mark.index and not isinstance(t, _WORDLESS)]
        return ended[-1] if ended else None

    def open_bracket(self) -> yaml.Mark | None:
        """The innermost that is open where PyYAML stopped."""
        opened: list[yaml.Mark] = []
        for token in self._tokens():
            if token.start_mark.index >= self.at.index:
                break
            if isinstance(token, yaml.FlowMappingStartToken | yaml.FlowSequenceStartToken):
                opened.append(token.start_mark)
            elif opened and isinstance(token, yaml.FlowMappingEndToken | yaml.FlowSequenceEndToken):
                opened.pop()
        return opened[-1] if opened else None


def explained(error: yaml.MarkedYAMLError, text: str, tokens: Tokens) -> Said:
    """Where to look and what to do; `tokens` gives those of `text`, as far as they can be read."""
    if error.problem_mark is None:  # PyYAML always gives one
        return 1, f"not valid YAML: {error.problem}"
    fault = _Fault(error, error.problem_mark, text, tokens)
    for context, problem, cause in _CAUSES:
        if fault.context.startswith(context) and fault.problem.startswith(problem):
            said = (fault.at.line + 1, cause) if isinstance(cause, str) else cause(fault)
            if said:
                return said
    where = f" ({fault.context} that begins on line {fault.begun.line + 1})" if fault.context else ""
    return fault.at.line + 1, f"not valid YAML: {fault.problem}{where if fault.begun.line != fault.at.line else ''}"


def _late_quote(fault: _Fault, mark: yaml.Mark) -> Said | None:
    """A quoted text before `mark` that has run over the ends of lines: its closing quote is another's opening one."""
    token = fault.before(mark)
    if not isinstance(token, yaml.ScalarToken) or token.style not in {"'", '"'}:
        return None
    first, last = token.start_mark.line, token.end_mark.line
    if first == last or last != mark.line:
        return None
    return first + 1, f"{_QUOTE} before line {last + 1}, where more follows it"


def _open_quote(fault: _Fault) -> Said:
    return _late_quote(fault, fault.begun) or (fault.begun.line + 1, _QUOTE)


def _block_text(fault: _Fault, mark: yaml.Mark) -> Said | None:
    """Text at `mark` that was to belong to the `usage: |` before it."""
    token = fault.before(mark)
    if not isinstance(token, yaml.ScalarToken) or token.style not in {"|", ">"}:
        return None
    if not (found := _BLOCK_TEXT.match(fault.lines[token.start_mark.line])):
        return None
    what = f"the text below {found['key']}: {found['mark']} must be indented deeper than {found['key']}"
    return mark.line + 1, f"{what}, and no line less than the first"


def _no_pair(fault: _Fault, line: int) -> Said:
    glued = lacks_a_space(fault.lines[line].strip())
    return line + 1, _PAIR + (MAYBE_A_SPACE if glued else _NO_PAIR)


def _key_alone(fault: _Fault) -> Said:
    return _block_text(fault, fault.begun) or _no_pair(fault, fault.begun.line)


def _colon(fault: _Fault) -> Said:
    if said := _late_quote(fault, fault.at):
        return said
    line = fault.at.line
    if _TAB_BEFORE_KEY.match(fault.lines[line]):
        return line + 1, _TAB
    above = next((n for n in range(line - 1, -1, -1) if fault.lines[n].strip()), None)
    if above is None or re.search(r":\s", fault.lines[line][: fault.at.column]):
        return line + 1, 'text with ": " in it needs quotes, or a value stands on the wrong line'
    if fault.indentation(line) > fault.indentation(above):
        return line + 1, f"{_indentation(above)}, or the text above, if it goes on here, needs quotes"
    return _no_pair(fault, above)


def _indentation(first: int) -> str:
    what = "the indentation does not fit: this line must begin in the same column as its neighbours"
    return f"{what} (from line {first + 1} on)"


def _indented(fault: _Fault) -> Said:
    return fault.at.line + 1, _indentation(fault.begun.line)


def _item(fault: _Fault) -> Said:
    keys = f'a list item ("- ") cannot stand among keys (from line {fault.begun.line + 1} on)'
    return _block_text(fault, fault.at) or (fault.at.line + 1, keys)


def _key_among_items(fault: _Fault) -> Said:
    return fault.at.line + 1, f'a key cannot stand among list items ("- ", from line {fault.begun.line + 1} on)'


def _after_value(fault: _Fault) -> Said | None:
    if said := _late_quote(fault, fault.at) or _block_text(fault, fault.at):
        return said
    token = fault.before(fault.at)
    if token is None or token.end_mark.line != fault.at.line:
        return None
    if isinstance(token, yaml.ScalarToken):
        what = "text goes on after the closing quote; a ' inside '…' is written '', a \" inside \"…\" is written \\\""
        return fault.at.line + 1, what
    if isinstance(token, yaml.FlowMappingEndToken | yaml.FlowSequenceEndToken):
        return fault.at.line + 1, "text goes on after the closing bracket; text that begins with { or [ needs quotes"
    return None


def _brackets(fault: _Fault) -> Said:
    opening, first, line = fault.character(fault.begun), fault.begun.line, fault.at.line
    got = fault.problem.rpartition("but got ")[2].strip("'")
    if said := _late_quote(fault, fault.at):
        return said
    if got in {"}", "]", "<stream end>", "<document start>", "<document end>"} or (
        first < line and fault.indentation(line) <= fault.indentation(first)
    ):
        return first + 1, f"a {opening} opens here and is not closed"
    if first < line:
        return (
            line + 1,
            f"a comma is missing before this, or the {opening} that opens on line {first + 1} is not closed",
        )
    needs = 'text with ": " in it' if got == ":" else "text with any of { } [ ] , in it"
    return line + 1, f"{needs} needs quotes, or a comma is missing"


def _nothing(fault: _Fault) -> Said | None:
    """A comma or an end inside brackets where a value was to stand."""
    if fault.problem.endswith("','"):
        return fault.at.line + 1, "a comma too many, or text that is missing before it"
    return _unclosed(fault)


def _unclosed(fault: _Fault) -> Said | None:
    """The innermost bracket that is open at the error."""
    if not (opening := fault.open_bracket()):
        return None
    return opening.line + 1, f"a {fault.character(opening)} opens here and is not closed"


def _beginning(fault: _Fault) -> Said:
    """A character that nothing can begin with."""
    character = fault.character(fault.at)
    what = f"text that begins with {character} needs quotes"
    if character in {"|", ">"}:
        what = f"{character} cannot stand inside {{ }} or [ ] (is one of them not closed?); as text it needs quotes"
    return fault.at.line + 1, what


def _alias(fault: _Fault) -> Said:
    name = fault.problem.partition("'")[2].rstrip("'")
    return fault.at.line + 1, f"no &{name} stands above; text that begins with * needs quotes"


def _top_level(fault: _Fault) -> Said | None:
    token = fault.before(fault.at)
    if token is None or isinstance(token, yaml.StreamStartToken | yaml.DirectiveToken):
        return None
    what = (
        "not part of what stands above: begin it in the same column as the first line; after a last } nothing follows"
    )
    return fault.at.line + 1, what


_BLOCK: Final = "expected <block end>, but found "
_CAUSES: Final[Iterable[tuple[str, str, str | Callable[[_Fault], Said | None]]]] = (
    # the beginning of PyYAML's context, the beginning of its problem, and what that means
    ("while scanning an alias", "", 'a * that stands for itself needs quotes: "*"'),
    ("while scanning an anchor", "", "text that begins with & needs quotes"),
    ("expected a single document in the stream", "", "a second document begins here: put everything into one"),
    ("while scanning a double-quoted scalar", "", r"\ has a special meaning in double quotes: use single quotes"),
    ("while scanning a quoted scalar", "", _open_quote),
    (
        "while scanning a block scalar",
        "",
        "after | or > the text begins on the next line; as plain text it needs quotes",
    ),
    ("while scanning a simple key", "", _key_alone),
    ("while scanning for the next token", "found character '\\t'", _TAB),
    ("while scanning for the next token", "", _beginning),
    ("while parsing a flow node", "expected the node content", _nothing),
    ("while parsing a flow", "expected", _brackets),
    ("while parsing a block", f"{_BLOCK}'<block", _indented),
    ("while parsing a block mapping", f"{_BLOCK}'-'", _item),
    ("while parsing a block collection", f"{_BLOCK}'?'", _key_among_items),
    ("while parsing a block", f"{_BLOCK}'<scalar>'", _after_value),
    *(
        ("while parsing a block", f"{expected}{found}", what)
        for expected in (_BLOCK, "expected the node content, but found ")
        for found, what in (
            ("','", "a comma separates only inside { } and [ ]; as text it needs quotes"),
            ("'}'", "a } closes here what no { has opened; as text it needs quotes"),
            ("']'", "a ] closes here what no [ has opened; as text it needs quotes"),
        )
    ),
    ("", "mapping values are not allowed", _colon),
    ("", "sequence entries are not allowed", 'text that begins with "- " needs quotes; a list item has its own line'),
    ("", "mapping keys are not allowed", 'text that begins with "?" needs quotes'),
    ("", "found undefined alias", _alias),
    ("", "expected '<document start>'", _top_level),
)
