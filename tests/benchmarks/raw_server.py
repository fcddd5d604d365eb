"""A hand-written MCP server on stdio that takes microseconds a call, so that what a proxy adds is what is measured.

python raw_server.py NAME [TOOLS] [DELAY]
"""

import heapq
import json
import os
import select
import sys
import time
from typing import Any

from tool_texts import text_of, tools


def main() -> None:
    """Serve until the input ends; with a delay, begin to read only after so many seconds."""
    name = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    if len(sys.argv) > 3:
        time.sleep(float(sys.argv[3]))
    answers = {
        "initialize": _dump(
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": name, "version": "1"},
            }
        ),
        "tools/list": _dump({"tools": tools(count, name)}),
        "big": _dump(_text(text_of("big_", {}))),
        "ping": b"{}",
    }
    due: list[tuple[float, int, bytes]] = []
    rest = b""
    while True:
        wait = max(0.0, due[0][0] - time.monotonic()) if due else None
        if select.select([0], [], [], wait)[0]:
            chunk = os.read(0, 1 << 20)
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                _answer(json.loads(line), answers, due)
        while due and due[0][0] <= time.monotonic():
            _write(heapq.heappop(due)[2], _dump(_text("slept")))


def _answer(message: dict[str, Any], answers: dict[str, bytes], due: list[tuple[float, int, bytes]]) -> None:
    if "id" not in message or "method" not in message:
        return
    method, request = message["method"], json.dumps(message["id"]).encode()
    if method == "tools/call":
        tool, arguments = message["params"]["name"], message["params"].get("arguments") or {}
        if tool.startswith("sleep_"):
            heapq.heappush(due, (time.monotonic() + float(arguments["seconds"]), len(due), request))
        else:
            _write(request, answers["big"] if tool.startswith("big_") else _dump(_text(text_of(tool, arguments))))
    elif method in answers:
        _write(request, answers[method])
    else:
        _send(b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32601,"message":"Method not found"}}\n' % request)


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": False}


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _write(request: bytes, result: bytes) -> None:
    _send(b'{"jsonrpc":"2.0","id":%b,"result":%b}\n' % (request, result))


def _send(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    main()
