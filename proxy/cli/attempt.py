"""`try`: act as a client of the real program and show on the terminal what one sees."""

import json
import os
import re
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp_types import Implementation, TextContent, Tool
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from proxy import __version__
from proxy.config.load import Loaded
from proxy.core.inventory import Json, is_json, items
from proxy.core.skill_tool import SKILL

GOOD, LIVE_PROBLEM = 0, 1
SHOWN = 1600
"""Characters of a result that are shown."""
WIDTH = 80
"""Characters of a tool's description that are shown in a list."""


class CannotTry(Exception):
    """The story cannot go on; the text says why."""


def attempt(loaded: Loaded, skill: str | None, call: str | None, arguments: str | None) -> int:
    """Tell the story of one skill; 0 when every step succeeded, 1 otherwise."""
    console = Console(highlight=False)
    try:
        wanted = _Wanted(_choose(loaded, skill), call, _parsed(arguments))
        anyio.run(partial(_story, console, loaded, wanted))
    except CannotTry as problem:
        console.print(escape(str(problem)))
        return LIVE_PROBLEM
    return GOOD


@dataclass(frozen=True)
class _Wanted:
    skill: str
    call: str | None
    arguments: Json | None


def _parsed(arguments: str | None) -> Json | None:
    try:
        given = json.loads(arguments) if arguments is not None else None
    except ValueError as error:
        raise CannotTry(f"--arguments is not JSON: {error}") from None
    if given is not None and not is_json(given):
        raise CannotTry("--arguments must be a JSON object")
    return given


def _choose(loaded: Loaded, wanted: str | None) -> str:
    skills = loaded.catalogue.skills
    if wanted is not None:
        if wanted not in loaded.catalogue.by_id:
            raise CannotTry(f"There is no skill {wanted}; there are: {', '.join(s.id for s in skills) or 'none'}")
        return wanted
    with_tools = [skill.id for skill in skills if skill.tools]
    # One that is not active yet shows more; one that is shows at least its tools.
    fresh = [skill.id for skill in skills if skill.tools and not (skill.active or skill.pinned)]
    if not with_tools:
        raise CannotTry(f"No skill in {loaded.path} has tools.")
    return (fresh or with_tools)[0]


async def _story(console: Console, loaded: Loaded, wanted: _Wanted) -> None:
    """Connect to the program itself, in a process of its own, and tell what its client sees.

    Raises:
        CannotTry: some step failed.
    """
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "proxy", "serve", "--config", str(loaded.path.resolve()), "--log-level", "error"],
        env=dict(os.environ),
    )
    me = Implementation(name="mcp-skill-proxy-try", version=__version__)
    problem: CannotTry | None = None
    try:
        async with Client(program, client_info=me) as client:
            try:
                await _tell(console, client, loaded, wanted)
            except CannotTry as met:
                problem = met  # raised outside, where no task group wraps it
    except ExceptionGroup as failed:
        raise CannotTry("The proxy did not start, or it ended; what it said stands above.") from failed
    if problem is not None:
        raise problem


async def _tell(console: Console, client: Client, loaded: Loaded, wanted: _Wanted) -> None:
    skill = wanted.skill
    console.print(f"A client connects to [bold]{escape(str(loaded.path))}[/] and lists its tools:")
    before = await _list(console, client)
    console.print(f"\nIt activates skill [bold]{escape(skill)}[/]:")
    result = await _call(console, client, SKILL, {"action": "activate", "skill_name": skill})
    console.print("\nNow its list is:")
    after = await _list(console, client)
    listed = {tool.name for tool in after}
    brought = [tool["name"] for tool in items(result.get("tools")) if tool["name"] in listed]
    name, given = _what_to_call(after, brought, wanted)
    console.print(f"\nIt calls [bold]{escape(name)}[/] with {escape(json.dumps(given, ensure_ascii=False))}:")
    await _call(console, client, name, given)
    if not loaded.catalogue.by_id[skill].pinned:
        console.print(f"\nIt offloads skill [bold]{escape(skill)}[/]:")
        await _call(console, client, SKILL, {"action": "offload", "skill_name": skill})
        console.print("\nAnd its list is again:")
        await _list(console, client)
    await _estimate(console, client, loaded, before, after)


