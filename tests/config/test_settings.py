"""The `proxy:` block, the top level, and refusing a file whole (design rule 21)."""

import pytest

from proxy.core.limits import UNLIMITED, Limits
from proxy.core.settings import PerKind, Publish, Settings, every_kind

NO_MAPPING = "must be a mapping (key: value), not text"


def test_without_a_block_the_settings_are_the_defaults(room):
    """Those of the core."""
    loaded = room.load("")
    assert loaded.settings == Settings()
    assert loaded.catalogue.naming.limit == 48


def test_every_setting_is_read(room):
    """With `on` and `off` as the words they are."""
    loaded = room.load(
        """
        proxy:
          list_wait: 1
          activation_wait: 2.5
          call_route: on
          call_route_clients: [me]
          listing: stable
          publish: {prompts: no, resources: false, extension: off}
          max_scopes: 5
          scope_idle: {namespace: 86400}
          limits: {sessions: 20, calls_in_flight: unlimited}
          state: {backend: sqlite, path: state.db}
          name_limit: 128
          tokens: {alice: "${ALICE_TOKEN}", bob: "bob-${SUFFIX:-1}"}
          allowed_hosts: ["proxy.example:*"]
          allowed_origins: ["https://app.example"]
          keep_alive: 5
          max_message_size: 500KiB
          input_wait: 30
          log_level: debug
          reload: off
        """,
        {"ALICE_TOKEN": "alice-token"},
    )
    assert loaded.settings == Settings(
        list_wait=1.0,
        activation_wait=2.5,
        call_route="on",
        call_route_clients=("me",),
        listing="stable",
        publish=Publish(prompts=False, resources=False, extension=False),
        max_scopes=every_kind(5),
        scope_idle=PerKind(session=1800.0, namespace=86400.0, principal=1800.0),
        state_file=str(room.folder / "state.db"),
        tokens={"alice": "alice-token", "bob": "bob-1"},
        allowed_hosts=("proxy.example:*",),
        allowed_origins=("https://app.example",),
        keep_alive=5.0,
        max_request_size=500 * 1024,
        max_message_size=500 * 1024,
        input_wait=30.0,
        log_level="debug",
        reload="off",
        limits=Limits(sessions=20, calls_in_flight=UNLIMITED),
    )
    assert loaded.catalogue.naming.limit == 128
    assert {"alice-token", "bob-1"} <= loaded.secrets


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("list_wait: 0", "list_wait: must be a number of seconds greater than 0, such as 30"),
        ("max_scopes: 1.5", "max_scopes: must be a whole number greater than 0"),
        ("max_scopes: 0", "max_scopes: must be a whole number greater than 0"),
        (f"max_scopes: {'9' * 5000}", "max_scopes: must be a whole number greater than 0"),
        ("max_scopes: -1", "max_scopes: must be a whole number greater than 0"),
        ("max_scopes: many", "max_scopes: must be a whole number greater than 0"),
        ("max_scopes: [1]", "max_scopes: must be a whole number greater than 0"),
        ("max_scopes: {session: 0}", "max_scopes.session: must be a whole number greater than 0"),
        ("max_scopes: {sesion: 5}", "max_scopes.sesion: unknown key: did you mean 'session'?"),
        ("max_scopes: {process: 5}", "max_scopes.process: unknown key: known here: "),
        *(
            (f"limits: {{sessions: {most}}}", "limits.sessions: must be a whole number greater than 0, or unlimited")
            for most in ("0", "-1", "1.5", "many", "Unlimited", "[1]", "{a: 1}", '""')
        ),
        ("limits: 5", "limits: must be a mapping (key: value), not text"),
        ("limits: ~", "limits: is empty: write {} if nothing belongs there, or leave it out"),
        ("limits: {sessions: ~}", "limits.sessions: is empty: write a value, or leave it out"),
        ("limits: {calls_a_minute: 5}", "limits.calls_a_minute: unknown key: did you mean 'calls_per_minute'?"),
        ("scope_idle: -1", "scope_idle: must be a number of seconds greater than 0, such as 30"),
        ("scope_idle: a day", "scope_idle: must be a number of seconds greater than 0, such as 30"),
        ("scope_idle: {user: 5}", "scope_idle.user: unknown key: "),
        ("scope_idle: {principal: ~}", "scope_idle.principal: is empty: write a value, or leave it out"),
        ("scope_idle: {principal: -5}", "scope_idle.principal: must be a number of seconds greater than 0, such as 30"),
        ("state: sqlite", "state: must be a mapping (key: value), not text"),
        ("state: ~", "state: is empty: write {} if nothing belongs there, or leave it out"),
        ("state: {backend: redis}", "state.backend: must be one of 'memory' or 'sqlite'"),
        ("state: {backend: sqlite}", "state: backend: sqlite needs the path of a file: write path: FILE"),
        ("state: {backend: sqlite, path: ''}", "state: backend: sqlite needs the path of a file: write path: FILE"),
        ("state: {path: a.db}", "state.path: goes with backend: sqlite: write that too, or take the path out"),
        ("state: {backend: sqlite, path: '${DIR}/a'}", "state.path: ${DIR} is not replaced here: write a path"),
        ("state: {bakend: sqlite}", "state.bakend: unknown key: did you mean 'backend'?"),
        ("keep_alive: 0", "keep_alive: must be a number of seconds greater than 0, such as 30"),
        ("input_wait: soon", "input_wait: must be a number of seconds greater than 0, such as 30"),
        *(
            (f"{key}: {value}", f"{key}: must be a size greater than 0: bytes, or such as 500KiB or 32MiB")
            for key in ("max_message_size", "max_request_size", "max_event_size")
            for value in ("0", "0MiB", "-1", "1.5MiB", "32MB", "MiB", "[1]", "9" * 5000)
        ),
        ("name_limit: 15", "name_limit: must be between 16 and 128"),
        ("name_limit: 129", "name_limit: must be between 16 and 128"),
        ("name_limit: x", "name_limit: must be a whole number greater than 0"),
        ("call_route: yes", "call_route: must be one of 'auto', 'on' or 'off'"),
        ("listing: fixed", "listing: must be one of 'live' or 'stable'"),
        ("listing: ~", "listing: is empty: write a value, or leave it out"),
        ("modern_listing: fixed", "modern_listing: must be one of 'live' or 'stable'"),
        ("publish: off", "publish: must be a mapping (key: value), not text"),
        ("publish: ~", "publish: is empty: write {} if nothing belongs there, or leave it out"),
        ("publish: {prompts: maybe}", "publish.prompts: must be true or false"),
        ("publish: {prompt: true}", "publish.prompt: unknown key: did you mean 'prompts'?"),
        ("call_route_clients: claude-code", 'call_route_clients: must be a list: write ["claude-code"]'),
        ("log_level: loud", "log_level: must be one of 'debug', 'info', 'warning' or 'error'"),
        ("reload: no", "reload: must be one of 'skills', 'full' or 'off'"),
        ("allowed_hosts: h", 'allowed_hosts: must be a list: write ["h"]'),
        ("allowed_hosts: ['https://h']", 'allowed_hosts[0]: a host has no scheme and no path: write "h"'),
        ("allowed_hosts: ['https://u@h:1/p']", 'allowed_hosts[0]: a host has no scheme and no path: write "h:1"'),
        ("allowed_hosts: [h/mcp]", 'allowed_hosts[0]: a host has no scheme and no path: write "h"'),
        ("allowed_hosts: ['http://']", 'allowed_hosts[0]: a host has no scheme and no path: write "NAME"'),
        (
            "allowed_origins: [h.example]",
            'allowed_origins[0]: an origin begins with a scheme: write "https://h.example"',
        ),
        ("allowed_origins: [/]", 'allowed_origins[0]: an origin begins with a scheme: write "https://NAME"'),
        ("allowed_origins: ['http://h/']", 'allowed_origins[0]: an origin has no path: write "http://h"'),
        ("allowed_origins: ['https://h:1/x']", 'allowed_origins[0]: an origin has no path: write "https://h:1"'),
        ("allowed_origins: ['']", "allowed_origins[0]: is empty text and no name"),
        ("list_wiat: 3", "list_wiat: unknown key: did you mean 'list_wait'?"),
        ("tokens: ~", "tokens: is empty: write {} if nothing belongs there, or leave it out"),
        ("tokens: {a: ~}", 'tokens.a: is empty: write "" for empty text; quote it if it is a word'),
        ("tokens: {a: '${NOPE}'}", "tokens.a: variable NOPE is not set"),
        ("tokens: {a: '${input:x}'}", "tokens.a: ${input:x} is not a variable"),
        ("tokens: {a: ''}", "tokens.a: a token is not empty and holds printable ASCII characters without spaces"),
        ("tokens: {a: 'b c'}", "tokens.a: a token is not empty and holds printable ASCII characters without spaces"),
        ("tokens: {a: é}", "tokens.a: a token is not empty and holds printable ASCII characters without spaces"),
        ("tokens: {a: x, b: x}", "tokens.b: another name has the same token: each needs its own"),
        ("tokens: {'': x}", 'tokens."": a token needs a name that is not empty'),
    ],
)
def test_what_is_wrong_with_a_setting_is_said_with_what_to_do(room, setting, problem):
    """In words for people, with line and path."""
    (said,) = room.problems(f"proxy:\n  {setting}\n")
    assert said.startswith(f"2: proxy.{problem}")


