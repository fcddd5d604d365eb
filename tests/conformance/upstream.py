"""An upstream with everything that the MCP conformance suite asks of a server, over stdio or Streamable HTTP.

One table of questions serves both eras: what a tool wants of the client goes out as a request of its own in the
handshake era, and as `inputRequests` of an interim result in the modern one. `--era` forces the server to one era.
"""

import argparse
import json
import socket
import sys
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypeVar, get_args

import anyio
import uvicorn
from mcp import MCPError
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    CallToolRequestParams,
    CompleteRequestParams,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitRequest,
    ElicitResult,
    GetPromptRequestParams,
    InputResponseRequestParams,
    JSONRPCMessage,
    ListRootsRequest,
    ListRootsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    RequestParams,
    SetLevelRequestParams,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

Json: TypeAlias = dict[str, Any]
Context: TypeAlias = ServerRequestContext[Any, Any]
Questions: TypeAlias = Mapping[str, Json]
Params = TypeVar("Params", bound=RequestParams)

NAME = "conformance-upstream"
PATIENCE = 30.0
"""Seconds that a client gets for its answer."""
STEP = 0.05
"""Seconds between the messages of a tool that sends several."""
RESOURCE_NOT_FOUND = -32002
"""The error code of the handshake era; the modern one has "invalid parameters" for it."""
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

# --- what is asked of the client -------------------------------------------------------------------------------------

ASKING: dict[str, tuple[str, Any, Any]] = {
    "elicitation/create": ("elicitation", ElicitRequest, ElicitResult),
    "sampling/createMessage": ("sampling", CreateMessageRequest, CreateMessageResult),
    "roots/list": ("roots", ListRootsRequest, ListRootsResult),
}
"""For each method the capability it needs, its request and its result."""


