"""Notices, from the use case's side: nobody loses one because another client goes away (rule 17)."""

from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest

from proxy.core.catalogue import EVERYTHING, Catalogue, Skill
from proxy.core.inventory import Json, Offer
from proxy.core.names import Naming
from proxy.core.profiles import Policy
from proxy.core.scope import ScopeId
from proxy.core.settings import Settings, every_kind
from proxy.gateway.announcing import Announcer
from proxy.gateway.gate import Gate
from proxy.gateway.list_reads import ListReads
from proxy.ports import Caller, Era, ListKind, Subscriber
from proxy.store.memory import MemoryStore
from tests.core.changes import activated
from tests.gateway.world import SCOPE, Channel, Servers, caller

pytestmark = pytest.mark.anyio

OFFER = Offer.of(tools=[{"name": "t"}], resources=[{"uri": "x:1"}], prompts=[{"name": "p"}])


@dataclass
class Notices:
    """A notifier that remembers who was told."""

    told: list[tuple[ListKind, Era, str | None, str | None]] = field(default_factory=list)

    def list_changed(
        self, scope: ScopeId, kind: ListKind, era: Era, *, but: str | None = None, only: str | None = None
    ) -> None:
        self.told.append((kind, era, but, only))

    def hears_of_tools(self, caller: Caller) -> bool:
        return True

    def updated(self, subscriber: Subscriber, params: Json) -> None: ...


def catalogue() -> Catalogue:
    skill = Skill("all", "all", "", "", tools={"s": EVERYTHING})
    return Catalogue(("s",), Naming({"s": "s"}), (skill,))


async def activate(channel: Channel, notices: Notices, tasks: anyio.abc.TaskGroup, **settings: str) -> None:
    chosen = Settings(**settings)  # pyright: ignore[reportArgumentType]
    gate = Gate(Policy(catalogue()), Servers({"s": OFFER}), MemoryStore(every_kind(10)), chosen)
    announcer = Announcer(gate, notices, tasks, anyio.lowlevel.checkpoint, ListReads())
    await gate.state(SCOPE)
    async with announcer.one_change(caller(channel)):
        await gate.change(SCOPE, lambda state: activated(gate.catalogue(SCOPE), state, "all"))


async def test_the_caller_hears_on_its_own_stream_and_all_others_on_theirs():
    """Each list that differs is announced once to everybody."""
    channel, notices = Channel(), Notices()
    async with anyio.create_task_group() as tasks:
        await activate(channel, notices, tasks)

    assert channel.sent == ["tools", "resources", "prompts"]
    kinds: list[ListKind] = ["tools", "resources", "prompts"]
    assert sorted(notices.told, key=str) == sorted(
        [(kind, "handshake", "own", None) for kind in kinds] + [(kind, "modern", None, None) for kind in kinds], key=str
    )


async def test_a_caller_that_does_not_read_keeps_nothing_from_the_others():
    """The others are told first; what its own stream did not take when it went away goes out on its other one."""
    channel, notices = Channel(reads=False), Notices()
    others: list[tuple[ListKind, Era, str | None, str | None]] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(activate, channel, notices, tasks)
        await channel.asked.wait()
        others += notices.told
        tasks.cancel_scope.cancel()

    assert len([told for told in others if told[2] == "own"]) == 3
    assert [told for told in notices.told if told not in others] == [
        (kind, "handshake", None, "own") for kind in ("tools", "resources", "prompts")
    ]


async def test_a_stable_listing_has_no_notices_for_what_is_activated():
    """Lists stay as they are in every era, so nothing is to be told (rule 12)."""
    channel, notices = Channel(), Notices()
    async with anyio.create_task_group() as tasks:
        await activate(channel, notices, tasks, listing="stable")

    assert channel.sent == []
    assert notices.told == []


async def test_others_have_their_turns_while_many_scopes_are_told():
    """However many there are: one turn at least for each."""
    scopes = [ScopeId("namespace", str(number)) for number in range(50)]
    gate = Gate(Policy(catalogue()), Servers({"s": OFFER}), MemoryStore(every_kind(len(scopes))))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        announcer = Announcer(gate, Notices(), tasks, anyio.lowlevel.checkpoint, ListReads())
        for scope in scopes:
            await gate.state(scope)
        tasks.start_soon(others)
        await announcer.announce_all()
        assert turns >= len(scopes) - 1
        tasks.cancel_scope.cancel()
