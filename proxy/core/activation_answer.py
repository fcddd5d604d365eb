"""The answer to an activation: guide, tools and what is not ready, within what clients hand on to their model.

It is text alone: beside structured content, some clients hand on both and some the JSON alone (docs/clients.md).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from proxy.core.catalogue import Skill
from proxy.core.decision import Route
from proxy.core.foreign_text import json_line, one_line, quoted
from proxy.core.mcp_apps import is_for_pages_only
from proxy.core.texts import clipped, fitting, shortened, size
from proxy.core.wording import Problem, answer, fenced, fenced_guide, signature, skill_call, standing

ANSWER_LIMIT: Final = 10_000
"""Approximate limit of the whole answer, in bytes: clients cut at 12,000, some of them in the middle."""
NAMES_LIMIT: Final = 4_000
"""Longest list of the names of tools, in bytes."""
NOT_READY_LIMIT: Final = 1_500
"""Longest list of servers that are not ready, in bytes."""
PROBLEM_LIMIT: Final = 300
"""Longest line on one of them, in characters."""
SCHEMAS_SHARE: Final = 2_000
"""Bytes for what tools take that a long guide leaves free."""
INSTRUCTIONS_LIMIT: Final = 8 * 1024
"""Longest excerpt of the instructions of one server, in bytes."""
INSTRUCTIONS_SHARE: Final = 2_000
"""Bytes for those of all servers that a long guide leaves free, and for those of one that others leave free."""
_READ: Final = 8 * INSTRUCTIONS_LIMIT
"""Characters that are looked at of them: much of that may be nothing to be seen."""
LEAST_OF_INSTRUCTIONS: Final = 200
"""Bytes below which an excerpt of them is left out."""
LINE_LIMIT: Final = 120
"""Characters of a tool's description where only its first line is given."""
TOOLS_HEADING: Final = "Tools you can use now:"
NOT_READY_HEADING: Final = "Not ready:"
_GAP: Final = len("\n\n")
_LEFT_OUT_LIMIT: Final = 200
"""Longest list of the servers whose instructions do not fit, in bytes."""

CALL_ROUTE: Final = (
    'If one of them is not in your own list of tools, call it as SKILL_CALL({"tool": NAME, "arguments": {...}}).'
)


@dataclass(frozen=True)
class ActivationContent:
    """The content of an activation's answer."""

    guide: str = ""
    """The guide of the skill, whole."""

    tools: Sequence[Route] = ()
    """The tools that can be used now."""

    instructions: Sequence[tuple[str, str]] = ()
    """What servers themselves say of their tools, each with the server's key; not what was told before."""

    problems: Sequence[Problem] = ()
    """The servers that are not ready."""

    notes: Sequence[str] = ()
    """What else is to be said, a paragraph each."""

    changed: str = ""
    """What is to be said of changed definitions."""


def activation(
    skill: Skill, content: ActivationContent, current: Sequence[str], *, listed: bool, call_route: bool
) -> dict[str, Any]:
    """The result of activating `skill`; `current` are the active skills in order of activation.

    `listed`: the caller has read its list since, so that it has the tools' definitions. `call_route`: it has
    `SKILL_CALL`.
    """
    tools = _for_models(content.tools)
    before = [f"skill {skill.id} activated, current skills: {list(current)!r}"]
    after = [*_nothing(skill, content, tools), *_not_ready(content.problems), *filter(None, [content.changed])]
    names = [_names(skill, tools)] if tools else []
    how = [CALL_ROUTE] if tools and call_route and not listed else []
    rest = [_how_to_read(skill)] if tools and not listed else []
    room = ANSWER_LIMIT - _size_of([*before, *content.notes, *names, *how, *rest, *after])
    forms = [] if listed else [(_with_schema(route), _line(route)) for route in tools]
    kept = _size_of(_schemas(forms, [], SCHEMAS_SHARE))
    room -= kept
    for_servers = max(room - _size_of([fenced_guide(skill, content.guide)]), min(room, INSTRUCTIONS_SHARE))
    from_servers = _from_servers(content.instructions, for_servers)
    room -= _size_of(from_servers)
    more = f"Truncated: {skill_call('read', skill.id)} shows the whole guide"
    guide = fenced_guide(skill, content.guide, room - _GAP, more)
    room += kept - _size_of([guide])
    told = _lines(names, tools, room) if listed else [*names, *how, *_schemas(forms, rest, room)]
    return answer("\n\n".join([*before, guide, *content.notes, *from_servers, *told, *after]))


def activation_again(
    skill: Skill, content: ActivationContent, current: Sequence[str], *, call_route: bool
) -> dict[str, Any]:
    """The result of activating a skill that is active: its tools by name, and how to read the guide again."""
    tools = _for_models(content.tools)
    parts = [f"skill {skill.id} already activated, current skills: {list(current)!r}"]
    if tools:
        parts += [_names(skill, tools), *([CALL_ROUTE, _how_to_read(skill)] if call_route else [])]
    parts += [
        *_not_ready(content.problems),
        *filter(None, [content.changed]),
        f"{skill_call('read', skill.id)} shows its guide.",
    ]
    return answer("\n\n".join(parts))


