"""Strands Agents, with the tools of its MCP client."""
# pyright: reportMissingImports=false

from mcp import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from strands import Agent
from strands.models.openai import OpenAIModel
from strands.tools.mcp import MCPClient
from target import COMMAND, MODEL, PROMPTS, URL


def transport():
    """The connection to the proxy."""
    if URL:
        return streamable_http_client(URL)
    return stdio_client(StdioServerParameters(command=COMMAND[0], args=COMMAND[1:]))


model = OpenAIModel(client_args={"base_url": MODEL, "api_key": "dummy"}, model_id="scripted")
agent = Agent(model=model, tools=[MCPClient(transport)])
for prompt in PROMPTS:
    print(agent(prompt))
