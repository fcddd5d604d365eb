"""Servers that change while the proxy runs, one thing at a time, in made-up time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any
from unittest.mock import patch

import anyio

from proxy.core.definitions import NO_GRANT
from proxy.core.inventory import Offer
from proxy.core.masking import Masker
from proxy.core.scope import ScopeId
from proxy.core.server import HttpServer, Server, StdioServer
from proxy.core.settings import Settings
from proxy.face.clients import ClientRegistry
from proxy.ports import Remembered
from proxy.upstream.pool import REPLACE_WITHIN, Pool
from tests.machine.clock import MadeUpTime
from tests.machine.doubles import Double, Process

HERE, THERE = ScopeId("namespace", "here"), ScopeId("namespace", "there")
STDIO = StdioServer(key="server", command="server", era="handshake")
HTTP = HttpServer(key="server", url="http://127.0.0.1:9/mcp", era="handshake")


@dataclass
class Kept:
    """Keeps nothing from one run to the next, and remembers of which servers it was to."""

    written: list[Server] = field(default_factory=list[Server])

    def read(self, server: Server) -> Offer | None:
        return None

    def keep(self, server: Server, offer: Offer) -> None:
        self.written.append(server)


@dataclass
class World:
    """A pool with one server, `server`, which is `double`."""

    clock: MadeUpTime
    double: Double
    pool: Pool

    def becomes(self, server: Server | None) -> None:
        """The configuration has changed: the server is this now, or gone."""
        self.clock.outcome(self.pool.adopt({} if server is None else {"server": server}, {}))

    def held_by(self, scope: ScopeId | None) -> None:
        """Somebody needs it from now on."""
        self.clock.call_soon(self.pool.hold, scope, {"server": NO_GRANT})
        self.clock.advance()

    def called(self) -> Any:
        """A call that its process works on."""

        async def call() -> dict[str, Any]:
            link = await self.pool.connected("server", HERE)
            return await link.request("tools/call", {"name": "read", "arguments": {"takes_time": True}})

        task = self.clock.create_task(call())
        self.clock.advance()
        assert len(self.process.waiting) == 1
        return task

    @property
    def process(self) -> Process:
        """Its only process."""
        (process,) = self.double.running
        return process

    def tools(self) -> list[str]:
        """What it offers to a scope."""
        offer = self.pool.inventory(HERE).get("server", Offer())
        return [tool["name"] for tool in offer.tools]


async def at_once(work: Callable[..., object], *args: object, **_options: object) -> object:
    """A thread that needs no time."""
    return work(*args)


@contextmanager
def world(server: Server, kept: Kept | None = None) -> Iterator[World]:
    clock, double = MadeUpTime(), Double("server", lambda *_: None)
    pools: list[Pool] = []
    stop = clock.outcome(_event())

    async def live() -> None:
        async with anyio.create_task_group() as tasks:
            clients = ClientRegistry(tasks)
            pool = Pool({"server": server}, {}, Masker(), clients, Settings(), remembered=kept and Remembered(kept))
            pools.append(pool)
            async with pool.running():
                await stop.wait()

    transport = patch("proxy.upstream.connection.transport", lambda server, *_, **_named: double.transport(server))
    with transport, patch("proxy.upstream.pool.anyio.to_thread.run_sync", at_once):
        main = clock.create_task(live())
        clock.advance()
        yield World(clock, double, pools[0])
        clock.call_soon(stop.set)
        clock.advance(10)
        main.result()
        assert not clock.complaints
        assert not double.running
        clock.close()


async def _event() -> anyio.Event:
    return anyio.Event()


def test_a_server_that_changes_twice_begins_when_its_first_process_has_ended():
    """Also where the one in between never came to run: some hold a lock or a port."""
    with world(STDIO) as here:
        here.double.lingers = 4.0
        here.held_by(HERE)
        first = here.process
        here.becomes(replace(STDIO, args=("second",)))
        here.clock.advance(1)
        here.becomes(replace(STDIO, args=("third",)))
        here.clock.advance(1)
        assert here.double.running == [first]
        here.clock.advance(10)
        assert here.process is not first
        assert here.pool.status("server").state == "ready"


def test_calls_of_a_server_that_was_taken_out_end_in_peace():
    """Whatever it says of its lists meanwhile."""
    with world(STDIO, Kept()) as here:
        call = here.called()
        here.becomes(None)
        here.process.offer(("write",))
        here.clock.advance(1)
        here.process.answer(next(iter(here.process.waiting)))
        here.clock.advance()
        assert call.result()["content"]
        assert not here.double.running


def test_what_a_server_that_was_replaced_says_of_its_tools_counts_no_more():
    """It still works on a call while its successor offers something else."""
    with world(HTTP) as here:
        call = here.called()
        old = here.process
        here.double.tools = ("new",)
        here.held_by(HERE)
        here.becomes(replace(HTTP, headers={"x": "y"}))
        assert here.tools() == ["new"]
        old.offer(("old",))
        here.clock.advance(1)
        assert here.tools() == ["new"]
        old.answer(next(iter(old.waiting)))
        here.clock.advance()
        assert call.done()


def test_a_scope_that_comes_back_waits_for_the_end_of_its_own_process():
    """It had ended a moment ago; nothing is remembered of it once its process is gone."""
    with world(replace(STDIO, isolation="scope")) as here:
        here.double.lingers = 4.0
        here.held_by(HERE)
        first = here.process
        here.clock.call_soon(here.pool.release, HERE)
        here.clock.advance(1)
        here.held_by(HERE)
        assert here.double.running == [first]
        here.clock.advance(10)
        assert here.process is not first
        assert here.pool.status("server", HERE).state == "ready"
        assert not here.pool._ending


def test_an_eager_server_that_gets_a_connection_for_each_scope_has_none_for_nobody():
    """The proxy itself holds those alone that all scopes share."""
    with world(STDIO) as here:
        here.held_by(None)
        here.held_by(HERE)
        assert len(here.double.running) == 1
        here.becomes(replace(STDIO, isolation="scope"))
        here.clock.advance(REPLACE_WITHIN)
        assert set(here.pool._lives) == {("server", HERE)}
        assert len(here.double.running) == 1


def test_what_a_changed_server_offers_is_kept_for_the_next_run():
    """Under what it is now, also where it offers the same."""
    kept = Kept()
    after = replace(STDIO, args=("second",))
    with world(STDIO, kept) as here:
        here.held_by(HERE)
        here.held_by(THERE)
        assert kept.written == [STDIO]
        here.becomes(after)
        here.clock.advance(1)
        assert kept.written == [STDIO, after]


def test_what_a_server_offers_one_scope_is_shown_to_no_other_and_not_kept():
    """Not before the other has a connection of its own, nor after; not after a change of `isolation` either."""
    own, kept = replace(STDIO, isolation="scope"), Kept()
    with world(own, kept) as here:
        here.double.tools = ("of_there",)
        here.held_by(THERE)
        assert here.tools() == []
        here.double.tools = ("of_here",)
        here.held_by(HERE)
        assert here.tools() == ["of_here"]
        assert [tool["name"] for tool in here.pool.inventory(THERE)["server"].tools] == ["of_there"]
        assert kept.written == []
        here.double.opening = "hangs"
        here.becomes(STDIO)
        assert here.tools() == []
        here.becomes(own)
        assert here.tools() == []
        assert kept.written == []


def test_servers_that_are_tried_again_put_off_nobody():
    """Who waits for servers waits for the starts that were on their way, and not for one after the other."""
    slow = replace(STDIO, start_timeout=30.0)
    restless = {f"{limit}": replace(STDIO, key=f"{limit}", start_timeout=float(limit)) for limit in (4, 3, 2)}
    with world(slow) as here:
        here.double.opening = "hangs"
        servers = {"server": slow, **restless}
        here.clock.outcome(here.pool.adopt(servers, {}))
        here.clock.call_soon(here.pool.hold, HERE, dict.fromkeys(servers, NO_GRANT))
        here.clock.advance()
        wait = here.clock.create_task(here.pool.settled(servers, HERE, 5.0))
        here.clock.advance(4.9)
        assert not wait.done()
        here.clock.advance(0.1)
        assert wait.done()


def test_all_who_wait_for_the_calls_of_a_connection_learn_of_their_end():
    """Not the last one alone."""
    with world(STDIO) as here:
        here.called()
        link = here.clock.outcome(here.pool.connected("server", HERE))
        waits = [here.clock.create_task(link.drained(inf)) for _ in range(2)]
        here.clock.advance()
        assert not any(wait.done() for wait in waits)
        here.process.answer(next(iter(here.process.waiting)))
        here.clock.advance()
        assert all(wait.done() for wait in waits)
