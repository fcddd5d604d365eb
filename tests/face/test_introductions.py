"""What a client says of itself: honest ones are kept as they are, absurd ones cost no more than these."""

import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from proxy.core.protocol import MAX_INTRODUCTION_BYTES
from tests.conftest import HANDSHAKE, HttpProxy, Json, Raw, Record, http_proxy, write_config

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
LONG = "x" * MIB
SESSIONS = 40
META = "io.modelcontextprotocol"
INVALID_PARAMS = -32602


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Generator[HttpProxy]:
    folder = tmp_path_factory.mktemp("introductions")
    servers = {"up": Record(folder / "log.jsonl").entry()}
    with http_proxy(write_config(folder / "skills.yaml", servers, {"echoing": {"tool_list": {"up": ["echo"]}}})) as it:
        yield it


def memory(proxy: HttpProxy) -> int:
    """Bytes of memory that the program has now."""
    status = Path(f"/proc/{proxy.process.pid}/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) * 1024


async def open_session(
    raw: Raw, url: str, client: Json, first: Json | None = None, **params: Any
) -> tuple[Json, dict[str, str]]:
    """Open a session as `client`: the answer, and the headers of its requests. `first`: of its first notification."""
    told = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": client, **params}
    answer = await raw.post(url, "initialize", told)
    headers = {"Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": HANDSHAKE}
    body = {"jsonrpc": "2.0", "method": "notifications/initialized", "params": first or {}}
    await raw.send("POST", url, headers=headers, body=body)
    return answer.reply, headers


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc, as Linux has it")
@pytest.mark.parametrize(
    "absurd",
    [
        {"client": {"name": LONG, "version": LONG, "title": LONG}},
        {"client": {"name": "a", "version": "1", "icons": [{"src": f"data:image/png;base64,{LONG}"}]}},
        {"client": {"name": "a", "version": "1"}, "_meta": {"com.example/more": LONG}},
        {"client": {"name": "a", "version": "1"}, "first": {"_meta": {"com.example/more": LONG}}},
    ],
    ids=["texts", "icons", "meta", "first request"],
)
async def test_a_client_of_absurd_size_is_served_and_costs_what_others_do(
    proxy: HttpProxy, raw: Raw, absurd: dict[str, Any]
) -> None:
    """It gets its own list; of what it said of itself nothing large is kept, nor of its first request."""
    await open_session(raw, proxy.url, **absurd)
    before = memory(proxy)
    for _ in range(SESSIONS):
        answer, headers = await open_session(raw, proxy.url, **absurd)
        assert "result" in answer, answer
        assert (await raw.tools(proxy.url, headers))[0] == "SKILL"
    assert memory(proxy) - before < SESSIONS * MIB // 2


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc, as Linux has it")
@pytest.mark.parametrize("last", ["request", "answer", "notification"])
async def test_a_session_keeps_nothing_of_a_large_last_message(proxy: HttpProxy, raw: Raw, last: str) -> None:
    """Of a request or notification of a MiB, or an answer; however long the session is silent from then on."""

    async def session() -> None:
        _, headers = await open_session(raw, proxy.url, {"name": "a", "version": "1"})
        if last == "notification":
            told = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": LONG}}
            assert (await raw.send("POST", proxy.url, headers=headers, body=told)).status == 202
            return
        name, more = ("SKILL", {"pad": LONG}) if last == "request" else (LONG, {})
        asked = {"name": name, "arguments": {"action": "list", **more}}
        answer = await raw.post(proxy.url, "tools/call", asked, headers)
        assert ("result" if last == "request" else "error") in answer.reply

    await session()
    before = memory(proxy)
    for _ in range(SESSIONS):
        await session()
    assert memory(proxy) - before < SESSIONS * MIB // 2


async def test_capabilities_that_are_too_large_are_refused_in_both_eras(
    proxy: HttpProxy, raw: Raw, namespace: str
) -> None:
    """They are needed as they are, so nothing of them can be left out."""
    url, large = proxy.namespace(namespace), {"experimental": {"x": {"y": "z" * MAX_INTRODUCTION_BYTES}}}
    answer, _ = await open_session(raw, url, {"name": "a", "version": "1"}, capabilities=large)
    assert answer["error"] == {"code": INVALID_PARAMS, "message": "initialize is larger than 16 KiB"}
    refused = await raw.modern(url, "tools/list", {"_meta": {f"{META}/clientCapabilities": large}})
    assert refused.status == 400
    assert refused.reply["error"] == {"code": INVALID_PARAMS, "message": "clientCapabilities is larger than 16 KiB"}
    fits = {"experimental": {"x": {"y": "z" * (MAX_INTRODUCTION_BYTES // 2)}}}
    assert (await raw.modern(url, "tools/list", {"_meta": {f"{META}/clientCapabilities": fits}})).status == 200


async def test_a_modern_client_with_an_absurd_name_is_served(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """What it has shown is kept under the beginning of its name."""
    url, named = proxy.namespace(namespace), {f"{META}/clientInfo": {"name": LONG, "version": LONG}}
    for _ in range(2):
        answer = await raw.modern(url, "tools/list", {"_meta": named})
        assert answer.reply["result"]["tools"][0]["name"] == "SKILL"


async def test_a_client_that_says_what_is_wrong_is_still_refused(proxy: HttpProxy, raw: Raw, namespace: str) -> None:
    """Cutting what is large hides no fault."""
    for client in ({"name": ["a"] * 10_000, "version": "1"}, {"version": "1", "title": LONG}, LONG):
        answer, _ = await open_session(raw, proxy.namespace(namespace), client)  # type: ignore[arg-type]
        assert answer["error"]["code"] == INVALID_PARAMS