async def _list(console: Console, client: Client) -> list[Tool]:
    tools = (await client.list_tools()).tools
    table = Table(box=None, show_header=False, padding=(0, 2))
    for tool in tools:
        first = (tool.description or "").strip().split("\n")[0]
        table.add_row(
            f"[cyan]{escape(tool.name)}[/]", escape(first if len(first) <= WIDTH else first[: WIDTH - 1] + "…")
        )
    console.print(table)
    return tools


async def _call(console: Console, client: Client, name: str, arguments: Json) -> Json:
    """Call a tool and show its result; the structured part of it.

    Raises:
        CannotTry: the call failed.
    """
    try:
        result = await client.call_tool(name, dict(arguments))
    except MCPError as error:
        raise CannotTry(f"The call failed: {error.message}") from None
    text = "\n".join(block.text if isinstance(block, TextContent) else f"[{block.type}]" for block in result.content)
    shown = text if len(text) <= SHOWN else text[:SHOWN] + f"\n… ({len(text) - SHOWN} more characters)"
    console.print(Panel(escape(shown), border_style="red" if result.is_error else "dim"))
    if result.is_error and name == SKILL:
        raise CannotTry("That failed, see above.")
    return result.structured_content or {}


def _what_to_call(tools: list[Tool], brought: list[str], wanted: _Wanted) -> tuple[str, Json]:
    """The tool that was asked for, else the first of the skill whose arguments can be made from its schema."""
    by_name = {tool.name: tool for tool in tools}
    if wanted.call is not None:
        if wanted.call not in by_name:
            raise CannotTry(f"There is no tool {wanted.call}; there are: {', '.join(by_name)}")
        return wanted.call, wanted.arguments or _arguments(by_name[wanted.call]) or {}
    for name in sorted(brought, key=lambda name: not _only_reads(by_name[name])):
        if (made := wanted.arguments or _arguments(by_name[name])) is not None:
            return name, made
    raise CannotTry(
        f"None of {', '.join(brought) or 'no tools'} can be called without knowing more: name one with --call TOOL "
        "--arguments JSON, or another skill with --skill"
    )


def _arguments(tool: Tool) -> Json | None:
    """Arguments for `tool`, made from its schema; None when that does not suffice."""
    made: dict[str, Any] = {}
    properties = tool.input_schema.get("properties")
    for name in items(tool.input_schema.get("required")):
        schema = properties.get(name) if is_json(properties) else None
        value = _example(name, schema) if is_json(schema) else None
        if value is None:
            return None
        made[name] = value
    return made


def _only_reads(tool: Tool) -> bool:
    return tool.annotations is not None and tool.annotations.read_only_hint is True


def _example(name: str, schema: Json) -> object:
    """A value for the argument `name` from its schema; where it asks for a folder, the one we are in."""
    if schema.get("type") == "string" and re.search(r"path|folder|dir(ectory)?$|cwd", name):
        return str(Path.cwd())
    quoted = re.search(r"e\.g\.,?\s*['\"`]([^'\"`]+)['\"`]", str(schema.get("description", "")))
    candidates = [
        schema.get("const"),
        schema.get("default"),
        *items(schema.get("examples")),
        *items(schema.get("enum")),
    ]
    return next((found for found in candidates if found is not None), quoted.group(1) if quoted else None)


async def _estimate(console: Console, client: Client, loaded: Loaded, before: list[Tool], after: list[Tool]) -> None:
    """Compare what the lists cost in the model's context with what everything at once would."""

    async def activate(skill: str) -> None:
        await client.call_tool(SKILL, {"action": "activate", "skill_name": skill})

    async with anyio.create_task_group() as tasks:
        for skill in loaded.catalogue.skills:
            tasks.start_soon(activate, skill.id)
    everything = (await client.list_tools()).tools
    table = Table(box=None, padding=(0, 2))
    table.add_column("in the model's context")
    table.add_column("tools", justify="right")
    table.add_column("tokens (estimate)", justify="right")
    for what, tools in (("at the start", before), ("with the skill", after), ("with every skill", everything)):
        table.add_row(what, str(len(tools)), f"{_tokens(tools):,}")
    saved = _tokens(everything) - _tokens(after)
    console.print()
    console.print(table)
    console.print(f"The skill alone saves about {saved:,} tokens of definitions (an estimate: characters / 4).")


def _tokens(tools: list[Tool]) -> int:
    return sum(len(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in tools) // 4