@pytest.mark.parametrize(
    ("setting", "publish"),
    [
        ("{}", Publish()),
        ("{prompts: false}", Publish(prompts=False)),
        ("{resources: false}", Publish(resources=False)),
        ("{extension: false}", Publish(extension=False)),
    ],
)
def test_what_is_published_of_skills_is_all_but_what_is_switched_off(room, setting, publish):
    """Each by itself."""
    assert room.load(f"proxy: {{publish: {setting}}}").settings.publish == publish


def notes_on(room, proxy: str) -> list[str]:
    """The notes on the settings of a file that has a skill."""
    return room.notes(f"proxy:\n  {proxy}\nskill_configs: {{s: {{usage: u}}}}\n")


@pytest.mark.parametrize("value", ["live", "stable"])
def test_the_older_name_of_a_setting_is_understood_and_noted(room, value):
    """With the one to write instead; both may stand there as long as they say the same."""
    note = "2: proxy.modern_listing: is the old name of listing, and holds for clients of every revision: write listing"
    assert room.load(f"proxy: {{modern_listing: {value}}}").settings.listing == value
    assert notes_on(room, f"modern_listing: {value}") == [note]
    assert notes_on(room, f"modern_listing: {value}\n  listing: {value}") == [note]


def test_two_names_of_a_setting_that_differ_are_refused(room):
    """Nobody can tell which one is meant."""
    (problem,) = room.problems("proxy:\n  listing: live\n  modern_listing: stable\n")
    assert problem == (
        "3: proxy.modern_listing: is the old name of listing, and contradicts it (listing: live): remove modern_listing"
    )


