"""Every text the proxy says to a model or a client: `SKILL`'s answers and refusals (design rules 7, 16 and 18)."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from heapq import nlargest
from itertools import pairwise
from typing import Any, Final

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.decision import Absence, Missing, Route
from proxy.core.inventory import is_json, items
from proxy.core.texts import shortened, size

HOW_TO_USE = (
    "Skills are guides, most with tools. Before a task, see which skill clearly applies: the most specific one where "
    "several do; none where none does. Call SKILL with action activate and its id as skill_name: its guide and tools "
    "are then yours to use. Action read shows a guide without activating. Offload a skill when done with it."
)
INSTRUCTIONS = (
    "Tools here come in skills. Call the tool SKILL (action: activate, skill_name: one of those its description "
    "lists) to get a skill's guide and tools, and SKILL (action: offload) when you are done with them."
)
"""The server's `instructions`, at most 512 characters: some clients keep no more."""

SCHEMA_BUDGET = 8 * 1024
"""Bytes of input schemas in one activation result; tools beyond it get a one-line signature."""

CALL_ROUTE = (
    'If one of them is not in your own list of tools, call it as SKILL_CALL({"tool": NAME, "arguments": {...}}).'
)

LINE_LIMIT = 120
"""Characters of a tool's description where only its first line is given."""

SHOWN: Final = 50
"""Skills that are named where one does not exist."""
_MOST_COMPARED, _LONGEST_COMPARED = 200, 128
"""Names, and characters of each, that are compared with one that does not exist: it takes the square of its time."""

_OUR_TAGS = re.compile(
    r"<(?=[^\w<>]*+(?:skills_guide|skill_guide|skills_info|skill|skill_name|skill_desc|skill_file|server_instructions)\b)",
    re.IGNORECASE,
)
"""Whatever stands before the name: spaces, a slash, characters that nobody sees."""


def without_our_tags(text: str) -> str:
    """`text` of a user or a server with our own tags in it made harmless, so that it cannot end or imitate them."""
    return _OUR_TAGS.sub("&lt;", text)


def nearest(wanted: str, known: Iterable[str]) -> list[str]:
    """`known`, those most like `wanted` first, above all where one begins with the other; the others in their order."""
    names = list(known)
    close = alike(wanted, names)
    return [*close, *(name for name in names if name not in close)]


def alike(wanted: str, known: Iterable[str]) -> list[str]:
    """Of `known` at most three that are like `wanted`, as `nearest` has them; very long ones are like nothing."""
    asked = wanted.casefold()
    if len(asked) > _LONGEST_COMPARED:
        return []
    folded = {name.casefold(): name for name in reversed([*known]) if len(name) <= _LONGEST_COMPARED}
    compared = [*folded]
    if len(compared) > _MOST_COMPARED:
        pairs = {*pairwise(asked)}
        shared = {name: (name == asked, len(pairs.intersection(pairwise(name)))) for name in compared}
        compared = nlargest(_MOST_COMPARED, compared, key=shared.__getitem__)
    found = get_close_matches(asked, compared, n=_MOST_COMPARED, cutoff=0.5)
    found.sort(key=lambda name: not (name.startswith(asked) or asked.startswith(name)))
    return [folded[name] for name in found[:3]]


@dataclass(frozen=True)
class Problem:
    """A server that an activation needed and that is not ready.

    `state`: one word. `reason`: one line. `next_try`: the seconds until it is tried again, where it is.
    """

    server: str
    state: str
    reason: str
    next_try: float | None = None

    @property
    def structured(self) -> dict[str, Any]:
        """The problem as structured content."""
        told: dict[str, Any] = {"server": self.server, "state": self.state, "reason": self.reason}
        return told if self.next_try is None else {**told, "next_try": math.ceil(self.next_try)}


@dataclass(frozen=True)
class Instructions:
    """A server's own instructions."""

    server: str
    text: str


def result(text: str, structured: dict[str, Any], *, error: bool = False) -> dict[str, Any]:
    """A `tools/call` result that says the same as text and as structured content."""
    answer: dict[str, Any] = {"content": [{"type": "text", "text": text}], "structuredContent": structured}
    if error:
        answer["isError"] = True
    return answer


