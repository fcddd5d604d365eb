"""A tool that opens a session for each command: mcporter or the MCP Inspector, called for the plainest agent.

python command_line_tool.py mcporter|inspector PROGRAM FILE PROMPTS...

FILE is mcporter's configuration, or for the Inspector a script that runs the proxy.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

TOOL, PROGRAM, FILE = sys.argv[1:4]
sys.argv[1:4] = []  # what the agent takes for its prompts follows

from agent_loop import converse  # noqa: E402 - after the arguments are in place
from target import URL  # noqa: E402

TIMEOUT_S = 60.0


def run(arguments: Sequence[str]) -> str:
    """What the program prints, be it a result or an error."""
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return done.stdout or done.stderr


def listing() -> list[str]:
    """The arguments that list the tools as JSON."""
    if TOOL == "mcporter":
        return ["--config", FILE, "list", "skills", "--schema", "--json"]
    return [*_inspector(), "--method", "tools/list"]


def calling(name: str, arguments: dict[str, Any]) -> list[str]:
    """The arguments that call a tool."""
    if TOOL == "mcporter":
        return ["--config", FILE, "call", f"skills.{name}", "--args", json.dumps(arguments)]
    pairs = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in arguments.items()]
    return [*_inspector(), "--method", "tools/call", "--tool-name", name, "--tool-arg", *pairs]


def _inspector() -> list[str]:
    return ["--cli", *([URL, "--transport", "http"] if URL else [FILE])]


async def list_tools() -> list[Any]:
    """The tools of a new session."""
    return json.loads(await asyncio.to_thread(run, listing()))["tools"]


async def call_tool(name: str, arguments: dict[str, Any]) -> str:
    """The result of a call in a new session."""
    return await asyncio.to_thread(run, calling(name, arguments))


asyncio.run(converse(list_tools, call_tool))
