"""What the environment says of the way to servers over HTTP: certificates, and HTTP proxies."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from proxy.upstream import network
from tests.upstream.bench import Bench, problems, text

pytestmark = pytest.mark.anyio

PROXIES = [name for plain in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in (plain, plain.upper())]


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch):
    for name in (*PROXIES, *network.CERTIFICATES):
        monkeypatch.delenv(name, raising=False)


def gone(folder: Path) -> Path:
    return folder / "gone"


def empty(folder: Path) -> Path:
    file = folder / "empty.pem"
    file.touch()
    return file


def text_file(folder: Path) -> Path:
    file = folder / "text.pem"
    file.write_text("no certificate")
    return file


def a_folder(folder: Path) -> Path:
    made = folder / "folder"
    made.mkdir(exist_ok=True)
    return made


@pytest.mark.parametrize("variable", network.CERTIFICATES)
@pytest.mark.parametrize("made", [gone, empty, text_file, a_folder])
async def test_certificates_that_cannot_be_had_cost_servers_over_https_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, variable: str, made
):
    """Those over HTTP work; the others fail with a reason that names the variable, until it is mended."""
    monkeypatch.setenv(variable, str(made(bench.folder)))
    await bench.http("a")
    bench.servers["b"] = {"url": f"https://127.0.0.1:{bench.ports['a']}/mcp"}
    bench.skill("one", {"a": [], "b": []})
    async with bench.proxy() as proxy:
        told = problems(await proxy.activate("one"))
        assert text(await proxy.call("a__echo", word="hello")) == '{"word": "hello"}'
        assert told.keys() == {"b"}
        assert f"no secure connection can be made: what {variable} names " in told["b"]
        monkeypatch.delenv(variable)
        assert variable not in problems(await proxy.activate("one"))["b"]


def test_a_folder_of_certificates_counts_by_the_names_that_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As one of several."""
    (tmp_path / "5ed36f99.0").touch()
    monkeypatch.setenv("SSL_CERT_DIR", f"{tmp_path.parent}:{tmp_path}")
    assert isinstance(network.trust("https://a.example"), ssl.SSLContext)


async def test_what_trusts_nobody_stays_so(monkeypatch: pytest.MonkeyPatch):
    """A server over HTTP that is reached without certificates cannot be led to trust a server with TLS."""
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/gone")
    context = network.trust("http://a.example")
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert not context.get_ca_certs()


@asynccontextmanager
async def refusing_proxy(answer: str) -> AsyncGenerator[tuple[str, list[str]]]:
    """An HTTP proxy that answers everything so; its URL, and the first lines of what it was asked."""
    asked: list[str] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n", 1)[0])
        writer.write(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_server_on_this_machine_is_not_reached_through_an_http_proxy(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, variable: str, host: str
):
    """Whatever the environment says: a proxy elsewhere has a loopback of its own."""
    await bench.http("a")
    bench.servers["a"]["url"] = f"http://{host}:{bench.ports['a']}/mcp"
    bench.skill("one", {"a": []})
    async with refusing_proxy("502 Bad Gateway") as (url, asked):
        monkeypatch.setenv(variable, url)
        async with bench.proxy() as proxy:
            assert not problems(await proxy.activate("one"))
            assert text(await proxy.call("a__echo", word="hello")) == '{"word": "hello"}'
    assert not asked


@pytest.mark.parametrize(
    ("variable", "scheme", "answer"),
    [
        ("HTTP_PROXY", "http", "502 Bad Gateway"),
        ("http_proxy", "http", "403 Forbidden"),
        ("ALL_PROXY", "http", "503 Service Unavailable"),
        ("HTTPS_PROXY", "https", "403 Forbidden"),
        ("all_proxy", "https", "407 Proxy Authentication Required"),
    ],
)
async def test_the_reason_names_the_http_proxy_that_a_server_is_reached_through(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, variable: str, scheme: str, answer: str
):
    """As nobody can tell which of the two has answered."""
    bench.servers["a"] = {"url": f"{scheme}://tracker.example/mcp"}
    bench.skill("one", {"a": []})
    async with refusing_proxy(answer) as (url, asked):
        monkeypatch.setenv(variable, url)
        async with bench.proxy() as proxy:
            told = problems(await proxy.activate("one"))["a"]
    assert f"(by way of the HTTP proxy that {variable} names)" in told
    assert asked


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://localhost/mcp", True),
        ("http://LOCALHOST.:80/mcp", True),
        ("http://mcp.localhost/mcp", True),
        ("http://127.1.2.3:8080/", True),
        ("http://[::1]:8080/", True),
        ("http://[::ffff:127.0.0.1]/", True),
        ("http://localhost.example/", False),
        ("http://10.0.0.1/", False),
        ("http://[fe80::1%25eth0]/", False),
    ],
)
def test_what_is_on_this_machine(url: str, loopback: bool):
    """By its name or address alone."""
    assert network.is_loopback(url) is loopback


def test_a_host_that_no_proxy_names_is_not_reached_through_one(monkeypatch: pytest.MonkeyPatch):
    """As the HTTP client has it."""
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "tracker.example")
    assert network.proxy_variable("http://tracker.example/mcp") is None
    assert network.proxy_variable("http://other.example/mcp") == "HTTP_PROXY"
    assert network.proxy_variable("https://other.example/mcp") is None
