"""A stdio server of 2025-11-25 that keeps calls and answers them late: also those that were cancelled.

Its tools: `keep` is not answered, but makes the file `mark`; `release` answers every call that is kept, then itself;
`say` logs `text` first; `progress` sends progress under its token as text, and as a number with a fraction of nothing.
"""

import json
import sys
from pathlib import Path
from typing import Any

CAPABILITIES = {"tools": {}, "logging": {}}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("keep", "release", "say", "progress")]
DONE = {"content": [{"type": "text", "text": "done"}]}


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(request: Any, params: dict[str, Any], kept: list[Any]) -> None:
    """Answer the call of a tool, or keep it."""
    name, arguments = params["name"], params["arguments"]
    if name == "keep":
        kept.append(request)
        Path(arguments["mark"]).touch()
        return
    if name == "release":
        for late in kept:
            send(id=late, result=DONE)
    if name == "progress":
        token = params["_meta"]["progressToken"]
        for number, written in enumerate((str(token), float(token))):
            send(method="notifications/progress", params={"progressToken": written, "progress": number})
    if name == "say":
        send(method="notifications/message", params={"level": "info", "data": arguments["text"]})
    send(id=request, result=DONE)


def main() -> None:
    kept: list[Any] = []
    for line in sys.stdin:
        message = json.loads(line)
        request, params = message.get("id"), message.get("params", {})
        if request is None:
            continue
        match message["method"]:
            case "initialize":
                info = {"name": "late", "version": "1"}
                version = params["protocolVersion"]
                send(id=request, result={"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": info})
            case "tools/list":
                send(id=request, result={"tools": TOOLS})
            case "tools/call":
                call(request, params, kept)
            case _:
                send(id=request, result={})


if __name__ == "__main__":
    main()
