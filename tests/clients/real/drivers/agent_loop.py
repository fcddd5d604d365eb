"""The plainest agent: asks the model, calls what it says, and goes on until it answers with a text."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from target import MODEL, PROMPTS

TIMEOUT_S = 60.0


class ReadTools:
    """A client's list of tools, which is read again before the model's next request after a notice."""

    def __init__(self) -> None:
        self._tools: list[Any] = []
        self._stale = True

    async def on_message(self, message: object) -> None:
        """The client's handler of messages of its server."""
        inner = getattr(message, "root", message)
        self._stale = self._stale or getattr(inner, "method", "") == "notifications/tools/list_changed"

    async def read(self, list_tools: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        """The list as it is now, as far as the client was told."""
        if self._stale:
            self._stale = False
            self._tools = await list_tools()
        return self._tools


async def converse(
    list_tools: Callable[[], Awaitable[list[Any]]], call_tool: Callable[[str, dict[str, Any]], Awaitable[str]]
) -> None:
    """Play all prompts; `list_tools` gives the tools for each request to the model, as the SDK's objects or as JSON."""
    messages: list[dict[str, Any]] = []
    for prompt in PROMPTS:
        messages.append({"role": "user", "content": prompt})
        while True:
            tools = [_function(tool) for tool in await list_tools()]
            said = await asyncio.to_thread(_ask, messages, tools)
            messages.append(said)
            for call in said.get("tool_calls", []):
                function = call["function"]
                result = await call_tool(function["name"], json.loads(function["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            if "tool_calls" not in said:
                break
        print(said["content"])


def _function(tool: Any) -> dict[str, Any]:
    data = tool if isinstance(tool, dict) else tool.model_dump(by_alias=True, mode="json")
    function = {"name": data["name"], "description": data.get("description"), "parameters": data["inputSchema"]}
    return {"type": "function", "function": function}


def _ask(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    address = urlsplit(MODEL)
    body = json.dumps({"model": "scripted", "messages": messages, "tools": tools})
    connection = HTTPConnection(address.netloc, timeout=TIMEOUT_S)
    connection.request("POST", f"{address.path}/chat/completions", body, {"content-type": "application/json"})
    return json.load(connection.getresponse())["choices"][0]["message"]
