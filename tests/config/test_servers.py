"""Entries of servers: as pasted from any client, and what is wrong with them (design rules 19 and 21)."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.config.models import CLIENT_KEYS
from proxy.core.server import HttpServer, StdioServer


@pytest.mark.parametrize("key", ["servers", "mcpServers", "mcp_servers"])
def test_servers_may_stand_under_the_key_of_any_client(room, key):
    """One of the three."""
    assert list(room.load(f"{key}: {{a: {{command: python}}}}").servers) == ["a"]


def test_servers_under_two_keys_are_refused(room):
    """Which of them would win?"""
    assert room.problems("mcpServers: {}\nservers: {a: {command: x}}\nmcp_servers: {}\n") == [
        "2: servers: servers are given twice, here and on line 1: put all under one key",
        "3: mcp_servers: servers are given twice, here and on line 1: put all under one key",
    ]


@pytest.mark.parametrize("key", ["url", "httpUrl", "serverUrl"])
@pytest.mark.parametrize(
    ("kind", "transport"),
    [
        ("", "http"),
        *((f", type: {name}", "http") for name in ("http", "streamable-http", "streamableHttp", "streamable_http")),
        (", type: sse", "sse"),
    ],
)
def test_a_url_makes_a_server_over_http(room, key, kind, transport):
    """However clients call it."""
    more = "timeout: 1.5, start: eager, era: modern, isolation: scope, max_concurrency: 2"
    assert room.http(f"{{{key}: 'https://h/mcp', headers: {{A: b}}, {more}{kind}}}") == HttpServer(
        key="s",
        url="https://h/mcp",
        headers={"A": "b"},
        transport=transport,
        timeout=1.5,
        eager=True,
        era="modern",
        isolation="scope",
        max_concurrency=2,
    )


def test_a_command_makes_a_server_over_stdio(room):
    """With the defaults for what is not said."""
    program = str(room.program("tool"))
    assert room.stdio("{command: ./tool}") == StdioServer(key="s", command=program)
    assert room.stdio(
        "{type: stdio, command: ./tool, args: [-y], timeout: '60', start_timeout: 1e1, start: eager, era: handshake, "
        "isolation: scope, max_concurrency: 1}"
    ) == StdioServer(
        key="s",
        command=program,
        args=("-y",),
        timeout=60.0,
        start_timeout=10.0,
        eager=True,
        era="handshake",
        isolation="scope",
        max_concurrency=1,
    )


def test_headers_of_clients_go_on_where_they_are_named(room):
    """In any case of letters, each once; a cookie too, and the client's Authorization where it is no proxy's token."""
    names = "[X-User-Token, x-user-token, Cookie, AUTHORIZATION]"
    server = room.http(f"{{url: 'http://h', headers: {{X-Other: b}}, pass_headers: {names}}}")
    assert server.pass_headers == ("x-user-token", "cookie", "authorization")
    assert room.http("{type: streamable-http, url: 'http://h', pass_headers: []}").pass_headers == ()


def test_the_token_of_the_proxy_never_goes_on(room):
    """Where clients send one in Authorization, that header cannot be named."""
    text = """\
proxy: {tokens: {alice: x}}
servers:
  s: {url: "http://h", pass_headers: [X-User-Token, authorization]}
