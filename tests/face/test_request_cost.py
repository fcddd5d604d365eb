"""What a request may cost: it is refused before it is parsed where that would take long, or much memory."""

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest

from proxy.core.json_cost import MAX_JSON_VALUES
from tests.conftest import HANDSHAKE, MODERN, PATIENCE, HttpProxy, Raw, Record, http_proxy, text_of, write_config

pytestmark = pytest.mark.anyio

LIMIT = 4 * 1024 * 1024
"""Bytes of the largest body, by default."""
SOME = 48 * 1024 * 1024
"""Bytes of memory that a body of `LIMIT` may take, with its copies; parsed, those here would take twice as much."""

CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"SKILL","arguments":{"a":%s}}}'


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Generator[HttpProxy]:
    folder = tmp_path_factory.mktemp("cost")
    servers = {"up": Record(folder / "log.jsonl").entry()}
    skills = {"echoing": {"tool_list": {"up": ["echo"]}, "active": True}}
    config = write_config(folder / "skills.yaml", servers, skills)
    with http_proxy(config) as running:
        yield running


def memory(proxy: HttpProxy, kind: str) -> int:
    """The memory of the program in bytes: now (`VmRSS`), or at its highest (`VmHWM`)."""
    status = Path(f"/proc/{proxy.process.pid}/status").read_text(encoding="utf-8")
    return int(re.findall(rf"{kind}:\s+(\d+) kB", status)[0]) * 1024


def memory_now(proxy: HttpProxy) -> int:
    """Its memory in bytes, from which on its highest counts anew."""
    Path(f"/proc/{proxy.process.pid}/clear_refs").write_text("5", encoding="utf-8")
    return memory(proxy, "VmRSS")


def filled(item: bytes, before: bytes = b"[", after: bytes = b"]", size: int = LIMIT) -> bytes:
    """A request of about `size` bytes that holds a list of `item`."""
    count = (size - len(CALL) - len(before + after)) // (len(item) + 1)
    return CALL % (before + b",".join([item] * count) + after)


HOSTILE = {
    "empty lists": filled(b"[]"),
    "nested objects": filled(b'{"a":{"b":[]}}'),
    "numbers": filled(b"1"),
    "one key": filled(b'"a":1', b"{", b"}"),
    "requests": b"[" + b",".join([b'{"jsonrpc":"2.0","id":1,"method":"ping"}'] * 100_000) + b"]",
    "escapes": filled(b'"\\\\","\\",["'),
}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads /proc, as Linux has it")
@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
async def test_a_body_of_too_many_values_is_refused_unparsed_and_says_so(
    proxy: HttpProxy, raw: Raw, namespace: str, era: str
) -> None:
    """With what is too many, in the answer and in the log; it costs no more than its own bytes."""
    url = proxy.namespace(namespace)
    headers = await raw.open(url)
    sent = {**headers, "Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    sent |= {"MCP-Protocol-Version": era, "Mcp-Method": "tools/call", "Mcp-Name": "SKILL"}
    for what, body in HOSTILE.items():
        before = memory_now(proxy)
        answer = await raw.http.post(url, content=body, headers=sent)
        assert answer.status_code == 400, what
        error = answer.json()["error"]
        assert (error["code"], f"more than {LIMIT // 16} values" in error["message"]) == (-32600, True), what
        assert memory(proxy, "VmHWM") - before < SOME, what
    assert proxy.logged("http.refused")[-1]["values"] == LIMIT // 16
    assert "SKILL" in await raw.tools(url, headers)


async def test_a_text_may_hold_any_number_of_commas_and_brackets(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """As a table or a document does that is an argument."""
    url = proxy.namespace(namespace)
    headers = await raw.open(url)
    for text in ("1,2,3\n" * 200_000, json.dumps([{"a": [1, '"\\', 3]}] * 60_000)):
        assert text.count(",") + text.count("[") + text.count("{") > MAX_JSON_VALUES
        answer = await raw.post(url, "tools/call", {"name": "up__echo", "arguments": {"text": text}}, headers)
        assert json.loads(text_of(answer.reply["result"]))["arguments"] == {"text": text}


async def test_arguments_as_text_are_bounded_as_a_request_is(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """`SKILL_CALL` takes them so from some models; what is within the text is parsed, too."""
    url = proxy.namespace(namespace)
    headers = await raw.open(url)

    async def run(text: str) -> dict[str, Any]:
        answer = await raw.post(
            url, "tools/call", {"name": "SKILL_CALL", "arguments": {"tool": "up__echo", "arguments": text}}, headers
        )
        return answer.reply["result"]

    assert "hello" in text_of(await run('{"text": "hello"}'))
    refused = await run('{"text": [' + "[]," * MAX_JSON_VALUES + "0]}")
    assert refused["isError"] is True
    assert "arguments" in text_of(refused)


async def test_a_client_that_leaves_before_its_body_is_complete_leaves_nothing_behind(
    proxy: HttpProxy, raw: Raw, namespace: str
) -> None:
    """Nothing is said of it, and the next one is served."""
    url = proxy.namespace(namespace)
    headers = await raw.open(url)
    host, _, port = proxy.base.removeprefix("http://").partition(":")
    lines = len(proxy.log.read_text(encoding="utf-8"))
    for _ in range(3):
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(
                f"POST /mcp/{namespace} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000\r\n\r\n{{".encode()
            )
    with anyio.fail_after(PATIENCE):
        assert "SKILL" in await raw.tools(url, headers)
    assert len(proxy.log.read_text(encoding="utf-8")) == lines


async def test_more_wishes_than_a_subscriber_may_have_are_refused_clearly(
    proxy: HttpProxy, raw: Raw, namespace: str
) -> None:
    """On a listen stream, before it begins; a resource in the handshake's era by the length of its URI, too."""
    url = proxy.namespace(namespace)
    for uris, why in (
        ([f"memo://{n}" for n in range(1001)], "No more than 1000 resources"),
        (["memo://" + "x" * 2048], "more than 2048 characters"),
    ):
        refused = await raw.modern(url, "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
        assert refused.reply["error"]["code"] == -32602
        assert why in refused.reply["error"]["message"]


async def test_an_absurd_uri_is_refused_at_once(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """Whatever it is wanted for: no server is asked, and no template compared."""
    url, uri = proxy.namespace(namespace), "memo://" + "a/" * 500_000
    headers = await raw.open(url)
    for method, params in (
        ("resources/read", {"uri": uri}),
        ("resources/subscribe", {"uri": uri}),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": uri}, "argument": {"name": "a", "value": ""}}),
    ):
        answer = await raw.post(url, method, params, headers)
        assert answer.reply["error"] == {"code": -32602, "message": "A URI has no more than 65536 characters"}, method
