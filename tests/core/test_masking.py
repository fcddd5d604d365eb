"""Secrets never show in texts that the proxy words (rule 24, B57)."""

import json
import os
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.core.masking import MASK, SHORTEST, Masker, tells_a_secret
from tests.core.strategies import law

characters = "aB7 '\"\\/+%&=?!()~;:\t\n\x1b€é日👩"
secrets = st.text(characters, min_size=SHORTEST, max_size=12).filter(lambda text: len(text.strip()) >= SHORTEST)
around = st.text("xyz .", max_size=3)


def repr_among_quotes(secret: str) -> str:
    """The secret as it stands in the `repr` of a text that has both kinds of quotes."""
    return repr(f"'\"<{secret}>")[5:-2]


FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "URL-encoded, as a part": lambda secret: quote(secret, safe=""),
    "URL-encoded, as a path": quote,
    "URL-encoded, as a form": quote_plus,
    "URL-encoded, as JavaScript does": lambda secret: quote(secret, safe="!'()*"),
    "URL-encoded, in small letters": lambda secret: re.sub("%..", lambda m: m[0].lower(), quote(secret, safe="")),
    "JSON": lambda secret: json.dumps(secret)[1:-1],
    "JSON in UTF-8": lambda secret: json.dumps(secret, ensure_ascii=False)[1:-1],
    "repr": lambda secret: repr(secret)[1:-1],
    "repr in a text with both kinds of quotes": repr_among_quotes,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@law
@given(secret=secrets, others=st.sets(secrets, max_size=2), before=around, after=around)
def test_no_form_of_a_secret_survives(
    form: Callable[[str], str], secret: str, others: set[str], before: str, after: str
):
    """However it got into the text."""
    masked = Masker({secret, *others}).mask(f"{before}{form(secret)}{after}")

    assert form(secret) not in masked
    assert MASK in masked


@law
@given(lines=st.lists(st.text("abé'\"", max_size=6), min_size=2, max_size=4), text=around)
def test_each_line_of_a_secret_is_hidden(lines: list[str], text: str):
    """Logs show a key of many lines line by line; a line too short to tell anything is left alone."""
    masker = Masker(["\n".join(lines)])

    for line in lines:
        assert len(line) < SHORTEST or line not in masker.mask(f"{text}{line}{text}")


def test_the_words_of_a_secret_are_hidden_alone():
    """The token of `Authorization: Bearer TOKEN` shows up without its scheme, and the scheme is no secret."""
    masker = Masker(["Bearer s3cr3t", "Token t0k3n"])

    assert masker.mask("s3cr3t and t0k3n") == f"{MASK} and {MASK}"
    assert masker.mask("Bearer Basic token") == "Bearer Basic token"


@law
@given(secret=st.text("abcd\n ", min_size=1), text=st.text("vwxyz0 \n%\\"))
def test_a_text_without_secrets_stays_as_it_is(secret: str, text: str):
    """To the letter."""
    assume(secret not in text)

    assert Masker([secret]).mask(text) == text


def test_what_is_too_short_is_no_secret():
    """Masking `on` everywhere would only take texts apart."""
    assert Masker(["abc", "", "on"]).mask("abc on") == "abc on"
    assert Masker().mask("abc on") == "abc on"


def test_the_longer_of_two_secrets_is_hidden_whole():
    """No tail of it stays behind."""
    assert Masker(["abcd", "abcdefgh"]).mask("abcdefgh abcd") == f"{MASK} {MASK}"


def test_a_secret_in_no_known_encoding_is_hidden_too():
    """The environment holds bytes, and Python passes on what is not UTF-8 as surrogates: no reason to fall over."""
    secret = os.fsdecode(b"p\xffssword")

    assert Masker([secret]).mask(f"-{secret}-") == f"-{MASK}-"


def test_what_is_learnt_later_is_hidden_besides():
    """Also after something was masked already; what was known before stays a secret."""
    masker = Masker(["first-secret"])
    assert masker.mask("first-secret second-secret") == f"{MASK} second-secret"

    masker.learn(["second-secret"])

    assert masker.mask("first-secret second-secret") == f"{MASK} {MASK}"
    masker.learn([])
    assert masker.mask("first-secret second-secret") == f"{MASK} {MASK}"


def test_one_that_knew_nothing_can_learn():
    """It need not know any secret at first."""
    masker = Masker()
    assert masker.mask("a-secret") == "a-secret"

    masker.learn(["a-secret"])

    assert masker.mask("a-secret") == MASK


@pytest.mark.parametrize("name", ["TOKEN", "api_key", "--client-secret", "PASSWD", "dbPassword", "X-Api-Key"])
def test_a_name_may_tell_a_secret(name: str):
    """In any case, anywhere in the name."""
    assert tells_a_secret(name)


@pytest.mark.parametrize("name", ["PATH", "user", "--verbose", ""])
def test_other_names_tell_none(name: str):
    """Their values may be shown."""
    assert not tells_a_secret(name)
