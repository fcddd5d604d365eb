"""How long a client waits for its handshake and first list when every server behind the proxy is broken.

    python tests/benchmarks/broken_servers.py [ROUNDS]

Times are from starting the process, in seconds, medians; the ratio is to a plain SDK server without a proxy, started
and asked in the same round. One of the servers stays silent: with a skill of it active, the first list waits for it as
long as `list_wait` says.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SILENT = "import sys; sys.stdin.read()"
DEAD = "import sys; sys.exit('no')"
PLAIN = """
import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import ListToolsResult
async def nothing(ctx, params):
    return ListToolsResult(tools=[])
async def main():
    server = Server("plain", on_list_tools=nothing)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
anyio.run(main)
"""


def ask(command: list[str]) -> tuple[float, float]:
    """Seconds from starting `command` to its answer to `initialize`, and to its first list of tools."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        info = {"name": "bench", "version": "1"}
        greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        _send(process.stdin, {"id": 1, "method": "initialize", "params": greeting})
        json.loads(process.stdout.readline())
        greeted = time.perf_counter() - begun
        _send(process.stdin, {"method": "notifications/initialized"})
        _send(process.stdin, {"id": 2, "method": "tools/list"})
        assert "tools" in json.loads(process.stdout.readline())["result"]
        return greeted, time.perf_counter() - begun
    finally:
        process.stdin.close()
        process.wait(10)


def _send(pipe: Any, message: dict[str, Any]) -> None:
    pipe.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    pipe.flush()


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    servers = {
        "missing": {"command": "no-such-binary"},
        "closed": {"url": "http://127.0.0.1:9/mcp"},
        "silent": {"command": sys.executable, "args": ["-c", SILENT]},
        "dead": {"command": sys.executable, "args": ["-c", DEAD]},
    }
    skill = {"desc": "all", "usage": "", "tool_list": {key: [] for key in servers}}
    with tempfile.TemporaryDirectory() as folder:
        for what, active in (("no skill active", False), ("a skill of all of them active", True)):
            config = Path(folder) / "skills.yaml"
            skills = {"all": {**skill, "active": active}}
            config.write_text(json.dumps({"servers": servers, "skill_configs": skills}), encoding="utf-8")
            proxy = [sys.executable, "-m", "proxy", "serve", "--config", str(config)]
            report(what, [(ask([sys.executable, "-c", PLAIN]), ask(proxy)) for _ in range(rounds)])


def report(what: str, times: list[tuple[tuple[float, float], tuple[float, float]]]) -> None:
    """Print the medians of one configuration."""
    print(f"every server broken, {what}:")
    for place, step in enumerate(("handshake", "first list")):
        plain = statistics.median(direct[place] for direct, _ in times)
        proxied = statistics.median(through[place] for _, through in times)
        print(f"  {step:10}  plain server {plain:.2f} s  proxy {proxied:.2f} s  ratio {proxied / plain:.2f}")


if __name__ == "__main__":
    main()
