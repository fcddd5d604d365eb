"""The wiring: a loaded configuration becomes a running proxy."""

import math
import os
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import anyio
import structlog
from starlette.applications import Starlette
from starlette.types import ASGIApp

from proxy.config.difference import InForce, abridged, difference, in_force, late
from proxy.config.load import Loaded, Problem, Refused
from proxy.config.skill_files import FolderFiles
from proxy.core.definitions import NO_GRANT
from proxy.core.masking import Masker
from proxy.core.scope import ScopeId, ScopeState, disconnected
from proxy.core.server import Server
from proxy.core.settings import Settings
from proxy.face.clients import ClientRegistry
from proxy.face.http import http_app, token_fault, way_in
from proxy.face.identity import Identity
from proxy.face.lifetimes import Lifetimes
from proxy.face.principals import Principal, Principals
from proxy.face.server import ProxyServer
from proxy.face.sessions import Sessions
from proxy.gateway.announcing import Announcer
from proxy.gateway.calling import Calling
from proxy.gateway.finding import Finding
from proxy.gateway.forwarding import Forwarding
from proxy.gateway.gate import Gate
from proxy.gateway.hooks import Hooks
from proxy.gateway.idling import Idling
from proxy.gateway.invoking import Invoking
from proxy.gateway.list_reads import ListReads
from proxy.gateway.listing import Listing
from proxy.gateway.publishing import Publishing
from proxy.gateway.quotas import Quotas
from proxy.gateway.rounds import Rounds
from proxy.gateway.running import Runner
from proxy.gateway.skills import Skills
from proxy.gateway.subscriptions import Subscriptions
from proxy.gateway.unmatched_names import UnmatchedNames
from proxy.ports import Remembered, SkillSearch, Status, Subscriber
from proxy.store.cache_folder import cache_folder
from proxy.store.memory import MemoryStore
from proxy.store.offers import OfferFiles
from proxy.store.pins import PinFiles
from proxy.store.trial import TrialStore
from proxy.upstream.pool import Pool
from proxy.upstream.spawn import Early

log = structlog.stdlib.get_logger("proxy")


