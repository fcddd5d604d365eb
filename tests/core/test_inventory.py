"""What servers offer, and which URIs a resource template stands for (rule 6)."""

import json
import subprocess
import sys
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.inventory import (
    DEEPEST,
    MAX_EXPANDED_CHARACTERS,
    SKILLS_LIMIT,
    Offer,
    is_json,
    json_size,
    object_of,
    template_matches,
    without_lone_surrogates,
)
from tests.core.strategies import law


def test_an_offer_keeps_what_can_be_asked_for():
    """Entries without a name, and what is no object at all, are left out; the others stay (B12)."""
    offer = Offer.of(
        tools=[{"name": "a"}, {"name": ""}, {"name": 7}, {}, None, "b", ["c"]],
        resources=[{"uri": "x:1"}, {"name": "no uri"}],
        templates=[{"uriTemplate": "x:{n}"}, {"uri": "x:2"}],
        prompts=[{"name": "p"}, {"title": "no name"}],
        instructions="theirs",
    )

    assert offer == Offer(({"name": "a"},), ({"uri": "x:1"},), ({"uriTemplate": "x:{n}"},), ({"name": "p"},), "theirs")


def entry(**parts: object) -> dict[str, object]:
    """The entry of a skill, sound but for what is said here."""
    front = {"name": "a", "description": "What it is for."}
    return {"uri": "skill://a/SKILL.md", "frontmatter": front, "resources": "dynamic", "x": None, **parts}


@pytest.mark.parametrize(
    "uri",
    [
        *("skill://a/SKILL.md", "skill://team/a/SKILL.md", "SKILL://a/SKILL.md", "gh+x.1://o/r/SKILL.md"),
        *("file:///a/SKILL.md", "skill://a\n/SKILL.md", "skill:////a/SKILL.md"),
    ],
)
def test_a_skill_is_at_a_document_in_a_folder_with_a_name(uri: str):
    """Under any scheme, and passed on as the very object that came."""
    found = entry(uri=uri, resources=[])

    assert Offer.of(skills=[found], extension={}).skills == (found,)
    assert Offer.of(skills=[found], extension={}).skills[0] is found


@pytest.mark.parametrize(
    "broken",
    [
        *(None, "skill://a/SKILL.md", ["skill://a/SKILL.md"], {}),
        *(
            entry(uri=uri)
            for uri in (None, 7, "", "skill://a", "skill://a/skill.md", "skill://a/SKILL.md/", "a/SKILL.md")
        ),
        *(entry(uri=uri) for uri in ("skill://SKILL.md", "skill:///SKILL.md", "skill:/a/SKILL.md", "1x://a/SKILL.md")),
        *(entry(frontmatter=front) for front in (None, [], "a", {}, {"name": "a"}, {"description": "d"})),
        *(entry(frontmatter=front) for front in ({"name": 1, "description": "d"}, {"name": "a", "description": None})),
        *(entry(resources=files) for files in (None, {}, "static", 0, True)),
    ],
)
def test_what_is_no_entry_of_a_skill_is_left_out(broken: object):
    """The sound ones beside it stay."""
    assert Offer.of(skills=[broken, entry()], extension={}).skills == (entry(),)


def test_no_more_skills_are_kept_than_somebody_can_choose_from():
    """The first ones; of two at one address, one."""
    many = [entry(uri=f"skill://s{number}/SKILL.md") for number in range(SKILLS_LIMIT + 1)]

    assert Offer.of(skills=[entry(), entry(x=1)], extension={}).skills == (entry(),)
    assert Offer.of(skills=many, extension={}).skills == tuple(many[:-1])


def test_a_server_that_has_not_declared_the_extension_has_no_skills():
    """Whatever else says so."""
    assert Offer.of(skills=[entry()]) == Offer()


