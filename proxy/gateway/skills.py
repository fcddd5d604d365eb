"""The tools `SKILL` and `SKILL_CALL`: activating, offloading, listing and reading skills, calling their tools."""

import json
from collections.abc import Mapping
from typing import Any

import structlog

from proxy.core import wording
from proxy.core.catalogue import Skill
from proxy.core.decision import Step, View, decide
from proxy.core.inventory import is_json
from proxy.core.scope import activated, offloaded, relists
from proxy.core.skill_tool import ALIASES, SKILL, SKILL_CALL, actions
from proxy.core.wording import Instructions, Problem
from proxy.gateway.announcing import Announcer
from proxy.gateway.forwarding import Forwarding
from proxy.gateway.gate import Gate
from proxy.gateway.listing import Listing
from proxy.ports import Caller

log = structlog.stdlib.get_logger("proxy.gateway")


class Skills:
    """What a call of a tool comes to: our own tools are done here, all others are forwarded."""

    def __init__(self, gate: Gate, listing: Listing, forwarding: Forwarding, announcer: Announcer) -> None:
        self._gate = gate
        self._listing = listing
        self._forwarding = forwarding
        self._announcer = announcer

    async def call(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `tools/call`; `params` as the client sent them, checked to have a `name`.

        Raises:
            Unknown: no tool of that name exists for the caller.
            Rejection: the server's own JSON-RPC error.
        """
        name: str = params["name"]
        arguments: Mapping[str, Any] = params.get("arguments") or {}
        if name == SKILL and self._gate.catalogue.skills:
            return await self._skill(caller, arguments)
        if name == SKILL_CALL and self._listing.shows_call_route(caller):
            return await self._skill_call(caller, params, arguments)
        return await self._forwarding.call_tool(caller, params)

    async def _skill_call(
        self, caller: Caller, params: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        tool, inner = arguments.get("tool"), arguments.get("arguments", {})
        if stray := [name for name in arguments if name not in ("tool", "arguments")]:
            return wording.refusal(
                f'SKILL_CALL takes "tool" and "arguments": put {", ".join(stray)} inside "arguments".'
            )
        if isinstance(inner, str):
            try:
                inner = json.loads(inner or "{}")
            except ValueError:
                inner = None
        if not isinstance(tool, str) or not tool:
            return wording.refusal('SKILL_CALL needs "tool": the name of a tool of an active skill.')
        if not is_json(inner):
            return wording.refusal('SKILL_CALL needs "arguments" to be an object (or a JSON text of one).')
        return await self._forwarding.call_tool(caller, {**params, "name": tool, "arguments": inner}, direct=False)

    async def _skill(self, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
        catalogue = self._gate.catalogue
        usable = actions(catalogue)
        action = arguments.get("action")
        if not isinstance(action, str) or (action := ALIASES.get(action, action)) not in {*usable, *ALIASES.values()}:
            return wording.bad_arguments(f"Unknown action {action!r}." if action else "The action is missing.", usable)
        state = await self._gate.state(caller.scope)
        if action == "list":
            return wording.listing(catalogue, state.active)
        wanted = arguments.get("skill_name")
        if not isinstance(wanted, str) or not wanted:
            return wording.bad_arguments(f"Action {action} needs a skill_name.", usable)
        skill = catalogue.by_id.get(wanted)
        if action == "offload":
            return await self._offload(caller, wanted, skill)
        if skill is None:
            return wording.skill_not_found(action, wanted, catalogue, state.active)
        if action == "activate":
            return await self._activate(caller, skill)
        tool = arguments.get("tool")
        return wording.guide(skill, state.active) if not tool else await self._read_tool(caller, skill, str(tool))

    async def _activate(self, caller: Caller, skill: Skill) -> dict[str, Any]:
        """Make `skill` active at once, then wait for its servers; the notice goes out before the result."""
        gate = self._gate
        wanted, again = skill.id, skill.id in (await gate.state(caller.scope)).active
        async with self._announcer.one_change(caller):
            # The configuration may have changed since the skill was found, and may while its servers are waited for.
            await gate.change(
                caller.scope, lambda state: activated(state, wanted) if wanted in gate.catalogue.by_id else state
            )
            await self._servers_of(skill, caller)
        state = await gate.state(caller.scope)
        found = gate.catalogue.by_id.get(wanted)
        if found is None:
            return wording.skill_not_found("activate", wanted, gate.catalogue, state.active)
        skill = found
        log.info("skill.activated", skill=skill.id, scope=str(caller.scope), again=again)
        offers = gate.upstreams.inventory(caller.scope)
        view = decide(gate.catalogue, state.active, offers, Step(skill.id))
        exposed = gate.sight(caller.scope, state.active).view.tools
        return wording.activation(
            skill,
            state.active,
            again=again,
            tools=[route for name, route in view.tools.items() if name in exposed],
            with_schemas=not relists(state, caller.connection),
            call_route=self._listing.shows_call_route(caller),
            instructions=[
                Instructions(server, text)
                for server in gate.catalogue.servers_of([skill.id])
                if server in offers and (text := offers[server].instructions)
            ],
            problems=self._problems(skill, caller),
        )

    async def _offload(self, caller: Caller, wanted: str, skill: Skill | None) -> dict[str, Any]:
        if skill is not None and skill.pinned:
            return wording.pinned(wanted, (await self._gate.state(caller.scope)).active)
        was_active = wanted in (await self._gate.state(caller.scope)).active
        async with self._announcer.one_change(caller):
            state = await self._gate.change(caller.scope, lambda state: offloaded(state, wanted))
        if was_active:
            log.info("skill.offloaded", skill=wanted, scope=str(caller.scope))
        return wording.offloading(wanted, state.active, was_active=was_active)

    async def _read_tool(self, caller: Caller, skill: Skill, tool: str) -> dict[str, Any]:
        await self._servers_of(skill, caller)
        state = await self._gate.state(caller.scope)
        inventory = self._gate.upstreams.inventory(caller.scope)
        view: View = decide(self._gate.catalogue, state.active, inventory, Step(skill.id))
        route = view.tools.get(tool) or next((r for r in view.tools.values() if r.original == tool), None)
        if route is None:
            return wording.tool_not_in_skill(skill, tool, view.tools, self._problems(skill, caller))
        return wording.tool_schema(skill, state.active, route)

    async def _servers_of(self, skill: Skill, caller: Caller) -> None:
        servers = self._gate.catalogue.servers_of([skill.id])
        self._gate.upstreams.need(servers, caller.scope)
        await self._gate.upstreams.settled(servers, caller.scope, self._gate.settings.activation_wait)

    def _problems(self, skill: Skill, caller: Caller) -> list[Problem]:
        catalogue, upstreams = self._gate.catalogue, self._gate.upstreams
        statuses = [(server, upstreams.status(server, caller.scope)) for server in catalogue.servers_of([skill.id])]
        problems = [
            Problem(server, status.state, status.reason or "it has not answered yet", status.next_try)
            for server, status in statuses
            if status.state != "ready"
        ]
        switched_off = sorted(skill.servers - set(catalogue.servers))
        return problems + [Problem(s, "disabled", "the configuration says so") for s in switched_off]
