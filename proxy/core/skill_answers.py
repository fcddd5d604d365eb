"""What `SKILL` answers beyond activating: lists, guides, files, and why a change is not made (design rule 16)."""

import json
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from proxy.core.catalogue import Catalogue, Skill, SkillFile
from proxy.core.inventory import items
from proxy.core.invoke_answers import invocation
from proxy.core.published import DESCRIPTION_LIMIT, described
from proxy.core.relations import Blocked, Hindrance, required
from proxy.core.skill_tool import PAGE
from proxy.core.texts import flat, shortened
from proxy.core.wording import nearest, refusal, result, skill_call, without_our_tags

READ_LIMIT: Final = 128 * 1024
"""Bytes of a file that `read` gives: more would fill a model's context."""
FILES_SHOWN: Final = 100
"""Files of a skill that are named in one answer."""
TAGS_SHOWN: Final = 20
"""Tags of a skill that a list shows."""


def listing(
    catalogue: Catalogue, current: Sequence[str], found: Sequence[Skill], *, page: int, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """The result of the `list` action: the page (from 1) of `found`, in that order.

    `asked`: what the list was narrowed by, as it was given.
    """
    pages = max(1, -(-len(found) // PAGE))
    if page > pages:
        return refusal(f"there is no page {page}: the list has {_count(pages, 'page')}.")
    shown = [_listed(skill, current) for skill in found[(page - 1) * PAGE : page * PAGE]]
    what = "".join(f", {name} {json.dumps(value, ensure_ascii=False)}" for name, value in asked.items())
    head = f"{_count(len(found), 'skill')}{what}, current skills: {list(current)!r}"
    if asked and not found:
        total = len(catalogue.skills)
        head += f"\nNothing matches. There {'is' if total == 1 else 'are'} {_count(total, 'skill')} in all."
    parts = [without_our_tags(head), *map(_line, shown)]
    structured: dict[str, Any] = {"action": "list", "current_skills": list(current), "skills": shown}
    structured |= {"total": len(found), "page": page, "pages": pages, **asked}
    if page < pages:
        call = json.dumps({"action": "list", **asked, "page": page + 1}, ensure_ascii=False)
        more = f"page {page} of {pages}: SKILL({call}) shows more"
        parts.append(without_our_tags(more))
        structured["more"] = more
    return result("\n".join(parts), structured)


def guide(skill: Skill, text: str, current: Sequence[str]) -> dict[str, Any]:
    """The result of the `read` action without a tool or path: the guide, how to invoke it, which files there are."""
    state = "active" if skill.id in current else "not active"
    parts = [f"skill {skill.id} ({state})", f"<skill_guide>{without_our_tags(text)}</skill_guide>"]
    structured: dict[str, Any] = {"action": "read", "skill": skill.id, "current_skills": list(current), "guide": text}
    if skill.workflow is not None:
        words, structured["invoke"] = invocation(skill)
        parts.append(words)
    if files := files_of(skill):
        parts.append(files_told(skill, files))
        structured["files"] = _structured(files)
    return result("\n\n".join(parts), structured)


def files_of(skill: Skill) -> Sequence[SkillFile]:
    """The files of a skill beside its guide."""
    return [] if skill.folder is None else [file for file in skill.folder.files if file.path != skill.folder.document]


def files_told(skill: Skill, files: Sequence[SkillFile]) -> str:
    """Which files there are, and how to read one."""
    call = json.dumps({"action": "read", "skill_name": skill.id, "path": files[0].path}, ensure_ascii=False)
    lines = _lines(files[:FILES_SHOWN])
    if len(files) > FILES_SHOWN:
        lines.append(f"- and {len(files) - FILES_SHOWN} more: read with a folder as path lists what is in it")
    return f"Files of this skill, read with SKILL({without_our_tags(call)}):\n" + "\n".join(lines)


def file(skill: Skill, path: str, content: bytes, current: Sequence[str]) -> dict[str, Any]:
    """The result of `read` with the path of a file: its text, or base64 where it is none."""
    text, encoding = _as_text(content)
    told = {"path": path, "size": len(content), "encoding": encoding, "content": text}
    head = f"skill {skill.id}, file {without_our_tags(path)} ({_bytes(len(content))}, {encoding}):"
    structured = {"action": "read", "skill": skill.id, "current_skills": list(current), "file": told}
    return result(f"{head}\n\n<skill_file>{without_our_tags(text)}</skill_file>", structured)


def folder(skill: Skill, path: str, files: Sequence[SkillFile], current: Sequence[str]) -> dict[str, Any]:
    """The result of `read` with the path of a folder: what is in it, at any depth."""
    structured = {
        "action": "read",
        "skill": skill.id,
        "current_skills": list(current),
        "path": path,
        "files": _structured(files),
    }
    return result(f"skill {skill.id}, folder {without_our_tags(path)}:\n" + "\n".join(_lines(files)), structured)


def no_file(skill: Skill, wanted: str) -> dict[str, Any]:
    """The answer to `read` with a path that is none of the skill's."""
    files = [one.path for one in files_of(skill)]
    if not files:
        return refusal(f"skill {skill.id} has no files beside its guide.")
    told = f"skill {skill.id} has no file {wanted!r}. Its files: {nearest(wanted, files)[:FILES_SHOWN]!r}."
    return refusal(without_our_tags(told))


def too_large(skill: Skill, one: SkillFile) -> dict[str, Any]:
    """The answer to `read` with the path of a file beyond the limit."""
    limit = f"{READ_LIMIT // 1024} KiB"
    path = without_our_tags(one.path)
    return refusal(f"file {path} of skill {skill.id} holds {_bytes(one.size)}, and read gives at most {limit}.")


def unreadable(skill: Skill, path: str, reason: str) -> dict[str, Any]:
    """The answer to `read` where the file cannot be read at the moment."""
    return refusal(without_our_tags(f"file {path} of skill {skill.id} cannot be read: {reason}."))


def blocked(
    action: str, wanted: str, hindrance: Blocked, catalogue: Catalogue, current: Sequence[str]
) -> dict[str, Any]:
    """The answer to a change that is not made: what is in the way, and the call that helps."""
    state = f"current skills: {list(current)!r}"
    who = ", ".join(hindrance.by)
    first = _first_to_go(hindrance, catalogue, current)
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
    structured = {"action": action, "skill": wanted, "current_skills": list(current), "message": why}
    return result(why, structured, error=True)


def _first_to_go(hindrance: Blocked, catalogue: Catalogue, current: Sequence[str]) -> str | None:
    """A skill that can be offloaded and whose going helps; None where none does."""
    if hindrance.why is Hindrance.TOO_MANY:
        helping = [*current]
    else:
        helping = [skill for skill in current if not {skill, *required(catalogue, skill)}.isdisjoint(hindrance.by)]
        if not catalogue.pinned.isdisjoint(helping):
            return None
    needed = {*catalogue.pinned, *(other for skill in current for other in required(catalogue, skill))}
    return next((skill for skill in helping if skill not in needed), None)


def besides(skill: Skill, needed: Sequence[str], replaced: Sequence[str]) -> dict[str, tuple[str, Any]]:
    """What is to be said of an activation beside its guide and tools, in words and as structured content, by key.

    `needed`: the skills that it requires. `replaced`: those that had to go for it.
    """
    told: dict[str, tuple[str, Any]] = {}
    if needed:
        example = skill_call("read", needed[0])
        told["required_skills"] = (
            f"It requires, and they are active with it: {', '.join(needed)}. Their guides: {example}",
            list(needed),
        )
    if replaced:
        told["replaced_skills"] = (
            f"Offloaded, since they cannot be active beside it: {', '.join(replaced)}.",
            list(replaced),
        )
    if skill.workflow is not None:
        told["invoke"] = invocation(skill)
    if files := files_of(skill):
        told["files"] = files_told(skill, files), _structured(files)
    return told


def with_expired(answer: dict[str, Any], skills: Collection[str], catalogue: Catalogue) -> dict[str, Any]:
    """`answer` with a word on skills that were offloaded because nobody used them."""
    gone = [skill for skill in sorted(skills) if skill in catalogue.by_id]
    if not gone:
        return answer
    told = [_expired(catalogue.by_id[skill]) for skill in gone]
    first, *others = answer["content"]
    noted = {**answer, "content": [{**first, "text": "\n".join([first["text"], "", *told])}, *others]}
    if "structuredContent" in answer:  # else it would hide the text from clients that pass on only one of the two
        noted["structuredContent"] = {**answer["structuredContent"], "expired": gone, "notes": told}
    return noted


def prompt(skill: Skill, text: str) -> dict[str, Any]:
    """What the prompt that a skill is gives: the guide and how to activate it; getting it changes nothing."""
    call = skill_call("activate", skill.id)
    how = (
        f"To use its tools, call {call} first." if skill.servers else f"It brings no tools; {call} marks it as active."
    )
    name = without_our_tags(flat(skill.name))
    named = skill.id if name in {"", skill.id} else f"{skill.id} ({name})"
    said = f"Use the skill {named} for what follows. {how}"
    text = f"{said}\n\n<skill_guide>{without_our_tags(text)}</skill_guide>"
    message = {"role": "user", "content": {"type": "text", "text": text}}
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


def _structured(files: Sequence[SkillFile]) -> list[dict[str, Any]]:
    return [{"path": one.path, "size": one.size} for one in files]


def _expired(skill: Skill) -> str:
    if skill.idle_limit is None:
        return f"skill {skill.id} was offloaded: the skill that required it was not used for too long."
    minutes = skill.idle_limit / 60
    return f"skill {skill.id} was offloaded: it was not used for {minutes:g} minute{'' if minutes == 1 else 's'}."


def _listed(skill: Skill, current: Collection[str]) -> dict[str, Any]:
    desc = shortened(skill.desc, DESCRIPTION_LIMIT)
    told: dict[str, Any] = {"id": skill.id, "name": flat(skill.name), "desc": desc}
    told |= {"active": skill.id in current, "pinned": skill.pinned}
    told |= {} if skill.workflow is None else {"invocable": True}
    more: dict[str, Any] = {key: flat(getattr(skill, key)) for key in ("category", "version", "author")}
    more["tags"] = [flat(tag) for tag in skill.tags[:TAGS_SHOWN]]
    return told | {key: value for key, value in more.items() if value}


def _line(told: Mapping[str, Any]) -> str:
    state = " (pinned)" if told["pinned"] else " (active)" if told["active"] else ""
    desc = flat(told["desc"], DESCRIPTION_LIMIT)
    words = ": ".join(dict.fromkeys(text for text in (told["name"], desc) if text != told["id"]))
    known = ["can be run with SKILL_INVOKE"] if "invocable" in told else []
    known += [f"{key} {told[key]}" for key in ("category", "version", "author") if key in told]
    known += [f"tags {', '.join(told['tags'])}"] if "tags" in told else []
    return without_our_tags(f"- {told['id']}{state}: {words}" + (f" [{'; '.join(known)}]" if known else ""))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _bytes(number: int) -> str:
    return f"{number:,} byte{'' if number == 1 else 's'}"


def words(value: object) -> Iterable[str]:
    """The words of an argument that is a list of texts, or one text with commas between."""
    given = value.split(",") if isinstance(value, str) else items(value)
    return [word for one in given if isinstance(one, str) and (word := one.strip())]
