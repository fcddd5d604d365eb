"""What floods do to the log: what repeats itself is counted, long texts are cut, nothing that is said once is lost."""

import json
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import logs
from tests.conftest import PATIENCE, http_proxy, write_config

pytestmark = pytest.mark.anyio

FLOOD = 300


def send(port: int, request: bytes) -> bytes:
    """One request on a connection of its own; what is answered."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(request)
        return connection.recv(65536)


def events(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text(encoding="utf-8").splitlines()
    assert max(map(len, lines)) < 8 * 1024
    return [json.loads(line) for line in lines]


async def test_a_flood_of_bad_requests_leaves_few_lines_that_say_how_many_there_were(tmp_path: Path) -> None:
    """Those of libraries, and those of ours that a client causes; one that is new is written at once."""
    with http_proxy(write_config(tmp_path / "skills.yaml", {}, {"one": {}})) as proxy:
        port = int(proxy.base.rpartition(":")[2])
        host = "x" * 10_000

        def flood() -> None:
            for _ in range(FLOOD):
                assert b" 400 " in send(port, b"no HTTP at all\r\n\r\n")
                assert b" 421 " in send(port, f"GET /mcp HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())

        await anyio.to_thread.run_sync(flood)
        assert b" 403 " in send(port, b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: http://new.example\r\n\r\n")
        assert any(one.get("origin") == "http://new.example" for one in proxy.logged("http.refused"))
    logged = events(proxy.log)
    written, left_out = Counter[str](), Counter[str]()
    for one in logged:
        if one["event"] == "library.message":
            written[one["logger"]] += 1
            assert one["message"] == "Invalid HTTP request received."
        elif one["event"] == "http.refused" and "host" in one:
            written[one["event"]] += 1
            assert one["host"] == f"{host[:2048]}… (10,000 characters)"
        elif one["event"] == "log.repeated":
            left_out[one["of"]] += one["left_out"]
            assert one.get("message") in (None, "Invalid HTTP request received.")
    windows = 1 + sum(one["event"] == "log.repeated" for one in logged)
    for kind in ("uvicorn.error", "http.refused"):
        assert written[kind] + left_out[kind] == FLOOD
        assert written[kind] <= logs.FOLD_AFTER * windows


async def test_what_is_left_out_is_said_while_the_program_runs(tmp_path: Path) -> None:
    """Not only at its end."""
    with http_proxy(write_config(tmp_path / "skills.yaml", {}, {"one": {}})) as proxy:
        port = int(proxy.base.rpartition(":")[2])
        for _ in range(logs.FOLD_AFTER * 2):
            send(port, b"no HTTP at all\r\n\r\n")
        await proxy.until_logged("log.repeated", 1)


@given(
    values=st.lists(st.text(max_size=5000) | st.integers() | st.lists(st.text(max_size=5000), max_size=40), max_size=5)
)
def test_every_value_of_a_line_is_bounded(values: list[Any]) -> None:
    """What is within the bounds is as it was, what is cut says how much there is."""
    event = {str(number): value for number, value in enumerate(values)}
    for key, value in logs._cut(None, "", dict(event)).items():
        before = event[key]
        if isinstance(value, str):
            assert len(value) <= logs.MAX_TEXT_CHARACTERS + 30
            assert value == before or value.startswith(before[: logs.MAX_TEXT_CHARACTERS])
            assert (value == before) is (len(before) <= logs.MAX_TEXT_CHARACTERS)
        elif isinstance(value, list):
            assert sum(map(len, value)) <= logs.MAX_LIST_CHARACTERS + 30
            assert len(value) == len(before) or value[-1] == f"… ({len(before):,} in all)"
        else:
            assert value == before
