"""The TypeScript SDK's client reads what the proxy makes of malformed lists; skipped where npm cannot install it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from proxy.core.definition_shape import sound
from tests.conftest import ROOT, stdio_program, write_config
from tests.transparent import strategies

CACHE = ROOT / ".npm-servers" / "client"
PACKAGE = "@modelcontextprotocol/sdk@1.32.2"
INSTALLING = 300.0
"""Seconds for npm."""
READING = 120.0
"""Seconds for the client."""

CLIENT = """
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

console.warn = () => {};
const client = new Client({ name: 'lists', version: '1' });
await client.connect(new StdioClientTransport({ ...JSON.parse(process.argv[2]), stderr: 'ignore' }));
await client.callTool({ name: 'SKILL', arguments: { action: 'activate', skill_name: 'all' } });
const read = {
  tools: (await client.listTools()).tools.length,
  resources: (await client.listResources()).resources.length,
  resourceTemplates: (await client.listResourceTemplates()).resourceTemplates.length,
  prompts: (await client.listPrompts()).prompts.length,
};
console.log(JSON.stringify(read));
await client.close();
process.exit(0);
"""
SERVER = """
import json, sys

lists = json.load(open(sys.argv[1]))
named = {
    "tools/list": "tools", "resources/list": "resources", "prompts/list": "prompts",
    "resources/templates/list": "resourceTemplates",
}
info = {"capabilities": {"tools": {}, "resources": {}, "prompts": {}}, "serverInfo": {"name": "m", "version": "1"}}
for message in map(json.loads, sys.stdin):
    if "id" in message:
        key = named.get(message["method"])
        answer = {key: lists[key]} if key else {"protocolVersion": "2025-11-25", **info}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer}), flush=True)
"""


@pytest.fixture(scope="session")
def client_script() -> Path:
    """The client, beside its package, which is installed on first use."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("npm is not on PATH, which installs this client")
    CACHE.mkdir(parents=True, exist_ok=True)
    installed = CACHE / "installed.txt"
    if not installed.is_file() or installed.read_text(encoding="utf-8") != PACKAGE:
        (CACHE / "package.json").write_text('{"private": true}', encoding="utf-8")
        command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error", PACKAGE]
        try:
            subprocess.run(command, cwd=CACHE, capture_output=True, timeout=INSTALLING, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"npm could not install this client: {error}")
        installed.write_text(PACKAGE, encoding="utf-8")
    script = CACHE / "lists.mjs"
    script.write_text(CLIENT, encoding="utf-8")
    return script


def collected() -> dict[str, list[Any]]:
    """The entries of many malformed lists, as one list of each kind."""
    lists: dict[str, list[Any]] = {"tools": [], "prompts": [], "resources": [], "resourceTemplates": []}

    @settings(
        max_examples=150,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(some=strategies.malformed_lists, schema=strategies.malformed_schemas)
    def collect(some: dict[str, list[Any]], schema: Any) -> None:
        for kind, entries in some.items():
            lists[kind] += entries
        lists["tools"].append({"name": f"schema{len(lists['tools'])}", "inputSchema": {}, "outputSchema": schema})

    collect()
    return lists


def test_the_typescript_sdk_accepts_every_list(client_script: Path, tmp_path: Path) -> None:
    lists = collected()
    kept = {
        kind: {entry[key] for entry in sound(kind, entries)[0] if isinstance(entry, dict)}
        for (kind, entries), key in zip(lists.items(), ("name", "name", "uri", "uriTemplate"), strict=True)
    }
    (tmp_path / "lists.json").write_text(json.dumps(lists), encoding="utf-8")
    entry = {"command": sys.executable, "args": ["-c", SERVER, str(tmp_path / "lists.json")], "era": "handshake"}
    config = write_config(tmp_path / "skills.yaml", {"m": entry}, {"all": {"usage": "Use.", "tool_list": {"m": []}}})
    started = stdio_program(config)
    given_to_node = {
        "command": started.command,
        "args": started.args,
        "cwd": str(started.cwd),
        "env": {**(started.env or {})},
    }
    node = ["node", str(client_script), json.dumps(given_to_node)]
    done = subprocess.run(node, capture_output=True, timeout=READING, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    read = json.loads(done.stdout)
    assert read["tools"] > len(lists["tools"]) // 10
    assert read["tools"] >= len(kept["tools"])
    for kind in ("resources", "resourceTemplates", "prompts"):
        assert read[kind] >= len(kept[kind]) > 0
