"""What the use cases need of the world, as protocols; the rooms around them implement these."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from proxy.core.byte_budget import ByteBudget
from proxy.core.catalogue import Skill
from proxy.core.definitions import Change, Grant, Pins
from proxy.core.errors import Rejection
from proxy.core.inventory import Inventory, Json, Offer
from proxy.core.protocol import Era
from proxy.core.run import Run
from proxy.core.scope import ScopeId, ScopeState, client_key
from proxy.core.server import Server

ServerState: TypeAlias = Literal["idle", "starting", "ready", "failed", "stopped"]
ListKind: TypeAlias = Literal["tools", "resources", "prompts"]
"""The lists that can change; each has a `notifications/{kind}/list_changed` of its own."""
LISTS: Final[tuple[ListKind, ...]] = ("tools", "resources", "prompts")


@dataclass(frozen=True)
class Status:
    """Where a server stands."""

    state: ServerState
    reason: str = ""
    """One masked line when it has failed, in the proxy's own words: what models, clients and /health are told."""
    next_try: float | None = None
    """The seconds until it is tried again, None where nobody waits for that."""
    whole_reason: str = ""
    """The same with what the server itself wrote, if that is more: for the user's own terminal alone."""
    notes: tuple[str, ...] = ()
    """What is worth knowing of it while it is ready, a clause each."""


class Channel(Protocol):
    """One request in work: what its client can do, and how to reach it before the result."""

    @property
    def capabilities(self) -> Json:
        """What the client declared that it can be asked, as it declared it."""
        ...

    @property
    def log_level(self) -> str | None:
        """The least severe log messages that the client wants for this request; None when it has not said."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers of the request by lower-case name; none on stdio."""
        ...

    def check(self, schema: object, arguments: Json) -> None:
        """Hold what the request's headers say of the arguments of a tool with this input schema against them.

        Raises:
            Rejection: they differ.
        """
        ...

    async def list_changed(self, kind: ListKind) -> None:
        """Send the notice on this request's own stream; does nothing where the era has none there."""
        ...

    async def progress(self, params: Json) -> None:
        """Send a progress notification with the client's own token; does nothing when it gave none."""
        ...

    async def log(self, params: Json) -> None:
        """Send a log message, if it is severe enough for the client."""
        ...

    async def poll(self) -> None:
        """The server wants to be polled: end this request's stream, where its client can resume it."""
        ...

    async def ask(self, method: str, params: Json) -> dict[str, Any]:
        """Put a server's question to the client and return its answer as it came.

        Raises:
            Rejection: the client cannot answer, or answered with a JSON-RPC error.
        """
        ...


class Caller(NamedTuple):
    """Who makes a request: its scope, and what the transport knows of the client.

    `connection`: the handshake-era connection it came on, None in the modern era. `client` and `version`: what the
    client calls itself and its version, empty when it does not say.
    """

    scope: ScopeId
    era: Era
    connection: str | None
    client: str
    channel: Channel
    version: str = ""

    @property
    def key(self) -> str:
        """What tells it apart from other clients of its scope."""
        return client_key(self.connection, self.client, self.version)


class Link(Protocol):
    """A live connection to a server."""

    @property
    def asks(self) -> bool:
        """Whether the server may put questions to clients in requests of its own."""
        ...

    def turn(self, method: str, caller: Caller) -> AbstractAsyncContextManager[object]:
        """Wait until a request of `caller` can be sent without waiting for anything more, and hold its turn inside."""
        ...

    async def request(self, method: str, params: Json, caller: Caller | None = None) -> dict[str, Any]:
        """Send one request, which `caller` has caused, and return its result as it came.

        Raises:
            Rejection: the server answered with a JSON-RPC error; or, as Unanswered, with something that is no response.
            NotDelivered: the connection turned out to be dead; the server did not run it.
            ServerLost: the connection broke; it may have run.
            ServerSilent: the server's `timeout` passed without result or progress; a cancel was sent.
        """
        ...


