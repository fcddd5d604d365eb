"""OpenAI Agents: its agent reads the list before each request to the model."""
# pyright: reportMissingImports=false

import asyncio

from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from openai import AsyncOpenAI
from target import COMMAND, MODEL, PROMPTS, URL

set_tracing_disabled(True)


async def main() -> None:
    """Play the story."""
    stdio = {"command": COMMAND[0], "args": COMMAND[1:]} if COMMAND else {}
    wait = {"client_session_timeout_seconds": 30}
    async with MCPServerStreamableHttp({"url": URL}, **wait) if URL else MCPServerStdio(stdio, **wait) as server:
        model = OpenAIChatCompletionsModel("scripted", AsyncOpenAI(base_url=MODEL, api_key="dummy"))
        agent = Agent(name="trial", model=model, mcp_servers=[server])
        messages = []
        for prompt in PROMPTS:
            done = await Runner.run(agent, [*messages, {"role": "user", "content": prompt}])
            messages = done.to_input_list()
            print(done.final_output)


asyncio.run(main())
