"""The definitions of what runs skills: `SKILL_INVOKE`, and the skills that are tools of their own while active.

What they say of themselves (MCP's tool annotations) follows from what the servers say of the tools that are called.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.foreign_text import without_our_tags
from proxy.core.inventory import Inventory, Json, members_of
from proxy.core.published import described
from proxy.core.skill_tool import CUTS, DESCRIPTION_LIMIT, ENUM_LIMIT
from proxy.core.steps import Call, Step, Steps, calls
from proxy.core.texts import flat, size
from proxy.core.wording import signature

SKILL_INVOKE: Final = "SKILL_INVOKE"

_HOW: Final = (
    "Runs the steps of a skill in one call, and gives their one result. The skill need not be active, unless it says "
    "so here. SKILL with action read and the skill's id shows its parameters in full. Skills that can be run:"
)
_LEAST: Final = len("\n- x")
"""Bytes that a skill takes in the description, at least."""


def invoke_tool(catalogue: Catalogue, inventory: Inventory) -> dict[str, Any]:
    """The definition of `SKILL_INVOKE`, where a skill can be invoked; destructive unless all that is run only reads."""
    ids = [skill.id for skill in catalogue.invocable]
    name: dict[str, Any] = {"type": "string", "description": "The skill's id."}
    if len(ids) <= ENUM_LIMIT:
        name["enum"] = ids
    hints = annotations([step for skill in catalogue.invocable for step in _steps(skill)], catalogue, inventory)
    return {
        "name": SKILL_INVOKE,
        "title": "Run a skill",
        "description": _description(catalogue),
        "inputSchema": {
            "type": "object",
            "properties": {
                "skill_name": name,
                "arguments": {"type": "object", "description": "The skill's arguments, by its parameters."},
            },
            "required": ["skill_name"],
        },
        "annotations": {"title": "Run a skill", **hints, "destructiveHint": not hints["readOnlyHint"]},
    }


def skill_as_tool(skill: Skill, catalogue: Catalogue, inventory: Inventory) -> dict[str, Any]:
    """The definition of a skill that is a tool of its own."""
    title = flat(skill.name) or skill.id
    return {
        "name": catalogue.naming.tool_of(skill.id),
        "title": title,
        "description": described(skill),
        "inputSchema": parameters(skill),
        "annotations": {"title": title, **annotations(_steps(skill), catalogue, inventory)},
    }


def annotations(steps: Iterable[Step], catalogue: Catalogue, inventory: Inventory) -> dict[str, bool]:
    """MCP's hints on what `steps` do, and the steps of the skills that they invoke: of all together, the worst.

    A tool that is not known, or says nothing, may do anything.
    """
    hints = [_hints(call, inventory) for call in _all_calls(steps, catalogue)]
    read_only = all(_reads(each) for each in hints)
    return {
        "readOnlyHint": read_only,
        "destructiveHint": not all(_reads(each) or each.get("destructiveHint") is False for each in hints),
        "idempotentHint": all(_reads(each) or each.get("idempotentHint") is True for each in hints),
        "openWorldHint": not all(each.get("openWorldHint") is False for each in hints),
    }


def is_repeatable(step: Call, catalogue: Catalogue, inventory: Inventory) -> bool:
    """Whether a step does no harm twice: it says so, or all tools that it calls, also by skills, do."""
    return step.idempotent or all(
        call.idempotent or _reads(hints) or hints.get("idempotentHint") is True
        for call in _all_calls([step], catalogue)
        for hints in [_hints(call, inventory)]
    )


def hooks_harmless(catalogue: Catalogue, inventory: Inventory) -> bool:
    """Whether what is done by itself, when a skill or a scope begins or ends, only reads."""
    of_skills = (step for skill in catalogue.skills for step in (*skill.on_activate, *skill.on_offload))
    hooks = (*catalogue.on_start, *of_skills)
    return all(_reads(_hints(call, inventory)) for call in _all_calls(hooks, catalogue))


def _steps(skill: Skill) -> Steps:
    return () if skill.workflow is None else skill.workflow.steps


def parameters(skill: Skill) -> Json:
    """The JSON Schema of a skill's arguments; of any object where it has no workflow."""
    return {"type": "object"} if skill.workflow is None else skill.workflow.parameters


def _all_calls(steps: Iterable[Step], catalogue: Catalogue) -> Iterator[Call]:
    """Every call that these steps make or cause; those of a skill once. An absent skill is a call of nothing known."""
    seen: set[str] = set()
    due = [*calls(steps)]
    while due:
        call = due.pop()
        skill = catalogue.by_id.get(call.skill)
        if skill is None or skill.workflow is None:
            yield call
        elif skill.id not in seen:
            seen.add(skill.id)
            due += calls(skill.workflow.steps)


def _hints(call: Call, inventory: Inventory) -> Json:
    """What the server says of the tool that is called; nothing where that is not known."""
    offer = inventory.get(call.server)
    tools = () if offer is None else offer.tools
    return members_of(next((tool.get("annotations") for tool in tools if tool["name"] == call.tool), None))


def _reads(hints: Json) -> bool:
    return hints.get("readOnlyHint") is True


def _description(catalogue: Catalogue) -> str:
    """What can be run, at most `DESCRIPTION_LIMIT` bytes of UTF-8, as `SKILL` has its catalogue."""
    skills = catalogue.invocable
    for limit in (None, *CUTS) if len(skills) * _LEAST <= DESCRIPTION_LIMIT else ():
        whole = _listed(_HOW, (_entry(skill, limit) for skill in skills))
        if size(whole) <= DESCRIPTION_LIMIT:
            return whole
    how = f"{_HOW.removesuffix(':')} ({len(skills)} in all, more than fit here):"
    room = DESCRIPTION_LIMIT - size(how)
    entries: list[str] = []
    for skill in islice(skills, DESCRIPTION_LIMIT // _LEAST):
        entry = _named(skill)
        room -= size(f"\n{entry}")
        if room < 0:
            break
        entries.append(entry)
    return _listed(how, entries)


def _listed(how: str, entries: Iterable[str]) -> str:
    return "\n".join([how, *entries])


def _entry(skill: Skill, limit: int | None) -> str:
    """A skill in a line: how it is called and what it is for, which `limit` characters are given for each."""
    called = flat(signature(parameters(skill)), DESCRIPTION_LIMIT if limit is None else limit)
    said = flat(described(skill), DESCRIPTION_LIMIT if limit is None else limit)
    return without_our_tags(f"- {_id(skill)}{called}{_when(skill)}: {said}")


def _named(skill: Skill) -> str:
    return without_our_tags(f"- {_id(skill)}{_when(skill)}")


def _id(skill: Skill) -> str:
    return flat(skill.id, DESCRIPTION_LIMIT)


def _when(skill: Skill) -> str:
    return " (only while active)" if skill.workflow is not None and skill.workflow.needs_activation else ""
