"""The use cases of calls put together as the program does it, over stand-ins for the world."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio.lowlevel
from anyio.abc import TaskGroup

from proxy.core.inventory import Json
from proxy.core.masking import Masker
from proxy.core.scope import ScopeId
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
from proxy.gateway.rounds import Rounds
from proxy.gateway.running import Runner
from proxy.gateway.skills import Skills
from proxy.ports import Caller, Clock, Era, ListKind, Notifier, Subscriber
from proxy.store.memory import MemoryStore
from proxy.store.runs import MemoryRuns
from tests.gateway.world import Files


class Unheard:
    """A `Notifier` whose clients have no streams of their own: those of the handshake era hear on their requests'."""

    def list_changed(
        self, scope: ScopeId, kind: ListKind, era: Era, *, but: str | None = None, only: str | None = None
    ) -> None: ...

    def hears_of_tools(self, caller: Caller) -> bool:
        return caller.era == "handshake"

    def updated(self, subscriber: Subscriber, params: Json) -> None: ...


class NoSearch:
    """A `SkillSearch` that finds nothing."""

    async def find(self, skills: Sequence[object], query: str, guide_of: Callable[[str], str]) -> list[str]:
        return []


@dataclass
class Wired:
    """The use cases, and where they keep what they know."""

    gate: Gate
    calling: Calling
    skills: Skills
    listing: Listing
    hooks: Hooks
    invoking: Invoking
    idling: Idling
    runs: MemoryRuns
    announcer: Announcer
    reads: ListReads


def wired(
    gate: Gate,
    tasks: TaskGroup,
    clock: Clock = lambda: 0.0,
    files: Files | None = None,
    notifier: Notifier | None = None,
) -> Wired:
    """The use cases over `gate`, whose store is one in memory."""
    assert isinstance(gate.store, MemoryStore)
    reads, idling, rounds = ListReads(), Idling(gate, clock), Rounds(gate.settings, tasks)
    forwarding = Forwarding(gate, rounds, idling)
    announcer = Announcer(gate, notifier or Unheard(), tasks, anyio.lowlevel.checkpoint, reads)
    listing = Listing(gate, announcer, reads)
    runner = Runner(gate, forwarding, clock)
    hooks = Hooks(gate, runner, tasks)
    invoking = Invoking(gate, runner, idling, gate.store, Masker(), clock)
    gate.on_gone = lambda scope, skills, before: hooks.ended(scope, skills, before, "removed")
    idling.on_gone = lambda scope, skills, before: hooks.ended(scope, skills, before, "idle")
    files = files or Files()
    skills = Skills(
        gate=gate,
        listing=listing,
        announcer=announcer,
        idling=idling,
        files=files,
        finding=Finding(NoSearch, files),
        hooks=hooks,
        records=gate.store,
    )
    calling = Calling(
        gate=gate,
        listing=listing,
        skills=skills,
        invoking=invoking,
        forwarding=forwarding,
        hooks=hooks,
        announcer=announcer,
        rounds=rounds,
    )
    return Wired(gate, calling, skills, listing, hooks, invoking, idling, gate.store.runs, announcer, reads)
