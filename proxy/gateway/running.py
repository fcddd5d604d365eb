"""Running steps, in order or side by side: each calls a tool through the gate, or invokes a skill."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, Literal, TypeAlias, cast

import anyio
from anyio.abc import TaskGroup

from proxy.core.catalogue import Catalogue
from proxy.core.decision import Start
from proxy.core.decision import Step as StepOf
from proxy.core.errors import ProxyError
from proxy.core.expression_names import names_for
from proxy.core.failing import OutOfBounds, StepFailed, is_transient, may_have_run
from proxy.core.inventory import DEEPEST, Json, is_json, items, json_size
from proxy.core.invoke_tool import is_repeatable
from proxy.core.run import TEXT_LIMIT, StepRecord, ValueStatus, ranges
from proxy.core.scope import ScopeId, ScopeState, put
from proxy.core.steps import HEAP, Call, Parallel, Steps, calls
from proxy.core.texts import shortened
from proxy.gateway.forwarding import Forwarding
from proxy.gateway.gate import Gate
from proxy.gateway.stages import Nobody, Stages, StepChannel, output_told
from proxy.ports import Caller, Clock

MOST_ITEMS: Final = 1000
"""Values for which one step can be done."""
LARGEST_RESULT: Final = 1024 * 1024
"""Bytes of the JSON of a result that is kept for later steps."""
MOST_READ: Final = 10 * TEXT_LIMIT
"""Characters that are looked at of what a server says of a failure; fewer are told."""
MOST_RECORDED: Final = 1000
"""Steps of a run of which the records are kept, the first ones, with those of skills that they invoke."""

NOT_TRIED_AGAIN: Final = (
    " (not tried again: no annotation readOnlyHint or idempotentHint says that it may be, nor does idempotent: true)"
)
"""What is said of a failure that could pass, where the step has `retry` and may do harm twice."""

Invoke: TypeAlias = Callable[["Work", Call, Json], Awaitable[Any]]
"""Invokes the skill of a step with arguments, for the work that the step is part of; gives its output."""


class Heap:
    """What steps keep for a scope: on its state, and apart from it once the scope is `over`.

    `seen`: what it held when it was last looked at, which is all there is of a scope that is over.
    """

    def __init__(self, gate: Gate, scope: ScopeId, seen: Json | None = None, *, over: bool = False) -> None:
        self._gate = gate
        self._scope = scope
        self._over = over
        self._seen: Json = seen or {}

    async def values(self) -> Json:
        """All of it, by name."""
        if not self._over:
            state = await self._gate.store.get(self._scope)
            self._over = state is None
            self._seen = self._seen if state is None else state.heap
        return self._seen

    async def put(self, name: str, value: object) -> bool:
        """Keep a JSON value under a name; False where there is no room for it."""
        values = await self.values()
        if self._over:  # nothing must begin it again
            self._seen = {**values, name: value}
            return True
        fits = True

        def keep(state: ScopeState) -> ScopeState:
            nonlocal fits
            after = put(state, name, value)
            fits = after is not None
            return state if after is None else after

        await self._gate.change(self._scope, keep)
        return fits


@dataclass(eq=False)
class Work:
    """Steps that are run for somebody, and what has come of them.

    `caller`: the client, or nobody. `actor`: whose grants count, in `catalogue()`. `event`: what expressions know of
    the occasion. `params`: arguments of the invocation, None where there is none. `keeps`: whether what steps save goes
    on the heap, too. `goes_on`: why no further call may be made, empty where it may. `left`: calls that may still be
    made. `depth`: how many invocations this is, inside each other. `run`: the id of its record. `above`: what the names
    of its steps follow where the client is told of them. `results`: what steps have saved; `last`: the result of the
    last one. `began`: the time of the clock at which it did.
    """

    caller: Caller
    actor: StepOf | Start
    catalogue: Callable[[], Catalogue]
    heap: Heap
    event: Json
    stages: Stages
    params: Json | None = None
    keeps: bool = False
    goes_on: Callable[[], Awaitable[str]] | None = None
    left: float = inf
    depth: int = 0
    run: str = ""
    above: str = ""
    records: dict[str, StepRecord] = field(default_factory=dict[str, StepRecord])
    """Of all steps, by their places, in the order of the configuration."""
    inside: dict[str, tuple[StepRecord, ...]] = field(default_factory=dict[str, tuple[StepRecord, ...]])
    """By the place of a step, what has come of the steps of the skill that it has just invoked."""
    changed: Callable[[], None] = lambda: None
    """Called when a record has changed."""
    results: dict[str, Any] = field(default_factory=dict[str, Any])
    last: Any = None
    began: float = 0.0

    @property
    def steps(self) -> tuple[StepRecord, ...]:
        """What has come of its steps."""
        return tuple(self.records.values())


@dataclass(frozen=True)
class _Outcome:
    """What a step that was done has come to."""

    result: Any


class _Progress:
    """A step that is being done: keeps its record up to date in those of its work."""

    def __init__(self, work: Work, step: Call, now: float) -> None:
        self._work = work
        self._place = step.place
        self._record = StepRecord(step.name, step.target, now - work.began, 0, "running")
        self._values: list[ValueStatus] = []
        self.told = False
        """Whether the client has been told that it runs."""
        self.note()

    @property
    def attempts(self) -> int:
        """How often it was tried; of several values, the one that was tried most."""
        return self._record.attempts

    def note(self, **changes: Any) -> None:  # noqa: ANN401 - the fields of a record
        """The record changes in these fields."""
        self._record = replace(self._record, **changes)
        if self._place in self._work.records:
            self._work.records[self._place] = self._record
        self._work.changed()

    def has_values(self, number: int) -> None:
        """It is done for so many values."""
        self._values = ["not_begun"] * number

    def value(self, index: int, status: ValueStatus) -> None:
        """What one of its values has come to."""
        self._values[index] = status
        self.note(values=ranges(self._values))

    def keep_inside(self, above: str = "") -> None:
        """Keep the steps of the skill that it has invoked, where not all went well; their names follow `above`."""
        inside = self._work.inside.pop(self._place, ())
        if any(each.status not in {"completed", "skipped"} or each.inside for each in inside):
            kept = [replace(each, name=f"{above}{each.name}") for each in inside]
            room = MOST_RECORDED - sum(map(_number_of, self._work.records.values()))
            self.note(inside=(*self._record.inside, *kept)[: len(self._record.inside) + max(0, room)])

    def end(self, status: Literal["completed", "failed", "skipped", "cancelled"], now: float) -> None:
        """It has ended."""
        seconds = now - self._work.began - self._record.started
        self.note(status=status, seconds=seconds)


def _number_of(record: StepRecord) -> int:
    """A step and those inside."""
    return 1 + sum(map(_number_of, record.inside))


class Runner:
    """Runs steps by the decisions of `gate`; `invoke` has to be set before any step invokes a skill.

    `mask`: takes secrets out of what servers say of why a step has failed.
    """

    def __init__(
        self, gate: Gate, forwarding: Forwarding, clock: Clock, mask: Callable[[str], str] = lambda text: text
    ) -> None:
        self._gate = gate
        self._forwarding = forwarding
        self._clock = clock
        self._mask = mask
        self.invoke: Invoke | None = None

    async def run(self, work: Work, steps: Steps, within: float) -> None:
        """Run `steps`; cancelled, what has been sent to servers is cancelled there too.

        Raises:
            StepFailed: one has failed, or they took longer than `within` seconds.
        """
        work.began = self._clock()
        planned = [*calls(steps)][:MOST_RECORDED]
        work.records |= {one.place: StepRecord(one.name, one.target, 0, 0, "not_begun") for one in planned}
        work.changed()
        at: Call | Parallel | None = None
        with anyio.move_on_after(within) as limit:
            for at in steps:
                if isinstance(at, Call):
                    await self._step(work, at)
                else:
                    await self._side_by_side(work, at)
        if limit.cancelled_caught and at is not None:
            one = next((step for step in reversed(work.steps) if step.status == "cancelled"), None)
            name, target = (at.place, "") if one is None else (one.name, one.target)
            key = "hook_timeout" if work.params is None else "max_execution_time_seconds"
            why = f"all steps together have {within:g} s, and that is over (its {key})"
            raise OutOfBounds(name, at.place, target, why)

    async def names(self, work: Work) -> dict[str, Any]:
        """What expressions can use, by name."""
        caller, settings = work.caller, self._gate.settings
        names = names_for(
            caller.scope, caller.client, caller.version, await work.heap.values(), settings.expression_env
        )
        names |= {"steps": work.results, "event": work.event}
        return names if work.params is None else names | {"params": work.params}

    async def _side_by_side(self, work: Work, steps: Parallel) -> None:
        if not _wanted(steps.when, await self.names(work), steps.place, steps.place):
            for step in steps.steps:
                _Progress(work, step, self._clock()).end("skipped", self._clock())
            return
        failed: list[StepFailed] = []

        async def run(step: Call, tasks: TaskGroup) -> None:
            try:
                await self._step(work, step)
            except StepFailed as error:
                failed.append(error)
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for step in steps.steps:
                tasks.start_soon(run, step, tasks)
        if failed:
            raise failed[0]

    async def _step(self, work: Work, step: Call) -> None:
        """Do one step, and take note of how it went.

        Raises:
            StepFailed: it has failed, and does not let the others go on.
        """
        progress = _Progress(work, step, self._clock())
        status: Literal["completed", "failed", "skipped", "cancelled"] = "cancelled"
        told: Json = {}
        try:
            outcome = await self._do(work, step, progress)
            status = "skipped" if outcome is None else "completed"
            told = output_told(outcome.result) if outcome and step.skill and step.for_each is None else {}
        except StepFailed as failed:
            status, progress.told = "failed", True
            progress.note(error=failed.reason, may_have_run=failed.may_have_run)
            if step.on_error == "fail" or isinstance(failed, OutOfBounds):
                raise
        except Exception:
            status = "failed"
            progress.note(error="the proxy has failed, see its log", may_have_run=True)
            raise
        finally:
            progress.keep_inside()
            progress.end(status, self._clock())
            if status != "skipped" and progress.told:
                await work.stages.close(_told(work, step), status, **told)

    async def _do(self, work: Work, step: Call, progress: _Progress) -> _Outcome | None:
        """Do one step; None where it is left out."""
        if step.for_each is None:
            names = await self.names(work)
            if not _wanted(step.when, names, step.name, step.place, step.target):
                return None
            await self._tell_begin(work, step, progress)
            result = await self._tried(work, step, names, progress)
        else:
            from proxy.core.filters import kind  # noqa: PLC0415 - as below

            value = _value(step, step.for_each, await self.names(work), "for_each")
            if not isinstance(value, list):
                raise _failed(step, f"for_each is no list, but {kind(value)}")
            values = items(cast("object", value))
            if len(values) > MOST_ITEMS:
                raise _failed(step, f"for_each has {len(values):,} values, and may have {MOST_ITEMS:,}")
            await self._tell_begin(work, step, progress)
            result = await self._for_each(work, step, values, progress)
        await self._save(work, step, result)
        return _Outcome(result)

    async def _tell_begin(self, work: Work, step: Call, progress: _Progress) -> None:
        progress.told = True
        await work.stages.tell(_told(work, step), "running")

    async def _for_each(self, work: Work, step: Call, values: Sequence[Any], progress: _Progress) -> list[Any] | None:
        """The results for all values, None for one that has failed where that lets the others go on.

        None for all where they are too large, and nobody wants them.

        Raises:
            StepFailed: they are too large; or one has failed.
        """
        results: list[Any] = []
        size: float = 0
        progress.has_values(len(values))
        for index, item in enumerate(values):
            names = await self.names(work) | {"item": item, "index": index}
            wanted, result = True, None
            try:
                wanted = _wanted(step.when, names, step.name, step.place, step.target)
                if wanted:
                    progress.value(index, "running")
                    result = await self._tried(work, step, names, progress)
                progress.value(index, "completed" if wanted else "skipped")
            except StepFailed as error:
                unbounded = isinstance(error, OutOfBounds)
                progress.value(index, _of_value(error))
                progress.note(error=f"value {index}: {error.reason}")
                if step.on_error == "fail" or unbounded:
                    of, why = type(error), f"value {index}: {error.reason}"
                    raise of(
                        step.name,
                        step.place,
                        step.target,
                        why,
                        transient=error.transient,
                        may_have_run=error.may_have_run,
                    ) from None
            finally:
                progress.keep_inside(f"value {index} / ")
            if not wanted:
                continue
            size += json_size(result)
            if size <= LARGEST_RESULT:
                results.append(result)
            elif step.save_as:
                raise _too_large(step, size)
        return results if size <= LARGEST_RESULT else None

    async def _tried(self, work: Work, step: Call, names: Mapping[str, Any], progress: _Progress) -> Any:  # noqa: ANN401 - any JSON value
        """The result of the call that a step is, which is tried as often as the step says.

        Raises:
            StepFailed: it has none.
        """
        arguments = _value(step, step.arguments, names, "arguments")
        unclear = False
        attempt = 1
        while True:
            try:
                return await self._once(work, step, arguments)
            except StepFailed as failed:
                unclear = unclear or failed.may_have_run
                if not failed.transient or attempt > step.retries or not self._is_repeatable(work, step):
                    raise self._at_last(work, step, failed, attempt, unclear=unclear) from None
            attempt += 1
            progress.note(attempts=max(attempt, progress.attempts))
            await work.stages.tell(_told(work, step), "running", attempt=attempt)
            await anyio.sleep(step.retry_delay)

    def _is_repeatable(self, work: Work, step: Call) -> bool:
        """Whether a step does no harm twice."""
        return is_repeatable(step, work.catalogue(), self._gate.upstreams.inventory(work.caller.scope))

    def _at_last(self, work: Work, step: Call, failed: StepFailed, attempts: int, *, unclear: bool) -> StepFailed:
        """The failure of a step that is not tried again, with what is to be said of its attempts."""
        why = failed.reason
        if attempts > 1:
            why = f"after {attempts} attempts: {why}"
        elif step.retries and failed.transient and not self._is_repeatable(work, step):
            why = f"{shortened(why, TEXT_LIMIT - len(NOT_TRIED_AGAIN))}{NOT_TRIED_AGAIN}"
        of = type(failed)
        return of(step.name, step.place, step.target, why, transient=failed.transient, may_have_run=unclear)

    async def _once(self, work: Work, step: Call, arguments: Json) -> Any:  # noqa: ANN401 - any JSON value
        """The result of one attempt of the call that a step is.

        Raises:
            StepFailed: it has none.
        """
        if work.goes_on is not None and (why := await work.goes_on()):
            raise OutOfBounds(step.name, step.place, step.target, why)
        if work.left < 1:
            why = "no more calls may be made in one run (its max_iterations)"
            raise OutOfBounds(step.name, step.place, step.target, why)
        work.left -= 1
        timeout = inf if step.timeout is None else step.timeout
        with anyio.move_on_after(timeout):
            return await (self._invoked if step.skill else self._called)(work, step, arguments)
        raise _failed(step, f"it took longer than its timeout of {timeout:g} s", transient=True, may_have_run=True)

    async def _called(self, work: Work, step: Call, arguments: Json) -> Any:  # noqa: ANN401 - any JSON value
        if not isinstance(work.caller.channel, Nobody):
            self._gate.quotas.count_step(work.caller.scope)
        channel = StepChannel(work.caller.channel, work.stages, _told(work, step))
        caller = work.caller._replace(channel=channel)
        try:
            result = await self._forwarding.call_for_step(
                caller, work.actor, step.server, step.tool, arguments, work.catalogue
            )
        except ProxyError as error:
            why = self._mask(str(error)[:MOST_READ])
            raise _failed(step, why, transient=is_transient(error), may_have_run=may_have_run(error)) from None
        if result.get("isError") is True:
            why = self._mask(_text(result)[:MOST_READ])
            raise _failed(step, why or "the tool says that it has failed, and not why", transient=True)
        structured = result.get("structuredContent")
        return structured if is_json(structured) else _text(result)

    async def _invoked(self, work: Work, step: Call, arguments: Json) -> Any:  # noqa: ANN401 - any JSON value
        if self.invoke is None:
            raise RuntimeError("nothing invokes skills")
        return await self.invoke(work, step, arguments)

    async def _save(self, work: Work, step: Call, result: Any) -> None:  # noqa: ANN401 - any JSON value
        """Keep a result under the step's name, where it has one.

        Raises:
            StepFailed: it is too large, or nested too deeply.
        """
        kind, _, name = step.save_as.rpartition(".")
        size = json_size(result)
        if size > LARGEST_RESULT:
            if step.save_as:
                raise _too_large(step, size)
            result = None
        work.last = result
        if not step.save_as:
            return
        if kind != HEAP:
            work.results[name] = result
        if (kind == HEAP or work.keeps) and not await work.heap.put(name, result):
            raise _failed(step, f"the heap of this client is full: {name} does not fit on it")


def _told(work: Work, step: Call) -> str:
    """How the client is told of a step: inside others', after the names of these."""
    return f"{work.above}{step.name}"


