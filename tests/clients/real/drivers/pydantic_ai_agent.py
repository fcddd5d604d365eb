"""Pydantic AI, with its toolset for MCP as it is by default."""
# pyright: reportMissingImports=false

import asyncio

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from target import COMMAND, MODEL, PROMPTS, URL


async def main() -> None:
    """Play the story."""
    model = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=MODEL, api_key="dummy"))
    toolset = MCPToolset(URL or StdioTransport(command=COMMAND[0], args=COMMAND[1:]))
    async with Agent(model, toolsets=[toolset]) as agent:
        messages = []
        for prompt in PROMPTS:
            done = await agent.run(prompt, message_history=messages)
            messages = done.all_messages()
            print(done.output)


asyncio.run(main())
