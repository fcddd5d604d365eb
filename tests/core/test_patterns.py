"""Patterns on RE2: what Python's `re` took goes on, what would backtrack is refused, and the time is linear."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.patterns import BadPattern, compiled, found
from tests.core.strategies import law

LETTERS = ["a", "é", "٣", "Ⅷ", "½", "_", "-", " ", "\u00a0", "\x1f", "\x85", "\n", "😀", "ß", "\u0301"]


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"^\d+$", "42", True),
        (r"^\d+$", "4x", False),
        (r"^[\w.-]+@[\w-]+\.\w{2,}$", "jürgen@example.org", True),
        (r"^A$", "A", True),
        (r"^[A-Z]$", "Q", True),
        (r"^\ud83d\ude00$", "😀", True),
        (r"^\u{1F600}$", "😀", True),
        (r"^\cJ$", "\n", True),
        (r"\Aa\Z", "a", True),
        (r"^[\Z]$", "Z", None),
        (r"^a{,2}$", "aa", True),
        (r"^a{,2}$", "aaa", False),
        (r"^[{,2}]+$", "{,2}", True),
        (r"^\p{Lu}$", "Ä", True),
        (r"^(?<year>\d{4})$", "2026", True),
        (r"^[]a]+$", "]a", True),
        (r"^[^]a]+$", "b", True),
        (r"^[[a\]]\d$", "[1", True),
        (r"^x\/y$", "x/y", True),
        (r"^a$", "a\n", False),
        (r"a", "\ud800a", True),
        (r"(?i)^straße$", "STRAßE", True),
    ],
)
def test_a_pattern_means_what_it_says(pattern: str, text: str, matches: bool | None):
    if matches is None:
        with pytest.raises(BadPattern):
            found(pattern, text)
    else:
        assert found(pattern, text) is matches


@law
@given(
    st.lists(st.sampled_from([r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"[\w-]", r"[^\s_]", r"[\d\s]"]), max_size=4),
    st.text(st.sampled_from(LETTERS), max_size=6),
)
def test_classes_of_characters_are_those_of_python(parts: list[str], text: str):
    pattern = "".join(parts)

    assert found(pattern, text) == (re.search(pattern, text) is not None)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"a(?=b)", "look-around is not supported"),
        (r"(?<!a)b", "look-around is not supported"),
        (r"(a)\1", "back-references are not supported"),
        (r"(?P<n>a)(?P=n)", "back-references are not supported"),
        (r"(?<n>a)\k<n>", "back-references are not supported"),
        (r"a{2,2000}", "counts beyond 1000 are not supported (maxLength may say the same)"),
        (r"a++", "atomic groups and possessive or double repetitions are not supported"),
        (r"(?>a)", "atomic groups and possessive or double repetitions are not supported"),
        ("\ud83d", "half of a surrogate pair is not supported"),
        ("(", "missing ): ("),
        ("(a{900}|b)" * 3_000, "it is too large"),
    ],
)
def test_what_cannot_be_done_in_linear_time_is_refused_in_words(pattern: str, why: str):
    with pytest.raises(BadPattern) as refused:
        compiled(pattern)

    assert str(refused.value) == why
