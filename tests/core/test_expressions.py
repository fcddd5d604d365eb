"""Values that are worked out at run time: what they come to, what they cannot reach, and what is said of wrong ones."""

import json
import subprocess
import sys
import types
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from proxy.core.expressions import ExpressionError, evaluate, faults, holds_expressions, is_one_expression
from tests.core.strategies import law

NAMES: dict[str, Any] = {
    "params": {
        "customer": "anna",
        "limit": 3,
        "items": ["a", "b", "c"],
        "rows": [{"id": 1, "of": {"name": "x"}}, {"id": 2}],
        "none": None,
    },
    "steps": {"found": {"ok": True}},
}
KNOWN = {"params": None, "steps": {"found"}, "scope": {"id", "client"}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def told(text: Any, names: dict[str, Any] = NAMES, place: str = "") -> str:
    """Why a value cannot be evaluated."""
    with pytest.raises(ExpressionError) as caught:
        evaluate(text, names, place)
    assert caught.value.__suppress_context__
    return caught.value.reason


def wrong(text: str) -> list[str]:
    return [fault for _, fault in faults(text, KNOWN)]


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same, and of the same types."""
    return json.dumps(one) == json.dumps(other)


# --- what values come to ---------------------------------------------------------------------------------------------


@law
@given(value=JSON)
def test_a_text_that_is_one_expression_keeps_the_type_of_its_value(value: Any):
    names = {"params": {"v": value}}

    assert same(evaluate("{{ params.v }}", names), value)
    assert same(evaluate({"k": ["{{params['v']}}"]}, names), {"k": [value]})


@law
@given(value=JSON.filter(lambda value: not isinstance(value, str)))
def test_in_a_longer_text_a_value_stands_as_json(value: Any):
    text = evaluate("<{{ params.v }}>", {"params": {"v": value}})

    assert same(json.loads(text[1:-1]), value)


@law
@given(text=st.text().filter(lambda text: "{{" not in text))
def test_a_text_without_expressions_stays_as_it_is(text: str):
    assert evaluate(text, {}) == text
    assert evaluate([text], {}) == [text]


@law
@given(before=st.text("a{}% \r\n#'\"\0").filter(lambda t: "{{" not in f"{t}{{" and "{%" not in t), value=st.text())
def test_what_stands_around_an_expression_is_left_alone(before: str, value: str):
    """Also line ends, comments of Jinja2, brackets and quotes."""
    assert evaluate(f"{before} {{{{ params.v }}}}\r\n{{#{before}", {"params": {"v": value}}) == (
        f"{before} {value}\r\n{{#{before}"
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ params.customer }}", "anna"),
        ("{{ params.customer }} {{ params.limit }}", "anna 3"),
        ("{{ params.none }}{{ steps.found.ok }}", "nulltrue"),
        ("{{ params.items[0] }}", "a"),
        ("{{ params.items.1 }}", "b"),
        ("{{ params.items[-1] }}", "c"),
        ("{{ params.items[1:] }}", ["b", "c"]),
        ("{{ params.items[::-1] }}", ["c", "b", "a"]),
        ("{{ params.customer[:2] }}", "an"),
        ("{{ params.customer[0] }}", "a"),
        ("{{ params['cust' ~ 'omer'] }}", "anna"),
        ("{{ params.limit + 1 }}", 4),
        ("{{ -params.limit }}", -3),
        ("{{ +params.limit }}", 3),
        ("{{ 7 // 2 * 2 ** 3 - 1 % 2 / 2 }}", 23.5),
        ("{{ 2 ** -1 }}", 0.5),
        ("{{ 2.0 ** 2 }}", 4.0),
        ("{{ 'a' + 'b' }}", "ab"),
        ("{{ 'ab' * 2 }}", "abab"),
        ("{{ 2 * [1] }}", [1, 1]),
        ("{{ -1 * [1] }}", []),
        ("{{ params.items + ['d'] }}", ["a", "b", "c", "d"]),
        ("{{ 1 ~ 'a' ~ [none] }}", "1a[null]"),
        ("{{ 1 < 2 < 3 <= 3 != 4 }}", True),
        ("{{ 1 < 2 > 3 }}", False),
        ("{{ 'a' < 'b' and 2 >= 1 and not 1 == 2 }}", True),
        ("{{ 'b' in params.items }}", True),
        ("{{ 'limit' in params }}", True),
        ("{{ 1 in params }}", False),
        ("{{ 'nn' in params.customer }}", True),
        ("{{ 'x' not in params.items }}", True),
        ("{{ params.items == ['a', 'b', 'c'] }}", True),
        ("{{ params.rows == params }}", False),
        ("{{ {'a': 1} == {'a': 1.0} }}", True),
        ("{{ 'yes' if steps.found.ok else 'no' }}", "yes"),
        ("{{ (1, 'a') }}", [1, "a"]),
        ("{{ {'a': {'b': '}}'}} }}", {"a": {"b": "}}"}}),
        ('{{\'}}\' ~ "{{\\"" }}', '}}{{"'),
        ("{{ '{%' }}", "{%"),
        ("{{ '1.10' }}", "1.10"),
        ("{{ params.vanished is defined }}", False),
        ("{{ params.vanished is undefined or params.vanished }}", True),
        ("{{ params.vanished | default('x') }}", "x"),
        ("{{ '' | default('x', true) }}", "x"),
        ("{{ params.limit is not none }}", True),
    ],
)
def test_expressions_come_to_what_they_say(text: str, value: Any):
    assert not wrong(text)
    assert same(evaluate(text, NAMES), value)


def test_values_are_walked_but_for_their_keys():
    value = {"{{ k }}": ["{{ params.limit }}", {"a": "{{ params.limit }}!"}], "n": 1, "t": ("{{ 1 }}", None)}

    assert evaluate(value, NAMES) == {"{{ k }}": [3, {"a": "3!"}], "n": 1, "t": [1, None]}


def test_mappings_of_any_kind_can_be_read_and_come_out_as_json():
    names = {"params": types.MappingProxyType({"a": (1, Markup("<b>"))})}

    value = evaluate("{{ params }}", names)

    assert value == {"a": [1, "<b>"]}
    assert type(value) is dict
    assert type(value["a"][1]) is str
    assert type(evaluate("{{ params.a[1] }}!", names)) is str


def test_what_comes_out_shares_nothing_with_what_went_in():
    names: dict[str, Any] = {"heap": {"list": [[1]]}}

    evaluate("{{ heap.list }}", names)[0].append(2)

    assert names == {"heap": {"list": [[1]]}}


def test_nothing_is_left_from_one_evaluation_for_the_next():
    assert evaluate("{{ params.a }}", {"params": {"a": 1}}) == 1
    assert told("{{ params.a }}", {"params": {}}) == "there is no 'a' in a mapping"
    assert told("{{ params.a }}", {}) == "there is no name 'params'"


@pytest.mark.parametrize(
    ("value", "holds", "one"),
    [
        ("{{ a }}", True, True),
        ("{{ a }} ", True, False),
        ("{{ a }}{{ b }}", True, False),
        ("a", False, False),
        ("{{ a", True, False),
        (["a", {"k": "{{ a }}"}], True, False),
        ({"{{ a }}": 1}, False, False),
        (("a",), False, False),
        (True, False, False),
        ("", False, False),
    ],
)
def test_expressions_are_seen(value: Any, holds: bool, one: bool):
    assert holds_expressions(value) is holds
    assert is_one_expression(value) is one


# --- what is wrong at load -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{{ prams.x }}", "there is no name 'prams' (did you mean 'params'?); there are params, scope, steps"),
        ("{{ self }}", "there is no name 'self'; there are params, scope, steps"),
        (
            "{{ steps.fund }}",
            "steps: there is no member 'fund' (did you mean 'found'?); no step before this one saves it",
        ),
        (
            "{{ steps['fund'] }}",
            "steps: there is no member 'fund' (did you mean 'found'?); no step before this one saves it",
        ),
        ("{{ steps[0] }}", "steps: there is no member 0; no step before this one saves it"),
        (
            "{{ steps.fund is defined }}",
            "steps: there is no member 'fund' (did you mean 'found'?); no step before this one saves it",
        ),
        (
            "{{ steps.fund | default(1) }}",
            "steps: there is no member 'fund' (did you mean 'found'?); no step before this one saves it",
        ),
        ("{{ params | uper }}", "there is no filter 'uper' (did you mean 'upper'?)"),
        ("{{ params | attr('x') }}", "there is no filter 'attr' (did you mean 'selectattr'?)"),
        ("{{ params is callable }}", "there is no test 'callable'"),
        ("{{ params | map('uper') }}", "there is no filter 'uper' (did you mean 'upper'?)"),
        ("{{ params | map(1) }}", "there is no filter 1"),
        ("{{ params | select('definde') }}", "there is no test 'definde' (did you mean 'defined'?)"),
        ("{{ params | selectattr('a', 'eq') }}", "test eq: missing a required argument: 'other'"),
        ("{{ params | replace('a') }}", "filter replace: missing a required argument: 'new'"),
        ("{{ params | join(e=1) }}", "filter join: got an unexpected keyword argument 'e'"),
        ("{{ params | join(*params) }}", "arguments cannot be unpacked with * or **"),
        ("{{ params | join(**params) }}", "arguments cannot be unpacked with * or **"),
        ("{{ params is eq(*params) }}", "arguments cannot be unpacked with * or **"),
        ("{{ params.keys() }}", "nothing can be called: write x | length, not length(x) or x.length()"),
        ("{{ range(3) }}", "nothing can be called: write x | length, not length(x) or x.length()"),
        ("{{ 1 if params }}", "an if without an else comes to nothing: write x if y else z"),
        ("{{ params[1:2, 3] }}", "a part is not one of several keys"),
        ("{% if a %}", "{% has no meaning here, only {{ has; as a mere text it is {{ '{%' }}"),
        ("{{ 1 }} {% if a %}", "{% has no meaning here, only {{ has; as a mere text it is {{ '{%' }}"),
        ("{{ 1", "{{ has no }} that ends it; as a mere text it is {{ '{{' }}"),
        ("{{ ( }}", "{{ has no }} that ends it; as a mere text it is {{ '{{' }}"),
        ("{{- 1 }}", "{{- and -}} have no meaning here; put a space before a sign"),
        ("{{ 1 -}}", "{{- and -}} have no meaning here; put a space before a sign"),
        ("{{ 1 2 }}", "2 cannot stand after the expression"),
        ("{{ }}", "it ends too early"),
        ("{{ a ? b }}", "unexpected char '?' at 3"),
        ("{{ " + "9" * 5_000 + " }}", "a number is too long"),
        ("{{ " + "(" * 21 + ")" * 21 + " }}", "brackets are nested too deeply"),
        ("{{ " + "not " * 51 + "1 }}", "it is nested too deeply"),
        ("{{ " + "not " * 1_900 + "1 }}", "it is nested too deeply"),
        ("{{ 1" + " + 1" * 60 + " }}", "it is nested too deeply"),
        ("{{ '" + "a" * 8_000 + "' }}", "a text with expressions is longer than 8,000 characters"),
    ],
)
def test_what_is_wrong_is_said_at_load(text: str, fault: str):
    assert wrong(text) == [fault]


@pytest.mark.parametrize(
    "text", ["{# a #}", "{{ params[params.x] }}", "{{ (params or steps).x }}", "{{ params | map(params.x) }}", "}} {"]
)
def test_what_cannot_be_seen_before_it_runs_is_no_fault_at_load(text: str):
    assert not wrong(text)


def test_faults_have_their_places():
    value = {"q": ["a", {"r": "{{ x }}"}], "t": ("{{ y }} {{ z }}",), "n": 1}

    assert [(place, fault[:20]) for place, fault in faults(value, {})] == [
        (("q", 1, "r"), "there is no name 'x'"),
        (("t", 0), "there is no name 'y'"),
        (("t", 0), "there is no name 'z'"),
    ]


# --- what is wrong at run time ---------------------------------------------------------------------------------------


def test_an_error_names_the_place_the_expression_and_the_reason():
    with pytest.raises(ExpressionError) as caught:
        evaluate({"q": ["", "a {{ params.custmer }}"]}, NAMES, "arguments")

    assert str(caught.value) == (
        "arguments.q[1]: a {{ params.custmer }}: there is no 'custmer' in a mapping (did you mean 'customer'?)"
    )
    assert caught.value.place == "arguments.q[1]"
    assert caught.value.expression == "a {{ params.custmer }}"


def test_an_error_is_one_short_line():
    with pytest.raises(ExpressionError) as caught:
        evaluate("{{ params.x }}\n" + "a" * 5_000, {"params": {}})

    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{{ params.vanished }}", "there is no 'vanished' in a mapping"),
        ("{{ params.vanished.more | default(1) }}", "there is no 'vanished' in a mapping"),
        ("{{ params[params.vanished] }}", "there is no 'vanished' in a mapping"),
        ("{{ not params.vanished }}", "there is no 'vanished' in a mapping"),
        ("{{ {params.vanished: 1} }}", "there is no 'vanished' in a mapping"),
        ("{{ [params.vanished] }}", "there is no 'vanished' in a mapping"),
        ("{{ params.vanished == 1 }}", "there is no 'vanished' in a mapping"),
        ("{{ params.vanished ~ 1 }}", "there is no 'vanished' in a mapping"),
        ("{{ params.items[9] }}", "there is no '9' in a list"),
        ("{{ params.items[true] }}", "a boolean is neither key nor place"),
        ("{{ params[params] }}", "a mapping is neither key nor place"),
        ("{{ params.limit.real }}", "there is no 'real' in a number"),
        ("{{ params.customer.upper }}", "there is no 'upper' in a text"),
        ("{{ prams }}", "there is no name 'prams'"),
        ("{{ 1 / 0 }}", "a number is too large, or divided by 0"),
        ("{{ 10.0 ** 400 }}", "a number is too large, or divided by 0"),
        ("{{ 1e308 * 10 }}", "a result is not a number"),
        ("{{ (-8) ** 0.5 }}", "a result is not a number"),
        ("{{ 10 ** (10 ** 10) }}", "a number is too long"),
        ("{{ 2 ** 4000 * 2 ** 4000 }}", "a number is too long"),
        ("{{ 'a' * 10 ** 9 }}", "it takes too much work"),
        ("{{ 'a' * 1.5 }}", "how often it is repeated is not a whole number"),
        ("{{ 'a' + 1 }}", "a text + a number means nothing"),
        ("{{ '%9d' % 1 }}", "a text % a number means nothing"),
        ("{{ true + 1 }}", "a boolean + a number means nothing"),
        ("{{ -'a' }}", "a text is not a number"),
        ("{{ 1 < 'a' }}", "a number and a text have no order"),
        ("{{ 1 in 2 }}", "a number cannot have a number in it"),
        ("{{ 1 in 'a' }}", "a text cannot have a number in it"),
        ("{{ params[1:] }}", "a mapping has no parts"),
        ("{{ params.items[::0] }}", "the step of a part is 0"),
        ("{{ params.items['a':] }}", "a place is not a whole number"),
        ("{{ {1: 2} }}", "a key of a mapping is not a text"),
        ("{{ {[]: 2} }}", "it cannot be evaluated (TypeError)"),
        ("{{ self }}", "it is no JSON value"),
        ("{{ params.keys() }}", "nothing can be called: write x | length, not length(x) or x.length()"),
    ],
)
def test_what_goes_wrong_at_run_time_is_said_in_a_few_words(text: str, reason: str):
    assert told(text) == reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (nan, "a result is not a number"),
        (inf, "a result is not a number"),
        (1 << 5_000, "a number is too long"),
        ({1}, "it is no JSON value"),
        ("a" * (1024 * 1024), "what it comes to is larger than 1,024 KiB"),
        (["a" * 1024] * 1024, "what it comes to is larger than 1,024 KiB"),
        ("a" * (32 * 1024 * 1024), "it takes too much work"),
    ],
    ids=lambda value: "" if isinstance(value, (str, list)) else None,
)
def test_only_json_of_a_certain_size_comes_out(value: Any, reason: str):
    assert told("{{ params.v }}", {"params": {"v": value}}) == reason
    assert told({"k": value}, {}) == reason


def test_the_size_is_that_of_the_whole_value():
    names = {"params": {"v": "a" * 700_000}}

    assert evaluate("{{ params.v }}", names)
    assert told(["{{ params.v }}", "{{ params.v }}"], names) == "what it comes to is larger than 1,024 KiB"


def test_values_are_nested_so_deep_and_no_deeper():
    deep: list[Any] = []
    for _ in range(99):
        deep = [deep]

    assert evaluate("{{ params.v }}", {"params": {"v": deep}}) == deep
    assert told("{{ params.v }}", {"params": {"v": [[deep]]}}) == "values are nested too deeply"
    assert told("{{ params.v }}", {"params": {"v": {"a": {"a": deep}}}}) == "values are nested too deeply"


def test_no_key_is_proposed_where_there_are_very_many():
    assert (
        told("{{ params.key }}", {"params": {f"key{n}": n for n in range(2_000)}}) == "there is no 'key' in a mapping"
    )


# --- what is hostile -------------------------------------------------------------------------------------------------

ATTRIBUTES = [
    "''.__class__.__mro__",
    "''['__class__']",
    "params.__class__",
    "params['__class__']",
    "params.items.append",
    "params | attr('__class__')",
    "params | map(attribute='__class__') | first",
    "[params] | map(attribute='__class__') | list",
    "['x'] | map('attr', '__class__') | list",
    "steps['__class__']",
    "cycler.__init__.__globals__",
    "lipsum.__globals__",
    "namespace",
    "joiner",
    "dict",
    "range",
    "self._TemplateReference__context",
    "self == self",
    "loop",
    "caller",
    "varargs",
    "environment",
    "context",
    "resolve",
    "undefined",
    "missing",
    "l_0_params",
    "result",
]
GIANTS = [
    "'a' * 10**9",
    "10**9 * ['a']",
    "[[1] * 1000] * 1000 * 1000",
    "[params.big] * 1000000",
    "10 ** (10 ** 10)",
    "9 ** (9 ** (9 ** 9))",
    "'%999999999d' % 1",
    "'a' | center(10**9)",
    "('a' * 1000) | replace('a', 'a' * 1000000)",
    "params.big" + " | replace('a', 'aa')" * 40,
    "params.big" + " | replace('', 'aa')" * 40,
    "range(10**9)",
    "params.list" + " | map('replace', 'a', 'aaaaaaaaaa')" * 20 + " | join",
    "params.list | join(params.big)",
    "params.list" + " | map('list') | map('join', 'aaaaaaaaaa')" * 9 + " | join",
    "[params.list] | map('map', 'map', 'list') | list",
    "params.list | select('in', params.list) | list",
    " == ".join(["([([([([([1] * 999)] * 999)] * 999)] * 999)] * 999)"] * 2),
    " ~ ".join(["params.big"] * 400),
    "[" + ", ".join(["params.big"] * 600) + "]",
    " and ".join(["params.numbers != params.numbers ~ ''"] * 40),
    "1.0 | round(10**9)",
    "1 | round(-10**9)",
    "1.5 | round(10**9, 'ceil')",
    "('9' * 100000) | int + 2 ** 9999",
    "('[' * 100000) | fromjson",
    "('[],' * 300000) | fromjson | length ~ params.list | length",
    "params.big | list",
    "params.big | urlencode ~ (params.big | tojson) ~ params.big",
    "params.numbers | sort | reverse | unique | sort | map('string') | join",
    "params.big | truncate(10**10, true, params.big * 100)",
    "params.big | split('a') | join(params.big)",
    "params.big | trim(params.wide)",
    "' ' * 2**20 | title | title | title | title | title | title | title | title",
]

EVALUATE = """
import resource, sys
from proxy.core.expressions import ExpressionError, evaluate
names = {"params": {"big": "a" * 1024 * 1024, "list": ["a" * 10] * 100_000, "numbers": [*range(200_000)], "items": [],
                    "wide": "".join(map(chr, range(256, 50_000))) + "a"},
         "steps": {}}
evaluate("{{ 1 }}", {})
resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
for expression in sys.stdin.read().split("\\0"):
    try:
        print("came to something:", expression[:80], str(evaluate("{{ " + expression + " }}", names))[:80])
    except ExpressionError as error:
        print("refused")
        assert len(str(error)) < 500
"""


@pytest.mark.parametrize("hostile", [ATTRIBUTES, GIANTS], ids=["attributes", "giants"])
def test_hostile_expressions_end_in_an_error_within_bounds_of_memory_and_time(hostile: list[str]):
    """All together in 512 MiB and a minute of one processor, which any single one of them would use up."""
    ran = subprocess.run(
        [sys.executable, "-c", EVALUATE], input="\0".join(hostile), capture_output=True, text=True, check=False
    )

    assert ran.stderr == ""
    assert ran.stdout.splitlines() == ["refused"] * len(hostile)
    assert ran.returncode == 0


PIECES = [
    *(
        "params",
        "steps",
        ".v",
        "['v']",
        "[0]",
        "[1:]",
        "{",
        "}",
        "{{",
        "}}",
        "{%",
        "(",
        ")",
        "[",
        "]",
        "'",
        '"',
        ",",
        ":",
    ),
    *(
        "|",
        "is",
        "not",
        "in",
        "and",
        "or",
        "if",
        "else",
        "+",
        "-",
        "*",
        "**",
        "%",
        "~",
        "==",
        "<",
        "1",
        "0",
        "1.5",
        "'a'",
    ),
    *(
        "true",
        "none",
        "| map('upper')",
        "| select",
        "| join(',')",
        "| items",
        "| int",
        "| round(1)",
        "| sort",
        "| first",
    ),
    *("| default(1)", "| tojson", "| fromjson", "is defined", "is even", "| length", "self", "\\", "\n", "\0"),
]


@settings(law, max_examples=500)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=8), value=JSON)
def test_whatever_is_written_comes_to_json_or_to_an_error_in_words(pieces: list[str], value: Any):
    text, reason = f"{{{{ {' '.join(pieces)} }}}}", "none"
    try:
        json.dumps(evaluate(text, {"params": {"v": value}, "steps": [value]}), allow_nan=False)
    except ExpressionError as error:
        reason = error.reason

    assert reason
    assert "SyntaxError" not in reason


def test_an_evaluation_pays_for_all_its_expressions_together():
    names = {"params": {"n": list(range(100_000))}}
    one = "{{ params.n | sum }}"

    assert evaluate(one, names) == 4999950000
    assert told([one] * 10, names) == "it takes too much work"


def test_the_core_does_without_jinja2_until_there_are_expressions():
    code = (
        "import sys, proxy.core.catalogue, proxy.core.steps, proxy.core.decision, proxy.core.parameters;"
        "assert not {'jinja2', 'jsonschema', 'referencing'} & sys.modules.keys()"
    )

    subprocess.run([sys.executable, "-c", code], check=True)
