"""An upstream for tests that writes down every message it receives, over stdio or (`--http PORT`) Streamable HTTP.

It answers in both eras with parsed JSON of its own, so that unknown fields, block types and error codes go out as
they stand here. Each message becomes one JSON line `{"method", "params", "id"}` in the file given by `--log`.
"""

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CompletionsCapability,
    PromptsCapability,
    ResourcesCapability,
    ServerCapabilities,
    ToolsCapability,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

ANY = {"type": "object", "additionalProperties": True}
ODD_NAMES = ("time.get-now", "a/b", "ns:tool", "Scan file", "Größe", "SKILL", "skill", "x" * 200)
ECHOES = ("echo", "delete_repo", "list_issues", "echo_other", *ODD_NAMES)

ODD_RESULT: dict[str, Any] = {
    "content": [
        {
            "type": "text",
            "text": "plain",
            "annotations": {"audience": ["user"], "x-vendor": 1},
            "extra": {"a": [1, None]},
        },
        {"type": "hologram", "frames": [{"depth": 1.5, "big": 123456789012345678901234567890}], "none": None},
        {"type": "image", "data": "AAAA", "mimeType": "image/png", "_meta": {"vendor/k": "v"}},
    ],
    "structuredContent": {"nothing": None, "one": 1, "one_float": 1.0, "tiny": 1e-7, "deep": {"list": [[], {}, ""]}},
    "isError": False,
    "_meta": {"vendor/trace": {"id": "t-1", "none": None}},
    "x-future": {"field": [True, False, None]},
}
FIXED: dict[str, dict[str, Any]] = {
    "odd": ODD_RESULT,
    "structured": {"content": [], "structuredContent": {"sum": "not an integer"}},
    "fails": {
        "content": [{"type": "text", "text": "it failed"}],
        "isError": True,
        "structuredContent": {"why": "because"},
    },
}
"""What tools answer that always answer the same."""
ERROR_DATA: dict[str, Any] = {"reason": "custom", "nested": {"n": 1, "none": None}, "list": [1, "two"]}

TOOLS: list[dict[str, Any]] = [
    {"name": "", "description": "cannot be called", "inputSchema": ANY},
    *({"name": name, "description": f"Echoes its arguments as {name}.", "inputSchema": ANY} for name in ECHOES),
    {
        "name": "wait",
        "description": "Waits until `file` exists, or until `release` is called with the same `key`.",
        "inputSchema": {"type": "object", "properties": {"file": {"type": "string"}, "key": {"type": "string"}}},
    },
    {
        "name": "release",
        "description": "Lets the calls of `wait` with this `key` go on.",
        "inputSchema": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]},
    },
    {"name": "fails", "description": "Answers with isError.", "inputSchema": ANY},
    {"name": "explodes", "description": "Answers with a JSON-RPC error.", "inputSchema": ANY},
    {
        "name": "structured",
        "description": "Promises an output schema and does not keep it.",
        "inputSchema": ANY,
        "outputSchema": {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]},
    },
    {
        "name": "odd",
        "title": "An odd one",
        "description": "Answers with what no model knows.",
        "inputSchema": {"type": "object", "$defs": {"u": {"type": "null"}}, "properties": {"p": {"$ref": "#/$defs/u"}}},
        "annotations": {"readOnlyHint": True, "x-vendor": {"deep": None}},
        "_meta": {"vendor/tool": [1, None]},
        "x-future": {"none": None, "n": 1.0},
    },
    {"name": "count", "description": "Sends `n` progress notifications.", "inputSchema": ANY},
    {"name": "link", "description": "Hands out a link to a resource that is not listed.", "inputSchema": ANY},
    {"name": "die", "description": "Ends the process without an answer.", "inputSchema": ANY},
]
RESOURCES = [{"uri": "memo://one", "name": "one", "mimeType": "text/plain"}, {"uri": "memo://two", "name": "two"}]
TEMPLATES = [{"uriTemplate": "memo://by-day/{day}", "name": "by-day"}]
PROMPTS = [{"name": "greet", "description": "A greeting", "arguments": [{"name": "who", "required": True}]}]
LISTS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "tools/list": ("tools", TOOLS),
    "resources/list": ("resources", RESOURCES),
    "resources/templates/list": ("resourceTemplates", TEMPLATES),
    "prompts/list": ("prompts", PROMPTS),
}


def with_pages(name: str) -> list[dict[str, Any]]:
    """Tools that have pages of a user interface (MCP Apps); `refresh` is for these pages alone."""
    said = {
        "show": {"resourceUri": f"ui://{name}/show"},
        "hide": {"resourceUri": f"ui://{name}/hide"},
        "shared": {"resourceUri": "ui://shared/page"},
        "refresh": {"resourceUri": f"ui://{name}/show", "visibility": ["app"]},
    }
    return [{"name": tool, "inputSchema": ANY, "_meta": {"ui": ui, "x": 1}} for tool, ui in said.items()]


