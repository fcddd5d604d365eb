"""Known cases of what proxies lose: numbers, nesting, size, schemas, fields, pages and failures."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.answers import not_ready
from tests.conftest import Json, of_servers
from tests.servers.mirror import LISTS, TOOLS
from tests.transparent.wires import HttpClient, Pair, exposed, pair, until_listed

ERAS = ("handshake", "modern")
WAYS = [(era, transport) for era in ERAS for transport in ("stdio", "http")]
SOME_WAYS = [("handshake", "http"), ("modern", "stdio")]
"""Where transports make no difference, and each proxy takes a second."""
_marks = count(1)


def say(both: Pair, result: str) -> str:
    """The response of the proxy, as text, to a call that the mirror answers with this text."""
    body = {"body": f'{{"result": {result}}}'}
    return both.proxied.ask("tools/call", {"name": exposed("say"), "arguments": body})


def listing(**more: list[Json]) -> dict[str, dict[str, str]]:
    """What lists answer in one page: the mirror's own and these."""
    return {
        method: {"": json.dumps({"result": {key: [*own, *more.get(key, [])]}})} for method, (key, own) in LISTS.items()
    }


def set_tools(both: Pair, *tools: Json) -> list[Json]:
    """Set the tools of both mirrors; the list of the proxy without its own, once it holds them."""
    mark = f"case-{next(_marks)}"
    pages = listing(tools=[*tools, {"name": mark, "title": mark, "inputSchema": {}}])
    both.direct.call("lists", pages)
    both.proxied.call(exposed("lists"), pages)
    listed = until_listed(both.proxied, "tools/list", "tools", mark)["tools"]
    return [tool for tool in listed if tool["name"] not in {"SKILL", "SKILL_CALL", exposed(mark)}]


# --- values ----------------------------------------------------------------------------------------------------------

AS_WRITTEN = ["0", "1", "-1", "1.0", "-0.0", "0.1", "1.5", "100.0", str(2**53 + 1), str(2**64), "-" + "1234567890" * 40]
SAME_VALUE = ["1e2", "1E+2", "1e-2", "1.10", "1e16", "1e22", "5e-324", "1.7976931348623157e308"]


@pytest.mark.parametrize("number", AS_WRITTEN)
def test_numbers_arrive_as_written(both: Pair, number: str) -> None:
    """In results and in arguments: an integer stays one, and so does 1.0."""
    assert f'"n":{number}}}' in say(both, f'{{"content": [], "structuredContent": {{"n":{number}}}}}').replace(" ", "")
    said = both.proxied.ask("tools/call", {"name": exposed("echo"), "arguments": {"n": "@"}}, number)
    assert f'\\"n\\":{number}}}' in said.replace(" ", "")


@pytest.mark.parametrize("number", SAME_VALUE)
def test_numbers_in_other_notations_keep_value_and_kind(both: Pair, number: str) -> None:
    answer = json.loads(say(both, f'{{"content": [], "structuredContent": {{"n": {number}}}}}'))
    assert repr(answer["result"]["structuredContent"]["n"]) == repr(json.loads(number))


def test_keys_keep_their_order(both: Pair) -> None:
    """In arguments and in results, whose readers are models."""
    ordered = {"z": 1, "a": {"y": 1, "b": 2}, "_": 3, "": 4, "B": 5}
    answer = json.loads(say(both, json.dumps({"structuredContent": ordered, "content": []})))
    assert json.dumps(answer["result"]["structuredContent"]) == json.dumps(ordered)
    echoed = both.proxied.call(exposed("echo"), ordered)
    assert json.dumps(json.loads(echoed["content"][0]["text"])["params"]["arguments"]) == json.dumps(ordered)


@pytest.mark.parametrize("depth", [10, 100, 190])
def test_nesting(both: Pair, depth: int) -> None:
    """Down to a depth that no sane message has; the response around it adds a few levels."""
    value = "[" * depth + "]" * depth
    answer = say(both, f'{{"content": [], "structuredContent": {{"deep": {value}}}}}')
    assert f'"deep":{value}' in answer.replace(" ", "")


def test_lone_surrogates(both: Pair) -> None:
    """Half a character, as JSON can write it, comes through where the wire is ours: over stdio."""
    if both.transport == "http":
        return
    lone = "x\ud83d"
    answer = json.loads(say(both, json.dumps({"content": [{"type": "text", "text": lone}]})))
    assert answer["result"]["content"] == [{"type": "text", "text": lone}]
    echoed = both.proxied.call(exposed("echo"), {lone: lone})
    assert json.loads(echoed["content"][0]["text"])["params"]["arguments"] == {lone: lone}


