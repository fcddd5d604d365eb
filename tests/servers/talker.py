"""An upstream that speaks of its own accord: it asks, reports progress, logs, changes its lists and updates resources.

It answers in both eras with parsed JSON of its own, over stdio, Streamable HTTP or the older HTTP+SSE. Each message
becomes one JSON line in the file given by `--log`: `{"method", "params", "id", "era", "connection"}`; so do what became
of requests (`done`, `gone` when it was cancelled), questions that were refused (`refused`) and the end of a session
(`DELETE`). What it says, and when, is in the arguments of its tools.
"""

import argparse
import json
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import anyio
from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.sse import SseServerTransport
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    INVALID_PARAMS,
    LOG_LEVEL_META_KEY,
    METHOD_NOT_FOUND,
    URL_ELICITATION_REQUIRED,
    CompletionsCapability,
    LoggingCapability,
    PromptsCapability,
    ResourcesCapability,
    ServerCapabilities,
    ServerNotification,
    ServerRequest,
    ToolsCapability,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import BaseModel, RootModel
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

Json: TypeAlias = dict[str, Any]
Context: TypeAlias = ServerRequestContext[Any, Any]
Answer: TypeAlias = Callable[[Context, Json], Awaitable[Json]]
"""The answer to a request with these parameters."""
Deed: TypeAlias = Callable[[Context, Json, Json], Awaitable[Json | None]]
"""What a tool does with its arguments and the request's parameters; its result where it is not just said."""

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
EVENTS = {"tools": ToolsListChanged(), "resources": ResourcesListChanged(), "prompts": PromptsListChanged()}
TOOLS = (
    "echo",
    "ask",
    "ask_apart",
    "wait",
    "release",
    "progress",
    "log",
    "change",
    "update",
    "demand",
    "elicited",
    "old",
)
RESOURCES = ("memo://one", "memo://two")
PROMPTS = ("greet", "wait", "ask")
QUESTION = {
    "method": "elicitation/create",
    "params": {"message": "Which?", "requestedSchema": {"type": "object", "properties": {"by": {"type": "string"}}}},
}
"""What the prompt `ask`, and the resource `memo://ask/...`, want to know."""
EXTRAS = {"ttlMs": 60_000, "cacheScope": "public"}
"""What a modern server says of its lists and contents to its own client."""


class _Message(BaseModel):
    """A request or notification as it stands."""

    name: str
    params: Json

    @property
    def method(self) -> str:
        """None that the SDK has a model for."""
        return ""

    def model_dump(self, **_options: Any) -> Json:
        return {"method": self.name, "params": self.params}


class _Answer(RootModel[dict[str, Any]]):
    """Any JSON object."""


