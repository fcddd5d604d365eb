"""The life of one server for all scopes, or for one: begun when needed, tried again while held, stopped."""

import random
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from math import inf
from typing import Final, TypeAlias

import anyio
import structlog
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint_if_cancelled

from proxy.core.errors import ProxyError, Rejection, ServerUnavailable
from proxy.core.inventory import Offer
from proxy.core.protocol import Era
from proxy.core.scope import ScopeId
from proxy.core.server import Server, StdioServer
from proxy.ports import ServerState, Status
from proxy.upstream.connection import Connection
from proxy.upstream.failure import NO_FAILURE, Failure
from proxy.upstream.transport import CannotStart, failure_of

log = structlog.stdlib.get_logger("proxy.upstream")

COALESCE: Final = 0.2
"""Seconds from the first notice of a changed list until it is read again: a flood of notices costs one reading."""
SLOWEST_REREAD: Final = 5.0
"""Seconds from one reading to the next, at most, where a server changes its lists all the time."""
OFTEN: Final = 10
"""Changes in a row, each within `SLOWEST_REREAD` of the one before, after which each is read later than the last."""
FIRST_PAUSE: Final = 1.0
"""Seconds until a first new attempt, at most; each one after it waits up to twice as long as the one before."""
LONGEST_PAUSE: Final = 60.0
STEADY: Final = 10.0
"""Seconds after which a connection counts as good: what follows its loss begins with the first pause again."""
LAST_WORDS: Final = 0.3
"""Seconds to learn how a connection was lost, before its loss is said without that."""
DRAIN: Final = 5.0
"""Seconds that answers still have to arrive when a connection is lost."""

Open: TypeAlias = Callable[[], AbstractAsyncContextManager[Connection]]


