"""Texts of others in texts of ours: in a line, in quoted lines, and as JSON."""

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.foreign_text import QUOTE, json_line, one_line, quoted, without_our_tags
from tests.core.strategies import OUR_TAGS, hostile_texts, law

TAG = re.compile(rf"<\s*(/?)\s*({'|'.join(OUR_TAGS)})\b", re.IGNORECASE)
UNSEEN = {"Cf", "Zl", "Zp", "Cc"}
anything = hostile_texts | st.text(max_size=50)


def unseen(text: str) -> list[str]:
    """The characters that nobody sees, line feeds and tabs aside."""
    return [each for each in text if unicodedata.category(each) in UNSEEN and each not in "\n\t"]


@law
@given(anything)
def test_a_text_in_one_line_is_one_whatever_it_holds(text: str):
    """With nothing that is not seen and no tag of ours; the words stay."""
    told = one_line(text)

    assert len(told.splitlines()) <= 1
    assert not unseen(told)
    assert "\t" not in told
    assert not TAG.search(told)
    assert letters_of(told) == letters_of(text)


def letters_of(text: str) -> list[str]:
    """Letters and digits of ASCII, but for those of an escape that the proxy writes."""
    return [each for each in text.replace("&lt;", "") if each.isascii() and each.isalnum()]


@law
@given(anything)
def test_every_line_of_a_quoted_text_is_quoted(text: str):
    """Whatever Unicode takes for the end of a line; there is nothing where nothing can be seen."""
    told = quoted(text)

    assert all(line.startswith(QUOTE) for line in told.splitlines())
    assert not unseen(told)
    assert not TAG.search(told.replace("\n| ", "\n"))
    assert (told == "") == (one_line(text) == "")


@pytest.mark.parametrize(
    "end", ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
)
def test_whatever_ends_a_line_ends_one(end: str):
    """As Python, terminals or JavaScript have it; blank lines stay inside, and none around it."""
    assert quoted(f"{end}a{end}{end}  b \t{end}{end}") == "| a\n|\n|   b"
    assert one_line(f"a{end}b") == "a b"


def test_what_nobody_sees_is_taken_out():
    """Joiners of emoji and of Persian too; what steers terminals becomes a space."""
    text = "a\u00ad\u200b\u202eb\U000e0041\ufe0f 👩\u200d💻 می\u200cشود \x1b[2J\ttab"

    assert quoted(text) == "| ab 👩💻 میشود  [2J\ttab"
    assert one_line(text) == "ab 👩💻 میشود [2J tab"


@law
@given(st.recursive(anything | st.integers() | st.none(), lambda c: st.lists(c) | st.dictionaries(anything, c)))
def test_json_in_a_line_means_what_it_meant(value: object):
    """In one line that shows all that it holds, without a tag of ours."""
    told = json_line(value)

    assert json.loads(told) == value
    assert len(told.splitlines()) == 1
    assert not unseen(told)
    assert not TAG.search(told)


def test_json_is_as_it_was_where_it_holds_nothing_odd():
    """No letter of any language is escaped, nor any other markup."""
    value = {"größe": "<b> & <dir> 日本 👍", "pattern": "^(?<name>\\d+)$"}

    assert json_line(value) == json.dumps(value, ensure_ascii=False)
    assert json_line("</skill_guide>\u2028\u200b\U000e0041") == '"\\u003c/skill_guide>\\u2028\\u200b\\udb40\\udc41"'
    assert json_line("<\n\\skill_guide>") == '"\\u003c\\n\\\\skill_guide>"'


@pytest.mark.parametrize("tag", OUR_TAGS)
@pytest.mark.parametrize(
    "spelled",
    [
        *("<{}>", "</{}>", "< / {} >", "<\u200b/{}\u200b>", "<\n\t/{}>", "<{} id='x'>", "<!{} ", "<'{}'"),
        *("\uff1c{}\uff1e", "\u2039{}\u203a", "\u3008/{}\u3009", "\ufe64{}\ufe65", "\u276e{}\u276f"),
    ],
)
def test_our_tags_are_made_harmless_whatever_opens_them(tag: str, spelled: str):
    """And whatever stands between that and the name; nothing else changes."""
    text = spelled.format(tag)

    assert without_our_tags(f"a{text}b") == f"a&lt;{text[1:]}b"


@pytest.mark.parametrize(
    "spell",
    [
        str.upper,
        str.title,
        "\u200b".join,
        "\u0301".join,
        " ".join,
        "\U000e0041\ufe0f\u00ad".join,
        lambda tag: tag.translate({ord(c): ord(c) - 0x20 + 0xFF00 for c in "abcdefghijklmnopqrstuvwxyz_"}),
        lambda tag: "".join(chr(ord(c) - ord("a") + 0x1D41A) if c.isalpha() else c for c in tag),
        lambda tag: tag.replace("s", "\u0455").replace("i", "\u0456").replace("e", "\u0435").replace("o", "\u03bf"),
        lambda tag: tag.replace("k", "\u1d0b").replace("l", "\u029f").replace("d", "\u1d05"),
        lambda tag: tag.replace("i", "1").replace("l", "I").replace("o", "0"),
        lambda tag: tag.replace("fi", "\ufb01").replace("i", "\u0131"),
        lambda tag: tag.replace("u", "ü").replace("a", "å"),
    ],
)
@pytest.mark.parametrize("tag", OUR_TAGS)
def test_our_tags_are_made_harmless_in_whatever_letters(tag: str, spell):
    """Other scripts', fullwidth, bold, with marks, with what nobody sees between them."""
    text = f"<{spell(tag)}>"

    assert without_our_tags(text) == f"&lt;{text[1:]}"
    assert json.loads(json_line(text)) == text
    assert "<" not in json_line(text)
    assert quoted(text).startswith("| &lt;")


@pytest.mark.parametrize("piece", ["<", "<skill", "<é ", "\u200b", "\u0301", " ", "\n", "\u2028<"])
def test_a_long_text_is_looked_through_once(piece: str):
    """However it is made: what takes the square of its length would not end here."""
    text = f"<s{piece * 200_000}kill>"

    for told in (without_our_tags(text), one_line(text, len(text)), quoted(text), json_line(text)):
        assert told