def elicit(message: str, /, **properties: Json) -> Json:
    """A form to fill in."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sample(prompt: str) -> Json:
    """A message to complete."""
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 100}}


STRING = {"type": "string"}
ROOTS = {"method": "roots/list", "params": {}}
NAME_QUESTION = elicit("What is your name?", name=STRING)
CONFIRMATION = elicit("Please confirm", ok={"type": "boolean"})
DEFAULTS = elicit(
    "Please check these",
    name={"type": "string", "default": "John Doe"},
    age={"type": "integer", "default": 30},
    score={"type": "number", "default": 95.5},
    status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    verified={"type": "boolean", "default": True},
)
OPTIONS = ["option1", "option2", "option3"]
TITLED = [{"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"}]
CHOICES = elicit(
    "Please choose",
    untitledSingle={"type": "string", "enum": OPTIONS},
    titledSingle={"type": "string", "oneOf": TITLED},
    legacyEnum={"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option one", "Option two"]},
    untitledMulti={"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    titledMulti={"type": "array", "items": {"anyOf": TITLED}},
)

TOOL_QUESTIONS: dict[str, Callable[[Json], list[Questions]]] = {
    "test_sampling": lambda arguments: [{"reply": sample(arguments.get("prompt", ""))}],
    "test_elicitation": lambda arguments: [
        {"user": elicit(arguments.get("message", ""), username=STRING, email=STRING)}
    ],
    "test_elicitation_sep1034_defaults": lambda _: [{"user": DEFAULTS}],
    "test_elicitation_sep1330_enums": lambda _: [{"user": CHOICES}],
    "test_streaming_elicitation": lambda _: [{"user_name": NAME_QUESTION}],
    "test_missing_capability": lambda _: [{"reply": sample("Anything")}],
    "test_input_required_result_elicitation": lambda _: [{"user_name": NAME_QUESTION}],
    "test_input_required_result_sampling": lambda _: [{"capital_question": sample("What is the capital of France?")}],
    "test_input_required_result_list_roots": lambda _: [{"client_roots": ROOTS}],
    "test_input_required_result_request_state": lambda _: [{"confirm": CONFIRMATION}],
    "test_input_required_result_tampered_state": lambda _: [{"confirm": CONFIRMATION}],
    "test_input_required_result_capabilities": lambda _: [{"user_name": NAME_QUESTION, "reply": sample("Anything")}],
    "test_input_required_result_multiple_inputs": lambda _: [
        {"user_name": NAME_QUESTION, "greeting": sample("Generate a greeting"), "client_roots": ROOTS}
    ],
    "test_input_required_result_multi_round": lambda _: [
        {"step1": elicit("Step 1: What is your name?", name=STRING)},
        {"step2": elicit("Step 2: What is your favorite color?", color=STRING)},
    ],
}
"""Of each tool that asks, its rounds of questions."""
PROMPT_QUESTIONS: list[Questions] = [
    {"user_context": elicit("What context should the prompt use?", context=STRING)},
]

# --- content ---------------------------------------------------------------------------------------------------------

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC"
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA=="
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}


def text(words: str) -> Json:
    """A block of text."""
    return {"type": "text", "text": words}


def embedded(uri: str, mime_type: str, words: str) -> Json:
    """A resource as a block."""
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": words}}


FIXED: dict[str, list[Json]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    "test_embedded_resource": [
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        IMAGE,
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
    "test_error_handling": [text("This tool intentionally returns an error for testing")],
    "test_custom_header": [text("The headers were right.")],
    "json_schema_2020_12_tool": [text("The arguments were not looked at.")],
}
"""What tools answer that always answer the same."""

SCHEMAS: dict[str, Json] = {
    "test_sampling": {"type": "object", "properties": {"prompt": STRING}, "required": ["prompt"]},
    "test_elicitation": {"type": "object", "properties": {"message": STRING}, "required": ["message"]},
    "test_custom_header": {"type": "object", "properties": {"region": {**STRING, "x-mcp-header": "Region"}}},
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {"$anchor": "addressDef", "type": "object", "properties": {"street": STRING, "city": STRING}}
        },
        "properties": {
            "name": STRING,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": STRING,
            "email": STRING,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}
"""The schemas of tools that take arguments."""

RESOURCES: dict[str, Json] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Can be subscribed to, and never changes."},
}
TEMPLATE_START, TEMPLATE_END = "test://template/", "/data"

PROMPTS: dict[str, tuple[list[str], Callable[[Json], list[Json]]]] = {
    "test_simple_prompt": ([], lambda _: [text("This is a simple prompt for testing.")]),
    "test_prompt_with_arguments": (
        ["arg1", "arg2"],
        lambda given: [text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")],
    ),
    "test_prompt_with_embedded_resource": (
        ["resourceUri"],
        lambda given: [
            embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
    ),
    "test_prompt_with_image": ([], lambda _: [IMAGE, text("Please analyze the image above.")]),
    "test_input_required_result_prompt": ([], lambda given: [text(f"The context is {json.dumps(given)}.")]),
    "test_changing_prompt": ([], lambda _: [text("This prompt comes and goes.")]),
}
"""For each prompt its required arguments and the content of its messages."""

# --- the server ------------------------------------------------------------------------------------------------------


class Upstream(Server[Any]):
    """The server; `eras` are the protocol versions that it speaks."""

    def __init__(self, eras: tuple[str, ...]) -> None:
        super().__init__(NAME, version="1", cache_hints={method: CacheHint() for method in get_args(CacheableMethod)})
        self._eras = eras
        self._bus = InMemorySubscriptionBus()
        self._levels: dict[str | None, str] = {}
        self._hidden = {"test_changing_tool", "test_changing_prompt"}
        self._deeds: dict[str, Callable[[Context], Awaitable[None]]] = {
            "test_tool_with_logging": self._log_thrice,
            "test_logging_tool": self._log_thrice,
            "test_tool_with_progress": self._progress_thrice,
            "test_reconnection": self._reconnect,
            "test_trigger_tool_change": self._change_tools,
            "test_trigger_prompt_change": self._change_prompts,
            "test_changing_tool": self._do_nothing,
        }
        self.middleware.append(self._refuse_other_era)
        self.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME))
        self._answer("tools/list", PaginatedRequestParams, self._list_tools)
        self._answer("tools/call", CallToolRequestParams, self._call_tool)
        self._answer("resources/list", PaginatedRequestParams, self._list_resources)
        self._answer("resources/templates/list", PaginatedRequestParams, self._list_templates)
        self._answer("resources/read", ReadResourceRequestParams, self._read_resource)
        self._answer("resources/subscribe", SubscribeRequestParams, self._agree)
        self._answer("resources/unsubscribe", UnsubscribeRequestParams, self._agree)
        self._answer("prompts/list", PaginatedRequestParams, self._list_prompts)
        self._answer("prompts/get", GetPromptRequestParams, self._get_prompt)
        self._answer("completion/complete", CompleteRequestParams, self._complete)
        self._answer("logging/setLevel", SetLevelRequestParams, self._set_level)
        self.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, ListenHandler(self._bus))

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """As the SDK's, with the notices that are sent advertised."""
        changing = notification_options or NotificationOptions(prompts_changed=True, tools_changed=True)
        return super().create_initialization_options(changing, experimental_capabilities, extensions)

    def _answer(
        self, method: str, params_type: type[Params], handler: Callable[[Context, Params], Awaitable[Json]]
    ) -> None:
        """Answer requests with what `handler` gives; in the modern era it is complete unless it says otherwise."""

        async def handle(ctx: Context, params: Params) -> Json:
            modern = {"resultType": "complete"} if _is_modern(ctx) else {}
            return {**modern, **await handler(ctx, params)}

        self.add_request_handler(method, params_type, handle)

    async def _refuse_other_era(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None or ctx.protocol_version in self._eras:
            return await call_next(ctx)
        requested = (ctx.params or {}).get("protocolVersion", ctx.protocol_version)
        data = {"supported": list(self._eras), "requested": requested}
        raise MCPError(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)

    async def _agree(self, ctx: Context, params: Any) -> Json:
        return {}

    # --- questions ---

    async def _once_answered(
        self,
        ctx: Context,
        params: InputResponseRequestParams,
        rounds: list[Questions],
        finish: Callable[[Json], Json],
    ) -> Json:
        """What `finish` makes of the client's answers, or the request for those that are missing."""
        answers: Json = json.loads(params.request_state or "{}")
        for key, given in (params.input_responses or {}).items():
            if any(key in questions for questions in rounds):
                answers[key] = _plain(given)
        for questions in rounds:
            missing = {key: question for key, question in _allowed(ctx, questions).items() if key not in answers}
            if missing and _is_modern(ctx):
                state = json.dumps(answers)
                return {"resultType": "input_required", "inputRequests": missing, "requestState": state}
            answers |= await self._ask(ctx, missing)
        return finish(answers)

    async def _ask(self, ctx: Context, questions: Questions) -> Json:
        """The client's answers; what it refuses is left out, unless it refuses all."""
        answers: Json = {}
        refused: list[MCPError] = []
        for key, question in questions.items():
            _, request, result = ASKING[question["method"]]
            related = ServerMessageMetadata(related_request_id=ctx.request_id)
            asked = request.model_validate(question)
            try:
                answers[key] = _plain(await ctx.session.send_request(asked, result, PATIENCE, related))
            except MCPError as error:
                refused.append(error)
        if refused and not answers:
            raise refused[0]
        return answers

    # --- tools ---

    async def _list_tools(self, ctx: Context, params: PaginatedRequestParams) -> Json:
        names = [name for name in (*FIXED, *TOOL_QUESTIONS, *self._deeds) if name not in self._hidden]
        return {
            "tools": [
                {
                    "name": name,
                    "description": name.replace("_", " ").capitalize(),
                    "inputSchema": SCHEMAS.get(name, {"type": "object"}),
                }
                for name in names
            ]
        }

    async def _call_tool(self, ctx: Context, params: CallToolRequestParams) -> Json:
        name, arguments = params.name, params.arguments or {}
        if name in FIXED:
            return {"content": FIXED[name], "isError": name == "test_error_handling"}
        if name in TOOL_QUESTIONS:
            return await self._once_answered(
                ctx,
                params,
                TOOL_QUESTIONS[name](arguments),
                lambda answers: {"content": [text(f"The answers (state-ok): {json.dumps(answers)}")]},
            )
        if name in self._deeds and name not in self._hidden:
            await self._deeds[name](ctx)
            return {"content": [text("Done.")]}
        raise MCPError(INVALID_PARAMS, f"Unknown tool: {name}")

    async def _do_nothing(self, ctx: Context) -> None:
        pass

    async def _log(self, ctx: Context, words: str) -> None:
        if LEVELS.index("info") >= LEVELS.index(self._levels.get(_session(ctx), "debug")):
            await ctx.session.send_log_message("info", words, NAME, ctx.request_id)

    async def _log_thrice(self, ctx: Context) -> None:
        await self._log(ctx, "Tool execution started")
        await anyio.sleep(STEP)
        await self._log(ctx, "Tool processing data")
        await anyio.sleep(STEP)
        await self._log(ctx, "Tool execution completed")

    async def _progress_thrice(self, ctx: Context) -> None:
        for progress in (0, 50, 100):
            await ctx.session.report_progress(progress, 100, f"Completed step {progress} of 100")
            await anyio.sleep(STEP)

    async def _reconnect(self, ctx: Context) -> None:
        """Close the stream of the call, where there is one: the client fetches the result on another."""
        await self._log(ctx, "Before the stream is closed")
        if ctx.close_sse_stream is not None:
            await ctx.close_sse_stream()
        await anyio.sleep(4 * STEP)
        await self._log(ctx, "After the stream was closed")

    async def _change_tools(self, ctx: Context) -> None:
        self._hidden ^= {"test_changing_tool"}
        await self._bus.publish(ToolsListChanged())
        await ctx.session.send_tool_list_changed()

    async def _change_prompts(self, ctx: Context) -> None:
        self._hidden ^= {"test_changing_prompt"}
        await self._bus.publish(PromptsListChanged())
        await ctx.session.send_prompt_list_changed()

    async def _set_level(self, ctx: Context, params: SetLevelRequestParams) -> Json:
        self._levels[_session(ctx)] = params.level
        return {}

    # --- resources ---

    async def _list_resources(self, ctx: Context, params: PaginatedRequestParams) -> Json:
        return {
            "resources": [
                {"uri": uri, "name": uri, "description": f"What is at {uri}", "mimeType": content["mimeType"]}
                for uri, content in RESOURCES.items()
            ]
        }

    async def _list_templates(self, ctx: Context, params: PaginatedRequestParams) -> Json:
        template = f"{TEMPLATE_START}{{id}}{TEMPLATE_END}"
        return {"resourceTemplates": [{"uriTemplate": template, "name": "data", "mimeType": "application/json"}]}

    async def _read_resource(self, ctx: Context, params: ReadResourceRequestParams) -> Json:
        uri = params.uri
        if uri in RESOURCES:
            content = RESOURCES[uri]
        elif uri.startswith(TEMPLATE_START) and uri.endswith(TEMPLATE_END):
            number = uri.removeprefix(TEMPLATE_START).removesuffix(TEMPLATE_END)
            data = {"id": number, "templateTest": True, "data": f"Data for ID: {number}"}
            content = {"mimeType": "application/json", "text": json.dumps(data)}
        else:
            code = INVALID_PARAMS if _is_modern(ctx) else RESOURCE_NOT_FOUND
            raise MCPError(code, "Resource not found", {"uri": uri})
        return {"contents": [{"uri": uri, **content}]}

    # --- prompts ---

    async def _list_prompts(self, ctx: Context, params: PaginatedRequestParams) -> Json:
        return {
            "prompts": [
                {
                    "name": name,
                    "description": name.replace("_", " ").capitalize(),
                    "arguments": [{"name": argument, "required": True} for argument in arguments],
                }
                for name, (arguments, _) in PROMPTS.items()
                if name not in self._hidden
            ]
        }

    async def _get_prompt(self, ctx: Context, params: GetPromptRequestParams) -> Json:
        if params.name not in PROMPTS or params.name in self._hidden:
            raise MCPError(INVALID_PARAMS, f"Unknown prompt: {params.name}")
        needed, content = PROMPTS[params.name]
        given = params.arguments or {}
        if missing := [argument for argument in needed if argument not in given]:
            raise MCPError(INVALID_PARAMS, f"Missing arguments: {', '.join(missing)}")
        rounds = PROMPT_QUESTIONS if params.name == "test_input_required_result_prompt" else []
        return await self._once_answered(
            ctx,
            params,
            rounds,
            lambda answers: {
                "messages": [{"role": "user", "content": block} for block in content({**given, **answers})]
            },
        )

    async def _complete(self, ctx: Context, params: CompleteRequestParams) -> Json:
        values = [word for word in ("paris", "park", "party", "test") if word.startswith(params.argument.value)]
        return {"completion": {"values": values, "total": len(values), "hasMore": False}}


def _is_modern(ctx: Context) -> bool:
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def _allowed(ctx: Context, questions: Questions) -> Questions:
    """The questions that the client can answer; with none of them the request fails."""
    declared = ctx.session.client_capabilities
    needed = {key: ASKING[question["method"]][0] for key, question in questions.items()}
    allowed = {key: questions[key] for key, capability in needed.items() if getattr(declared, capability, None)}
    if allowed:
        return allowed
    data = {"requiredCapabilities": {capability: {} for capability in needed.values()}}
    raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "The client lacks a capability", data)