@dataclass
class Running:
    """A proxy that runs: its server, and what the HTTP face and a change of the configuration need besides.

    `loaded`: what the file says. `approved`: what it said when servers were last put into effect from it: at the
    start, or when the user asked for that. `own`: the scope of its one client, None where it serves many.
    """

    loaded: Loaded
    approved: Loaded
    own: ScopeId | None
    server: ProxyServer
    pool: Pool
    gate: Gate
    announcer: Announcer
    idling: Idling
    subscriptions: Subscriptions
    identity: Identity
    clients: ClientRegistry
    lifetimes: Lifetimes
    reads: ListReads
    masker: Masker
    principals: Principals
    tasks: anyio.abc.TaskGroup
    unmatched_names: UnmatchedNames
    _waiting: tuple[Mapping[str, Server | None], tuple[str, ...]] = field(default=({}, ()))
    _sessions: Sessions | None = None
    _way_in: str | None = None

    async def reload(self, loaded: Loaded, *, full: bool) -> None:
        """Put into effect what is different in `loaded`, and nothing else.

        Servers that are new or different start programs, and tokens let people in: they wait until the user asks for a
        `full` reload.

        Raises:
            Refused: others could reach the proxy without a token or with a short one; nothing has changed.
        """
        if full and (fault := token_fault(self._way_in, loaded.settings.tokens)) is not None:
            raise Refused([Problem(str(loaded.path), 0, "proxy.tokens", fault)])
        before, self.loaded = self.loaded, loaded
        self.masker.learn(loaded.secrets)
        if full:
            self.approved = loaded
        now = in_force(self.approved, loaded)
        self._tell(before, loaded, now)
        if full and self.own is None:
            await self._revoke(self.principals.adopt(loaded.settings.tokens))
        await self.pool.adopt(now.servers, now.unstartable, loaded.settings.definitions)
        self.gate.adopt(loaded.policy, loaded.settings, _eager(loaded, now.servers))  # in the same turn
        self.unmatched_names.check_again()
        await self.gate.refit()
        if self.own is None:  # else the scope of the one client holds them, once that has said what it can be asked
            self.pool.hold(None, dict.fromkeys(_eager(loaded, now.servers, shared=True), NO_GRANT))
        self.idling.wake()
        self.subscriptions.skills_changed(before.policy)
        await self.announcer.announce_all()

    async def _revoke(self, principals: Collection[Principal]) -> None:
        """End what principals have open whose tokens count no more: requests, sessions, and the state of each scope."""
        if not principals:
            return
        log.info("tokens.revoked", users=[principal or "everybody without a token" for principal in principals])
        await self.principals.end(principals)
        if self._sessions is not None:
            await self._sessions.end_sessions_of(principals)
        for scope in await self.gate.store.scopes():
            if scope.principal in principals:
                await self.lifetimes.end(scope)

    def _tell(self, before: Loaded, loaded: Loaded, now: InForce) -> None:
        """Say what is different; what waits, once."""
        changes = difference(before, loaded)
        log.info("config.reloaded", **abridged(changes))
        known = {*before.notes}
        for note in loaded.notes:
            if note not in known:
                log.warning("config.note", note=note)
        for left in loaded.left_out:
            if left not in before.left_out:
                log.info("skill.not_offered", skill=left.id, file=left.file, why=left.why)
        if not loaded.catalogue.skills:
            log.error("config.nothing_offered", file=str(loaded.path), why="no enabled skill: clients will see no tool")
        if settings := late(changes.get("settings_changed", [])):
            log.warning("config.restart_needed", settings=settings)
        waiting = now.waiting, now.users
        if any(waiting) and waiting != self._waiting:
            told = {what: list(names) for what, names in zip(("servers", "users"), waiting, strict=True) if names}
            log.warning("config.waiting", **told, until=f"kill -HUP {os.getpid()}, or a restart")
        self._waiting = waiting

    def http(self, host: str) -> Starlette:
        """The ASGI app, for an address that is bound to `host`."""
        settings = self.loaded.settings
        self._way_in = way_in(host, settings)
        return http_app(self.server, self._manage, settings, self.principals, host, self.health)

    def health(self, principal: str | None, *, details: bool) -> dict[str, Any]:
        """`status`: `ok`, or `degraded` when a server that some skill needs has failed, the same word for everybody.

        `details`: with the servers that skills of `principal` need, and how each stands for it.
        """
        whole = self.loaded.catalogue
        degraded = any(self.pool.status(key).state == "failed" for key in whole.needed)
        told: dict[str, Any] = {"status": "degraded" if degraded else "ok"}
        if details:
            own = whole if principal is None else self.gate.catalogue(ScopeId("principal", principal, principal))
            told["servers"] = {key: _standing(self.pool.status_for(key, principal)) for key in own.needed}
        return told

    def _manage(self, app: ASGIApp) -> Sessions:
        sessions = Sessions(
            app,
            self.identity,
            self.loaded.settings.scope_idle.session,
            time.monotonic,
            self._session_ended,
            self.clients.streaming,
            budget=self.clients.budget,
            quotas=self.gate.quotas,
        )
        self.tasks.start_soon(self.lifetimes.run, sessions.sweep)
        self._sessions = sessions
        return sessions

    async def _session_ended(self, scope: ScopeId, session_id: str) -> None:
        self.clients.part(scope, session_id)
        if scope.kind == "session":
            await self.lifetimes.end(scope)
        elif await self.gate.store.get(scope) is not None:
            await self.gate.change(scope, lambda state: disconnected(state, session_id))


def _eager(loaded: Loaded, servers: Mapping[str, Server], *, shared: bool = False) -> list[str]:
    """The servers that are started whatever is active; only those that all scopes share, where `shared`."""
    return [
        key
        for key in loaded.catalogue.needed
        if key in servers and servers[key].eager and not (shared and servers[key].isolation == "scope")
    ]


def _standing(status: Status) -> dict[str, Any]:
    told: dict[str, Any] = {"state": status.state}
    if status.reason:
        told["reason"] = status.reason
    if status.next_try is not None:
        told["next_try"] = math.ceil(status.next_try)
    return told


