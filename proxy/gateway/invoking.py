"""Invoking skills: the tool `SKILL_INVOKE`, skills that are tools of their own, and skills that steps invoke."""

import json
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import structlog

from proxy.core import invoke_answers
from proxy.core.catalogue import Skill
from proxy.core.decision import Step as StepOf
from proxy.core.failing import OutOfBounds, StepFailed
from proxy.core.inventory import Json, object_of
from proxy.core.masking import Masker
from proxy.core.run import TEXT_LIMIT, Run, RunStatus, StepRecord
from proxy.core.run import shortened as kept
from proxy.core.scope import ScopeId
from proxy.core.steps import Call, Workflow
from proxy.core.texts import shortened
from proxy.gateway.gate import Gate
from proxy.gateway.idling import Idling
from proxy.gateway.running import Heap, Runner, Work
from proxy.gateway.stages import Stage, Stages, output_told
from proxy.ports import Caller, Clock, RunRecords

log = structlog.stdlib.get_logger("proxy.gateway")

DEEPEST: Final = 5
"""Runs inside each other: a skill whose step invokes a skill whose step …"""


@dataclass(frozen=True)
class _Outcome:
    """What a run has come to: its output, or why it has none."""

    output: Any
    failed: StepFailed | None
    steps: tuple[StepRecord, ...]


