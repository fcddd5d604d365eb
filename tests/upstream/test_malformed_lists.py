"""What a server lists that clients could not be given: it costs nobody anything but itself."""

import json
import sys
from typing import Any

import pytest
import structlog
from mcp import MCPError
from mcp_types import INVALID_PARAMS, CallToolRequest, CallToolRequestParams, CallToolResult, TaskMetadata

from tests.upstream.bench import Bench, text

pytestmark = pytest.mark.anyio

SERVER = """
import json, sys

results = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}, "resources": {}, "prompts": {}},
        "serverInfo": {"name": "m", "version": "1"},
    },
    "tools/call": {"content": [{"type": "text", "text": "called"}]},
    **json.loads(sys.argv[1]),
}
for message in map(json.loads, sys.stdin):
    if "id" in message:
        if message["method"] == "tools/call":
            results["tools/call"]["structuredContent"] = message["params"]
        answer = {"result": results[message["method"]]} if message["method"] in results else {
            "error": {"code": -32601, "message": "no such method"}
        }
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
OBJECT = {"type": "object"}
TOOLS = {
    "tools": [
        {"name": "good", "inputSchema": OBJECT},
        {"name": "null", "inputSchema": None},
        {"name": "described", "inputSchema": OBJECT, "description": 5},
        {"name": "text", "inputSchema": {"type": "string"}},
        {"name": "task", "inputSchema": OBJECT, "execution": {"taskSupport": "required"}},
        {"name": "maybe", "inputSchema": OBJECT, "execution": {"taskSupport": "optional"}},
        5,
    ]
}


def serve(bench: Bench, **results: Any) -> None:
    named = {"tools": "tools/list", "resources": "resources/list", "prompts": "prompts/list"}
    answers = {named[key]: result for key, result in results.items()}
    bench.servers["m"] = {
        "command": sys.executable,
        "args": ["-c", SERVER, json.dumps(answers)],
        "era": "handshake",
    }


async def test_malformed_tools_cost_no_other_tool(bench: Bench):
    """Those that can be mended can be called, also by SKILL_CALL; the others are named in the log, once."""
    serve(bench, tools=TOOLS)
    bench.skill("one", {"m": []})
    with structlog.testing.capture_logs() as logged:
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            assert await proxy.tools() == ["SKILL", "SKILL_CALL", "m__described", "m__good", "m__maybe", "m__null"]
            assert text(await proxy.call("m__null")) == "called"
    (told,) = [event for event in logged if event["event"] == "server.list_malformed"]
    assert (told["server"], told["list"]) == ("m", "tools")
    assert told["faults"] == [
        'tool null: inputSchema: there is none: taken as {"type": "object"}',
        "tool described: description is left out: it must be text",
        "tool text is left out: inputSchema must have the type object",
        "tool task is left out: it can be run as a task only (execution.taskSupport), which is not supported",
        "tool number 7 is left out: must be an object",
    ]


@pytest.mark.parametrize("page", [{"tools": None}, {"tools": {}}, {}, {"tools": [], "nextCursor": 5}])
async def test_a_malformed_page_is_told(bench: Bench, page: Any):
    serve(bench, tools=page)
    bench.skill("one", {"m": []})
    with structlog.testing.capture_logs() as logged:
        async with bench.proxy() as proxy:
            await proxy.activate("one")
            assert await proxy.tools() == ["SKILL", "SKILL_CALL"]
    (told,) = [event for event in logged if event["event"] == "server.list_malformed"]
    assert len(told["faults"]) == 1


async def test_a_call_as_a_task_is_run_as_any_other(bench: Bench):
    """Nobody has declared tasks: the server hears nothing of them (2025-11-25, basic/utilities/tasks)."""
    serve(bench, tools=TOOLS)
    bench.skill("one", {"m": []})
    async with bench.proxy(mode="legacy") as proxy:
        await proxy.activate("one")
        params = CallToolRequestParams(name="m__maybe", arguments={"a": 1}, task=TaskMetadata(ttl=1))
        result = await proxy.client.session.send_request(CallToolRequest(params=params), CallToolResult)
    assert result.structured_content is not None
    assert {**result.structured_content, "_meta": None} == {"name": "maybe", "arguments": {"a": 1}, "_meta": None}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("cursor", ["abc", "", "50"])
async def test_a_cursor_that_was_never_given_is_refused(bench: Bench, mode: str, cursor: str):
    serve(bench, tools=TOOLS)
    bench.skill("one", {"m": []})
    async with bench.proxy(mode=mode) as proxy:
        client = proxy.client
        lists = (client.list_tools, client.list_resources, client.list_resource_templates, client.list_prompts)
        for listed in lists:
            with pytest.raises(MCPError, match=f"The cursor '{cursor}' is unknown") as refused:
                await listed(cursor=cursor)
            assert refused.value.code == INVALID_PARAMS
            await listed()


async def test_names_that_a_server_does_not_offer_are_told(bench: Bench):
    """The activation says what is not granted, with the nearest name; the log says it once."""
    serve(bench, tools={"tools": [{"name": "echo", "inputSchema": OBJECT}]})
    bench.skill("one", {"m": ["Echo", "gone_tool", "x*", "echo"]})
    with structlog.testing.capture_logs() as logged:
        async with bench.proxy() as proxy:
            answer = text(await proxy.activate("one"))
            assert "Not offered by its server: Echo, gone_tool, x*." in answer
            await proxy.call("SKILL", action="offload", skill_name="one")
            await proxy.activate("one")
    (told,) = [event for event in logged if event["event"] == "names.not_offered"]
    assert told["skill"] == "one"
    assert told["problems"] == [
        "server m offers no tool Echo; the nearest is echo",
        "server m offers no tool gone_tool",
        "server m: the pattern x* matches no tool",
    ]