@asynccontextmanager
async def running(
    loaded: Loaded,
    own: ScopeId | None,
    early: Early | None = None,
    masker: Masker | None = None,
    trial: TrialStore | None = None,
) -> AsyncGenerator[Running]:
    """A proxy by `loaded`; `own`: the scope of its one client, None where it serves many over HTTP.

    `early`: processes that were started ahead. `masker`: the one that logs go through, which learns the secrets of
    later configurations. `trial`: where scopes are kept in place of the state file, which is not touched. On leaving,
    what skills do at their end has 1.4 s, then all servers end within about 3 s (or twice their longest `stop_timeout`
    and 1 s), and what is to be remembered is written within one more.
    """
    masker = masker or Masker(loaded.secrets)
    settings, policy = loaded.settings, loaded.policy
    eager = _eager(loaded, loaded.servers)
    store = trial or _store(settings)
    keeps_pins = _no_scope if trial else store.keeps
    async with store.running(), anyio.create_task_group() as tasks:
        clients = ClientRegistry(tasks)
        unstartable = in_force(loaded, loaded).unstartable
        quotas = Quotas(policy, settings)
        pool = Pool(
            loaded.servers,
            unstartable,
            masker,
            clients,
            settings,
            own=own,
            early=early,
            remembered=_remembered(loaded, masker, keeps_pins) if settings.keep_inventories else None,
            quotas=quotas,
        )
        gate = Gate(policy, pool, store, settings, eager, quotas)
        unmatched_names = UnmatchedNames(gate)
        reads, files, idling = ListReads(), FolderFiles(), Idling(gate, time.monotonic)
        rounds = Rounds(settings, tasks, clients.budget, partial(quotas.take, "held_questions"))
        forwarding = Forwarding(gate, rounds, idling)
        runner = Runner(gate, forwarding, time.monotonic, masker.mask)
        hooks = Hooks(gate, runner, tasks)
        subscriptions = Subscriptions(gate, forwarding, pool, clients, tasks)
        announcer = Announcer(gate, clients, tasks, subscriptions.refresh, reads)
        listing = Listing(gate, announcer, reads)
        calling = Calling(
            gate=gate,
            listing=listing,
            skills=Skills(
                gate=gate,
                listing=listing,
                announcer=announcer,
                idling=idling,
                files=files,
                finding=Finding(_search(), files),
                hooks=hooks,
                records=store,
            ),
            invoking=Invoking(gate, runner, idling, store, masker, time.monotonic),
            forwarding=forwarding,
            hooks=hooks,
            announcer=announcer,
            rounds=rounds,
        )
        identity = Identity(own)

        def ended(scope: ScopeId, state: ScopeState | None) -> None:
            clients.forget(scope)
            idling.forget(scope)
            rounds.scope_ended(scope)
            quotas.end(scope)
            hooks.scope_ended(scope, state, partial(pool.release, scope))

        lifetimes = Lifetimes(store, settings.scope_idle, time.monotonic, clients.reaches, ended)
        server = ProxyServer(
            identity=identity,
            gate=gate,
            listing=listing,
            calling=calling,
            publishing=Publishing(gate, listing, forwarding, files, store),
            subscriptions=subscriptions,
            clients=clients,
            lifetimes=lifetimes,
        )
        gate.on_gone = partial(hooks.ended, reason="removed")
        idling.on_gone = partial(hooks.ended, reason="idle")
        pool.on_update = subscriptions.updated
        pool.on_offer = unmatched_names.note
        clients.on_wish = lambda scope, uris: subscriptions.wish(Subscriber(scope, "modern", ""), uris)

        def on_disconnect(scope: ScopeId, connection: str) -> None:
            reads.give_up(scope, connection)
            subscriptions.forget(Subscriber(scope, "handshake", connection))

        clients.on_part = on_disconnect
        tasks.start_soon(announcer.run)
        tasks.start_soon(idling.run, announcer.announce)
        async with pool.running():
            if own is None:  # else they begin when the client has said what it can be asked
                shared = [key for key, server in loaded.servers.items() if server.isolation == "shared"]
                pool.need(key for key in policy.at_once() if key in shared)
                pool.hold(None, dict.fromkeys(_eager(loaded, loaded.servers, shared=True), NO_GRANT))
            yield Running(
                loaded=loaded,
                approved=loaded,
                own=own,
                server=server,
                pool=pool,
                gate=gate,
                announcer=announcer,
                idling=idling,
                subscriptions=subscriptions,
                identity=identity,
                clients=clients,
                lifetimes=lifetimes,
                reads=reads,
                masker=masker,
                principals=Principals(settings.tokens),
                tasks=tasks,
                unmatched_names=unmatched_names,
            )
            await hooks.shut_down()
        tasks.cancel_scope.cancel()


def _remembered(loaded: Loaded, masker: Masker, keeps: Callable[[ScopeId], bool]) -> Remembered | None:
    """What is known of servers from earlier runs, in the user's cache folder; None where there is none.

    `keeps`: whether the pins of a scope are to be kept.
    """
    try:
        cache = cache_folder()
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        what = f"{error.strerror}: no inventories and pins are kept; set HOME or XDG_CACHE_HOME"
        log.warning("cache.none", reason=what)
        return None
    return Remembered(OfferFiles(cache, loaded.path, masker), PinFiles(cache, loaded.path, keeps))


def _no_scope(_scope: ScopeId) -> bool:
    """Of none, as a trial leaves pins as they are."""
    return False


def _search() -> Callable[[], SkillSearch]:
    """What searches skills, made and imported when somebody does: with SQLite, it takes a while."""

    @cache
    def search() -> SkillSearch:
        from proxy.store.search import FtsSearch  # noqa: PLC0415 - as said

        return FtsSearch()

    return search


def _store(settings: Settings) -> MemoryStore:
    """Where scope state and the records of runs are kept."""
    if settings.state_file is None:
        return MemoryStore(settings.max_scopes)
    from proxy.store.sqlite import SqliteStore  # noqa: PLC0415 - only who keeps state in a file pays for the import

    return SqliteStore(settings.max_scopes, Path(settings.state_file))
