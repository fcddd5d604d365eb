"""Pinned definitions: what of a server's offer may be shown, what has changed, and who is still to be told of it."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import inf
from typing import Final

import anyio
import structlog

from proxy.core.definitions import (
    Change,
    Digests,
    Grant,
    Mode,
    Pins,
    PinsLost,
    digests_of,
    settle,
    unknown_before,
    withheld,
)
from proxy.core.inventory import Offer
from proxy.core.scope import ScopeId
from proxy.ports import KeptPins
from proxy.upstream.offers import Place

log = structlog.stdlib.get_logger("proxy.upstream")

APPROVAL_POLL_S: Final = 1.0
"""Seconds between looks for an approval, while something waits for one."""
LOGGED_LIMIT: Final = 20
"""Changed tools of one server that are logged one by one, at a time."""
FLUSH_LIMIT_S: Final = 1.0
"""Seconds that the last pins have to be written at the end."""


@dataclass
class _Watched:
    """One place: what is offered there, and the pins of it."""

    pins: Pins
    """By the tool's own name."""

    lost: bool
    """Whether the pins of earlier runs cannot be read."""

    offer: Offer = field(default_factory=Offer)
    """As the server sent it."""

    digests: dict[str, Digests] = field(default_factory=dict[str, Digests])
    """Of the tools in the offer that are pinned or granted, as far as they were needed."""

    applied: frozenset[Grant] = frozenset()
    """The grants whose tools are all pinned."""

    withheld: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The tools of the offer that are not shown, with the parts that have changed."""

    seen: tuple[int, int] | None = None
    """The stamp of the file when it was last looked at for an approval."""

    @property
    def shown(self) -> Offer:
        """The offer without what is withheld."""
        if not self.withheld:
            return self.offer
        return replace(self.offer, tools=tuple(tool for tool in self.offer.tools if tool["name"] not in self.withheld))


class Definitions:
    """The pins of all places; a scope's own place has pins of its own (design rule 28).

    `files`: where pins are kept from one run to the next, None for nowhere. `show` is called when
    something else of an offer is to be shown.
    """

    def __init__(
        self,
        mode: Mode,
        files: KeptPins | None,
        show: Callable[[Place, Offer], None],
    ) -> None:
        self._mode: Mode = mode
        self._files = files
        self._show = show
        self._places: dict[Place, _Watched] = {}
        self._granted: dict[ScopeId, Mapping[Place, Grant]] = {}
        self._untold: dict[ScopeId, dict[tuple[str, str], Change]] = {}
        self._unsaved: set[Place] = set()
        self._ended: set[Place] = set()
        self._work = anyio.Event()

    def offered(self, place: Place, offer: Offer) -> Offer:
        """What of the `offer` in a place is shown: all but the tools whose changed definitions are held."""
        if place not in self._places:
            self._places[place] = self._begin(place)
        watched = self._places[place]
        watched.offer = offer
        watched.digests.clear()
        watched.applied = frozenset()
        self._settle(place, watched, self._grants_of(place))
        return watched.shown

    def knows(self, place: Place) -> bool:
        """Whether anything was offered in this place."""
        return place in self._places

    def grant(self, scope: ScopeId, granted: Mapping[Place, Grant]) -> None:
        """A client of `scope` is granted exactly this from now on."""
        self._granted[scope] = granted
        for place, grant in granted.items():
            watched = self._places.get(place)
            if watched is not None and grant not in watched.applied:
                self._refresh(place, watched, watched.applied | {grant})

    def adopt(self, mode: Mode, holds: Callable[[Place], bool]) -> None:
        """The configuration has changed; `holds`: whether a place still exists."""
        self._mode = mode
        self._places = {place: watched for place, watched in self._places.items() if holds(place)}
        for place, watched in self._places.items():
            self._refresh(place, watched, self._grants_of(place))

    def forget(self, scope: ScopeId) -> None:
        """A scope is over, also for later runs."""
        self._granted.pop(scope, None)
        self._untold.pop(scope, None)
        for place in [place for place in self._places if place[1] == scope]:
            del self._places[place]
            if self._is_kept(place):
                self._ended.add(place)
                self._work.set()

    def withheld(self, places: Iterable[Place]) -> list[Change]:
        """The tools in these places that are withheld until the user approves them."""
        return [
            Change(place[0], tool, parts, held=True, kept=self._is_kept(place))
            for place in places
            if place in self._places
            for tool, parts in self._places[place].withheld.items()
        ]

    def untold(self, scope: ScopeId) -> list[Change]:
        """The changes while `scope` was granted the tool, each of which is given once."""
        return [*self._untold.pop(scope, {}).values()]

    async def run(self) -> None:
        """Write what is new, and look for approvals while something waits for one; until cancelled."""
        try:
            while True:
                await self._write()
                waiting = [
                    place for place, watched in self._places.items() if watched.withheld and self._is_kept(place)
                ]
                with anyio.move_on_after(APPROVAL_POLL_S if waiting else inf):
                    await self._work.wait()
                    continue
                for place in waiting:
                    await self._look(place)
        finally:
            with anyio.move_on_after(FLUSH_LIMIT_S, shield=True):
                await self._write()

    def _begin(self, place: Place) -> _Watched:
        """A place with its pins of earlier runs; that they cannot be read is said."""
        if self._files is None or not self._is_kept(place):
            return _Watched({}, lost=False)
        try:
            return _Watched(self._files.read(*place), lost=False)
        except PinsLost as lost:
            log.error("pins.damaged", server=place[0], reason=str(lost), mode=self._mode)  # noqa: TRY400 - the reason is all
            return _Watched({}, lost=True)

    def _grants_of(self, place: Place) -> frozenset[Grant]:
        return frozenset(granted[place] for granted in self._granted.values() if place in granted)

    def _refresh(self, place: Place, watched: _Watched, grants: frozenset[Grant]) -> None:
        before = watched.withheld
        self._settle(place, watched, grants)
        if watched.withheld.keys() != before.keys():
            self._show(place, watched.shown)

    def _settle(self, place: Place, watched: _Watched, grants: frozenset[Grant]) -> None:
        """Bring pins, and what is withheld by them, up to what is offered and to these grants."""
        names = [tool["name"] for tool in watched.offer.tools]
        new, watched.applied = grants - watched.applied, grants
        if self._mode == "ignore":
            watched.withheld, watched.applied = {}, frozenset()
            return
        before, hold = watched.pins, self._mode == "hold"
        if watched.lost and names:
            watched.lost = False
            watched.pins = unknown_before(self._digests(watched, names)) if hold else watched.pins
        wanted = (n for n in names if n in watched.pins or any(grant.allows(n) for grant in new))
        offered = self._digests(watched, wanted)
        watched.pins, changes = settle(
            watched.pins, offered, lambda tool: any(grant.allows(tool) for grant in grants), self._mode
        )
        if hold:
            held = withheld(watched.pins, offered)
            changes = {tool: parts for tool, parts in held.items() if tool in changes or tool not in watched.withheld}
            watched.withheld = held
        else:
            watched.withheld = {}
        self._tell(place, changes)
        if watched.pins is not before and self._is_kept(place):
            self._unsaved.add(place)
            self._work.set()

    def _digests(self, watched: _Watched, names: Iterable[str]) -> Mapping[str, Digests]:
        wanted = dict.fromkeys(names)
        for tool in watched.offer.tools:
            if tool["name"] in wanted and tool["name"] not in watched.digests:
                watched.digests[tool["name"]] = digests_of(tool)
        return {name: watched.digests[name] for name in wanted}

    def _tell(self, place: Place, changes: Mapping[str, tuple[str, ...]]) -> None:
        """Log what has changed, and note it for the scopes that are granted it."""
        server, owner = place
        hold = self._mode == "hold"
        of = {} if owner is None else {"scope": str(owner)}
        event = "definition.held" if hold else "definition.changed"
        for tool, parts in islice(changes.items(), LOGGED_LIMIT):
            log.warning(event, server=server, tool=tool, changed=list(parts), **of)
        if len(changes) > LOGGED_LIMIT:
            log.warning(event, server=server, more_tools=len(changes) - LOGGED_LIMIT, **of)
        for scope, granted in self._granted.items() if changes else ():
            grant = granted.get(place)
            for tool, parts in changes.items() if grant is not None else ():
                if grant is not None and grant.allows(tool):
                    untold = self._untold.setdefault(scope, {})
                    earlier = untold.get((server, tool))
                    both = (*(earlier.parts if earlier else ()), *parts)
                    untold[server, tool] = Change(server, tool, tuple(dict.fromkeys(both)), hold, self._is_kept(place))

    def _is_kept(self, place: Place) -> bool:
        return self._files is not None and self._files.keeps(place[1])

    async def _write(self) -> None:
        """Write the pins that are not written, and remove those of scopes that are over."""
        self._work = anyio.Event()
        files = self._files
        unsaved, self._unsaved = self._unsaved, set()
        ended, self._ended = self._ended, set()
        if files is None:
            return
        for server, scope in ended - self._places.keys():
            if scope is not None:
                await anyio.to_thread.run_sync(files.remove, server, scope, abandon_on_cancel=True)
        for place in unsaved:
            if (watched := self._places.get(place)) is None:
                continue
            merge = partial(_merged, watched.pins, dict(watched.digests), self._mode)
            written = await anyio.to_thread.run_sync(files.update, *place, merge, abandon_on_cancel=True)
            self._take(place, watched, written)

    async def _look(self, place: Place) -> None:
        """Take over what the user has approved meanwhile."""
        files, watched = self._files, self._places.get(place)
        if files is None or watched is None:
            return
        stamp = await anyio.to_thread.run_sync(files.stamp, *place, abandon_on_cancel=True)
        if stamp is None or stamp == watched.seen:
            return
        watched.seen = stamp
        with suppress(PinsLost):  # those in memory count
            pins = await anyio.to_thread.run_sync(files.read, *place, abandon_on_cancel=True)
            mine = watched.pins  # what another proxy holds is its own matter: what is granted counts
            same = {
                tool: mine[tool] for tool, pin in pins.items() if tool in mine and mine[tool].granted == pin.granted
            }
            self._take(place, watched, {**pins, **same})

    def _take(self, place: Place, watched: _Watched, pins: Pins | None) -> None:
        """From now on the pins of a place are what its file has."""
        if pins is None or pins == watched.pins or self._places.get(place) is not watched:
            return
        before = watched.withheld.keys()
        watched.pins, watched.applied = pins, frozenset()
        self._refresh(place, watched, self._grants_of(place))
        for tool in before - watched.withheld.keys():
            log.info("definition.approved", server=place[0], tool=tool)


def _merged(pins: Pins, offered: Mapping[str, Digests], mode: Mode, in_file: Pins | None) -> Pins:
    """What a file is to have: its own pins, which others may have changed, brought up to these."""
    if in_file is None:
        return pins
    ours = {tool: digests for tool, digests in offered.items() if tool in pins}
    return settle({**pins, **in_file}, ours, lambda tool: pins[tool].granted == ours[tool], mode)[0]
