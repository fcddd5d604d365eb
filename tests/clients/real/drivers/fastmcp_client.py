"""The client of FastMCP, reading the list again before the model's next request after a notice."""
# pyright: reportMissingImports=false

import asyncio

from agent_loop import ReadTools, converse
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from target import COMMAND, URL


async def main() -> None:
    """Play the story."""
    tools = ReadTools()
    target = URL or StdioTransport(command=COMMAND[0], args=COMMAND[1:])
    async with Client(target, message_handler=tools.on_message) as client:

        async def call_tool(name: str, arguments: dict) -> str:
            return (await client.call_tool(name, arguments, raise_on_error=False)).content[0].text

        await converse(lambda: tools.read(client.list_tools), call_tool)


asyncio.run(main())
