"""What filters and tests make of values: what Jinja2's of the same names do, and errors in words."""

from typing import Any

import pytest
from jinja2.sandbox import SandboxedEnvironment

from proxy.core.expressions import ExpressionError, evaluate
from proxy.core.filters import FILTERS, TESTS

NAMES: dict[str, Any] = {
    "text": "the quick brown fox",
    "list": [3, 1, 2, 1],
    "words": ["b", "A", "a", "C"],
    "rows": [{"id": 2, "of": {"n": "x"}}, {"id": 1, "of": {"n": "y"}}, {"id": 2}],
    "map": {"b": 1, "A": 3, "c": 2},
    "empty": [],
    "none": None,
    "yes": True,
}

ALIKE = [
    "-1.5 | abs",
    "'aBC d' | capitalize",
    "text | count",
    "map | length",
    "list | length",
    "none | default('x')",
    "none | d('x', true)",
    "vanished | d",
    "map | dictsort | map('list') | list",
    "map | dictsort(case_sensitive=true) | map('list') | list",
    "map | dictsort(by='value', reverse=true) | map('list') | list",
    "list | first",
    "map | first",
    "text | last",
    "'1.5' | float",
    "'x' | float",
    "'x' | float(2.5)",
    "none | float",
    "3 | float",
    "'12' | int",
    "'1.9' | int",
    "'x' | int",
    "'x' | int(7)",
    "'ff' | int(base=16)",
    "1.9 | int",
    "none | int(4)",
    "'inf' | int",
    "yes | int",
    "map | items | map('list') | list",
    "list | join",
    "list | join(', ')",
    "rows | join('-', attribute='id')",
    "text | list",
    "map | list",
    "'ABC' | lower",
    "rows | map(attribute='id') | list",
    "rows | map(attribute='of.n', default='none') | list",
    "rows | selectattr('of') | map(attribute='of.n') | list",
    "[[1, 2], [3, 4]] | map(attribute=1) | list",
    "words | map('upper') | list",
    "words | map('replace', 'a', 'z') | list",
    "list | max",
    "words | max",
    "words | max(case_sensitive=true)",
    "rows | max(attribute='id')",
    "list | min",
    "words | min",
    "rows | min(attribute='id')",
    "list | reject('odd') | list",
    "rows | rejectattr('id', 'eq', 2) | list",
    "'aaa' | replace('a', 'b')",
    "'aaa' | replace('a', 'b', 2)",
    "'ab' | replace('', '-')",
    "text | reverse",
    "list | reverse | list",
    "1.55 | round",
    "1.55 | round(1)",
    "1.55 | round(1, 'ceil')",
    "1.55 | round(1, 'floor')",
    "[0, 1, '', 'a'] | select | list",
    "list | select('gt', 1) | list",
    "rows | selectattr('id', 'eq', 2) | list",
    "list | sort",
    "list | sort(reverse=true)",
    "words | sort",
    "words | sort(case_sensitive=true)",
    "rows | sort(attribute='id')",
    "text | string",
    "list | sum",
    "rows | sum(attribute='id', start=10)",
    "'the QUICK' | title",
    "' a ' | trim",
    "'xax' | trim('x')",
    "text | truncate(10)",
    "text | truncate(10, true)",
    "text | truncate(9, false, '~', 0)",
    "text | truncate(15)",
    "text | truncate(16, false, '...', 0)",
    "list | unique | list",
    "words | unique | list",
    "words | unique(case_sensitive=true) | list",
    "rows | unique(attribute='id') | list",
    "'abc' | upper",
    "'a b/ü&' | urlencode",
    "{'a b': 'c/d', 'e': 1} | urlencode",
    "1 is odd and 2 is even",
    "1 is even or 2 is odd",
    "9 is divisibleby 3",
    "9 is divisibleby(2)",
    "yes is boolean",
    "yes is true",
    "1 is true",
    "yes is false",
    "(not yes) is false",
    "1 is integer",
    "1.0 is integer",
    "1.0 is float",
    "1 is float",
    "1 is number",
    "text is string",
    "list is mapping",
    "map is mapping",
    "none is none",
    "1 is in list",
    "1 is eq 1 and 1 is ne 2 and 1 is lt 2 and 1 is le 1 and 2 is gt 1 and 2 is ge 2",
    "1 is equalto 2 or 1 is lessthan 1 or 1 is greaterthan 1",
    "list | select('<', 2) | list",
]