class Invoking:
    """Runs the workflows of skills for clients and for steps, and records each run from its beginning.

    `masker`: for the records.
    """

    def __init__(
        self, gate: Gate, runner: Runner, idling: Idling, records: RunRecords, masker: Masker, clock: Clock
    ) -> None:
        self._gate = gate
        self._runner = runner
        self._idling = idling
        self._records = records
        self._masker = masker
        self._clock = clock
        self._running: Counter[tuple[ScopeId, str]] = Counter()
        runner.invoke = self._for_step

    async def invoke(self, caller: Caller, arguments: Mapping[str, Any], stages: Stages) -> dict[str, Any]:
        """The result of `SKILL_INVOKE`; `stages`: of the request."""
        catalogue = self._gate.catalogue(caller.scope)
        wanted, inner = arguments.get("skill_name"), object_of(arguments.get("arguments", {}))
        if not isinstance(wanted, str) or not wanted:
            return invoke_answers.bad_call("The skill_name is missing.")
        if stray := [name for name in arguments if name not in ("skill_name", "arguments")]:
            return invoke_answers.bad_call(f'Put {", ".join(stray)} inside "arguments".')
        if inner is None:
            return invoke_answers.bad_call('"arguments" has to be an object (or a JSON text of one).')
        skill = catalogue.find(wanted)
        if skill is None or skill.workflow is None:
            return invoke_answers.not_invocable(wanted, catalogue)
        return await self.run(caller, skill, inner, stages)

    async def run(self, caller: Caller, skill: Skill, arguments: Json, stages: Stages) -> dict[str, Any]:
        """The result of running a skill that can be invoked with `arguments`; `stages`: of the request."""
        workflow = _workflow(skill)
        if workflow.needs_activation and not await self._is_active(caller.scope, skill):
            return invoke_answers.not_active(skill.id)
        from proxy.core.parameters import filled, invalid  # noqa: PLC0415 - only who invokes skills pays for it

        given = filled(workflow.parameters, arguments)
        if wrong := invalid(workflow.parameters, given):
            return invoke_answers.invalid(skill, wrong)
        if self._running[caller.scope, skill.id] >= workflow.max_runs:
            return invoke_answers.too_many(skill)
        work = self._work(caller, skill, given, stages)
        outcome = await self._run_in_stage(work, skill)
        if outcome.failed is not None:
            return invoke_answers.failed(skill.id, outcome.failed, outcome.steps)
        return invoke_answers.done(skill.id, outcome.output)

    async def _for_step(self, outer: Work, step: Call, arguments: Json) -> Any:  # noqa: ANN401 - any JSON value
        """Run a skill for a step of another; its output.

        Raises:
            StepFailed: it cannot be invoked there, or it has failed.
        """
        from proxy.core.parameters import filled  # noqa: PLC0415 - as above

        skill = outer.catalogue().by_id.get(step.skill)
        given = arguments if skill is None or skill.workflow is None else filled(skill.workflow.parameters, arguments)
        refused = await self._refused(outer, skill, given)
        if skill is None or refused:
            raise StepFailed(step.name, step.place, step.target, refused)
        work = self._work(outer.caller, skill, given, outer.stages, outer)
        work.above = f"{outer.above}{step.name} / "
        try:
            outcome = await self._run(work, skill, outer.run)
        finally:
            outer.inside[step.place] = work.steps
        if (failed := outcome.failed) is not None:
            why, unclear = str(failed), failed.may_have_run
            raise StepFailed(step.name, step.place, step.target, why, transient=failed.transient, may_have_run=unclear)
        return outcome.output

    async def _refused(self, outer: Work, skill: Skill | None, given: Json) -> str:
        """Why a step cannot invoke a skill, empty where it can."""
        if skill is None or skill.workflow is None:
            return "there is no such skill that can be invoked"
        if outer.depth >= DEEPEST:
            return f"skills invoke each other more than {DEEPEST} deep"
        scope, workflow = outer.caller.scope, skill.workflow
        if workflow.needs_activation and not await self._is_active(scope, skill):
            return f"skill {skill.id} has to be active to be invoked"
        if self._running[scope, skill.id] >= workflow.max_runs:
            return f"skill {skill.id} runs {workflow.max_runs} times already, as often as it may at a time"
        from proxy.core.parameters import invalid  # noqa: PLC0415 - as above

        return "; ".join(invalid(workflow.parameters, given))

    def _work(self, caller: Caller, skill: Skill, given: Json, stages: Stages, outer: Work | None = None) -> Work:
        return Work(
            caller=caller,
            actor=StepOf(skill.id),
            catalogue=partial(self._gate.catalogue, caller.scope) if outer is None else outer.catalogue,
            heap=Heap(self._gate, caller.scope) if outer is None else outer.heap,
            event={"name": "invoke", "skill": skill.id, "reason": "client" if outer is None else "step"},
            stages=stages,
            params=given,
            goes_on=self._still_active(caller.scope, skill) if _workflow(skill).needs_activation else None,
            left=_workflow(skill).max_calls,
            depth=1 if outer is None else outer.depth + 1,
            run=secrets.token_hex(8),
        )

    def _still_active(self, scope: ScopeId, skill: Skill) -> Callable[[], Awaitable[str]]:
        async def goes_on() -> str:
            return "" if await self._is_active(scope, skill) else f"skill {skill.id} is not active any more"

        return goes_on

    async def _is_active(self, scope: ScopeId, skill: Skill) -> bool:
        """Whether a skill is active, and has begun; what runs for a scope that is over does not begin it again."""
        state = await self._gate.store.get(scope)
        return state is not None and skill.id in state.active and skill.id not in state.due

    async def _run_in_stage(self, work: Work, skill: Skill) -> _Outcome:
        """Run a workflow for a client, who hears of it as of a stage."""
        status: Stage = "cancelled"
        told: Json = {}
        await work.stages.tell(skill.id, "running")
        try:
            outcome = await self._run(work, skill)
            status = "completed" if outcome.failed is None else "failed"
            told = output_told(outcome.output) if outcome.failed is None else {}
        except Exception:
            status = "failed"
            raise
        finally:
            await work.stages.close(skill.id, status, **told)
        return outcome

    async def _run(self, work: Work, skill: Skill, parent: str = "") -> _Outcome:
        """Run a workflow to its end, and record it, whatever that is; from its beginning on others can see it."""
        workflow, scope = _workflow(skill), work.caller.scope
        record = self._recorded(work, skill, parent)
        status: RunStatus = "cancelled"
        failed: StepFailed | None = None
        output: Any = None
        self._running[scope, skill.id] += 1
        try:
            with self._idling.use(scope, [skill.id]):
                try:
                    await self._runner.run(work, workflow.steps, workflow.max_seconds)
                    output = await self._output(work, workflow)
                    status = "completed"
                except StepFailed as error:
                    failed, status = error, "failed"
                except Exception:
                    status = "failed"
                    raise
        finally:
            self._running[scope, skill.id] -= 1
            if not self._running[scope, skill.id]:
                del self._running[scope, skill.id]
            ended = record(status, failed, output)
            log.info(
                "run.ended",
                run=ended.id,
                skill=skill.id,
                scope=ended.scope,
                status=status,
                seconds=round(ended.seconds, 3),
            )
        return _Outcome(output, failed, work.steps)

    async def _output(self, work: Work, workflow: Workflow) -> Any:  # noqa: ANN401 - any JSON value
        """What a run gives.

        Raises:
            OutOfBounds: it cannot be made, or is not as the skill promises.
        """
        output = work.last
        if workflow.own_output:
            from proxy.core.expressions import ExpressionError, evaluate  # noqa: PLC0415 - as above

            try:
                output = evaluate(workflow.output, await self._runner.names(work), "output")
            except ExpressionError as error:
                raise OutOfBounds("output", "output", "", str(error)) from None
        if workflow.output_schema is not None:
            from proxy.core.parameters import invalid  # noqa: PLC0415 - as above

            if wrong := invalid(workflow.output_schema, output):
                raise OutOfBounds("output", "output_schema", "", "; ".join(wrong))
        return output

    def _recorded(self, work: Work, skill: Skill, parent: str) -> Callable[..., Run]:
        """Record a run that begins, and each change of its steps; what is given records its end."""
        from proxy.core.parameters import masked, secrets_in  # noqa: PLC0415 - as above

        schema, given = _workflow(skill).parameters, work.params or {}
        hidden = Masker(secrets_in(schema, given))  # what fails may say what it was given
        scope, began = work.caller.scope, self._clock()

        def mask(text: str) -> str:
            return shortened(hidden.mask(self._masker.mask(text)), TEXT_LIMIT) if text else ""

        def mask_step(step: StepRecord) -> StepRecord:
            if not step.error and not step.inside:
                return step
            return replace(step, error=mask(step.error), inside=tuple(map(mask_step, step.inside)))

        begun = kept(
            Run(
                id=work.run,
                skill=skill.id,
                scope=str(scope),
                parameters=masked(schema, given, mask),
                status="running",
                began=time.time(),
                seconds=0,
                parent=parent,
                limit=_workflow(skill).max_seconds,
            )
        )

        def record(status: RunStatus = "running", failed: StepFailed | None = None, output: object = None) -> Run:
            run = replace(
                begun,
                status=status,
                seconds=self._clock() - began,
                steps=tuple(map(mask_step, work.steps)),
                error="" if failed is None else mask(str(failed)),
                output_size=len(json.dumps(output).encode()) if status == "completed" else 0,
            )
            self._records.keep(scope, run)
            return run

        def changed() -> None:
            record()

        work.changed = changed
        return record


def _workflow(skill: Skill) -> Workflow:
    if skill.workflow is None:
        raise ValueError(f"skill {skill.id} cannot be invoked")
    return skill.workflow
