"""The generateContent API of Gemini."""

import json
from collections.abc import Iterator

from conversation import Event, Json, Reply, Request, ServerSentEvent, flat_tools, new_id

USAGE = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}


def read(body: Json) -> Request:
    """What the client asks."""
    events = [event for content in body.get("contents", []) for event in _events(content)]
    return Request(list(flat_tools(body.get("tools") or [])), events, json.dumps(body))


def _events(content: Json) -> Iterator[Event]:
    for part in content.get("parts", []):
        if "functionCall" in part:
            yield Event("call", part["functionCall"]["name"])
        elif "functionResponse" in part:
            yield Event("result", json.dumps(part["functionResponse"].get("response")))
        elif content.get("role") != "model" and "text" in part:
            yield Event("user", part["text"])


def answer(_body: Json, reply: Reply) -> Json:
    """The answer as one JSON object."""
    part = {"text": reply.text}
    if reply.tool:
        part = {"functionCall": {"name": reply.tool.name, "args": reply.arguments}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": USAGE, "modelVersion": "scripted", "responseId": new_id("r")}


def events(body: Json, reply: Reply) -> Iterator[ServerSentEvent]:
    """The answer as a stream of one event."""
    yield ServerSentEvent(answer(body, reply))
