"""LlamaIndex: its client opens a session for each call."""
# pyright: reportMissingImports=false

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.workflow import Context
from llama_index.llms.openai_like import OpenAILike
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec
from target import COMMAND, MODEL, PROMPTS, URL


async def main() -> None:
    """Play the story."""
    client = BasicMCPClient(URL) if URL else BasicMCPClient(COMMAND[0], args=COMMAND[1:])
    model = OpenAILike(
        model="scripted", api_base=MODEL, api_key="dummy", is_chat_model=True, is_function_calling_model=True
    )
    agent = FunctionAgent(tools=await McpToolSpec(client).to_tool_list_async(), llm=model)
    context = Context(agent)
    for prompt in PROMPTS:
        print(await agent.run(prompt, ctx=context))


asyncio.run(main())
