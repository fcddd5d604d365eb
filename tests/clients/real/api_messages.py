"""The messages API of Anthropic."""

import json
from collections.abc import Iterator

from conversation import Event, Json, Reply, Request, ServerSentEvent, flat_tools, new_id, text_of

USAGE = {"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


def read(body: Json) -> Request:
    """What the client asks."""
    events = [event for message in body.get("messages", []) for event in _events(message)]
    return Request(list(flat_tools(body.get("tools") or [])), events, json.dumps(body))


def _events(message: Json) -> Iterator[Event]:
    content = message["content"]
    for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        if block["type"] == "tool_use":
            yield Event("call", block["name"])
        elif block["type"] == "tool_result":
            yield Event("result", text_of(block.get("content")))
        elif block["type"] == "text" and message["role"] == "user":
            yield Event("user", block["text"])


def answer(body: Json, reply: Reply) -> Json:
    """The answer as one JSON object."""
    return {**_head(body), "content": [_block(reply)], "stop_reason": _stop_reason(reply), "usage": USAGE}


def events(body: Json, reply: Reply) -> Iterator[ServerSentEvent]:
    """The answer as a stream."""
    for name, data in _stream(body, reply):
        yield ServerSentEvent({"type": name, **data}, name)


def _stream(body: Json, reply: Reply) -> Iterator[tuple[str, Json]]:
    message = {**_head(body), "content": [], "stop_reason": None, "usage": USAGE}
    if reply.tool:
        begun = {**_block(reply), "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(reply.arguments)}
    else:
        begun = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": reply.text}
    end = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    yield "message_start", {"message": message}
    yield "content_block_start", {"index": 0, "content_block": begun}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    yield "message_delta", {"delta": end, "usage": {"output_tokens": 5}}
    yield "message_stop", {}


def _head(body: Json) -> Json:
    model = body.get("model", "")
    return {"id": new_id("msg"), "type": "message", "role": "assistant", "model": model, "stop_sequence": None}


def _block(reply: Reply) -> Json:
    if reply.tool is None:
        return {"type": "text", "text": reply.text}
    return {"type": "tool_use", "id": new_id("toolu"), "name": reply.tool.name, "input": reply.arguments}


def _stop_reason(reply: Reply) -> str:
    return "end_turn" if reply.tool is None else "tool_use"
