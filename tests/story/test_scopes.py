"""Whose state it is: sessions, namespaces, principals, and everything that must not count as one of them."""

import json
import subprocess
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.conftest import (
    HANDSHAKE,
    MODERN,
    PATIENCE,
    ROOT,
    HttpProxy,
    Json,
    Launch,
    Raw,
    Record,
    connected,
    http_proxy,
    names,
    program,
    stdio_program,
    text_of,
    write_config,
)

pytestmark = pytest.mark.anyio

ALICE, BOB = "alice-secret-token", "bob-secret-token"
BOTH = ["SKILL", "SKILL_CALL", "up__echo"]


@dataclass(frozen=True)
class World:
    """Proxies before one kind of upstream: without tokens, with, and reachable under other names than loopback."""

    plain: HttpProxy
    guarded: HttpProxy
    exposed: HttpProxy
    record: Record


def config(folder: Path, name: str, record: Record, **proxy: object) -> Path:
    skills = {
        "echoing": {"usage": "e", "tool_list": {"up": ["echo"]}},
        "issues": {"usage": "i", "tool_list": {"up": ["list_issues"]}},
    }
    return write_config(folder / name, {"up": record.entry()}, skills, proxy=proxy)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("scopes")
    record = Record(folder / "log.jsonl")
    with (
        http_proxy(config(folder, "plain.yaml", record)) as plain,
        http_proxy(config(folder, "guarded.yaml", record, tokens={"alice": ALICE, "bob": BOB})) as guarded,
        http_proxy(
            config(
                folder,
                "exposed.yaml",
                record,
                tokens={"alice": ALICE},
                allowed_hosts=["proxy.example", "*.wild.example"],
                allowed_origins=["https://app.example", "vscode-webview://*"],
            )
        ) as exposed,
    ):
        yield World(plain, guarded, exposed, record)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def modern_tools(raw: Raw, url: str, headers: dict[str, str] | None = None) -> list[str]:
    return names((await raw.modern(url, "tools/list", {}, headers)).reply)


async def modern_activate(raw: Raw, url: str, skill: str = "echoing", headers: dict[str, str] | None = None) -> None:
    params = {"name": "SKILL", "arguments": {"action": "activate", "skill_name": skill}}
    answer = await raw.modern(url, "tools/call", params, headers)
    assert f"skill {skill} " in text_of(answer.reply["result"])


# --- sessions --------------------------------------------------------------------------------------------------------


async def test_forged_session(world: World, raw: Raw) -> None:
    """A session id that was never given out is answered with 404 and opens nothing."""
    for forged in ("0" * 32, "x", "../a", ""):
        for verb in ("POST", "GET", "DELETE"):
            headers = {"Mcp-Session-Id": forged, "MCP-Protocol-Version": HANDSHAKE}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"} if verb == "POST" else None
            answer = await raw.send(verb, world.plain.url, headers=headers, body=body)
            assert answer.status in {400, 404}, (forged, verb)
            assert "mcp-session-id" not in answer.headers


async def test_request_without_a_session(world: World, raw: Raw) -> None:
    """A handshake-era request without a session is refused, also with a version header and in a namespace."""
    for url in (world.plain.url, world.plain.namespace("nobody")):
        for headers in ({}, {"MCP-Protocol-Version": HANDSHAKE}, {"MCP-Protocol-Version": "2024-11-05"}):
            for method in ("tools/list", "tools/call"):
                params = {"name": "SKILL", "arguments": {"action": "list"}} if method == "tools/call" else {}
                answer = await raw.post(url, method, params, headers)
                assert answer.status >= 400
                assert "result" not in answer.text


@pytest.mark.parametrize(
    ("other", "status"), [({}, 401), (bearer(BOB), 404)], ids=["without a token", "with another token"]
)
async def test_foreign_session(world: World, raw: Raw, other: dict[str, str], status: int) -> None:
    """A session belongs to the token that opened it: for anybody else it does not exist, and goes on for its owner."""
    url = world.guarded.url
    headers = await raw.open(url, ALICE)
    await raw.skill(url, headers, "activate", "echoing")
    stolen = {key: value for key, value in headers.items() if key != "Authorization"} | other
    for verb, body in (("POST", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}), ("GET", None), ("DELETE", None)):
        answer = await raw.send(verb, url, headers=stolen, body=body)
        assert answer.status == status, verb
        assert "up__echo" not in answer.text
    assert await raw.tools(url, headers) == BOTH