def tool_schema(skill: Skill, route: Route) -> dict[str, Any]:
    """The result of the `read` action for one tool of a skill, with its whole schema."""
    return answer(f"skill {skill.id}, tool {route.exposed}:\n{_with_schema(route)}")


def _for_models(tools: Iterable[Route]) -> list[Route]:
    """The tools without those that only the pages of their server's app are meant to call."""
    return [route for route in tools if not is_for_pages_only(route.definition)]


def _nothing(skill: Skill, content: ActivationContent, tools: Sequence[Route]) -> Iterator[str]:
    if not tools and not content.problems and (skill.tools or skill.workflow is None):
        yield "No tools are available." if skill.tools else "This skill brings a guide and no tools."


def _not_ready(problems: Sequence[Problem]) -> Iterator[str]:
    lines = [shortened(f"- {standing(problem)}", PROBLEM_LIMIT) for problem in problems]
    shown = fitting(lines, NOT_READY_LIMIT)
    more = [f"- … and {len(lines) - len(shown):,} more"] if len(shown) < len(lines) else []
    if lines:
        yield "\n".join([NOT_READY_HEADING, *shown, *more])


def _size_of(parts: Iterable[str]) -> int:
    """Bytes that parts take, each with the gap to the next one."""
    return sum(size(part) + _GAP for part in parts)


def _from_servers(instructions: Sequence[tuple[str, str]], room: int) -> list[str]:
    """What servers themselves say about their tools, as far as it fits into `room` bytes; and whose does not."""
    told: list[str] = []
    left_out: list[str] = []
    for place, (server, text) in enumerate(instructions):
        if not quoted(text[:_READ]):
            continue
        label = f"What server {server} itself says about its tools:\n"
        share = max(INSTRUCTIONS_SHARE, room // (len(instructions) - place))
        left = min(room - size(label) - _LEFT_OUT_LIMIT - 2 * _GAP, share, INSTRUCTIONS_LIMIT)
        if left < LEAST_OF_INSTRUCTIONS:
            left_out.append(server)
            continue
        told.append(label + fenced("server_instructions", text[:_READ], left, "Truncated", foreign=True))
        room -= _size_of(told[-1:])
    if left_out:
        named = f"Instructions left out for lack of space, of servers: {', '.join(left_out)}"
        told.append(named if size(named) <= _LEFT_OUT_LIMIT else f"{clipped(named, _LEFT_OUT_LIMIT - size('…'))}…")
    return told


def _names(skill: Skill, tools: Sequence[Route]) -> str:
    """All tools by name, as far as they go."""
    names = [route.exposed for route in tools]
    shown = names[: len(fitting([f"{name}, " for name in names], NAMES_LIMIT))]
    told = f"{TOOLS_HEADING} {', '.join(shown)}"
    if len(shown) == len(names):
        return told
    return f"{told}, … and {len(names) - len(shown):,} more: {_read_one(skill)} searches by a part of the name."


def _lines(names: list[str], tools: Sequence[Route], room: int) -> list[str]:
    """The tools, one line each, where they fit into `room` bytes in place of their names; else these alone."""
    lines = ["\n".join([TOOLS_HEADING, *(_line(route, signed=False) for route in tools)])]
    return lines if tools and _size_of(lines) <= room + _size_of(names) else names


def _schemas(forms: Iterable[tuple[str, str]], rest: list[str], room: int) -> list[str]:
    """What each tool takes: its whole schema where that fits into `room` bytes, else a line, if that does.

    `forms`: each tool with its schema, and as a line. `rest`: how to read what is missing, told where something is; it
    has its room already.
    """
    told: list[str] = []
    whole = True
    room -= _GAP
    for with_schema, line in forms:
        form = next((form for form in (with_schema, line) if size(form) + 1 <= room), None)
        whole = whole and form is with_schema
        if form is not None:  # later ones may still fit
            room -= size(form) + 1
            told.append(form)
    return [*(["\n".join(told)] if told else []), *([] if whole else rest)]


def _how_to_read(skill: Skill) -> str:
    return f"{_read_one(skill)} shows the input schema of a tool."


def _read_one(skill: Skill) -> str:
    return skill_call("read", skill.id, tool="NAME")


def _with_schema(route: Route) -> str:
    """A tool with all that its server says of it, in quoted lines, and its input schema in one line."""
    said = quoted(_description(route))
    schema = json_line(route.definition.get("inputSchema", {}))
    return "\n".join([f"- {route.exposed}", *([said] if said else []), f"  input schema: {schema}"])


def _line(route: Route, *, signed: bool = True) -> str:
    """A tool in one line, with the first line of its description."""
    text = _description(route).strip()
    first = one_line(text.splitlines()[0], LINE_LIMIT) if text else ""
    called = route.exposed + (one_line(signature(route.definition.get("inputSchema")), ANSWER_LIMIT) if signed else "")
    return f"- {called}: {first}" if first else f"- {called}"


def _description(route: Route) -> str:
    text = route.definition.get("description")
    return text if isinstance(text, str) else ""