class Talker(Server[Any]):
    """The server. `without`: capabilities that it lacks. `quiet`: it sends `list_changed` without declaring it."""

    def __init__(self, name: str, log: Path, without: frozenset[str], *, quiet: bool) -> None:
        self._bus = InMemorySubscriptionBus()
        super().__init__(name, version="1", on_subscriptions_listen=ListenHandler(self._bus))
        self._log = log
        self._without = without
        self._quiet = quiet
        self._gates: dict[str, anyio.Event] = {}
        self._levels: dict[str, str] = {}
        self._lists = {"tools": list(TOOLS), "resources": list(RESOURCES), "prompts": list(PROMPTS)}
        self._answers: dict[str, Answer] = {
            "tools/list": self._list_tools,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "prompts/list": self._list_prompts,
            "tools/call": self._call,
            "resources/read": self._read,
            "prompts/get": self._prompt,
            "resources/subscribe": self._agree,
            "resources/unsubscribe": self._agree,
            "completion/complete": self._refuse if "completions" in without else self._complete,
            "logging/setLevel": self._refuse if "logging" in without else self._set_level,
        }
        self._deeds: dict[str, Deed] = {
            "ask": self._ask_rounds,
            "ask_apart": self._ask_apart,
            "wait": self._wait,
            "release": self._release,
            "progress": self._progress,
            "log": self._log_notes,
            "change": self._change,
            "update": self._update,
            "demand": self._demand,
            "elicited": self._elicited,
        }
        self.middleware.append(self._answer)

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> ServerCapabilities:
        changes = not self._quiet
        every = ServerCapabilities(
            tools=ToolsCapability(list_changed=changes),
            resources=ResourcesCapability(list_changed=changes, subscribe=True),
            prompts=PromptsCapability(list_changed=changes),
            completions=CompletionsCapability(),
            logging=LoggingCapability(),
        )
        return every.model_copy(update=dict.fromkeys(self._without))

    async def _answer(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        entry = {"era": "handshake" if _handshake(ctx) else "modern", "connection": _connection(ctx)}
        self.note({"method": ctx.method, "params": ctx.params, "id": ctx.request_id, **entry})
        try:
            if ctx.method not in self._answers:
                return await call_next(ctx)
            result = await self._answers[ctx.method](ctx, dict(ctx.params or {}))
        except anyio.get_cancelled_exc_class():
            self.note({"method": "gone", "id": ctx.request_id, **entry})
            raise
        if _handshake(ctx):
            return result
        stamp = {"_meta": {"io.modelcontextprotocol/serverInfo": {"name": self.name, "version": "1"}}}
        return {"resultType": "complete", **EXTRAS, **stamp, **result}

    # --- tools, resources, prompts ---

    async def _list_tools(self, ctx: Context, params: Json) -> Json:
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in self._lists["tools"]]}

    async def _list_resources(self, ctx: Context, params: Json) -> Json:
        return {"resources": [{"uri": uri, "name": uri} for uri in self._lists["resources"]]}

    async def _list_templates(self, ctx: Context, params: Json) -> Json:
        return {"resourceTemplates": [{"uriTemplate": "memo://{kind}/{key}", "name": "by-key"}]}

    async def _list_prompts(self, ctx: Context, params: Json) -> Json:
        return {"prompts": [{"name": name} for name in self._lists["prompts"]]}

    async def _call(self, ctx: Context, params: Json) -> Json:
        tool, arguments = params["name"], params.get("arguments") or {}
        if tool not in self._lists["tools"]:
            raise MCPError(INVALID_PARAMS, f"Unknown tool: {tool}")
        said = {"server": self.name, "tool": tool, "arguments": arguments, "connection": _connection(ctx)}
        result = await self._deeds[tool](ctx, arguments, params) if tool in self._deeds else None
        self.note({"method": "done", "params": params, "id": ctx.request_id})
        return _said(said) if result is None else result

    async def _read(self, ctx: Context, params: Json) -> Json:
        uri: str = params["uri"]
        kind, _, key = uri.removeprefix("memo://").partition("/")
        text = "read"
        if kind == "wait":
            await self._gate(key).wait()
        if kind == "ask":
            asked = await self._ask(ctx, [{"which": QUESTION}], params)
            if asked.get("resultType") == "input_required":
                return asked
            text = json.dumps(asked["structuredContent"])
        return {"contents": [{"uri": uri, "text": f"{self.name} {text}"}]}

    async def _prompt(self, ctx: Context, params: Json) -> Json:
        text = "got"
        if params["name"] == "wait":
            await self._gate(params["arguments"]["key"]).wait()
        if params["name"] == "ask":
            asked = await self._ask(ctx, [{"which": QUESTION}], params)
            if asked.get("resultType") == "input_required":
                return asked
            text = json.dumps(asked["structuredContent"])
        return {"messages": [{"role": "user", "content": {"type": "text", "text": f"{self.name} {text}"}}]}

    async def _complete(self, ctx: Context, params: Json) -> Json:
        ref = params["ref"]
        return {"completion": {"values": [self.name, ref.get("name", ref.get("uri")), params["argument"]["value"]]}}

    async def _set_level(self, ctx: Context, params: Json) -> Json:
        self._levels[_connection(ctx)] = params["level"]
        return {}

    async def _agree(self, ctx: Context, params: Json) -> Json:
        return {}

    async def _refuse(self, ctx: Context, params: Json) -> Json:
        raise MCPError(METHOD_NOT_FOUND, "Method not found")

    # --- what tools do ---

    async def _ask_rounds(self, ctx: Context, arguments: Json, params: Json) -> Json:
        """Ask rounds of questions, then wait for the gate `wait`, if any."""
        result = await self._ask(ctx, arguments["rounds"], params)
        if "wait" in arguments and "structuredContent" in result:
            await self._gate(arguments["wait"]).wait()
        return result

    async def _ask_apart(self, ctx: Context, arguments: Json, params: Json) -> Json:
        """Ask on the stream of the whole connection, as if no call had caused it."""
        return _said({"answers": [await self._put(ctx, question, related=False) for question in arguments["rounds"]]})

    async def _wait(self, ctx: Context, arguments: Json, params: Json) -> None:
        await self._gate(arguments["key"]).wait()

    async def _release(self, ctx: Context, arguments: Json, params: Json) -> None:
        self._gate(arguments["key"]).set()

    async def _progress(self, ctx: Context, arguments: Json, params: Json) -> None:
        """Report progress where it was asked for, then wait for the gate `wait`, if any."""
        token = (params.get("_meta") or {}).get("progressToken")
        for note in arguments["notes"]:
            if token is not None:
                await self._tell(ctx, "notifications/progress", {"progressToken": token, **note})
        if "wait" in arguments:
            await self._gate(arguments["wait"]).wait()

    async def _log_notes(self, ctx: Context, arguments: Json, params: Json) -> None:
        for note in arguments["notes"]:
            if self._wants(ctx, note["level"], params):
                await self._tell(ctx, "notifications/message", note)

    async def _demand(self, ctx: Context, arguments: Json, params: Json) -> None:
        raise MCPError(URL_ELICITATION_REQUIRED, "Open it first", {"elicitations": arguments["elicitations"]})

    async def _elicited(self, ctx: Context, arguments: Json, params: Json) -> None:
        await self._tell(ctx, "notifications/elicitation/complete", {"elicitationId": arguments["id"]})

    async def _change(self, ctx: Context, arguments: Json, params: Json) -> None:
        """Change a list, with so many notices."""
        kind = arguments.get("kind", "tools")
        kept = [name for name in self._lists[kind] if name not in arguments.get("remove", ())]
        self._lists[kind] = kept + [name for name in arguments.get("add", ()) if name not in kept]
        for _ in range(arguments.get("notices", 1)):
            if _handshake(ctx):
                await self._tell(ctx, f"notifications/{kind}/list_changed", {}, related=False)
            else:
                await self._bus.publish(EVENTS[kind])

    async def _update(self, ctx: Context, arguments: Json, params: Json) -> None:
        """Say that a resource was updated, whoever has subscribed to it."""
        if _handshake(ctx):
            await self._tell(ctx, "notifications/resources/updated", {"uri": arguments["uri"]}, related=False)
        else:
            await self._bus.publish(ResourceUpdated(uri=arguments["uri"]))

    # --- what it says of its own accord ---

    async def _ask(self, ctx: Context, rounds: list[Json], params: Mapping[str, Any]) -> Json:
        """Put rounds of questions, each `key: question`; the answers, or what is missing of them in the modern era."""
        if _handshake(ctx):
            return _said({"answers": [{key: await self._put(ctx, one[key]) for key in one} for one in rounds]})
        answers: list[Any] = []
        if "requestState" in params:
            answers = [*json.loads(params["requestState"]), params.get("inputResponses")]
        if len(answers) == len(rounds):
            return _said({"answers": answers})
        state = json.dumps(answers)
        return {"resultType": "input_required", "inputRequests": rounds[len(answers)], "requestState": state}

    async def _put(self, ctx: Context, question: Json, *, related: bool = True) -> Json:
        """One question in a request of its own: the answer, or the error as `{"error": ...}`."""
        request = cast("ServerRequest", _Message(name=question["method"], params=question["params"]))
        where = ServerMessageMetadata(related_request_id=ctx.request_id) if related else None
        try:
            return (await ctx.session.send_request(request, _Answer, metadata=where)).root
        except MCPError as error:
            refused = error.error
            self.note({"method": "refused", "params": question, "id": ctx.request_id, "code": refused.code})
            return {"error": {"code": refused.code, "message": refused.message, "data": refused.data}}

    async def _tell(self, ctx: Context, method: str, params: Json, *, related: bool = True) -> None:
        message = cast("ServerNotification", _Message(name=method, params=params))
        await ctx.session.send_notification(message, related_request_id=ctx.request_id if related else None)

    def _wants(self, ctx: Context, level: str, params: Mapping[str, Any]) -> bool:
        wanted = self._levels.get(_connection(ctx), "debug")
        if not _handshake(ctx):
            wanted = (params.get("_meta") or {}).get(LOG_LEVEL_META_KEY)
        return wanted is not None and LEVELS.index(level) >= LEVELS.index(wanted)

    def _gate(self, key: str) -> anyio.Event:
        return self._gates.setdefault(key, anyio.Event())

    def note(self, entry: Json) -> None:
        with self._log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(entry, ensure_ascii=False, default=str) + "\n")