@pytest.mark.parametrize("version", [HANDSHAKE, "2025-06-18", None])
async def test_session_on_another_path(world: World, raw: Raw, namespace: str, version: str | None) -> None:
    """A session lives on the path it was opened on: elsewhere it is unknown, whatever version the request claims."""
    a, b = world.plain.namespace(f"{namespace}-a"), world.plain.namespace(f"{namespace}-b")
    headers = await raw.open(a)
    await raw.skill(a, headers, "activate", "echoing")
    sent = {key: value for key, value in headers.items() if key != "MCP-Protocol-Version"}
    sent |= {"MCP-Protocol-Version": version} if version else {}
    for url in (b, world.plain.url, f"{a}x"):
        for verb, body in (
            ("POST", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
            ("DELETE", None),
            ("GET", None),
        ):
            answer = await raw.send(verb, url, headers=sent, body=body)
            assert answer.status == 404, (url, verb)
    assert await raw.tools(a, headers) == BOTH


@pytest.mark.parametrize("version", [MODERN, "2099-01-01", "nonsense", ""])
async def test_session_under_another_version(world: World, raw: Raw, namespace: str, version: str) -> None:
    """A session's id with a version that knows no sessions opens nothing of that session, on its path and elsewhere."""
    a, b = world.plain.namespace(f"{namespace}-a"), world.plain.namespace(f"{namespace}-b")
    headers = await raw.open(world.plain.url)
    await raw.skill(world.plain.url, headers, "activate", "echoing")
    sent = {**headers, "MCP-Protocol-Version": version}
    for url in (world.plain.url, a, b):
        answer = await raw.post(url, "tools/list", {}, sent)
        assert "up__echo" not in answer.text, url
        gone = await raw.send("DELETE", url, headers=sent)
        assert gone.status >= 400
    assert await raw.tools(world.plain.url, headers) == BOTH


async def test_session_header_means_nothing_in_the_modern_era(world: World, raw: Raw, namespace: str) -> None:
    """A modern request with somebody's session id, or a forged one, gets what it would get without."""
    session = await raw.open(world.plain.url)
    await raw.skill(world.plain.url, session, "activate", "echoing")
    for header in (session["Mcp-Session-Id"], "forged"):
        sent = {"Mcp-Session-Id": header}
        refused = await raw.modern(world.plain.url, "tools/list", {}, sent)
        assert refused.status == 400
        assert refused.reply["error"]["code"] == -32022
        url = world.plain.namespace(f"{namespace}-{header[:3]}")
        assert await modern_tools(raw, url, sent) == ["SKILL", "SKILL_CALL"]
        await modern_activate(raw, url, "issues", sent)
        assert await modern_tools(raw, url) == ["SKILL", "SKILL_CALL", "up__list_issues"]
    assert await raw.tools(world.plain.url, session) == BOTH


async def test_sessions_do_not_see_each_other(world: World) -> None:
    """Two sessions on `/mcp`: the second keeps its one tool and hears nothing, however often it asks."""
    async with connected(world.plain.url) as first, connected(world.plain.url) as second:
        await first.skill("activate", "echoing")
        for _ in range(20):
            assert await first.tools() == BOTH
            assert await second.tools() == ["SKILL", "SKILL_CALL"]
        assert second.wire.notices() == 0
        async with connected(world.plain.url) as third:
            assert await third.tools() == ["SKILL", "SKILL_CALL"]


async def test_delete_ends_a_session(world: World, raw: Raw) -> None:
    """DELETE ends a session with its state: the id is unknown then, and its client begins anew."""
    url = world.plain.url
    headers = await raw.open(url)
    await raw.skill(url, headers, "activate", "echoing")
    assert (await raw.send("DELETE", url, headers=headers)).status == 200
    assert (await raw.post(url, "tools/list", {}, headers)).status == 404
    assert await raw.tools(url, await raw.open(url)) == ["SKILL", "SKILL_CALL"]


# --- namespaces ------------------------------------------------------------------------------------------------------


async def test_one_namespace_is_shared(world: World, raw: Raw, namespace: str) -> None:
    """Two sessions and a modern client in one namespace share its state, and each hears of every change once."""
    url = world.plain.namespace(namespace)
    one, two = await raw.open(url), await raw.open(url)
    assert await raw.tools(url, two) == ["SKILL", "SKILL_CALL"]
    async with (
        raw.stream(url, one) as first,
        raw.stream(url, two) as second,
        connected(url, MODERN) as modern,
        modern.hearing(),
    ):
        await raw.skill(url, one, "activate", "echoing")
        await second.until_notices(1)
        await modern.wire.until_notices(1)
        assert await raw.tools(url, two) == await modern.tools() == BOTH
        await modern.skill("offload", "echoing")
        await first.until_notices(1)
        await second.until_notices(2)
        await modern.wire.until_notices(2)
        await raw.skill(url, two, "activate", "issues")
        await first.until_notices(2)
        await modern.wire.until_notices(3)
        # The change that a session made itself is told on that call's own stream, not here.
        assert (first.notices(), second.notices(), modern.wire.notices()) == (2, 2, 3)


async def test_notices_stay_in_their_scope(world: World, raw: Raw, namespace: str) -> None:
    """A change in one namespace is heard in no other, nor on `/mcp`."""
    here, there = world.plain.namespace(namespace), world.plain.namespace(f"{namespace}-other")
    session, other = await raw.open(world.plain.url), await raw.open(there)
    async with (
        raw.stream(world.plain.url, session) as on_mcp,
        raw.stream(there, other) as elsewhere,
        connected(there, MODERN) as modern,
        modern.hearing(),
    ):
        await modern_activate(raw, here)
        await modern_activate(raw, there, "issues")
        await elsewhere.until_notices(1)
        await modern.wire.until_notices(1)
        assert (on_mcp.notices(), elsewhere.notices(), modern.wire.notices()) == (0, 1, 1)


async def test_namespace_survives_its_sessions(world: World, raw: Raw, namespace: str) -> None:
    """The end of a session in a namespace leaves the namespace's state alone."""
    url = world.plain.namespace(namespace)
    headers = await raw.open(url)
    await raw.skill(url, headers, "activate", "echoing")
    assert (await raw.send("DELETE", url, headers=headers)).status == 200
    assert await modern_tools(raw, url) == BOTH
    assert await raw.tools(url, await raw.open(url)) == BOTH


async def test_namespace_within_the_principal(world: World, raw: Raw, namespace: str) -> None:
    """Alice's `/mcp/a` is not Bob's, in either era."""
    url = world.guarded.namespace(namespace)
    await modern_activate(raw, url, headers=bearer(ALICE))
    assert await modern_tools(raw, url, bearer(ALICE)) == BOTH
    assert await raw.tools(url, await raw.open(url, ALICE)) == BOTH
    assert await modern_tools(raw, url, bearer(BOB)) == ["SKILL", "SKILL_CALL"]
    assert await raw.tools(url, await raw.open(url, BOB)) == ["SKILL", "SKILL_CALL"]


async def test_principal_is_a_scope(world: World, raw: Raw) -> None:
    """On `/mcp` with a token all modern requests of one principal share state; its sessions have their own."""
    url = world.guarded.url
    await modern_activate(raw, url, headers=bearer(ALICE))
    assert await modern_tools(raw, url, bearer(ALICE)) == BOTH
    assert await modern_tools(raw, url, bearer(BOB)) == ["SKILL", "SKILL_CALL"]
    assert await raw.tools(url, await raw.open(url, ALICE)) == ["SKILL", "SKILL_CALL"]


async def test_odd_namespaces(world: World, raw: Raw, namespace: str) -> None:
    """Different names are different scopes, and no name is somebody's session; what cannot be a name is not found."""
    session = await raw.open(world.plain.url)
    await raw.skill(world.plain.url, session, "activate", "echoing")
    assert await modern_tools(raw, world.plain.namespace(session["Mcp-Session-Id"])) == ["SKILL", "SKILL_CALL"]
    for name in (f"{namespace}~a", f"{namespace}.a", "n" * 128, namespace.upper()):
        assert await modern_tools(raw, world.plain.namespace(name)) == ["SKILL", "SKILL_CALL"]
        await modern_activate(raw, world.plain.namespace(name), "issues")
    assert await modern_tools(raw, world.plain.namespace(namespace)) == ["SKILL", "SKILL_CALL"]
    for path in (
        f"/mcp/{namespace}/b",
        "/MCP",
        "/",
        "/sse",
        "/mcp/%20",
        "/mcp/%2e%2e%2e",
        "/mcp/%C3%B6",
        "/mcp/" + 129 * "n",
    ):
        answer = await raw.modern(world.plain.base + path, "tools/list")
        assert answer.status == 404, path
        assert "MCP is at /mcp and at /mcp/NAME" in answer.text


async def test_a_slash_at_the_end_makes_no_difference(world: World, raw: Raw) -> None:
    """`/mcp/` is `/mcp`: also for a session that was opened on the other."""
    headers = await raw.open(world.plain.url)
    assert await raw.tools(world.plain.url + "/", headers) == ["SKILL", "SKILL_CALL"]


async def test_stdio_namespace(world: World, tmp_path: Path) -> None:
    """Over stdio the process is the scope, with `--namespace` under that name: a second process has its own."""
    file = config(tmp_path, "skills.yaml", world.record)
    async with (
        connected(stdio_program(file, "--namespace", "n")) as first,
        connected(stdio_program(file, "--namespace", "n")) as second,
    ):
        await first.skill("activate", "echoing")
        assert await first.tools() == BOTH
        assert await second.tools() == ["SKILL", "SKILL_CALL"]


# --- tokens, Host, Origin --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header", ["Bearer wrong", "BEARER 0", "bearer alice", f"Bearer {ALICE}x", f"Bearer {ALICE} {BOB}"]
)
async def test_wrong_token(world: World, tmp_path: Path, launch: Launch, raw: Raw, header: str) -> None:
    """A wrong token is refused with 401 on every route, in both eras, never treated as none."""
    proxy = launch(config(tmp_path, "skills.yaml", world.record, tokens={"alice": ALICE, "bob": BOB}))
    sent = {"Authorization": header}
    for url in (proxy.url, proxy.namespace("x")):
        for answer in (await raw.modern(url, "tools/list", {}, sent), await raw.post(url, "initialize", {}, sent)):
            assert answer.status == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
    assert (await raw.send("GET", f"{proxy.base}/health", headers=sent)).status == 401


