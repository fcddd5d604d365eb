"""The servers behind the proxy, by place: which connection serves which scope, and who needs it."""

from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any, Final, TypeAlias

import anyio
import structlog
from anyio.abc import TaskGroup

from proxy.core.definitions import NO_GRANT, Change, Grant, Mode
from proxy.core.errors import Rejection, ServerUnavailable
from proxy.core.inventory import Inventory, Json, Offer
from proxy.core.masking import Masker
from proxy.core.scope import ScopeId
from proxy.core.server import Server
from proxy.core.settings import Settings
from proxy.gateway.quotas import Quotas
from proxy.ports import Clients, Remembered, Status
from proxy.upstream.connection import Connection, ConnectionOptions, connect
from proxy.upstream.definitions import Definitions
from proxy.upstream.eras import Eras
from proxy.upstream.life import Life
from proxy.upstream.offers import Offers, Place
from proxy.upstream.spawn import Early, spawn
from proxy.wire.turns import Turns

log = structlog.stdlib.get_logger("proxy.upstream")

REPLACED: Final = "the configuration has changed"
REPLACE_WITHIN: Final = 30.0
"""Seconds that the calls of a server have to end when its configuration has changed."""
GIVE_UP_WITHIN: Final = 1.0
"""Seconds that the calls of a scope that is over have to be given up, which its servers are told."""

_Bound: TypeAlias = tuple[float, Callable[[Place], bool], str]
"""How many connections there may be, of which places, and what is said where there are as many."""


