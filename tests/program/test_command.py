"""The command line of the program: one program under two names, and plain words for what cannot be (rule 21)."""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.cli.main import main
from tests.program.process import ROOT
from tests.upstream.bench import Bench

MODULE = [sys.executable, "-m", "proxy"]
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "by-hand", "version": "1"}}
ENTRY = [sys.executable, "-c", "import sys; from proxy.cli.main import main; sys.exit(main())"]


def run(*arguments: str | Path, program: list[str] = MODULE) -> subprocess.CompletedProcess[str]:
    """The program, run to its end without input."""
    return subprocess.run(
        [*program, *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["serve", "--help"], ["nonsense"]])
def test_both_names_are_one_program(arguments: list[str]):
    """`python -m proxy` and the installed command give the same output and exit code."""
    first, second = run(*arguments), run(*arguments, program=ENTRY)
    assert (first.returncode, first.stdout, first.stderr) == (second.returncode, second.stdout, second.stderr)
    assert "mcp-skill-proxy" in first.stdout + first.stderr


@pytest.mark.parametrize("command", ["check --offline --config config/example.yaml", "init --output -"])
def test_a_reader_that_has_read_enough_is_no_error(command: str):
    """As with `| head`: no traceback, code 0."""
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [*MODULE, *command.split()], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["serve"],
        ["serve", "--config"],
        ["serve", "--config", "x.yaml", "--transport", "carrier-pigeon"],
        ["serve", "--config", "x.yaml", "--port", "many"],
        ["serve", "--config", "x.yaml", "--log-level", "loud"],
        ["serve", "--config", "x.yaml", "--what"],
    ],
    ids=" ".join,
)
def test_wrong_arguments_end_with_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    """Arguments that mean nothing are refused with the usage on stderr, code 2, nothing on stdout."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert said.err.startswith("usage: mcp-skill-proxy")
    assert not said.out


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, None),
        (b"servers: [\n", 1),
        (b"servers:\n  a: {command: x}\n  a: {command: y}\n", 3),
        (b"skill_configs:\n  one: {tool_list: {nobody: []}}\n", 2),
        (b"\xff\xfe\x00", 1),
    ],
    ids=["missing", "broken", "twice", "unknown-server", "bytes"],
)
def test_a_configuration_that_cannot_be_used_ends_with_code_2(tmp_path: Path, content: bytes | None, line: int | None):
    """Each problem is one line `file:line: …` on stderr, where there are lines; code 2, nothing on stdout."""
    config = tmp_path / "skills.yaml"
    if content is not None:
        config.write_bytes(content)
    done = run("serve", "--config", config)
    assert done.returncode == 2
    assert not done.stdout
    problems = done.stderr.splitlines()
    assert problems
    place = re.escape(str(config)) + (r":\d+: " if line is not None else ": ")
    assert all(re.match(place, problem) for problem in problems), problems
    assert problems[0].startswith(f"{config}:{line}: " if line is not None else f"{config}: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "9000"], "--host and --port are for --transport http"),
        (["--host", "127.0.0.1"], "--host and --port are for --transport http"),
        (["--transport", "http", "--namespace", "a"], "over HTTP the namespace is in the URL"),
        (["--namespace", "a/b"], "'a/b' is no name"),
        (["--namespace", ".."], "'..' is no name"),
    ],
)
def test_what_the_transport_would_ignore_is_refused(bench: Bench, arguments: list[str], said: str):
    """Code 2, and what to write instead; nothing is started."""
    done = run("serve", "--config", bench.write(), *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_no_harm(bench: Bench, closed: str):
    """Whoever closes them gets an end of input, no output, or no log: code 0, and no traceback."""
    command = shlex.join([*MODULE, "serve", "--config", str(bench.write())])
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} {closed}"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_one_socket_serves_for_both_ways(bench: Bench):
    """As inetd and socat give it; and a last line needs no end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            [*MODULE, "serve", "--config", str(bench.write())],
            cwd=ROOT,
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
        )
        theirs.close()
        ours.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}).encode())
        ours.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: ours.recv(1 << 16), b""))
        assert process.wait(60) == 0
    assert json.loads(answer)["result"]["serverInfo"]["name"] == "mcp-skill-proxy"


