"""Google ADK, with a model over Gemini's API."""
# pyright: reportMissingImports=false

import asyncio

from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool import McpToolset
from google.adk.tools.mcp_tool.mcp_session_manager import StdioConnectionParams, StreamableHTTPConnectionParams
from google.genai import types
from mcp import StdioServerParameters
from target import COMMAND, PROMPTS, URL

USER = "trial"


async def main() -> None:
    """Play the story."""
    if URL:
        server = StreamableHTTPConnectionParams(url=URL)
    else:
        server = StdioConnectionParams(server_params=StdioServerParameters(command=COMMAND[0], args=COMMAND[1:]))
    toolset = McpToolset(connection_params=server)
    runner = InMemoryRunner(LlmAgent(name="trial", model="gemini-2.5-pro", tools=[toolset]), app_name=USER)
    session = await runner.session_service.create_session(app_name=USER, user_id=USER)
    for prompt in PROMPTS:
        message = types.Content(role="user", parts=[types.Part(text=prompt)])
        async for event in runner.run_async(user_id=USER, session_id=session.id, new_message=message):
            print(event.content)
    await runner.close()


asyncio.run(main())