@pytest.mark.parametrize("expression", ALIKE)
def test_they_do_what_those_of_jinja2_do(expression: str):
    theirs = SandboxedEnvironment().compile_expression(expression)(NAMES)

    ours = evaluate(f"{{{{ {expression} }}}}", NAMES)

    assert ours == theirs
    assert type(ours) is type(theirs)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("'a,b,c' | split(',')", ["a", "b", "c"]),
        ("'a,b,c' | split(',', 1)", ["a", "b,c"]),
        ("' a  b ' | split", ["a", "b"]),
        ("""'{"a": [1, null]}' | fromjson""", {"a": [1, None]}),
        ("map | tojson", '{"b": 1, "A": 3, "c": 2}'),
        ("'<é>' | tojson", '"<é>"'),
        ("yes | string", "true"),
        ("[yes, none] | join(' ')", "true null"),
        ("empty | sum", 0),
        ("empty | sort", []),
        ("empty | first | default('x')", "x"),
        ("empty | last | default('x')", "x"),
        ("empty | min | default('x')", "x"),
        ("empty | max | default('x')", "x"),
        ("('9' * 2000) | int(5)", 5),
        ("2 ** 4000 | int == 2 ** 4000", True),
        ("15 | round(-1)", 20),
        ("[[1, 2], [3]] | map('map', 'string') | list", [["1", "2"], ["3"]]),
    ],
)
def test_they_do_more_where_json_needs_it(expression: str, value: Any):
    assert evaluate(f"{{{{ {expression} }}}}", NAMES) == value


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("1 | length", "a number has no length"),
        ("1 | list", "a number has no items"),
        ("1 | items", "a number is not a mapping"),
        ("empty | first", "there is no first item"),
        ("empty | last", "there is no last item"),
        ("empty | min", "there is no least item"),
        ("empty | max", "there is no greatest item"),
        ("[1, 'a'] | sort", "a number and a text have no order"),
        ("[[1]] | sort", "a list have no order"),
        ("rows | unique", "a mapping is not compared; name an attribute"),
        ("rows | map(attribute='of.n') | list", "there is no 'of' in a mapping"),
        ("rows | map | list", "map takes a filter, or an attribute and a default"),
        ("rows | map(attribute='id', other=1) | list", "map takes a filter, or an attribute and a default"),
        ("words | map(text) | list", "there is no filter 'the quick brown fox'"),
        ("words | map(none) | list", "there is no filter None (did you mean 'join'?)"),
        ("words | map('rep' ~ 'lace') | list", "filter replace: missing a required argument: 'old'"),
        ("words | select('is' ~ 'nt') | list", "there is no test 'isnt' (did you mean 'in'?)"),
        ("map | dictsort(by='x')", "dictsort goes by key or by value"),
        ("map | dictsort(by=list)", "dictsort goes by key or by value"),
        ("1 | round(0, list)", "the method is none of common, ceil and floor"),
        ("text | split('')", "the separator is empty"),
        ("text | fromjson", "the text is no JSON, or nested too deeply"),
        ("'NaN' | fromjson", "a result is not a number"),
        ("('[' * 5000) | fromjson", "the text is no JSON, or nested too deeply"),
        ("1 | round('x')", "the precision is not a whole number"),
        ("1 | round(true)", "the precision is not a whole number"),
        ("1 | round(99)", "the precision is beyond 30"),
        ("1 | round(0, 'up')", "the method is none of common, ceil and floor"),
        ("text | truncate('x')", "the length is not a whole number"),
        ("'a' | abs", "a text is not a number"),
        ("words | sum", "a text is not a number"),
        ("half | urlencode", "the text holds half a character"),
        ("'nan' | float", "a result is not a number"),
        ("vanished | upper", "there is no name 'vanished'"),
        ("vanished is none", "there is no name 'vanished'"),
        ("9 is divisibleby 0", "a number is too large, or divided by 0"),
    ],
)
def test_what_they_cannot_do_is_said_in_words(expression: str, reason: str):
    with pytest.raises(ExpressionError) as caught:
        evaluate(f"{{{{ {expression} }}}}", NAMES | {"half": "\ud800"})

    assert caught.value.reason == reason


def test_each_of_them_is_shown_here():
    shown = " ".join(ALIKE) + "split fromjson tojson defined undefined != == <= > >="

    assert {name for name in [*FILTERS, *TESTS] if name not in shown} == set()
