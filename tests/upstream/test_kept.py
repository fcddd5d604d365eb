"""What servers offered is known again after a restart of the program, before they are there (rule 26)."""

import json
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.cli.test_check import check
from tests.conftest import HttpProxy, Json, Peer, connected, http_proxy, text_of
from tests.servers.faulty import Faults
from tests.upstream.bench import Bench, until

pytestmark = pytest.mark.anyio

SECRET = "s3cr3t-t0k3n-0f-mine"
LONG = 60.0
STARTER = "import json, os, pathlib, sys; os.execv(sys.executable, json.loads(pathlib.Path(sys.argv[1]).read_text()))"
"""A program whose command line says nothing of what it offers: that stands in a file."""


@dataclass
class Runs:
    """Runs of the program, one after the other, with one cache folder."""

    bench: Bench
    cache: Path

    @asynccontextmanager
    async def run(self, *, environ: Mapping[str, str] | None = None) -> AsyncGenerator[tuple[HttpProxy, Peer]]:
        """One run, and a client that was there from its beginning."""
        environ = {"XDG_CACHE_HOME": str(self.cache), "TOKEN": SECRET, **(environ or {})}
        with http_proxy(self.bench.write(), environ=environ) as proxy:
            async with connected(proxy.url, "legacy") as peer:
                yield proxy, peer
            assert "Traceback" not in proxy.log.read_text()

    def files(self) -> list[Path]:
        """The files of offers; those of pins are in a folder of their own."""
        found = self.cache.rglob("*") if self.cache.is_dir() else ()
        return [path for path in found if path.is_file() and path.parent.name != "pins"]

    async def remembers(self, count: int = 1) -> None:
        """Wait until the offers of so many servers are kept."""
        await until(lambda: sum(file.suffix == ".json" for file in self.files()) >= count)

    async def prime(self, count: int = 1) -> None:
        """Run once, until what the servers offer is kept."""
        async with self.run() as (_, peer):
            await peer.tools()
            await self.remembers(count)


@pytest.fixture
def runs(bench: Bench, tmp_path: Path) -> Runs:
    """A server `a` that takes long to start where `go` does not exist, with a skill that is active at once."""
    (tmp_path / "go").touch()
    bench.stdio("a", release=str(tmp_path / "go"))
    bench.skill("one", {"a": ["echo", "tool_*"]}, active=True)
    bench.settings["list_wait"] = LONG
    return Runs(bench, tmp_path / "cache")


def offering(bench: Bench, tools: int) -> None:
    """From now on server `a` offers so many tools, and its entry in the configuration says nothing of that."""
    faults = Faults(log=str(bench.log("a")), release=str(bench.file("go")), tools=tools)
    bench.file("a.argv").write_text(json.dumps(faults.argv()))
    bench.servers["a"] = {"command": sys.executable, "args": ["-c", STARTER, str(bench.file("a.argv"))]}


