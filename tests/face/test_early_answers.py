"""What a client on stdio says first is answered from the configuration alone, just as the server proper answers it."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import ClientCapabilities, Implementation, InitializeRequestParams
from mcp_types.methods import validate_client_request
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS

from proxy.config.load import load
from proxy.core import protocol
from proxy.core.catalogue import Catalogue, Skill
from proxy.core.names import Naming
from proxy.core.profiles import Policy
from proxy.core.scope import ScopeId
from proxy.core.settings import Settings
from proxy.face.early_answers import EarlyAnswers
from tests.conftest import HANDSHAKE, MODERN, ROOT, Json, write_config, write_skill

HELLO: Json = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
SKILLS: Json = {
    "one": {"desc": "The first <skill>.", "usage": "U", "tool_list": {"s": []}},
    "two": {"name": "Two", "desc": "The second.", "usage": "U"},
}
SERVERS: Json = {"s": {"command": "nowhere-to-be-found"}}
LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")


def envelope(**more: Any) -> Json:
    meta = {
        protocol.VERSION_KEY: MODERN,
        protocol.CLIENT_KEY: {"name": "c", "version": "1"},
        protocol.CAPABILITIES_KEY: {},
    }
    return {"_meta": {**meta, **more}}


def request(number: int | str, method: str, params: Json | None = None) -> Json:
    return {"jsonrpc": "2.0", "id": number, "method": method, **({} if params is None else {"params": params})}


def opening(config: Path, scope: ScopeId | None = None) -> EarlyAnswers:
    loaded = load(config, {})
    return EarlyAnswers(loaded.policy, loaded.settings, scope or ScopeId("process"))


def answers(one: EarlyAnswers, messages: Iterable[Json]) -> list[Json | None]:
    """The answer to each message, None where it is for the server proper; those to notifications are left out."""
    given = [one.answer(json.dumps(message).encode()) for message in messages]
    return [None if each is None else json.loads(each.line) for each in given if each is None or each.line]


def of_the_server(config: Path, messages: Iterable[Json]) -> list[Json]:
    """What the program answers to requests in a file, where nothing answers before the server proper."""
    with tempfile.TemporaryFile("w+") as requests:
        requests.writelines(json.dumps(message) + "\n" for message in messages)
        requests.seek(0)
        command = [sys.executable, "-m", "proxy", "serve", "--config", str(config), "--log-level", "error"]
        done = subprocess.run(command, cwd=ROOT, stdin=requests, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return sorted((message for message in told if "id" in message), key=lambda message: message["id"])


HANDSHAKES = {
    "plain": HELLO,
    "older": {**HELLO, "protocolVersion": "2024-11-05"},
    "unknown": {**HELLO, "protocolVersion": "1999-01-01"},
    "known_to_reread": {**HELLO, "clientInfo": {"name": "claude-code", "version": "2", "title": "Claude Code"}},
    "known_not_to": {**HELLO, "clientInfo": {"name": "codex-mcp-client", "version": "1"}},
    "capable": {
        **HELLO,
        "capabilities": {
            "roots": {"listChanged": True},
            "sampling": {},
            "elicitation": {"form": {}, "url": {}},
            "experimental": {"x": {"y": False}},
            "extensions": {"io.modelcontextprotocol/ui": {}},
            "tasks": {"list": {}, "requests": {"sampling": {"createMessage": {}}}},
        },
    },
}
CONFIGURATIONS: dict[str, Json] = {
    "plain": {},
    "stable": {"proxy": {"listing": "stable"}},
    "call_route_off": {"proxy": {"call_route": "off"}},
    "nothing_published": {"proxy": {"publish": {"prompts": False, "resources": False, "extension": False}}},
    "guided": {"proxy": {"guidance": "Ask <skill_guide> first."}},
    "no_skills": {"skill_configs": {}},
    "in_profiles": {"profiles": [{"namespace": "*", "denied_skills": ["two"]}]},
    "folders": {"skill_paths": [{"path": "folders", "trusted": True}]},
}


def configured(folder: Path, name: str) -> Path:
    more = CONFIGURATIONS[name]
    write_skill(folder / "folders" / "three", "Guide.", files={"notes.md": "N"})
    skills = more.get("skill_configs", SKILLS)
    return write_config(folder / "c.yaml", SERVERS, skills, **{k: v for k, v in more.items() if k != "skill_configs"})


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_handshake_is_answered_as_the_server_answers_it(tmp_path: Path, name: str):
    config = configured(tmp_path, name)
    notice: Json = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    messages = [request(0, "initialize", HELLO), notice, request(1, "ping")]
    messages += [request(number, method, {}) for number, method in enumerate(LISTS, 2)]
    assert answers(opening(config), messages) == of_the_server(config, messages)


@pytest.mark.parametrize("params", HANDSHAKES.values(), ids=HANDSHAKES)
def test_every_client_gets_the_server_s_answer(tmp_path: Path, params: Json):
    config = configured(tmp_path, "plain")
    messages = [request(0, "initialize", params), request(1, "tools/list", {"_meta": {"progressToken": 0}})]
    assert answers(opening(config), messages) == of_the_server(config, messages)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_modern_requests_are_answered_as_the_server_answers_them(tmp_path: Path, name: str):
    config = configured(tmp_path, name)
    messages = [request(0, "server/discover", envelope())]
    messages += [request(number, method, envelope()) for number, method in enumerate(LISTS, 1)]
    assert answers(opening(config), messages) == of_the_server(config, messages)


def test_server_discover_decides_no_era(tmp_path: Path):
    config = configured(tmp_path, "plain")
    for more in ([request(1, "initialize", HELLO), request(2, "tools/list")], [request(1, "tools/list", envelope())]):
        messages = [request(0, "server/discover", envelope()), *more]
        assert answers(opening(config), messages) == of_the_server(config, messages)


def test_the_revisions_are_those_of_the_sdk():
    assert protocol.HANDSHAKE_VERSIONS == HANDSHAKE_PROTOCOL_VERSIONS
    assert protocol.MODERN_VERSIONS == MODERN_PROTOCOL_VERSIONS
    assert protocol.negotiated("?") == LATEST_HANDSHAKE_VERSION


def line(method: str, params: Json | None = None) -> bytes:
    return json.dumps(request(1, method, params)).encode()


def modern_list(**more: Any) -> bytes:
    return line("tools/list", envelope(**more))


FOR_THE_SERVER = {
    "no_json": b"{",
    "no_object": b"[]",
    "no_version": b'{"id": 1, "method": "initialize"}',
    "no_method": b'{"jsonrpc": "2.0", "id": 1}',
    "no_id": b'{"jsonrpc": "2.0", "method": "tools/list"}',
    "an_odd_id": b'{"jsonrpc": "2.0", "id": 1.5, "method": "server/discover"}',
    "a_true_id": b'{"jsonrpc": "2.0", "id": true, "method": "server/discover"}',
    "odd_params": b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": []}',
    "a_list_before_the_handshake": line("tools/list"),
    "a_call": line("tools/call", envelope()),
    "a_cursor": line("tools/list", {**envelope(), "cursor": "x"}),
    "another_revision": modern_list(**{protocol.VERSION_KEY: "2030-01-01"}),
    "an_odd_client": modern_list(**{protocol.CLIENT_KEY: "c"}),
    "a_client_without_a_version": modern_list(**{protocol.CLIENT_KEY: {"name": "c"}}),
    "odd_capabilities": modern_list(**{protocol.CAPABILITIES_KEY: []}),
    "an_odd_level": modern_list(**{protocol.LOG_LEVEL_KEY: "loud"}),
    "an_odd_token": modern_list(progressToken=1.5),
    "odd_meta": line("initialize", {**HELLO, "_meta": 1}),
    "a_handshake_without_a_version": line("initialize", {**HELLO, "protocolVersion": 1}),
    "a_handshake_with_more": line("initialize", {**HELLO, "more": 1}),
    "a_handshake_of_nobody": line("initialize", {**HELLO, "clientInfo": {}}),
    "a_handshake_with_icons": line("initialize", {**HELLO, "clientInfo": {"name": "c", "version": "1", "icons": []}}),
    "a_handshake_with_half_a_character": line(
        "initialize", {**HELLO, "clientInfo": {"name": "\ud83d", "version": "1"}}
    ),
    "a_handshake_with_odd_tasks": line(
        "initialize", {**HELLO, "capabilities": {"tasks": {"requests": {"sampling": {"createMessage": 5}}}}}
    ),
    "a_handshake_with_odd_flags": line("initialize", {**HELLO, "capabilities": {"roots": {"listChanged": "yes"}}}),
}


@pytest.mark.parametrize("sent", FOR_THE_SERVER.values(), ids=FOR_THE_SERVER)
def test_what_is_not_plain_is_left_to_the_server(tmp_path: Path, sent: bytes):
    assert opening(configured(tmp_path, "plain")).answer(sent) is None


def test_an_empty_line_is_nothing(tmp_path: Path):
    one = opening(configured(tmp_path, "plain"))
    assert one.answer(b" \r") == one.answer(b"") == ((b""), None)


def test_an_era_that_is_decided_stays(tmp_path: Path):
    """A second handshake, and what belongs to the other era, is refused in the words of the server proper."""
    config = configured(tmp_path, "plain")
    begun = opening(config)
    assert answers(begun, [request(0, "initialize", HELLO)]) != [None]
    assert answers(begun, [request(1, "initialize", HELLO)]) == [None]
    assert answers(begun, [request(2, "tools/list", envelope())]) == [None]
    modern = opening(config)
    assert answers(modern, [request(0, "tools/list", envelope())]) != [None]
    assert answers(modern, [request(1, "initialize", HELLO)]) == [None]
    assert answers(modern, [request(2, "tools/list")]) == [None]


DEPENDING: dict[str, Json] = {
    "active": {"active": True},
    "pinned": {"pinned": True},
    "hooked": {"on_activate": [{"tool": "s/t"}]},
    "invocable": {"steps": [{"tool": "s/t"}]},
}


@pytest.mark.parametrize("more", DEPENDING.values(), ids=DEPENDING)
def test_lists_that_depend_on_servers_are_left_to_the_server(tmp_path: Path, more: Json):
    config = write_config(tmp_path / "c.yaml", SERVERS, {"one": {**SKILLS["one"], **more}})
    found = answers(opening(config), [request(0, "initialize", HELLO), request(1, "tools/list")])
    assert found[0] is not None
    assert found[1] is None


def test_lists_that_an_earlier_run_may_have_changed_are_left_to_the_server(tmp_path: Path):
    state = {"state": {"backend": "sqlite", "path": "state.db"}}
    config = write_config(tmp_path / "c.yaml", SERVERS, SKILLS, proxy=state)
    messages = [request(0, "initialize", HELLO), request(1, "tools/list")]
    assert answers(opening(config, ScopeId("namespace", "n")), messages)[1] is None
    assert answers(opening(config), messages)[1] is not None


NAMES = st.sampled_from(
    [
        *ClientCapabilities.model_json_schema()["properties"],
        *Implementation.model_json_schema()["properties"],
        *("listChanged", "form", "url", "tools", "context", "tasks", "requests", "createMessage"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES | st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
CLIENTS = st.dictionaries(NAMES, st.text(max_size=5)).map(lambda more: {**HELLO["clientInfo"], **more})
OBJECTS = st.dictionaries(NAMES, st.dictionaries(NAMES, st.just({}) | st.booleans(), max_size=3), max_size=3)


@given(client=VALUES | CLIENTS, capabilities=VALUES | OBJECTS, version=st.sampled_from(HANDSHAKE_PROTOCOL_VERSIONS))
def test_what_is_answered_is_what_the_sdk_accepts(client: Any, capabilities: Any, version: str):
    """A handshake that is answered here is one that the server proper accepts when it handles it once more."""
    params = {"protocolVersion": version, "clientInfo": client, "capabilities": capabilities}
    catalogue = Catalogue(servers=(), naming=Naming({}), skills=(Skill("s", "S", "D", "U"),))
    one = EarlyAnswers(Policy(catalogue), Settings(), ScopeId("process"))
    if one.answer(json.dumps(request(1, "initialize", params)).encode()) is not None:
        validate_client_request("initialize", version, params)
        InitializeRequestParams.model_validate(params, by_name=False)