def refusal(text: str) -> dict[str, Any]:
    """A `tools/call` result with the error flag, for what the model can put right by itself."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def skill_call(action: str, skill: str) -> str:
    """A complete call of `SKILL`, to be copied."""
    return f"SKILL({json.dumps({'action': action, 'skill_name': skill}, ensure_ascii=False)})"


def unknown_tool(name: str) -> str:
    """The one wording for what does not exist or what the caller may not know of."""
    return f"Unknown tool: {name}"


_ABSENT = {
    Absence.INACTIVE: "is not active",
    Absence.OFFLOADED: "was offloaded",
    Absence.EXPIRED: "was offloaded since nobody used it",
}


def not_active(name: str, missing: Missing) -> str:
    """The refusal of a tool that a skill grants but that is not active now."""
    was = _ABSENT[missing.why]
    call = skill_call("activate", missing.skill)
    return f"Tool {name} {was}: it comes with skill {missing.skill}. Call {call} first, then call {name} again."


def not_available(name: str, server: str, reason: str) -> str:
    """The refusal of a tool whose server cannot be reached; nothing was sent."""
    why = without_our_tags(reason)
    return f"Tool {name} cannot be called: server {server} is not available ({why}). The call was not sent."


def not_for_step(server: str, tool: str) -> str:
    """Why a step cannot call a tool: the server has none of that name, or it may not call it."""
    return f"server {server} offers no tool {tool} that this step may call"


def bound_arguments(name: str, given: Mapping[str, str]) -> str:
    """The refusal of a call that gives arguments that skills fill in; `given`: those, each with its skill."""
    told = ", and ".join(f"argument {argument} is set by skill {skill}" for argument, skill in given.items())
    which = "it" if len(given) == 1 else "them"
    return f"Tool {name} was not called: {told}. Leave {which} out, and call {name} again."


def unfilled(name: str, skill: str, argument: str, reason: str) -> str:
    """The refusal of a call for which an argument that a skill fills in cannot be worked out."""
    why = without_our_tags(reason)
    what = f"skill {skill} sets its argument {argument}, and that failed ({why})"
    return f"Tool {name} cannot be called: {what}. The call was not sent."


def call_lost(name: str, server: str, reason: str) -> str:
    """The answer to a call during which its server was lost."""
    return (
        f"Server {server} was lost while it ran {name} ({without_our_tags(reason)}). It is unknown whether the call "
        "took effect: check before you call it again."
    )


def call_unanswered(name: str, server: str, reason: str, *, ran: bool) -> str:
    """The answer to a call whose answer held no response; `ran`: whether it may have run."""
    effect = "It is unknown whether the call took effect: check before you call it again." if ran else "It did not run."
    return f"Server {server} gave no response to {name} ({without_our_tags(reason)}). {effect}"


def call_timed_out(name: str, server: str, limit: float) -> str:
    """The answer to a call that its server left without result or progress for too long."""
    return (
        f"Server {server} sent neither a result nor progress for {name} within {limit:g} s; the call was cancelled. "
        "(The limit is the server's `timeout`.)"
    )


@dataclass(frozen=True)
class Brought:
    """What an activation brings: the guide, tools that can be used now, and what is to be known of their servers.

    `besides`: more to say, in words and as structured content, by key.
    """

    guide: str
    tools: Sequence[Route] = ()
    instructions: Sequence[Instructions] = ()
    problems: Sequence[Problem] = ()
    besides: Mapping[str, tuple[str, Any]] = field(default_factory=dict[str, tuple[str, Any]])


def activation(
    skill: Skill, brought: Brought, current: Sequence[str], *, again: bool, with_schemas: bool, call_route: bool
) -> dict[str, Any]:
    """The result of activating `skill`; `current` are the active skills in order of activation."""
    listed = described(brought.tools, with_schemas=with_schemas)
    head = f"skill {skill.id} {'already ' if again else ''}activated, current skills: {list(current)!r}"
    parts = [head, f"<skill_guide>{without_our_tags(brought.guide)}</skill_guide>"]
    parts += [words for words, _ in brought.besides.values()]
    parts += [
        f"What server {told.server} itself says about its tools:\n"
        f"<server_instructions>{without_our_tags(told.text)}</server_instructions>"
        for told in brought.instructions
    ]
    if listed:
        parts.append("Tools you can use now:\n" + "\n".join(_line(tool) for tool in listed))
        if call_route:
            parts.append(CALL_ROUTE)
    elif not brought.problems and (skill.tools or skill.workflow is None):
        parts.append("No tools are available." if skill.tools else "This skill brings a guide and no tools.")
    if brought.problems:
        parts.append("Not ready:\n" + "\n".join(f"- {_standing(problem)}" for problem in brought.problems))
    structured: dict[str, Any] = {
        "action": "activate",
        "skill": skill.id,
        "current_skills": list(current),
        "guide": brought.guide,
        "tools": listed,
        "problems": [problem.structured for problem in brought.problems],
        "message": head,
        **{key: value for key, (_, value) in brought.besides.items()},
    }
    if listed and call_route:
        structured["call_route"] = CALL_ROUTE
    if brought.instructions:
        structured["server_instructions"] = {told.server: told.text for told in brought.instructions}
    return result("\n\n".join(parts), structured)


def offloading(skill: str, current: Sequence[str], *, was_active: bool, besides: Sequence[str]) -> dict[str, Any]:
    """The result of offloading; what was not active is as wished, so it is no error.

    `besides`: the skills that went with it, since nobody else requires them.
    """
    done = f"skill {skill} {'offloaded' if was_active else 'not found'}, current skills: {list(current)!r}"
    structured = {"action": "offload", "skill": skill, "current_skills": list(current), "message": done}
    if besides:
        structured["also_offloaded"] = list(besides)
        done += f"\nOffloaded with it, since no other skill requires them: {', '.join(besides)}."
    return result(done, structured)


def skill_not_found(action: str, wanted: str, catalogue: Catalogue, current: Sequence[str]) -> dict[str, Any]:
    """The answer for a skill that does not exist: what there is instead, the nearest first."""
    by_name = [skill.id for skill in catalogue.skills if skill.name.casefold() == wanted.casefold()]
    close = list(dict.fromkeys([*by_name, *nearest(wanted, catalogue.by_id)]))[:SHOWN]
    more = len(catalogue.skills) - len(close)
    rest = f""" and {more:,} more: SKILL({{"action": "list"}}) shows them""" if more else ""
    structured: dict[str, Any] = {"action": action, "skill": wanted, "current_skills": list(current)}
    structured |= {"available_skills": close, "total": len(catalogue.skills)}
    return result(f"skill not found: {wanted!r}. Available skills: {close!r}{rest}", structured, error=True)


def tool_schema(skill: Skill, current: Sequence[str], route: Route) -> dict[str, Any]:
    """The result of the `read` action for one tool of a skill."""
    (tool,) = described([route], with_schemas=True, budget=None)
    text = f"skill {skill.id}, tool {route.exposed}:\n{_line(tool)}"
    return result(text, {"action": "read", "skill": skill.id, "current_skills": list(current), "tool": tool})


def tool_not_in_skill(skill: Skill, wanted: str, known: Iterable[str], problems: Sequence[Problem]) -> dict[str, Any]:
    """The answer to `read` for a tool that the skill does not grant, or that no server offers at the moment."""
    not_ready = "".join(f" Not ready: {_standing(problem)}." for problem in problems)
    return refusal(f"skill {skill.id} has no tool {wanted!r}. Its tools: {nearest(wanted, known)!r}.{not_ready}")


def bad_arguments(what: str, actions: Sequence[str]) -> dict[str, Any]:
    """The answer to a call of `SKILL` that cannot be understood."""
    return refusal(f'{what} SKILL takes {{"action": one of {list(actions)!r}, "skill_name": the id of a skill}}.')


def described(
    tools: Sequence[Route], *, with_schemas: bool, budget: int | None = SCHEMA_BUDGET
) -> list[dict[str, Any]]:
    """Tools as an activation result lists them: with input schemas while the budget (bytes) lasts, then signatures."""
    left = budget
    out: list[dict[str, Any]] = []
    for route in tools:
        tool: dict[str, Any] = {"name": route.exposed, "server": route.server, "tool": route.original}
        text = route.definition.get("description")
        if isinstance(text, str) and text:
            tool["description"] = text if with_schemas else _first_line(text)
        if with_schemas:
            schema: Any = route.definition.get("inputSchema", {})
            needed = size(json.dumps(schema, ensure_ascii=False) + tool.get("description", ""))
            if left is None or needed <= left:
                tool["inputSchema"] = schema
                left = None if left is None else left - needed
            else:
                left = 0
                tool["signature"] = signature(schema)
                if "description" in tool:
                    tool["description"] = _first_line(tool["description"])
        out.append(tool)
    return out


_STANDING = {"failed": "failed", "disabled": "is switched off"}


def _standing(problem: Problem) -> str:
    """How a server stands, in words: `server X failed: why`."""
    how = _STANDING.get(problem.state, f"is {problem.state}")
    again = "" if problem.next_try is None else f" (tried again in {math.ceil(problem.next_try)} s)"
    return f"server {problem.server} {how}: {without_our_tags(problem.reason)}{again}"


def signature(schema: object) -> str:
    """An input schema in one line: `(city: string, days?: integer)`."""
    properties = schema.get("properties") if is_json(schema) else None
    if not is_json(schema) or not is_json(properties):
        return "(...)"
    needed = items(schema.get("required"))
    parts = (f"{name}{'' if name in needed else '?'}: {kind_of(of)}" for name, of in properties.items())
    return " ".join(f"({', '.join(parts)})".splitlines())


def kind_of(schema: object) -> str:
    """The types that a schema names, in a word."""
    kind = schema.get("type") if is_json(schema) else None
    return kind if isinstance(kind, str) else "|".join(map(str, items(kind))) or "any"


def _line(tool: dict[str, Any]) -> str:
    text = without_our_tags(tool.get("description", ""))
    line = f"- {tool['name']}{without_our_tags(tool.get('signature', ''))}" + (f": {text}" if text else "")
    if "inputSchema" in tool:
        line += f"\n  input schema: {without_our_tags(json.dumps(tool['inputSchema'], ensure_ascii=False))}"
    return line


def _first_line(text: str) -> str:
    return shortened(text.strip().splitlines()[0] if text.strip() else "", LINE_LIMIT)
