"""LangChain: an agent with one session, or (argument `get_tools` before the prompts) as its README has it."""
# pyright: reportMissingImports=false

import asyncio

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langchain_openai import ChatOpenAI
from target import COMMAND, MODEL, PROMPTS, URL

HTTP = {"transport": "streamable_http", "url": URL}
SERVER = HTTP if URL else {"transport": "stdio", "command": COMMAND[0], "args": COMMAND[1:]}
GET_TOOLS = PROMPTS[0] == "get_tools"


async def play(list_tools) -> None:
    """Play the story, with the tools taken once for each of the user's turns."""
    model = ChatOpenAI(model="scripted", base_url=MODEL, api_key="dummy")
    messages = []
    for prompt in PROMPTS[GET_TOOLS:]:
        agent = create_agent(model, await list_tools())
        done = await agent.ainvoke({"messages": [*messages, {"role": "user", "content": prompt}]})
        messages = done["messages"]
        print(messages[-1].content)


async def main() -> None:
    """Play the story in the chosen way."""
    client = MultiServerMCPClient({"skills": SERVER})
    if GET_TOOLS:
        await play(client.get_tools)
        return
    async with client.session("skills") as session:
        await play(lambda: load_mcp_tools(session))


asyncio.run(main())
