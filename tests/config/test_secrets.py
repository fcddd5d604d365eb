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


@pytest.mark.parametrize(
    ("entry", "secret"),
    [
        # by name
        ("{command: python, env: {DB_PASS: x1234}}", "x1234"),
        ("{command: python, env: {dbPass: x1234}}", "x1234"),
        ("{command: python, env: {GITHUB_PAT: x1234}}", "x1234"),
        ("{command: python, env: {SSH_PASSPHRASE: x1234}}", "x1234"),
        ("{command: python, env: {BASIC_AUTH: 'u:x1234'}}", "u:x1234"),
        ("{command: python, env: {SESSION_COOKIE: x1234}}", "x1234"),
        ("{command: python, args: [--pass, x1234]}", "x1234"),
        ("{command: python, args: [--pass=x1234]}", "x1234"),
        ("{command: python, args: [--pat, x1234]}", "x1234"),
        ("{command: python, args: [--auth, x1234]}", "x1234"),
        ("{command: python, args: ['X-Auth: x1234']}", "x1234"),
        # by place
        ("{command: curl, args: [-u, 'me:x1234']}", "x1234"),
        ("{command: curl, args: [-u, 'me:x1234']}", "bWU6eDEyMzQ="),
        ("{command: curl, args: ['-ume:x1234']}", "x1234"),
        ("{command: curl, args: [--user, 'me:x1234']}", "x1234"),
        ("{command: curl, args: ['--user=me:x1234']}", "x1234"),
        ("{command: curl, args: [--proxy-user, 'me:x1234']}", "x1234"),
        ("{command: npx, args: [mcp-remote, --header, 'X-Anything: x1-234567']}", "x1-234567"),
        ("{command: npx, args: [mcp-remote, --header, 'Authorization:Bearer x1234']}", "x1234"),
        ("{command: npx, args: [mcp-remote, '--header=Authorization: Bearer x1234']}", "x1234"),
        ("{command: npx, args: [mcp-remote, '--header=X-Api-Key: x1234']}", "x1234"),
        ("{command: docker, args: [run, -e, DB_PASS=x1234]}", "x1234"),
        ("{command: docker, args: [run, -e, THING=x1-234567]}", "x1-234567"),
        ("{command: docker, args: [run, '--env=THING=x1-234567']}", "x1-234567"),
        ("{url: 'http://h', headers: {Authorization: 'Basic bWU6eDEyMzQ='}}", "x1234"),
        ("{url: 'http://h', headers: {Cookie: 'a=b; sid=x1234'}}", "x1234"),
        ("{url: 'https://h/s/a1b2c3d4e5f6g7h8i9/mcp'}", "a1b2c3d4e5f6g7h8i9"),
        ("{url: 'https://h/#access_token=x1234'}", "x1234"),
        # within a value
        ("{command: python, env: {URL: 'redis://:x1234@h:6379/0'}}", "x1234"),
        ("{command: python, env: {URL: 'amqp://me:x%401234@h/'}}", "x@1234"),
        ("{command: python, env: {URL: 'postgres://me:x#12/34@h/db'}}", "x#12/34"),
        ("{command: python, env: {URL: 'https://h/?sig=x1234'}}", "x1234"),
        ("{command: python, args: ['--dsn=postgres://me:x1234@h/db']}", "x1234"),
        ("{command: python, args: ['--db', 'me:x1234@tcp(h:3306)/db']}", "x1234"),
        ("{command: python, args: ['Server=h;User ID=me;Password=x 1234;Encrypt=true']}", "x 1234"),
        ("{command: python, env: {DB: 'Server=h;User Id=me;Pwd=x1234;'}}", "x1234"),
        ("{command: python, env: {DB: 'AccountName=me;AccountKey=x1234==;'}}", "x1234=="),
        ("{command: python, env: {DB: 'host=h user=me password=x1234'}}", "x1234"),
        ("""{command: python, env: {CONFIG: '{"db": {"pass": "x1234", "port": 5432}}'}}""", "x1234"),
        ("""{command: python, env: {CONFIG: '{"list": ["x1-234567"]}'}}""", "x1-234567"),
        ("""{command: python, args: ['{"apiKey": "x1234"}']}""", "x1234"),
        # by shape
        ("{command: python, env: {THING: hunter2-hunter2}}", "hunter2-hunter2"),
        ("{command: python, env: {THING: opensesame}}", "opensesame"),
        ("{command: python, env: {THING: 'some words of a phrase'}}", "some words of a phrase"),
        ("{command: python, env: {THING: '${V:-hunter2-hunter2}'}}", "hunter2-hunter2"),
        ("{command: python, inherit_env: [THING]}", "hunter2-hunter2"),
    ],
)
def test_secrets_under_unusual_names_are_known_as_such(room, entry, secret):
    """By the words of the name, by where it stands, within another value, or since no shape says otherwise."""
    assert secret in secrets(room, entry, {"THING": "hunter2-hunter2"})


@pytest.mark.parametrize(
    "entry",
    [
        "{command: python, env: {MODE: production, LEVEL: critical, HOST: 'db.example.com:5432', DATA: /srv/data/all}}",
        "{command: python, env: {URL: 'https://api.example.com/v1', MAX: '10000000', ZONE: Europe/Berlin, SHORT: abc}}",
        "{command: python, env: {AUTHOR: jane, BYPASS: 'yes', PATTERN: '*.md', TOKEN_FILE: /run/secrets/token}}",
        "{command: python, env: {MAX_TOKENS: '4096', AUTH_ENABLED: 'true', NAME: weather-server, USED_BY: forecasts}}",
        "{command: docker, args: [run, -u, '1000:1000', 'img/x:latest@sha256:abc', -e, MODE=production]}",
        "{command: python, args: [-u, server.py, --author, jane, --pattern, 'x*', --connect-timeout, '5000']}",
        "{command: python, args: [something-long-enough, 'C:/data', '{\"port\": 5432, \"on\": true}', '{x', '[1']}",
    ],
)
def test_plain_settings_are_left_readable(room, entry):
    """By their shape; and what servers, skills and users are called, or a part of that."""
    loaded = room.load(f"""
        servers: {{weather-server: {entry}}}
        skill_configs: {{weather-forecasts: {{desc: d, usage: u, tool_list: {{weather-server: []}}}}}}
        """)
    assert loaded.secrets == frozenset()


def test_messages_stay_readable_whatever_the_environment_of_servers_says(room):
    """A value that is a word of our own texts is no secret for its shape alone."""
    loaded = room.load("servers: {s: {command: python, env: {A: connection, B: available, C: instructions}}}")
    text = "server s is not available: the connection closed; its instructions"
    assert Masker(loaded.secrets).mask(text) == text


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