def test_names_of_clients_that_meant_the_opposite_once_are_noted(room):
    """Those of our own list are not: they never stood there for a client that needs it."""
    (note,) = notes_on(room, "call_route_clients: [claude-code, claude-ai, my-agent-*]")
    assert note == (
        "2: proxy.call_route_clients: claude-ai, my-agent-*: assumed to read a changed list in time, and not given "
        "SKILL_CALL; this setting used to name the clients that need SKILL_CALL, which all other clients get now"
    )
    assert notes_on(room, "call_route_clients: [claude-code, opencode]") == []
    assert notes_on(room, "call_route_clients: []") == []


def test_a_client_has_a_name(room):
    """An empty pattern would be that of no client."""
    (problem,) = room.problems('proxy: {call_route_clients: [codex, ""]}')
    assert problem == (
        "1: proxy.call_route_clients[1]: is empty: write the name of a client, or a pattern such as acme-*"
    )


@pytest.mark.parametrize("setting", ["listing: stable", "modern_listing: stable"])
def test_lists_that_never_change_without_a_way_to_call_are_noted(room, setting):
    """Most clients call only what is in their list."""
    expected = "2: proxy.call_route: off, while lists never change: clients see the tools of pinned skills alone, "
    assert any(note.startswith(expected) for note in notes_on(room, f"call_route: off\n  {setting}"))
    assert notes_on(room, "call_route: off") == notes_on(room, "listing: stable") == []


@pytest.mark.parametrize(
    ("written", "size"), [("1", 1), ("'1024'", 1024), ("2KiB", 2048), ("2 MiB", 2 * 1024**2), ("3GiB", 3 * 1024**3)]
)
def test_a_size_is_in_bytes_or_has_a_unit(room, written, size):
    """The largest message is known to each server, too."""
    loaded = room.load(
        f"servers: {{a: {{url: 'http://h'}}, b: {{command: /bin/true}}}}\nproxy: {{max_message_size: {written}}}"
    )
    assert (loaded.settings.max_request_size, loaded.settings.max_message_size) == (size, size)
    assert [server.max_message_size for server in loaded.servers.values()] == [size, size]


def test_the_largest_message_has_a_default_for_requests_over_http_and_one_for_the_rest(room):
    """Requests of clients over HTTP are read whole before anything is known of them."""
    settings = room.load("").settings
    assert (settings.max_request_size, settings.max_message_size) == (4 * 1024**2, 64 * 1024**2)


@pytest.mark.parametrize("name", ["max_request_size", "max_event_size"])
def test_an_older_name_of_the_largest_message_holds_for_all_messages(room, name):
    """And a note says what to write."""
    settings = room.load(f"proxy: {{{name}: 1MiB}}").settings
    assert (settings.max_request_size, settings.max_message_size) == (1024**2, 1024**2)
    note = "is an older name of max_message_size, which holds for every message of clients and servers: write that"
    assert notes_on(room, f"{name}: 1MiB") == [f"2: proxy.{name}: {note}"]
    assert notes_on(room, f"max_message_size: 1MiB\n  {name}: 1048576") == [f"3: proxy.{name}: {note}"]


