"""What a call of a tool comes to: our own tools are done by their use cases, all others are forwarded."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from proxy.core import hook_answers, wording
from proxy.core.catalogue import Skill
from proxy.core.foreign_text import one_line
from proxy.core.inventory import is_json, object_of
from proxy.core.invoke_tool import SKILL_INVOKE
from proxy.core.skill_tool import SKILL, SKILL_CALL
from proxy.gateway.announcing import Announcer
from proxy.gateway.forwarding import Forwarding
from proxy.gateway.gate import Gate
from proxy.gateway.hooks import Hooks
from proxy.gateway.invoking import Invoking
from proxy.gateway.listing import Listing
from proxy.gateway.rounds import Rounds, Withdrawn
from proxy.gateway.skills import Skills
from proxy.gateway.stages import Stages
from proxy.ports import Caller


class Calling:
    """Runs `tools/call`; before the first one of a scope, what has to be done before it."""

    def __init__(
        self,
        *,
        gate: Gate,
        listing: Listing,
        skills: Skills,
        invoking: Invoking,
        forwarding: Forwarding,
        hooks: Hooks,
        announcer: Announcer,
        rounds: Rounds,
    ) -> None:
        self._gate = gate
        self._listing = listing
        self._skills = skills
        self._invoking = invoking
        self._forwarding = forwarding
        self._hooks = hooks
        self._announcer = announcer
        self._rounds = rounds

    async def call(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `tools/call`; `params` as the client sent them, checked to have a `name`.

        Raises:
            Unknown: no tool of that name exists for the caller.
            Rejection: the server's own JSON-RPC error.
        """
        may_ask = await self._may_ask(caller, params)
        if (resumed := await self._rounds.resumed(caller, params, ours=may_ask)) is not None:
            return resumed
        if await self._hooks.waits(caller.scope):
            return await self._rounds.in_person(caller, params, partial(self._first, params=params))
        if may_ask:
            return await self._rounds.in_person(caller, params, partial(self._call, params=params))
        return await self._call(caller, params)

    async def _may_ask(self, caller: Caller, params: Mapping[str, Any]) -> bool:
        """Whether steps may run for this call, whose servers may put questions to the client."""
        catalogue, name = self._gate.catalogue(caller.scope), params["name"]
        if name == SKILL:
            return any(skill.hooked for skill in catalogue.skills)
        if not catalogue.invocable:
            return False
        if name == SKILL_CALL and is_json(arguments := params.get("arguments")):
            name = arguments.get("tool")
        return name == SKILL_INVOKE or await self._invoked(caller, name) is not None

    async def _first(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Do what has to be done before the first call of a scope, then the call.

        Where that goes on to a server, the progress that the client hears of is the server's alone.
        """
        ours = params["name"] == SKILL or await self._may_ask(caller, params)
        stages = Stages(caller.channel, params if ours else {})
        async with self._announcer.one_change(caller):
            failed, dropped = await self._hooks.start(caller, stages)
        if failed is not None:
            return hook_answers.not_started(failed)
        answer = await self._call(caller, params, stages)
        return hook_answers.with_dropped(answer, dropped) if params["name"] == SKILL else answer

    async def _call(self, caller: Caller, params: Mapping[str, Any], stages: Stages | None = None) -> dict[str, Any]:
        try:
            return await self._decided(caller, params, stages or Stages(caller.channel, params))
        except Withdrawn:  # while it waited, the configuration has made skills active that have yet to begin
            return await self._first(caller, params)

    async def _decided(self, caller: Caller, params: Mapping[str, Any], stages: Stages) -> dict[str, Any]:
        name: str = params["name"]
        arguments: Mapping[str, Any] = params.get("arguments") or {}
        catalogue = self._gate.catalogue(caller.scope)
        if name == SKILL and catalogue.skills:
            return await self._skills.call(caller, arguments, stages)
        if name == SKILL_CALL and await self._listing.shows_call_route(caller):
            return await self._skill_call(caller, params, arguments, stages)
        if catalogue.invocable:
            if name == SKILL_INVOKE:
                return await self._invoking.invoke(caller, arguments, stages)
            if (skill := await self._invoked(caller, name)) is not None:
                return await self._invoking.run(caller, skill, arguments, stages)
        return await self._forwarding.call_tool(caller, params)

    async def _invoked(self, caller: Caller, name: object) -> Skill | None:
        """The skill that is a tool of its own by that name, while it is active; nothing else has the name."""
        active = (await self._gate.state(caller.scope)).active
        skill = self._gate.sight(caller.scope, active).own_tools.get(name) if isinstance(name, str) else None
        return None if skill is None else self._gate.catalogue(caller.scope).by_id.get(skill)

    async def _skill_call(
        self, caller: Caller, params: Mapping[str, Any], arguments: Mapping[str, Any], stages: Stages
    ) -> dict[str, Any]:
        tool, inner = arguments.get("tool"), object_of(arguments.get("arguments", {}))
        if stray := [name for name in arguments if name not in ("tool", "arguments")]:
            return wording.refusal(
                f'SKILL_CALL takes "tool" and "arguments": put {one_line(", ".join(stray))} inside "arguments".'
            )
        if not isinstance(tool, str) or not tool:
            return wording.refusal('SKILL_CALL needs "tool": the name of a tool of an active skill.')
        if inner is None:
            return wording.refusal('SKILL_CALL needs "arguments" to be an object (or a JSON text of one).')
        if self._gate.catalogue(caller.scope).invocable and (skill := await self._invoked(caller, tool)) is not None:
            return await self._invoking.run(caller, skill, inner, stages)
        return await self._forwarding.call_tool(caller, {**params, "name": tool, "arguments": inner}, direct=False)
