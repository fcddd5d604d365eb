"""Ways to the skills that servers serve, from the use case's side: each by the decision as it is when it is taken."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest

from proxy.core.catalogue import EVERYTHING, Catalogue, Skill
from proxy.core.errors import ProxyError
from proxy.core.inventory import Offer
from proxy.core.names import Naming
from proxy.core.profiles import Policy
from proxy.core.scope import ScopeId
from proxy.core.settings import Settings, every_kind
from proxy.gateway.forwarding import Forwarding
from proxy.gateway.gate import Gate
from proxy.gateway.idling import Idling
from proxy.gateway.rounds import Rounds
from proxy.store.memory import MemoryStore
from tests.gateway.world import SCOPE, Server, Servers, caller

pytestmark = pytest.mark.anyio

ENTRY = {
    "uri": "skill://a/SKILL.md",
    "frontmatter": {"name": "a", "description": ""},
    "resources": [{"uri": "skill://a/b.md"}],
}
SERVING = Offer.of(tools=[{"name": "t"}], skills=[ENTRY], extension={"directoryRead": True})
PARAMS: Mapping[str, Any] = {"uri": "skill://server.s/a/SKILL.md", "_meta": {"k": 1}}
REACHED = {"uri": "skill://a/SKILL.md", "_meta": {"k": 1}}


@dataclass
class Late(Servers):
    """Servers to which a connection takes a while, in which something happens."""

    meanwhile: Callable[[], None] = field(default=lambda: None)

    async def connected(self, server: str, scope: ScopeId) -> Server:
        self.meanwhile()
        return await super().connected(server, scope)


async def world(offer: Offer = SERVING) -> tuple[Forwarding, Late]:
    """A server `s` that is granted whole, behind the door that is tried."""
    servers = Late({"s": offer}, {"s": Server({})})
    skill = Skill("all", "", "", "", tools={"s": EVERYTHING})
    gate = Gate(Policy(Catalogue(("s",), Naming({"s": "s"}), (skill,))), servers, MemoryStore(every_kind(1)))
    await gate.change(SCOPE, lambda state: replace(state, active=("all",)))
    rounds = Rounds(Settings(), anyio.create_task_group())
    return Forwarding(gate, rounds, Idling(gate, anyio.current_time)), servers


DOORS = {
    "resources/read": Forwarding.read_resource,
    "skills/get": Forwarding.get_skill,
    "resources/directory/read": Forwarding.read_folder,
}


@pytest.mark.parametrize("method", DOORS)
async def test_a_request_goes_out_with_the_servers_own_uri_and_all_else_as_it_is(method: str):
    """For each of the ways."""
    forwarding, servers = await world()

    await DOORS[method](forwarding, caller(), PARAMS)

    assert servers.links["s"].asked == [(method, REACHED)]


@pytest.mark.parametrize("method", DOORS)
async def test_nothing_is_sent_when_the_server_comes_back_as_another(method: str):
    """It was known to serve skills; by the time that it can be reached, it has not declared that it does."""
    forwarding, servers = await world()

    def come_back() -> None:
        servers.offers = {"s": Offer.of(tools=[{"name": "t"}])}

    servers.meanwhile = come_back
    with pytest.raises(ProxyError, match=re.escape(PARAMS["uri"])):
        await DOORS[method](forwarding, caller(), PARAMS)

    assert servers.links["s"].asked == []
