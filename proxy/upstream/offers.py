"""What the servers offer to each scope, or offered last, and that it has changed."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

import anyio

from proxy.core.inventory import Inventory, Offer
from proxy.core.scope import ScopeId

Place: TypeAlias = tuple[str, ScopeId | None]
"""A server, and the scope that has a connection of its own to it; None where all scopes share one."""


class Offers:
    """What was offered in each place; equal offers are one object, so that inventories can be told apart by it.

    `kept`: what each server offered when the proxy ran last. Where a server has a connection for each scope, a scope
    without one sees what the first one was offered. `keep` is called with what a server offers first and, where all
    scopes share a connection, after every change.
    """

    def __init__(self, kept: Mapping[str, Offer], keep: Callable[[str, Offer], None]) -> None:
        self._first = dict(kept)
        self._keep = keep
        self._heard: set[str] = set()
        self._offers: dict[Place, Offer] = {}
        self._known: dict[tuple[int, ...], Inventory] = {}
        self._inventories: dict[ScopeId | None, Inventory] = {}
        self._version = 0
        self._changed = anyio.Event()

    def inventory(self, scope: ScopeId | None, places: Callable[[], Iterable[Place]]) -> Inventory:
        """What is offered to `scope`, in its `places` by server; another object after every change."""
        if scope not in self._inventories:
            offers = {place[0]: offer for place in places() if (offer := self._of(place)) is not None}
            same = tuple(map(id, offers.values()))
            self._inventories[scope] = self._known.setdefault(same, offers)
        return self._inventories[scope]

    async def changed(self, since: int) -> int:
        """Wait until some inventory has changed after the change number `since`; the number of the newest."""
        while self._version <= since:
            await self._changed.wait()
        return self._version

    def note(self, place: Place, offer: Offer) -> None:
        """Take note of what is offered in a place."""
        server, before = place[0], self._of(place)
        for known in (before, self._first.get(server)):
            offer = known if known is not None and known.same(offer) else offer
        self._offers[place] = offer
        if server not in self._heard:
            self._heard.add(server)
            self._first[server] = offer
            self._keep(server, offer)
        elif place[1] is None and offer is not before:
            self._keep(server, offer)
        if offer is not before:
            self._renew()

    def adopt(self, servers: Collection[str], same: Collection[str], kept: Mapping[str, Offer]) -> None:
        """From now on there are these servers, of which some are the `same` as before.

        Those that are new offer what they offered when the proxy ran last; those that have changed, what they did.
        """
        self._heard &= set(same)
        self._first = {**kept, **{key: offer for key, offer in self._first.items() if key in servers}}
        self._offers = {place: offer for place, offer in self._offers.items() if place[0] in servers}
        self._renew()

    def forget(self, scope: ScopeId) -> None:
        """A scope is over."""
        self._inventories.pop(scope, None)
        for place in [place for place in self._offers if place[1] == scope]:
            del self._offers[place]

    def _of(self, place: Place) -> Offer | None:
        return self._offers.get(place) or self._first.get(place[0])

    def _renew(self) -> None:
        self._inventories.clear()
        self._known.clear()  # what is no longer offered is not kept for those who never ask again
        self._version += 1
        self._changed.set()
        self._changed = anyio.Event()
