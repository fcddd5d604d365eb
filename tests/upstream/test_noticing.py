"""Servers elsewhere that are gone are noticed without a call, where they have a stream of their own (rule 27)."""

import sys
from pathlib import Path

import anyio
import pytest

from tests.upstream.bench import Bench, until

pytestmark = pytest.mark.anyio

TALKER = Path(__file__).parents[1] / "servers" / "talker.py"


@pytest.mark.parametrize(
    ("transport", "era"), [("http", "handshake"), ("http", "modern"), ("sse", "handshake")], ids=str
)
async def test_a_server_that_is_gone_is_noticed_without_a_call(bench: Bench, transport: str, era: str):
    """Its own event stream, or the one that it tells of changes on, ends and cannot be opened again."""
    port = bench.file("port")
    command = [sys.executable, str(TALKER), "--log", str(bench.file("log")), "--transport", transport]
    async with await anyio.open_process([*command, "--port-file", str(port)], stderr=None) as server:
        await until(port.exists)
        path = "sse" if transport == "sse" else "mcp"
        bench.servers["a"] = {"type": transport, "url": f"http://127.0.0.1:{port.read_text()}/{path}", "era": era}
        bench.skill("one", {"a": []})
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            await proxy.state("a", "ready")
            server.kill()
            await proxy.state("a", "failed")
