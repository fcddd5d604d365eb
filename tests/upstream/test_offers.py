"""What was offered to whom, in any order of things (rule 28)."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.inventory import Offer
from proxy.core.scope import ScopeId
from proxy.upstream.offers import Offers, Place
from tests.core.strategies import law

SERVERS = ("one", "two")
SCOPES = tuple(ScopeId("namespace", name) for name in "abc")
ALL = "everybody"

servers, scopes = st.sampled_from(SERVERS), st.sampled_from(SCOPES)
steps = st.lists(
    st.tuples(st.just("note"), servers, scopes, st.integers(0, 1))
    | st.tuples(st.just("forget"), scopes)
    | st.tuples(st.just("adopt"), st.sets(servers), st.sets(servers), st.booleans()),
    max_size=20,
)


def offer_to(whom: str, version: int) -> Offer:
    return Offer.of(tools=[{"name": whom, "version": version}])


@law
@given(steps=steps, own=st.sets(servers))
def test_what_a_scope_is_shown_was_offered_to_it_or_to_all(steps: list[tuple[object, ...]], own: set[str]):
    """However scopes come and go, and servers become shared or not; and what is kept was offered to all."""
    kept: list[tuple[str, Offer]] = []
    before = {server: offer_to(ALL, 9) for server in SERVERS if server not in own}
    offers = Offers(before, lambda server, offer: kept.append((server, offer)))
    there = set(SERVERS)
    newest: dict[Place, Offer] = {(server, None): offer for server, offer in before.items()}

    def place(server: str, scope: ScopeId) -> Place:
        return server, scope if server in own else None

    def places(scope: ScopeId) -> list[Place]:
        return [place(server, scope) for server in there]

    for step in steps:
        match step:
            case ("note", str(server), ScopeId() as scope, int(version)) if server in there:
                whom = str(scope) if server in own else ALL
                newest[place(server, scope)] = offer_to(whom, version)
                offers.note(place(server, scope), offer_to(whom, version))
            case ("forget", ScopeId() as scope):
                offers.forget(scope)
                newest = {at: offer for at, offer in newest.items() if at[1] != scope}
            case ("adopt", set() as gone, set() as becomes, bool(same)):
                there, own = {*SERVERS} - gone, {str(server) for server in becomes}
                offers.adopt(there - own, there & own, there if same else (), {})
                newest = {at: offer for at, offer in newest.items() if at[0] in there and (at[0] in own) == bool(at[1])}
            case _:
                continue
        for scope in SCOPES:
            shown = offers.inventory(scope, partial(places, scope))
            assert shown == {s: newest[place(s, scope)] for s in there if place(s, scope) in newest}
            for server, offer in shown.items():
                assert offer.tools[0]["name"] == (str(scope) if server in own else ALL)
    assert all(offer.tools[0]["name"] == ALL for _, offer in kept)


def test_equal_offers_are_one_object():
    """So that scopes with equal inventories share what is made of them, each from its own connection."""
    offers = Offers({}, lambda _server, _offer: None)
    for scope in SCOPES:
        offers.note(("one", scope), offer_to("same", 1))

    first, *others = (offers.inventory(scope, lambda scope=scope: [("one", scope)]) for scope in SCOPES)

    assert all(inventory is first for inventory in others)


def test_equal_offers_of_two_servers_are_not_taken_for_one_another():
    """Each scope is shown what it was offered under the server that has offered it."""
    offers = Offers({}, lambda _server, _offer: None)
    for scope, server in zip(SCOPES, SERVERS, strict=False):
        offers.note((server, scope), offer_to("same", 1))

    for scope, server in zip(SCOPES, SERVERS, strict=False):
        assert [*offers.inventory(scope, lambda scope=scope: [(each, scope) for each in SERVERS])] == [server]
