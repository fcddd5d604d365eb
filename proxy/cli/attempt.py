"""`try`: act as a client of the real program and show on the terminal what one sees."""

import json
import os
import re
import sys
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters
from mcp.client.subscriptions import Subscription
from mcp_types import CallToolResult, Implementation, TextContent, Tool
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from proxy import __version__
from proxy.cli import jsonc
from proxy.cli.client_view import ClientView
from proxy.cli.exits import GOOD, LIVE_PROBLEM, REFUSED
from proxy.cli.sample import arguments_for, chosen, how_to_call
from proxy.config.load import Loaded
from proxy.config.problems import did_you_mean
from proxy.core.activation_answer import NOT_READY_HEADING, TOOLS_HEADING
from proxy.core.catalogue import Catalogue, Skill
from proxy.core.inventory import Json, is_json
from proxy.core.invoke_tool import SKILL_INVOKE
from proxy.core.relations import Blocked, activated, gone, offloaded, required
from proxy.core.report import acts, deeds
from proxy.core.scope import ScopeId, ScopeState
from proxy.core.skill_tool import SKILL, SKILL_CALL, actions
from proxy.core.texts import printable

SHOWN = 1600
"""Characters of a result that are shown."""
_NOT_READY: Final = re.compile(r"^- server (\S+)", re.MULTILINE)
"""The line of a result on a server that is not ready."""
_QUOTED: Final = re.compile(r"<(skill_guide|server_instructions)>.*?</\1>", re.DOTALL)
"""The texts of guides and servers in a result, which may look like those of the proxy."""
EXAMPLE: Final = """for example:\n  --arguments '{"url": "https://example.com"}'"""


class CannotTry(Exception):
    """The story cannot go on; the text says why."""


def attempt(loaded: Loaded, seen: ClientView, skill: str | None, call: str | None, arguments: str | None) -> int:
    """Tell the story of one skill to the client of `seen`.

    0 when every step succeeded, 1 otherwise, 2 when that skill or call cannot be.
    """
    console = Console(highlight=False)
    wanted: _Wanted | None = None
    try:
        wanted = _Wanted(_choose(loaded, seen, skill), call, _parsed(call, arguments))
        good = anyio.run(partial(_story, console, loaded, seen, wanted))
    except CannotTry as problem:
        console.print(_shown(str(problem)))
        return LIVE_PROBLEM if wanted else REFUSED
    return GOOD if good else LIVE_PROBLEM


@dataclass(frozen=True)
class _Wanted:
    skill: str
    call: str | None
    arguments: Json | None


def _parsed(call: str | None, arguments: str | None) -> Json | None:
    if arguments is None:
        return None
    if call is None:
        raise CannotTry("--arguments goes with --call: say which tool they are for.")
    try:
        given = jsonc.parse(arguments)
    except jsonc.NotJson as error:
        raise CannotTry(f"--arguments: {error}; {EXAMPLE}") from None
    if not is_json(given):
        raise CannotTry(f"--arguments must be a JSON object; {EXAMPLE}")
    return given


def _choose(loaded: Loaded, seen: ClientView, wanted: str | None) -> str:
    by_id, skills = seen.catalogue.by_id, seen.catalogue.skills
    if wanted is not None and wanted in loaded.catalogue.by_id and wanted not in by_id:
        raise CannotTry(f"Skill {wanted} is not for {seen.name}; {did_you_mean(wanted, by_id)}")
    if wanted is not None and wanted not in by_id:
        raise CannotTry(f"There is no skill {wanted}; {did_you_mean(wanted, by_id)}")
    if not skills:
        raise CannotTry(f"There is no skill in {loaded.path} that {seen.name} may use.")
    # One that is not active yet shows more; one that is shows at least its tools. What hooks do is done in earnest.
    ranked = sorted(skills, key=lambda skill: (skill.hooked, not skill.tools, skill.id in seen.state.active))
    chosen_one = ranked[0].id if wanted is None else wanted
    if ended := _ended_in_earnest(seen, activated(seen.catalogue, seen.state, chosen_one)):
        raise CannotTry(
            f"Skill {chosen_one} would take the place of {', '.join(ended)}, and hooks of that run in earnest; "
            "name another skill with --skill."
        )
    return chosen_one