"""
    (said,) = room.problems(text)
    assert said == (
        "3: servers.s.pass_headers[1]: with proxy.tokens, authorization holds the proxy's own token, which must not "
        "go on: let clients send the server's in another header"
    )


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (
            "{command: x, url: 'http://h'}",
            ": has both command and url: keep command for a program to start, url for a server that runs elsewhere",
        ),
        (
            "{args: [x]}",
            ": has neither command nor url: write command for a program to start, url for a server that runs elsewhere",
        ),
        ("{type: stdio, url: 'http://h'}", ".type: stdio goes with a command, but there is a url: correct one of them"),
        ("{type: sse, command: x}", ".type: sse goes with a url, but there is a command: correct one of them"),
        ("{type: tcp, url: 'http://h'}", ".type: must be one of 'stdio', 'http', 'streamable-http'"),
        ("{url: 'http://h', httpUrl: 'http://h'}", ".httpUrl: says the same as url: keep one of them"),
        (
            "{command: x, disabled: true, env_file: a, envFile: a}",
            ".envFile: says the same as env_file: keep one of them",
        ),
        ('{command: ""}', ".command: is empty: write the program to start"),
        ("{command: x, args: -y}", '.args: must be a list: write ["-y"]'),
        ("{command: x, args: {a: b}}", ".args: must be a list, not a mapping"),
        ("{command: x, args: -y --token=abcd}", '.args: must be a list: write ["-y", "--token=..."]'),
        ("{command: x, args: -c 'a b'}", '.args: must be a list: write ["...", "..."], each item in quotes'),
        ("{command: x, inherit_env: 'A, B'}", '.inherit_env: must be a list: write ["A", "B"]'),
        ("{command: [x, {a: b}]}", ".command: must be text, not a list"),
        ("{command: x, args: [{a: b}]}", ".args[0]: must be text, not a mapping"),
        ("{command: x, env: [A=b]}", ".env: must be a mapping (key: value), not a list"),
        ("{command: x, env: {A: [b]}}", ".env.A: must be text, not a list"),
        ("{command: x, env: {A=B: c}}", '.env."A=B": the name of a variable is not empty and holds no ='),
        ("{url: 'http://h', headers: {'a b': c}}", '.headers."a b": cannot be the name of an HTTP header'),
        ("{command: x, pass_headers: [A]}", ".pass_headers: goes with a url: a program gets no HTTP headers"),
        ("{type: sse, url: 'http://h', pass_headers: [A]}", ".pass_headers: goes with type http, not with sse"),
        ("{url: 'http://h', pass_headers: X-A}", '.pass_headers: must be a list: write ["X-A"]'),
        ("{url: 'http://h', pass_headers: ~}", ".pass_headers: is empty: write [] for an empty list, or leave it out"),
        ("{url: 'http://h', pass_headers: [{a: b}]}", ".pass_headers[0]: must be text, not a mapping"),
        ("{url: 'http://h', pass_headers: [X-*]}", ".pass_headers[0]: is a pattern: write each name"),
        ("{url: 'http://h', pass_headers: ['']}", ".pass_headers[0]: cannot be the name of an HTTP header"),
        ("{url: 'http://h', pass_headers: ['a b']}", ".pass_headers[0]: cannot be the name of an HTTP header"),
        (
            "{url: 'http://h', headers: {x-a: b}, pass_headers: [X-A]}",
            ".pass_headers[0]: X-A stands in headers too: keep one of them",
        ),
        *(
            (f"{{url: 'http://h', pass_headers: [{name}]}}", f".pass_headers[0]: {name} {why} and never goes on")
            for names, why in (
                (("Connection", "TE", "Transfer-Encoding", "Proxy-Authorization"), "is between two neighbours alone"),
                (("Host", "Accept", "Content-Type", "mcp-session-id"), "belongs to each request itself"),
            )
            for name in names
        ),
        ("{command: x, isolation: session}", ".isolation: must be one of 'shared' or 'scope'"),
        ("{command: x, max_concurrency: 0}", ".max_concurrency: must be a whole number greater than 0"),
        ("{command: x, max_concurrency: 1.5}", ".max_concurrency: must be a whole number greater than 0"),
        ("{command: x, timeout: 0}", ".timeout: must be a number of seconds greater than 0, such as 30"),
        ("{command: x, timeout: 30s}", ".timeout: must be a number of seconds greater than 0, such as 30"),
        ("{command: x, timeout: .inf}", ".timeout: must be a number of seconds greater than 0, such as 30"),
        ("{command: x, timeout: 1e999}", ".timeout: must be a number of seconds greater than 0, such as 30"),
        ("{command: x, timeout: -1}", ".timeout: must be a number of seconds greater than 0, such as 30"),
        ("{command: x, timeout: [1]}", ".timeout: must be a number of seconds greater than 0, such as 30"),
        ("{command: x, disabled: 1}", ".disabled: must be true or false"),
        ("{command: x, disabled: {}}", ".disabled: must be true or false"),
        ("{command: x, start: now}", ".start: must be one of 'lazy' or 'eager'"),
        ("{command: x, era: old}", ".era: must be one of 'auto', 'handshake' or 'modern'"),
        ("{command: x, comand: y}", ".comand: unknown key: did you mean 'command'?"),
        ("{command: x, qqqqqq: y}", ".qqqqqq: unknown key: known here: "),
        ("{command: x, env: {A: }}", '.env.A: is empty: write "" for empty text; quote it if it is a word'),
        ("{command: x, args: [~]}", ".args[0]: is empty: quote it if it is a name, or take it out"),
        ("{command: x, args: ~}", ".args: is empty: write [] for an empty list, or leave it out"),
        ("{command: x, env: ~}", ".env: is empty: write {} if nothing belongs there, or leave it out"),
        ("{command: }", ".command: is empty: write a value, or leave it out"),
        ("{command: x, prefix: ~}", '.prefix: is empty: write "" for empty text; quote it if it is a word'),
        ("~", ": is empty: write its settings below it, or take it out"),
        ("npx", ': must be a mapping (key: value), not text: write "s: {command: npx}"'),
        ("npx -y x", ': must be a mapping (key: value), not text: write "s: {command: npx, args: [...]}"'),
        ("http://h/mcp?key=x", ': must be a mapping (key: value), not text: write "s: {url: ...}"'),
        ("command:npx", ": must be a mapping (key: value), not text (a space is missing after the colon?)"),
        ("{url: 'http://h', headers: A:b c}", ".headers: must be a mapping (key: value), not text"),
        ("{url: 'http://h', headers: AB:c}", ".headers: must be a mapping (key: value), not text (a space is missing"),
        ("{command: x, args:y}", '."args:y": is empty (a space is missing after the colon?)'),
        (
            "{url: 'http://h', bearer_token_env_var: TOK}",
            '.bearer_token_env_var: unknown key: write headers: {Authorization: "Bearer ${TOK}"}',
        ),
        (
            "{url: 'http://h', bearer_token_env_var: ghp_secret}",
            '.bearer_token_env_var: unknown key: write headers: {Authorization: "Bearer ${NAME}"}',
        ),
        (
            "{url: 'http://h', env_http_headers: {X-A: A_KEY, X-B: secret}}",
            '.env_http_headers: unknown key: write headers: {X-A: "${A_KEY}", X-B: "${NAME}"}',
        ),
        (
            "{url: 'http://h', http_headers: secret}",
            '.http_headers: unknown key: write headers: {Authorization: "Bearer ${NAME}"}, or what else is to be sent',
        ),
    ],
)
def test_what_is_wrong_with_an_entry_is_said_with_what_to_do(room, entry, problem):
    """In words for people, with line and path, and once."""
    (said,) = room.problems(f"servers:\n  s: {entry}\n")
    assert said.startswith(f"2: servers.s{problem}")


@pytest.mark.parametrize(
    ("flag", "on"), [*((f, True) for f in ("true", "True", "yes", "on", "'on'")), ("off", False), ("no", False)]
)
def test_a_switch_understands_the_words_for_it(room, flag, on):
    """Quoted or not."""
    loaded = room.load(
        f"servers: {{a: {{command: python, disabled: {flag}}}, b: {{command: python, enabled: {flag}}}}}"
    )
    assert loaded.catalogue.servers == (("b",) if on else ("a",))


def test_keys_that_only_clients_use_are_named_as_unused(room):
    """Whatever they hold, also in an entry that is disabled."""
    entry = "".join(f"    {key}: [~, {{a: b}}]\n" for key in sorted(CLIENT_KEYS))
    notes = room.notes(f"servers:\n  s:\n    command: python\n{entry}")
    for number, key in enumerate(sorted(CLIENT_KEYS), start=4):
        (note,) = [note for note in notes if note.startswith(f"{number}: servers.s.{key}: ")]
        assert "not used, only some clients understand it" in note
    assert any(
        note.endswith(
            "tools: not used, only some clients understand it: here tool_list and black_tool_actions choose tools"
        )
        for note in notes
    )
    assert {"alwaysAllow", "autoApprove", "alwaysLoad", "trust", "description", "startup_timeout_sec"} <= CLIENT_KEYS


@pytest.mark.parametrize(
    ("entry", "same"),
    [
        (
            "{command: [python, x], type: local, environment: {A: b}}",
            "{command: python, args: [x], env: {A: b}}",
        ),
        ("{cmd: python, args: [x], envs: {A: b}, type: stdio}", "{command: python, args: [x], env: {A: b}}"),
        ("{command: python, env_vars: [A, B]}", "{command: python, inherit_env: [A, B]}"),
        ("{command: python, env_keys: [A], transportType: stdio}", "{command: python, inherit_env: [A]}"),
    ],
)
def test_keys_that_clients_document_are_read_as_what_they_mean(room, entry, same):
    environ = {"A": "a", "B": "b"}
    assert room.stdio(entry, environ) == room.stdio(same, environ)
    notes = room.notes(f"servers: {{s: {entry}}}\nskill_configs: {{a: {{desc: d, tool_list: {{s: []}}}}}}")
    assert any("read as" in note for note in notes)


@pytest.mark.parametrize(
    ("entry", "same"),
    [
        ("{url: 'http://h/mcp', transportType: streamableHttp}", "{url: 'http://h/mcp'}"),
        ("{uri: 'http://h/mcp', type: streamable_http}", "{url: 'http://h/mcp'}"),
        ("{url: 'http://h/mcp', type: remote}", "{url: 'http://h/mcp'}"),
        ("{url: 'http://h/mcp', transport: Streamable-HTTP}", "{url: 'http://h/mcp'}"),
        ("{url: 'http://h/mcp', transport: sse}", "{url: 'http://h/mcp', type: sse}"),
        ("{url: 'http://h/mcp', http_headers: {A: b}}", "{url: 'http://h/mcp', headers: {A: b}}"),
    ],
)
def test_keys_that_clients_document_are_read_as_what_they_mean_over_http(room, entry, same):
    assert room.http(entry) == room.http(same)


@pytest.mark.parametrize("key", ["auth", "oauth", "headersHelper", "authProviderType"])
def test_a_key_by_which_clients_sign_in_is_named_with_what_does_so_here(room, key):
    (note,) = [note for note in room.notes(f"servers: {{s: {{url: 'http://h', {key}: x}}}}") if key in note]
    assert note.endswith("only some clients understand it: here headers sign in, as Authorization: Bearer ${TOKEN}")


def test_two_keys_that_say_the_same_are_refused(room):
    """Nothing is guessed."""
    (problem,) = room.problems("servers: {s: {command: python, env: {A: b}, environment: {A: c}}}")
    assert problem.startswith("1: servers.s.environment: unknown key")


def test_settings_of_the_other_kind_of_server_are_named_as_unused(room):
    """They do no harm, but have no effect."""
    notes = room.notes("""
        servers:
          a: {url: "http://h", args: [x], env: {A: b}, cwd: x, inherit_env: [X]}
          b: {command: python, headers: {A: b}}
        skill_configs: {s: {tool_list: {a: [], b: []}}}
        """)
    assert notes == [
        *(f"3: servers.a.{key}: not used: it goes with a command" for key in ("args", "env", "cwd", "inherit_env")),
        "4: servers.b.headers: not used: it goes with a url",
    ]


def test_a_time_that_looks_like_milliseconds_is_noted(room):
    """Times are seconds here; some clients count milliseconds."""
    notes = room.notes(
        "servers:\n  a:\n    command: python\n    timeout: 600000\nskill_configs: {s: {tool_list: {a: []}}}\n"
    )
    assert notes == ["4: servers.a.timeout: 600000 seconds; if milliseconds are meant, divide by 1000"]


def test_disabled_servers_are_left_out_and_skills_that_name_them_say_so(room):
    """Neither started nor granted; the skill stays, and still names them."""
    text = """
        servers:
          a: {command: python}
          b: {command: not-there, disabled: true}
          c: {url: "http://h", enabled: false, prefix: a}
          d: {command: python, disabled: true, prefix: d}
        black_tool_actions: {b: x, a: y}
        skill_configs:
          one: {tool_list: {a: [], b: []}, resource_list: {c: []}}
          two: {prompt_list: {b: []}}
          three: {enabled: false, tool_list: {b: [], d: []}}
        """
    loaded = room.load(text)
    assert loaded.catalogue.servers == ("a",)
    assert dict(loaded.catalogue.naming.prefixes) == {"a": "a"}
    assert list(loaded.servers) == ["a"]
    assert loaded.unstartable == {}
    assert loaded.catalogue.skills[0].servers == {"a", "b", "c"}  # named, so that an activation can say so
    assert list(loaded.catalogue.denied) == ["a"]
    assert room.notes(text) == [
        "4: servers.b: disabled: it is not started; skills one, two go without it",
        "5: servers.c: disabled: it is not started; skill one goes without it",
        "6: servers.d: disabled: it is not started",
    ]


def test_a_server_that_no_skill_names_is_noted(room):
    """It would never start."""
    notes = room.notes(
        "servers:\n  a: {command: python}\n  b: {command: python}\nskill_configs: {s: {tool_list: {a: []}}}\n"
    )
    assert notes == ["3: servers.b: no skill names it: it is never started"]


def test_servers_and_skills_keep_the_order_of_the_file(room):
    """It is the order of lists."""
    loaded = room.load("""
        servers: {z: {command: python}, a: {command: not-there}, m: {url: "http://h"}}
        skill_configs: {zz: {}, aa: {}}
        """)
    assert loaded.catalogue.servers == ("z", "a", "m")
    assert [skill.id for skill in loaded.catalogue.skills] == ["zz", "aa"]


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        ("a__b: {command: x}", "2: servers.a__b: a key with __ needs a prefix without it: add prefix: NAME"),
        ("'a._b': {command: x}", '2: servers."a._b": a key with __ needs a prefix without it: add prefix: NAME'),
        ("a: {command: x, prefix: b__c}", "2: servers.a.prefix: cannot hold __, which ends a prefix"),
        ("a: {command: x, prefix: b.c}", "2: servers.a.prefix: may only hold letters A-Z and a-z, digits, _ and -"),
        ("a: {command: x, prefix: é}", "2: servers.a.prefix: may only hold letters A-Z and a-z, digits, _ and -"),
        (
            f"a: {{command: x, prefix: {'p' * 25}}}",
            "2: servers.a.prefix: is longer than 24 characters, half of name_limit",
        ),
        (
            "a: {command: x}\n  b: {command: x, prefix: a}",
            "3: servers.b.prefix: servers 'a' and 'b' have the same prefix 'a': give one of them another prefix",
        ),
        (
            "a.b: {command: x}\n  a_b: {command: x}",
            "3: servers.a_b: servers 'a.b' and 'a_b' have the same prefix 'a_b': give one of them another prefix",
        ),
        ("'': {command: x}", '2: servers."": a server needs a key that is not empty'),
        ("' ': {command: x}", '2: servers." ": a server needs a key that is not empty'),
    ],
)
def test_prefixes_are_checked(room, servers, problem):
    """Rule 19: a prefix is short, has no `__`, and belongs to one server."""
    assert room.problems(f"servers:\n  {servers}\n") == [problem]


def test_good_prefixes_are_taken_as_written(room):
    """Also none at all, for several servers."""
    loaded = room.load("""
        servers:
          a__b: {command: python, prefix: ab}
          c: {command: python, prefix: ""}
          d: {command: python, prefix: ""}
          e.f: {command: python}
        proxy: {name_limit: 64}
        """)
    assert dict(loaded.catalogue.naming.prefixes) == {"a__b": "ab", "c": "", "d": "", "e.f": "e.f"}
    assert loaded.catalogue.naming.limit == 64


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(value=st.floats(min_value=1e-6, max_value=1e6))
def test_any_positive_number_is_a_time(room, value):
    """As Python or JSON write it."""
    assert room.http(f"{{url: 'http://h', timeout: {value!r}}}").timeout == value
