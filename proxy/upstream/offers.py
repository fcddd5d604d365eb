"""What the servers offer to each scope, or offered last, and that it has changed."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias
from weakref import WeakValueDictionary

import anyio

from proxy.core.inventory import Inventory, Offer
from proxy.core.scope import ScopeId

Place: TypeAlias = tuple[str, ScopeId | None]
"""A server, and the scope that has a connection of its own to it; None where all scopes share one."""


class Offers:
    """What was offered last in each place, and in no other: what one scope was offered is shown to no other one.

    Equal offers are one object, so that inventories can be told apart by it. `kept`: what each server that all scopes
    share offered when the proxy ran last. `keep` is called with what such a server offers first, and after every
    change.
    """

    def __init__(self, kept: Mapping[str, Offer], keep: Callable[[str, Offer], None]) -> None:
        self._keep = keep
        self._heard: set[str] = set()
        self._equal = WeakValueDictionary[bytes, Offer]()
        self._offers: dict[Place, Offer] = self._shared(kept)
        self._known: dict[tuple[tuple[str, int], ...], Inventory] = {}
        self._inventories: dict[ScopeId | None, Inventory] = {}
        self._version = 0
        self._changed = anyio.Event()

    def inventory(self, scope: ScopeId | None, places: Callable[[], Iterable[Place]]) -> Inventory:
        """What is offered to `scope`, in its `places` by server; another object after every change."""
        if scope not in self._inventories:
            offers = {place[0]: offer for place in places() if (offer := self._offers.get(place)) is not None}
            same = tuple((server, id(offer)) for server, offer in offers.items())
            self._inventories[scope] = self._known.setdefault(same, offers)
        return self._inventories[scope]

    async def changed(self, since: int) -> int:
        """Wait until some inventory has changed after the change number `since`; the number of the newest."""
        while self._version <= since:
            await self._changed.wait()
        return self._version

    def note(self, place: Place, offer: Offer) -> None:
        """Take note of what is offered in a place."""
        server, scope = place
        before, offer = self._offers.get(place), self._one(offer)
        self._offers[place] = offer
        if scope is None and (server not in self._heard or offer is not before):
            self._heard.add(server)
            self._keep(server, offer)
        if offer is not before:
            self._renew()

    def adopt(
        self, shared: Collection[str], own: Collection[str], same: Collection[str], kept: Mapping[str, Offer]
    ) -> None:
        """From now on there are these servers: `shared` by all scopes, or each scope's `own`.

        Some are the `same` as before. Those that are new and shared offer what they offered when the proxy ran last;
        those that have changed, what they did, but never to all scopes what they did to one.
        """
        self._heard &= set(same)
        still = {
            place: offer for place, offer in self._offers.items() if place[0] in (shared if place[1] is None else own)
        }
        self._offers = self._shared(kept) | still
        self._renew()

    def forget(self, scope: ScopeId) -> None:
        """A scope is over."""
        self._inventories.pop(scope, None)
        for place in [place for place in self._offers if place[1] == scope]:
            del self._offers[place]

    def _shared(self, offers: Mapping[str, Offer]) -> dict[Place, Offer]:
        return {(server, None): self._one(offer) for server, offer in offers.items()}

    def _one(self, offer: Offer) -> Offer:
        """The offer that stands for all that are equal to it."""
        return self._equal.setdefault(offer.digest, offer)

    def _renew(self) -> None:
        self._inventories.clear()
        self._known.clear()  # what is no longer offered is not kept for those who never ask again
        self._version += 1
        self._changed.set()
        self._changed = anyio.Event()