def test_twenty_megabytes(both: Pair) -> None:
    answer = both.proxied.call(exposed("big"), {"megabytes": 20})
    (block,) = answer["content"]
    assert block["type"] == "text"
    assert len(block["text"]) == 20_000_000


# --- output schemas: B32 ---------------------------------------------------------------------------------------------

INTEGER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
UNFIT: dict[str, Json] = {
    "text only": {"content": [{"type": "text", "text": "fine"}]},
    "another type": {"content": [{"type": "text", "text": "fine"}], "structuredContent": {"a": "x"}},
    "fits": {"content": [], "structuredContent": {"a": 1}},
    "an error of another shape": {"content": [], "structuredContent": {"why": None}, "isError": True},
    "no object": {"content": [], "structuredContent": [1]},
}


@contextmanager
def never_asked() -> Generator[str]:
    """The address of a schema that nobody may fetch."""
    asked: list[str] = []

    class Schemas(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(404)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's own
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Schemas) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/schema.json"
        finally:
            server.shutdown()
            thread.join()
    assert asked == []


def test_output_schemas_are_for_the_client_to_check(both: Pair) -> None:
    """Results that do not fit, or cannot be checked at all, come as they are; no `$ref` is followed.

    An output schema that a client could not compile is left out: that client would lose the list. Input schemas are
    not compiled, and stay.
    """
    with never_asked() as remote:
        sound: dict[str, Json] = {
            "plain": INTEGER,
            "local": {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"minimum": 1.0}}},
        }
        not_compiled: dict[str, Json] = {
            "remote": {"type": "object", "$ref": remote},
            "remote-inside": {"type": "object", "properties": {"a": {"items": {"$ref": f"{remote}#/$defs/a"}}}},
            "dangling": {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}},
        }
        both_schemas = sound | not_compiled
        tools = [{"name": name, "inputSchema": each, "outputSchema": each} for name, each in both_schemas.items()]
        tools.append({"name": "wrong", "inputSchema": INTEGER, "outputSchema": {"type": "nonsense", "required": 5}})
        listed = {tool["name"]: tool for tool in set_tools(both, *tools)}
        for tool in tools:
            name = exposed(tool["name"])
            kept = {key: value for key, value in tool.items() if key != "outputSchema" or tool["name"] in sound}
            assert json.dumps(listed[name]) == json.dumps({**kept, "name": name})
            for result in UNFIT.values():
                answer = both.proxied.call(name, {"body": json.dumps({"result": result})})
                assert {key: answer[key] for key in answer if key not in {"resultType", "_meta"}} == result


def test_tools_without_a_usable_input_schema_are_left_out(both: Pair) -> None:
    """One costs the official clients the whole list; the others stay, and a call of it is one of an unknown tool."""
    wrong = {"name": "wrong", "inputSchema": {"type": "nonsense", "required": 5}}
    fine = {"name": "fine", "inputSchema": INTEGER}
    listed = set_tools(both, wrong, fine)
    bare = [{**tool, "name": exposed(tool["name"])} for tool in [*TOOLS, fine]]
    assert sorted(map(json.dumps, listed)) == sorted(map(json.dumps, bare))
    answer = both.proxied.request("tools/call", {"name": exposed("wrong"), "arguments": {}})
    error = answer["error"]
    assert (error["code"], error["message"]) == (-32602, f"Unknown tool: {exposed('wrong')}")


# --- fields: B33 -----------------------------------------------------------------------------------------------------

EVERYTHING: Json = {
    "name": "everything",
    "title": "Everything",
    "description": "Has it all.",
    "icons": [{"src": "data:,", "mimeType": "image/png", "sizes": ["any"], "theme": "dark", "x-icon": 1}],
    "inputSchema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:example:tree",
        "$anchor": "top",
        "type": "object",
        "$defs": {"node": {"$anchor": "n", "properties": {"next": {"$ref": "#/$defs/node"}, "any": True}}},
        "properties": {"tree": {"$ref": "#n"}, "none": {"not": {}}, "n": {"minimum": 1.0, "default": None}},
        "additionalProperties": False,
    },
    "outputSchema": {"type": "object", "properties": {"self": {"$ref": "#"}}},
    "annotations": {"title": "T", "readOnlyHint": False, "openWorldHint": True, "x-hint": {"deep": [None]}},
    "execution": {"taskSupport": "optional", "x-execution": True},
    "_meta": {"vendor/tool": [1, 1.0, None], "io.example/ui": {"resourceUri": "ui://x"}},
    "x-vendor": {"none": None},
}


