"""The responses API of OpenAI."""

import json
import time
from collections.abc import Iterator

from conversation import Event, Json, Reply, Request, ServerSentEvent, flat_tools, new_id, text_of

USAGE = {
    "input_tokens": 10,
    "output_tokens": 5,
    "total_tokens": 15,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}


def read(body: Json) -> Request:
    """What the client asks."""
    given = body.get("input", [])
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    events = [event for item in items for event in _events(item)]
    return Request(list(flat_tools(body.get("tools") or [])), events, json.dumps(body))


def _events(item: Json) -> Iterator[Event]:
    if item.get("type") == "function_call":
        yield Event("call", item["name"])
    elif item.get("type") == "function_call_output":
        yield Event("result", text_of(item.get("output")))
    elif item.get("role") == "user":
        yield Event("user", text_of(item.get("content")))


def answer(body: Json, reply: Reply) -> Json:
    """The answer as one JSON object."""
    return {**_head(body), "status": "completed", "output": [_item(reply)], "usage": USAGE}


def events(body: Json, reply: Reply) -> Iterator[ServerSentEvent]:
    """The answer as a stream."""
    for number, (name, data) in enumerate(_stream(body, reply)):
        yield ServerSentEvent({"type": name, "sequence_number": number, **data}, name)


def _stream(body: Json, reply: Reply) -> Iterator[tuple[str, Json]]:
    head, item = _head(body), _item(reply)
    yield "response.created", {"response": {**head, "status": "in_progress", "output": []}}
    yield from _call(item) if reply.tool else _text(item, reply.text)
    yield "response.output_item.done", {"output_index": 0, "item": item}
    yield "response.completed", {"response": {**head, "status": "completed", "output": [item], "usage": USAGE}}


def _call(item: Json) -> Iterator[tuple[str, Json]]:
    at = {"item_id": item["id"], "output_index": 0}
    begun = {**item, "arguments": "", "status": "in_progress"}
    yield "response.output_item.added", {"output_index": 0, "item": begun}
    yield "response.function_call_arguments.delta", {**at, "delta": item["arguments"]}
    yield "response.function_call_arguments.done", {**at, "arguments": item["arguments"], "name": item["name"]}


def _text(item: Json, text: str) -> Iterator[tuple[str, Json]]:
    at = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    block = {"type": "output_text", "text": "", "annotations": []}
    yield "response.output_item.added", {"output_index": 0, "item": {**item, "content": [], "status": "in_progress"}}
    yield "response.content_part.added", {**at, "part": block}
    yield "response.output_text.delta", {**at, "delta": text}
    yield "response.output_text.done", {**at, "text": text}
    yield "response.content_part.done", {**at, "part": {**block, "text": text}}


def _head(body: Json) -> Json:
    return {
        "id": new_id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "model": body.get("model", ""),
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }


def _item(reply: Reply) -> Json:
    if reply.tool is None:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        return {
            "type": "message",
            "id": new_id("msg"),
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
    item = {
        "type": "function_call",
        "id": new_id("fc"),
        "call_id": new_id("call"),
        "name": reply.tool.name,
        "arguments": json.dumps(reply.arguments),
        "status": "completed",
    }
    return {**item, "namespace": reply.tool.namespace} if reply.tool.namespace else item
