"""The servers behind the proxy: one owner task per connection, what each offers, where each stands."""

from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from math import inf
from typing import Any, Final, TypeAlias

import anyio
import structlog
from anyio.abc import TaskGroup

from proxy.core.errors import ProxyError, Rejection, ServerUnavailable
from proxy.core.inventory import Inventory, Json, Offer
from proxy.core.masking import Masker
from proxy.core.scope import ScopeId
from proxy.core.server import Server, StdioServer
from proxy.core.settings import Settings
from proxy.ports import Clients, ServerState, Status
from proxy.upstream.connection import Connection, connect
from proxy.upstream.spawn import Early, spawn
from proxy.upstream.transport import CannotStart, reason

log = structlog.stdlib.get_logger("proxy.upstream")

COALESCE: Final = 0.2
"""Seconds from the first notice of a changed list until it is read again: a flood of notices costs one reading."""
INVENTORIES: Final = 1024
"""How many different inventories are remembered; scopes to which the same is offered share one."""

Place: TypeAlias = tuple[str, ScopeId | None]
"""A server, and the scope that has a connection of its own to it; None where all scopes share one."""


class _Slot:
    """One place: its state and its live connection.

    `began`: when its start last began. `settled`: set while it is not starting. `ended`: set when no owner is left.
    `life`: cancelled when the place is given up. `watched`: the resources whose updates somebody wants.
    """

    def __init__(self, status: Status) -> None:
        self.status = status
        self.connection: Connection | None = None
        self.offer: Offer | None = None
        self.began = -inf
        self.settled = anyio.Event()
        self.settled.set()
        self.ended = anyio.Event()
        self.ended.set()
        self.life = anyio.CancelScope()
        self.watched: frozenset[str] = frozenset()


