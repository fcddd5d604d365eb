"""Servers that are started before anything else: which, how often, and what becomes of those that nobody needs."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from proxy.core.server import HttpServer, StdioServer
from proxy.upstream.spawn import Early
from tests.answers import not_ready
from tests.conftest import PATIENCE, ROOT, Launch
from tests.program.process import serving
from tests.servers.faulty import Faults
from tests.upstream.bench import DEADLINE, POLL, Bench, alive, until

pytestmark = pytest.mark.anyio

STUBBORN = ("eof", "term")
"""What a server ignores that ends by being killed alone."""
ENDS_EARLY = """
import signal, sys, time, types
from pathlib import Path
from proxy.cli.main import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a test run in the background has not

def serve(*_):
    while not all(log.exists() and log.read_text().endswith("\\n") for log in map(Path, sys.argv[3:])):
        time.sleep(0.01)
    if sys.argv[2] == "error":
        raise SystemExit(7)
    signal.raise_signal(signal.Signals[sys.argv[2]])

sys.modules["proxy.cli.serve"] = types.ModuleType("proxy.cli.serve")
sys.modules["proxy.cli.serve"].serve = serve
sys.exit(main(["serve", "--config", sys.argv[1]]))
"""
"""The program, which ends before it serves: once the servers with these logs have begun."""


def some_of_each(bench: Bench) -> set[str]:
    """Servers of all kinds of skills, the first three of which are needed at once; their keys."""
    for key in ("active", "pinned"):
        bench.stdio(key)
    bench.stdio("eager", {"start": "eager"})
    for key in ("lazy", "disabled"):
        bench.stdio(key)
    for key in ("nobodys", "disabled_eager"):
        bench.stdio(key, {"start": "eager"})
    bench.skill("one", {"active": []}, active=True)
    bench.skill("two", {"pinned": [], "active": []}, pinned=True)
    bench.skill("three", {"lazy": [], "eager": []})
    bench.skill("off", {"disabled": [], "disabled_eager": []}, enabled=False, active=True)
    return {"active", "pinned", "eager"}


def spawned(bench: Bench) -> dict[str, int]:
    """How often each server was started, of those that were."""
    counts = {key: len(bench.events(key, "spawned")) for key in bench.servers}
    return {key: count for key, count in counts.items() if count}


async def all_spawned(bench: Bench, keys: set[str]) -> None:
    for key in keys:
        await bench.event(key, "spawned")


async def test_on_stdio_what_is_needed_at_once_is_started_before_the_client_says_anything(bench: Bench):
    """And nothing else; the handshake and the calls after it have these very processes, and start no others."""
    needed = some_of_each(bench)
    async with serving(bench.write()) as program:
        await all_spawned(bench, needed)
        assert spawned(bench) == dict.fromkeys(needed, 1)
        assert not any(bench.events(key, "request") for key in needed)
        pids = {key: bench.pids(key) for key in needed}

        await program.greet()
        listed = [tool["name"] for tool in (await program.request("tools/list"))["tools"]]
        assert {"active__echo", "pinned__echo"} < set(listed)
        await program.activate("three")
        for key in needed:
            assert not (await program.call(f"{key}__echo")).get("isError")
        assert {key: bench.pids(key) for key in needed} == pids
        assert spawned(bench) == dict.fromkeys([*needed, "lazy"], 1)
        assert program.is_clean()


async def test_over_http_what_is_needed_at_once_starts_with_the_proxy(bench: Bench, launch: Launch):
    """No client has come yet; each starts once, and no other does."""
    needed = some_of_each(bench)
    proxy = launch(bench.write())
    for key in needed:
        await bench.event(key, "request", method="tools/list")
    assert proxy.process.poll() is None
    assert spawned(bench) == dict.fromkeys(needed, 1)


@pytest.mark.parametrize("isolation", ["shared", "scope"])
async def test_one_that_was_started_ahead_and_died_is_started_again(bench: Bench, isolation: str):
    """What is taken is the process that was there; the next attempt has one of its own."""
    bench.stdio("a", {"isolation": isolation}, dies=True, once=str(bench.file("died")), stderr="no luck")
    bench.skill("one", {"a": []}, active=True)
    async with serving(bench.write()) as program:
        [event] = await bench.event("a", "spawned")
        await until(lambda: not alive(event["pid"]))
        await program.greet()
        assert (await program.said("server.failed"))["server"] == "a"
        assert not (await program.activate("one")).get("isError")
        assert not (await program.call("a__echo")).get("isError")
    assert spawned(bench) == {"a": 2}


async def test_what_nobody_took_is_killed_when_the_client_never_comes(bench: Bench):
    """Stubborn ones too, with whatever they have started; the program ends as usual."""
    bench.stdio("a", stubborn=STUBBORN, grandchild="stubborn")
    bench.stdio("b", {"start": "eager"}, stubborn=STUBBORN)
    bench.skill("one", {"a": []}, active=True)
    bench.skill("two", {"b": []})
    async with serving(bench.write()) as program:
        await all_spawned(bench, {"a", "b"})
        assert program.process.stdin is not None
        await program.process.stdin.aclose()
        pids = [*bench.pids("a"), *bench.pids("b")]
        assert len(pids) == 3
        assert await program.ended(pids) == 0
    assert not bench.events("a", "request")
    assert spawned(bench) == {"a": 1, "b": 1}


@pytest.mark.parametrize(("how", "code"), [("error", 7), ("SIGINT", 0), ("SIGHUP", 0)])
def test_what_nobody_took_is_killed_when_the_program_ends_before_it_serves(bench: Bench, how: str, code: int):
    """No process is left when the program is over, nor one that it has left behind."""
    bench.stdio("a", stubborn=STUBBORN, grandchild="stubborn")
    bench.stdio("b", stubborn=STUBBORN)
    bench.skill("one", {"a": [], "b": []}, active=True)
    done = ends_early(bench, how)
    assert done.returncode == code, done.stderr
    assert len(bench.pids("b")) == 1
    wait_for_end([*bench.pids("a"), *bench.pids("b")])


def test_what_nobody_took_is_killed_when_the_program_is_told_to_end_before_it_serves(bench: Bench):
    """By SIGTERM, as later on: a client may well think better of it."""
    bench.stdio("a", stubborn=STUBBORN)
    bench.skill("one", {"a": []}, active=True)
    ends_early(bench, "SIGTERM")
    [pid] = bench.pids("a")
    assert not alive(pid)


def ends_early(bench: Bench, how: str) -> "subprocess.CompletedProcess[str]":
    """Run the program until it ends, before it serves, by an error or a signal."""
    logs = [str(bench.log(key)) for key in bench.servers]
    command = [sys.executable, "-c", ENDS_EARLY, str(bench.write()), how, *logs]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)


def wait_for_end(pids: list[int]) -> None:
    """Wait until none of the processes is left: to be killed takes a moment."""
    deadline = time.monotonic() + DEADLINE
    while any(map(alive, pids)):
        assert time.monotonic() < deadline
        time.sleep(POLL)


@pytest.mark.parametrize("when", ["missing at once", "missing later"])
async def test_a_command_that_does_not_exist_is_told_when_its_skill_is_activated(
    bench: Bench, tmp_path: Path, when: str
):
    """Whatever was tried before: the program starts, the other server works, and the reason is the usual one."""
    command = tmp_path / "script"
    if when == "missing later":  # it is there when the configuration is read, and its interpreter is not
        command.write_text("#!/no/such/interpreter\n")
        command.chmod(0o755)
    bench.servers["gone"] = {"command": str(command), "start": "eager"}
    bench.stdio("good")
    bench.skill("bad", {"gone": []}, active=True)
    bench.skill("both", {"gone": [], "good": []}, active=True)
    async with serving(bench.write()) as program:
        await bench.event("good", "spawned")
        await program.greet()
        for skill in ("bad", "both"):
            result = await program.activate(skill)
            assert not result.get("isError")
            problems = not_ready(result)
            assert problems.keys() == {"gone"}
            assert problems["gone"].startswith("failed: ")
            assert str(command) in problems["gone"]
        assert not (await program.call("good__echo")).get("isError")
        assert program.is_clean()
    assert spawned(bench) == {"good": 1}


def test_each_process_is_taken_once_and_only_those_that_were_not_are_killed(bench: Bench):
    """Servers without a process, and those that cannot be started, are none of its business."""
    command, *args = Faults(log=str(bench.log("a"))).argv()
    first, second = (StdioServer(key=key, command=command, args=tuple(args)) for key in ("first", "second"))
    gone = StdioServer(key="gone", command=str(bench.file("gone")))
    with Early([first, second, gone, HttpServer(key="far", url="http://127.0.0.1:9/mcp")]) as early:
        _, left = early._spawned["second"]
        taken, other = early.take(first), early.take(first)
        assert taken.process.pid != other.process.pid
        with pytest.raises(FileNotFoundError):
            early.take(gone)
    assert left.process.returncode == -signal.SIGKILL
    for one in (taken, other):
        assert one.process.poll() is None
        os.close(one.stdin)
        assert one.process.wait(DEADLINE) == 0  # the end of its input is what ended it
        os.close(one.stdout)
        os.close(one.stderr)


def test_a_process_that_was_started_ahead_is_not_taken_for_a_server_that_has_changed(bench: Bench):
    """It was started as the server was then: it is killed, and one as the server is now begins."""
    command, *args = Faults(log=str(bench.log("a"))).argv()
    before = StdioServer(key="a", command=command, args=tuple(args))
    with Early([before]) as early:
        _, ahead = early._spawned["a"]
        taken = early.take(replace(before, args=(*args, "--changed")))
        assert ahead.process.returncode == -signal.SIGKILL
        assert taken.process.poll() is None
        os.close(taken.stdin)
        assert taken.process.wait(DEADLINE) == 0
        os.close(taken.stdout)
        os.close(taken.stderr)
    assert bench.events("a", "spawned", argv=["--changed"])