async def test_a_slow_server_costs_neither_the_first_list_nor_the_first_call(bench: Bench, runs: Runs):
    """A client that never lists again has everything at once; its call waits. No notice, as all is as before."""
    await runs.prime()
    bench.file("go").unlink()
    async with runs.run() as (_, peer):
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__echo"]
        results: list[Json] = []

        async def call() -> None:
            results.append(await peer.call("a__echo", {"word": "early"}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await bench.event("a", "spawned", count=2)
            assert not bench.events("a", "ran")
            bench.file("go").touch()
        assert [text_of(result) for result in results] == ['{"word": "early"}']
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__echo"]
        assert peer.wire.notices() == 0


async def test_what_turns_out_to_be_different_is_put_right_with_a_notice(bench: Bench, runs: Runs):
    """Once the server is there; what it no longer offers is refused then, and the next run knows the newest."""
    offering(bench, 2)
    await runs.prime()
    offering(bench, 1)
    bench.file("go").unlink()
    async with runs.run() as (_, peer):
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__tool_000", "a__tool_001"]
        assert peer.wire.notices() == 0
        bench.file("go").touch()
        await peer.wire.until_notices(1)
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__tool_000"]
        with pytest.raises(Exception, match="Unknown tool: a__tool_001"):
            await peer.call("a__tool_001")
        assert peer.wire.notices() == 1
        (kept,) = runs.files()
        await until(lambda: b"tool_001" not in kept.read_bytes())
    bench.file("go").unlink()
    async with runs.run() as (_, peer):
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__tool_000"]


async def test_a_server_that_does_not_come_back_is_still_named(bench: Bench, runs: Runs):
    """Its tools are listed as they were; a call says why it cannot be run."""
    offering(bench, 1)
    await runs.prime()
    bench.file("a.argv").write_text(json.dumps(Faults(log=str(bench.log("a")), dies=True, stderr="no licence").argv()))
    async with runs.run() as (_, peer):
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__tool_000"]
        result = await peer.call("a__tool_000")
        assert result["isError"]
        assert "ended with exit code 3" in text_of(result)


async def test_no_secret_of_the_configuration_is_in_the_cache_folder(bench: Bench, runs: Runs):
    """Wherever it stands in a server's entry."""
    entry: dict[str, Any] = {"env": {"TOKEN": "${TOKEN}"}, "args": [*bench.servers["a"]["args"], "--key", "${TOKEN}"]}
    bench.servers["a"] |= entry
    await bench.http("b", {"headers": {"Authorization": "Bearer ${TOKEN}"}})
    bench.servers["b"]["url"] += "?key=${TOKEN}"
    bench.skill("two", {"b": ["echo"]}, active=True)
    await runs.prime(2)

    assert bench.events("a", "spawned", argv=["--key", SECRET])
    assert len(runs.files()) == 2
    for file in runs.files():
        assert SECRET not in str(file)
        assert SECRET.encode() not in file.read_bytes()
        assert file.stat().st_mode & 0o077 == 0


def another_file(bench: Bench) -> None:
    """The same configuration, in another folder."""
    bench.folder /= "elsewhere"
    bench.folder.mkdir()


def another_entry(bench: Bench) -> None:
    bench.servers["a"]["args"] += ["--more"]


def not_wanted(bench: Bench) -> None:
    bench.settings["keep_inventories"] = False


def a_connection_for_each_scope(bench: Bench) -> None:
    bench.servers["a"]["isolation"] = "scope"


@pytest.mark.parametrize("change", [another_file, another_entry, not_wanted, a_connection_for_each_scope])
async def test_what_was_kept_is_not_used_where_it_may_not_fit(
    bench: Bench, runs: Runs, change: Callable[[Bench], None]
):
    """By another configuration, for a server that is started in another way or for each scope, or where it is off."""
    await runs.prime()
    go = bench.file("go")
    go.unlink()
    change(bench)
    bench.settings["list_wait"] = 0.1
    async with runs.run() as (_, peer):
        assert await peer.tools() == ["SKILL", "SKILL_CALL"]
        go.touch()
        await peer.wire.until_notices(1)
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__echo"]


async def test_where_it_is_not_wanted_nothing_is_written(bench: Bench, runs: Runs):
    """Not even the folder."""
    not_wanted(bench)
    async with runs.run() as (_, peer):
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__echo"]
    assert not runs.cache.exists()


async def test_what_a_server_offers_one_client_is_told_to_no_other(bench: Bench, runs: Runs):
    """Not in lists, answers or refusals, until the other's own process is there; and the next run knows nothing."""
    bench.stdio("a", {"isolation": "scope"}, release=str(bench.file("go")), tools=1)
    bench.skill("two", {"a": ["tool_*"]})
    bench.settings |= {"list_wait": 0.1, "activation_wait": 0.1}

    async def told(peer: Peer) -> str:
        await peer.skill("list")
        with pytest.raises(Exception, match="Unknown tool: a__tool_000"):
            await peer.call("a__tool_000")
        answers = [await peer.skill("activate", "two"), await peer.skill("read", "two", tool="tool_000")]
        return json.dumps([*answers, await peer.tools()])

    async def sees(peer: Peer) -> None:
        with anyio.fail_after(LONG):
            while await peer.tools() != ["SKILL", "SKILL_CALL", "a__tool_000"]:  # noqa: ASYNC110 - its process starts
                await anyio.sleep(0.02)

    async with runs.run() as (proxy, first):
        await sees(first)
        bench.file("go").unlink()
        async with connected(proxy.url, "legacy") as second:
            said = (await told(second)).replace("has no tool 'tool_000'", "")
            assert "tool_000" not in said
            bench.file("go").touch()
            await sees(second)
    assert runs.files() == []


@pytest.mark.parametrize("content", [b'{"format": 3, "tools": [{"na', b"\0" * 5_000_000])
async def test_damaged_files_do_no_harm(bench: Bench, runs: Runs, content: bytes):
    """The list is what it would be without them, and they are written anew; files of somebody else are left alone."""
    await runs.prime()
    (file,) = runs.files()
    file.write_bytes(content)
    foreign = file.with_name("README.txt")
    foreign.write_text("not ours")
    async with runs.run() as (_, peer):
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__echo"]
        await until(lambda: file.read_bytes()[-1:] == b"}" and b"echo" in file.read_bytes())
    assert foreign.read_text() == "not ours"


async def test_a_folder_that_cannot_be_written_costs_one_warning(bench: Bench, runs: Runs):
    """Whatever the number of servers, and nothing else."""
    bench.stdio("b")
    bench.skill("two", {"b": ["echo"]}, active=True)
    runs.cache.write_text("no folder")
    async with runs.run() as (proxy, peer):
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__echo", "b__echo"]
        assert not (await peer.call("b__echo")).get("isError")
    lines = [json.loads(line) for line in proxy.log.read_text().splitlines()]
    (warning,) = [line for line in lines if line["event"] in ("cache.none", "offers.not_kept", "pins.not_kept")]
    assert warning["level"] == "warning"
    assert warning["reason"] == "Not a directory: no inventories and pins are kept; set HOME or XDG_CACHE_HOME"


async def test_check_shows_what_is_there_and_not_what_was(bench: Bench, runs: Runs, monkeypatch: pytest.MonkeyPatch):
    """A server that does not start offers nothing, whatever is remembered of it."""
    offering(bench, 1)
    await runs.prime()
    bench.file("a.argv").write_text(json.dumps(Faults(log=str(bench.log("a")), dies=True, stderr="no licence").argv()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(runs.cache))

    done = await anyio.to_thread.run_sync(check, bench.write())

    assert done.returncode == 1
    assert "a__tool_000" not in done.stdout
    assert "server a failed" in done.stdout
    assert "no licence" in done.stdout


async def test_what_a_changed_server_offers_is_kept_too(bench: Bench, runs: Runs):
    """Also where that is the same as before: the next run knows it by its new entry."""
    bench.file("go").unlink()
    async with runs.run() as (proxy, peer):
        await peer.skill("list")
        bench.file("go").touch()
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__echo"]
        await peer.wire.until_notices(1)
        await runs.remembers(1)
        another_entry(bench)
        bench.write()
        proxy.process.send_signal(signal.SIGHUP)
        await bench.event("a", "spawned", argv=["--more"])
        await runs.remembers(2)
        assert peer.wire.notices() == 1
    bench.file("go").unlink()
    async with runs.run() as (_, peer):
        assert await peer.tools() == ["SKILL", "SKILL_CALL", "a__echo"]
