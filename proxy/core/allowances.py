"""Whose use counts together, and how much of each kind it may be: the limits of settings and profiles in force."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from proxy.core.limits import (
    DEFAULT_CALLS_IN_FLIGHT,
    DEFAULT_CALLS_PER_MINUTE,
    DEFAULT_HELD_QUESTIONS,
    LIMIT_NAMES,
    NOTHING_SAID,
    UNLIMITED,
    LimitName,
    share,
)
from proxy.core.profiles import Policy
from proxy.core.scope import ScopeId
from proxy.core.settings import SESSIONS_IN_NAMESPACES, PerKind, Settings


class Account(NamedTuple):
    """Whose use counts together: a principal, None for everybody without a token.

    `profile`: the patterns on namespace and principal of the profile whose own limit it is; None for the limits that
    hold whatever the profile.
    """

    principal: str | None
    profile: tuple[str | None, str | None] | None = None


class Allowance(NamedTuple):
    """How much an account may use, at most: a whole number, or `UNLIMITED`."""

    limit: LimitName
    account: Account
    most: float

    @property
    def setting(self) -> str:
        """Where the limit stands in the configuration."""
        return f"proxy.limits.{self.limit}" if self.account.profile is None else f"limits.{self.limit} of the profile"


@dataclass(frozen=True)
class Allowances:
    """The limits of every scope: those of its profile, else `proxy.limits`, else the defaults.

    `bounds`: of live scopes, as they are in force.
    """

    policy: Policy
    settings: Settings
    bounds: PerKind[int]

    def of(self, limit: LimitName, scope: ScopeId) -> Allowance:
        """What the principal of `scope` may use of one kind."""
        if self._in_profiles:
            profile = self.policy.profile_of(scope)
            own = None if profile is None else getattr(profile.limits, limit)
            if profile is not None and own is not None:
                return Allowance(limit, Account(scope.user, (profile.namespace, profile.principal)), own)
        return Allowance(limit, Account(scope.user), self._for_all[limit])

    def at_server(self, scope: ScopeId, max_connections: int) -> float:
        """How many connections of its own to one server the principal of `scope` may have, of so many for all.

        Where `processes` is configured, that alone counts.
        """
        said = self.settings.limits.processes is not None or self.of("processes", scope).account.profile is not None
        return UNLIMITED if said else share(max_connections, self.principals)

    def described(self) -> list[str]:
        """The limits in lines for people, where they are configured, or there are several users."""
        lines: list[str] = []
        if self.principals > 1 or self.settings.limits != NOTHING_SAID:
            lines.append(f"limits of each user: {_listed(self._for_all)}")
        for index, profile in enumerate(self.policy.profiles):
            if profile.limits != NOTHING_SAID:
                said = {limit: most for limit in LIMIT_NAMES if (most := getattr(profile.limits, limit)) is not None}
                lines.append(f"limits of each user within profiles[{index}]: {_listed(said)}")
        return lines

    @property
    def principals(self) -> int:
        """How many principals there can be: the users with a token; without tokens everybody is one."""
        return max(1, len(self.settings.tokens))

    @cached_property
    def _for_all(self) -> Mapping[LimitName, float]:
        said, users = self.settings.limits, self.principals
        sessions = min(self.bounds.session, SESSIONS_IN_NAMESPACES)

        def or_else(value: float | None, default: float) -> float:
            return default if value is None else value

        return {
            "sessions": or_else(said.sessions, share(sessions, users)),
            "namespaces": or_else(said.namespaces, share(self.bounds.namespace, users)),
            "processes": or_else(said.processes, UNLIMITED),
            "calls_in_flight": or_else(said.calls_in_flight, DEFAULT_CALLS_IN_FLIGHT),
            "calls_per_minute": or_else(said.calls_per_minute, DEFAULT_CALLS_PER_MINUTE if users > 1 else UNLIMITED),
            "held_questions": or_else(said.held_questions, DEFAULT_HELD_QUESTIONS),
        }

    @cached_property
    def _in_profiles(self) -> bool:
        """Whether some profile has limits of its own; every call asks."""
        return any(profile.limits != NOTHING_SAID for profile in self.policy.profiles)


def _listed(limits: Mapping[Any, float]) -> str:
    return ", ".join(
        f"{limit} {'unlimited' if most == UNLIMITED else f'{most:,.0f}'}" for limit, most in limits.items()
    )
