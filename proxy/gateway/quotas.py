"""What each principal uses at the moment, counted, and refused where it would be past a limit."""

from math import inf
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import structlog

from proxy.core.allowances import Account, Allowance, Allowances
from proxy.core.errors import PastLimit
from proxy.core.limits import UNLIMITED, LimitName, whole_seconds
from proxy.core.profiles import Policy
from proxy.core.scope import ScopeId
from proxy.core.settings import Settings
from proxy.ports import Clock

if TYPE_CHECKING:  # what it imports takes a while, and the first call comes later than the first answer
    from proxy.gateway.call_rate import CallRate

log = structlog.stdlib.get_logger("proxy.gateway")

Key: TypeAlias = tuple[LimitName, Account]

RETRY_AFTER_S: Final[dict[LimitName, int]] = {
    "sessions": 60,
    "namespaces": 60,
    "processes": 60,
    "calls_in_flight": 1,
    "held_questions": 10,
}
"""Seconds after which it is worth trying again, where nobody can tell when something ends."""


LOG_INTERVAL_S: Final = 60.0
"""Seconds between two log messages of one limit of one account."""


class Slot:
    """One of what a limit counts for an account, until it is given back."""

    __slots__ = ("_counts", "_key")

    def __init__(self, counts: dict[Key, int], key: Key) -> None:
        self._counts: dict[Key, int] | None = counts
        self._key = key

    def give_back(self) -> None:
        """It is over; a second time this does nothing."""
        counts, self._counts = self._counts, None
        if counts is None:
            return
        if counts[self._key] == 1:
            del counts[self._key]
        else:
            counts[self._key] -= 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.give_back()


class Quotas:
    """Counts by account; every method returns at once."""

    def __init__(self, policy: Policy, settings: Settings, clock: Clock = monotonic) -> None:
        self._clock = clock
        self.bounds = settings.max_scopes
        """How many scopes of each kind there can be; it counts from the start on."""
        self._allowances = Allowances(policy, settings, self.bounds)
        self._counts: dict[Key, int] = {}
        self._namespaces: dict[ScopeId, Slot] = {}
        self._rate: CallRate | None = None
        self._logged: dict[Key, float] = {}

    def adopt(self, policy: Policy, settings: Settings) -> None:
        """These limits count from now on; what is in use stays, and counts."""
        self._allowances = Allowances(policy, settings, self.bounds)

    def of(self, limit: LimitName, scope: ScopeId) -> Allowance:
        """What the principal of `scope` may use of one kind."""
        return self._allowances.of(limit, scope)

    def at_server(self, scope: ScopeId, max_connections: int) -> float:
        """How many connections of its own to one server the principal of `scope` may have, of so many for all."""
        return self._allowances.at_server(scope, max_connections)

    def take(self, limit: LimitName, scope: ScopeId) -> Slot:
        """One more of `limit` for `scope`, until the slot is given back.

        Raises:
            PastLimit: its principal has as many as it may.
        """
        _, account, most = allowance = self.of(limit, scope)
        key = (limit, account)
        count = self._counts.get(key, 0)
        if count >= most:
            raise self._refused(allowance, RETRY_AFTER_S[limit])
        self._counts[key] = count + 1
        return Slot(self._counts, key)

    def call(self, scope: ScopeId) -> Slot:
        """A call of a client, which is in work until the slot is given back.

        Raises:
            PastLimit: as many are in work, or were made in the last minute, as may.
        """
        slot = self.take("calls_in_flight", scope)
        try:
            self._take_in_window(scope)
        except PastLimit:
            slot.give_back()
            raise
        return slot

    def count_step(self, scope: ScopeId) -> None:
        """Count a call that a step makes for a client, which goes on whatever the count: later calls wait for it."""
        allowance = self.of("calls_per_minute", scope)
        if allowance.most != UNLIMITED:
            self._window().add(allowance.account)

    def begin(self, scope: ScopeId) -> bool:
        """`scope` begins: a namespace takes a slot until `end`; whether it has not had one before.

        Raises:
            PastLimit: its principal has as many namespaces as it may.
        """
        if scope.kind != "namespace" or scope in self._namespaces:
            return False
        self._namespaces[scope] = self.take("namespaces", scope)
        return True

    def check_room(self, scope: ScopeId) -> None:
        """Check that `scope` could begin, if it has not.

        Raises:
            PastLimit: it could not.
        """
        if scope.kind == "namespace" and scope not in self._namespaces:
            self.take("namespaces", scope).give_back()

    def end(self, scope: ScopeId) -> None:
        """`scope` is over, or has not begun after all."""
        if (slot := self._namespaces.pop(scope, None)) is not None:
            slot.give_back()

    def _take_in_window(self, scope: ScopeId) -> None:
        allowance = self.of("calls_per_minute", scope)
        if allowance.most == UNLIMITED:
            return
        wait = self._window().take(allowance.account, int(allowance.most))
        if wait is not None:
            raise self._refused(allowance, whole_seconds(wait))

    def _window(self) -> "CallRate":
        if self._rate is None:
            from proxy.gateway.call_rate import CallRate  # noqa: PLC0415 - as said above

            self._rate = CallRate()
        return self._rate

    def _refused(self, allowance: Allowance, retry_after: int) -> PastLimit:
        """The refusal of one more, logged unless one like it has just been."""
        limit, account, most = allowance
        error = PastLimit(limit, int(most), allowance.setting, retry_after)
        now = self._clock()
        if now - self._logged.get((limit, account), -inf) >= LOG_INTERVAL_S:
            self._logged[limit, account] = now
            user = {} if account.principal is None else {"user": account.principal}
            log.warning("limit.reached", limit=limit, most=error.most, setting=error.setting, **user)
        return error