class Recorder(Server[dict[str, Any]]):
    """The server; `name` is in every echo, so that a test knows which of several recorders answered.

    `pages`: it has tools with pages, too.
    """

    def __init__(self, name: str, log: Path, *, pages: bool = False) -> None:
        super().__init__(name, version="1", instructions=f"These are the instructions of {name}.")
        self._log = log
        self._with_pages = with_pages(name) if pages else []
        self._echoes = {*ECHOES, *(tool["name"] for tool in self._with_pages)}
        self._released: dict[str, anyio.Event] = {}
        self.middleware.append(self._answer)

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> ServerCapabilities:
        return ServerCapabilities(
            tools=ToolsCapability(),
            resources=ResourcesCapability(),
            prompts=PromptsCapability(),
            completions=CompletionsCapability(),
        )

    async def _answer(self, ctx: ServerRequestContext[dict[str, Any], Any], call_next: CallNext) -> HandlerResult:
        self._write({"method": ctx.method, "params": ctx.params, "id": ctx.request_id})
        params = ctx.params or {}
        if ctx.method in LISTS:
            key, listed = LISTS[ctx.method]
            return self._result(ctx, {key: listed + self._with_pages if key == "tools" else listed})
        if ctx.method == "tools/call":
            return self._result(ctx, await self._call(ctx, params["name"], params.get("arguments") or {}, params))
        if ctx.method == "resources/read":
            uri = params["uri"]
            return self._result(ctx, {"contents": [{"uri": uri, "text": f"{self.name} {uri}", "x-extra": None}]})
        if ctx.method == "prompts/get":
            text = f"{self.name} {params['name']} {params.get('arguments')}"
            return self._result(ctx, {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
        if ctx.method == "completion/complete":
            return self._result(ctx, {"completion": {"values": [self.name]}})
        return await call_next(ctx)

    async def _call(
        self,
        ctx: ServerRequestContext[dict[str, Any], Any],
        tool: str,
        arguments: Mapping[str, Any],
        params: Mapping[str, Any],
    ) -> dict[str, Any]:
        if tool in self._echoes:
            echoed = {"server": self.name, "tool": tool, "arguments": arguments, "_meta": params.get("_meta")}
            return {**_text(json.dumps(echoed)), "structuredContent": echoed}
        if tool == "wait":
            await self._wait(arguments)
            return _text(f"waited for {json.dumps(arguments)}")
        if tool == "release":
            self._gate(arguments["key"]).set()
            return _text("released")
        if tool in FIXED:
            return FIXED[tool]
        if tool == "explodes":
            raise MCPError(-32042, "exploded on purpose", ERROR_DATA)
        if tool == "count":
            for step in range(int(arguments["n"])):
                await ctx.session.report_progress(step + 1, arguments["n"], f"step {step + 1}")
            return _text("counted")
        if tool == "link":
            return {"content": [{"type": "resource_link", "uri": arguments["uri"], "name": "handed out"}]}
        if tool == "die":
            os._exit(3)
        raise MCPError(-32602, f"the recorder has no tool {tool!r}")

    async def _wait(self, arguments: Mapping[str, Any]) -> None:
        if (file := arguments.get("file")) is not None:
            await _exists(Path(file))
        else:
            await self._gate(arguments["key"]).wait()

    def _gate(self, key: str) -> anyio.Event:
        return self._released.setdefault(key, anyio.Event())

    def _result(self, ctx: ServerRequestContext[dict[str, Any], Any], result: dict[str, Any]) -> dict[str, Any]:
        if ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
            return result
        return {"resultType": "complete", **result}

    def _write(self, entry: dict[str, Any]) -> None:
        with self._log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(entry, ensure_ascii=False, default=str) + "\n")


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


async def _exists(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110, ASYNC240 - another process makes the file
        await anyio.sleep(0.01)


async def _stdio(server: Recorder) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path, required=True, help="where every message is written down")
    parser.add_argument("--name", default="recorder")
    parser.add_argument("--pages", action="store_true", help="have tools with pages of a user interface")
    parser.add_argument("--until", type=Path, help="do nothing before this file exists")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve http://127.0.0.1:PORT/mcp instead of stdio")
    arguments = parser.parse_args()
    if arguments.until is not None:
        anyio.run(_exists, arguments.until)
    server = Recorder(arguments.name, arguments.log, pages=arguments.pages)
    if arguments.http is None:
        anyio.run(_stdio, server)
    else:
        import uvicorn  # noqa: PLC0415 - not needed over stdio, where it would only cost time

        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=arguments.http, log_level="warning")


if __name__ == "__main__":
    main()