class Upstreams(Protocol):
    """The servers behind the proxy; those with `isolation: scope` once for each scope."""

    def inventory(self, scope: ScopeId) -> Inventory:
        """What they offer to `scope`; another object after every change."""
        ...

    async def changed(self, since: int) -> int:
        """Wait until some inventory has changed after the change number `since`; the number of the newest."""
        ...

    def status(self, server: str, scope: ScopeId) -> Status:
        """Where `server` stands for `scope`."""
        ...

    def need(self, servers: Iterable[str], scope: ScopeId) -> None:
        """Begin to start those that are not running for `scope`, also where a new attempt is due later."""
        ...

    def hold(self, scope: ScopeId, servers: Mapping[str, Grant]) -> None:
        """`scope` needs exactly these from now on, and is granted so much of their tools; returns at once.

        Those are started, and tried again when they are lost or fail.
        """
        ...

    def withheld(self, scope: ScopeId) -> Sequence[Change]:
        """The tools that are not offered to `scope` until the user approves their changed definitions."""
        ...

    def untold_changes(self, scope: ScopeId) -> Sequence[Change]:
        """What has changed of the definitions of tools while `scope` was granted them, each change once."""
        ...

    async def settled(self, servers: Iterable[str], scope: ScopeId, within: float) -> None:
        """Wait for those that are starting now; for each at most until `within` seconds after its start began."""
        ...

    async def connected(self, server: str, scope: ScopeId) -> Link:
        """A live connection, made if there is none; callers share one attempt.

        Raises:
            ServerUnavailable: it could not be had.
        """
        ...

    def set_levels(self) -> None:
        """Have every server send log messages as its clients want them by now; waits for none."""
        ...

    def roots_changed(self, scope: ScopeId) -> None:
        """Tell the servers that may ask for this scope's roots that they have changed; waits for none."""
        ...

    def follow_client(self, scope: ScopeId) -> None:
        """Have the connections of `scope` alone speak its client's era, which has turned out to be another one."""
        ...

    async def watch(
        self,
        uris: Mapping[tuple[str, ScopeId], Collection[str]],
        wait_for: tuple[str, ScopeId] | None = None,
        within: float = 0.0,
    ) -> Mapping[str, Rejection]:
        """Be told of updates of exactly these resources, by server and one of the scopes that it serves.

        Waits for `wait_for`, and returns what that server refuses; for the others at most `within` seconds.
        """
        ...


class KeptOffers(Protocol):
    """What servers that all scopes share offered when the proxy ran last.

    Both methods may take as long as a file does.
    """

    def read(self, server: Server) -> Offer | None:
        """What `server` offered, if it was configured as it is now."""
        ...

    def keep(self, server: Server, offer: Offer) -> None:
        """Remember what `server` offers; that it cannot be done is no error."""
        ...


class KeptPins(Protocol):
    """The pins of definitions in files that other programs change, too; all methods may take as long as a file does.

    Each is of a server: of all scopes where that is None, else as that one has it to itself.
    """

    def keeps(self, scope: ScopeId | None) -> bool:
        """Whether the pins of `scope` are kept; None for those of all."""
        ...

    def read(self, server: str, scope: ScopeId | None) -> Pins:
        """The pins; empty where there is no file.

        Raises:
            PinsLost: they cannot be read.
        """
        ...

    def stamp(self, server: str, scope: ScopeId | None) -> tuple[int, int] | None:
        """What differs after every change of the file; None where there is none."""
        ...

    def update(self, server: str, scope: ScopeId | None, change: Callable[[Pins | None], Pins]) -> Pins | None:
        """Write what `change` makes of the pins in the file, of None where they cannot be read; what was written.

        None where they cannot be written, which is not an error.
        """
        ...

    def remove(self, server: str, scope: ScopeId) -> None:
        """Forget the pins of a scope that is over."""
        ...


class Remembered(NamedTuple):
    """What is remembered of servers from one run to the next."""

    offers: KeptOffers
    pins: KeptPins | None = None


class SkillText(NamedTuple):
    """What a skill is found by, beside its guide."""

    id: str
    name: str
    desc: str
    tags: tuple[str, ...]


class SkillSearch(Protocol):
    """Ranked search over the skills that somebody may use."""

    async def find(self, skills: Sequence[SkillText], query: str, guide_of: Callable[[str], str]) -> list[str]:
        """The ids of those that match `query`, best first; one whose id or name it is comes before all.

        `guide_of`: gives the guide of a skill by id, may take as long as a file does, and may raise OSError. The same
        `skills` object is only read once.
        """
        ...


class Manifest(NamedTuple):
    """A skill as the skills extension tells of it: its SKILL.md's front matter, and all files with their digests.

    `digests`: by path, the document as `SKILL.md`, the size in bytes and the SHA-256 in hexadecimal.
    """

    front_matter: Json
    digests: Mapping[str, tuple[int, str]]