@pytest.mark.parametrize(
    "names",
    [
        ("max_message_size", "max_request_size"),
        ("max_message_size", "max_event_size"),
        ("max_request_size", "max_event_size"),
    ],
)
def test_names_of_the_largest_message_that_contradict_each_other_are_refused(room, names):
    """The proxy cannot know which is meant; to write one is what helps."""
    (problem,) = room.problems(f"proxy:\n  {names[0]}: 1MiB\n  {names[1]}: 2MiB")
    told = f"{names[0]} and {names[1]} are names of one setting, and differ: write max_message_size once"
    assert problem == f"3: proxy.{names[1]}: {told}"


def test_a_bound_is_one_number_for_every_kind_of_scope_or_one_for_each(room):
    """Kinds that are left out keep the default."""
    settings = room.load("proxy: {max_scopes: {session: 5}, scope_idle: 60}").settings
    assert settings.max_scopes == PerKind(session=5, namespace=10_000, principal=10_000)
    assert settings.scope_idle == every_kind(60.0)


@pytest.mark.parametrize(
    ("written", "file"), [("a/s.db", "{folder}/a/s.db"), ("~/s.db", "/home/me/s.db"), ("/s", "/s")]
)
def test_the_file_of_the_state_is_found_as_other_paths_are(room, written, file):
    """From the folder of the configuration, or from home."""
    loaded = room.load(f"proxy: {{state: {{backend: sqlite, path: '{written}'}}}}", {"HOME": "/home/me"})
    assert loaded.settings.state_file == file.format(folder=room.folder)


def test_hosts_and_origins_are_taken_as_patterns(room):
    """Whatever may match a header, also origins that are no web page's."""
    hosts = ["h", "h:80", "*.h", "[[]::1]", "h:*"]
    origins = ["https://h", "https://*.h:*", "vscode-webview://*", "*", "*.h", "null"]
    settings = room.load(f"proxy: {{allowed_hosts: {hosts}, allowed_origins: {origins}}}").settings
    assert settings.allowed_hosts == tuple(hosts)
    assert settings.allowed_origins == tuple(origins)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("skill_config: {}", "1: skill_config: unknown key: did you mean 'skill_configs'?"),
        ("server: {}", "1: server: unknown key: did you mean 'servers'?"),
        ("servers: []", "1: servers: must be a mapping (key: value), not a list"),
        ("servers:", "1: servers: is empty: write {} if nothing belongs there, or leave it out"),
        ("proxy: x", "1: proxy: must be a mapping (key: value), not text"),
        ("env_file: [a]", "1: env_file: must be text, not a list"),
        (
            "black_tool_actions: '*'",
            f'1: black_tool_actions: {NO_MAPPING}: write each server with its tools: "SERVER: [NAME]"',
        ),
        ("proxy: list_wait:3", f"1: proxy: {NO_MAPPING} (a space is missing after the colon?)"),
    ],
)
def test_the_top_level_is_checked_too(room, text, problem):
    """With the nearest known key."""
    assert room.problems(text) == [problem]


def test_every_problem_is_named_at_once_by_line(room):
    """Rule 21: a fault in one place hides none elsewhere."""
    text = """\
servers:
  time: {command: x, timeout: soon}
  time: {command: y}
  web: {url: ftp://x, prefix: a__b}
  git: {command: "${input:x}", comand: y}
  none: {}
skill_configs:
  a:
    active: maybe
    tool_list: {tiem: [], time: ~}
black_tool_actions: {wbe: x}
proxy: {log_level: loud}
env_file: none.env
"""
    found = [problem.split(": ")[0:2] for problem in room.problems(text)]
    assert found == [
        ["2", "servers.time.timeout"],
        ["3", "servers.time"],
        ["4", "servers.web.url"],
        ["4", "servers.web.prefix"],
        ["5", "servers.git.command"],
        ["5", "servers.git.comand"],
        ["6", "servers.none"],
        ["9", "skill_configs.a.active"],
        ["10", "skill_configs.a.tool_list.tiem"],
        ["10", "skill_configs.a.tool_list.time"],
        ["11", "black_tool_actions.wbe"],
        ["12", "proxy.log_level"],
        ["13", "env_file"],
    ]


@pytest.mark.parametrize("path", ["skills.yaml", "./link.db", "all.env"])
def test_the_state_is_not_written_over_a_file_of_the_configuration(room, path):
    """It would be set aside as damaged, and a database be in its place."""
    (room.folder / "all.env").write_text("A=1")
    (room.folder / "link.db").symlink_to("skills.yaml")
    (problem,) = room.problems(f"env_file: all.env\nproxy: {{state: {{backend: sqlite, path: {path}}}}}")
    assert problem.endswith("path: the configuration is read from this file: write the path of one of its own")
