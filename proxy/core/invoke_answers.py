"""What the invocation of a skill is answered with: its output, or why there is none."""

import json
from collections.abc import Sequence
from typing import Any

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.failing import StepFailed, steps_told, what_ran
from proxy.core.foreign_text import json_line, one_line
from proxy.core.inventory import is_json, items
from proxy.core.invoke_tool import SKILL_INVOKE, parameters
from proxy.core.run import StepRecord
from proxy.core.wording import (
    SHOWN,
    answer,
    kind_of,
    nearest,
    refusal,
    signature,
    skill_call,
)


def done(skill: str, output: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON value
    """The result of a run that has gone through: the same as text, which is JSON, and as structured content."""
    told = {"skill_id": skill, "output": output, "success": True}
    return _result(json.dumps(told, ensure_ascii=False), told)


def failed(skill: str, failure: StepFailed, done: Sequence[StepRecord]) -> dict[str, Any]:
    """The result of a run that has not; `done`: what all its steps have come to, which nothing undoes."""
    steps, left_out = steps_told(done)
    told: dict[str, Any] = {"skill_id": skill, "success": False, "error": failure.told, "done": steps}
    if left_out:
        told["done_left_out"] = left_out
    return _result(f"skill {skill} failed: {one_line(str(failure))}\n{one_line(what_ran(done))}", told, error=True)


def invalid(skill: Skill, wrong: Sequence[str]) -> dict[str, Any]:
    """The answer to arguments that do not fit the skill's parameters; `wrong`: what does not, in words."""
    schema = parameters(skill)
    text = "\n".join(
        [
            f"skill {skill.id} was not run, its arguments are not as they must be:",
            *(f"- {one_line(one)}" for one in wrong),
            f"Expected parameters: {json_line(schema)}",
        ]
    )
    told = {"skill_id": skill.id, "success": False, "errors": list(wrong), "expected_parameters": schema}
    return _result(text, told, error=True)


def not_active(skill: str) -> dict[str, Any]:
    """The refusal of a skill that can be invoked only while it is active."""
    call = skill_call("activate", skill)
    return refusal(f"skill {skill} can be run only while it is active. Call {call} first, then run it again.")


def not_invocable(wanted: str, catalogue: Catalogue) -> dict[str, Any]:
    """The refusal of a skill that has no steps, or does not exist; with those that can be run, the nearest first."""
    ids = nearest(wanted, [skill.id for skill in catalogue.invocable])[:SHOWN]
    more = len(catalogue.invocable) - len(ids)
    those = f"Skills that can be run: {ids!r}{f' and {more:,} more' if more else ''}."
    if wanted not in catalogue.by_id:
        return refusal(f"skill not found: {wanted!r}. {those}")
    call = skill_call("activate", wanted)
    return refusal(f"skill {wanted} has no steps to run: it brings a guide, and what {call} makes usable. {those}")


def too_many(skill: Skill) -> dict[str, Any]:
    """The refusal of a run beside as many others of the skill as there may be."""
    most = 0 if skill.workflow is None else skill.workflow.max_runs
    runs = "one run" if most == 1 else f"{most} runs"
    return refusal(
        f"skill {skill.id} was not run: {runs} of it may be at work at a time, and are. Wait for one to end."
    )


def bad_call(what: str) -> dict[str, Any]:
    """The refusal of a call of `SKILL_INVOKE` that cannot be understood."""
    takes = '{"skill_name": the id of a skill, "arguments": an object by its parameters}'
    return refusal(f"{one_line(what)} {SKILL_INVOKE} takes {takes}.")


def invocation(skill: Skill, limit: int | None = None) -> str:
    """How a skill that has a workflow is invoked; its parameters within `limit` characters of JSON, else in a line."""
    schema = parameters(skill)
    of = schema.get("properties")
    needed = {name: f"<{kind_of(of.get(name) if is_json(of) else None)}>" for name in items(schema.get("required"))}
    call = f"{SKILL_INVOKE}({json_line({'skill_name': skill.id, 'arguments': needed})})"
    active = skill.workflow is not None and skill.workflow.needs_activation
    when = "while it is active" if active else "also without activating it"
    taken = json_line(schema)
    if limit is not None and len(taken) > limit:
        taken = f"{one_line(signature(schema), limit)} (in full: {skill_call('read', skill.id)})"
    return f"Its steps can be run in one call, {when}: {call}\n  parameters: {taken}"


def _result(text: str, structured: dict[str, Any], *, error: bool = False) -> dict[str, Any]:
    """A `tools/call` result that says the same as text and as structured content."""
    return {**answer(text, error=error), "structuredContent": structured}
