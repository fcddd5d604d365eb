"""The tool `SKILL`: activating, offloading, listing and reading skills."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from proxy.core import activation_answer, definition_answers, hook_answers, run_answers, skill_answers, wording
from proxy.core.activation_answer import ActivationContent
from proxy.core.catalogue import Catalogue, Skill
from proxy.core.decision import decide
from proxy.core.definitions import of_skills
from proxy.core.errors import Unreadable
from proxy.core.explanation import ToolId, explain, told_to_model
from proxy.core.mcp_apps import is_for_pages_only
from proxy.core.relations import required, told
from proxy.core.report import not_granted
from proxy.core.scope import ScopeState, instructed
from proxy.core.skill_tool import ALIASES, actions
from proxy.core.wording import Problem
from proxy.gateway.announcing import Announcer
from proxy.gateway.finding import Finding
from proxy.gateway.gate import Gate
from proxy.gateway.guides import guide_of
from proxy.gateway.hooks import Hooks
from proxy.gateway.idling import Idling
from proxy.gateway.list_reads import ExpectedRead
from proxy.gateway.listing import Listing
from proxy.gateway.stages import Stages
from proxy.ports import Caller, RunRecords, SkillFiles

log = structlog.stdlib.get_logger("proxy.gateway")


class Skills:
    """What a call of `SKILL` comes to."""

    def __init__(
        self,
        *,
        gate: Gate,
        listing: Listing,
        announcer: Announcer,
        idling: Idling,
        files: SkillFiles,
        finding: Finding,
        hooks: Hooks,
        records: RunRecords,
    ) -> None:
        self._gate = gate
        self._listing = listing
        self._announcer = announcer
        self._idling = idling
        self._files = files
        self._finding = finding
        self._hooks = hooks
        self._records = records

    async def call(self, caller: Caller, arguments: Mapping[str, Any], stages: Stages) -> dict[str, Any]:
        """Run a call of `SKILL`; `stages`: of the request."""
        return await self._with_news(caller, await self._skill(caller, arguments, stages))

    async def _with_news(self, caller: Caller, answer: dict[str, Any]) -> dict[str, Any]:
        """`answer` with a word on definitions that have changed and skills that were offloaded by themselves, once."""
        answer = wording.with_note(answer, self._changed(caller, ()))
        expired = (await self._gate.state(caller.scope)).expired
        if not expired:
            return answer
        await self._gate.change(caller.scope, told)
        return skill_answers.with_expired(answer, expired, self._gate.catalogue(caller.scope))

    async def _skill(self, caller: Caller, arguments: Mapping[str, Any], stages: Stages) -> dict[str, Any]:
        catalogue = self._gate.catalogue(caller.scope)
        usable = actions(catalogue)
        action = arguments.get("action")
        if not isinstance(action, str) or (action := ALIASES.get(action, action)) not in {*usable, *ALIASES.values()}:
            return wording.bad_arguments(f"Unknown action {action!r}." if action else "The action is missing.", usable)
        state = await self._gate.state(caller.scope)
        if action == "list":
            return await self._finding.list(catalogue, state.active, arguments)
        wanted = arguments.get("skill_name")
        if not isinstance(wanted, str) or not wanted:
            return wording.bad_arguments(f"Action {action} needs a skill_name.", usable)
        skill = catalogue.find(wanted)
        wanted = wanted if skill is None else skill.id
        if action == "offload":
            return await self._offload(caller, stages, wanted)
        if skill is None:
            return wording.skill_not_found(wanted, catalogue)
        if action == "activate":
            return await self._activate(caller, stages, wanted)
        with self._idling.use(caller.scope, [wanted]):
            return await self._read(caller, skill, arguments, state)

    async def _activate(self, caller: Caller, stages: Stages, wanted: str) -> dict[str, Any]:
        """Make a skill active, then wait for its servers; the notice goes out before the result, which is held."""
        gate = self._gate
        with self._idling.use(caller.scope, [wanted]):
            async with self._announcer.one_held_change(caller) as read:
                change = await self._hooks.activate(caller, stages, wanted)
                # The configuration may change while servers are waited for, and has perhaps since the skill was found.
                if wanted in change.after.active and wanted in gate.catalogue(caller.scope).by_id:
                    await self._servers_of([*required(gate.catalogue(caller.scope), wanted), wanted], caller)
        state, catalogue = await gate.state(caller.scope), gate.catalogue(caller.scope)
        skill = catalogue.by_id.get(wanted)
        if skill is None:
            return wording.skill_not_found(wanted, catalogue)
        if change.failed is not None:
            refused = hook_answers.not_begun(wanted, change.failed, state.active, change.gone)
            return hook_answers.with_unended(refused, change.unended)
        if change.blocked is not None:
            refused = skill_answers.blocked(wanted, change.blocked, catalogue, state.active)
            refused = wording.with_note(refused, hook_answers.made_room(wanted, change.gone))
            return hook_answers.with_unended(refused, change.unended)
        again = wanted in change.before.active
        log.info("skill.activated", skill=skill.id, scope=str(caller.scope), again=again)
        answer = await self._activation(caller, skill, change.before, read, again=again)
        return hook_answers.with_unended(answer, change.unended)

    async def _activation(
        self, caller: Caller, skill: Skill, before: ScopeState, read: ExpectedRead, *, again: bool
    ) -> dict[str, Any]:
        """What is told of an activation; `read`: what the caller has read of its list since it was changed."""
        guide = await guide_of(skill, self._files)  # first: all else is of one moment, and that is the last
        call_route = await self._listing.has_call_route(caller)
        state = await self._gate.state(caller.scope)
        content = self._content(caller, skill, before, state, guide)
        if again:
            return activation_answer.activation_again(skill, content, state.active, call_route=call_route)
        content = replace(content, instructions=await self._unheard(caller, skill, before, content.instructions))
        listed = read.version >= state.tools_version
        return activation_answer.activation(skill, content, state.active, listed=listed, call_route=call_route)

    def _content(
        self, caller: Caller, skill: Skill, before: ScopeState, state: ScopeState, guide: str
    ) -> ActivationContent:
        """What an activation brings: of the skill, and of those that came with it."""
        gate, catalogue = self._gate, self._gate.catalogue(caller.scope)
        told_of = _told_of(catalogue, skill, before)
        offers = gate.upstreams.inventory(caller.scope)
        exposed = gate.sight(caller.scope, state.active).view.tools
        granted = decide(catalogue, told_of, offers).tools
        return ActivationContent(
            guide=guide,
            tools=[route for name, route in exposed.items() if name in granted],
            instructions=[
                (server, text)
                for server in catalogue.servers_of(told_of)
                if server in offers and (text := offers[server].instructions)
            ],
            problems=self._problems(catalogue, told_of, caller),
            changed=self._changed(caller, told_of),
            notes=skill_answers.notes(
                skill,
                required(catalogue, skill.id),
                [one for one in before.active if one not in state.active],
                self._not_offered(caller, told_of),
            ),
        )

    def _not_offered(self, caller: Caller, skills: Collection[str]) -> list[str]:
        """What these skills list that their servers do not offer, of servers that are ready."""
        catalogue, upstreams = self._gate.catalogue(caller.scope), self._gate.upstreams
        offers = upstreams.inventory(caller.scope)
        withheld = upstreams.withheld(caller.scope)
        return [
            told
            for one in skills
            for server in catalogue.by_id[one].servers
            if server in offers and upstreams.status(server, caller.scope).state == "ready"
            for told in not_granted(
                catalogue.by_id[one], server, offers[server], [each.tool for each in withheld if each.server == server]
            )
        ]

    async def _unheard(
        self, caller: Caller, skill: Skill, before: ScopeState, said: Sequence[tuple[str, str]]
    ) -> list[tuple[str, str]]:
        """Of the instructions of servers, those that no skill which is active beside this one has brought already."""
        catalogue = self._gate.catalogue(caller.scope)
        brought = _told_of(catalogue, skill, before)

        def beside(state: ScopeState) -> Sequence[str]:
            return catalogue.servers_of(one for one in state.active if one not in brought)

        servers = [server for server, _ in said]
        earlier, _ = await self._gate.changed(caller.scope, lambda state: instructed(state, servers, beside(state)))
        heard = earlier.instructed.intersection(beside(earlier))
        return [(server, text) for server, text in said if server not in heard]

    def _changed(self, caller: Caller, skills: Collection[str]) -> str:
        """What is to be said of changed definitions: those not told yet, and what is withheld of these skills."""
        catalogue, upstreams = self._gate.catalogue(caller.scope), self._gate.upstreams
        withheld = {(one.server, one.tool): one for one in upstreams.withheld(caller.scope)}
        untold = {(one.server, one.tool): one._replace(held=False) for one in upstreams.untold_changes(caller.scope)}
        held = {(one.server, one.tool): one for one in of_skills(catalogue, skills, [*withheld.values()])}
        now = {key: withheld.get(key, one) for key, one in untold.items()}
        return definition_answers.changed(catalogue.naming, [*(now | held).values()])

    async def _offload(self, caller: Caller, stages: Stages, wanted: str) -> dict[str, Any]:
        async with self._announcer.one_held_change(caller):
            change = await self._hooks.offload(caller, stages, wanted)
        current, catalogue = (await self._gate.state(caller.scope)).active, self._gate.catalogue(caller.scope)
        if change.blocked is not None:
            return skill_answers.blocked(wanted, change.blocked, catalogue, current)
        for skill in change.gone:
            log.info("skill.offloaded", skill=skill, scope=str(caller.scope))
        with_it = [skill for skill in change.gone if skill != wanted]
        gone, exists = wanted in change.gone, wanted in catalogue.by_id
        answer = wording.offloading(wanted, current, exists=exists, was_active=gone, besides=with_it)
        return hook_answers.with_unended(answer, change.unended)

    async def _read(
        self, caller: Caller, skill: Skill, arguments: Mapping[str, Any], state: ScopeState
    ) -> dict[str, Any]:
        if tool := arguments.get("tool"):
            return await self._read_tool(caller, skill, str(tool))
        if path := arguments.get("path"):
            return await self._read_file(caller, skill, str(path))
        return skill_answers.guide(skill, await guide_of(skill, self._files), state.active)

    async def _read_file(self, caller: Caller, skill: Skill, path: str) -> dict[str, Any]:
        """What is at a path of a skill: its runs in the caller's scope, or a file that it is known to have."""
        files = () if skill.folder is None else skill.folder.files
        wanted = path.rstrip("/").removeprefix("./")
        if run_answers.concerns_runs(skill, wanted):
            told = run_answers.runs_at(wanted, self._records.of(caller.scope, skill.id))
            return skill_answers.no_run(skill, path) if told is None else wording.answer(told)
        one = None if skill.folder is None else skill.folder.file(wanted)
        if one is None:
            inside = [file for file in files if file.path.startswith(f"{wanted}/") or wanted == "."]
            return skill_answers.folder(skill, wanted, inside) if inside else skill_answers.no_file(skill, path)
        if one.size > skill_answers.READ_LIMIT:
            return skill_answers.too_large(skill, one)
        try:
            content = await self._files.read(skill, one.path)
        except Unreadable as error:
            return skill_answers.unreadable(skill, one.path, error.reason)
        if len(content) > skill_answers.READ_LIMIT:  # it has grown since
            return skill_answers.too_large(skill, one._replace(size=len(content)))
        return skill_answers.file(skill, one.path, content)

    async def _read_tool(self, caller: Caller, skill: Skill, tool: str) -> dict[str, Any]:
        await self._servers_of([skill.id], caller)
        state, catalogue = await self._gate.state(caller.scope), self._gate.catalogue(caller.scope)
        inventory = self._gate.upstreams.inventory(caller.scope)
        granted = decide(catalogue, [skill.id], inventory).tools
        seen = decide(catalogue, [*state.active, skill.id], inventory).tools  # as it would be beside what is active
        tools = {name: r for name, r in seen.items() if name in granted and not is_for_pages_only(r.definition)}
        route = tools.get(tool) or next((r for r in tools.values() if r.original == tool), None)
        if route is None:
            problems = self._problems(catalogue, [skill.id], caller)
            return wording.tool_not_in_skill(skill, tool, tools, problems)
        told = explain(catalogue, state, inventory, ToolId(route.server, route.original))
        return wording.with_note(activation_answer.tool_schema(skill, route), told_to_model(told))

    async def _servers_of(self, skills: Collection[str], caller: Caller) -> None:
        servers = self._gate.catalogue(caller.scope).servers_of(skills)
        self._gate.upstreams.need(servers, caller.scope)
        await self._gate.upstreams.settled(servers, caller.scope, self._gate.settings.activation_wait)

    def _problems(self, catalogue: Catalogue, skills: Collection[str], caller: Caller) -> list[Problem]:
        upstreams = self._gate.upstreams
        statuses = [(server, upstreams.status(server, caller.scope)) for server in catalogue.servers_of(skills)]
        problems = [
            Problem(server, status.state, status.reason or "it has not answered yet", status.next_try)
            for server, status in statuses
            if status.state != "ready"
        ]
        named = {server for skill in skills if skill in catalogue.by_id for server in catalogue.by_id[skill].servers}
        switched_off = sorted(named - set(catalogue.servers))
        return problems + [Problem(s, "disabled", "the configuration says so") for s in switched_off]


def _told_of(catalogue: Catalogue, skill: Skill, before: ScopeState) -> list[str]:
    """The skills that an activation brings: `skill`, and those that it requires and that were not active before."""
    needed = required(catalogue, skill.id)
    return [one for one in (*needed, skill.id) if one == skill.id or one not in before.active]
