"""What subscribers wish to hear of, from the use case's side."""

from collections.abc import Collection, Mapping

import anyio
import pytest

from proxy.core.catalogue import EVERYTHING, Catalogue, Skill
from proxy.core.errors import Rejection
from proxy.core.inventory import Json, Offer
from proxy.core.names import Naming
from proxy.core.profiles import Policy
from proxy.core.scope import ScopeId
from proxy.core.settings import Settings, every_kind
from proxy.gateway.forwarding import Forwarding
from proxy.gateway.gate import Gate
from proxy.gateway.idling import Idling
from proxy.gateway.rounds import Rounds
from proxy.gateway.subscriptions import Subscriptions
from proxy.ports import Era, ListKind, Subscriber
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
        subscriptions = Subscriptions(forwarding, servers, Nobody(), tasks)
        with pytest.raises(Rejection, match="no"):
            await subscriptions.subscribe(caller(), {"uri": URI})
        assert not subscriptions._wishes
        await subscriptions.unsubscribe(caller(), {"uri": URI})
        assert not subscriptions._wishes