def test_definitions_gain_and_lose_nothing(both: Pair) -> None:
    listed = set_tools(both, EVERYTHING)
    assert json.dumps([tool for tool in listed if tool["name"] == exposed("everything")]) == json.dumps(
        [{**EVERYTHING, "name": exposed("everything")}]
    )
    bare = [{**tool, "name": exposed(tool["name"])} for tool in TOOLS]
    assert [tool for tool in listed if tool["name"] != exposed("everything")] == bare


def test_definitions_change_only_where_clients_refuse_them(both: Pair) -> None:
    """A property's schema that is true or false becomes an object, and null in an optional field is left out."""
    schema, hints = EVERYTHING["inputSchema"], EVERYTHING["annotations"]
    mended = {**schema, "properties": {**schema["properties"], "all": {}}}
    unsound = {**schema, "properties": {**schema["properties"], "none": False, "all": True}}
    listed = set_tools(both, {**EVERYTHING, "inputSchema": unsound, "annotations": {**hints, "idempotentHint": None}})
    assert json.dumps([tool for tool in listed if tool["name"] == exposed("everything")]) == json.dumps(
        [{**EVERYTHING, "name": exposed("everything"), "inputSchema": mended}]
    )


# --- pages: B36 ------------------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[str, str, str]] = {
    "tools/list": ("tools", "name", "t{}"),
    "prompts/list": ("prompts", "name", "p{}"),
    "resources/list": ("resources", "uri", "other://r{}"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate", "other://t{}/{{body}}"),
}
"""By method: the key of the list, and how its definitions are known."""


def paged(*pages: tuple[str, range, str | None]) -> dict[str, dict[str, str]]:
    """What all lists answer: (cursor, numbers of the definitions, next cursor)."""
    found: dict[str, dict[str, str]] = {}
    for method, (key, by, form) in KINDS.items():
        answers = found[method] = {}
        for cursor, numbers, following in pages:
            entries: list[Json] = [{by: form.format(n), "name": form.format(n), "inputSchema": {}} for n in numbers]
            page: Json = {key: entries}
            if following is not None:
                page["nextCursor"] = following
            answers[cursor] = json.dumps({"result": page})
    return found


def numbers_listed(both: Pair, method: str) -> list[int]:
    """The numbers of the definitions in a list of the proxy, which is one page."""
    key, by, form = KINDS[method]
    result = both.proxied.result(method, {})
    assert "nextCursor" not in result
    wanted = {exposed(form.format(n)) if by == "name" else form.format(n): n for n in range(200)}
    own = ("SKILL", "SKILL_CALL")
    listed = [entry for entry in result[key] if entry[by] not in own] if key == "tools" else of_servers(result[key])
    return sorted(wanted[definition[by]] for definition in listed)


@pytest.fixture(scope="module", params=SOME_WAYS, ids="-".join)
def hundred_and_one(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Pair]:
    era, transport = request.param
    pages = paged(("", range(50), "two"), ("two", range(50, 100), "three"), ("three", range(100, 101), None))
    with pair(tmp_path_factory.mktemp("paged"), era, transport, pages=pages) as both:
        yield both


def test_all_pages_are_read(hundred_and_one: Pair) -> None:
    """A skill of one tool shows that one; all are there for a skill of all, and what is on the last page works."""
    both = hundred_and_one
    assert not_ready(both.activate("one")) == {}
    assert numbers_listed(both, "tools/list") == [100]
    both.activate("all")
    for method in KINDS:
        assert numbers_listed(both, method) == list(range(101)), method
    body = json.dumps({"result": {"content": [], "x": 1}})
    assert both.proxied.call(exposed("t100"), {"body": body})["x"] == 1
    got = both.proxied.result("prompts/get", {"name": exposed("p100"), "arguments": {"body": body}})
    assert got["x"] == 1
    for uri in ("other://r100", "other://t100/any"):
        answer = both.proxied.request("resources/read", {"uri": uri})
        assert answer["error"]["message"].startswith("the mirror has no"), answer


@pytest.mark.parametrize("era", ERAS)
def test_repeated_cursors_end_a_list(tmp_path: Path, era: str) -> None:
    """No cursor is followed twice, also when it is that of the page itself."""
    pages = paged(("", range(2), "a"), ("a", range(2, 4), "b"), ("b", range(4, 6), "a"))
    with pair(tmp_path, era, "stdio", pages=pages) as both:
        assert not_ready(both.activate("all")) == {}
        for method in KINDS:
            assert numbers_listed(both, method) == list(range(6)), method


