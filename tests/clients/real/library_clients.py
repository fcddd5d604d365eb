"""How each agent library, SDK and command line tool without a model is installed and driven."""

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from install import Package
from setups import OVER_HTTP, Client, Launch, Place

DRIVERS = Path(__file__).with_name("drivers")
TURNS = 2
QUIET = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "GOOGLE_API_KEY": "dummy",
    "MCP_USE_ANONYMIZED_TELEMETRY": "false",
    "OPENAI_API_KEY": "dummy",
    "OTEL_SDK_DISABLED": "true",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONWARNINGS": "ignore",
}


def _target(place: Place) -> dict[str, str]:
    """What drivers are told by their environment."""
    return QUIET | {
        "GOOGLE_GEMINI_BASE_URL": place.model,
        "MCP_COMMAND": json.dumps(place.command),
        "MCP_URL": place.url,
        "MODEL_URL": place.model,
    }


def _python(driver: str, *arguments: str) -> Callable[[Place], Launch]:
    def launch(place: Place) -> Launch:
        return Launch([place.program("python"), DRIVERS / driver, *arguments], _target(place))

    return launch


def _javascript(driver: str) -> Callable[[Place], Launch]:
    def launch(place: Place) -> Launch:
        return Launch(["node", _beside_package(place, driver)], _target(place))

    return launch


def _beside_package(place: Place, driver: str) -> Path:
    """A copy of the driver where Node finds the packages that it imports."""
    folder = place.program("node").parents[2]
    for name in ("agent_loop.mjs", driver):
        shutil.copy(DRIVERS / name, folder / name)
    return folder / driver


def _mcporter(place: Place) -> Launch:
    server = {"baseUrl": place.url} if place.url else {**place.stdio, "lifecycle": "ephemeral"}
    config = place.write("mcporter.json", {"mcpServers": {"skills": server}})
    return _command_line_tool("mcporter", place.program("mcporter"), config, place)


def _inspector(place: Place) -> Launch:
    """It takes options of the proxy's command for its own, so that the command is in a script."""
    script = place.write("proxy.sh", f"#!/bin/sh\nexec {shlex.join(place.command)}\n")
    script.chmod(0o755)
    return _command_line_tool("inspector", place.program("mcp-inspector"), script, place)


def _command_line_tool(tool: str, program: Path, config: Path, place: Place) -> Launch:
    driver = DRIVERS / "command_line_tool.py"
    return Launch([sys.executable, driver, tool, program, config], _target(place))


def _npm(*specs: str, folder: str) -> Package:
    return Package("npm", specs, f"npm/{folder}")


def _pypi(*specs: str, folder: str) -> Package:
    return Package("pypi", specs, f"python/{folder}")


def _mcp_remote(place: Place) -> Launch:
    """The bridge by which clients on stdio reach a server over HTTP, with the TypeScript SDK's client before it."""
    bridge = [str(place.program("mcp-remote")), place.url, "--allow-http", "--transport", "http-only"]
    target = _target(place) | {"MCP_COMMAND": json.dumps(bridge), "MCP_URL": ""}
    return Launch(["node", _beside_package(place, "typescript_sdk_1.mjs")], target)


AI_SDK = _npm("ai", "@ai-sdk/mcp", "@ai-sdk/openai-compatible", folder="ai-sdk")
LANGCHAIN = _pypi("langchain-mcp-adapters", "langchain", "langchain-openai", "langgraph", folder="langchain")
LLAMA_INDEX = _pypi("llama-index-tools-mcp", "llama-index-core", "llama-index-llms-openai-like", folder="llama-index")
MCP_REMOTE = _npm("mcp-remote", "@modelcontextprotocol/sdk", folder="mcp-remote")


def _library(key: str, title: str, package: Package, launch: Callable[[Place], Launch]) -> Client:
    return Client(key, title, package, launch, turns=TURNS)


def _stateless(key: str, title: str, package: Package, launch: Callable[[Place], Launch]) -> Client:
    """One that opens a session for each call."""
    return Client(key, title, package, launch, turns=TURNS, session_per_call=True)


LIBRARIES = (
    _library("python-sdk", "MCP Python SDK", _pypi("mcp", folder="python-sdk"), _python("python_sdk.py")),
    _library(
        "typescript-sdk-1",
        "MCP TypeScript SDK 1",
        _npm("@modelcontextprotocol/sdk", folder="typescript-sdk-1"),
        _javascript("typescript_sdk_1.mjs"),
    ),
    _library(
        "typescript-sdk-2",
        "MCP TypeScript SDK 2",
        _npm("@modelcontextprotocol/client", folder="typescript-sdk-2"),
        _javascript("typescript_sdk_2.mjs"),
    ),
    _library("fastmcp", "FastMCP", _pypi("fastmcp", folder="fastmcp"), _python("fastmcp_client.py")),
    _library("ai-sdk", "Vercel AI SDK", AI_SDK, _javascript("ai_sdk.mjs")),
    _library(
        "openai-agents", "OpenAI Agents", _pypi("openai-agents", folder="openai-agents"), _python("openai_agents.py")
    ),
    _library(
        "pydantic-ai",
        "Pydantic AI",
        _pypi("pydantic-ai-slim[mcp,openai]", folder="pydantic-ai"),
        _python("pydantic_ai_agent.py"),
    ),
    _library("langchain", "LangChain, one session", LANGCHAIN, _python("langchain_agent.py")),
    _stateless(
        "langchain-get-tools", "LangChain, `get_tools()`", LANGCHAIN, _python("langchain_agent.py", "get_tools")
    ),
    _stateless("llama-index", "LlamaIndex", LLAMA_INDEX, _python("llama_index_agent.py")),
    _library(
        "smolagents",
        "smolagents",
        _pypi("smolagents[mcp,openai]", "mcp<2", folder="smolagents"),
        _python("smolagents_agent.py"),
    ),
    _library("mcp-use", "mcp-use", _pypi("mcp-use", "langchain-openai", folder="mcp-use"), _python("mcp_use_agent.py")),
    _library("crewai", "CrewAI", _pypi("crewai", "crewai-tools[mcp]", folder="crewai"), _python("crewai_agent.py")),
    _library("google-adk", "Google ADK", _pypi("google-adk[mcp]", folder="google-adk"), _python("google_adk.py")),
    _library(
        "agent-framework",
        "Microsoft Agent Framework",
        _pypi("agent-framework-core", "agent-framework-openai", "mcp", "tenacity", folder="agent-framework"),
        _python("agent_framework_agent.py"),
    ),
    _library(
        "autogen",
        "AutoGen",
        _pypi("autogen-ext[mcp,openai]", "autogen-agentchat", "mcp<2", folder="autogen"),
        _python("autogen_agent.py"),
    ),
    _library(
        "strands", "Strands Agents", _pypi("strands-agents[openai]", folder="strands"), _python("strands_agent.py")
    ),
    _stateless("mcporter", "mcporter", _npm("mcporter", folder="mcporter"), _mcporter),
    _stateless(
        "inspector", "MCP Inspector CLI", _npm("@modelcontextprotocol/inspector", folder="inspector"), _inspector
    ),
    Client("mcp-remote", "mcp-remote", MCP_REMOTE, _mcp_remote, OVER_HTTP, TURNS),
)
"""Libraries in small agents of their own, the SDKs and command line tools in the plainest agent."""
