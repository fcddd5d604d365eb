"""What the program writes to stderr, and what it keeps out of every text (rule 24, B57)."""

import json
import os
import re
import subprocess
import sys

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.answers import not_ready
from tests.program.process import ROOT, Program, serving
from tests.servers.faulty import Probe
from tests.upstream.bench import DEADLINE, Bench, free_port, problems

pytestmark = pytest.mark.anyio

DOTTED = re.compile(r"[a-z_]+(\.[a-z_]+)+")


def events(program: Program) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in program.log().splitlines()]
    assert all(isinstance(line, dict) for line in lines)
    return lines


async def test_logs_are_json_lines_with_dotted_events(bench: Bench):
    """Where stderr is no terminal each line is a JSON object with a dotted event, a level and a time."""
    bench.stdio("a", noise=("banner\n",))
    bench.stdio("dead", dies=True)
    bench.skill("one", {"a": [], "dead": []})
    async with serving(bench.write()) as program:
        await program.greet()
        await program.activate("one")
        await program.call("a__die")
        program.process.terminate()
        assert await program.ended() == 0
        assert program.is_clean()
        logged = events(program)
    assert {"server.starting", "server.ready", "server.failed", "server.noise"} <= {str(one["event"]) for one in logged}
    for one in logged:
        assert DOTTED.fullmatch(str(one["event"])), one
        assert one["level"]
        assert one["timestamp"]


async def test_every_warning_about_a_server_names_it(bench: Bench):
    """One a change: what a library says of its answers as well, time after time and without a name, is left out."""
    await bench.http("html", probe=Probe(body="<html>hello</html>", type="text/html"))
    await bench.http("page", probe=Probe(body="<html>hello</html>", type="text/html"), status=404)
    bench.skill("one", {"html": [], "page": []})
    async with serving(bench.write()) as program:
        await program.greet()
        problems = not_ready(await program.activate("one"))
        program.process.terminate()
        assert await program.ended() == 0
        warnings = [one for one in events(program) if one["level"] not in ("debug", "info")]
    assert problems.keys() == {"page"}
    assert warnings
    assert {(one["event"], one["server"]) for one in warnings} == {("server.failed", "page")}


async def test_over_http_logs_are_json_lines_too(bench: Bench):
    """Where stderr is no terminal the HTTP program writes nothing else to it: a log reader can parse each line."""
    bench.skill("one", {})
    async with serving(bench.write(), "--transport", "http", "--port", "0") as program:
        ready = await program.said("proxy.ready")
        assert (ready["count"], ready["skills"]) == (1, ["one"])
        program.process.terminate()
        assert await program.ended() == 0
        assert {str(one["event"]) for one in events(program)} >= {"proxy.ready", "proxy.stopping"}
    assert str(ready["url"]).startswith("http://127.0.0.1:")


async def test_on_a_terminal_logs_are_for_people(bench: Bench):
    """On a terminal the same events are readable lines, not JSON."""
    bench.stdio("dead", dies=True)
    bench.skill("one", {"dead": []}, active=True)
    said = await on_a_terminal(bench, b"exit code 3", "--transport", "http", "--port", "0")
    assert b"server.failed" in said
    assert b'{"event' not in said
    assert b'"server":' not in said


async def test_on_a_terminal_a_waiting_program_says_for_what(bench: Bench):
    """Whoever starts it by hand over stdio is told why nothing happens, and what to do."""
    assert b"--transport http serves over HTTP" in await on_a_terminal(bench, b"Waiting for an MCP client")


async def test_on_a_terminal_the_address_the_skills_and_a_client_are_shown(bench: Bench):
    """Over HTTP: the address, each skill in a line, and how to point a client at it."""
    bench.skill("one", {}, desc="What it is for " * 20, active=True)
    said = await on_a_terminal(bench, b"/NAME", "--transport", "http", "--port", "0")
    assert b"  one (active at once): What it is for" in said
    assert b"claude mcp add --transport http skills http://127.0.0.1:" in said


async def test_on_a_terminal_only_the_first_of_very_many_skills_are_shown(bench: Bench):
    """And how to see all; what a description holds gives the terminal no orders."""
    for number in range(40):
        bench.skill(f"s{number}", {}, desc="What \x1b[2Jit is for")
    said = await on_a_terminal(bench, b"/NAME", "--transport", "http", "--port", "0")
    assert b"  s29: What [2Jit is for" in said
    assert b"s30" not in said
    assert b"  \xe2\x80\xa6 and 10 more: skills list --config " in said


async def on_a_terminal(bench: Bench, until: bytes, *arguments: str) -> bytes:
    """What the program says on a terminal, up to `until`; then it is ended."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "proxy", "serve", "--config", str(bench.write()), *arguments]
    process = await anyio.open_process(command, cwd=ROOT, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs)
    said = b""
    try:
        with anyio.fail_after(DEADLINE):
            while until not in said:
                await anyio.wait_readable(ours)
                said += os.read(ours, 1 << 16)
            process.terminate()
            assert await process.wait() == 0
    finally:
        await process.aclose()
        os.close(theirs)
        os.close(ours)
    return said


async def test_stderr_of_servers_is_in_our_log_alone(bench: Bench):
    """At debug level it is there, line by line, with the server's name; it never reaches stdout."""
    bench.stdio("a", stderr="first line\nsecond line")
    bench.skill("one", {"a": []})
    async with serving(bench.write(), "--log-level", "debug") as program:
        await program.greet()
        await program.activate("one")
        program.process.terminate()
        assert await program.ended() == 0
        await program.rest()
        assert program.is_clean()
        told = [one for one in events(program) if one["event"] == "server.stderr"]
    assert [(one["server"], one["line"], one["level"]) for one in told] == [
        ("a", "first line", "debug"),
        ("a", "second line", "debug"),
    ]
    assert not any(b"first line" in line for line in program.lines)


