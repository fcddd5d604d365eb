"""Letters that look like others."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.lookalikes import INVISIBLE_CHARACTER, skeleton, stray_character, told
from tests.core.strategies import law


def test_every_format_character_is_one_that_nobody_sees():
    """Category Cf, whatever later versions of Unicode add to it; and nothing that has a shape of its own."""
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if unicodedata.category(character) == "Cf":
            assert INVISIBLE_CHARACTER.match(character), told(character)
    for seen in "a-_ \n\t'é日ー́\u00a0\u3000":
        assert not INVISIBLE_CHARACTER.match(seen), told(seen)


@pytest.mark.parametrize("character", [*"\u034f\u115f\u17b4\u180b\u2800\u3164\ufe0f\uffa0\U000e0100\U000e0041"])
def test_fillers_selectors_and_tags_are_not_seen_either(character: str):
    """They are of other categories."""
    assert INVISIBLE_CHARACTER.match(character)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("\u0441\u0430\u0440\u0430", "capa"),
        ("\u0420\u0410\u0423", "PAY"),
        ("\uff47\uff49\uff54", "git"),
        ("\U0001d420\U0001d422\U0001d42d", "git"),
        ("pay\u200bpal", "paypal"),
        ("paypaI", "paypal"),
        ("Straße", "STRASSE"),
    ],
)
def test_texts_that_look_the_same_have_one_skeleton(one: str, other: str):
    """In other letters, widths, styles and cases, and with what nobody sees."""
    assert skeleton(one) == skeleton(other)


@pytest.mark.parametrize(("one", "other"), [("mail", "mall"), ("größe", "grosse"), ("a-b", "a_b"), ("日", "曰")])
def test_texts_that_look_different_have_different_ones(one: str, other: str):
    """As far as no large tables are needed."""
    assert skeleton(one) != skeleton(other)


@law
@given(st.text("abcxyz-_ 23"), st.text("абвгдежзийлфцчшщюя-_ 23"), st.text("日本ひらカタ", min_size=1))
def test_a_text_of_one_script_has_no_stray_character(latin: str, cyrillic: str, japanese: str):
    """Whatever signs and digits of ASCII it has."""
    assert [stray_character(text) for text in (latin, cyrillic, japanese)] == ["", "", ""]


@law
@given(st.text("abcxyz", min_size=1), st.sampled_from("абж"), st.text("abcxyz23", max_size=5))
def test_the_character_of_another_script_is_the_one_that_is_not_latin(before: str, stray: str, after: str):
    """Wherever it stands; where there is no Latin letter, the one that is not as the first."""
    assert stray_character(f"{before}{stray}{after}") == stray
    assert stray_character(f"{stray}{before}") == stray
    assert stray_character(f"{stray}日") == "日"
    assert stray_character(f"{before}\u200b{after}") == "\u200b"


def test_a_character_is_told_by_its_code_and_name():
    """And by the code alone where it has none."""
    assert told("а") == "U+0430 CYRILLIC SMALL LETTER A"  # noqa: RUF001 - it is meant
    assert told("\ue000") == "U+E000"
