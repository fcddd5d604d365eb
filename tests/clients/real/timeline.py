"""A trial told line by line: what passed between client and proxy, and what the model was asked and answered."""

import json
from collections.abc import Iterator
from pathlib import Path

from conversation import Json
from findings import read_log

WIDTH = 150


def timeline(folder: Path) -> Iterator[str]:
    """The lines, in milliseconds since the client's first message."""
    wire, requests, calls = (read_log(folder / name) for name in ("wire.jsonl", "model.jsonl", "calls.jsonl"))
    told = [(entry["time"], _of_wire(entry)) for entry in wire]
    told += [(entry["time"], _of_model(entry)) for entry in requests]
    told += [(entry["time"], f"server: {entry['name']} is called") for entry in calls]
    start = min((time for time, _ in told), default=0.0)
    for time, text in sorted(told):
        if text:
            yield f"{(time - start) * 1000:8.1f}  {text[:WIDTH]}"


def _of_wire(entry: Json) -> str:
    side = f"{entry['side']}:"
    if "http" in entry:
        return f"{side} {entry['http']}" if entry["side"] == "client" or " 20" not in entry["http"] else ""
    if "started" in entry:
        return f"{side} started"
    message = entry.get("message", entry)
    if "method" in message:
        return f"{side} {message['method']}{_number(message)} {_short(message.get('params'))}"
    if "error" in message:
        return f"{side} error{_number(message)} {json.dumps(message['error'])}"
    result = message.get("result")
    if isinstance(result, dict) and "tools" in result:
        return f"{side} result{_number(message)} tools {[tool['name'] for tool in result['tools']]}"
    return f"{side} result{_number(message)} {_short(result)}"


def _number(message: Json) -> str:
    return f" #{message['id']}" if "id" in message else ""


def _short(value: object) -> str:
    return "" if value is None else json.dumps(value)


def _of_model(entry: Json) -> str:
    known = [name for name in ("skill", "skill_call", "tool", "deferred") if entry[name]]
    return f"model: {entry['api']}, {len(entry['tools'])} tools, known: {', '.join(known) or 'none'} -> {entry['step']}"
