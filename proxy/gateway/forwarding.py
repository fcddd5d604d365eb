"""Passing requests on to the server that answers them: the one way from a caller to an upstream."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from typing import Any, Final, TypeAlias, TypeVar

import structlog

from proxy.core import definition_answers, wording
from proxy.core.bindings import is_fixed, refused
from proxy.core.catalogue import NOTHING, Catalogue
from proxy.core.decision import Absence, Route, Start, Step, View, missing
from proxy.core.definitions import Change, of_skills
from proxy.core.errors import (
    AlreadySet,
    NotDelivered,
    ProxyError,
    Rejection,
    ServerLost,
    ServerSilent,
    ServerUnavailable,
    Unanswered,
    Unfilled,
    Unknown,
)
from proxy.core.expression_names import names_for
from proxy.core.inventory import Json, is_json, items, members_of
from proxy.core.mcp_apps import is_for_pages_only
from proxy.core.namespaced import Source, exposed_entry, exposed_in, in_plain_scheme, original
from proxy.core.published import published
from proxy.core.scope import ScopeId, ScopeState, handed_out
from proxy.gateway.gate import Gate
from proxy.gateway.idling import Idling
from proxy.gateway.rounds import Rounds, Withdrawn
from proxy.ports import Caller

log = structlog.stdlib.get_logger("proxy.gateway")

INVALID_PARAMS: Final = -32602
METHOD_NOT_FOUND: Final = -32601
_UNLIMITED: Final = nullcontext()

T = TypeVar("T")
CatalogueNow: TypeAlias = Callable[[], Catalogue]
"""Gives the catalogue in force."""

Destination: TypeAlias = tuple[str, Mapping[str, Any]]
"""The server that a request goes to, and the parameters that it gets there."""


class Forwarding:
    """Calls tools, gets prompts, reads and completes resources for callers, through the gate."""

    def __init__(self, gate: Gate, rounds: Rounds, idling: Idling) -> None:
        self._gate = gate
        self._rounds = rounds
        self._idling = idling

    async def call_tool(self, caller: Caller, params: Mapping[str, Any], *, direct: bool = True) -> dict[str, Any]:
        """Run `tools/call` with `params` under the original name; its result as it came.

        What the model can put right, and a server that cannot answer, come back as a result with the error flag.
        `direct`: the client called the tool under its own name, which shows that it knows the current list.

        Raises:
            Unknown: no tool of that name exists for the caller.
            Withdrawn: while it waited, skills have become active that have yet to begin; nothing was sent.
            Rejection: the server's own JSON-RPC error.
        """
        name: str = params["name"]
        found = await self._found(caller, name, direct=direct)
        if not isinstance(found, Route):
            return found
        given = _arguments(params)
        if direct:
            caller.channel.check(found.definition.get("inputSchema"), given)

        async def same() -> bool:
            state = await self._gate.state(caller.scope)
            return not state.due and self._gate.sight(caller.scope, state.active).view.tool(name) == found

        try:
            original = {**params, "name": found.original}
            original.pop("task", None)  # who has not declared tasks runs the call as any other (2025-11-25, tasks)
            if found.bound:
                original["arguments"] = {**given, **await self._bound(caller, found, given)}
            result = await self._send(caller, found.server, "tools/call", original, same, repeat=_may_repeat(found))
        except Withdrawn:
            if (await self._gate.state(caller.scope)).due:
                raise
            return await self.call_tool(caller, params, direct=direct)
        except (AlreadySet, Unfilled, ServerUnavailable, ServerLost, ServerSilent, Unanswered) as error:
            return wording.refusal(_without_result(name, error))
        if uris := tuple(_uris(result)):
            await self._gate.change(caller.scope, lambda state: handed_out(state, found.server, uris))
        return result

    async def call_for_step(
        self, caller: Caller, actor: Step | Start, server: str, tool: str, arguments: Json, catalogue: CatalogueNow
    ) -> dict[str, Any]:
        """Run a tool for a step, on behalf of `caller`, by the decision for `actor` in `catalogue()`.

        Its result as it came. Servers that want to know something ask on the caller's channel.

        Raises:
            Unknown: the step may not call that tool, or there is none.
            ServerUnavailable, ServerLost, ServerSilent, Rejection: the server did not answer, or with an error.
        """

        def find() -> Route | None:
            return self._gate.step_view(caller.scope, actor, catalogue()).tool_of(server, tool)

        found = find()
        if found is None and server in catalogue().servers:
            await self._gate.upstreams.connected(server, caller.scope)
            found = find()
        if found is None:
            raise Unknown(wording.not_for_step(server, tool))

        async def same() -> bool:
            return find() == found

        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": 0}}  # progress prolongs its time
        repeat = _may_repeat(found)
        try:
            return await self._send(caller, server, "tools/call", params, same, repeat=repeat, in_person=True)
        except Withdrawn:
            raise Unknown(wording.not_for_step(server, tool)) from None

    async def get_prompt(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `prompts/get` with `params` under the original name; its result as it came.

        Raises:
            Unknown: no prompt of that name exists for the caller.
            ServerUnavailable, ServerLost, ServerSilent: the server did not answer.
            Rejection: the server's own JSON-RPC error.
        """
        name: str = params["name"]

        async def find() -> Destination | None:
            found = (await self._view(caller)).prompts.get(name)
            return None if found is None else (found.server, {**params, "name": found.original})

        return await self._read(caller, "prompts/get", find, Unknown(f"Unknown prompt: {name}"))

    async def read_resource(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `resources/read` at the server that owns the URI; its result as it came.

        In that of an exposed URI, this one and those beside and below it are exposed again.

        Raises:
            Unknown: no such resource exists for the caller.
            ServerUnavailable, ServerLost, ServerSilent: the server did not answer.
            Rejection: the server's own JSON-RPC error.
        """
        uri: str = params["uri"]
        named = self._named(caller.scope, uri)

        async def find() -> Destination | None:
            source = await self.source(caller.scope, uri)
            return None if source is None else (source.server, {**params, "uri": source.uri})

        result = await self._read(caller, "resources/read", find, Unknown(f"Unknown resource: {uri}", uri))
        if named is None:
            return result
        beside = named.uri[: named.uri.rfind("/") + 1]
        return exposed_in(named.server, result, "contents", beside)

    async def get_skill(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `skills/get` for an exposed URI at its server; its result with the URIs exposed.

        Raises:
            Rejection: the caller sees no skill there; or the server's own JSON-RPC error.
            ServerUnavailable, ServerLost, ServerSilent: the server did not answer.
        """
        unknown = Rejection(INVALID_PARAMS, f"No skill is served at {params['uri']}")
        server, result = await self._ask(caller, "skills/get", params, View.shows_skill, unknown)
        return {**result, "skill": exposed_entry(server, result["skill"])} if "skill" in result else result

    async def read_folder(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `resources/directory/read` for an exposed URI at its server; its result with the URIs exposed.

        Raises:
            Rejection: the caller sees no skill with such a folder; or the server's own JSON-RPC error.
            ServerUnavailable, ServerLost, ServerSilent: the server did not answer.
        """
        unknown = Rejection(INVALID_PARAMS, f"{params['uri']} is not a directory resource")
        server, result = await self._ask(caller, "resources/directory/read", params, View.shows_folder, unknown)
        return exposed_in(server, result, "resources")

    async def complete(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `completion/complete` at the server of the prompt or resource; its result as it came.

        A server that completes nothing has no values.

        Raises:
            Unknown: no such prompt or resource exists for the caller.
            ServerUnavailable, ServerLost, ServerSilent: the server did not answer.
            Rejection: the server's own JSON-RPC error.
        """
        ref: Mapping[str, Any] = params["ref"]
        what = str(ref.get("name", ref.get("uri")))

        async def find() -> Destination | None:
            if ref["type"] == "ref/resource":
                source = (await self._view(caller)).has_template(what) or await self.source(caller.scope, what)
                return None if source is None else (source.server, {**params, "ref": {**ref, "uri": source.uri}})
            found = (await self._view(caller)).prompts.get(what)
            return None if found is None else (found.server, {**params, "ref": {**ref, "name": found.original}})

        kind = "resource" if ref["type"] == "ref/resource" else "prompt"
        try:
            return await self._read(caller, "completion/complete", find, Unknown(f"Unknown {kind}: {what}"))
        except Rejection as error:
            if error.code == METHOD_NOT_FOUND:
                return {"completion": {"values": []}}
            raise

    async def source(self, scope: ScopeId, uri: str) -> Source | None:
        """Where `uri` is read: the page of a tool at its server; else where it is listed, was handed out, or fits.

        Where several have such a tool, or list it, the one of them that has handed it out counts. What was handed out
        counts while a skill of that server is active. What is exposed under a server's name is read there or nowhere.
        """
        state = await self._gate.state(scope)
        catalogue = self._gate.catalogue(scope)
        plain = in_plain_scheme(uri)
        if published(catalogue, plain) is not None:  # a file of a skill: no server's, whatever it says
            return None
        view = self._gate.sight(scope, state.active).view
        if (named := original(plain, catalogue.servers)) is not None:
            return named if uri == plain and view.shows(named) else None
        giver = state.handed_out.get(uri)
        if giver not in catalogue.servers_of(state.active):
            giver = None
        server = view.page_owner(uri, giver) or view.lister_of(uri, giver) or giver or view.template_of(uri)
        return None if server is None else Source(server, uri)

    async def awaited_source(self, caller: Caller, uri: str) -> Source | None:
        """As `source`; where nothing has it yet, a server that is on its way is waited for."""
        return await self._once_there(caller, lambda: self.source(caller.scope, uri))

    def _named(self, scope: ScopeId, uri: str) -> Source | None:
        """What `uri` is exposed for, if it is under the name of one of the servers."""
        return original(uri, self._gate.catalogue(scope).servers)

    async def _ask(
        self,
        caller: Caller,
        method: str,
        params: Mapping[str, Any],
        shows: Callable[[View, Source], bool],
        unknown: Rejection,
    ) -> tuple[str, dict[str, Any]]:
        """Send a request about an exposed URI to its server, where the view `shows` that; the server, and its result.

        Raises:
            Rejection: `unknown`, where it does not; or the server's own JSON-RPC error.
            ServerUnavailable, ServerLost, ServerSilent: the server did not answer.
        """
        named = self._named(caller.scope, params["uri"])
        if named is None:
            raise unknown

        async def find() -> Destination | None:
            if not shows(await self._view(caller), named):
                return None
            return named.server, {**params, "uri": named.uri}

        return named.server, await self._read(caller, method, find, unknown)

    async def _read(
        self, caller: Caller, method: str, find: Callable[[], Awaitable[Destination | None]], unknown: ProxyError
    ) -> dict[str, Any]:
        """Send what changes nothing, and so may run twice, to where `find` says, now and once there is a connection."""
        found = await self._once_there(caller, find)

        async def same() -> bool:
            return await find() == found

        if found is not None:
            with suppress(Withdrawn):
                return await self._send(caller, found[0], method, found[1], same, repeat=True)
        raise unknown

    async def _bound(self, caller: Caller, route: Route, given: Json) -> dict[str, Any]:
        """The arguments that are filled in for a call beside those that are `given`.

        They are worked out when the call comes: what has no value is refused before it waits for a server, and what is
        sent again is the same.

        Raises:
            AlreadySet: some of them are given.
            Unfilled: one of them cannot be worked out.
        """
        if stray := refused(route.bound, given):
            raise AlreadySet(stray)
        values: dict[str, Any] = {name: one.value for name, one in route.bound.items()}
        if is_fixed(values):
            return values
        from proxy.core.expressions import ExpressionError, evaluate  # noqa: PLC0415 - Jinja2 takes a while

        heap = (await self._gate.state(caller.scope)).heap
        env = self._gate.settings.expression_env
        names = names_for(caller.scope, caller.client, caller.version, heap, env)
        for name, one in route.bound.items():
            try:
                values[name] = evaluate(one.value, names, name)
            except ExpressionError as error:
                raise Unfilled(one.skill, name, str(error)) from None
        return values

    async def _once_there(self, caller: Caller, find: Callable[[], Awaitable[T | None]]) -> T | None:
        """What `find` finds: at once, or when the servers that are on their way have come."""
        found = await find()
        if found is None:
            await self._wait_for_servers(caller)
            found = await find()
        return found

    async def _wait_for_servers(self, caller: Caller) -> None:
        """Wait for servers that are on their way, as long as a list does: one of them may bring what is asked for."""
        servers = self._gate.catalogue(caller.scope).servers_of((await self._gate.state(caller.scope)).active)
        await self._gate.upstreams.settled(servers, caller.scope, self._gate.settings.list_wait)

    async def _view(self, caller: Caller) -> View:
        return self._gate.sight(caller.scope, (await self._gate.state(caller.scope)).active).view

    async def _found(self, caller: Caller, name: str, *, direct: bool) -> Route | dict[str, Any]:
        """The route of a tool that `caller` may call by that name; or the refusal that helps.

        Raises:
            Unknown: no tool of that name exists for the caller.
        """
        found = (await self._view(caller)).tool(name) or await self._seek(caller, name)
        if isinstance(found, Route) and not direct and is_for_pages_only(found.definition):
            return wording.refusal(wording.for_pages_only(name))
        return found

    async def _seek(self, caller: Caller, name: str) -> Route | dict[str, Any]:
        """The route of a tool that is not exposed yet, once its server is there; or the refusal that helps.

        Raises:
            Unknown: no tool of that name exists for the caller.
        """
        gate = self._gate
        state = await gate.state(caller.scope)
        if (change := self._withheld(caller, state, name)) is not None:
            return definition_answers.held(name, change)
        absent = missing(gate.catalogue(caller.scope), state, gate.upstreams.inventory(caller.scope), name)
        if absent is None or absent.why is Absence.UNAVAILABLE:
            if absent is None:
                await self._wait_for_servers(caller)
            else:
                with suppress(ServerUnavailable):  # told below, by the server's status
                    await gate.upstreams.connected(absent.server, caller.scope)
            route = (await self._view(caller)).tool(name)
            if route is not None:
                return route
            state = await gate.state(caller.scope)
            if (change := self._withheld(caller, state, name)) is not None:
                return definition_answers.held(name, change)
            absent = missing(gate.catalogue(caller.scope), state, gate.upstreams.inventory(caller.scope), name)
        if absent is None:
            raise Unknown(wording.unknown_tool(name))
        if absent.why is not Absence.UNAVAILABLE:
            return wording.refusal(wording.not_active(name, absent))
        status = gate.upstreams.status(absent.server, caller.scope)
        if status.state == "ready":
            raise Unknown(wording.unknown_tool(name))
        return wording.refusal(wording.not_available(name, absent.server, status.reason or status.state))

    def _withheld(self, caller: Caller, state: ScopeState, name: str) -> Change | None:
        """The tool of that name that active skills grant, where it is withheld until the user approves it."""
        catalogue = self._gate.catalogue(caller.scope)
        changes = of_skills(catalogue, state.active, self._gate.upstreams.withheld(caller.scope))
        return next((one for one in changes if catalogue.naming.expose(one.server, one.tool) == name), None)

    async def _send(
        self,
        caller: Caller,
        server: str,
        method: str,
        params: Mapping[str, Any],
        same: Callable[[], Awaitable[bool]],
        *,
        repeat: bool,
        in_person: bool = False,
    ) -> dict[str, Any]:
        """Send a request to `server`, as long as the decision is the `same`.

        A lost connection is made again once; `repeat` says whether the request may run twice. Where it may have run,
        the error is always that of the run: a second try that fails does not make it unsent. `in_person`: as
        `Rounds.exchange`; it is the call of a step, which is no use of skills by the client.

        Raises:
            Withdrawn: a wait has changed the decision; nothing was sent since.
        """
        lost: ServerLost | None = None
        for last in (False, True):
            try:
                link = await self._gate.upstreams.connected(server, caller.scope)
                log.debug("request.forwarded", method=method, server=server, scope=str(caller.scope))
                limited = self._gate.catalogue(caller.scope).limited
                used = await self._used(caller.scope, server, method, params) if limited and not in_person else ()
                with self._idling.use(caller.scope, used) if used else _UNLIMITED:
                    return await self._rounds.exchange(link, caller, server, method, params, same, in_person=in_person)
            except ServerUnavailable as error:
                raise lost or error from None
            except NotDelivered as error:
                if last:
                    raise lost or ServerUnavailable(server, error.reason) from error
            except ServerLost as error:
                if last or not repeat:
                    raise
                lost = error
        raise AssertionError

    async def _used(self, scope: ScopeId, server: str, method: str, params: Mapping[str, Any]) -> list[str]:
        """The active skills with a limit on being idle that a request to `server` makes use of."""
        state, catalogue = await self._gate.store.get(scope), self._gate.catalogue(scope)
        if state is None:  # it is over, and a skill of it has yet to end
            return []
        skills = [catalogue.by_id[skill] for skill in state.active if skill in catalogue.limited]
        if method != "tools/call":
            return [skill.id for skill in skills if server in skill.servers]
        return [skill.id for skill in skills if skill.tools.get(server, NOTHING).allows(params["name"])]


def _arguments(params: Mapping[str, Any]) -> Json:
    """The arguments of a call."""
    return members_of(params.get("arguments"))


def _without_result(
    name: str, error: AlreadySet | Unfilled | ServerUnavailable | ServerLost | ServerSilent | Unanswered
) -> str:
    """Why the call of a tool has no result."""
    match error:
        case AlreadySet():
            return wording.bound_arguments(name, error.arguments)
        case Unfilled():
            return wording.unfilled(name, error.skill, error.argument, error.reason)
        case ServerUnavailable():
            return wording.not_available(name, error.server, error.reason)
        case ServerLost():
            return wording.call_lost(name, error.server, error.reason)
        case ServerSilent():
            return wording.call_timed_out(name, error.server, error.limit)
        case Unanswered():
            return wording.call_unanswered(name, error.server, error.reason, ran=error.ran)


def _may_repeat(route: Route) -> bool:
    """Whether the server says that running the tool twice does no harm (design rule 27)."""
    hints = route.definition.get("annotations")
    return is_json(hints) and (hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True)


def _uris(result: Mapping[str, Any]) -> Iterator[str]:
    """The resource URIs that a tool result hands out: links and embedded resources (design rule 6)."""
    for block in items(result.get("content")):
        if not is_json(block):
            continue
        holder = block if block.get("type") == "resource_link" else block.get("resource")
        if is_json(holder) and isinstance(uri := holder.get("uri"), str):
            yield uri
