"""The definitions of our own tools: `SKILL`, and `SKILL_CALL` for clients that do not re-read lists (section 5)."""

from collections.abc import Collection, Iterable
from html import escape
from itertools import islice
from typing import Any

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.texts import NAME_LIMIT, flat, shortened, size
from proxy.core.wording import HOW_TO_USE, without_our_tags

SKILL = "SKILL"
SKILL_CALL = "SKILL_CALL"

DESCRIPTION_LIMIT = 2000
"""Bytes of UTF-8, so that it holds in characters too: some clients cut there."""
ENUM_LIMIT = 50
"""Up to this many skills `skill_name` is an enum, then plain text."""
PAGE = 20
"""Skills on a page of the `list` action."""
CUTS = (160, 100, 60)
"""Characters to which names and descriptions are cut, one after the other, where they do not fit as they are."""
_LEAST = len('<skill id="x"/>')
"""Bytes that a skill takes in the description, at least."""

ALIASES = {"active_skill": "activate", "offload_skill": "offload"}

DROPS_LIST_CHANGES = ("claude-ai", "codex-mcp-client", "cursor-vscode")
"""What clients that drop or ignore list changes call themselves (`clientInfo.name`), by prefix."""


def actions(catalogue: Catalogue) -> tuple[str, ...]:
    """The actions that the configuration makes usable."""
    switchable = any(not skill.pinned for skill in catalogue.skills)
    return (*(("activate", "offload") if switchable else ()), "list", "read")


def skill_tool(
    catalogue: Catalogue, active: Collection[str], guidance: str | None = None, *, harmless: bool = True
) -> dict[str, Any]:
    """The definition of `SKILL` for a scope in which the skills `active` are active.

    `guidance`: how to choose skills, instead of our own words. `harmless`: whether what skills do by themselves when
    they begin and end only reads.
    """
    return {
        "name": SKILL,
        "title": "Skills",
        "description": description(catalogue, active, guidance),
        "inputSchema": {"type": "object", "properties": _properties(catalogue), "required": ["action"]},
        "annotations": {
            "title": "Skills",
            "readOnlyHint": False,
            "destructiveHint": not harmless,
            "idempotentHint": True,
            "openWorldHint": not harmless,
        },
    }


def _properties(catalogue: Catalogue) -> dict[str, Any]:
    """What `SKILL` takes; of what only some configurations have a use for, what this one has."""
    ids = [skill.id for skill in catalogue.skills]
    name: dict[str, Any] = {"type": "string", "description": "The skill's id. Needed for all actions but list."}
    if len(ids) <= ENUM_LIMIT:
        name["enum"] = ids
    properties: dict[str, Any] = {
        "action": {"type": "string", "enum": list(actions(catalogue))},
        "skill_name": name,
        "tool": {"type": "string", "description": "With read: show this one tool's input schema."},
    }
    if any(skill.folder is not None for skill in catalogue.skills):
        properties["path"] = {"type": "string", "description": "With read: show this file of the skill."}
    properties["query"] = {"type": "string", "description": "With list: words to search skills for, best match first."}
    if any(skill.category for skill in catalogue.skills):
        properties["category"] = {"type": "string", "description": "With list: only skills of this category."}
    if any(skill.tags for skill in catalogue.skills):
        what = "With list: only skills with all of these tags."
        properties["tags"] = {"type": "array", "items": {"type": "string"}, "description": what}
    if len(ids) > PAGE:
        properties["page"] = {"type": "integer", "minimum": 1, "description": f"With list: {PAGE} skills a page."}
    return properties


def skill_call_tool() -> dict[str, Any]:
    """The definition of `SKILL_CALL`; a tool of its own, so that approving `SKILL` for good approves no call."""
    return {
        "name": SKILL_CALL,
        "title": "Call a tool of an active skill",
        "description": (
            "Calls a tool of an active skill by its name. Use it for tools that the result of SKILL names but that "
            "are not in your own list of tools; the call and its result are the same as a direct call's."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "tool": {"type": "string", "description": "The tool's name, as the result of SKILL gives it."},
                "arguments": {"type": "object", "description": "The tool's arguments, by its input schema."},
            },
            "required": ["tool"],
        },
        "annotations": {
            "title": "Call a tool of an active skill",
            "readOnlyHint": False,
            "destructiveHint": True,
            "idempotentHint": False,
            "openWorldHint": True,
        },
    }


def description(catalogue: Catalogue, active: Collection[str], guidance: str | None = None) -> str:
    """The catalogue as the model reads it, at most `DESCRIPTION_LIMIT` bytes of UTF-8 (design rule 18)."""
    guide = HOW_TO_USE if guidance is None else without_our_tags(guidance)
    skills = catalogue.skills
    for limit in (None, *CUTS) if len(skills) * _LEAST <= DESCRIPTION_LIMIT else ():
        cut = "" if limit is None else " Descriptions are cut here: action list shows them in full."
        fitting = _guide(guide + cut, (_entry(skill, limit) for skill in skills))
        if size(fitting) <= DESCRIPTION_LIMIT:
            return fitting
    first = {skill.id: skill for skill in skills if skill.pinned or skill.id in active}
    rest = (skill for skill in skills if skill.id not in first)
    how = f"{guide} There are {len(skills)} skills, more than fit here: use action list to see them all."
    room = DESCRIPTION_LIMIT - size(_guide(how, ()))
    entries: list[str] = []
    for skill in (*first.values(), *islice(rest, DESCRIPTION_LIMIT // _LEAST)):
        forms = (_entry(skill), _name_only(skill)) if skill.id in first else (_name_only(skill),)
        fitting = next((form for form in forms if size(form) <= room), None)
        if fitting is None:
            if skill.id in first:
                continue
            break
        entries.append(fitting)
        room -= size(fitting)
    return _guide(how, entries)


def _guide(how: str, entries: Iterable[str]) -> str:
    info = "".join(entries)
    return f"<skills_guide><skill_guide>{how}</skill_guide><skills_info>{info}</skills_info></skills_guide>"


def _entry(skill: Skill, limit: int | None = None) -> str:
    desc = without_our_tags(skill.desc if limit is None else shortened(skill.desc, limit))
    name = without_our_tags(flat(skill.name, NAME_LIMIT if limit is None else min(limit, NAME_LIMIT)))
    named = "" if limit is not None and name == skill.id else f"<skill_name>{name}</skill_name>"
    return f'<skill id="{escape(skill.id)}">{named}<skill_desc>{desc}</skill_desc></skill>'


def _name_only(skill: Skill) -> str:
    return f'<skill id="{escape(skill.id)}"/>'
