"""What servers get wrong, or say in ways that some hop cannot: it costs no more than it has to."""

import json
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import Json, http_proxy, write_config
from tests.servers.mirror import LISTS
from tests.transparent.wires import MIRROR, HttpClient, exposed, pair, until_listed

FAILING = json.dumps({"error": {"code": -32603, "message": "broken"}})
SILENCE = "2 s"
"""The server's `timeout` in the words of a call that it ended."""


def pages(**own: list[Json]) -> dict[str, dict[str, str]]:
    """One page of each list: the mirror's own and these."""
    return {
        method: {"": json.dumps({"result": {key: [*all_, *own.get(key, [])]}})} for method, (key, all_) in LISTS.items()
    }


@pytest.mark.parametrize(
    "body",
    [
        '{"result": null}',
        '{"result": []}',
        '{"error": {"code": 5}}',
        '{"error": "text"}',
        '{"result": {"n": ' + "[" * 1500 + "]" * 1500 + "}}",
        '{"result": {"n": ' + "1" * 5000 + "}}",
    ],
    ids=["null", "array", "no message", "text", "nested", "digits"],
)
def test_answer_that_is_none_ends_the_call_at_once(tmp_path: Path, body: str) -> None:
    with pair(tmp_path, "handshake", "stdio", timeout=2) as both:
        both.activate("all")
        answer = both.proxied.ask("tools/call", {"name": exposed("say"), "arguments": {"body": body}})
        assert SILENCE not in answer


def test_lone_surrogates_from_stdio_to_http(tmp_path: Path) -> None:
    """One half of a character in one definition must not cost a client the whole list."""
    config = write_config(
        tmp_path / "skills.yaml",
        {"up": {"command": sys.executable, "args": [str(MIRROR), "stdio"]}},
        {"all": {"usage": "u", "tool_list": {"up": []}}},
    )
    with http_proxy(config) as proxy, closing(HttpClient("handshake", proxy.namespace("a"))) as client:
        client.greet()
        client.call("SKILL", {"action": "activate", "skill_name": "all"})
        client.call(
            "up__lists", pages(tools=[{"name": "t", "title": "cut", "description": "\ud83d", "inputSchema": {}}])
        )
        until_listed(client, "tools/list", "tools", "cut")
        body = json.dumps({"result": {"content": [{"type": "text", "text": "cut \ud83d"}]}})
        assert client.call("up__say", {"body": body})["content"][0]["text"].startswith("cut ")


def test_prompts_are_read_again_where_tools_cannot_be(tmp_path: Path) -> None:
    with pair(tmp_path, "handshake", "stdio") as both:
        both.activate("all")
        changed = pages(prompts=[{"name": "new", "title": "new"}])
        both.proxied.call(exposed("lists"), {**changed, "tools/list": {"": FAILING}})
        until_listed(both.proxied, "prompts/list", "prompts", "new")


@pytest.mark.parametrize("value", [True, 1.0])
def test_change_from_one_to_what_equals_it(tmp_path: Path, value: object) -> None:
    with pair(tmp_path, "handshake", "stdio", pages=pages(tools=[{"name": "t", "inputSchema": {"x": 1}}])) as both:
        both.activate("all")
        both.proxied.call(exposed("lists"), pages(tools=[{"name": "t", "inputSchema": {"x": value}}]))
        both.proxied.call(exposed("lists"), pages(tools=[{"name": "t", "inputSchema": {"x": value}}]))
        seen: object = None
        for _ in range(100):
            listed = both.proxied.result("tools/list", {})["tools"]
            (seen,) = [tool["inputSchema"]["x"] for tool in listed if tool["name"] == exposed("t")]
            if json.dumps(seen) == json.dumps(value):
                return
            both.proxied.call(exposed("big"), {"megabytes": 1})
        raise AssertionError(seen)
