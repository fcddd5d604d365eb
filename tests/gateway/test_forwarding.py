"""Which server a request goes to, from the use case's side."""

import anyio
import pytest

from proxy.core.catalogue import EVERYTHING, Catalogue, Skill
from proxy.core.errors import Unknown
from proxy.core.inventory import Offer
from proxy.core.names import Naming
from proxy.core.profiles import Policy
from proxy.core.settings import Settings, every_kind
from proxy.gateway.forwarding import Forwarding
from proxy.gateway.gate import Gate
from proxy.gateway.idling import Idling
from proxy.gateway.rounds import Rounds
from proxy.store.memory import MemoryStore
from tests.core.changes import activated, offloaded
from tests.gateway.world import SCOPE, Server, Servers, caller

pytestmark = pytest.mark.anyio

GIVEN = "memo://7"
LINK = {"content": [{"type": "resource_link", "uri": GIVEN}, {"type": "resource", "resource": {"uri": "memo://8"}}]}


PAGE = "ui://giver/page"


def world(*, listed: bool = False) -> tuple[Gate, Forwarding, Servers]:
    """Two servers: `greedy` has a template for every URI, `giver` a tool with a page, whose result hands a URI out.

    `listed`: `greedy` lists both URIs.
    """
    given = [{"uri": GIVEN}, {"uri": PAGE}] if listed else []
    greedy = Offer.of(templates=[{"uriTemplate": "{+any}"}], resources=given)
    give = {"name": "give", "_meta": {"ui": {"resourceUri": PAGE}}}
    servers = Servers(
        {"greedy": greedy, "giver": Offer.of(tools=[give], prompts=[{"name": "greet"}])},
        {"greedy": Server({"contents": []}), "giver": Server(LINK)},
    )
    skills = (
        Skill("give", "", "", "", tools={"giver": EVERYTHING}),
        Skill("grab", "", "", "", tools={"greedy": EVERYTHING}),
    )
    catalogue = Catalogue(("greedy", "giver"), Naming({"greedy": "greedy", "giver": "giver"}), skills)
    gate = Gate(Policy(catalogue), servers, MemoryStore(every_kind(10)))
    rounds = Rounds(Settings(), anyio.create_task_group())
    return gate, Forwarding(gate, rounds, Idling(gate, anyio.current_time)), servers


@pytest.mark.parametrize("uri", [GIVEN, "memo://8"])
async def test_what_a_tool_handed_out_is_read_where_it_came_from(uri: str):
    """However many URIs another server's template claims (rule 6)."""
    gate, forwarding, servers = world()
    for skill in ("give", "grab"):
        await gate.change(SCOPE, lambda state, skill=skill: activated(gate.catalogue(SCOPE), state, skill))
    await forwarding.call_tool(caller(), {"name": "giver__give"})

    await forwarding.read_resource(caller(), {"uri": uri})

    assert servers.links["giver"].asked[-1] == ("resources/read", {"uri": uri})
    assert not servers.links["greedy"].asked


async def test_a_listed_resource_is_read_where_it_is_listed():
    """A list is a server's own word; a link to it from elsewhere changes nothing."""
    gate, forwarding, servers = world(listed=True)
    for skill in ("give", "grab"):
        await gate.change(SCOPE, lambda state, skill=skill: activated(gate.catalogue(SCOPE), state, skill))
    await forwarding.call_tool(caller(), {"name": "giver__give"})

    await forwarding.read_resource(caller(), {"uri": GIVEN})

    assert servers.links["greedy"].asked == [("resources/read", {"uri": GIVEN})]


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
@pytest.mark.parametrize("giver", ["one", "two"])
async def test_what_two_servers_list_is_read_at_the_one_that_handed_it_out(order: tuple[str, str], giver: str):
    """Whatever their order in the file; until one does, and once its tools have gone, the first is asked (rule 6)."""
    offer = Offer.of(tools=[{"name": "give"}], resources=[{"uri": GIVEN}])
    servers = Servers(dict.fromkeys(order, offer), {name: Server(LINK) for name in order})
    skills = [Skill(name, "", "", "", tools={name: EVERYTHING}) for name in order]
    lists = Skill("lists", "", "", "", resources=dict.fromkeys(order, EVERYTHING))
    catalogue = Catalogue(order, Naming({name: name for name in order}), (*skills, lists))
    gate = Gate(Policy(catalogue), servers, MemoryStore(every_kind(10)))
    forwarding = Forwarding(gate, Rounds(Settings(), anyio.create_task_group()), Idling(gate, anyio.current_time))

    async def read_at() -> str:
        for link in servers.links.values():
            link.asked.clear()
        await forwarding.read_resource(caller(), {"uri": GIVEN})
        (asked,) = [name for name, link in servers.links.items() if link.asked]
        return asked

    for skill in catalogue.by_id:
        await gate.change(SCOPE, lambda state, skill=skill: activated(catalogue, state, skill))
    assert await read_at() == order[0]
    await forwarding.call_tool(caller(), {"name": f"{giver}__give"})
    assert await read_at() == giver
    for skill in (giver, "lists"):
        await gate.change(SCOPE, lambda state, skill=skill: offloaded(catalogue, state, skill))
    (other,) = {*order} - {giver}
    assert await read_at() == other


async def test_a_page_is_read_at_the_server_of_its_tool():
    """Also where another server, which comes first in the file, claims it for its own."""
    gate, forwarding, servers = world(listed=True)
    for skill in ("grab", "give"):
        await gate.change(SCOPE, lambda state, skill=skill: activated(gate.catalogue(SCOPE), state, skill))

    await forwarding.read_resource(caller(), {"uri": PAGE})
    await gate.change(SCOPE, lambda state: offloaded(gate.catalogue(SCOPE), state, "give"))
    await forwarding.read_resource(caller(), {"uri": PAGE})

    for name in ("giver", "greedy"):
        assert servers.links[name].asked == [("resources/read", {"uri": PAGE})]


async def test_what_was_handed_out_goes_when_its_server_has_no_active_skill():
    """Nothing active, nothing granted (rule 2); what is left to another server's template is that server's."""
    gate, forwarding, servers = world()
    await gate.change(SCOPE, lambda state: activated(gate.catalogue(SCOPE), state, "give"))
    await forwarding.call_tool(caller(), {"name": "giver__give"})
    await gate.change(SCOPE, lambda state: offloaded(gate.catalogue(SCOPE), state, "give"))

    with pytest.raises(Unknown, match=GIVEN):
        await forwarding.read_resource(caller(), {"uri": GIVEN})

    assert [method for method, _ in servers.links["giver"].asked] == ["tools/call"]


async def test_a_prompt_goes_out_under_its_own_name_and_an_unknown_one_does_not():
    """As tools do."""
    gate, forwarding, servers = world()
    await gate.change(SCOPE, lambda state: activated(gate.catalogue(SCOPE), state, "give"))

    await forwarding.get_prompt(caller(), {"name": "giver__greet", "arguments": {"a": "b"}})
    with pytest.raises(Unknown, match="Unknown prompt: greet"):
        await forwarding.get_prompt(caller(), {"name": "greet"})

    assert servers.links["giver"].asked == [("prompts/get", {"name": "greet", "arguments": {"a": "b"}})]
