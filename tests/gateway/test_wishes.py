"""What subscribers wish to hear of: found by resource, as many as are allowed, and nothing of those who are gone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.errors import Rejection
from proxy.core.scope import ScopeId
from proxy.gateway.wishes import MAX_WISH_CHARACTERS, MAX_WISHES, Wishes
from proxy.ports import Subscriber
from tests.core.strategies import law

SUBSCRIBERS = [Subscriber(ScopeId("namespace", scope), "modern", name) for scope in "ab" for name in ("", "c")]
URIS = st.text(st.sampled_from("a/:"), max_size=6)


def hears(uri: str, wished: str) -> bool:
    return uri == wished or uri.startswith(wished.rstrip("/") + "/")


@law
@given(
    st.lists(st.tuples(st.sampled_from(["add", "discard", "forget", "set"]), st.sampled_from(SUBSCRIBERS), URIS)), URIS
)
def test_an_update_finds_those_whose_wish_is_that_resource_or_one_above(
    steps: list[tuple[str, Subscriber, str]], uri: str
):
    wishes, wanted = Wishes(), dict[Subscriber, set[str]]()
    for step, subscriber, wished in steps:
        match step:
            case "add":
                wishes.add(subscriber, wished)
                wanted.setdefault(subscriber, set()).add(wished)
            case "discard":
                wishes.discard(subscriber, wished)
                wanted.get(subscriber, set[str]()).discard(wished)
            case "forget":
                assert wishes.forget(subscriber) == bool(wanted.pop(subscriber, None))
            case _:
                wishes.set(subscriber, {wished, "a"})
                wanted[subscriber] = {wished, "a"}
    wanted = {subscriber: uris for subscriber, uris in wanted.items() if uris}

    expected = {(who, wished) for who, uris in wanted.items() for wished in uris if hears(uri, wished)}
    found = [*wishes.hearing_of(uri)]
    assert len(found) == len({*found})
    assert {*found} == expected
    assert {subscriber: {*uris} for subscriber, uris in wishes.items()} == wanted
    assert {*wishes.scopes()} == {subscriber.scope for subscriber in wanted}
    assert bool(wishes) == bool(wanted)
    for subscriber in SUBSCRIBERS:
        wishes.forget(subscriber)
    assert not wishes._by_stem


def test_a_subscriber_has_so_many_wishes_and_others_their_own():
    wishes = Wishes()
    one, other = SUBSCRIBERS[:2]
    for number in range(MAX_WISHES):
        wishes.add(one, f"memo://{number}")
    wishes.add(one, "memo://0")
    wishes.add(other, "memo://new")

    with pytest.raises(Rejection, match=f"No more than {MAX_WISHES}"):
        wishes.add(one, "memo://new")
    with pytest.raises(Rejection, match=f"No more than {MAX_WISHES}"):
        wishes.set(one, {f"memo://{number}" for number in range(MAX_WISHES + 1)})
    assert len(wishes.of(one.scope)) == MAX_WISHES + 1
    wishes.discard(one, "memo://0")
    wishes.add(one, "memo://new")


def test_a_wish_has_so_many_characters():
    wishes = Wishes()
    wishes.add(SUBSCRIBERS[0], "x" * MAX_WISH_CHARACTERS)

    for wish in (wishes.add, lambda who, uri: wishes.set(who, {uri})):
        with pytest.raises(Rejection, match="characters cannot be subscribed to"):
            wish(SUBSCRIBERS[0], "x" * (MAX_WISH_CHARACTERS + 1))
    assert [*wishes.hearing_of("x" * MAX_WISH_CHARACTERS + "/below")] == [(SUBSCRIBERS[0], "x" * MAX_WISH_CHARACTERS)]