def _plain(answer: Any) -> Json:
    return answer.model_dump(mode="json", by_alias=True, exclude_none=True)


def _session(ctx: Context) -> str | None:
    """The session of the handshake era over HTTP; over stdio there is one."""
    return ctx.request.headers.get("mcp-session-id") if ctx.request is not None else None


class Events(EventStore):
    """The events of all streams, so that a client can resume one of them."""

    def __init__(self) -> None:
        self._events: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep an event; its number is its identifier."""
        self._events.append((stream_id, message))
        return str(len(self._events) - 1)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what followed on the stream of that event."""
        if not last_event_id.isdecimal() or int(last_event_id) >= len(self._events):
            return None
        stream, _ = self._events[int(last_event_id)]
        for number, (of, message) in enumerate(self._events):
            if number > int(last_event_id) and of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


# --- transports ------------------------------------------------------------------------------------------------------

ERAS = {
    "handshake": HANDSHAKE_PROTOCOL_VERSIONS,
    "modern": MODERN_PROTOCOL_VERSIONS,
    "both": (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS),
}


async def serve_stdio(server: Upstream, era: str) -> None:
    """Serve over stdio; in the handshake era alone, a first modern request must not settle the era."""
    options = server.create_initialization_options()
    async with stdio_server() as (read, write):
        if era == "handshake":
            await serve_loop(server, read, write, lifespan_state={}, init_options=options)
        else:
            await server.run(read, write, options)


def serve_http(server: Upstream, port: int) -> None:
    """Serve over Streamable HTTP on the loopback address; the address goes to stderr."""
    app = server.streamable_http_app(event_store=Events(), retry_interval=100)
    with socket.create_server(("127.0.0.1", port)) as bound:
        print(f"ready http://127.0.0.1:{bound.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[bound])


def main() -> None:
    """Serve as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transport", choices=["http", "stdio"], default="http")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--era", choices=list(ERAS), default="both")
    options = parser.parse_args()
    warnings.simplefilter("ignore", MCPDeprecationWarning)  # of logs, which the handshake era has
    server = Upstream(ERAS[options.era])
    if options.transport == "stdio":
        anyio.run(serve_stdio, server, options.era)
    else:
        serve_http(server, options.port)


if __name__ == "__main__":
    main()
