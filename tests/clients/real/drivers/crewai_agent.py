"""CrewAI: its adapter reads the list once."""
# pyright: reportMissingImports=false

from crewai import LLM, Agent, Crew, Task
from crewai_tools import MCPServerAdapter
from mcp import StdioServerParameters
from target import COMMAND, MODEL, PROMPTS, URL

HTTP = {"url": URL, "transport": "streamable-http"}
SERVER = HTTP if URL else StdioServerParameters(command=COMMAND[0], args=COMMAND[1:])

with MCPServerAdapter(SERVER) as tools:
    model = LLM(model="openai/gpt-4o", base_url=MODEL, api_key="dummy")
    agent = Agent(role="trial", goal="trial", backstory="trial", tools=tools, llm=model)
    for prompt in PROMPTS:
        task = Task(description=prompt, expected_output="text", agent=agent)
        print(Crew(agents=[agent], tasks=[task]).kickoff())
