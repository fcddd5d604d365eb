"""The definitions of our own tools: `SKILL`, and `SKILL_CALL` for clients that may not read a changed list in time."""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.foreign_text import one_line, without_our_tags
from proxy.core.run_answers import RUNS
from proxy.core.texts import NAME_LIMIT, flat, size
from proxy.core.wording import HOW_TO_USE, HOW_TO_USE_PINNED

SKILL = "SKILL"
SKILL_CALL = "SKILL_CALL"

DESCRIPTION_LIMIT = 2000
"""Bytes of UTF-8, so that it holds in characters too: some clients cut there."""
ENUM_LIMIT = 50
"""Up to this many skills `skill_name` is an enum, then plain text."""
PAGE = 20
"""Skills on a page of the `list` action."""
CUTS = (160, 100, 60, 40, 24)
"""Characters to which names and descriptions are cut, one after the other, where they do not fit as they are."""
OMIT_NAME_BELOW: Final = 60
"""At or below this cut the name of a skill is left out beside its id."""
LEAD_LIMIT: Final = 120
"""Characters for the ids with which the description begins: clients that defer tools show no more than 160 of it."""
_ESCAPED: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
"""What cannot stand in the value of an attribute."""
_LEAST = len('<skill id="x"/>')
"""Bytes that a skill takes in the description, at least."""

ALIASES = {"active_skill": "activate", "offload_skill": "offload"}

ALWAYS_LOAD: Final = {"anthropic/alwaysLoad": True}
"""The `_meta` by which clients that defer tools behind a search of their own are asked to show a tool at once."""


def is_switchable(catalogue: Catalogue) -> bool:
    """Whether there is a skill that can be activated and offloaded: one that is not pinned."""
    return any(not skill.pinned for skill in catalogue.skills)


def actions(catalogue: Catalogue) -> tuple[str, ...]:
    """The actions that the configuration makes usable."""
    return (*(("activate", "offload") if is_switchable(catalogue) else ()), "list", "read")


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
        "_meta": ALWAYS_LOAD,
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
    paths: list[str] = []
    if any(skill.folder is not None for skill in catalogue.skills):
        paths.append("show this file of the skill")
    if catalogue.invocable:
        paths.append(f"{RUNS} shows what became of runs of its steps, and those that are running")
    if paths:
        properties["path"] = {"type": "string", "description": f"With read: {'; '.join(paths)}."}
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
            "Calls a tool of an active skill that the result of SKILL names and that is not in your own list of tools."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "tool": {"type": "string", "description": "The tool's name, as the result of SKILL gives it."},
                "arguments": {
                    "type": "object",
                    "description": "The tool's arguments, by its input schema.",
                    "additionalProperties": True,
                },
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
        "_meta": ALWAYS_LOAD,
    }


def description(catalogue: Catalogue, active: Collection[str], guidance: str | None = None) -> str:
    """The catalogue as the model reads it, at most `DESCRIPTION_LIMIT` bytes of UTF-8 (design rule 18).

    It begins with the ids of skills. Descriptions are shortened step by step before any skill is left with its id.
    """
    skills = catalogue.skills
    own_words = HOW_TO_USE if is_switchable(catalogue) else HOW_TO_USE_PINNED
    how = without_our_tags(f"{_lead(skills)}: {own_words if guidance is None else guidance}")
    for limit in (None, *CUTS) if len(skills) * _LEAST <= DESCRIPTION_LIMIT else ():
        cut = "" if limit is None else " Descriptions are cut here: action list shows them in full."
        fitting = _guide(how + cut, (_entry(skill, limit) for skill in skills))
        if size(fitting) <= DESCRIPTION_LIMIT:
            return fitting
    how += f" Of {len(skills)} skills not all are described here: action list shows them all."
    first = [skill for skill in skills if skill.pinned or skill.id in active]
    rest = (skill for skill in skills if not (skill.pinned or skill.id in active))
    return _guide(how, _fitting(first, islice(rest, DESCRIPTION_LIMIT // _LEAST), size(_guide(how, ()))))


def _lead(skills: Sequence[Skill]) -> str:
    """The ids of the first skills, as far as they go."""
    named: list[str] = []
    for skill in skills:
        named.append(flat(skill.id))
        if size(", ".join(named)) > LEAD_LIMIT:
            return ", ".join([*named[:-1], "…"])
    return ", ".join(named)


def _fitting(first: Iterable[Skill], rest: Iterable[Skill], taken: int) -> list[str]:
    """The entries of skills that fit into the description, `taken` bytes of which are used otherwise.

    The `first` are described where possible, then as many of the `rest`. One that does not fit is left out, and those
    behind it are not.
    """
    room = DESCRIPTION_LIMIT - taken
    forms: list[str] = []
    named: list[tuple[int, Skill]] = []
    for skill, choices in (
        *((skill, (_entry(skill, CUTS[-1]), _name_only(skill))) for skill in first),
        *((skill, (_name_only(skill),)) for skill in rest),
    ):
        form = next((form for form in choices if size(form) <= room), None)
        if form is None:
            continue
        room -= size(form)
        if form is choices[-1]:
            named.append((len(forms), skill))
        forms.append(form)
    for place, skill in named:
        described = _entry(skill, CUTS[-1])
        if (more := size(described) - size(forms[place])) <= room:
            room -= more
            forms[place] = described
    return forms


def _guide(how: str, entries: Iterable[str]) -> str:
    info = "".join(entries)
    return f"<skills_guide><skill_guide>{how}</skill_guide><skills_info>{info}</skills_info></skills_guide>"


def _entry(skill: Skill, limit: int | None = None) -> str:
    desc = one_line(skill.desc, DESCRIPTION_LIMIT if limit is None else limit)
    name = one_line(skill.name, NAME_LIMIT if limit is None else min(limit, NAME_LIMIT))
    unnamed = limit is not None and (limit <= OMIT_NAME_BELOW or name == skill.id)
    named = "" if unnamed else f"<skill_name>{name}</skill_name>"
    return f'<skill id="{skill.id.translate(_ESCAPED)}">{named}<skill_desc>{desc}</skill_desc></skill>'


def _name_only(skill: Skill) -> str:
    return f'<skill id="{skill.id.translate(_ESCAPED)}"/>'