def _wanted(when: object, names: Mapping[str, Any], name: str, place: str, target: str = "") -> bool:
    return when if isinstance(when, bool) else bool(_evaluated(when, names, name, place, target, "when"))


def _value(step: Call, value: object, names: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401 - any JSON value
    return _evaluated(value, names, step.name, step.place, step.target, key)


def _evaluated(value: object, names: Mapping[str, Any], name: str, place: str, target: str, key: str) -> Any:  # noqa: ANN401 - any JSON value
    from proxy.core.expressions import ExpressionError, evaluate  # noqa: PLC0415 - only who has steps pays for jinja2

    try:
        return evaluate(value, names, key)
    except ExpressionError as error:
        raise StepFailed(name, place, target, str(error)) from None


def _failed(step: Call, reason: str, *, transient: bool = False, may_have_run: bool = False) -> StepFailed:
    return StepFailed(step.name, step.place, step.target, reason, transient=transient, may_have_run=may_have_run)


def _of_value(failed: StepFailed) -> ValueStatus:
    """What a value has come to for which a step has failed; beyond its bounds nothing was called for it."""
    if failed.may_have_run:
        return "may_have_run"
    return "not_begun" if isinstance(failed, OutOfBounds) else "failed"


def _too_large(step: Call, size: float) -> StepFailed:
    if size == inf:
        return _failed(step, f"its result is nested more than {DEEPEST} deep, and cannot be kept")
    return _failed(step, f"its result has {size:,} bytes, and at most {LARGEST_RESULT:,} can be kept")


def _text(result: Json) -> str:
    """The text of a tool's result."""
    blocks = [block for block in items(result.get("content")) if is_json(block)]
    return "\n".join(text for block in blocks if isinstance(text := block.get("text"), str))
