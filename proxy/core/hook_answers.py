"""What is said of hooks that have failed: which step, why, and what had run; nothing of that is undone."""

from collections.abc import Sequence
from typing import Any, Final

from proxy.core.failing import Event, HookFailed, steps_told
from proxy.core.wording import result, skill_call, without_our_tags

_HOOKS: Final[dict[Event, str]] = {"activate": "on_activate", "offload": "on_offload", "scope_start": "on_scope_start"}


def not_begun(wanted: str, failed: HookFailed, current: Sequence[str]) -> dict[str, Any]:
    """The result of an activation that a hook has made fail."""
    hook = f"{_HOOKS[failed.event]} hook"
    whose = f"Its {hook}" if failed.skill == wanted else f"The {hook} of skill {failed.skill}, which it requires,"
    text = f"skill {wanted} not activated, current skills: {list(current)!r}\n{whose} failed: {_why(failed)}"
    told = {"action": "activate", "skill": wanted, "current_skills": list(current), "message": text}
    return result(text, {**told, **_structured(failed)}, error=True)


def not_started(failed: HookFailed, current: Sequence[str]) -> dict[str, Any]:
    """The answer to a call before which something had to be done that has failed."""
    what = f"the {_HOOKS[failed.event]} hook" + (f" of skill {failed.skill}" if failed.skill else "")
    text = f"The call was not made: {what} has to run first, and failed: {_why(failed)} The next call tries again."
    return result(text, {"current_skills": list(current), **_structured(failed)}, error=True)


def with_unended(answer: dict[str, Any], failed: Sequence[HookFailed]) -> dict[str, Any]:
    """The result of a change after which hooks of skills that have ended failed."""
    told = [f"skill {one.skill} is offloaded, but its {_HOOKS[one.event]} hook failed: {_why(one)}" for one in failed]
    return _with(answer, told, failed)


def with_dropped(answer: dict[str, Any], failed: Sequence[HookFailed]) -> dict[str, Any]:
    """The first result of `SKILL` in a scope in which skills could not be active from the start."""
    told = [
        f"skill {one.skill} is not active from the start, since its {_HOOKS[one.event]} hook failed: {_why(one)} "
        f"{skill_call('activate', one.skill)} tries again."
        for one in failed
    ]
    return _with(answer, told, failed)


def _with(answer: dict[str, Any], told: Sequence[str], failed: Sequence[HookFailed]) -> dict[str, Any]:
    if not told:
        return answer
    first, *others = answer["content"]
    noted = {**answer, "content": [{**first, "text": "\n".join([first["text"], "", *told])}, *others]}
    if "structuredContent" in answer:
        hooks = [{"skill": one.skill, "hook": _HOOKS[one.event], **_structured(one)} for one in failed]
        noted["structuredContent"] = {**answer["structuredContent"], "failed_hooks": hooks}
    return noted


def _why(failed: HookFailed) -> str:
    ran = [one.name for one in failed.done if one.status == "completed"]
    done = f"Had run, and is not undone: {', '.join(ran)}." if ran else "No other step had run."
    return without_our_tags(f"{failed.step}. {done}")


def _structured(failed: HookFailed) -> dict[str, Any]:
    return {"error": failed.step.told, "done": steps_told(failed.done)}
