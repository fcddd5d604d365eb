"""Failures the proxy words itself, as data; `wording` turns them into text for people and models."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from proxy.core.limits import LimitName
from proxy.core.scope import ScopeKind

_INVALID_PARAMS: Final = -32602
_CURSOR_CHARACTERS_SHOWN: Final = 100


class ProxyError(Exception):
    """Something the proxy has to tell somebody, in words of its own."""


@dataclass(eq=False)
class ServerUnavailable(ProxyError):
    """No connection to a server could be had: nothing was sent."""

    server: str
    reason: str

    def __str__(self) -> str:
        return f"server {self.server} is not available: {self.reason}"


@dataclass(eq=False)
class ServerLost(ProxyError):
    """The connection broke while a request was under way: it may or may not have run."""

    server: str
    reason: str

    def __str__(self) -> str:
        return f"server {self.server} was lost during the request: {self.reason}"


@dataclass(eq=False)
class NotDelivered(ProxyError):
    """The connection turned out to be dead before the server ran the request: it is safe to send again."""

    server: str
    reason: str

    def __str__(self) -> str:
        return f"server {self.server} did not get the request: {self.reason}"


@dataclass(eq=False)
class ServerSilent(ProxyError):
    """Neither a result nor progress came within the server's `timeout` (seconds)."""

    server: str
    limit: float

    def __str__(self) -> str:
        return f"server {self.server} sent neither a result nor progress for {self.limit:g} s"


@dataclass(eq=False)
class Unknown(ProxyError):
    """A tool, prompt or resource that does not exist for the caller; the text is the one wording for it.

    `uri`: that of the resource, where it is one.
    """

    text: str
    uri: str | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(eq=False)
class Unreadable(ProxyError):
    """A file of a skill cannot be read."""

    skill: str
    path: str
    reason: str

    def __str__(self) -> str:
        return f"file {self.path} of skill {self.skill} cannot be read: {self.reason}"


@dataclass(eq=False)
class AlreadySet(ProxyError):
    """A client gives arguments that skills fill in for it: by argument, the skill; the call was not sent."""

    arguments: Mapping[str, str]

    def __str__(self) -> str:
        return f"skills set these arguments: {', '.join(self.arguments)}"


@dataclass(eq=False)
class Unfilled(ProxyError):
    """An argument that a skill fills in for clients cannot be worked out; the call was not sent."""

    skill: str
    argument: str
    reason: str

    def __str__(self) -> str:
        return f"skill {self.skill} cannot fill in argument {self.argument}: {self.reason}"


@dataclass(eq=False)
class Rejection(ProxyError):
    """A server's JSON-RPC error, passed on as it came."""

    code: int
    message: str
    data: Any = None

    def __str__(self) -> str:
        return self.message


def unknown_cursor(cursor: object) -> Rejection:
    """The refusal of a cursor that was never given (2025-11-25, server/utilities/pagination)."""
    shown = repr(cursor) if len(repr(cursor)) <= _CURSOR_CHARACTERS_SHOWN else "given"
    return Rejection(
        _INVALID_PARAMS, f"The cursor {shown} is unknown: ask for the list from its beginning, without a cursor"
    )


@dataclass(eq=False, kw_only=True)
class Unanswered(Rejection):
    """What a server answered holds no response: an HTTP error, a redirect, something that is no JSON-RPC.

    `ran`: whether the request may have run.
    """

    server: str
    reason: str
    ran: bool
    status: int | None = None
    """The HTTP status, where it was one by which the request failed."""


_SERVED: Final[Mapping[ScopeKind, str]] = {"session": "sessions", "namespace": "namespaces", "principal": "users"}


@dataclass(eq=False)
class TooManyScopes(ProxyError):
    """The bound on live scopes of this kind is reached; live ones are never evicted for a new one."""

    kind: ScopeKind

    def __str__(self) -> str:
        what = _SERVED.get(self.kind, "clients")
        setting = f"proxy.max_scopes.{self.kind}"
        return f"the proxy serves as many {what} as it is configured for; try again later ({setting})"


LIMIT_REACHED: Final = -32010
"""The JSON-RPC code of what is past a limit, in the range for implementations (2026-07-28, basic)."""

_LIMITED: Final[Mapping[LimitName, tuple[str, str]]] = {
    "sessions": ("session", "may be open at a time"),
    "namespaces": ("namespace", "may be in use at a time"),
    "processes": ("process", "may run at a time"),
    "calls_in_flight": ("call", "may be in work at a time"),
    "calls_per_minute": ("call", "may be made in a minute"),
    "held_questions": ("question", "may wait for the user at a time"),
}


@dataclass(eq=False)
class PastLimit(ProxyError):
    """It would be one more than its principal may have: it was not done, and nothing was sent."""

    limit: LimitName
    most: int
    setting: str
    """Where the limit stands in the configuration."""

    retry_after: int
    """Whole seconds after which there may be room."""

    def __str__(self) -> str:
        noun, what = _LIMITED[self.limit]
        wait = f"try again in {_counted(self.retry_after, 'second')}"
        return f"At most {_counted(self.most, noun)} {what} ({self.setting}): {wait}"

    def as_rejection(self) -> Rejection:
        """The same as a JSON-RPC error, whose data has the seconds as `retryAfter`."""
        data = {"limit": self.limit, "value": self.most, "setting": self.setting, "retryAfter": self.retry_after}
        return Rejection(LIMIT_REACHED, str(self), data)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def too_large(limit: int) -> str:
    """Why a server's message was not read: it has more than `limit` bytes."""
    return f"it sent a message larger than {limit} bytes (proxy.max_message_size)"


def too_many_values(limit: int) -> str:
    """Why a server's message was not read: parsing it would hold everybody up."""
    return f"it sent a message with more than {limit:,} values"