class SkillFiles(Protocol):
    """The files of skills; a skill that the configuration alone has is given a SKILL.md."""

    def guide(self, skill: Skill) -> str:
        """The guide; may take as long as a file does.

        Raises:
            OSError: it cannot be read any more.
        """
        ...

    async def read(self, skill: Skill, path: str) -> bytes:
        """The content of the file at `path`, one of the skill's; of `SKILL.md`, the document as it is served.

        Raises:
            Unreadable: it is none of the skill's files, or cannot be read any more.
        """
        ...

    async def manifest(self, skill: Skill) -> Manifest:
        """What the skills extension tells of it, as its files are now.

        Raises:
            Unreadable: one of them cannot be read.
        """
        ...


class ScopeStore(Protocol):
    """Where scope state is kept: compare-and-swap on frozen records (design rule 13)."""

    async def get(self, scope: ScopeId) -> ScopeState | None:
        """The state of `scope`, or None when it has not begun."""
        ...

    async def remembered(self, scope: ScopeId) -> ScopeState | None:
        """What an earlier run of the proxy knew of `scope`, which has not begun in this one; None for nothing.

        Its skills may not exist any more.
        """
        ...

    async def swap(self, scope: ScopeId, old: ScopeState | None, new: ScopeState) -> bool:
        """Replace `old`, the very object that `get` returned, by `new`; False when it is no longer the current one.

        With None as `old`, `scope` begins with `new`, which is not remembered until a change.

        Raises:
            TooManyScopes: `scope` would be a new one beyond the bound of its kind.
        """
        ...

    async def remove(self, scope: ScopeId) -> None:
        """Forget `scope`, also for later runs."""
        ...

    async def scopes(self) -> Collection[ScopeId]:
        """Every scope that has state."""
        ...

    def keeps(self, scope: ScopeId) -> bool:
        """Whether the state of `scope` outlives the program."""
        ...


class RunRecords(Protocol):
    """Where the records of runs are kept."""

    def keep(self, scope: ScopeId, run: Run) -> None:
        """Keep the record of a run of `scope`, in place of an earlier one with its id; waits for nothing.

        That it cannot be kept is not an error.
        """
        ...

    def of(self, scope: ScopeId, skill: str) -> Sequence[Run]:
        """The runs of a skill that are known of `scope`, those that began last first."""
        ...


class Notifier(Protocol):
    """Sends the clients of a scope what no request of theirs has caused; waits for none of them."""

    def list_changed(
        self, scope: ScopeId, kind: ListKind, era: Era, *, but: str | None = None, only: str | None = None
    ) -> None:
        """Tell every client of `scope` of that era, except the connection `but`, or `only` one."""
        ...

    def hears_of_tools(self, caller: Caller) -> bool:
        """Whether `caller` is told of changes of its list of tools: in the modern era, by a stream that it opened."""
        ...

    def updated(self, subscriber: "Subscriber", params: Json) -> None:
        """Tell one subscriber that a resource was updated."""
        ...


@dataclass(frozen=True)
class Subscriber:
    """Who is told of a resource's updates: a handshake-era connection, or a listen stream, of a scope."""

    scope: ScopeId
    era: Era
    name: str


class Clients(Protocol):
    """The clients of scopes, as servers need them beyond the requests in work."""

    @property
    def budget(self) -> ByteBudget:
        """Of what waits for them."""
        ...

    def capabilities(self, scope: ScopeId) -> Json:
        """What the newest client of `scope` declared that it can be asked."""
        ...

    def era(self, scope: ScopeId) -> Era | None:
        """The era that the newest client of `scope` speaks; None where none has come yet."""
        ...

    def levels(self, scope: ScopeId | None) -> frozenset[str]:
        """The log levels that clients have set: those of `scope`, or all."""
        ...

    def log(self, scope: ScopeId, params: Json) -> None:
        """Send a log message that no request caused to the clients of `scope` that want it; waits for none."""
        ...

    def tell(self, scope: ScopeId, method: str, params: Json) -> None:
        """Send a notification to every handshake-era client of `scope`; waits for none."""
        ...

    async def ask(self, scope: ScopeId, method: str, params: Json) -> dict[str, Any]:
        """Put a question that no request caused to a client of `scope` that can answer it.

        Raises:
            Rejection: none can, or it answered with a JSON-RPC error.
        """
        ...


Clock: TypeAlias = Callable[[], float]
"""Monotonic seconds."""