async def test_exposed_proxy_needs_a_token(world: World, raw: Raw) -> None:
    """A proxy that is reachable under other names than loopback answers nobody without a token, but its health."""
    for url in (world.exposed.url, world.exposed.namespace("x")):
        for host in ({"Host": "proxy.example"}, {}):
            assert (await raw.modern(url, "tools/list", {}, host)).status == 401
            assert (await raw.open_answer(url, host)).status == 401


def test_off_loopback_needs_tokens(world: World, tmp_path: Path) -> None:
    """Binding to all addresses without tokens is refused with exit code 2 and what to do; with tokens it serves."""
    for host in ("0.0.0.0", "::"):
        done = subprocess.run(
            program(
                "serve",
                "--config",
                config(tmp_path, "skills.yaml", world.record),
                "--transport",
                "http",
                "--host",
                host,
                "--port",
                "0",
            ),
            cwd=ROOT,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 2, done
        assert "proxy.tokens" in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""


async def test_off_loopback_with_tokens(world: World, tmp_path: Path, launch: Launch, raw: Raw) -> None:
    """Off loopback every request needs a token; an address as Host is fine, a foreign name is not."""
    proxy = launch(config(tmp_path, "skills.yaml", world.record, tokens={"alice": ALICE}), "--host", "0.0.0.0")
    base = proxy.base.replace("0.0.0.0", "127.0.0.1")
    assert (await raw.modern(f"{base}/mcp/a", "tools/list")).status == 401
    assert (await raw.post(f"{base}/mcp", "initialize")).status == 401
    assert await modern_tools(raw, f"{base}/mcp/a", {**bearer(ALICE), "Host": "192.0.2.7:8765"}) == [
        "SKILL",
        "SKILL_CALL",
    ]
    assert (
        await raw.modern(f"{base}/mcp/a", "tools/list", {}, {**bearer(ALICE), "Host": "evil.example"})
    ).status == 421
    health = await raw.send("GET", f"{base}/health")
    assert (health.status, json.loads(health.text)) == (200, {"status": "ok"})


ROUTES = [
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("OPTIONS", "/mcp"),
    ("POST", "/mcp/a"),
    ("OPTIONS", "/mcp/a"),
    ("GET", "/health"),
    ("HEAD", "/health"),
    ("OPTIONS", "/health"),
    ("GET", "/nowhere"),
]


@pytest.mark.parametrize(("verb", "path"), ROUTES)
async def test_foreign_host_and_origin(world: World, raw: Raw, verb: str, path: str) -> None:
    """A foreign Host is refused with 421 and a foreign Origin with 403, on every route and verb."""
    preflight = {"Access-Control-Request-Method": "POST"} if verb == "OPTIONS" else {}
    for host in (
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.0.2.1",
        "localhost@evil.example",
    ):
        answer = await raw.send(verb, world.plain.base + path, headers={"Host": host, **preflight})
        assert answer.status == 421, host
    for origin in ("http://evil.example", "null", "http://localhost.evil.example", "https://app.example", "file://"):
        answer = await raw.send(verb, world.plain.base + path, headers={"Origin": origin, **preflight})
        assert answer.status == 403, origin
        assert "access-control-allow-origin" not in answer.headers


async def test_known_hosts_and_origins(world: World, raw: Raw) -> None:
    """Loopback under every name, and what the configuration allows, is let in."""
    for host in ("localhost", "localhost:1", "LOCALHOST:80", "127.0.0.1", "[::1]:8765", "[::1]"):
        assert (await raw.send("GET", f"{world.plain.base}/health", headers={"Host": host})).status == 200, host
    for host in ("proxy.example", "proxy.example:443", "Proxy.Example", "a.wild.example"):
        assert (await raw.send("GET", f"{world.exposed.base}/health", headers={"Host": host})).status == 200, host
    for origin in ("https://app.example", "vscode-webview://abc", "http://localhost:3000", "http://[::1]:1"):
        assert (await raw.send("GET", f"{world.exposed.base}/health", headers={"Origin": origin})).status == 200, origin


@pytest.mark.parametrize("path", ["/mcp", "/mcp/a"])
async def test_cors(world: World, raw: Raw, path: str) -> None:
    """Browser clients of allowed origins pass: preflight without a token, exposed session id, errors readable too."""
    origin = "https://app.example"
    wanted = "authorization, content-type, mcp-protocol-version, mcp-session-id, mcp-method, mcp-name, last-event-id"
    for verb in ("POST", "GET", "DELETE"):
        asked = {"Origin": origin, "Access-Control-Request-Method": verb, "Access-Control-Request-Headers": wanted}
        answer = await raw.send("OPTIONS", world.exposed.base + path, headers=asked)
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == origin
        assert verb in answer.headers["access-control-allow-methods"]
        allowed = {header.strip().lower() for header in answer.headers["access-control-allow-headers"].split(",")}
        assert {header.strip() for header in wanted.split(",")} <= allowed
    opened = await raw.open_answer(world.exposed.base + path, {"Origin": origin, **bearer(ALICE)})
    assert opened.headers["access-control-allow-origin"] == origin
    assert "mcp-session-id" in opened.headers["access-control-expose-headers"].lower()
    refused = await raw.open_answer(world.exposed.base + path, {"Origin": origin, **bearer("wrong")})
    assert refused.status == 401
    assert refused.headers["access-control-allow-origin"] == origin


async def test_health(world: World, raw: Raw, namespace: str) -> None:
    """Health tells how the servers stand; where there are tokens, only to those who have one."""
    await modern_activate(raw, world.plain.namespace(namespace))
    told = json.loads((await raw.send("GET", f"{world.plain.base}/health")).text)
    assert told == {"status": "ok", "servers": {"up": {"state": "ready"}}}
    url = f"{world.guarded.base}/health"
    assert json.loads((await raw.send("GET", url)).text) == {"status": "ok"}
    assert set(json.loads((await raw.send("GET", url, headers=bearer(ALICE))).text)["servers"]) == {"up"}


# --- bounds ----------------------------------------------------------------------------------------------------------


async def test_bound_on_scopes(world: World, tmp_path: Path, launch: Launch, raw: Raw) -> None:
    """At `max_scopes` new scopes are refused with the setting's name; live ones and those of other kinds stay."""
    proxy = launch(config(tmp_path, "skills.yaml", world.record, max_scopes={"namespace": 1, "session": 1}))
    await modern_activate(raw, proxy.namespace("a"))
    session = await raw.open(proxy.url)
    assert await raw.tools(proxy.url, session) == ["SKILL", "SKILL_CALL"]
    for method, params in (("tools/list", {}), ("tools/call", {"name": "SKILL", "arguments": {"action": "list"}})):
        answer = await raw.modern(proxy.namespace("c"), method, params)
        assert "max_scopes.namespace" in answer.reply["error"]["message"]
    refused = await raw.modern(
        proxy.namespace("c"), "subscriptions/listen", {"notifications": {"toolsListChanged": True}}
    )
    assert "max_scopes" in refused.reply["error"]["message"]
    assert await modern_tools(raw, proxy.namespace("a")) == BOTH
    assert await raw.tools(proxy.url, session) == ["SKILL", "SKILL_CALL"]
    assert "max_scopes.session" in (await raw.open_answer(proxy.url)).reply["error"]["message"]
    assert (await raw.send("DELETE", proxy.url, headers=session)).status == 200
    assert await raw.tools(proxy.url, await raw.open(proxy.url)) == ["SKILL", "SKILL_CALL"]


async def test_a_flood_of_one_kind_keeps_no_other_out(world: World, tmp_path: Path, launch: Launch, raw: Raw) -> None:
    """However many sessions are asked for, a namespace and a user with a token get their place, in either era."""
    proxy = launch(config(tmp_path, "skills.yaml", world.record, max_scopes=1, tokens={"alice": ALICE}))
    flood = [await raw.open_answer(proxy.url, bearer(ALICE)) for _ in range(20)]
    assert [answer.status for answer in flood] == [200, *[503] * 19]
    assert await modern_tools(raw, proxy.url, bearer(ALICE)) == ["SKILL", "SKILL_CALL"]
    a = proxy.namespace("a")
    assert await raw.tools(a, await raw.open(a, ALICE)) == ["SKILL", "SKILL_CALL"]
    assert await modern_tools(raw, a, bearer(ALICE)) == ["SKILL", "SKILL_CALL"]


async def test_bound_counts_scopes_not_connections(world: World, tmp_path: Path, launch: Launch, raw: Raw) -> None:
    """Many clients in one namespace are one scope: `max_scopes` does not keep them out."""
    proxy = launch(config(tmp_path, "skills.yaml", world.record, max_scopes=2))
    for _ in range(4):
        assert await raw.tools(proxy.namespace("a"), await raw.open(proxy.namespace("a"))) == ["SKILL", "SKILL_CALL"]


async def test_new_sessions_at_the_bound(world: World, tmp_path: Path, launch: Launch, raw: Raw) -> None:
    """A session too many is refused at its handshake, or at its first request, with a clear error; others live on."""
    proxy = launch(config(tmp_path, "skills.yaml", world.record, max_scopes=2))
    live = [await raw.open(proxy.url), await raw.open(proxy.url)]
    for headers in live:
        assert await raw.tools(proxy.url, headers) == ["SKILL", "SKILL_CALL"]
    answer = await raw.open_answer(proxy.url)
    if answer.status == 200:
        answer = await raw.post(proxy.url, "tools/list", {}, {"Mcp-Session-Id": answer.headers["mcp-session-id"]})
    error: Json = answer.reply["error"]
    assert "too many" in error["message"].lower() or "max_scopes" in error["message"]
    await raw.skill(proxy.url, live[1], "activate", "echoing")
    assert await raw.tools(proxy.url, live[0]) == ["SKILL", "SKILL_CALL"]
    assert await raw.tools(proxy.url, live[1]) == BOTH


async def test_idle_scopes_end(world: World, tmp_path: Path, launch: Launch, raw: Raw) -> None:
    """A namespace that nobody uses ends after `scope_idle`; one that is listened to stays."""
    proxy = launch(config(tmp_path, "skills.yaml", world.record, scope_idle=1))
    kept, left = proxy.namespace("kept"), proxy.namespace("left")
    async with connected(kept, MODERN) as peer, peer.hearing():
        await peer.skill("activate", "echoing")
        await modern_activate(raw, left)
        with anyio.fail_after(PATIENCE):
            # Asking would keep the scope alive: wait for more than the idle time and one sweep between two looks.
            while await modern_tools(raw, left) != ["SKILL", "SKILL_CALL"]:  # noqa: ASYNC110
                await anyio.sleep(2.5)
        assert await peer.tools() == BOTH


async def test_large_and_broken_bodies(world: World, raw: Raw, namespace: str) -> None:
    """What is no JSON-RPC is refused without harm to the session it came in."""
    url = world.plain.namespace(namespace)
    headers = await raw.open(url)
    for body in (b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"jsonrpc": "2.0"}'):
        response: httpx2.Response = await raw.http.post(
            url,
            content=body,
            headers={**headers, "Accept": "application/json, text/event-stream", "Content-Type": "application/json"},
        )
        assert response.status_code == 400, body
        assert "Traceback" not in response.text
    assert await raw.tools(url, headers) == ["SKILL", "SKILL_CALL"]