class _Attempt:
    """One connection, from the wish for it to its end; `settled`: set once it is known whether it could be had."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.settled = anyio.Event()
        self.connection: Connection | None = None
        self.why_not = ""


class Life:
    """One server, in one place: what all scopes share, or what `scope` has to itself.

    `status`: where it stands. `connection`: the live one, if there is one. `began`: when its start last began.
    `watched`: the resources whose updates somebody wants. `ended`: set while no process or connection is left; a
    process begins when what was there before it has ended.

    `open_` makes a connection, inside which it stays open. `mask` takes secrets out of reasons. `levels`: the log
    levels that its clients have set. `full`: why it may not be started now, empty where it may. `on_offer` is called
    with everything that it offers, at its start and after every change.
    """

    def __init__(
        self,
        server: Server,
        scope: ScopeId | None,
        tasks: TaskGroup,
        *,
        open_: Open,
        mask: Callable[[str], str],
        levels: Callable[[], frozenset[str]],
        full: Callable[[], str],
        on_offer: Callable[[Offer], None],
    ) -> None:
        self.server = server
        self.connection: Connection | None = None
        self.began = -inf
        self.watched: frozenset[str] = frozenset()
        self.ended = anyio.Event()
        self.ended.set()
        self._scope = scope
        self._tasks = tasks
        self._open = open_
        self._mask = mask
        self._levels = levels
        self._full = full
        self._on_offer = on_offer
        self._state: ServerState = "idle"
        self._failure = NO_FAILURE
        self._holders: set[ScopeId | None] = set()
        self._attempt = _Attempt()
        self._attempts = 0
        self._up_since = inf
        self._next_try: float | None = None
        self._pause = anyio.CancelScope()
        self._rest = anyio.CancelScope()

    @property
    def status(self) -> Status:
        """Where it stands, why, and when it is tried again."""
        wait = None if self._next_try is None else max(0.0, self._next_try - anyio.current_time())
        notes = () if self.connection is None else self.connection.notes
        return Status(self._state, self._failure.public, wait, self._failure.whole, notes)

    @property
    def tried(self) -> bool:
        """Whether it was ever tried to start it: not where there has been no room for it yet."""
        return self.began > -inf

    @property
    def runs(self) -> bool:
        """Whether it is there or on its way."""
        return self._state in ("starting", "ready")

    @property
    def spare(self) -> bool:
        """Whether it is there, and nobody needs it or has a request in work at it."""
        return self.connection is not None and not self._holders and not self.connection.in_work

    def need(self) -> None:
        """Begin to start it if it does not run, without regard to pauses; returns at once."""
        if not self.runs:
            self._begin()

    def hold(self, scope: ScopeId | None) -> None:
        """`scope` needs it from now on: it is started, and tried again when it is lost or fails."""
        if scope not in self._holders:
            self._holders.add(scope)
            self._rest.cancel()
            if self._next_try is None:
                self.need()

    def let_go(self, scope: ScopeId | None) -> None:
        """`scope` needs it no more; with the last one it is not tried again, and stops after `idle_stop`."""
        self._holders.discard(scope)
        if not self._holders:
            self._forget_pause()
            self._rest_if_unheld()

    async def settle(self, within: float = inf) -> None:
        """Wait until it is not starting, at most until `within` seconds after its start began."""
        if self._state == "starting":
            with anyio.CancelScope(deadline=self.began + within):
                await self._attempt.settled.wait()

    async def connected(self) -> Connection:
        """A live connection, made if there is none; callers share one attempt.

        Raises:
            ServerUnavailable: it could not be had.
        """
        if self.connection is not None:
            if not self.connection.over.is_set():
                return self.connection
            self._lost(self.connection)
        self.need()
        attempt = self._attempt
        await attempt.settled.wait()  # a newer one may have begun since: the outcome of this one counts
        if attempt.connection is None:
            raise ServerUnavailable(self.server.key, attempt.why_not)
        return attempt.connection

    async def watch(self) -> Mapping[str, Rejection]:
        """Have the server tell of what is watched by now; what it refuses."""
        try:
            return {} if self.connection is None else await self.connection.watch(self.watched)
        except ProxyError as error:  # it is told again when it is back
            log.debug("server.watch_failed", server=self.server.key, reason=str(error))
            return {}

    def stop(self, why: str = "") -> None:
        """End it now; it can be needed again."""
        self._forget_pause()
        self._rest.cancel()
        self.connection = None
        if self.runs:
            self._set("stopped", Failure(why))
        self._attempt.scope.cancel()

    def follow_client(self, era: Era) -> None:
        """Begin anew where its client speaks `era`, and it may speak that too: not while a request is in work."""
        connection = self.connection
        fits = connection is not None and (connection.era == era or connection.in_work)
        if self.server.era == "auto" and self.runs and not fits:
            self.stop("its client speaks another protocol era")
            if self._holders:
                self._begin()

    def retire(self, within: float, why: str = "") -> None:
        """End it for good, when its calls are done, at most after `within` seconds; no new call gets it."""
        self._holders.clear()
        connection, self.connection = self.connection, None
        if connection is None:
            self.stop(why)
        else:
            self._tasks.start_soon(self._stop_when_done, connection, within, why)

    def _begin(self) -> None:
        self._forget_pause()
        self._up_since, self._attempt = inf, _Attempt()
        if why := self._full():
            self._down("failed", Failure(why))
            return
        before, self.ended = self.ended, anyio.Event()
        self.began = anyio.current_time()
        waits = isinstance(self.server, StdioServer) and not before.is_set()
        self._set("starting", Failure("the process before it ends first" if waits else ""))
        self._tasks.start_soon(self._own, self._attempt, before, self.ended)

    async def _own(self, attempt: _Attempt, before: anyio.Event, ended: anyio.Event) -> None:
        """The owner of one connection: opens it, reads what is offered, keeps it until it is lost.

        A process begins when the one before it has ended: some hold a lock or a port. `ended` is set at its end.
        """
        connection: Connection | None = None
        why = NO_FAILURE
        try:
            with attempt.scope:
                if isinstance(self.server, StdioServer):
                    await before.wait()
                # The limit on starting is one scope around the whole connection, lifted when it is ready: a scope
                # around the entering alone would have to be left in another order than it was entered.
                with anyio.CancelScope(deadline=anyio.current_time() + self.server.start_timeout) as limit:
                    async with self._open() as connection:
                        offer = await connection.offer()
                        await checkpoint_if_cancelled()
                        limit.deadline = inf
                        self._up(connection, offer)
                        await self._attend(connection, offer)
                        why = await _last_words(connection)
                        self._lost(connection, why)
                        await connection.drained(DRAIN)
                if limit.cancelled_caught:
                    why = Failure(f"it did not answer within {self.server.start_timeout:g} s")
        except anyio.get_cancelled_exc_class():
            self.stop()
            raise
        except CannotStart as error:
            why = error.failure
        except Exception as error:  # noqa: BLE001 - boundary: no failure of one server may reach another or the proxy
            why = failure_of(error, self.server)
        finally:
            if self._attempt is attempt and not attempt.scope.cancel_called:
                if self._state == "starting":
                    self._down("failed", why)
                elif connection is not None:
                    self._lost(connection, why)
            with anyio.CancelScope(shield=True):
                await before.wait()  # also where this one was given up before its turn: the next one waits for both
            ended.set()

    async def _attend(self, connection: Connection, offer: Offer) -> None:
        """Keep up with the server until the connection is lost."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.set_level, self._levels())
            tasks.start_soon(self.watch)
            tasks.start_soon(self._follow, connection, offer)
            await connection.over.wait()
            tasks.cancel_scope.cancel()

    async def _follow(self, connection: Connection, offer: Offer) -> None:
        """Keep up with what the server changes in its lists; if its tools cannot be read, they are again later."""
        pause, before, in_a_row = FIRST_PAUSE, -inf, 0
        while True:
            await connection.changes.wait()
            in_a_row = in_a_row + 1 if anyio.current_time() - before < SLOWEST_REREAD else 0
            await anyio.sleep(min(SLOWEST_REREAD, COALESCE * 2 ** max(0, in_a_row - OFTEN)))
            before = anyio.current_time()
            kinds = connection.changes.take()
            try:
                offer, wait = await connection.offer(offer, kinds), 0.0
            except CannotStart as error:
                why = error.failure
                log.warning("server.list_failed", server=self.server.key, method="tools/list", **_told(why))
                offer, wait = await connection.offer(offer, kinds - {"tools"}), pause
            await checkpoint_if_cancelled()
            if self.connection is connection:  # else another has taken its place, and it only ends its calls
                self._on_offer(offer)
            pause = min(2 * wait, LONGEST_PAUSE) or FIRST_PAUSE
            if wait:
                await anyio.sleep(wait)
                connection.changes.note("tools")

    def _up(self, connection: Connection, offer: Offer) -> None:
        self.connection = self._attempt.connection = connection
        self._up_since = anyio.current_time()
        self._on_offer(offer)
        self._set("ready")
        for note in connection.notes:
            log.info("server.note", server=self.server.key, note=note)
        self._rest_if_unheld()

    def _lost(self, connection: Connection, why: Failure = NO_FAILURE) -> None:
        """Note, once, that this connection is no more; a newer one is left alone."""
        if self.connection is connection:
            self.connection = None
            lost = Failure(f"it was lost: {why.reason or 'the connection closed'}", why.detail)
            self._down("failed" if self._holders else "idle", lost)

    def _down(self, state: ServerState, why: Failure) -> None:
        """It is not there: while somebody holds it, it is tried again after a pause."""
        if anyio.current_time() - self._up_since >= STEADY:
            self._attempts = 0
        if self._holders:
            longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._attempts, 10))
            pause = longest * random.uniform(0.5, 1)  # noqa: S311 - no secret: servers shall not all be tried at once
            self._next_try = anyio.current_time() + pause
            self._pause = anyio.CancelScope()
            self._tasks.start_soon(self._try_again, self._pause, pause)
        self._attempts += 1
        self._set(state, why)

    async def _try_again(self, pause: anyio.CancelScope, seconds: float) -> None:
        with pause:
            await anyio.sleep(seconds)
            await checkpoint_if_cancelled()
            self._begin()

    def _forget_pause(self) -> None:
        self._next_try = None
        self._pause.cancel()

    def _rest_if_unheld(self) -> None:
        if not self._holders and self.server.idle_stop is not None and self.connection is not None:
            self._rest.cancel()
            self._rest = anyio.CancelScope()
            self._tasks.start_soon(self._stop_when_idle, self._rest, self.connection, self.server.idle_stop)

    async def _stop_when_done(self, connection: Connection, within: float, why: str) -> None:
        await connection.drained(within)
        connection.over.set()  # a call that still waits for its turn has not begun: it goes to what takes its place
        self.stop(why)

    async def _stop_when_idle(self, rest: anyio.CancelScope, connection: Connection, seconds: float) -> None:
        with rest:
            await anyio.sleep(seconds)
            await connection.drained(inf)
            await checkpoint_if_cancelled()
            self.stop()

    def _set(self, state: ServerState, why: Failure = NO_FAILURE) -> None:
        self._state, self._failure = state, Failure(self._mask(why.reason), self._mask(why.detail))
        of = {"scope": str(self._scope)} if self._scope is not None else {}
        wait = {} if self._next_try is None else {"next_try": round(self._next_try - anyio.current_time(), 1)}
        say = log.warning if state == "failed" else log.info
        say(f"server.{state}", server=self.server.key, **of, **_told(self._failure), **wait)
        if state != "starting":
            self._attempt.why_not = self._failure.public or state
            self._attempt.settled.set()


def _told(why: Failure) -> dict[str, str]:
    """What an event of the log has of a failure."""
    return {name: text for name, text in (("reason", why.reason), ("detail", why.detail)) if text}


async def _last_words(connection: Connection) -> Failure:
    """How a connection was lost, as far as it can be told soon."""
    with anyio.move_on_after(LAST_WORDS):
        return await connection.how_it_ended()
    return NO_FAILURE
