"""What is said of hooks that have failed: which step, why, and what had run; nothing of that is undone."""

from collections.abc import Sequence
from typing import Any, Final

from proxy.core.failing import Event, HookFailed, what_ran
from proxy.core.foreign_text import one_line
from proxy.core.wording import refusal, skill_call, with_note

_HOOKS: Final[dict[Event, str]] = {"activate": "on_activate", "offload": "on_offload", "scope_start": "on_scope_start"}


def not_begun(wanted: str, failed: HookFailed, current: Sequence[str], gone: Sequence[str] = ()) -> dict[str, Any]:
    """The result of an activation that a hook has made fail; `gone`: the skills that had been offloaded for it."""
    hook = f"{_HOOKS[failed.event]} hook"
    whose = f"Its {hook}" if failed.skill == wanted else f"The {hook} of skill {failed.skill}, which it requires,"
    why = f"skill {wanted} not activated, current skills: {list(current)!r}\n{whose} failed: {_why(failed)}"
    return with_note(refusal(why), made_room(wanted, gone))


def made_room(wanted: str, gone: Sequence[str]) -> str:
    """What is said of skills that were offloaded for one that is not active after all; nothing without any."""
    return f"Offloaded before that, to make room for skill {wanted}: {', '.join(gone)}." if gone else ""


def not_started(failed: HookFailed) -> dict[str, Any]:
    """The answer to a call before which something had to be done that has failed."""
    what = f"the {_HOOKS[failed.event]} hook" + (f" of skill {failed.skill}" if failed.skill else "")
    return refusal(
        f"The call was not made: {what} has to run first, and failed: {_why(failed)} The next call tries again."
    )


def with_unended(result: dict[str, Any], failed: Sequence[HookFailed]) -> dict[str, Any]:
    """The result of a change after which hooks of skills that have ended failed."""
    told = (f"skill {one.skill} is offloaded, but its {_HOOKS[one.event]} hook failed: {_why(one)}" for one in failed)
    return with_note(result, "\n".join(told))


def with_dropped(result: dict[str, Any], failed: Sequence[HookFailed]) -> dict[str, Any]:
    """The first result of `SKILL` in a scope in which skills could not be active from the start."""
    told = (
        f"skill {one.skill} is not active from the start, since its {_HOOKS[one.event]} hook failed: {_why(one)} "
        f"{skill_call('activate', one.skill)} tries again."
        for one in failed
    )
    return with_note(result, "\n".join(told))


def _why(failed: HookFailed) -> str:
    return f"{one_line(str(failed.step))}. {one_line(what_ran(failed.done))}"
