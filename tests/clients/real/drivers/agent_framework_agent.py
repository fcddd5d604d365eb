"""Microsoft Agent Framework: its tools are taken at each of the user's turns."""
# pyright: reportMissingImports=false

import asyncio

from agent_framework import Agent, MCPStdioTool, MCPStreamableHTTPTool
from agent_framework.openai import OpenAIChatCompletionClient
from target import COMMAND, MODEL, PROMPTS, URL


async def main() -> None:
    """Play the story."""
    if URL:
        server = MCPStreamableHTTPTool(name="skills", url=URL, approval_mode="never_require")
    else:
        command, *arguments = COMMAND
        server = MCPStdioTool(name="skills", command=command, args=arguments, approval_mode="never_require")
    client = OpenAIChatCompletionClient(model="scripted", base_url=MODEL, api_key="dummy")
    async with server, Agent(client=client, name="trial", tools=server) as agent:
        session = agent.create_session()
        for prompt in PROMPTS:
            print(await agent.run(prompt, session=session))


asyncio.run(main())