def _said(content: Json) -> Json:
    return {"content": [{"type": "text", "text": json.dumps(content)}], "structuredContent": content}


def _handshake(ctx: Context) -> bool:
    return ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS


def _connection(ctx: Context) -> str:
    """The session over HTTP where there is one; else the process."""
    request: Request | None = ctx.request
    given = {} if request is None else {**request.query_params, **request.headers}
    return given.get("mcp-session-id") or given.get("session_id") or str(os.getpid())


# --- transports ------------------------------------------------------------------------------------------------------


async def serve_stdio(server: Talker) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def sse_app(server: Talker) -> Starlette:
    """The server over HTTP+SSE (2024-11-05) at `/sse`."""
    transport = SseServerTransport("/messages/")

    async def connect(request: Request) -> Response:
        async with transport.connect_sse(request.scope, request.receive, request._send) as (read, write):
            await server.run(read, write, server.create_initialization_options())
        return Response()

    return Starlette(routes=[Route("/sse", endpoint=connect), Mount("/messages/", app=transport.handle_post_message)])


def serve_http(server: Talker, transport: str, port_file: Path) -> None:
    """Serve on a free port of the loopback address, which is written into `port_file`."""
    import uvicorn  # noqa: PLC0415 - not needed over stdio, where it would only cost time

    stateless = transport == "stateless"
    app = sse_app(server) if transport == "sse" else server.streamable_http_app(stateless_http=stateless)

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") == "DELETE":
            server.note({"method": "DELETE", "connection": Headers(scope=scope).get("mcp-session-id")})
        await app(scope, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as bound:
        part = port_file.with_suffix(".part")
        part.write_text(str(bound.getsockname()[1]), encoding="utf-8")
        part.rename(port_file)  # a connection waits in the socket until uvicorn is up
        config = uvicorn.Config(noting, log_level="error", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[bound])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path, required=True, help="where every message is written down")
    parser.add_argument("--name", default="talker")
    parser.add_argument("--without", default="", help="capabilities that it lacks, with commas between")
    parser.add_argument(
        "--quiet", action="store_true", help="declare no listChanged, and send the notices all the same"
    )
    parser.add_argument("--transport", choices=["stdio", "http", "stateless", "sse"], default="stdio")
    parser.add_argument("--port-file", type=Path)
    options = parser.parse_args()
    without = frozenset(filter(None, options.without.split(",")))
    server = Talker(options.name, options.log, without, quiet=options.quiet)
    if options.transport == "stdio":
        anyio.run(serve_stdio, server)
    else:
        serve_http(server, options.transport, options.port_file)


if __name__ == "__main__":
    main()
