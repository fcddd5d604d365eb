"""Secrets never show in texts that the proxy words (rule 24, B57)."""

import json
import os
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.core.masking import MASK, SHORTEST, Masker, is_secret, tells_a_secret
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


TELLING = [
    *("TOKEN", "api_key", "--client-secret", "PASSWD", "dbPassword", "X-Api-Key", "PGPASSWORD", "password2"),
    *("DB_PASS", "dbPass", "DB-PASS", "dbpass", "SSHPASS", "pass", "--pass", "PASS1", "SSH_PASSPHRASE", "passcode"),
    *("GITHUB_PAT", "githubPat", "ghpat", "PAT", "--pat", "AZURE_DEVOPS_PAT"),
    *("BASIC_AUTH", "basicAuth", "auth", "--auth", "Authorization", "PROXY-AUTHORIZATION", "OAUTH2", "X-Auth"),
    *("SESSION_COOKIE", "cookies", "DB_CRED", "CREDS", "awsCredentials", "SENTRY_DSN", "dsn", "MYSQL_PWD", "pwd"),
    *("DB_CONN", "dbconn", "ConnectionString", "ConnectionStrings__Default", "CONN_STR", "JWT", "BEARER"),
]
NOT_TELLING = [
    *("PATH", "PATTERN", "PATIENCE", "PATCH", "COMPAT", "EXPAT_HOME", "user", "--verbose", "", "PYTHONPATH"),
    *("AUTHOR", "AUTHORS", "GIT_AUTHOR_NAME", "authority", "coauthor"),
    *("CONNECT_TIMEOUT", "CONNECTIONS", "MAX_CONNECTIONS", "connector"),
    *("PASSTHROUGH", "PASS_THROUGH", "BYPASS", "COMPASS_URL", "passenger", "PASSES", "underpass"),
    *("CREDIT_LIMIT", "SACRED", "MODE", "LOG_LEVEL", "SESSION_ID", "HOST"),
]


@pytest.mark.parametrize("name", TELLING)
def test_a_name_may_tell_a_secret(name: str):
    """In any case, anywhere in the name, its words joined or not."""
    assert tells_a_secret(name)


@pytest.mark.parametrize("name", NOT_TELLING)
def test_other_names_tell_none(name: str):
    """Also where they begin as a word that does."""
    assert not tells_a_secret(name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AUTH_ENABLED", "true"),
        ("TOKEN_FILE", "/run/secrets/token"),
        ("MAX_TOKENS", "4096"),
        ("KEY_SIZE", "2048"),
        ("AUTH_TYPE", "bearer"),
        ("PWD", "/srv/work"),
        ("SSH_AUTH_SOCK", "/tmp/agent.sock"),
        ("MODE", "hunter2hunter2"),
    ],
)
def test_a_plain_value_about_a_secret_is_none(name: str, value: str):
    """How long, where and whether; and a name that tells nothing is not what tells."""
    assert not is_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("DB_PASS", "12345678"), ("PASS", "x"), ("TOKEN_FILE", "hunter2"), ("MYSQL_PWD", "hunter2"), ("KEY", "/a/b")],
)
def test_any_other_value_under_a_telling_name_is_a_secret(name: str, value: str):
    """A number too, and a short one."""
    assert is_secret(name, value)


def test_the_plain_words_of_a_phrase_are_not_hidden_alone():
    """Texts could not be read any more; the phrase is hidden, its other words too."""
    masker = Masker(
        ["correct horse battery staple-9", "-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----"]
    )

    assert masker.mask("it was correct horse battery staple-9.") == f"it was {MASK}."
    assert masker.mask("correct, the KEY is PRIVATE") == "correct, the KEY is PRIVATE"
    assert masker.mask("staple-9") == MASK
    assert masker.mask("MIIEvQ") == MASK


def test_a_line_is_hidden_without_the_space_before_it():
    """As logs show it."""
    assert Masker(["{\n  hunter, 2\n}"]).mask("hunter, 2") == MASK


@law
@given(
    secret=st.text("abcdef0123", min_size=16, max_size=64), at=st.integers(1, 15), end=st.sampled_from(["\n", "\r\n"])
)
def test_a_secret_that_goes_on_in_the_next_line_is_hidden(secret: str, at: int, end: str):
    """Where a terminal of a fixed width has broken it; there are as many lines as before."""
    masked = Masker([secret]).mask(f"x {secret[:at]}{end}{secret[at:]} y")

    assert masked == f"x {MASK}\n{MASK} y"
