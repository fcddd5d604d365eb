"""Texts of others as a terminal can show them."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.texts import printable
from tests.core.strategies import law


@law
@given(st.text(), st.booleans())
def test_what_is_printed_steers_nothing(text: str, lines: bool):
    """No control, no mark that turns the direction of reading, nothing that nobody sees; as long as before."""
    shown = printable(text, lines=lines)

    assert len(shown) == len(text)
    assert lines or "\n" not in shown
    assert {unicodedata.category(c) for c in shown if c != "\n"}.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})


@pytest.mark.parametrize("character", ["\x1b", "\x9b", "\u200b", "\u202e", "\u2066", "\x7f", "\r", "\ud800"])
def test_what_a_terminal_obeys_becomes_a_space(character: str):
    """And what is beside it stays."""
    assert printable(f"a{character}b\nc", lines=True) == "a b\nc"
    assert printable("é日👩") == "é日👩"
