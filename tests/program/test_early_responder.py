"""A client on stdio is answered before the program is all there, and everything it says counts once."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.program.process import ROOT, serving
from tests.upstream.bench import DEADLINE, Bench, until

pytestmark = pytest.mark.anyio

MODERN = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}

WATCHED = """
import os, sys
write = os.write
def watching(fd, data):
    if bytes(data).startswith(b'{"jsonrpc"') and not os.path.exists(sys.argv[1]):
        with open(sys.argv[1], "w") as file:
            file.write("\\n".join(sys.modules))
    return write(fd, data)
os.write = watching
from proxy.cli.main import main
sys.exit(main(["serve", "--config", sys.argv[2]]))
"""
"""The program, which notes the modules that are imported when it first writes a message."""

AFTER_MANY_FILES = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (2000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for _ in range(1100):
    os.open(os.devnull, os.O_RDONLY)
from proxy.cli.main import main
sys.exit(main(["serve", "--config", sys.argv[1], "--log-level", "warning"]))
"""
"""The program, where so many files are open that the descriptors of its pipes are above 1024."""

LIBRARIES = {"annotated_types", "orjson", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection", "yaml"}
"""All that is imported from elsewhere before the first answer: what reads and validates the file, and writes JSON."""
OF_THE_STANDARD_LIBRARY = {"asyncio", "concurrent", "email", "http", "logging", "multiprocessing", "ssl", "subprocess"}
"""What is large in the standard library, and not needed until then."""
OURS_OUTSIDE_CONFIG_AND_CORE = {
    *("proxy.cli.exits", "proxy.cli.light_imports", "proxy.cli.main"),
    *("proxy.face.early_responder", "proxy.face.early_answers", "proxy.gateway.scope_view"),
    *("proxy.wire.codec", "proxy.wire.lines", "proxy.wire.standard_streams"),
}


def request(number: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def lines(*messages: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def run(config: Path, sent: bytes, program: Sequence[str] = ()) -> list[dict[str, Any]]:
    """All that the program says to a client that sends this and ends its output."""
    command = [
        sys.executable,
        *(program or ("-m", "proxy", "serve", "--log-level", "warning", "--config")),
        str(config),
    ]
    done = subprocess.run(command, cwd=ROOT, input=sent, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_nothing_heavy_is_imported_before_the_first_answer(bench: Bench):
    bench.skill("one", {})
    config, found = bench.write(), bench.folder / "modules"
    stdin, its_end = os.pipe()
    os.write(its_end, lines(request(1, "initialize", **HELLO)))  # it is there before the program is
    command = [sys.executable, "-c", WATCHED, str(found), str(config)]
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    with subprocess.Popen(command, cwd=ROOT, stdin=stdin, stdout=subprocess.PIPE, env=unmeasured) as program:
        os.close(stdin)
        assert program.stdout is not None
        assert json.loads(program.stdout.readline())["id"] == 1
        os.close(its_end)
    modules = found.read_text().split("\n")
    packages = {module.partition(".")[0] for module in modules}
    assert not packages & OF_THE_STANDARD_LIBRARY
    assert "importlib.metadata" not in modules
    foreign = packages - {*sys.stdlib_module_names, "proxy", "__main__", "sitecustomize", "cython_runtime"}
    assert {name for name in foreign if not name.startswith("_")} == LIBRARIES
    ours = {module for module in modules if module.startswith("proxy.") and module.count(".") == 2}
    assert {one for one in ours if not one.startswith(("proxy.config.", "proxy.core."))} == OURS_OUTSIDE_CONFIG_AND_CORE


def test_a_file_that_is_refused_answers_nothing(bench: Bench):
    config = bench.folder / "bad.yaml"
    config.write_text("skill_configs: {s: {no_such_key: 1}}\n")
    command = [sys.executable, "-m", "proxy", "serve", "--config", str(config)]
    sent = lines(request(1, "initialize", **HELLO))
    done = subprocess.run(command, cwd=ROOT, input=sent, capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert not done.stdout
    assert b"no_such_key" in done.stderr


def test_each_request_of_many_is_answered_once(bench: Bench):
    """Those that are answered at once, and those that have to wait for the rest of the program."""
    bench.skill("one", {})
    calls = [request(n, "tools/call", name="SKILL", arguments={"action": "list"}) for n in range(10, 20)]
    sent = [request(1, "initialize", **HELLO), INITIALIZED, request(2, "tools/list"), request(3, "ping"), *calls]
    told = run(bench.write(), lines(*sent, request(4, "tools/list"), request(5, "ping")))
    assert Counter(message["id"] for message in told) == Counter([1, 2, 3, 4, 5, *range(10, 20)])
    assert all("result" in message for message in told)
    assert [message["id"] for message in told[:3]] == [1, 2, 3]


def test_an_id_that_is_used_again_is_answered_again(bench: Bench):
    """Also where the client has cancelled the request of that id, which had its answer."""
    bench.skill("one", {})
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}}
    call = request(9, "tools/call", name="SKILL", arguments={"action": "list"})
    sent = [request(1, "initialize", **HELLO), INITIALIZED, request(2, "tools/list"), cancel, call, request(2, "ping")]
    told = run(bench.write(), lines(*sent))
    assert [message["result"] for message in told if message["id"] == 2][1:] == [{}]
    assert Counter(message["id"] for message in told) == {1: 1, 2: 2, 9: 1}


async def test_what_a_slow_client_does_not_take_is_not_lost(bench: Bench):
    """It sends more than its answers have room for, and reads only once the program is all there."""
    state = bench.folder / "state.db"
    bench.settings["state"] = {"backend": "sqlite", "path": str(state)}
    bench.skill("one", {})
    async with serving(bench.write()) as program:
        assert program.process.stdin is not None
        asked = [request(number, "tools/list") for number in range(2, 2000)]
        await program.process.stdin.send(lines(request(1, "initialize", **HELLO), INITIALIZED, *asked))
        await program.process.stdin.send(b"no JSON\n")
        await until(state.exists)
        for number in (1, 500, 1999):
            assert "result" in await program.response(number)
        await program.said("client.noise")
        assert Counter(json.loads(line)["id"] for line in program.lines) == Counter(range(1, 2000))
        assert program.is_clean()


async def test_what_was_said_before_counts_afterwards(bench: Bench):
    """A modern client that discovers, lists and listens is told of what it activates, and of no more."""
    bench.stdio("s")
    bench.skill("one", {"s": []})
    async with serving(bench.write()) as program:
        await program.request("server/discover", _meta=ENVELOPE)
        listed = await program.request("tools/list", _meta=ENVELOPE)
        assert [tool["name"] for tool in listed["tools"]] == ["SKILL", "SKILL_CALL"]
        wanted = {"toolsListChanged": True}
        listen = await program.ask("subscriptions/listen", _meta=ENVELOPE, notifications=wanted)
        arguments = {"action": "activate", "skill_name": "one"}
        await program.request("tools/call", _meta=ENVELOPE, name="SKILL", arguments=arguments)
        notices = [m for m in map(json.loads, program.lines) if m.get("method") == "notifications/tools/list_changed"]
        assert [notice["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] for notice in notices] == [listen]
        listed = await program.request("tools/list", _meta=ENVELOPE)
        assert [tool["name"] for tool in listed["tools"]][:2] == ["SKILL", "SKILL_CALL"]
        assert len(listed["tools"]) > 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_can_be_stopped_before_it_is_all_there(bench: Bench, number: signal.Signals):
    bench.skill("one", {})
    command = [sys.executable, "-m", "proxy", "serve", "--config", str(bench.write())]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(lines(request(1, "initialize", **HELLO)))
        program.stdin.flush()
        assert program.stdout.readline()
        program.send_signal(number)
        assert program.wait(DEADLINE) == 0


def test_descriptors_may_have_any_number(bench: Bench):
    """Some ways to wait for input know only those below 1024."""
    bench.skill("one", {})
    sent = lines(request(1, "initialize", **HELLO), INITIALIZED, request(2, "tools/list"))
    assert [message["id"] for message in run(bench.write(), sent, ("-c", AFTER_MANY_FILES))] == [1, 2]


@pytest.mark.parametrize("answered", [True, False])
def test_a_connection_that_is_reset_ends_the_program(bench: Bench, answered: bool):
    """As the end of its input does, before the program is all there or while it starts."""
    bench.skill("one", {})
    command = [sys.executable, "-m", "proxy", "serve", "--config", str(bench.write())]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    with subprocess.Popen(
        command, cwd=ROOT, stdin=accepted.fileno(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        accepted.close()
        assert program.stdout is not None
        assert program.stderr is not None
        if answered:
            client.sendall(lines(request(1, "initialize", **HELLO)))
            assert json.loads(program.stdout.readline())["id"] == 1
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        assert program.wait(DEADLINE) == 0
        assert b"Traceback" not in program.stderr.read()


def test_a_client_that_leaves_at_once_leaves_nothing(bench: Bench):
    """Its end of both pipes is closed as soon as it has its first answer."""
    bench.skill("one", {})
    command = [sys.executable, "-m", "proxy", "serve", "--config", str(bench.write())]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdin.write(lines(request(1, "initialize", **HELLO), request(2, "tools/list")))
        program.stdin.flush()
        program.stdout.close()
        program.stdin.close()
        assert program.wait(DEADLINE) == 0
        assert b"Traceback" not in program.stderr.read()