class Pool:
    """An `Upstreams` of stdio and HTTP servers; `running` has to be entered before anything is needed.

    `servers`: those that can be started. `unstartable`: the reason for each that cannot. `own`: the scope of the one
    client, where the proxy has only one, which then has every connection to itself. `early`: processes that were
    started ahead. `on_update`: called with a server, the scope of a connection that belongs to one, and each
    `notifications/resources/updated`.
    """

    def __init__(
        self,
        servers: Mapping[str, Server],
        unstartable: Mapping[str, str],
        masker: Masker,
        clients: Clients,
        settings: Settings,
        *,
        own: ScopeId | None = None,
        early: Early | None = None,
    ) -> None:
        self._servers = servers
        self._unstartable = {key: masker.mask(why) for key, why in unstartable.items()}
        self._masker = masker
        self._clients = clients
        self._input_wait = settings.input_wait
        self._own_scope = own
        self._start = spawn if early is None else early.take
        self._slots: dict[Place, _Slot] = {}
        self._first: dict[str, Offer] = {}
        self._known: dict[tuple[int, ...], Inventory] = {}
        self._inventories: dict[ScopeId | None, Inventory] = {}
        self._version = 0
        self._changed = anyio.Event()
        self._tasks: TaskGroup | None = None
        self.on_update: Callable[[str, ScopeId | None, Json], None] = lambda _server, _scope, _params: None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Owns the connections; on leaving, all end side by side, within about 4 s."""
        async with anyio.create_task_group() as self._tasks:
            try:
                yield
            finally:
                self._tasks.cancel_scope.cancel()

    def inventory(self, scope: ScopeId | None = None) -> Inventory:
        """What the servers offer to `scope`, or offered last; another object after every change.

        Of a server that has a connection for each scope, a scope without one sees what the first one was offered.
        """
        if scope not in self._inventories:
            offers = {key: offer for key in self._servers if (offer := self._offer(key, scope)) is not None}
            same = tuple(map(id, offers.values()))
            if len(self._known) >= INVENTORIES:
                self._known.clear()
            self._inventories[scope] = self._known.setdefault(same, offers)
        return self._inventories[scope]

    async def changed(self, since: int) -> int:
        """Wait until some inventory has changed after the change number `since`; the number of the newest."""
        while self._version <= since:
            await self._changed.wait()
        return self._version

    def status(self, server: str, scope: ScopeId | None = None) -> Status:
        """Where `server` stands for `scope`; without one, of the newest connection of any."""
        if server in self._unstartable:
            return Status("failed", self._unstartable[server])
        slot = self._slots.get(self._place(server, scope))
        if slot is None and scope is None:
            slot = next((self._slots[place] for place in reversed(self._slots) if place[0] == server), None)
        return Status("idle") if slot is None else slot.status

    def need(self, servers: Iterable[str], scope: ScopeId | None = None) -> None:
        """Begin to start those that are not running for `scope`; returns at once."""
        for key in servers:
            if key not in self._servers:
                continue
            place = self._place(key, scope)
            slot = self._slots.setdefault(place, _Slot(Status("idle")))
            if slot.status.state not in ("starting", "ready"):
                before, slot.ended, slot.settled = slot.ended, anyio.Event(), anyio.Event()
                slot.life, slot.began = anyio.CancelScope(), anyio.current_time()
                self._set(place, slot, "starting")
                self._start_soon(self._own, self._servers[key], place, slot, before)

    async def settled(self, servers: Iterable[str], scope: ScopeId | None, within: float) -> None:
        """Wait until none of them is starting; for each at most until `within` seconds after its start began."""
        for key in servers:
            slot = self._slots.get(self._place(key, scope))
            if slot is not None and not slot.settled.is_set():
                with anyio.CancelScope(deadline=slot.began + within):
                    await slot.settled.wait()

    async def connected(self, server: str, scope: ScopeId | None = None) -> Connection:
        """A live connection to `server`, made if there is none.

        Raises:
            ServerUnavailable: it could not be had.
        """
        place = self._place(server, scope)
        slot = self._slots.get(place)
        if slot is not None and slot.connection is not None:
            if not slot.connection.over.is_set():
                return slot.connection
            self._lost(place, slot, slot.connection)
        self.need([server], scope)
        slot = self._slots.get(place)
        if slot is not None:
            await slot.settled.wait()
        if slot is None or slot.connection is None:
            status = self.status(server, scope)
            raise ServerUnavailable(server, status.reason or status.state)
        return slot.connection

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
        for place, slot in self._slots.items():
            watched = frozenset(wanted.get(place, ()))
            if watched != slot.watched and place != awaited:
                told.append(anyio.Event())
                self._start_soon(self._watch, place, slot, told[-1])
            slot.watched = watched
        with anyio.move_on_after(within):
            for each in told:
                await each.wait()
        return await self._watch(awaited, self._slots[awaited]) if awaited in self._slots else {}

    def set_levels(self) -> None:
        """Have every server send log messages as its clients want them by now; waits for none."""
        for place, connection in self._live():
            self._start_soon(connection.set_level, self._clients.levels(self._owner(place)))

    def roots_changed(self, scope: ScopeId) -> None:
        """Tell the servers that may ask for this scope's roots that they have changed; waits for none."""
        for place, connection in self._live():
            if self._owner(place) == scope and connection.asks:
                self._start_soon(connection.tell, "notifications/roots/list_changed")

    def release(self, scope: ScopeId) -> None:
        """End the connections that `scope` has to itself: it is over, and the others may forget it."""
        self._inventories.pop(scope, None)
        for place, slot in list(self._slots.items()):
            if place[1] == scope:
                del self._slots[place]
                slot.life.cancel()
            elif slot.connection is not None:
                slot.connection.forget(scope)

    def _start_soon(self, run: Callable[..., Coroutine[Any, Any, object]], *args: object) -> None:
        if self._tasks is None:
            raise RuntimeError("the pool is not running")
        self._tasks.start_soon(run, *args)

    def _place(self, server: str, scope: ScopeId | None) -> Place:
        isolated = server in self._servers and self._servers[server].isolation == "scope"
        return (server, scope if isolated else None)

    def _owner(self, place: Place) -> ScopeId | None:
        """The scope whose clients alone a connection serves, if any (design rule 28)."""
        return place[1] if place[1] is not None else self._own_scope

    def _live(self) -> list[tuple[Place, Connection]]:
        return [(place, slot.connection) for place, slot in self._slots.items() if slot.connection is not None]

    def _offer(self, server: str, scope: ScopeId | None) -> Offer | None:
        slot = self._slots.get(self._place(server, scope))
        return slot.offer if slot is not None and slot.offer is not None else self._first.get(server)

    async def _watch(self, place: Place, slot: _Slot, told: anyio.Event | None = None) -> Mapping[str, Rejection]:
        """Have the server of one place tell of what is watched there by now; what it refuses. `told` is set then."""
        try:
            return {} if slot.connection is None else await slot.connection.watch(slot.watched)
        except ProxyError as error:  # it is told again when it is back
            log.debug("server.watch_failed", server=place[0], reason=str(error))
            return {}
        finally:
            if told is not None:
                told.set()

    async def _own(self, server: Server, place: Place, slot: _Slot, before: anyio.Event) -> None:
        """One connection's life: open it, read what is offered, keep it until it is lost.

        A process begins when the one before it has ended: some hold a lock or a port. `slot.ended` is set at its end.
        """
        ended, life, why = slot.ended, slot.life, ""
        connection: Connection | None = None
        ready = False
        try:
            if isinstance(server, StdioServer):
                await before.wait()
            if life.cancel_called:
                return
            # The limit on starting is one scope around the whole connection, lifted when it is ready: a scope around
            # the entering alone would have to be left in another order than it was entered.
            deadline = anyio.current_time() + server.start_timeout
            with life, anyio.CancelScope(deadline=deadline) as limit:
                async with connect(
                    server,
                    self._masker.mask,
                    start=self._start,
                    owner=self._owner(place),
                    clients=self._clients,
                    input_wait=self._input_wait,
                    on_update=lambda params: self.on_update(place[0], place[1], params),
                ) as connection:
                    offer = await connection.offer()
                    limit.deadline = inf
                    self._ready(place, slot, connection, offer)
                    ready = True
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(connection.set_level, self._clients.levels(self._owner(place)))
                        tasks.start_soon(self._watch, place, slot)
                        tasks.start_soon(self._follow, place, slot, connection)
                        await connection.over.wait()
                        tasks.cancel_scope.cancel()
                    self._lost(place, slot, connection)
                    await connection.drained(5)
            if limit.cancelled_caught:
                why = f"it did not answer within {server.start_timeout:g} s"
        except anyio.get_cancelled_exc_class():
            connection, ready = None, True
            self._set(place, slot, "stopped")
            raise
        except CannotStart as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 - boundary: no failure of one server may reach another or the proxy
            why = reason(error, server)
        finally:
            if life.cancel_called:
                self._set(place, slot, "stopped")
            elif not ready:
                self._set(place, slot, "failed", why)
            elif connection is not None:
                self._lost(place, slot, connection)
            ended.set()

    async def _follow(self, place: Place, slot: _Slot, connection: Connection) -> None:
        """Keep up with what the server changes in its lists."""
        while True:
            await connection.changes.wait()
            await anyio.sleep(COALESCE)
            kinds = connection.changes.take()
            try:
                offer = await connection.offer(slot.offer, kinds)
            except CannotStart as error:
                log.warning("server.list_failed", server=place[0], method="tools/list", reason=str(error))
                offer = await connection.offer(slot.offer, kinds - {"tools"})
            self._offered(place, slot, offer)

    def _ready(self, place: Place, slot: _Slot, connection: Connection, offer: Offer) -> None:
        slot.connection = connection
        self._offered(place, slot, offer)
        self._set(place, slot, "ready")

    def _offered(self, place: Place, slot: _Slot, offer: Offer) -> None:
        """Note what is offered; equal offers are one object, so that inventories of scopes can be told apart by it."""
        key = place[0]
        if slot.offer is not None and slot.offer.same(offer):
            return
        first = self._first.setdefault(key, offer)
        slot.offer = first if first.same(offer) else offer
        self._inventories.clear()
        self._version += 1
        self._changed.set()
        self._changed = anyio.Event()

    def _lost(self, place: Place, slot: _Slot, connection: Connection) -> None:
        """Note, once, that this connection is no more; a newer one is left alone."""
        if slot.connection is connection:
            slot.connection = None
            self._set(place, slot, "idle", "the connection was lost")

    def _set(self, place: Place, slot: _Slot, state: ServerState, why: str = "") -> None:
        slot.status = Status(state, self._masker.mask(why))
        say = log.warning if state == "failed" else log.info
        of = {"scope": str(place[1])} if place[1] is not None else {}
        say(f"server.{state}", server=place[0], **of, **({"reason": slot.status.reason} if why else {}))
        if state != "starting":
            slot.settled.set()