async def test_what_tools_return_is_not_logged(bench: Bench):
    """Not even at debug level, over HTTP and stdio: results can hold anything."""
    bench.stdio("a")
    await bench.http("b")
    bench.skill("one", {"a": [], "b": []})
    async with serving(bench.write(), "--log-level", "debug") as program:
        await program.greet()
        await program.activate("one")
        for tool in ("a__echo", "b__echo"):
            answer = await program.request("tools/call", name=tool, arguments={"word": "only-for-the-client"})
            assert "only-for-the-client" in json.dumps(answer)
        program.process.terminate()
        assert await program.ended() == 0
        assert "request.forwarded" in program.log()
        assert "only-for-the-client" not in program.log()


async def test_without_debug_stderr_of_servers_is_not_logged(bench: Bench):
    """At the usual level what a healthy server says on stderr is not in our log."""
    bench.stdio("a", stderr="first line")
    bench.skill("one", {"a": []})
    async with serving(bench.write()) as program:
        await program.greet()
        await program.activate("one")
        program.process.terminate()
        assert await program.ended() == 0
        assert "first line" not in program.log()


SECRETS = {
    "env": "envsecret-1a2b3c",
    "plain": "expanded-4d5e6f",
    "arg": "argsecret-7g8h9i",
    "joined": "joinedsecret-0j1k",
    "user": "urlpassword-2l3m",
    "query": "urlquery-4n5o6p",
    "header": "headersecret-7q8r",
    "token": "clienttoken-9s0t",
    "bad": "badpath-1u2v3w",
}


async def secretive(bench: Bench) -> None:
    """Servers that each know secrets and fail in their own way, most of them telling what they know."""
    said = " ".join(SECRETS.values())
    arguments = ["--key", SECRETS["arg"], f"--api-token={SECRETS['joined']}"]
    for key, faults in {
        "dies": {"dies": True},
        "talks": {},
        "refuses": {"era": "handshake", "error": f"bad key {SECRETS['arg']} for {SECRETS['env']}"},
    }.items():
        bench.stdio(key, {"env": {"MY_TOKEN": SECRETS["env"], "MODE": "${PLAIN}"}}, stderr=said, **faults)
        bench.servers[key]["args"] += arguments
    bench.servers["missing"] = {"command": "./${BAD}/server", "args": arguments}
    bench.servers["closed"] = {
        "url": f"http://me:{SECRETS['user']}@127.0.0.1:{free_port()}/mcp?api_key={SECRETS['query']}",
        "headers": {"Authorization": f"Bearer {SECRETS['header']}"},
    }
    await bench.http("unauthorised", {"headers": {"X-Api-Key": SECRETS["header"]}}, status=401)
    address = f"127.0.0.1:{bench.ports['unauthorised']}"
    bench.servers["unauthorised"]["url"] = f"http://me:{SECRETS['user']}@{address}/mcp?api_key={SECRETS['query']}"
    await bench.http("far", {"headers": {"X-Api-Key": SECRETS["header"]}}, stderr=said)
    bench.servers["far"]["url"] += f"?api_key={SECRETS['query']}"
    bench.skill("all", {key: ["echo", "die", "hang"] for key in bench.servers})
    bench.settings |= {"tokens": {"alice": "${TOKEN}"}}


async def test_secrets_are_in_no_text_of_ours(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """Secrets of env, headers, arguments and URLs are in no log at debug level, no result, no error and no health."""
    for name, key in {"PLAIN": "plain", "TOKEN": "token", "BAD": "bad"}.items():
        monkeypatch.setenv(name, SECRETS[key])
    await secretive(bench)
    texts: list[str] = []
    async with serving(bench.write(), "--transport", "http", "--port", "0", "--log-level", "debug") as program:
        url = (await program.said("proxy.ready"))["url"]
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {SECRETS['token']}"}) as http:
            with anyio.fail_after(DEADLINE * 2):
                async with Client(streamable_http_client(url, http_client=http), mode="legacy") as client:
                    result = await client.call_tool("SKILL", {"action": "activate", "skill_name": "all"})
                    states = problems(result)
                    texts.append(result.model_dump_json())
                    bench.stop("far")
                    for tool in ("dies__echo", "closed__echo", "talks__die", "missing__echo", "far__echo"):
                        answer = await client.call_tool(tool, {})
                        texts.append(answer.model_dump_json())
                    health = await http.get(url.removesuffix("/mcp") + "/health")
                    texts.append(health.text)
                    texts.append((await client.list_tools()).model_dump_json())
        program.process.terminate()
        assert await program.ended() == 0
        texts.append(program.log())
    assert set(states) == {"dies", "refuses", "missing", "closed", "unauthorised"}
    assert '"server.stderr"' in texts[-1]
    assert "***" not in f"{states['dies']}{states['refuses']}"  # which hold nothing that the servers wrote
    details = [event["detail"] for event in map(json.loads, texts[-1].splitlines()) if "detail" in event]
    assert any(text.startswith("its last output: ") and "***" in text for text in details)
    assert any(text.startswith("it said: ") and "***" in text for text in details)
    for what, secret in SECRETS.items():
        for text in texts:
            assert secret not in text, (what, text)