FAILING = {"error": {"code": -32603, "message": "this page is broken"}}


@pytest.mark.parametrize(("era", "transport"), SOME_WAYS)
def test_page_that_fails_costs_its_own_list_alone(tmp_path: Path, era: str, transport: str) -> None:
    """Prompts, resources or templates that cannot be read in full: the tools, and what else there is, are served."""
    pages = paged(("", range(2), "two"), ("two", range(2, 4), None))
    for method in ("prompts/list", "resources/templates/list"):
        pages[method]["two"] = json.dumps(FAILING)
    with pair(tmp_path, era, transport, pages=pages) as both:
        assert not_ready(both.activate("all")) == {}
        assert numbers_listed(both, "tools/list") == [0, 1, 2, 3]
        assert numbers_listed(both, "resources/list") == [0, 1, 2, 3]
        for method in ("prompts/list", "resources/templates/list"):
            assert set(numbers_listed(both, method)) <= {0, 1}
        assert "this page is broken" in both.log.read_text()


@pytest.mark.parametrize(("era", "transport"), SOME_WAYS)
def test_page_of_tools_that_fails_is_told(tmp_path: Path, era: str, transport: str) -> None:
    """A server whose tools cannot be read is not ready, and the activation says why; the proxy goes on."""
    pages = paged(("", range(2), "two"))
    pages["tools/list"]["two"] = json.dumps(FAILING)
    with pair(tmp_path, era, transport, pages=pages) as both:
        problems = not_ready(both.activate("all"))
        assert problems.keys() == {"up"}
        assert "its list of tools could not be read" in problems["up"]
        assert "this page is broken" in both.log.read_text()
        assert numbers_listed(both, "tools/list") == []


# --- failures: B31 ---------------------------------------------------------------------------------------------------


def status_is_ok(both: Pair) -> bool:
    """Whether the newest answer over HTTP was a 200 in the era of sessions, where others can be taken for an end."""
    return not isinstance(both.proxied, HttpClient) or both.proxied.modern or both.proxied.status == 200


def test_flagged_results_stay_flagged(both: Pair) -> None:
    result = {"content": [{"type": "text", "text": "it failed"}], "isError": True}
    answer = json.loads(say(both, json.dumps(result)))["result"]
    assert (answer["content"], answer["isError"]) == (result["content"], True)
    assert status_is_ok(both)


def test_protocol_errors_stay_protocol_errors(both: Pair) -> None:
    error = {"code": -32042, "message": "first this", "data": {"elicitations": [], "n": 1.0, "none": None}}
    arguments = {"body": json.dumps({"error": error})}
    answer = both.proxied.request("tools/call", {"name": exposed("say"), "arguments": arguments})
    assert json.dumps(answer["error"]) == json.dumps(error)
    assert status_is_ok(both)


@pytest.mark.parametrize(("era", "transport"), WAYS)
def test_server_that_dies_in_a_call(tmp_path: Path, era: str, transport: str) -> None:
    """A result that the model can read, naming the server; what is not active is told apart."""
    with pair(tmp_path, era, transport) as both:
        unknown = both.proxied.request("tools/call", {"name": "nothing", "arguments": {}})
        assert unknown["error"] == {"code": -32602, "message": "Unknown tool: nothing"}
        assert status_is_ok(both)
        inactive = both.proxied.call(exposed("t100"), {})
        assert inactive["isError"] is True
        assert "not active" in inactive["content"][0]["text"]
        both.activate("all")
        lost = both.proxied.call(exposed("die"), {})
        assert lost["isError"] is True
        assert "up" in lost["content"][0]["text"]
        assert status_is_ok(both)
        if transport == "stdio":
            assert "content" in both.proxied.call(exposed("echo"), {})


def test_tool_that_the_server_does_not_know(both: Pair) -> None:
    """It is listed and the server refuses it: the server's own words, not those for what is not active."""
    set_tools(both, {"name": "listed_only", "inputSchema": {}})
    answer = both.proxied.request("tools/call", {"name": exposed("listed_only"), "arguments": {}})
    told = {"code": -32602, "message": "the mirror has no listed_only", "data": {"what": "listed_only"}}
    assert answer["error"] == told
    assert both.proxied.request("tools/call", {"name": "up__nothing", "arguments": {}})["error"] == {
        "code": -32602,
        "message": "Unknown tool: up__nothing",
    }
