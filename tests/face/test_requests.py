"""How clients may write their HTTP requests: paths, headers, ids; and what is refused, with words."""

import json
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.face.request_headers import accepts
from tests.conftest import HANDSHAKE, ROOT, HttpProxy, Raw, Record, http_proxy, program, write_config

pytestmark = pytest.mark.anyio

BOTH = "application/json, text/event-stream"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


def config(folder: Path, **proxy: Any) -> Path:
    servers = {"up": Record(folder / "log.jsonl").entry()}
    return write_config(folder / "skills.yaml", servers, {"echoing": {"tool_list": {"up": ["echo"]}}}, proxy=proxy)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Generator[HttpProxy]:
    with http_proxy(config(tmp_path_factory.mktemp("requests"))) as running:
        yield running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Generator[HttpProxy]:
    """A proxy that asks for a token."""
    with http_proxy(config(tmp_path_factory.mktemp("guarded"), tokens={"alice": "the-token-of-alice"})) as running:
        yield running


# --- paths -----------------------------------------------------------------------------------------------------------


async def test_a_slash_at_the_end_of_a_path_makes_no_difference(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """For all methods; a session is bound to the path without it, and namespaces are the same ones."""
    plain = proxy.namespace(namespace)
    for opened, used in ((f"{plain}/", plain), (plain, f"{plain}/"), (proxy.url, f"{proxy.url}/")):
        headers = await raw.open(opened)
        assert (await raw.send("POST", used, headers=headers, body=PING)).status == 200
        async with raw.stream(used, headers):
            pass
        other = f"{proxy.url}/another/"
        assert (await raw.send("POST", other, headers=headers, body=PING)).status == 404
        assert (await raw.send("DELETE", used, headers=headers)).status == 200
        assert (await raw.send("POST", opened, headers=headers, body=PING)).status == 404
    call = {"name": "SKILL", "arguments": {"action": "activate", "skill_name": "echoing"}}
    assert "result" in (await raw.modern(f"{plain}/", "tools/call", call)).reply
    assert "up__echo" in json.dumps((await raw.modern(plain, "tools/list")).reply)


@pytest.mark.parametrize("path", ["//", "/a//", "/a/b", "/a/b/", "//a", "/%2F", "/a%2F%2F"])
async def test_other_paths_are_not_served(proxy: HttpProxy, raw: Raw, path: str) -> None:
    """Nor does anything lead from there to what is."""
    answer = await raw.send("POST", f"{proxy.url}{path}", body=PING)
    assert answer.status == 404
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-protected-resource/mcp/name",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp/",
        "/.well-known/openid-configuration",
        "/mcp/.well-known/openid-configuration",
        "/mcp/name/.well-known/oauth-authorization-server",
        "/register",
        "/authorize",
        "/token",
    ],
)
async def test_where_clients_look_for_an_authorization_server_there_is_none(
    guarded: HttpProxy, raw: Raw, path: str
) -> None:
    """Whatever token they bring: with a 401 there, some would begin to ask it for tokens."""
    for token in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer the-token-of-alice"}):
        for verb in ("GET", "POST"):
            answer = await raw.send(verb, f"{guarded.base}{path}", headers=token, body=None)
            assert answer.status == 404, (verb, token)
            assert "www-authenticate" not in answer.headers


@pytest.mark.parametrize(
    "path", ["/mcp", "/mcp/", "/mcp/.well-known", "/mcp/register", "/", "/.well-known/x", "/other"]
)
async def test_everywhere_else_a_token_is_asked_for(guarded: HttpProxy, raw: Raw, path: str) -> None:
    """Also at namespaces that are called like that."""
    assert (await raw.send("POST", f"{guarded.base}{path}", body=PING)).status == 401


async def test_the_scheme_of_a_token_may_be_written_in_any_case(guarded: HttpProxy, raw: Raw) -> None:
    for scheme in ("bearer", "BEARER", "BeArEr ", "Bearer"):
        headers = {"authorization": f"{scheme} the-token-of-alice"}
        assert (await raw.open_answer(guarded.url, headers)).status == 200, scheme


# --- headers ---------------------------------------------------------------------------------------------------------


