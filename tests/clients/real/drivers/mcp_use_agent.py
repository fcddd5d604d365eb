"""mcp-use: its agent makes tools of prompts and resources too."""
# pyright: reportMissingImports=false

import asyncio

from langchain_openai import ChatOpenAI
from mcp_use import MCPAgent, MCPClient
from target import COMMAND, MODEL, PROMPTS, URL

SERVER = {"url": URL} if URL else {"command": COMMAND[0], "args": COMMAND[1:]}


async def main() -> None:
    """Play the story."""
    client = MCPClient({"mcpServers": {"skills": SERVER}})
    model = ChatOpenAI(model="scripted", base_url=MODEL, api_key="dummy")
    agent = MCPAgent(llm=model, client=client, max_steps=12)
    for prompt in PROMPTS:
        print(await agent.run(prompt))
    await client.close_all_sessions()


asyncio.run(main())