def test_a_slow_reader_gets_the_whole_last_answer(bench: Bench):
    """However large it is, and although the input has ended."""
    for number in range(50):
        bench.skill(f"skill-{number}", {}, usage="x" * 2000)
    asked = [
        {"id": 1, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
        *({"id": 2 + n, "method": "tools/call", "params": read(f"skill-{n}")} for n in range(50)),
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in asked)
    with subprocess.Popen(
        [*MODULE, "serve", "--config", str(bench.write())],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines.encode())
        process.stdin.close()
        answers = [json.loads(line) for line in process.stdout]
    assert process.returncode == 0
    assert {answer["id"] for answer in answers} == set(range(1, 52))


def read(skill: str) -> dict[str, object]:
    """A call of `SKILL` that reads a guide."""
    return {"name": "SKILL", "arguments": {"action": "read", "skill_name": skill}}


def test_files_serve_as_pipes(bench: Bench):
    """Requests from a file are answered into a file."""
    bench.skill("one", {})
    requests, answers = bench.file("requests"), bench.file("answers")
    lines = [
        {"id": 1, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
    ]
    requests.write_text("".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines) + "no JSON\n")
    with requests.open() as stdin, answers.open("w") as stdout:
        done = subprocess.run(
            [*MODULE, "serve", "--config", str(bench.write())],
            cwd=ROOT,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0
    assert b"client.noise" in done.stderr
    first, second = map(json.loads, answers.read_text().splitlines())
    assert (first["id"], second["id"]) == (1, 2)
    assert [tool["name"] for tool in second["result"]["tools"]] == ["SKILL", "SKILL_CALL"]


@pytest.mark.parametrize("name", ["claude-code", "some-agent", "claude-ai"])
def test_a_client_whose_input_has_ended_is_not_waited_for(bench: Bench, name: str):
    """What would be held until it has read its list again is answered at once: the notice first, then the result."""
    bench.stdio("a")
    steps = {"steps": [{"tool": "a/echo"}], "internal_tools": {"a": ["echo"]}, "expose_as_tool": True}
    bench.skills["run-it"] = {"desc": "Runs", "usage": "Run it.", **steps}
    hello = {**HELLO, "clientInfo": {"name": name, "version": "1"}}
    activate = {"name": "SKILL", "arguments": {"action": "activate", "skill_name": "run-it"}}
    lines = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": activate},
    ]
    done = subprocess.run(
        [*MODULE, "serve", "--config", str(bench.write())],
        cwd=ROOT,
        input="".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    opened, notice, answer = map(json.loads, done.stdout.splitlines())
    assert (opened["id"], answer["id"]) == (1, 2)
    assert notice["method"] == "notifications/tools/list_changed"
    assert answer["result"]["content"][0]["text"].startswith("skill run-it activated, current skills: ['run-it']")


def test_a_folder_as_configuration_is_refused(tmp_path: Path):
    """A folder in place of a file is named as that."""
    done = run("serve", "--config", tmp_path)
    assert done.returncode == 2
    assert "is a folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_named(bench: Bench):
    """When the port is taken the message names it and says what to do; code 2, no server is started."""
    bench.stdio("a", {"start": "eager"})
    bench.skill("one", {"a": []})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--config", bench.write(), "--transport", "http", "--port", str(port))
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
    assert not bench.events("a", "spawned")


@pytest.mark.parametrize("port", ["70000", "-1"])
def test_a_port_that_cannot_be_is_refused(bench: Bench, port: str):
    """A number that is no port is refused in words."""
    bench.skill("one", {})
    done = run("serve", "--config", bench.write(), "--transport", "http", "--port", port)
    assert done.returncode == 2
    assert port in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("host", ["no.such.host.invalid", "192.0.2.1"])
def test_an_address_that_is_not_ours_is_refused(bench: Bench, host: str):
    """An address that cannot be bound to, or does not exist, is refused in words."""
    bench.skill("one", {})
    bench.settings |= {"tokens": {"alice": "alice-has-a-token"}}
    done = run("serve", "--config", bench.write(), "--transport", "http", "--host", host, "--port", "0")
    assert done.returncode == 2
    assert host in done.stderr
    assert "Traceback" not in done.stderr


def test_off_loopback_without_tokens_is_refused(bench: Bench):
    """Binding to all addresses needs tokens, and the message says so (rule 14)."""
    bench.skill("one", {})
    done = run("serve", "--config", bench.write(), "--transport", "http", "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 2
    assert "proxy.tokens" in done.stderr
    assert not done.stdout