async def post(proxy: HttpProxy, era: str, **headers: str | None) -> httpx2.Response:
    """A request of either era with these headers; those that are None are missing."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    handshake = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    method, params = ("initialize", handshake) if era == "handshake" else ("tools/list", {"_meta": meta})
    modern = {} if era == "handshake" else {"MCP-Protocol-Version": "2026-07-28", "mcp-METHOD": method}
    given_ones = {name.replace("_", "-"): value for name, value in headers.items()}
    wanted = {"Accept": BOTH, "Content-Type": "application/json", **modern, **given_ones}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    async with httpx2.AsyncClient() as client:
        request = client.build_request("POST", proxy.namespace("headers"), content=body)
        for name in ("accept", "content-type", "user-agent"):
            request.headers.pop(name, None)
        request.headers.update({name: value for name, value in wanted.items() if value is not None})
        return await client.send(request)


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON",
        "APPLICATION/JSON; charset=utf-8",
        "application/json;charset=UTF-8",
        'application/json ; Charset="utf-8"',
        "application/json; charset=utf8",
        "application/json; version=1",
    ],
)
async def test_json_is_taken_however_its_type_is_written(proxy: HttpProxy, era: str, content_type: str) -> None:
    assert (await post(proxy, era, Content_Type=content_type)).status_code == 200


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize(
    ("content_type", "words"),
    [
        (None, "application/json"),
        ("text/plain", "application/json"),
        ("application/jsonx", "application/json"),
        ("text/plain, application/json", "application/json"),
        ("application/json; charset=iso-8859-1", "charset"),
        ("application/json; charset=UTF-16", "charset"),
    ],
)
async def test_other_bodies_are_refused(proxy: HttpProxy, era: str, content_type: str | None, words: str) -> None:
    """Also one without a type: a page of another origin may send that without asking first."""
    answer = await post(proxy, era, Content_Type=content_type)
    assert answer.status_code == 415
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize("era", ["handshake", "modern"])
@pytest.mark.parametrize(
    ("accept", "taken"),
    [
        (BOTH, True),
        ("Text/Event-Stream,APPLICATION/JSON", True),
        ("application/json;q=0.1 , text/event-stream ; q=0.001", True),
        ("*/*", True),
        ("*/*;q=0.5, text/html", True),
        ("application/*, text/*", True),
        (None, True),
        ("", True),
        ("application/json", False),
        ("text/event-stream", False),
        ("application/*", False),
        ("text/html", False),
        ("*/*, text/event-stream;q=0", False),
        ("*/*, application/*;q=0.000", False),
    ],
)
async def test_a_client_has_to_take_both_kinds_of_answers(
    proxy: HttpProxy, era: str, accept: str | None, taken: bool
) -> None:
    """By RFC 9110: ranges, weights, and nothing for everything; else it is told which."""
    answer = await post(proxy, era, Accept=accept)
    assert answer.status_code == (200 if taken else 406)
    if not taken:
        assert "application/json and text/event-stream" in answer.json()["error"]["message"]


@given(st.text(max_size=60))
def test_no_accept_header_breaks_its_reading(header: str) -> None:
    assert accepts(header, "application/json") in (True, False)


# --- ids and batches -------------------------------------------------------------------------------------------------


async def test_ids_are_numbers_however_they_are_written(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """In answers, in cancellations and in progress tokens; a byte order mark before the body is nothing."""
    url = proxy.namespace(namespace)
    headers = {**await raw.open(url), "Accept": BOTH, "Content-Type": "application/json"}
    for written, number in (("7.0", 7), ("7e0", 7), ("-7.00", -7), (str(10**30), 10**30), ('"7.0"', "7.0")):
        body = f'\ufeff{{"jsonrpc": "2.0", "id": {written}, "method": "ping"}}'.encode()
        answer = await raw.http.post(url, headers=headers, content=body)
        assert answer.status_code == 200, answer.text
        assert f'"id":{json.dumps(number)}' in answer.text
    for params in ('{"requestId": 7.0}', '{"requestId": 7.5}', '{"requestId": null}', "{}"):
        body = f'{{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {params}}}'.encode()
        assert (await raw.http.post(url, headers=headers, content=body)).status_code == 202
    meta = '{"jsonrpc": "2.0", "id": 8, "method": "ping", "params": {"_meta": {"progressToken": 7.0}}}'
    assert '"result"' in (await raw.http.post(url, headers=headers, content=meta.encode())).text


BAD_IDS = ["null", "1.5", "true", "[1]", "{}", "1e999"]
BATCHES = ["[]", " [[]]", "[1]", json.dumps([PING]), json.dumps([PING, {**PING, "id": 2}])]


@pytest.mark.parametrize(
    "body", [*(f'{{"jsonrpc": "2.0", "id": {one}, "method": "ping"}}' for one in BAD_IDS), *BATCHES]
)
async def test_what_is_not_one_request_is_refused_over_http(
    proxy: HttpProxy, raw: Raw, namespace: str, body: str
) -> None:
    """In a session of 2025-03-26 too, which had batches."""
    url = proxy.namespace(namespace)
    opened = await raw.open(url)
    for version in ("2025-03-26", HANDSHAKE, "2026-07-28"):
        sent = {**opened, "MCP-Protocol-Version": version, "Accept": BOTH, "Content-Type": "application/json"}
        answer = await raw.http.post(url, headers=sent, content=body.encode())
        assert answer.status_code == 400
        error = answer.json()
        assert (error["id"], error["error"]["code"]) == (None, -32600)
        assert "message at a time" in error["error"]["message"] if "[" in body[:2] else "integer" in answer.text
    assert (await raw.post(url, "ping", {}, opened)).status == 200


@pytest.mark.parametrize("version", ["2025-03-26", HANDSHAKE])
def test_a_batch_on_stdio_is_refused_aloud(tmp_path: Path, version: str) -> None:
    """Each request in it under its id, first and later; the log says so, and what comes alone is answered."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    lines = [
        [{**PING, "id": "early"}],
        {"jsonrpc": "2.0", "id": 0.0, "method": "initialize", "params": params},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        [{**PING, "id": "late"}, {**PING, "id": 5.0}],
        [],
        {**PING, "id": 6.0},
    ]
    done = subprocess.run(
        program("serve", "--config", config(tmp_path)), cwd=ROOT, capture_output=True, timeout=60, check=True,
        input="".join(json.dumps(line) + "\n" for line in lines).encode(),
    )  # fmt: skip
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert {key for key, answer in answers.items() if "error" in answer} == {"early", "late", 5, None}
    assert all("one message at a time" in answers[key]["error"]["message"] for key in ("early", "late", 5, None))
    assert answers[0]["result"]["protocolVersion"] == version
    assert answers[6]["result"] == {}
    assert b"it is a batch" in done.stderr
