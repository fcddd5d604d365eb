"""What `SKILL` answers beyond activating: lists, guides, files, and why a change is not made (design rule 16)."""

from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from proxy.core.activation_answer import ANSWER_LIMIT
from proxy.core.catalogue import Catalogue, Skill, SkillFile
from proxy.core.foreign_text import json_line, one_line, without_our_tags
from proxy.core.inventory import items
from proxy.core.invoke_answers import invocation
from proxy.core.published import DESCRIPTION_LIMIT, described
from proxy.core.relations import Blocked, Hindrance, first_to_go
from proxy.core.run_answers import RUNS
from proxy.core.skill_tool import PAGE
from proxy.core.texts import NAME_LIMIT, fitting, flat, size
from proxy.core.wording import UNTRUSTED_FILE, answer, fenced, fenced_guide, nearest, refusal, skill_call, with_note

READ_LIMIT: Final = 128 * 1024
"""Bytes of a file that `read` gives: more would fill a model's context."""
FILES_SHOWN: Final = 100
"""Files of a skill that are named in one answer."""
FILES_WITH_ACTIVATION: Final = 20
"""The same in the answer to an activation, which has more to say."""
NOT_OFFERED_LIMIT: Final = 1_000
"""Longest list of what servers do not offer, in bytes."""
INVOCATION_LIMIT: Final = 1_000
"""Characters of the parameters of a skill's steps in the answer to an activation."""
TAGS_SHOWN: Final = 20
"""Tags of a skill that a list shows."""
LISTED_LIMITS: Final = (DESCRIPTION_LIMIT, 300, 160, 80)
"""Characters of each description in a list, the first that keeps the whole short enough."""


