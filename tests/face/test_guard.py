"""What is let in over HTTP: by the name that it comes under, by the page that it comes from, and by its size."""

import json
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HttpProxy, Launch, Raw, Record, http_proxy, write_config

pytestmark = pytest.mark.anyio

LIMIT = 2048


def config(folder: Path, **proxy: Any) -> Path:
    servers = {"up": Record(folder / "log.jsonl").entry()}
    return write_config(folder / "skills.yaml", servers, {"echoing": {"tool_list": {"up": ["echo"]}}}, proxy=proxy)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Generator[HttpProxy]:
    with http_proxy(config(tmp_path_factory.mktemp("guard"), max_message_size=LIMIT)) as running:
        yield running


def refusals(proxy: HttpProxy) -> list[dict[str, Any]]:
    """What the log says of refused requests, the newest last."""
    lines = map(json.loads, proxy.log.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line["event"] == "http.refused"]


@pytest.mark.parametrize("host", ["proxy.example", "proxy.example:8000", "[2001:db8::1]:8000", "192.0.2.1", "x@y", ""])
async def test_a_foreign_host_is_refused_and_the_setting_that_lets_it_in_is_named(
    proxy: HttpProxy, raw: Raw, host: str
) -> None:
    """In the answer and in the log, with the host as it came."""
    answer = await raw.send("GET", f"{proxy.base}/health", headers={"Host": host})
    assert answer.status == 421
    assert "proxy.allowed_hosts" in answer.text
    said = refusals(proxy)[-1]
    assert (said["level"], said["host"], said["setting"]) == ("warning", host, "proxy.allowed_hosts")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "vscode-webview://x", "http://[2001:db8::1]", ""])
async def test_a_foreign_origin_is_refused_and_the_setting_that_lets_it_in_is_named(
    proxy: HttpProxy, raw: Raw, origin: str
) -> None:
    """Also the origins that are no page's on the web: any page can have the origin null."""
    answer = await raw.send("GET", f"{proxy.base}/health", headers={"Origin": origin})
    assert answer.status == 403
    assert "proxy.allowed_origins" in answer.text
    said = refusals(proxy)[-1]
    assert (said["level"], said["origin"], said["setting"]) == ("warning", origin, "proxy.allowed_origins")


@pytest.mark.parametrize("name", ["localhost", "localhost:8000", "127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:8000"])
async def test_this_machine_is_let_in_under_each_of_its_names(proxy: HttpProxy, raw: Raw, name: str) -> None:
    """With a port or without, as Host and as Origin."""
    for headers in ({"Host": name}, {"Origin": f"http://{name}"}, {"Origin": f"https://{name}"}):
        assert (await raw.send("GET", f"{proxy.base}/health", headers=headers)).status == 200


async def test_what_the_refusals_ask_for_lets_in(tmp_path: Path, launch: Launch, raw: Raw) -> None:
    """Hosts with their port or with any, IPv6, and origins of every kind, each only as it is written."""
    hosts = ["proxy.example", "other.example:8000", "2001:db8::1", "[2001:db8::3]", "[2001:db8::4]:8000"]
    origins = ["null", "vscode-webview://*", "https://app.example", "http://[2001:db8::1]:8000"]
    proxy = launch(
        config(tmp_path, tokens={"alice": "the-token-of-alice"}, allowed_hosts=hosts, allowed_origins=origins)
    )
    health = f"{proxy.base}/health"
    for host in ("proxy.example", "proxy.example:443", "other.example:8000"):
        assert (await raw.send("GET", health, headers={"Host": host})).status == 200, host
    for host in (*(f"[2001:db8::{n}]{port}" for n in (1, 3) for port in ("", ":8000")), "[2001:db8::4]:8000"):
        assert (await raw.send("GET", health, headers={"Host": host})).status == 200, host
    for host in ("other.example", "other.example:8001", "[2001:db8::2]", "[2001:db8::4]"):
        assert (await raw.send("GET", health, headers={"Host": host})).status == 421, host
    for origin in ("null", "vscode-webview://x", "https://app.example", "http://[2001:db8::1]:8000"):
        assert (await raw.send("GET", health, headers={"Origin": origin})).status == 200, origin
    for origin in ("http://app.example", "https://app.example:8443", "vscode-file://x", "http://1:8000"):
        assert (await raw.send("GET", health, headers={"Origin": origin})).status == 403, origin


async def test_with_an_empty_list_of_origins_no_page_is_let_in(tmp_path: Path, launch: Launch, raw: Raw) -> None:
    """Also none of this machine, by its preflight as little as by its request; clients that are no pages are."""
    proxy = launch(config(tmp_path, allowed_origins=[]))
    for origin in ("http://localhost:3000", "http://127.0.0.1", "http://[::1]:1", "null", ""):
        for verb in ("OPTIONS", "POST", "GET"):
            asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            answer = await raw.send(verb, proxy.url, headers=asked)
            assert answer.status == 403, (verb, origin)
            assert "access-control-allow-origin" not in answer.headers
    assert refusals(proxy)[-1]["setting"] == "proxy.allowed_origins"
    assert await raw.tools(proxy.url, await raw.open(proxy.url)) == ["SKILL", "SKILL_CALL"]


async def test_the_proxy_can_be_at_home_on_ipv6(tmp_path: Path, launch: Launch, raw: Raw) -> None:
    """On loopback of that kind as on the other."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    proxy = launch(config(tmp_path), "--host", "::1")
    assert proxy.url.startswith("http://[::1]:")
    assert await raw.tools(proxy.url, await raw.open(proxy.url)) == ["SKILL", "SKILL_CALL"]


def padded(size: int) -> bytes:
    """A request of that many bytes."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {"pad": ""}}}
    return json.dumps(body).replace('"pad": "', '"pad": "' + "x" * (size - len(json.dumps(body)))).encode()


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_request_that_is_too_large_is_refused_and_the_setting_is_named(
    proxy: HttpProxy, raw: Raw, chunked: bool
) -> None:
    """As a JSON-RPC error, which clients show, and in the log; one of just the size is served, and so is the next."""
    headers = await raw.open(proxy.url)
    sent = {**headers, "Accept": "application/json, text/event-stream", "Content-Type": "application/json"}

    async def pieces(body: bytes):
        for start in range(0, len(body), 100):
            yield body[start : start + 100]

    for size, status in ((LIMIT, 200), (LIMIT + 1, 413), (100 * LIMIT, 413), (LIMIT, 200)):
        body = padded(size)
        assert len(body) == size
        answer = await raw.http.post(proxy.url, content=pieces(body) if chunked else body, headers=sent)
        assert answer.status_code == status, size
        if status == 413:
            assert "2048 bytes: proxy.max_message_size" in answer.json()["error"]["message"]
            assert refusals(proxy)[-1]["setting"] == "proxy.max_message_size"


async def test_by_default_a_request_may_have_4_mib(tmp_path: Path, launch: Launch, raw: Raw) -> None:
    """As with a picture in it."""
    proxy = launch(config(tmp_path))
    headers = await raw.open(proxy.url)
    sent = {**headers, "Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    for size, status in ((4 * 1024 * 1024, 200), (4 * 1024 * 1024 + 1, 413)):
        answer = await raw.http.post(proxy.url, content=padded(size), headers=sent)
        assert answer.status_code == status
