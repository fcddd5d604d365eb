"""The servers behind the proxy: one owner task per connection, what each offers, where each stands."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from math import inf

import anyio
import structlog
from anyio.abc import TaskGroup

from proxy.core.errors import ServerUnavailable
from proxy.core.inventory import Inventory, Offer
from proxy.core.masking import Masker
from proxy.core.server import Server, StdioServer
from proxy.ports import ServerState, Status
from proxy.upstream.connection import Connection, connect
from proxy.upstream.transport import CannotStart, reason

log = structlog.stdlib.get_logger("proxy.upstream")


class _Slot:
    """One server's place: its state and its live connection.

    `began`: when its start last began. `settled`: set while it is not starting. `ended`: set when no owner is left.
    """

    def __init__(self, status: Status) -> None:
        self.status = status
        self.connection: Connection | None = None
        self.began = -inf
        self.settled = anyio.Event()
        self.settled.set()
        self.ended = anyio.Event()
        self.ended.set()


class Pool:
    """An `Upstreams` of stdio and HTTP servers; `running` has to be entered before anything is needed.

    `servers`: those that can be started. `unstartable`: the reason for each that cannot.
    """

    def __init__(self, servers: Mapping[str, Server], unstartable: Mapping[str, str], masker: Masker) -> None:
        self._servers = servers
        self._masker = masker
        self._slots = {key: _Slot(Status("idle")) for key in servers}
        self._slots |= {key: _Slot(Status("failed", masker.mask(why))) for key, why in unstartable.items()}
        self._inventory: Inventory = {}
        self._changed = anyio.Event()
        self._tasks: TaskGroup | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Owns the connections; on leaving, all end side by side, within about 4 s."""
        async with anyio.create_task_group() as self._tasks:
            try:
                yield
            finally:
                self._tasks.cancel_scope.cancel()

    def inventory(self) -> Inventory:
        """What the servers offer, or offered last; a new object after every change."""
        return self._inventory

    async def changed(self, since: Inventory) -> None:
        """Wait until the inventory is another than `since`."""
        while self._inventory is since:
            await self._changed.wait()

    def status(self, server: str) -> Status:
        """Where `server` stands."""
        return self._slots[server].status

    def need(self, servers: Iterable[str]) -> None:
        """Begin to start those that are not running; returns at once."""
        for key in servers:
            if key in self._servers and self._slots[key].status.state not in ("starting", "ready"):
                if self._tasks is None:
                    raise RuntimeError("the pool is not running")
                slot = self._slots[key]
                before, slot.ended, slot.settled = slot.ended, anyio.Event(), anyio.Event()
                slot.began = anyio.current_time()
                self._set(key, "starting")
                self._tasks.start_soon(self._own, self._servers[key], before, slot.ended, name=f"server {key}")

    async def settled(self, servers: Iterable[str], within: float) -> None:
        """Wait until none of them is starting; for each at most until `within` seconds after its start began."""
        for key in servers:
            slot = self._slots[key]
            with anyio.CancelScope(deadline=slot.began + within):
                await slot.settled.wait()

    async def connected(self, server: str) -> Connection:
        """A live connection to `server`, made if there is none.

        Raises:
            ServerUnavailable: it could not be had.
        """
        slot = self._slots[server]
        if slot.connection is not None and slot.connection.over.is_set():
            self._lost(server, slot.connection)
        if slot.connection is None:
            self.need([server])
            await slot.settled.wait()
        if slot.connection is None:
            raise ServerUnavailable(server, slot.status.reason or slot.status.state)
        return slot.connection

    async def _own(self, server: Server, before: anyio.Event, ended: anyio.Event) -> None:
        """One connection's life: open it, read what is offered, keep it until it is lost.

        A process begins when the one before it has ended: some hold a lock or a port. `ended` is set at its end.
        """
        key, why = server.key, ""
        connection: Connection | None = None
        ready = False
        try:
            if isinstance(server, StdioServer):
                await before.wait()
            # The limit on starting is one scope around the whole connection, lifted when it is ready: a scope around
            # the entering alone would have to be left in another order than it was entered.
            with anyio.CancelScope(deadline=anyio.current_time() + server.start_timeout) as limit:
                async with connect(server, self._masker.mask) as connection:
                    offer = await connection.offer()
                    limit.deadline = inf
                    self._ready(key, connection, offer)
                    ready = True
                    await connection.over.wait()
                    self._lost(key, connection)
                    await connection.drained(5)
            if limit.cancelled_caught:
                why = f"it did not answer within {server.start_timeout:g} s"
        except anyio.get_cancelled_exc_class():
            connection, ready = None, True
            self._set(key, "stopped")
            raise
        except CannotStart as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 - boundary: no failure of one server may reach another or the proxy
            why = reason(error, server)
        finally:
            if not ready:
                self._set(key, "failed", why)
            elif connection is not None:
                self._lost(key, connection)
            ended.set()

    def _ready(self, key: str, connection: Connection, offer: Offer) -> None:
        self._slots[key].connection = connection
        if self._inventory.get(key) != offer:
            self._inventory = {**self._inventory, key: offer}
            self._changed.set()
            self._changed = anyio.Event()
        self._set(key, "ready")

    def _lost(self, key: str, connection: Connection) -> None:
        """Note, once, that this connection is no more; a newer one is left alone."""
        slot = self._slots[key]
        if slot.connection is connection:
            slot.connection = None
            self._set(key, "idle", "the connection was lost")

    def _set(self, key: str, state: ServerState, why: str = "") -> None:
        slot = self._slots[key]
        slot.status = Status(state, self._masker.mask(why))
        say = log.warning if state == "failed" else log.info
        say(f"server.{state}", server=key, **({"reason": slot.status.reason} if why else {}))
        if state != "starting":
            slot.settled.set()
