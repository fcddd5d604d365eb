"""An MCP server over HTTP that writes down the headers of every request: `heard.py PORT_FILE LOG [REDIRECT_TO]`."""

import json
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.conftest import PATIENCE, ROOT


@dataclass(frozen=True)
class Heard:
    """A running server; its tool is `echo`."""

    url: str
    log: Path

    @property
    def requests(self) -> list[dict[str, str]]:
        """The headers of each request so far, by lower-case name."""
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def values(self, name: str) -> set[str]:
        """The values that a header had in requests that had it."""
        return {headers[name] for headers in self.requests if name in headers}

    def names(self) -> set[str]:
        """The names of all headers that came."""
        return {name for headers in self.requests for name in headers}


@asynccontextmanager
async def server(folder: Path, name: str, *, leading_to: str | None = None) -> AsyncGenerator[Heard]:
    """Run one, which keeps its files in `folder`; with `leading_to` it answers everything with a redirect to there."""
    port, log = folder / f"{name}.port", folder / f"{name}.heard"
    log.touch()
    more = [] if leading_to is None else [leading_to]
    process = subprocess.Popen([sys.executable, "-m", "tests.face.heard", str(port), str(log), *more], cwd=ROOT)  # noqa: ASYNC220 - as quick as can be
    try:
        with anyio.fail_after(PATIENCE):
            while not port.exists():  # noqa: ASYNC110 - another process makes the file
                await anyio.sleep(0.02)
        yield Heard(f"http://127.0.0.1:{port.read_text(encoding='utf-8')}/mcp", log)
    finally:
        process.kill()
        process.wait(PATIENCE)


async def _list_tools(_ctx: Any, _params: Any) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="echo", input_schema={"type": "object"})])


async def _call_tool(_ctx: Any, params: Any) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=str(params.arguments))])


def main(port_file: Path, log: Path, leading_to: str | None = None) -> None:
    app: ASGIApp = (
        Server[Any]("heard", on_list_tools=_list_tools, on_call_tool=_call_tool).streamable_http_app()
        if leading_to is None
        else RedirectResponse(leading_to)
    )

    async def hear(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(headers) + "\n")
        await app(scope, receive, send)

    bound = socket.create_server(("127.0.0.1", 0))
    part = port_file.with_suffix(".part")
    part.write_text(str(bound.getsockname()[1]), encoding="utf-8")
    part.rename(port_file)  # the connection waits in the socket until uvicorn is up
    config = uvicorn.Config(hear, log_level="error", lifespan="on" if leading_to is None else "off")
    uvicorn.Server(config).run(sockets=[bound])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
