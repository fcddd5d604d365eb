"""Which values are secrets (design rule 24; case B57)."""

import pytest

from proxy.core.masking import Masker


def secrets(room, entry, environ=None):
    return room.load(f"servers: {{s: {entry}}}", environ).secrets


@pytest.mark.parametrize(
    ("entry", "secret"),
    [
        ("{command: python, env: {API_TOKEN: x1234}}", "x1234"),
        ("{command: python, env: {DB_PASSWORD: x1234}}", "x1234"),
        ("{command: python, args: [--key, x1234]}", "x1234"),
        ("{command: python, args: [--api-key=x1234]}", "x1234"),
        ("{command: python, args: [-token, x1234]}", "x1234"),
        ("{command: docker, args: [run, -e, API_KEY=x1234]}", "x1234"),
        ("{command: npx, args: [mcp-remote, --header, 'Authorization: Bearer x1234']}", "Bearer x1234"),
        ("{command: python, args: ['postgres://user:x1234@h/db']}", "x1234"),
        ("{command: python, env: {DATABASE_URL: 'postgres://user:x1234@h/db'}}", "x1234"),
        ("{url: 'https://user:x1234@h/'}", "x1234"),
        ("{url: 'https://x1234@h/'}", "x1234"),
        ("{url: 'https://user:x%2F1234@h/'}", "x/1234"),
        ("{url: 'https://h/?api_key=x1234&a=b'}", "x1234"),
        ("{url: 'https://h/?a=x%201234'}", "x 1234"),
        ("{url: 'http://h', headers: {X-Anything: x1234}}", "x1234"),
        ("{command: python, args: ['${V}']}", "x1234"),
        ("{command: python, env: {HARMLESS: 'a-${V}'}}", "x1234"),
        ("{command: '${V}'}", "x1234"),
        ("{command: python, args: ['${V:-default}']}", "x1234"),
        ("{command: python, inherit_env: [MY_SECRET]}", "x1234"),
    ],
)
def test_what_is_secret_is_known_as_such(room, entry, secret):
    """B57: whichever way it came in, also when the server cannot be started."""
    assert secret in secrets(room, entry, {"V": "x1234", "MY_SECRET": "x1234"})


def test_what_is_not_secret_is_left_readable(room):
    """Defaults, ordinary values, flags that follow a telling one, and names."""
    found = secrets(
        room,
        "{command: python, env: {PORT: '8080', E: ''},"
        " args: [-k, plain, --token-from-stdin, --verbose, '${NOPE:-default}']}",
        {"HOME": "/home/me", "PATH": "/bin"},
    )
    assert found == frozenset()


def test_everything_from_an_env_file_is_secret(room):
    """Also what nothing refers to."""
    (room.folder / "a.env").write_text("A=first1\nB=\n")
    (room.folder / "s.env").write_text("C=second2\n")
    loaded = room.load("env_file: a.env\nservers: {s: {command: python, env_file: s.env}}")
    assert loaded.secrets == {"first1", "second2"}


def test_a_reason_shows_no_secret(room):
    """B57: a command that came from a variable is not printed when it cannot be found."""
    reason = room.reason("{command: '${V}'}", {"V": "s3cret-command", "PATH": "/nowhere"})
    assert "s3cret" not in reason
    assert reason.startswith("command *** not found")


def test_a_refusal_shows_no_secret(room):
    """B57: the words name places, not values."""
    text = "\n".join(
        room.problems("""
            servers:
              a: {url: "ftp://u:s3cret@h/?k=s3cret", headers: {A: [s3cret]}}
              b: {command: x, args: [--key, s3cret], timeout: s3cret, env: {TOKEN: {a: s3cret}}}
            proxy: {tokens: {a: "s3cret s3cret", b: s3cret, c: s3cret}}
            """)
    )
    assert "s3cret" not in text


def test_the_secrets_hide_the_case_of_the_collection(room):
    """B57: none of the forms in which a token was configured survives masking."""
    loaded = room.load(
        """
        servers:
          a: {command: python, env: {TOKEN: "tok-env"}, args: [--key, tok-arg]}
          b: {url: "https://user:tok-user@h/?api_key=tok-query", headers: {Authorization: "Bearer tok-head"}}
        proxy: {tokens: {me: tok-mine}}
        """
    )
    text = "tok-env tok-arg https://user:tok-user@h/?api_key=tok-query Authorization: Bearer tok-head tok-mine"
    assert "tok-" not in Masker(loaded.secrets).mask(text)
