"""Which values are no secret by their shape alone."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.plain_values import ORDINARY_WORDS, is_boolean, is_plain, looks_random
from tests.core.strategies import law

PLAIN = {
    "booleans": ["disabled", "Enabled", "TRUE"],
    "numbers": ["12345678", "10_000_000", "-1.5e10", "300000ms", "1048576B", "512MiB", "1,000,000", "99.99999%"],
    "versions": ["3.11.7.12", "v10.20.30", "1.2.3-beta.4", "2.0.0rc1"],
    "dates": ["2024-10-07", "2024-02-15-preview", "2024-10-07T12:30:00Z", "2024-10-07 12:30:00.5+02:00", "12:30:59"],
    "levels": ["critical", "info,my_crate=debug", "WARNING,urllib3=error"],
    "locales": ["en_US.UTF-8", "C.UTF-8"],
    "zones": ["Europe/Berlin", "America/Argentina/Buenos_Aires"],
    "media types": ["application/json", "text/event-stream"],
    "hosts": [
        "localhost",
        "localhost:8080",
        "db.example.com",
        "db-1.eu.example.com:5432",
        "192.168.10.20",
        "192.168.10.20:443",
        "fe80::1:2:3",
        "[2001:db8::1]:443",
        "redis-cache:6379",
        "kafka-1:9092,kafka-2:9092",
    ],
    "paths": [
        "/var/lib/data",
        "/usr/bin:/usr/local/bin",
        "~/projects",
        "./data/files",
        "../up/here",
        "C:\\Users\\me\\data",
        "D:/data/me",
        "C:\\bin;D:\\bin",
        "/Users/me/Library/Application Support/x",
        "data/files/state.sqlite3",
        "credentials.json",
    ],
    "URLs": [
        "https://api.example.com",
        "http://localhost:8080/v1/chat/completions",
        "postgres://db:5432/app",
        "mongodb://a:27017,b:27017/app",
        "jdbc:postgresql://db/app",
        "file:///srv/data",
    ],
    "words": ["production", "Development", "filesystem", "GET,POST,DELETE", "production,staging"],
}
NOT_PLAIN = {
    "passwords": ["hunter2hunter2", "correct horse battery", "opensesame", "p@ssw0rd!", "swordfish-9"],
    "tokens": [
        "ghp_0123456789abcdef0123",
        "xoxb-1234-5678-abcdefgh",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ],
    "hexadecimal": ["d41d8cd98f00b204e9800998ecf8427e", "deadbeef01"],
    "Base64": ["dXNlcjpwYXNzd29yZA==", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYzEXAMPLEKEY", "/9j4AAQSkZJRgABAQAAAQABAAD/x"],
    "identifiers": ["123e4567-e89b-12d3-a456-426614174000", "1234567890123456789012345"],
    "URLs with more": [
        "postgres://user:hunter2@db/app",
        "https://user@example.com",
        "https://example.com/?key=x",
        "https://example.com/#access_token=x",
        "https://hooks.example.com/services/T000/B000/a1b2c3d4e5f6g7h8i9j0k1l2",
        "sqlserver://db;user=me;password=hunter2",
    ],
    "userinfo": ["user:hunter2", "user:hunter2@db:5432"],
    "lists with more": ["production,hunter2hunter2", "a,b,c,d=hunter2"],
    "paths with more": ["/run/a1b2c3d4e5f6g7h8i9", "/usr/bin:hunter2", "/run/x=hunter2"],
}


@pytest.mark.parametrize("value", [value for values in PLAIN.values() for value in values])
def test_settings_are_plain(value: str):
    """What says where, how much or how, and nothing that anybody keeps to himself."""
    assert is_plain(value)


@pytest.mark.parametrize("value", [value for values in NOT_PLAIN.values() for value in values])
def test_what_may_be_a_secret_is_not_plain(value: str):
    """Also where it has something of a setting."""
    assert not is_plain(value)


@law
@given(st.text(string.ascii_letters + string.digits, min_size=16), st.sampled_from(["", "/", "a/", "~/", "https://h/"]))
def test_a_row_of_letters_and_digits_is_never_plain(row: str, before: str):
    """Whatever it begins like: tokens are such rows."""
    mixed = f"a1{row}"

    assert looks_random(mixed)
    assert not is_plain(before + mixed)


@law
@given(st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=8), min_size=1, max_size=6))
def test_folders_are_plain_wherever_they_are(names: list[str]):
    """Below the top, the home, and in a list."""
    path = "/" + "/".join(names)

    assert is_plain(path)
    assert is_plain(f"~{path}")
    assert is_plain(f"{path}:{path}")


@law
@given(st.integers(0, 10**12 - 1), st.sampled_from(["", "ms", "MiB", "%"]))
def test_numbers_are_plain(number: int, unit: str):
    """With and without a unit."""
    assert is_plain(f"{number}{unit}")


@law
@given(st.text())
def test_any_text_has_an_answer(value: str):
    """And a list of one thing is as plain as the thing."""
    assert is_plain(value) in {True, False}
    assert not is_plain(value) or not looks_random(value)


@law
@given(st.text(string.ascii_letters + string.digits + "-._:/,", min_size=1000, max_size=20_000))
def test_a_long_value_costs_little(value: str):
    """No pattern takes more than about the length of the value; Hypothesis has a deadline."""
    is_plain(value)


def test_ordinary_words_are_in_small_letters():
    """They are compared so."""
    assert all(word == word.casefold() for word in ORDINARY_WORDS)


def test_a_boolean_is_one_in_any_case():
    """And nothing else is."""
    assert is_boolean("TRUE")
    assert not is_boolean("truely")