def test_the_first_of_equal_names_counts():
    """A call could reach only one of them anyway."""
    offer = Offer.of(tools=[{"name": "a", "description": "first"}, {"name": "b"}, {"name": "a"}])

    assert offer.tools == ({"name": "a", "description": "first"}, {"name": "b"})


def test_offers_have_one_digest_where_their_json_is_the_same():
    """To Python 1, 1.0 and true are equal; to clients they are not."""
    one, real, true = (Offer.of(tools=[{"name": "a", "x": value}]) for value in (1, 1.0, True))

    assert one.digest == Offer.of(tools=[{"name": "a", "x": 1}]).digest
    assert len({one.digest, real.digest, true.digest}) == 3


halves = [st.sampled_from([chr(0xD800), chr(0xDBFF)]), st.sampled_from([chr(0xDC00), chr(0xDFFF)])]
"""First and second halves: never both in one text, where two of them would make a whole."""
texts = st.one_of([st.text(st.characters(exclude_categories=["Cs"]) | half, max_size=4) for half in halves])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@law
@given(json_values)
def test_halves_of_characters_are_replaced_wherever_they_stand(value: object):
    """What is left can be told in UTF-8; all else is as it was, and where there are none, the very same object."""
    whole = without_lone_surrogates(value)

    told = json.dumps(whole, ensure_ascii=False)
    assert told.encode()
    given = json.dumps(value, ensure_ascii=False)
    assert told == "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in given)
    assert (whole is value) or "\ufffd" in told


def test_a_half_in_a_key_is_replaced_too():
    """Keys are texts as well."""
    assert without_lone_surrogates({"\ud800": ["a", "\udfff"]}) == {"\ufffd": ["a", "\ufffd"]}


def test_entries_are_passed_on_as_the_very_objects_that_came():
    """Rule 30: nothing is rebuilt."""
    tool = {"name": "a", "x-unknown": [1.0]}

    assert Offer.of(tools=[tool]).tools[0] is tool


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ("", {}),
        *((neither, None) for neither in ("[]", "{", "[" * 100_000, [], None, 1)),
    ],
)
def test_an_object_may_come_as_json_text(value: object, found: object):
    """As some clients send it; a text without anything in it is an object without anything in it."""
    assert object_of(value) == found


def test_only_an_object_is_an_object():
    """Lists and texts are none."""
    assert [value for value in ({}, [], "a", None, 1) if is_json(value)] == [{}]


@pytest.mark.parametrize(
    ("template", "matching", "others"),
    [
        ("file:///{name}", ["file:///a", "file:///a.txt", "file:///%2F"], ["file:///", "file:///a/b", "FILE:///a"]),
        ("file:///{+path}", ["file:///a", "file:///a/b/c", "file:///"], ["http:///a"]),
        ("file://{/path*}", ["file:///a/b"], ["file:/"]),
        ("x:{path*}!", ["x:a/b!"], ["x:a/b"]),
        ("x:{a}/{b}", ["x:1/2"], ["x:1", "x:1/2/3", "x:1/"]),
        ("x:a{?q,r}", ["x:a", "x:a?q=1&r=2", "x:a?"], ["x:ab", "x:a?q#f"]),
        ("x:a?k=1{&q}", ["x:a?k=1", "x:a?k=1&q=2"], ["x:a"]),
        ("x:a{#f}", ["x:a", "x:a#f/g"], ["x:b"]),
        ("x:a.b", ["x:a.b"], ["x:aXb", "x:a.b\n", "x:a.bc"]),
        ("x:{", ["x:{"], ["x:1"]),
        ("x:{}y{z}", ["x:1y2"], ["x:y"]),
        ("", [""], ["x:"]),
    ],
)
def test_a_template_stands_for_its_expansions(template: str, matching: list[str], others: list[str]):
    """As RFC 6570 has them, and for nothing else."""
    assert [uri for uri in (*matching, *others) if template_matches(template, uri)] == matching