class Pool:
    """An `Upstreams` of stdio and HTTP servers; `running` has to be entered before anything is needed.

    `servers`: those that can be started. `unstartable`: where each stands that cannot. `own`: the scope of the one
    client, where the proxy has only one, which then has every connection to itself. `early`: processes that were
    started ahead. `remembered`: what is known of them from earlier runs. `on_update`: called with a server, the scope
    of a connection that belongs to one, and each `notifications/resources/updated`. `quotas`: what each principal may
    have of questions and connections of its own, any number where it is None.
    """

    def __init__(  # noqa: PLR0913 - the wiring gives it its parts by name
        self,
        servers: Mapping[str, Server],
        unstartable: Mapping[str, Status],
        masker: Masker,
        clients: Clients,
        settings: Settings,
        *,
        own: ScopeId | None = None,
        early: Early | None = None,
        remembered: Remembered | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self._quotas = quotas
        self._servers = servers
        self._unstartable = unstartable
        self._masker = masker
        self._clients = clients
        self._input_wait = settings.input_wait
        self._own_scope = own
        self._start = spawn if early is None else early.take
        self._lives: dict[Place, Life] = {}
        self._ending: dict[Place, anyio.Event] = {}
        self._held: dict[ScopeId | None, Mapping[Place, Grant]] = {}
        self._kept = None if remembered is None else remembered.offers
        pins = None if remembered is None else remembered.pins
        self._definitions = Definitions(settings.definitions, pins, self._show)
        self._offers = Offers(self._shown(self._read_kept(servers)), self._keep)
        self._turns = Turns()
        self._eras = Eras()
        self._one_at_a_time = anyio.CapacityLimiter(1)
        self._tasks: TaskGroup | None = None
        self._told_faults: dict[tuple[str, str], tuple[str, ...]] = {}
        self.on_offer: Callable[[str, Offer], None] = lambda _server, _offer: None
        """Called with a server and each offer of it that is read."""
        self.on_update: Callable[[str, ScopeId | None, Json], None] = lambda _server, _scope, _params: None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Owns the connections; on leaving, all end side by side, within twice the longest `stop_timeout` and 1 s."""
        try:
            async with anyio.create_task_group() as self._tasks:
                self._tasks.start_soon(self._definitions.run)
                yield
                self._tasks.cancel_scope.cancel()
        finally:
            self._tasks = None

    async def adopt(
        self, servers: Mapping[str, Server], unstartable: Mapping[str, Status], definitions: Mode = "warn"
    ) -> None:
        """From now on these are the servers, and this is what changed `definitions` lead to.

        A server that is not as it was ends when its calls are done, and begins anew. Those that are as they were go on
        undisturbed. What was kept of the others is read first; nothing is waited for once something has changed.
        """
        anew = {key: server for key, server in servers.items() if self._servers.get(key) != server}
        kept: dict[str, Offer] = {}
        if self._kept is not None and anew:
            kept = await anyio.to_thread.run_sync(self._read_kept, anew, abandon_on_cancel=True)
        self._servers, self._unstartable = servers, unstartable
        self._eras.forget(anew)
        for place, life in list(self._lives.items()):
            key = place[0]
            if key in anew or key not in servers:
                self._clear(place)
                life.retire(REPLACE_WITHIN, REPLACED)
        own = {key for key in servers if self._isolated(key)}
        self._definitions.adopt(
            definitions, lambda place: place[0] in servers and (place[0] in own) == (place[1] is not None)
        )
        self._offers.adopt(servers.keys() - own, own, servers.keys() - anew.keys(), self._shown(kept))
        for scope, held in list(self._held.items()):
            again = {key: grant for (key, _), grant in held.items() if scope is not None or not self._isolated(key)}
            self.hold(scope, again)

    def inventory(self, scope: ScopeId | None = None) -> Inventory:
        """What the servers offer to `scope`, or offered last; another object after every change."""
        return self._offers.inventory(scope, lambda: (self._place(key, scope) for key in self._servers))

    async def changed(self, since: int) -> int:
        """Wait until some inventory has changed after the change number `since`; the number of the newest."""
        return await self._offers.changed(since)

    def status(self, server: str, scope: ScopeId | None = None) -> Status:
        """Where `server` stands for `scope`; without one, of the newest connection of any."""
        if server in self._unstartable:
            return self._unstartable[server]
        life = self._lives.get(self._place(server, scope))
        if life is None and scope is None:
            known = [life for place, life in self._lives.items() if place[0] == server]
            life = next((life for life in reversed(known) if life.tried), None)
        return Status("idle") if life is None else life.status

    def status_for(self, server: str, principal: str | None) -> Status:
        """Where `server` stands for a principal, in whichever of its scopes; None: of whoever has no token.

        A process that a scope has to itself is its own matter: its state is told to its principal alone, and without
        tokens, where everybody is nobody, no more than the state.
        """
        if server in self._unstartable or not self._isolated(server):
            return self.status(server)
        own = [
            life.status
            for (key, scope), life in self._lives.items()
            if key == server and scope is not None and scope.principal == principal
        ]
        newest = own[-1] if own else Status("idle")
        return newest if principal is not None else Status(newest.state)

    def need(self, servers: Iterable[str], scope: ScopeId | None = None) -> None:
        """Begin to start those that are not running for `scope`, also where a new attempt is due later."""
        for key in servers:
            if key in self._servers:
                self._life(self._place(key, scope)).need()

    def hold(self, scope: ScopeId | None, servers: Mapping[str, Grant]) -> None:
        """`scope` needs exactly these from now on (None: the proxy itself does); returns at once.

        It is granted so much of their tools. Those are started, and tried again when they are lost or fail.
        """
        held = {self._place(key, scope): grant for key, grant in servers.items() if key in self._servers}
        for place in self._held.pop(scope, {}).keys() - held.keys():
            if (life := self._lives.get(place)) is not None:
                life.let_go(scope)
        if scope is not None:
            self._definitions.grant(scope, {place: grant for place, grant in held.items() if grant != NO_GRANT})
        for place in held:
            self._life(place).hold(scope)
        if held:
            self._held[scope] = held

    def withheld(self, scope: ScopeId) -> list[Change]:
        """The tools that are not offered to `scope` until the user approves their changed definitions."""
        return self._definitions.withheld(self._place(key, scope) for key in self._servers)

    def untold_changes(self, scope: ScopeId) -> list[Change]:
        """What has changed of the definitions of tools while `scope` was granted them, each change once."""
        return self._definitions.untold(scope)

    async def settled(self, servers: Iterable[str], scope: ScopeId | None, within: float) -> None:
        """Wait for those that are starting now, side by side; for each until `within` seconds after its start began.

        One that fails meanwhile and is tried again is not waited for once more.
        """
        lives = [self._lives.get(self._place(key, scope)) for key in servers]
        starting = [life for life in lives if life is not None and life.status.state == "starting"]
        if starting:
            async with anyio.create_task_group() as tasks:
                for life in starting:
                    tasks.start_soon(life.settle, within)

    async def connected(self, server: str, scope: ScopeId | None = None) -> Connection:
        """A live connection to `server`, made if there is none.

        Raises:
            ServerUnavailable: it could not be had.
        """
        while server in self._servers:
            life = self._life(self._place(server, scope))
            try:
                return await life.connected()
            except ServerUnavailable:
                if self._lives.get(self._place(server, scope)) is life:  # else another has taken its place
                    raise
        status = self.status(server, scope)
        raise ServerUnavailable(server, status.reason or status.state)

    async def watch(
        self,
        uris: Mapping[tuple[str, ScopeId], Collection[str]],
        wait_for: tuple[str, ScopeId] | None = None,
        within: float = 0.0,
    ) -> Mapping[str, Rejection]:
        """Be told of updates of exactly these resources, by server and one of the scopes that it serves.

        Waits for `wait_for`, and returns what that server refuses; for the others at most `within` seconds.
        """
        wanted: dict[Place, set[str]] = {}
        for (server, scope), some in uris.items():
            wanted.setdefault(self._place(server, scope), set()).update(some)
        awaited = None if wait_for is None else self._place(*wait_for)
        told: list[anyio.Event] = []
        for place, life in self._lives.items():
            watched = frozenset(wanted.get(place, ()))
            if watched != life.watched and place != awaited:
                told.append(anyio.Event())
                self._start_soon(_watch, life, told[-1])
            life.watched = watched
        with anyio.move_on_after(within):
            for each in told:
                await each.wait()
        return await self._lives[awaited].watch() if awaited in self._lives else {}

    def set_levels(self) -> None:
        """Have every server send log messages as its clients want them by now; waits for none."""
        for place, connection in self._live():
            self._start_soon(connection.set_level, self._clients.levels(self._owner(place)))

    def roots_changed(self, scope: ScopeId) -> None:
        """Tell the servers that may ask for this scope's roots that they have changed; waits for none."""
        for place, connection in self._live():
            if self._owner(place) == scope and connection.asks:
                self._start_soon(connection.tell, "notifications/roots/list_changed")

    def follow_client(self, scope: ScopeId) -> None:
        """Have the connections of `scope` alone speak its client's era, which has turned out to be another one."""
        if (era := self._clients.era(scope)) is not None:
            for place, life in list(self._lives.items()):
                if self._owner(place) == scope:
                    life.follow_client(era)

    def release(self, scope: ScopeId) -> None:
        """End the connections that `scope` has to itself: it is over, and the others may forget it."""
        self.hold(scope, {})
        self._definitions.forget(scope)
        self._offers.forget(scope)
        for place, life in list(self._lives.items()):
            if place[1] == scope:
                self._clear(place)
                life.retire(GIVE_UP_WITHIN)
            elif life.connection is not None:
                life.connection.forget(scope)

    def _life(self, place: Place) -> Life:
        if place not in self._lives:
            if self._tasks is None:
                raise RuntimeError("the pool is not running")
            server, owner = self._servers[place[0]], self._owner(place)
            self._lives[place] = Life(
                server,
                place[1],
                self._tasks,
                open_=partial(
                    connect,
                    server,
                    ConnectionOptions(
                        mask=self._masker.mask,
                        start=self._start,
                        owner=owner,
                        clients=self._clients,
                        input_wait=self._input_wait,
                        on_update=lambda params: self.on_update(place[0], place[1], params),
                        waiting=partial(self._waiting, owner),
                        turns=self._turns,
                        eras=self._eras,
                    ),
                ),
                mask=self._masker.mask,
                levels=lambda: self._clients.levels(owner),
                full=lambda: self._full(server, place[1]),
                on_offer=partial(self._offered, place),
            )
            if place in self._ending:
                self._lives[place].ended = self._ending[place]
        return self._lives[place]

    def _offered(self, place: Place, offer: Offer) -> None:
        self._tell_faults(place[0], offer)
        self.on_offer(place[0], offer)
        self._show(place, self._definitions.offered(place, offer))

    def _tell_faults(self, server: str, offer: Offer) -> None:
        """Log what of a server's lists was malformed, each list when that is news."""
        for name, faults in offer.faults.items():
            if faults and self._told_faults.get((server, name)) != faults:
                log.warning("server.list_malformed", server=server, list=name, faults=list(faults))
            self._told_faults[server, name] = faults

    def _show(self, place: Place, offer: Offer) -> None:
        self._offers.note(place, offer)

    def _shown(self, kept: Mapping[str, Offer]) -> dict[str, Offer]:
        """What is shown of what servers offered when the proxy ran last; nothing where they have offered more since."""
        unknown = {key: offer for key, offer in kept.items() if not self._definitions.knows((key, None))}
        return {key: self._definitions.offered((key, None), offer) for key, offer in unknown.items()}

    def _clear(self, place: Place) -> None:
        """What is in a place is to end; what comes there next waits for that."""
        ended = self._ending[place] = self._lives.pop(place).ended
        self._start_soon(self._cleared, place, ended)

    async def _cleared(self, place: Place, ended: anyio.Event) -> None:
        await ended.wait()
        if self._ending.get(place) is ended:
            del self._ending[place]

    def _full(self, server: Server, scope: ScopeId | None) -> str:
        """Why no further connection to a server may be made, if that is so; one that nobody needs makes room."""
        if server.isolation == "shared" or scope is None:
            return ""
        for most, counts, why in self._bounds(server, scope):
            running = [life for place, life in self._lives.items() if life.runs and counts(place)]
            if len(running) < most:
                continue
            if (spare := next((life for life in running if life.spare), None)) is None:
                return why
            spare.stop()
        return ""

    def _bounds(self, server: Server, scope: ScopeId) -> Iterator[_Bound]:
        """The bounds on connections of its own to `server` that one for `scope` has to keep."""

        def at_server(place: Place) -> bool:
            return place[0] == server.key

        if self._quotas is not None:
            of = partial(self._quotas.of, "processes")
            allowance = of(scope)

            def own(place: Place) -> bool:
                return place[1] is not None and of(place[1]).account == allowance.account

            why = f"this user has as many connections of its own as it may ({allowance.most:g}, {allowance.setting})"
            yield allowance.most, own, why
            part = self._quotas.at_server(scope, server.max_connections)
            why = f"this user has its part of the connections that there may be ({part:g} of {server.max_connections})"
            yield part, lambda place: at_server(place) and own(place), why
        why = f"as many clients use it as may at a time ({server.max_connections}, its max_connections)"
        yield server.max_connections, at_server, why

    def _waiting(self, owner: ScopeId | None) -> AbstractContextManager[object]:
        """Count a question that waits for the clients of `owner` inside.

        Raises:
            PastLimit: as many do as may.
        """
        return nullcontext() if self._quotas is None or owner is None else self._quotas.take("held_questions", owner)

    def _place(self, server: str, scope: ScopeId | None) -> Place:
        return (server, scope if self._isolated(server) else None)

    def _isolated(self, server: str) -> bool:
        return server in self._servers and self._servers[server].isolation == "scope"

    def _owner(self, place: Place) -> ScopeId | None:
        """The scope whose clients alone a connection serves, if any (design rule 28)."""
        return place[1] if place[1] is not None else self._own_scope

    def _live(self) -> list[tuple[Place, Connection]]:
        return [(place, life.connection) for place, life in self._lives.items() if life.connection is not None]

    def _read_kept(self, servers: Mapping[str, Server]) -> dict[str, Offer]:
        """What servers that all scopes share offered last; what others did belonged to scopes (design rule 28)."""
        shared = {key: server for key, server in servers.items() if server.isolation == "shared"}
        found = {} if self._kept is None else {key: self._kept.read(server) for key, server in shared.items()}
        return {key: offer for key, offer in found.items() if offer is not None}

    def _keep(self, key: str, offer: Offer) -> None:
        if self._kept is not None and self._servers[key].isolation == "shared":
            keep = partial(self._kept.keep, self._servers[key], offer)
            self._start_soon(partial(anyio.to_thread.run_sync, keep, limiter=self._one_at_a_time))

    def _start_soon(self, run: Callable[..., Coroutine[Any, Any, object]], *args: object) -> None:
        if self._tasks is not None:  # else there is nobody to do it for any more
            self._tasks.start_soon(run, *args)


async def _watch(life: Life, told: anyio.Event) -> None:
    """Bring what a server tells of up to date; `told` is set then."""
    try:
        await life.watch()
    finally:
        told.set()
