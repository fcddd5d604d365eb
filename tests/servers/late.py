"""A stdio server of 2025-11-25 that keeps calls and answers them late: also those that were cancelled.

Its tools: `keep` is not answered, but makes the file `mark`; `release` answers every call that is kept, then itself;
`say` logs `text` first.
"""

import json
import sys
from pathlib import Path
from typing import Any

CAPABILITIES = {"tools": {}, "logging": {}}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("keep", "release", "say")]
DONE = {"content": [{"type": "text", "text": "done"}]}


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main() -> None:
    kept: list[Any] = []
    for line in sys.stdin:
        message = json.loads(line)
        request, params = message.get("id"), message.get("params", {})
        if request is None:
            continue
        match message["method"], params.get("name"):
            case "initialize", _:
                info = {"name": "late", "version": "1"}
                version = params["protocolVersion"]
                send(id=request, result={"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": info})
            case "tools/list", _:
                send(id=request, result={"tools": TOOLS})
            case "tools/call", "keep":
                kept.append(request)
                Path(params["arguments"]["mark"]).touch()
            case "tools/call", name:
                for late in kept if name == "release" else ():
                    send(id=late, result=DONE)
                if name == "say":
                    send(method="notifications/message", params={"level": "info", "data": params["arguments"]["text"]})
                send(id=request, result=DONE)
            case _:
                send(id=request, result={})


if __name__ == "__main__":
    main()
