"""AutoGen: an assistant with a workbench, which it reads before each request to the model."""
# pyright: reportMissingImports=false

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelFamily
from autogen_ext.models.openai import OpenAIChatCompletionClient
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams, StreamableHttpServerParams
from target import COMMAND, MODEL, PROMPTS, URL

ABILITIES = {
    "family": ModelFamily.UNKNOWN,
    "function_calling": True,
    "json_output": False,
    "structured_output": False,
    "vision": False,
}


async def main() -> None:
    """Play the story."""
    if URL:
        server = StreamableHttpServerParams(url=URL)
    else:
        server = StdioServerParams(command=COMMAND[0], args=COMMAND[1:], read_timeout_seconds=30)
    client = OpenAIChatCompletionClient(model="scripted", base_url=MODEL, api_key="dummy", model_info=ABILITIES)
    async with McpWorkbench(server) as workbench:
        agent = AssistantAgent("trial", client, workbench=workbench, max_tool_iterations=10)
        for prompt in PROMPTS:
            print((await agent.run(task=prompt)).messages[-1])


asyncio.run(main())
