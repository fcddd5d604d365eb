"""Whom a bearer token stands for, and what of each principal is in work: it ends when the token counts no more."""

import hashlib
import hmac
import math
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import anyio
import structlog

from proxy.face.addresses import network_of
from proxy.ports import Clock

log = structlog.stdlib.get_logger("proxy.face")

Principal: TypeAlias = str | None
"""A user of `proxy.tokens`; None: everybody, where there are no tokens."""

END_WITHIN: Final = 2.0
"""Seconds for the requests of a principal that is let in no more to end."""
WRONG_TOKENS: Final = 10
"""How many wrong tokens an address may send in `WRONG_WITHIN` before it is told to wait."""
WRONG_WITHIN: Final = 60.0
"""Seconds."""
MAX_ADDRESSES: Final = 10_000
"""Addresses whose wrong tokens are counted, the newest ones."""


@dataclass(eq=False)
class _Request:
    work: anyio.CancelScope
    ended: anyio.Event = field(default_factory=anyio.Event)


class Principals:
    """The principals by their tokens (principal -> token), and their requests that are in work."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._digests = _digests(tokens)
        self._in_work: dict[Principal, set[_Request]] = {}

    @property
    def required(self) -> bool:
        """Whether a request needs a token."""
        return bool(self._digests)

    def of(self, token: str) -> str | None:
        """Whose token it is; takes as long for any token."""
        given, found = _digest(token), None
        for principal, digest in self._digests.items():
            if hmac.compare_digest(given, digest):
                found = principal
        return found

    def adopt(self, tokens: Mapping[str, str]) -> Collection[Principal]:
        """These tokens count from now on; whose requests so far nobody may go on with: its token is gone or another."""
        before, self._digests = self._digests, _digests(tokens)
        if not before:
            return (None,) if self._digests else ()
        return tuple(principal for principal, digest in before.items() if self._digests.get(principal) != digest)

    @contextmanager
    def admitted(self, principal: Principal) -> Generator[anyio.CancelScope]:
        """A request of `principal` is in work inside, until it is done or `end` is called, which cancels the scope."""
        requests = self._in_work.setdefault(principal, set())
        with anyio.CancelScope() as work:
            request = _Request(work)
            requests.add(request)
            try:
                yield work
            finally:
                requests.discard(request)
                request.ended.set()
                if not requests and self._in_work.get(principal) is requests:
                    del self._in_work[principal]

    async def end(self, principals: Collection[Principal]) -> None:
        """Cancel the requests of these, streams included, and wait for their end, at most `END_WITHIN`."""
        requests = [request for principal in principals for request in self._in_work.get(principal, ())]
        for request in requests:
            request.work.cancel()
        with anyio.move_on_after(END_WITHIN):
            for request in requests:
                await request.ended.wait()


class WrongTokens:
    """Counts wrong tokens by the address that they come from, an IPv6 address by its /64."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[float, int]] = {}

    def retry_after(self, address: str) -> int:
        """Take note of one; the seconds until the next may be tried, 0 while there have been few."""
        network, now = network_of(address), self._clock()
        begun, count = self._seen.pop(network, (now, 0))
        if now - begun >= WRONG_WITHIN:
            begun, count = now, 0
        self._seen[network] = begun, count + 1
        if len(self._seen) > MAX_ADDRESSES:
            del self._seen[next(iter(self._seen))]
        if count == WRONG_TOKENS:
            log.warning("token.wrong", address=network, times=count + 1, seconds=math.ceil(now - begun))
        return math.ceil(begun + WRONG_WITHIN - now) if count >= WRONG_TOKENS else 0


def _digests(tokens: Mapping[str, str]) -> Mapping[str, bytes]:
    return {principal: _digest(token) for principal, token in tokens.items()}


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
