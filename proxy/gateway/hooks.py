"""Changes of what is active, with what skills do when they begin and end: one change at a time in each scope.

While its hooks run, a skill is not granted: not yet, where it begins, and no longer, where it ends.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio
import structlog
from anyio.abc import TaskGroup

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.decision import Start
from proxy.core.decision import Step as StepOf
from proxy.core.failing import Event, HookFailed, StepFailed
from proxy.core.relations import (
    Blocked,
    activated,
    gone,
    made_room,
    not_begun,
    offloaded,
    required,
    without_orphans,
)
from proxy.core.run import TEXT_LIMIT, StepRecord
from proxy.core.scope import ScopeId, ScopeState, begun, started
from proxy.core.steps import Steps
from proxy.core.texts import flat
from proxy.gateway.gate import Gate
from proxy.gateway.running import Heap, Runner, Work
from proxy.gateway.stages import Stages, nobody
from proxy.ports import Caller

log = structlog.stdlib.get_logger("proxy.gateway")

AT_THE_END: Final = 1.4
"""Seconds that hooks have when the proxy ends; its servers have the rest of 5 s."""


@dataclass(frozen=True)
class Change:
    """What has come of a change: the states around it, or why it was not made.

    `blocked`: what stands in its way. `failed`: the hook for which it was not made. `gone`: the skills that it has
    ended. `unended`: hooks of those that failed.
    """

    before: ScopeState
    after: ScopeState
    blocked: Blocked | None = None
    failed: HookFailed | None = None
    gone: tuple[str, ...] = ()
    unended: tuple[HookFailed, ...] = ()


@dataclass
class _Room:
    """What has ended to make room for a skill."""

    gone: list[str] = field(default_factory=list[str])
    unended: list[HookFailed] = field(default_factory=list[HookFailed])


class Hooks:
    """Makes the changes of what is active in scopes. `tasks` own what ends skills behind nobody's request."""

    def __init__(self, gate: Gate, runner: Runner, tasks: TaskGroup) -> None:
        self._gate = gate
        self._runner = runner
        self._tasks = tasks
        self._turns: dict[ScopeId, anyio.Lock] = {}
        self._ending: dict[ScopeId, list[anyio.Event]] = {}  # what ends in a scope does so in this order

    async def activate(self, caller: Caller, stages: Stages, wanted: str) -> Change:
        """Make a skill active, and what it requires, once their hooks have done what they do.

        Skills whose place it takes have ended by then, with their hooks, and stay so if it cannot begin. `stages`: of
        the client's request. Cancelled before that, nothing becomes active.

        Raises:
            TooManyScopes: the scope is new, and one too many.
        """
        async with self._turn(caller.scope):
            first = await self._gate.state(caller.scope)
            room = _Room()
            try:
                change = await self._activate(caller, stages, wanted, room)
            finally:
                if room.gone:  # what nobody requires any more, where it was not made after all
                    await self._leave_orphans(caller.scope, room)
            state = await self._gate.state(caller.scope)
            return replace(
                change,
                before=first,
                after=state if change.failed is not None else change.after,
                gone=(*room.gone, *change.gone),
                unended=(*room.unended, *change.unended),
            )

    async def _activate(self, caller: Caller, stages: Stages, wanted: str, room: _Room) -> Change:
        """As `activate`, in the turn of the scope; skills whose place is taken end before those that join begin."""
        gate, scope = self._gate, caller.scope
        ready = set[str]()
        while True:  # while hooks run, the configuration may change, and with it what has to begin or end
            before, catalogue = await gate.state(scope), gate.catalogue(scope)
            if wanted not in catalogue.by_id:
                return Change(before, before)
            planned = activated(catalogue, before, wanted)
            if isinstance(planned, Blocked):
                return Change(before, before, blocked=planned)
            if gone(catalogue, before, planned):
                await self._make_room(caller, stages, wanted, room)
                continue
            due = before.due.intersection((wanted, *required(catalogue, wanted)))
            joining = [one for one in planned.active if one not in before.active or one in due]
            if ready.issuperset(joining):
                break
            failed = await self._begin(caller, stages, [catalogue.by_id[o] for o in joining if o not in ready])
            if failed is not None:
                return Change(before, before, failed=failed)
            ready.update(joining)
        before, after, blocked = await self._commit(scope, wanted, ready)
        return await self._ended_with(caller, stages, before, after, blocked)

    async def _make_room(self, caller: Caller, stages: Stages, wanted: str, room: _Room) -> None:
        """End the skills whose place `wanted` takes, with their hooks; cancelled, the hooks still run."""

        def leave(state: ScopeState) -> ScopeState:
            catalogue = self._gate.catalogue(caller.scope)
            return made_room(catalogue, state, wanted) if wanted in catalogue.by_id else state

        before, after = await self._gate.changed(caller.scope, leave)
        room.gone += [skill.id for skill in gone(self._gate.catalogue(caller.scope), before, after)]
        change = await self._ended_with(caller, stages, before, after, None)
        room.unended += change.unended

    async def _leave_orphans(self, scope: ScopeId, room: _Room) -> None:
        """End what was kept for a skill that has not become active; its hooks run soon."""

        def leave(state: ScopeState) -> ScopeState:
            return without_orphans(self._gate.catalogue(scope), state)

        before = after = ScopeState()
        with anyio.CancelScope(shield=True):
            before, after = await self._gate.changed(scope, leave)
        ended = gone(self._gate.catalogue(scope), before, after)
        room.gone += [skill.id for skill in ended]
        self._end_soon(scope, self._completed(ended, before), Heap(self._gate, scope, after.heap), "client")

    async def offload(self, caller: Caller, stages: Stages, wanted: str) -> Change:
        """Take a skill away, and what nobody else requires; then their hooks do what they do.

        Raises:
            TooManyScopes: the scope is new, and one too many.
        """
        gate, scope = self._gate, caller.scope
        blocked: Blocked | None = None

        def end(state: ScopeState) -> ScopeState:
            nonlocal blocked
            after = offloaded(gate.catalogue(scope), state, wanted)
            blocked = after if isinstance(after, Blocked) else None
            return state if isinstance(after, Blocked) else after

        async with self._turn(scope):
            before, after = await gate.changed(scope, end)
            return await self._ended_with(caller, stages, before, after, blocked)

    async def waits(self, scope: ScopeId) -> bool:
        """Whether something has to be done before the next call in a scope."""
        state = await self._gate.state(scope)
        return bool(state.due) or (not state.started and bool(self._gate.catalogue(scope).on_start))

    async def start(self, caller: Caller, stages: Stages) -> tuple[HookFailed | None, list[HookFailed]]:
        """Do what has to be done before a scope's first call; those who come meanwhile wait for it.

        What stands in the way of the call, and the hooks that failed of skills that are therefore not active any more.
        """
        gate, scope = self._gate, caller.scope
        dropped: list[HookFailed] = []
        async with self._turn(scope):
            catalogue, state = gate.catalogue(scope), await gate.state(scope)
            if catalogue.on_start and not state.started:
                failed = await self._start(caller, stages, catalogue)
                if failed is not None:
                    return failed, dropped
                await gate.change(scope, started)
            for skill in state.active:
                state = await gate.state(scope)
                if skill not in state.due or skill not in state.active:
                    continue
                one = gate.catalogue(scope).by_id.get(skill)
                failed = None if one is None else await self._begin(caller, stages, [one])
                if failed is None:
                    await gate.change(scope, lambda state, skill=skill: begun(state, [skill]))
                elif await self._drop(caller, stages, skill):
                    dropped.append(failed)
                else:
                    return failed, dropped
        return None, dropped

    def ended(self, scope: ScopeId, skills: Sequence[Skill], before: ScopeState, reason: str) -> None:
        """Skills of a scope have ended behind nobody's request; `before`: the state then. Their hooks run soon."""
        self._end_soon(scope, self._completed(skills, before), Heap(self._gate, scope, before.heap), reason)

    def scope_ended(self, scope: ScopeId, state: ScopeState | None, then: Callable[[], None]) -> None:
        """A scope is over, which was in `state`; `then` is called once its skills have ended, unless it is back.

        Among them are those that were over before, and are still ending.
        """
        state = state or ScopeState()
        skills = self._active(scope, state)
        if skills or scope in self._ending:
            self._end_soon(scope, skills, Heap(self._gate, scope, state.heap, over=True), "scope_ended", then)
        else:
            then()

    async def shut_down(self) -> None:
        """End the skills of all scopes that are not kept, side by side, as far as the time allows."""
        with anyio.move_on_after(AT_THE_END):
            for scope in await self._gate.store.scopes():
                state = await self._gate.store.get(scope)
                if state is not None and not self._gate.store.keeps(scope):
                    await self._gate.store.remove(scope)  # nothing else ends them once more
                    left = Heap(self._gate, scope, state.heap, over=True)
                    self._end_soon(scope, self._active(scope, state), left, "shutdown")
            while self._ending:
                await next(iter(self._ending.values()))[0].wait()

    @asynccontextmanager
    async def _turn(self, scope: ScopeId) -> AsyncGenerator[None]:
        """The only change of `scope` inside, after all that has ended in it has."""
        turns = self._turns.setdefault(scope, anyio.Lock())
        try:
            async with turns:
                await self._all_ended(scope)
                yield
        finally:
            if not turns.locked() and not turns.statistics().tasks_waiting:
                self._turns.pop(scope, None)

    async def _all_ended(self, scope: ScopeId) -> None:
        """Wait until what is ending in a scope has."""
        while ending := self._ending.get(scope):
            await ending[0].wait()

    async def _begin(self, caller: Caller, stages: Stages, skills: Sequence[Skill]) -> HookFailed | None:
        """Run the hooks of skills that are to begin, in order, until one fails."""
        self._gate.upstreams.need(self._gate.catalogue(caller.scope).needed_by(s.id for s in skills), caller.scope)
        done: tuple[StepRecord, ...] = ()
        for skill in skills:
            await self._all_ended(caller.scope)  # it may have been active before, and have gone by itself
            failed = await self._hook(caller, stages, "activate", skill, "client")
            if isinstance(failed, HookFailed):
                return replace(failed, done=(*done, *failed.done))
            done += failed
        return None

    async def _commit(
        self, scope: ScopeId, wanted: str, ready: Collection[str]
    ) -> tuple[ScopeState, ScopeState, Blocked | None]:
        """Make a skill active, with others that are `ready`, since their hooks have run; what is in the way is told."""
        blocked: Blocked | None = None

        def make_active(state: ScopeState) -> ScopeState:
            nonlocal blocked
            catalogue = self._gate.catalogue(scope)
            after = activated(catalogue, state, wanted) if wanted in catalogue.by_id else state
            blocked = after if isinstance(after, Blocked) else None
            if isinstance(after, Blocked):
                return state
            return begun(after, ready)

        before = after = await self._gate.state(scope)
        with anyio.CancelScope(shield=True):  # what has begun is active, whatever becomes of the request
            before, after = await self._gate.changed(scope, make_active)
        return before, after, blocked

    async def _ended_with(
        self,
        caller: Caller,
        stages: Stages,
        before: ScopeState,
        after: ScopeState,
        blocked: Blocked | None,
    ) -> Change:
        """The change, once the hooks of what it has ended have run; cancelled, the others still do."""
        scope, unended = caller.scope, list[HookFailed]()
        ended = gone(self._gate.catalogue(scope), before, after)
        left = self._completed(ended, before)
        try:
            while left:
                outcome = await self._hook(caller, stages, "offload", left.pop(), "client")
                if isinstance(outcome, HookFailed):
                    unended.append(outcome)
        finally:
            self._end_soon(scope, left, Heap(self._gate, scope, after.heap), "client")
        return Change(before, after, blocked, gone=tuple(skill.id for skill in ended), unended=tuple(unended))

    async def _drop(self, caller: Caller, stages: Stages, skill: str) -> bool:
        """Go on without a skill that was active from the start and could not begin; False where it has to stay."""
        has_to_stay = False

        def go_on(state: ScopeState) -> ScopeState:
            nonlocal has_to_stay
            after = not_begun(self._gate.catalogue(caller.scope), state, skill)
            has_to_stay = after is None
            return state if after is None else after

        before, after = await self._gate.changed(caller.scope, go_on)
        await self._ended_with(caller, stages, before, after, None)
        return not has_to_stay

    async def _start(self, caller: Caller, stages: Stages, catalogue: Catalogue) -> HookFailed | None:
        event = {"name": "scope_start", "skill": None, "reason": "first_call"}
        self._gate.upstreams.need(catalogue.start_tools, caller.scope)
        work = self._work(caller, stages, Start(), event)
        outcome = await self._run(work, catalogue.on_start, catalogue.start_timeout, "scope_start", "")
        return outcome if isinstance(outcome, HookFailed) else None

    async def _hook(
        self, caller: Caller, stages: Stages, event: Event, skill: Skill, reason: str, heap: Heap | None = None
    ) -> tuple[StepRecord, ...] | HookFailed:
        """Run one hook of a skill: the steps that have run, or that it failed."""
        steps = skill.on_activate if event == "activate" else skill.on_offload
        if not steps:
            return ()
        told = {"name": event, "skill": skill.id, "reason": reason}
        work = self._work(caller, stages, StepOf(skill.id), told)
        if heap is not None:
            work.heap = heap
        if event == "offload":
            work.catalogue = _with(work.catalogue, skill)
        return await self._run(work, steps, skill.hook_timeout, event, skill.id)

    def _work(self, caller: Caller, stages: Stages, actor: StepOf | Start, event: dict[str, Any]) -> Work:
        return Work(
            caller=caller,
            actor=actor,
            catalogue=lambda: self._gate.catalogue(caller.scope),
            heap=Heap(self._gate, caller.scope),
            event=event,
            stages=stages,
            keeps=True,
        )

    async def _run(
        self, work: Work, steps: Steps, within: float, event: Event, skill: str
    ) -> tuple[StepRecord, ...] | HookFailed:
        try:
            await self._runner.run(work, steps, within)
        except StepFailed as failed:
            log.warning(
                "hook.failed",
                scope=str(work.caller.scope),
                hook=event,
                skill=skill,
                step=failed.name,
                place=failed.place,
                reason=flat(failed.reason, TEXT_LIMIT),
            )
            return HookFailed(event, skill, failed, work.steps)
        return work.steps

    def _active(self, scope: ScopeId, state: ScopeState) -> list[Skill]:
        """The skills that have begun in a scope, and have to end."""
        known = self._gate.catalogue(scope).by_id
        return self._completed([known[skill] for skill in state.active if skill in known], state)

    def _completed(self, skills: Iterable[Skill], before: ScopeState) -> list[Skill]:
        """Those that have begun and do something when they end."""
        return [skill for skill in skills if skill.on_offload and skill.id not in before.due]

    def _end_soon(
        self, scope: ScopeId, skills: Sequence[Skill], heap: Heap, reason: str, then: Callable[[], None] | None = None
    ) -> None:
        if not skills and then is None:
            return
        ended = anyio.Event()
        self._ending.setdefault(scope, []).append(ended)
        self._tasks.start_soon(self._end, scope, skills, heap, reason, ended, then)

    async def _end(
        self,
        scope: ScopeId,
        skills: Sequence[Skill],
        heap: Heap,
        reason: str,
        ended: anyio.Event,
        then: Callable[[], None] | None,
    ) -> None:
        try:
            while (first := self._ending[scope][0]) is not ended:
                await first.wait()
            caller = nobody(scope)
            for skill in reversed(skills):
                try:
                    await self._hook(caller, Stages(caller.channel, {}), "offload", skill, reason, heap)
                except Exception:  # boundary: what goes wrong with the end of one skill ends nothing else
                    log.exception("hook.broken", scope=str(scope), skill=skill.id)
        finally:
            ended.set()
            self._ending[scope].remove(ended)
            if not self._ending[scope]:
                del self._ending[scope]
        if then is not None and scope not in self._ending and await self._gate.store.get(scope) is None:
            then()


def _with(catalogue: Callable[[], Catalogue], skill: Skill) -> Callable[[], Catalogue]:
    """The catalogue in force; where a skill is gone from it that has yet to end, with that."""
    extended: tuple[Catalogue, Catalogue] | None = None

    def now() -> Catalogue:
        nonlocal extended
        current = catalogue()
        if skill.id in current.by_id:
            return current
        if extended is None or extended[0] is not current:
            extended = current, replace(current, skills=(*current.skills, skill))
        return extended[1]

    return now
