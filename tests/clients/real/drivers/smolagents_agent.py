"""smolagents: its tools are read once."""
# pyright: reportMissingImports=false

from mcp import StdioServerParameters
from smolagents import MCPClient, OpenAIModel, ToolCallingAgent
from target import COMMAND, MODEL, PROMPTS, URL

HTTP = {"url": URL, "transport": "streamable-http"}
SERVER = HTTP if URL else StdioServerParameters(command=COMMAND[0], args=COMMAND[1:])

with MCPClient(SERVER, structured_output=False) as tools:
    model = OpenAIModel("scripted", api_base=MODEL, api_key="dummy")
    agent = ToolCallingAgent(tools=tools, model=model, max_steps=10)
    for prompt in PROMPTS:
        print(agent.run(prompt, reset=False))