def listing(
    catalogue: Catalogue, current: Sequence[str], found: Sequence[Skill], *, page: int, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """The result of the `list` action: the page (from 1) of `found`, in that order.

    `asked`: what the list was narrowed by, as it was given. Descriptions are shortened where the page would be longer
    than clients hand on.
    """
    pages = max(1, -(-len(found) // PAGE))
    if page > pages:
        return refusal(f"there is no page {page}: the list has {_count(pages, 'page')}.")
    what = "".join(f", {name} {json_line(value)}" for name, value in asked.items())
    head = f"{_count(len(found), 'skill')}{what}, current skills: {list(current)!r}"
    if asked and not found:
        total = len(catalogue.skills)
        head += f"\nNothing matches. There {'is' if total == 1 else 'are'} {_count(total, 'skill')} in all."
    more = ""
    if page < pages:
        call = json_line({"action": "list", **asked, "page": page + 1})
        more = f"\npage {page} of {pages}: SKILL({call}) shows more"
    shown = found[(page - 1) * PAGE : page * PAGE]

    def told(limit: int) -> str:
        return without_our_tags("\n".join([head, *(_line(skill, current, limit) for skill in shown)]) + more)

    short_enough = (text for limit in LISTED_LIMITS[:-1] if size(text := told(limit)) <= ANSWER_LIMIT)
    return answer(next(short_enough, "") or told(LISTED_LIMITS[-1]))


def guide(skill: Skill, text: str, current: Sequence[str]) -> dict[str, Any]:
    """The result of the `read` action without a tool or path: the guide, how to invoke it, which files there are."""
    state = "active" if skill.id in current else "not active"
    parts = [f"skill {skill.id} ({state})", fenced_guide(skill, text)]
    if skill.workflow is not None:
        parts.append(invocation(skill))
    if files := files_of(skill):
        parts.append(files_told(skill, files))
    return answer("\n\n".join(parts))


def files_of(skill: Skill) -> Sequence[SkillFile]:
    """The files of a skill beside its guide."""
    return [] if skill.folder is None else [file for file in skill.folder.files if file.path != skill.folder.document]


def files_told(skill: Skill, files: Sequence[SkillFile], shown: int = FILES_SHOWN) -> str:
    """Which files there are, the first `shown` of them, and how to read one."""
    call = skill_call("read", skill.id, path=files[0].path)
    lines = _lines(files[:shown])
    if len(files) > shown:
        lines.append(f"- and {len(files) - shown} more: read with a folder as path lists what is in it")
    return f"Files of this skill, read with {call}:\n" + "\n".join(lines)


def file(skill: Skill, path: str, content: bytes) -> dict[str, Any]:
    """The result of `read` with the path of a file: its text, or base64 where it is none."""
    text, encoding = _as_text(content)
    head = f"skill {skill.id}, file {without_our_tags(path)} ({_bytes(len(content))}, {encoding}):"
    if skill.folder is not None and not skill.folder.trusted:
        head += f"\n{UNTRUSTED_FILE}"
    return answer(f"{head}\n\n{fenced('skill_file', text)}")


def folder(skill: Skill, path: str, files: Sequence[SkillFile]) -> dict[str, Any]:
    """The result of `read` with the path of a folder: what is in it, at any depth."""
    return answer(f"skill {skill.id}, folder {without_our_tags(path)}:\n" + "\n".join(_lines(files)))


def no_file(skill: Skill, wanted: str) -> dict[str, Any]:
    """The answer to `read` with a path that is none of the skill's."""
    files = [one.path for one in files_of(skill)]
    if not files:
        return refusal(f"skill {skill.id} has no files beside its guide.")
    told = f"skill {skill.id} has no file {wanted!r}. Its files: {nearest(wanted, files)[:FILES_SHOWN]!r}."
    return refusal(without_our_tags(told))


def no_run(skill: Skill, path: str) -> dict[str, Any]:
    """The answer to `read` with the path of a run that is not known."""
    runs = skill_call("read", skill.id, path=RUNS)
    return refusal(without_our_tags(f"skill {skill.id} has no run at {path!r} that is still known. Its runs: {runs}"))


def too_large(skill: Skill, one: SkillFile) -> dict[str, Any]:
    """The answer to `read` with the path of a file beyond the limit."""
    limit = f"{READ_LIMIT // 1024} KiB"
    path = without_our_tags(one.path)
    return refusal(f"file {path} of skill {skill.id} holds {_bytes(one.size)}, and read gives at most {limit}.")


def unreadable(skill: Skill, path: str, reason: str) -> dict[str, Any]:
    """The answer to `read` where the file cannot be read at the moment."""
    return refusal(f"file {without_our_tags(path)} of skill {skill.id} cannot be read: {one_line(reason)}.")


def blocked(wanted: str, hindrance: Blocked, catalogue: Catalogue, current: Sequence[str]) -> dict[str, Any]:
    """The answer to a change that is not made: what is in the way, and the call that helps."""
    state = f"current skills: {list(current)!r}"
    who = ", ".join(hindrance.by)
    first = first_to_go(hindrance, catalogue, current)
    helps = "" if first is None else f" Call {skill_call('offload', first)} first."
    subject = f"skill {wanted}"
    if hindrance.skill != wanted:
        subject += f" requires skill {hindrance.skill}, which"
    match hindrance.why:
        case Hindrance.PINNED:
            why = f"skill {wanted} is pinned and stays active, {state}"
        case Hindrance.NEEDED:
            why = f"skill {wanted} stays active, since it is required by {who}, {state}.{helps}"
        case Hindrance.CONFLICT:
            why = f"{subject} cannot be active beside {who}, {state}.{helps}"
        case Hindrance.KEPT:
            why = f"skill {wanted} would take the place of {who}, which has to stay active, {state}."
        case _:  # TOO_MANY
            why = f"skill {wanted} is one too many: at most {catalogue.max_active} may be active, {state}.{helps}"
    return refusal(why)


def notes(skill: Skill, needed: Sequence[str], replaced: Sequence[str], not_offered: Sequence[str] = ()) -> list[str]:
    """What is to be said of an activation beside its guide and tools, a paragraph each.

    `needed`: the skills that it requires. `replaced`: those that had to go for it. `not_offered`: what
    it lists that its servers do not offer.
    """
    told: list[str] = []
    if not_offered:
        shown = fitting(list(not_offered), NOT_OFFERED_LIMIT)
        more = [f"{len(not_offered) - len(shown):,} more"] if len(shown) < len(not_offered) else []
        told.append(f"Not offered by its server: {', '.join([*shown, *more])}.")
    if needed:
        example = skill_call("read", needed[0])
        told.append(f"It requires, and they are active with it: {', '.join(needed)}. Their guides: {example}")
    if replaced:
        told.append(f"Offloaded, since they cannot be active beside it: {', '.join(replaced)}.")
    if skill.workflow is not None:
        told.append(invocation(skill, INVOCATION_LIMIT))
    if files := files_of(skill):
        told.append(files_told(skill, files, FILES_WITH_ACTIVATION))
    return told


def with_expired(result: dict[str, Any], skills: Collection[str], catalogue: Catalogue) -> dict[str, Any]:
    """An answer with a word on skills that were offloaded because nobody used them."""
    return with_note(
        result, "\n".join(_expired(catalogue.by_id[skill]) for skill in sorted(skills) if skill in catalogue.by_id)
    )


def prompt(skill: Skill, text: str) -> dict[str, Any]:
    """What the prompt that a skill is gives: the guide and how to activate it; getting it changes nothing."""
    call = skill_call("activate", skill.id)
    how = (
        f"To use its tools, call {call} first." if skill.servers else f"It brings no tools; {call} marks it as active."
    )
    name = one_line(skill.name, NAME_LIMIT)
    named = skill.id if name in {"", skill.id} else f"{skill.id} ({name})"
    said = f"Use the skill {named} for what follows. {how}"
    message = {"role": "user", "content": {"type": "text", "text": f"{said}\n\n{fenced_guide(skill, text)}"}}
    return {"description": described(skill), "messages": [message]}


def _as_text(content: bytes) -> tuple[str, str]:
    """The content of a file as text, and the encoding: base64 where it is no text."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    return (b64encode(content).decode(), "base64") if "\0" in text else (text, "utf-8")


def _lines(files: Sequence[SkillFile]) -> list[str]:
    return [f"- {without_our_tags(one.path)} ({_bytes(one.size)})" for one in files]


def _expired(skill: Skill) -> str:
    if skill.idle_limit is None:
        return f"skill {skill.id} was offloaded: the skill that required it was not used for too long."
    minutes = skill.idle_limit / 60
    return f"skill {skill.id} was offloaded: it was not used for {minutes:g} minute{'' if minutes == 1 else 's'}."


def _line(skill: Skill, current: Collection[str], limit: int) -> str:
    """A skill in a list, whose description has at most `limit` characters."""
    state = " (pinned)" if skill.pinned else " (active)" if skill.id in current else ""
    desc = flat(skill.desc, limit)
    words = ": ".join(dict.fromkeys(text for text in (flat(skill.name), desc) if text and text != skill.id))
    known = [] if skill.workflow is None else ["can be run with SKILL_INVOKE"]
    known += [f"{key} {text}" for key in ("category", "version", "author") if (text := flat(getattr(skill, key)))]
    if tags := [tag for one in skill.tags[:TAGS_SHOWN] if (tag := flat(one))]:
        known.append(f"tags {flat(', '.join(tags), limit)}")
    return f"- {skill.id}{state}" + (f": {words}" if words else "") + (f" [{'; '.join(known)}]" if known else "")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _bytes(number: int) -> str:
    return f"{number:,} byte{'' if number == 1 else 's'}"


def words(value: object) -> Iterable[str]:
    """The words of an argument that is a list of texts, or one text with commas between."""
    given = value.split(",") if isinstance(value, str) else items(value)
    return [word for one in given if isinstance(one, str) and (word := one.strip())]
