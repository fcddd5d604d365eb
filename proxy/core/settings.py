"""The settings of the `proxy:` block that the rest of the program works by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, Literal, TypeVar

from proxy.core.definitions import Mode
from proxy.core.known_clients import REREADS
from proxy.core.limits import NOTHING_SAID, Limits
from proxy.core.scope import ScopeKind
from proxy.core.server import MAX_MESSAGE_SIZE

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PerKind(Generic[T]):
    """A value for each kind of scope but `process`, which has no bound and does not end by itself."""

    session: T
    namespace: T
    principal: T

    def of(self, kind: ScopeKind) -> T | None:
        """The value for `kind`; None for `process`."""
        match kind:
            case "session":
                return self.session
            case "namespace":
                return self.namespace
            case "principal":
                return self.principal
            case _:
                return None


def every_kind(value: T) -> PerKind[T]:
    """The same value for each kind."""
    return PerKind(session=value, namespace=value, principal=value)


MIN_TOKEN_CHARACTERS: Final = 16
"""The shortest token where other machines can reach the proxy."""
_MAX_SCOPES: Final = every_kind(10_000)
_SCOPE_IDLE: Final = every_kind(1800.0)
SESSIONS_IN_NAMESPACES: Final = 10_000
"""The bound on sessions in namespaces, any number of which can share one; namespaces have a bound of their own."""


@dataclass(frozen=True, kw_only=True)
class Publish:
    """How skills are shown beside the tool `SKILL`."""

    prompts: bool = True
    """Each skill is a prompt."""

    resources: bool = True
    """The guides of skills are listed as resources, and their other files as a template."""

    extension: bool = True
    """The methods of the extension `io.modelcontextprotocol/skills` (SEP-2640) are served."""

    @property
    def files(self) -> bool:
        """Whether files of skills can be read as resources: they are listed, or the extension names them."""
        return self.resources or self.extension


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings with their defaults; times in seconds, sizes in bytes.

    `list_wait`: how long a list waits for servers of active skills that are starting. `activation_wait`: how long an
    activation does. `call_route`: whether `SKILL_CALL` is shown; `auto` shows it to all clients but those that are
    known to read a changed list in time: by what they have shown, or by name, as one of `call_route_clients` (names
    and shell-style patterns). `listing`: whether lists follow the active skills, or never change. `publish`: how
    skills are shown beside `SKILL`. `guidance`: how to choose skills, in `SKILL`'s description, instead of our own
    words. `max_scopes`: bound on live scopes.
    `scope_idle`: how long a scope lives without a request. `state_file`: the absolute path of the SQLite file that
    remembers scopes; None where they are in memory alone. `tokens`: principal -> bearer token.
    `allowed_origins`: patterns of Origin headers that are let in beside those of loopback; empty: none at all.
    `keep_alive`: how long an event stream to a client stays silent before it gets a comment. `max_request_size`: the
    largest body of an HTTP request. `max_message_size`: the largest message of a server, or of a client on stdio.
    `input_wait`: how long a server's question to the user may stay unanswered. `keep_inventories`: whether what
    servers offer is remembered from one run to the next. `expression_env`: by name, the variables of the environment
    that expressions may read; those that are not set are left out. `reload`: what a changed configuration file changes
    by itself; the one in force counts, not that of the changed file.
    """

    list_wait: float = 3.0
    activation_wait: float = 10.0
    call_route: Literal["auto", "on", "off"] = "auto"
    call_route_clients: tuple[str, ...] = REREADS
    listing: Literal["live", "stable"] = "live"
    publish: Publish = Publish()
    guidance: str | None = None
    max_scopes: PerKind[int] = _MAX_SCOPES
    scope_idle: PerKind[float] = _SCOPE_IDLE
    state_file: str | None = None
    tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] | None = None
    keep_alive: float = 15.0
    max_request_size: int = 4 * 1024 * 1024
    max_message_size: int = MAX_MESSAGE_SIZE
    input_wait: float = 600.0
    keep_inventories: bool = True
    definitions: Mode = "warn"
    """What a changed definition of a tool leads to that a client was granted."""

    expression_env: Mapping[str, str] = field(default_factory=dict[str, str])
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    reload: Literal["skills", "full", "off"] = "skills"
    limits: Limits = NOTHING_SAID
    """What each principal may use, where its profile does not say."""
