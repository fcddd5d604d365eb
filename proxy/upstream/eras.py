"""How servers under `era: auto` are greeted: in the era of the client that a connection is for, or as worked before.

A server of both eras may ask its clients (sampling, elicitation, roots) in one of them alone: by requests of its own up
to 2025-11-25, by results in 2026-07-28. So a connection that belongs to one scope speaks the era of that scope's client
where the server does. A connection that several scopes share has no such client, and prefers the newer era.
"""

from collections.abc import Collection
from typing import Final

from proxy.core.protocol import Era
from proxy.core.server import Server
from proxy.upstream.greeting import HANDSHAKE_FIRST, HANDSHAKE_ONLY, MODERN_ONLY, PROBE_FIRST, Order

_ERA_OF: Final[dict[Order, Era]] = {HANDSHAKE_FIRST: "handshake", PROBE_FIRST: "modern"}


class Eras:
    """What is known of servers that end, or refuse, where they are greeted in the wrong era; for this run of the proxy.

    It is not kept for the next run: an entry's `era` says it for good, and `check` and the log name that.
    """

    def __init__(self) -> None:
        self._first: dict[str, Order] = {}
        self._unanswered: dict[str, Order] = {}

    def orders(self, server: Server, client: Era | None) -> tuple[Order, ...]:
        """What to ask in which order, each on a connection of its own where the one before came to nothing.

        `client`: the era of the client that the connection is for, None where it is shared or nobody has come yet.
        """
        if server.era != "auto":
            return (HANDSHAKE_ONLY if server.era == "handshake" else MODERN_ONLY,)
        wanted = HANDSHAKE_FIRST if client == "handshake" else PROBE_FIRST
        first = self._first.get(server.key, wanted)
        if self._unanswered.pop(server.key, None) == first:
            first = _other(first)
        return first, _other(first)

    def met(self, server: Server, order: Order, era: Era, *, at_first: bool) -> None:
        """A server was greeted in an order, and speaks `era`; `at_first`: the first order that was tried.

        What only the second order brought about is remembered, until the server is met in the other era: it may have
        been replaced.
        """
        if not at_first:
            self._first[server.key] = order
        elif _ERA_OF.get(self._first.get(server.key, order)) != era:
            self._first.pop(server.key, None)

    def unanswered(self, server: Server, order: Order) -> None:
        """A start was cut off before the greeting was answered: the next one begins with the other request.

        Some servers say nothing more once they have seen a request that they do not know.
        """
        self._unanswered[server.key] = order

    def forget(self, servers: Collection[str]) -> None:
        """These servers are not as they were."""
        for key in servers:
            self._first.pop(key, None)
            self._unanswered.pop(key, None)


def _other(order: Order) -> Order:
    return PROBE_FIRST if order == HANDSHAKE_FIRST else HANDSHAKE_FIRST
