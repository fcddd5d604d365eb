"""What a server's process gets: its environment, its folder, its command (rules 22 and 23, B54)."""

import json
import os
import sys

import anyio
import pytest
from mcp import ClientSession

from proxy.core.server import StdioServer
from proxy.upstream.process import child_process
from proxy.upstream.spawn import spawn
from proxy.wire.turns import Turns
from tests.upstream.bench import DEADLINE, Bench, problems, text

pytestmark = pytest.mark.anyio

OURS = {
    "HOME": "/home/somebody",
    "LANG": "de_DE.UTF-8",
    "LC_ALL": "C.UTF-8",
    "HTTPS_PROXY": "http://proxy.example:3128",
    "no_proxy": "localhost",
    "SSL_CERT_FILE": "/etc/ca.pem",
    "GITHUB_TOKEN": "not-for-everybody",
    "AWS_REGION": "eu-central-1",
    "AWS_PROFILE": "work",
    "PYTHONPATH": "/somewhere",
    "LD_PRELOAD": "",
}
FUNCTION = "() { :; }"


async def environment(bench: Bench, **entry: object) -> dict[str, str]:
    bench.stdio("a", entry)
    bench.skill("one", {"a": []})
    environ = {**OURS, "PATH": os.environ["PATH"], "LC_BAD": FUNCTION}
    async with bench.proxy(environ=environ) as proxy:
        assert not problems(await proxy.activate("one"))
        got = json.loads(text(await proxy.call("a__env")))
    got.pop("__CF_USER_TEXT_ENCODING", None)  # macOS gives it to every process
    got.pop("LC_CTYPE", None) if "LC_CTYPE" not in environ else None
    return {name: value for name, value in got.items() if not name.startswith("COV")}


async def test_a_server_inherits_the_usual_and_nothing_else(bench: Bench):
    """Home, path, locale, proxy settings and certificates reach the server; tokens and other variables do not."""
    got = await environment(bench)
    assert got == {
        name: value
        for name, value in {**OURS, "PATH": os.environ["PATH"]}.items()
        if name in {"HOME", "LANG", "LC_ALL", "HTTPS_PROXY", "no_proxy", "SSL_CERT_FILE", "PATH"}
    }


async def test_a_server_gets_what_its_entry_adds(bench: Bench):
    """`inherit_env` lets names and patterns through; `env` comes on top, as text, and wins."""
    got = await environment(
        bench, inherit_env=["GITHUB_TOKEN", "AWS_*"], env={"LANG": "C", "PORT": 8080, "COPY": "${AWS_REGION}!"}
    )
    assert got["GITHUB_TOKEN"] == "not-for-everybody"
    assert (got["AWS_REGION"], got["AWS_PROFILE"]) == ("eu-central-1", "work")
    assert (got["LANG"], got["PORT"], got["COPY"]) == ("C", "8080", "eu-central-1!")
    assert "PYTHONPATH" not in got


async def test_a_server_that_does_not_read_holds_nobody_up():
    """However much waits to be sent to it, calls that are given up do not wait for it, and it ends in time."""
    deaf = StdioServer(key="deaf", command=sys.executable, args=("-c", "import time; time.sleep(600)"))
    with anyio.fail_after(DEADLINE):
        async with (
            child_process(deaf, str, spawn, turns=Turns(), unwanted=lambda _line: False) as child,
            ClientSession(dispatcher=child.dispatcher),
        ):
            for _ in range(3):
                with anyio.move_on_after(0.1) as limit:
                    await child.dispatcher.send_raw_request("x", {"text": "x" * 3_000_000})
                assert limit.cancelled_caught


async def test_relative_command_and_folder_start_at_the_configuration(bench: Bench):
    """`./bin/server` and `cwd: data` are looked for beside the file, wherever the proxy runs."""
    bench.stdio("a", {"cwd": "data"})
    data = str(bench.folder.resolve() / "data")
    (bench.folder / "data").mkdir()
    (bench.folder / "bin").mkdir()
    command = bench.folder / "bin" / "server"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    command.chmod(0o755)
    bench.servers["a"]["command"] = "./bin/server"
    bench.skill("one", {"a": []})
    async with bench.proxy() as proxy:
        assert not problems(await proxy.activate("one"))
        folder = json.loads(text(await proxy.call("a__cwd")))
    assert folder == data


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"command": "npx-that-is-not-there"}, ["npx-that-is-not-there", "nor on PATH;", "absolute path"]),
        ({"command": "./bin/none"}, ["./bin/none"]),
        ({"command": "/nowhere/none"}, ["/nowhere/none"]),
        ({"command": "./plain.txt"}, ["./plain.txt", "not executable"]),
        ({"command": sys.executable, "cwd": "nowhere"}, ["cwd nowhere"]),
        ({"command": sys.executable, "args": ["${NOT_SET_ANYWHERE}"]}, ["NOT_SET_ANYWHERE", "not set"]),
        ({"command": "./broken"}, ["broken"]),
    ],
    ids=lambda value: value.get("command", "") if isinstance(value, dict) else "",
)
async def test_what_cannot_be_started_is_named(bench: Bench, entry: dict[str, object], words: list[str]):
    """A command, folder or variable that is not there is named in one line, with where it was looked for."""
    (bench.folder / "plain.txt").touch()
    broken = bench.folder / "broken"
    broken.write_text("#!/nowhere/interpreter\n")
    broken.chmod(0o755)
    bench.servers["a"] = entry
    bench.stdio("good")
    bench.skill("one", {"a": [], "good": ["echo"]})
    async with bench.proxy(environ={"PATH": "/nowhere", "HOME": "/nowhere"}) as proxy:
        reason = problems(await proxy.activate("one"))["a"]
        assert await proxy.tools() == ["SKILL", "SKILL_CALL", "good__echo"]
    assert "\n" not in reason
    for word in words:
        assert word in reason