async def _story(console: Console, loaded: Loaded, seen: ClientView, wanted: _Wanted) -> bool:
    """Connect to the program itself, in a process of its own, and tell what its client sees; whether all went well.

    Raises:
        CannotTry: the story broke off.
    """
    serve = ["-m", "proxy", "serve", "--config", str(loaded.path.resolve()), "--log-level", "warning"]
    program = StdioServerParameters(
        command=sys.executable,
        args=[*serve, *_as_client(seen.scope)],
        env=dict(os.environ),
    )
    me = Implementation(name="mcp-skill-proxy-try", version=__version__)
    problem: CannotTry | None = None
    good = False
    try:
        async with (
            Client(program, client_info=me) as client,
            client.listen(tools_list_changed=True) as news,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(_reread, client, news)
            try:
                good = await _tell(console, client, loaded, seen, wanted)
            except CannotTry as met:
                problem = met  # raised outside, where no task group wraps it
            tasks.cancel_scope.cancel()
    except ExceptionGroup as failed:
        raise CannotTry("The proxy did not start, or it ended; what it said stands above.") from failed
    if problem is not None:
        raise problem
    return good


def _as_client(scope: ScopeId) -> list[str]:
    """The options by which a proxy on stdio has the client of `scope`, on a copy of what is remembered of it."""
    if scope.kind == "process":
        return []
    namespace = [f"--namespace={scope.name}"] if scope.kind == "namespace" else []
    return ["--trial", *namespace, *([] if scope.user is None else [f"--principal={scope.user}"])]


async def _reread(client: Client, news: Subscription) -> None:
    """Read the list of tools again whenever it has changed, as clients do for their models."""
    async for _ in news:
        await _tools(client)


async def _tell(console: Console, client: Client, loaded: Loaded, seen: ClientView, wanted: _Wanted) -> bool:
    catalogue = seen.catalogue
    skill = catalogue.by_id[wanted.skill]
    called = f"[bold]{_shown(skill.id)}[/]"
    who = "A client" if seen.scope.kind == "process" else _shown(f"The client of {seen.name}")
    console.print(f"{who} connects to [bold]{_shown(str(loaded.path))}[/] and lists its tools:")
    if seen.note:
        console.print(_shown(f"(What is remembered of it cannot be read: {seen.note})"))
    before = await _tools(client)
    _show(console, catalogue, before)
    if skill.id in seen.state.active:
        since = "already" if seen.remembered else "from the start"
        console.print(f"\nSkill {called} is active {since}; it reads its guide, and what it can use:")
        await _switch(console, client, "read", skill.id)
    else:
        console.print(f"\nIt activates skill {called}:")
    activation = await _switch(console, client, "activate", skill.id)
    console.print("\nNow its list is:")
    after = await _tools(client)
    _show(console, catalogue, after)
    ready = not _section(activation, NOT_READY_HEADING)
    brought = _named(_section(activation, TOOLS_HEADING))
    called_well = await _use(console, client, after, brought, wanted, skill, ready=ready)
    if skill.pinned:
        console.print(f"\nSkill {called} is pinned: it cannot be offloaded.")
    elif _ended_in_earnest(seen, offloaded(seen.catalogue, seen.state, skill.id)):
        console.print(
            f"\nSkill {called} stays active for the client: offloading it here would run its hooks in earnest."
        )
    else:
        console.print(f"\nIt offloads skill {called}:")
        await _switch(console, client, "offload", skill.id)
        left = await _tools(client)
        console.print(f"\nAnd its list is {'again' if _names(left) == _names(before) else 'now'}:")
        _show(console, catalogue, left)
    await _estimate(console, client, seen, before, after, activation)
    return ready and called_well


def _ended_in_earnest(seen: ClientView, after: ScopeState | Blocked) -> list[str]:
    """The skills that `after` ends and whose hooks would run, though they stay active for the client."""
    if not seen.remembered or isinstance(after, Blocked):
        return []
    return [skill.id for skill in gone(seen.catalogue, seen.state, after) if skill.on_offload]


async def _tools(client: Client) -> list[Tool]:
    return (await client.list_tools()).tools


def _names(tools: list[Tool]) -> list[str]:
    return [tool.name for tool in tools]


def _show(console: Console, catalogue: Catalogue, tools: list[Tool]) -> None:
    """A list, one line for each tool; for `SKILL` what it offers."""
    longest = max(map(len, _names(tools)), default=0)
    offers = f"{', '.join(actions(catalogue))} skills: {', '.join(catalogue.by_id)}"
    for tool in tools:
        about = offers if tool.name == SKILL else (tool.description or "").strip().split("\n")[0]
        line = Text.assemble("  ", (printable(tool.name).ljust(longest), "cyan"), "  ", printable(about))
        console.print(line, no_wrap=True, overflow="ellipsis")


def _shown(text: str) -> str:
    """`text` of others as it can stand in a line of ours: without orders to the terminal, and without markup."""
    return escape(printable(text, lines=True))


async def _switch(console: Console, client: Client, action: str, skill: str) -> CallToolResult:
    """Activate, read or offload a skill.

    Raises:
        CannotTry: it failed.
    """
    result = await _call(console, client, SKILL, {"action": action, "skill_name": skill})
    if result is None or result.is_error:
        raise CannotTry("That failed, see above.")
    return result


async def _call(console: Console, client: Client, name: str, arguments: Json) -> CallToolResult | None:
    """Call a tool and show its result; None where the call itself failed, which is said."""
    try:
        result = await client.call_tool(name, dict(arguments))
    except MCPError as error:
        console.print(f"The call failed: {_shown(error.message)}")
        return None
    except (ValueError, RuntimeError):  # as the SDK says that a result fits neither its models nor the output schema
        console.print(
            "The server's result is not one that this client can read: it is not as MCP, or its schema, has it."
        )
        return None
    text = printable(_text(result), lines=True).strip("\n")
    shown = text if len(text) <= SHOWN else text[:SHOWN] + f"\n… ({len(text) - SHOWN} more characters)"
    console.print(Panel(_shown(shown), border_style="red" if result.is_error else "dim"))
    return result


def _section(result: CallToolResult, heading: str) -> str:
    """The paragraph below a heading of an activation's result; empty where there is none."""
    paragraphs = _QUOTED.sub("…", _text(result)).split("\n\n")
    return next((text.removeprefix(heading) for text in paragraphs if text.startswith(heading)), "")


def _text(result: CallToolResult) -> str:
    return "\n".join(block.text if isinstance(block, TextContent) else f"[{block.type}]" for block in result.content)


def _named(tools: str) -> set[str]:
    """The tools that a section names: a line for each, or all in one."""
    lines = [line.removeprefix("- ").partition(":")[0] for line in tools.splitlines() if line.startswith("- ")]
    return {*lines} or {name.strip() for name in tools.split(",")}


async def _use(
    console: Console,
    client: Client,
    tools: list[Tool],
    brought: set[str],
    wanted: _Wanted,
    skill: Skill,
    *,
    ready: bool,
) -> bool:
    """Call the tool that was asked for, else one that the skill brought; whether nothing failed.

    Raises:
        CannotTry: there is no such tool.
    """
    by_name = {tool.name: tool for tool in tools}
    if wanted.call is not None and wanted.call not in by_name:
        raise CannotTry(f"\nThere is no tool {wanted.call}; {did_you_mean(wanted.call, by_name)}")
    own = [tool for tool in tools if tool.name in brought]
    if wanted.call is not None:
        tool = by_name[wanted.call]
        arguments = arguments_for(tool) if wanted.arguments is None else wanted.arguments
    elif own:
        tool, arguments = chosen(own)
    else:
        console.print("\nThe skill brought no tools" + ("." if ready else '; see "Not ready" above.'))
        for deed in map(_shown, deeds(skill)):
            console.print(f"By itself it does this: {deed}.")
        return True
    if arguments is None:
        why = "needs arguments" if arguments_for(tool) is None else "may destroy something"
        console.print(_shown(f"\n(No call: {tool.name} {why}; give\n  {how_to_call(tool)})"))
        return wanted.call is None
    given = json.dumps(arguments, ensure_ascii=False)
    console.print(f"\nIt calls [bold]{_shown(tool.name)}[/] with {_shown(given)}:")
    result = await _call(console, client, tool.name, arguments)
    if result is not None and result.is_error:
        console.print("The tool answered with an error.")
    return result is not None and not result.is_error


async def _estimate(
    console: Console,
    client: Client,
    seen: ClientView,
    before: list[Tool],
    after: list[Tool],
    activation: CallToolResult,
) -> None:
    """Compare what the lists and the activation cost in the model's context with what the tools of all skills would."""
    missing: set[str] = set()

    async def activate(skill: str) -> None:
        result = await client.call_tool(SKILL, {"action": "activate", "skill_name": skill})
        if result.is_error:
            missing.add(f"skill {skill}")
        missing.update(f"server {server}" for server in _NOT_READY.findall(_section(result, NOT_READY_HEADING)))

    catalogue = seen.catalogue
    async with anyio.create_task_group() as tasks:
        for skill in catalogue.skills:
            ended = _ended_in_earnest(seen, activated(catalogue, seen.state, skill.id))
            if ended or any(catalogue.by_id[one].hooked for one in (skill.id, *required(catalogue, skill.id))):
                missing.add(f"skill {skill.id} (hooks)")
            else:
                tasks.start_soon(activate, skill.id)
    ours = {SKILL, SKILL_CALL, SKILL_INVOKE, *map(catalogue.naming.tool_of, catalogue.naming.tools)}
    known = {tool.name: tool for tool in (*after, *await _tools(client))}  # hooks keep a skill from being counted below
    everything = [tool for name, tool in known.items() if name not in ours]
    nothing_to_compare = not everything and any(acts(skill) for skill in catalogue.skills)
    once = len(_text(activation)) // 4
    table = Table(box=None, padding=(0, 2))
    table.add_column("in the model's context")
    table.add_column("tools", justify="right")
    table.add_column("tokens (estimate)", justify="right")
    for what, tools in (("the list at the start", before), ("the list with the skill", after)):
        table.add_row(what, str(len(tools)), f"{_tokens(tools):,}")
    table.add_row("the activation's result, once", "", f"{once:,}")
    if not nothing_to_compare:
        table.add_row("the tools of all skills at once", str(len(everything)), f"{_tokens(everything):,}")
    console.print()
    console.print(table)
    if nothing_to_compare:
        console.print("Nothing is compared: what skills do by themselves, by hooks or steps, needs no tools in a list.")
        return
    first, then = (_saving(_tokens(everything) - _tokens(tools)) for tools in (before, after))
    console.print(
        f"Against the tools of all skills at once the list saves {first} at the start and {then} with the skill; "
        f"the activation's result added about {once:,} once (an estimate: characters / 4)."
    )
    if missing:
        names = _shown(", ".join(sorted(missing)))
        console.print(f"Not counted (not ready, impossible beside others, or with hooks): {names}.")


def _saving(tokens: int) -> str:
    return f"about {tokens:,} tokens" if tokens > 0 else "nothing"


def _tokens(tools: list[Tool]) -> int:
    return sum(len(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in tools) // 4
