"""The wiring: a loaded configuration becomes a running proxy."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.types import ASGIApp

from proxy.config.load import Loaded
from proxy.core.masking import Masker
from proxy.core.scope import ScopeId, begin, disconnected
from proxy.face.clients import ClientRegistry
from proxy.face.http import http_app
from proxy.face.identity import Identity
from proxy.face.lifetimes import Lifetimes
from proxy.face.server import ProxyServer
from proxy.face.sessions import Sessions
from proxy.gateway.announcing import Announcer
from proxy.gateway.forwarding import Forwarding
from proxy.gateway.gate import Gate
from proxy.gateway.listing import Listing
from proxy.gateway.rounds import Rounds
from proxy.gateway.skills import Skills
from proxy.gateway.subscriptions import Subscriptions
from proxy.ports import Subscriber
from proxy.store.memory import MemoryStore
from proxy.upstream.pool import Pool
from proxy.upstream.spawn import Early


@dataclass(frozen=True)
class Running:
    """A proxy that runs: its server, and what the HTTP face needs besides."""

    loaded: Loaded
    server: ProxyServer
    pool: Pool
    gate: Gate
    identity: Identity
    clients: ClientRegistry
    lifetimes: Lifetimes
    tasks: anyio.abc.TaskGroup

    def http(self, host: str) -> Starlette:
        """The ASGI app, for an address that is bound to `host`."""
        return http_app(self.server, self._manage, self.loaded.settings, host, self.health)

    def health(self) -> dict[str, Any]:
        """How the servers stand that some skill needs: `ok`, or `degraded` when one of them has failed."""
        servers = {key: self.pool.status(key) for key in self.loaded.catalogue.needed}
        degraded = any(status.state == "failed" for status in servers.values())
        return {
            "status": "degraded" if degraded else "ok",
            "servers": {
                key: {"state": status.state} | ({"reason": status.reason} if status.reason else {})
                for key, status in servers.items()
            },
        }

    def _manage(self, app: ASGIApp) -> Sessions:
        sessions = Sessions(
            app,
            self.identity,
            self.loaded.settings.scope_idle,
            time.monotonic,
            self._session_ended,
            self.clients.streaming,
        )
        self.tasks.start_soon(self.lifetimes.run, sessions.sweep)
        return sessions

    async def _session_ended(self, scope: ScopeId, session_id: str) -> None:
        self.clients.part(scope, session_id)
        if scope.kind == "session":
            await self.lifetimes.end(scope)
        elif await self.gate.store.get(scope) is not None:
            await self.gate.change(scope, lambda state: disconnected(state, session_id))


@asynccontextmanager
async def running(loaded: Loaded, own: ScopeId | None, early: Early | None = None) -> AsyncGenerator[Running]:
    """A proxy by `loaded`; `own`: the scope of its one client, None where it serves many over HTTP.

    `early`: processes that were started ahead. On leaving, all servers end within 5 s.
    """
    settings, catalogue = loaded.settings, loaded.catalogue
    store = MemoryStore(settings.max_scopes)
    async with anyio.create_task_group() as tasks:
        clients = ClientRegistry(tasks)
        pool = Pool(loaded.servers, loaded.unstartable, Masker(loaded.secrets), clients, settings, own=own, early=early)
        eager = [key for key in catalogue.needed if key in loaded.servers and loaded.servers[key].eager]
        gate = Gate(catalogue, pool, store, eager)
        listing = Listing(gate, settings)
        forwarding = Forwarding(gate, Rounds(settings, tasks), settings)
        subscriptions = Subscriptions(forwarding, pool, clients, tasks)
        announcer = Announcer(gate, clients, settings, tasks, subscriptions.refresh)
        skills = Skills(gate, listing, forwarding, announcer, settings)
        identity = Identity(own)

        def ended(scope: ScopeId) -> None:
            clients.forget(scope)
            pool.release(scope)

        lifetimes = Lifetimes(store, settings.scope_idle, time.monotonic, clients.reaches, ended)
        server = ProxyServer(
            identity=identity,
            gate=gate,
            listing=listing,
            forwarding=forwarding,
            skills=skills,
            subscriptions=subscriptions,
            clients=clients,
            lifetimes=lifetimes,
        )
        pool.on_update = subscriptions.updated
        clients.on_wish = lambda scope, uris: subscriptions.wish(Subscriber(scope, "modern", ""), uris)
        clients.on_part = lambda scope, connection: subscriptions.forget(Subscriber(scope, "handshake", connection))
        tasks.start_soon(announcer.run)
        async with pool.running():
            if own is None:  # else they begin when the client has said what it can be asked
                at_once = {*catalogue.servers_of(begin(catalogue).active), *eager}
                pool.need(key for key in at_once if key in loaded.servers and loaded.servers[key].isolation == "shared")
            yield Running(loaded, server, pool, gate, identity, clients, lifetimes, tasks)
        tasks.cancel_scope.cancel()
