"""The chat completions API of OpenAI."""

import json
import re
import time
from collections.abc import Iterator

from conversation import Event, Json, Reply, Request, ServerSentEvent, flat_tools, new_id, text_of

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
RESULT_PREFIXES = ("Observation:", "Call id:", "Error:")
"""How smolagents begins the message that has a call's result; it writes calls and results as text."""


def read(body: Json) -> Request:
    """What the client asks."""
    events = [event for message in body.get("messages", []) for event in _events(message)]
    return Request(list(flat_tools(body.get("tools") or [])), events, json.dumps(body))


def _events(message: Json) -> Iterator[Event]:
    said = text_of(message.get("content"))
    if said.startswith("Calling tools:"):
        yield from (Event("call", name) for name in re.findall(r"'name': '(\w+)'", said))
    elif said.startswith(RESULT_PREFIXES) or message["role"] == "tool":
        yield Event("result", said)
    elif message["role"] == "user":
        yield Event("user", said)
    for call in message.get("tool_calls") or []:
        yield Event("call", _called(call["function"]))


def _called(function: Json) -> str:
    """The tool that is meant: Qwen Code has a tool `tool_call` that takes the name of another."""
    if function["name"] == "tool_call":
        return json.loads(function["arguments"]).get("name", "tool_call")
    return function["name"]


def answer(body: Json, reply: Reply) -> Json:
    """The answer as one JSON object."""
    choice = {"index": 0, "message": _message(reply), "finish_reason": _finish(reply), "logprobs": None}
    return {**_head(body), "object": "chat.completion", "choices": [choice], "usage": USAGE}


def events(body: Json, reply: Reply) -> Iterator[ServerSentEvent]:
    """The answer as a stream."""
    head = {**_head(body), "object": "chat.completion.chunk"}
    message = _message(reply)
    for index, call in enumerate(message.get("tool_calls", [])):
        call["index"] = index
    for delta, finish in ((message, None), ({}, _finish(reply))):
        yield ServerSentEvent({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
    yield ServerSentEvent({**head, "choices": [], "usage": USAGE})
    yield ServerSentEvent("[DONE]")


def _head(body: Json) -> Json:
    return {"id": new_id("chatcmpl"), "created": int(time.time()), "model": body.get("model", "")}


def _message(reply: Reply) -> Json:
    if reply.tool is None:
        return {"role": "assistant", "content": reply.text}
    function = {"name": reply.tool.name, "arguments": json.dumps(reply.arguments)}
    call = {"id": new_id("call"), "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _finish(reply: Reply) -> str:
    return "stop" if reply.tool is None else "tool_calls"
