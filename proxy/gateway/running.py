"""Running steps, in order or side by side: each calls a tool through the gate, or invokes a skill."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Literal, TypeAlias, cast

import anyio
from anyio.abc import TaskGroup

from proxy.core.catalogue import Catalogue
from proxy.core.decision import Start
from proxy.core.decision import Step as StepOf
from proxy.core.errors import ProxyError
from proxy.core.expression_names import names_for
from proxy.core.failing import OutOfBounds, StepFailed
from proxy.core.inventory import DEEPEST, Json, is_json, items, json_size
from proxy.core.run import TEXT_LIMIT, StepRecord
from proxy.core.scope import ScopeId, ScopeState, put
from proxy.core.steps import HEAP, Call, Parallel, Steps
from proxy.gateway.forwarding import Forwarding
from proxy.gateway.gate import Gate
from proxy.gateway.stages import Nobody, Stages, StepChannel
from proxy.ports import Caller, Clock

MOST_ITEMS: Final = 1000
"""Values for which one step can be done."""
LARGEST_RESULT: Final = 1024 * 1024
"""Bytes of the JSON of a result that is kept for later steps."""
MOST_READ: Final = 10 * TEXT_LIMIT
"""Characters that are looked at of what a server says of a failure; fewer are told."""
MOST_RECORDED: Final = 1000
"""Steps of a run of which the records are kept, the first ones."""

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
    of its steps follow where the client is told of them. `records`: of steps that have ended; `results`: what they
    saved; `last`: the result of the last one. `began`: the time of the clock at which it did.
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
    records: list[StepRecord] = field(default_factory=list[StepRecord])
    results: dict[str, Any] = field(default_factory=dict[str, Any])
    last: Any = None
    began: float = 0.0


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
        at: Call | Parallel | None = None
        with anyio.move_on_after(within) as limit:
            for at in steps:
                if isinstance(at, Call):
                    await self._step(work, at)
                else:
                    await self._side_by_side(work, at)
        if limit.cancelled_caught and at is not None:
            one = next((step for step in reversed(work.records) if step.status == "cancelled"), None)
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
        began = self._clock()
        status: Literal["completed", "failed", "skipped", "cancelled"] = "cancelled"
        error = ""
        try:
            status = "completed" if await self._do(work, step) else "skipped"
        except StepFailed as failed:
            status, error = "failed", failed.reason
            await work.stages.tell(_told(work, step), "failed")
            if step.on_error == "fail" or isinstance(failed, OutOfBounds):
                raise
        finally:
            if len(work.records) < MOST_RECORDED:
                now = self._clock()
                record = StepRecord(step.name, step.target, began - work.began, now - began, status, error)
                work.records.append(record)

    async def _do(self, work: Work, step: Call) -> bool:
        """Do one step; whether it was not left out."""
        if step.for_each is None:
            names = await self.names(work)
            if not _wanted(step.when, names, step.name, step.place, step.target):
                return False
            await work.stages.tell(_told(work, step), "running")
            result = await self._once(work, step, names)
        else:
            from proxy.core.filters import kind  # noqa: PLC0415 - as below

            value = _value(step, step.for_each, await self.names(work), "for_each")
            if not isinstance(value, list):
                raise _failed(step, f"for_each is no list, but {kind(value)}")
            values = items(cast("object", value))
            if len(values) > MOST_ITEMS:
                raise _failed(step, f"for_each has {len(values):,} values, and may have {MOST_ITEMS:,}")
            await work.stages.tell(_told(work, step), "running")
            result = await self._for_each(work, step, values)
        await self._save(work, step, result)
        await work.stages.tell(_told(work, step), "completed")
        return True

    async def _for_each(self, work: Work, step: Call, values: Sequence[Any]) -> list[Any] | None:
        """The results for all values, None for one that has failed where that lets the others go on.

        None for all where they are too large, and nobody wants them.

        Raises:
            StepFailed: they are too large; or one has failed.
        """
        results: list[Any] = []
        size: float = 0
        for index, item in enumerate(values):
            names = await self.names(work) | {"item": item, "index": index}
            if _wanted(step.when, names, step.name, step.place, step.target):
                result = None
                try:
                    result = await self._once(work, step, names)
                except StepFailed as error:
                    if step.on_error == "fail" or isinstance(error, OutOfBounds):
                        of = type(error)
                        raise of(step.name, step.place, step.target, f"value {index}: {error.reason}") from None
                size += json_size(result)
                if size <= LARGEST_RESULT:
                    results.append(result)
                elif step.save_as:
                    raise _too_large(step, size)
        return results if size <= LARGEST_RESULT else None

    async def _once(self, work: Work, step: Call, names: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON value
        """The result of the call that a step is.

        Raises:
            StepFailed: it has none.
        """
        arguments = _value(step, step.arguments, names, "arguments")
        if work.goes_on is not None and (why := await work.goes_on()):
            raise OutOfBounds(step.name, step.place, step.target, why)
        if work.left < 1:
            why = "no more calls may be made in one run (its max_iterations)"
            raise OutOfBounds(step.name, step.place, step.target, why)
        work.left -= 1
        timeout = inf if step.timeout is None else step.timeout
        with anyio.move_on_after(timeout):
            return await (self._invoked if step.skill else self._called)(work, step, arguments)
        raise _failed(step, f"it took longer than its timeout of {timeout:g} s")

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
            raise _failed(step, self._mask(str(error)[:MOST_READ])) from None
        if result.get("isError") is True:
            why = self._mask(_text(result)[:MOST_READ])
            raise _failed(step, why or "the tool says that it has failed, and not why")
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


def _failed(step: Call, reason: str) -> StepFailed:
    return StepFailed(step.name, step.place, step.target, reason)


def _too_large(step: Call, size: float) -> StepFailed:
    if size == inf:
        return _failed(step, f"its result is nested more than {DEEPEST} deep, and cannot be kept")
    return _failed(step, f"its result has {size:,} bytes, and at most {LARGEST_RESULT:,} can be kept")


def _text(result: Json) -> str:
    """The text of a tool's result."""
    blocks = [block for block in items(result.get("content")) if is_json(block)]
    return "\n".join(text for block in blocks if isinstance(text := block.get("text"), str))