@pytest.mark.parametrize(("template", "good"), [("x:a{.ext}", "x:a.txt"), ("x:a{;v}", "x:a;v=1")])
def test_labels_and_parameters_do_not_cross_a_slash(template: str, good: str):
    """Only `+`, `#`, `/` and exploded expressions may: a template must not open more than it says."""
    assert template_matches(template, good)
    assert template_matches(template, "x:a")
    assert not template_matches(template, "x:a/../secret")


values = st.text("ab1-._~%", min_size=1, max_size=5)
pieces = st.one_of(
    st.text("abc:/.?+*[(", max_size=3).map(lambda text: (text, text)),
    values.map(lambda value: ("{v}", value)),
    st.lists(values, max_size=3).map(lambda parts: ("{+v}", "/".join(parts))),
    st.lists(values, max_size=3).map(lambda parts: ("{/v*}", "".join(f"/{part}" for part in parts))),
    st.lists(values, max_size=3).map(lambda parts: ("{v*}", "/".join(parts))),
    (st.just("") | values.map("?v={}".format)).map(lambda query: ("{?v}", query)),
    (st.just("") | values.map("#{}".format)).map(lambda fragment: ("{#v}", fragment)),
)


@law
@given(st.lists(pieces, max_size=5))
def test_what_was_expanded_from_a_template_matches_it(parts: list[tuple[str, str]]):
    """Whatever stands between the expressions, characters that mean something to regular expressions too."""
    template, uri = ("".join(side) for side in zip(*parts, strict=True)) if parts else ("", "")

    assert template_matches(template, uri)


@law
@given(before=st.text("ab:/.", max_size=4), after=st.text("ab:/.", max_size=4), value=st.text("ab/?#", max_size=4))
def test_a_simple_expression_stays_within_a_segment(before: str, after: str, value: str):
    """Neither a slash nor a query nor a fragment fits into it."""
    fits = bool(value) and not set(value) & set("/?#")

    assert template_matches(f"x:{before}!{{v}}!{after}", f"x:{before}!{value}!{after}") is fits


@law
@given(text=st.text(st.characters(exclude_characters="{}")), other=st.text())
def test_a_template_without_expressions_stands_for_itself(text: str, other: str):
    """And for nothing else."""
    assert template_matches(text, text)
    assert template_matches(text, other) is (text == other)


def test_no_template_takes_the_proxy_down():
    """Templates are a server's, URIs a client's: no pair of them may keep the proxy busy (rule 26)."""
    hostile = (
        "from proxy.core.inventory import template_matches as m; print(m('x:' + '{+a}b' * 12, 'x:' + 'b' * 2000 + '!'))"
    )

    done = subprocess.run([sys.executable, "-c", hostile], capture_output=True, text=True, timeout=8, check=True)

    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("value", "size"), [(None, 4), ("ü", 4), ("\ud800", 3), ([1, 2], 6), ({"a": [True]}, 13), ([[{}], "[[["], 13)]
)
def test_the_size_of_a_value_is_that_of_its_json(value: object, size: int):
    """In bytes, also where a text holds half a character."""
    assert json_size(value) == size


@pytest.mark.parametrize("wrap", [lambda below: [below], lambda below: {"a": below}])
def test_a_value_that_is_nested_too_deeply_has_no_size(wrap: Any):
    """However deep it is: nothing is overrun."""
    value: object = 1
    for _ in range(DEEPEST):
        value = wrap(value)
    assert json_size(value) < inf
    for _ in range(10 * sys.getrecursionlimit()):
        value = wrap(value)
        assert json_size(value) == inf
    while is_json(value) or isinstance(value, list):  # taken apart here: to Python, it is nested too deeply as well
        (value,) = value.values() if is_json(value) else value


def test_a_very_long_uri_is_compared_with_no_template():
    longest = "memo://".ljust(MAX_EXPANDED_CHARACTERS, "x")

    assert template_matches("memo://{name}", longest)
    assert not template_matches("memo://{name}", longest + "x")
