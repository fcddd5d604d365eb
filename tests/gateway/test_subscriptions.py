"""What subscribers wish to hear of, from the use case's side."""

from collections.abc import Collection, Iterable, Mapping

import anyio
import anyio.lowlevel
import pytest

from proxy.core.catalogue import EVERYTHING, Allow, Catalogue, Folder, Skill, SkillFile
from proxy.core.errors import Rejection, Unknown
from proxy.core.inventory import Json, Offer
from proxy.core.names import Naming
from proxy.core.namespaced import Source
from proxy.core.profiles import Policy, Profile
from proxy.core.scope import ScopeId
from proxy.core.settings import Settings, every_kind
from proxy.gateway.forwarding import Forwarding
from proxy.gateway.gate import Gate
from proxy.gateway.idling import Idling
from proxy.gateway.rounds import Rounds
from proxy.gateway.subscriptions import MAX_UPDATE_CHARACTERS, Subscriptions
from proxy.ports import Caller, Era, ListKind, Subscriber
from proxy.store.memory import MemoryStore
from tests.core.changes import activated
from tests.gateway.world import SCOPE, Servers, caller

pytestmark = pytest.mark.anyio

URI = "memo://1"


class Refusing(Servers):
    """Servers that let nobody subscribe."""

    async def watch(
        self,
        uris: Mapping[tuple[str, ScopeId], Collection[str]],
        wait_for: tuple[str, ScopeId] | None = None,
        within: float = 0.0,
    ) -> Mapping[str, Rejection]:
        return {URI: Rejection(-32000, "no")}


class Nobody:
    """A `Notifier` without clients."""

    def list_changed(
        self, scope: ScopeId, kind: ListKind, era: Era, *, but: str | None = None, only: str | None = None
    ) -> None: ...

    def hears_of_tools(self, caller: Caller) -> bool:
        return False

    def updated(self, subscriber: Subscriber, params: Json) -> None: ...


async def test_a_subscription_that_was_refused_leaves_nothing_behind():
    """However many clients try it, and also while their connections last."""
    servers = Refusing({"s": Offer.of(resources=[{"uri": URI}])})
    gate = Gate(
        Policy(Catalogue(("s",), Naming({"s": "s"}), (Skill("all", "", "", "", tools={"s": EVERYTHING}),))),
        servers,
        MemoryStore(every_kind(1)),
    )
    await gate.change(SCOPE, lambda state: activated(gate.catalogue(SCOPE), state, "all"))
    async with anyio.create_task_group() as tasks:
        forwarding = Forwarding(gate, Rounds(Settings(), tasks), Idling(gate, anyio.current_time))
        subscriptions = Subscriptions(gate, forwarding, servers, Nobody(), tasks)
        with pytest.raises(Rejection, match="no"):
            await subscriptions.subscribe(caller(), {"uri": URI})
        assert not subscriptions._wishes
        await subscriptions.unsubscribe(caller(), {"uri": URI})
        assert not subscriptions._wishes


class Coming(Servers):
    """Servers that are on their way until somebody waits for them."""

    async def settled(self, servers: Iterable[str], scope: ScopeId, within: float) -> None:
        self.offers = {"s": Offer.of(resources=[{"uri": URI}])}


async def test_a_subscription_waits_for_the_server_that_brings_its_resource():
    """As a read does; what comes from no server is unknown all the same."""
    servers = Coming({})
    gate = Gate(
        Policy(Catalogue(("s",), Naming({"s": "s"}), (Skill("all", "", "", "", tools={"s": EVERYTHING}),))),
        servers,
        MemoryStore(every_kind(1)),
    )
    await gate.change(SCOPE, lambda state: activated(gate.catalogue(SCOPE), state, "all"))
    async with anyio.create_task_group() as tasks:
        forwarding = Forwarding(gate, Rounds(Settings(), tasks), Idling(gate, anyio.current_time))
        subscriptions = Subscriptions(gate, forwarding, servers, Nobody(), tasks)
        with pytest.raises(Unknown):
            await subscriptions.subscribe(caller(), {"uri": "memo://2"})
        servers.offers = {}
        assert await subscriptions.subscribe(caller(), {"uri": URI}) == {}


class Hearing(Nobody):
    """Notes who is told of what."""

    def __init__(self) -> None:
        self.told: list[tuple[ScopeId, str]] = []

    def updated(self, subscriber: Subscriber, params: Json) -> None:
        self.told.append((subscriber.scope, params["uri"]))


