"""The MCP server behind the proxy, over stdio: one tool, whose calls are appended to the file of its argument."""

import json
import sys
import time
from pathlib import Path

TOOL = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def answer(method: str, params: dict[str, object], calls: Path) -> dict[str, object] | None:
    """The result of a request, None for a method that this server does not have."""
    if method == "initialize":
        revision = params.get("protocolVersion", "2025-11-25")
        info = {"name": "desk", "version": "1"}
        return {"protocolVersion": revision, "capabilities": {"tools": {"listChanged": True}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        entry = {"time": time.monotonic(), "name": params["name"], "arguments": params.get("arguments")}
        with calls.open("a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")
        return {"content": [{"type": "text", "text": f"Rain, says {params['name']}."}]}
    return {} if method == "ping" else None


def main() -> None:
    """Answer each line until the input ends."""
    calls = Path(sys.argv[1])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {}, calls)
        body = {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)


if __name__ == "__main__":
    main()