def with_file(version: int) -> Policy:
    """What there is while a file of one of two skills has this version; only `SCOPE` may use that skill."""
    files = (SkillFile("SKILL.md", 1, (1,)), SkillFile("more.md", 1, (version,)))
    filed = Skill("filed", "", "", None, folder=Folder("/filed", "SKILL.md", files))
    catalogue = Catalogue((), Naming({}), (filed, Skill("other", "", "", "Same.")))
    return Policy(catalogue, (Profile(namespace=SCOPE.name), Profile(namespace="*", allowed=Allow.of(["other"]))))


async def test_who_subscribed_to_a_file_of_a_skill_hears_when_the_skill_has_changed():
    """Nobody else does, and what one may not use cannot be subscribed to; what is gone has changed, too."""
    gate, hearing = Gate(with_file(1), Servers({}), MemoryStore(every_kind(2))), Hearing()
    stranger = caller()._replace(scope=ScopeId("namespace", "stranger"))
    async with anyio.create_task_group() as tasks:
        forwarding = Forwarding(gate, Rounds(Settings(), tasks), Idling(gate, anyio.current_time))
        subscriptions = Subscriptions(gate, forwarding, Servers({}), hearing, tasks)
        for uri in ("skill://filed/more.md", "skill://filed/SKILL.md", "skill://other/SKILL.md"):
            await subscriptions.subscribe(caller(), {"uri": uri})
        await subscriptions.unsubscribe(caller(), {"uri": "skill://filed/SKILL.md"})
        for uri in ("skill://filed/more.md", "skill://other/none.md"):
            with pytest.raises(Unknown):
                await subscriptions.subscribe(stranger, {"uri": uri})
        await subscriptions.subscribe(stranger, {"uri": "skill://other/SKILL.md"})

        for version in (1, 2):
            before = gate.policy
            gate.adopt(with_file(version), Settings(), ())
            subscriptions.skills_changed(before)
            assert hearing.told == ([] if version == 1 else [(SCOPE, "skill://filed/more.md")])
        before = gate.policy
        gate.adopt(Policy(Catalogue((), Naming({}))), Settings(), ())
        subscriptions.skills_changed(before)

    gone = [(scope, uri) for scope, uri in hearing.told[1:] if uri != "skill://filed/more.md"]
    assert gone == [(SCOPE, "skill://other/SKILL.md"), (stranger.scope, "skill://other/SKILL.md")]
    assert hearing.told.count((SCOPE, "skill://filed/more.md")) == 2


async def test_an_update_costs_by_those_who_hear_of_it(monkeypatch: pytest.MonkeyPatch):
    """Whatever else they, and others, wish to hear of; and a subscription costs nothing for other scopes."""
    servers, hearing = Servers({"s": Offer.of(templates=[{"uriTemplate": "memo://{id}"}])}), Hearing()
    catalogue = Catalogue(("s",), Naming({"s": "s"}), (Skill("all", "", "", "", tools={"s": EVERYTHING}),))
    gate = Gate(Policy(catalogue), servers, MemoryStore(every_kind(10)))
    callers = [caller()._replace(scope=ScopeId("namespace", name)) for name in "abc"]
    for each in callers:
        await gate.change(each.scope, lambda state: activated(catalogue, state, "all"))
    async with anyio.create_task_group() as tasks:
        forwarding = Forwarding(gate, Rounds(Settings(), tasks), Idling(gate, anyio.current_time))
        subscriptions = Subscriptions(gate, forwarding, servers, hearing, tasks)
        for each in callers:
            for number in range(10):
                await subscriptions.subscribe(each, {"uri": f"memo://{number}"})
        await subscriptions.subscribe(callers[0], {"uri": "memo://x"})
        asked: list[ScopeId] = []
        source = forwarding.source

        async def counted(scope: ScopeId, uri: str) -> Source | None:
            asked.append(scope)
            return await source(scope, uri)

        monkeypatch.setattr(forwarding, "source", counted)
        subscriptions.updated("s", None, {"uri": "memo://x/" + "y" * MAX_UPDATE_CHARACTERS})  # for nobody
        subscriptions.updated("s", None, {"uri": "memo://x"})
        with anyio.fail_after(10):
            while not hearing.told:
                await anyio.lowlevel.checkpoint()
        assert asked == [callers[0].scope]
        await subscriptions.unsubscribe(callers[0], {"uri": "memo://x"})
        assert {*asked} == {callers[0].scope}
    assert hearing.told == [(callers[0].scope, "memo://x")]
