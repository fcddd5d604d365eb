"""One connection to one server: requests go out and results come back as parsed JSON."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio
import anyio.abc
import structlog
from mcp import MCPError
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import INTERNAL_ERROR, UNSUPPORTED_PROTOCOL_VERSION

from proxy.core.capabilities import relayed
from proxy.core.errors import NotDelivered, ProxyError, Rejection, ServerLost, ServerSilent, Unanswered
from proxy.core.exchange import UNCLEAR, Verdict
from proxy.core.inventory import MAX_LIST_ENTRIES, SKILLS_LIMIT, Json, Offer, is_json
from proxy.core.log_levels import LEVELS, least_severe
from proxy.core.protocol import Era
from proxy.core.scope import ScopeId
from proxy.core.server import HttpServer, Server, StdioServer
from proxy.ports import LISTS, Caller, Clients, ListKind
from proxy.upstream.delivery import delivery
from proxy.upstream.eras import Eras
from proxy.upstream.failure import Failure
from proxy.upstream.greeting import (
    HANDSHAKE_FIRST,
    PROBE_FIRST,
    Greeting,
    Order,
    closed,
    ends,
    error_of,
    greet,
    no_response,
)
from proxy.upstream.http_sse import PostFailed
from proxy.upstream.lists import Lists
from proxy.upstream.network import proxy_variable
from proxy.upstream.relay import Relay
from proxy.upstream.spawn import Spawned
from proxy.upstream.stamp import Stamp, progress_token
from proxy.upstream.streamable_http import ExchangeFailed
from proxy.upstream.transport import (
    CannotStart,
    Transport,
    failure_of,
    is_unreachable,
    one_line,
    root_errors,
    transport,
)
from proxy.upstream.watching import ListenStream, Subscriptions
from proxy.wire.turns import Turns

log = structlog.stdlib.get_logger("proxy.upstream")

LEVEL_WAIT: Final = 2.0
"""Seconds that a request waits for the server to take the log level that it wants."""
_AT_ONCE: Final = nullcontext()
NO_TOOLS_DECLARED: Final = "it declares no tools, so it is not asked for any"
NO_TOOLS_LISTED: Final = "it declares neither tools nor resources nor prompts, and refuses to list tools: it has none"


class Connection:
    """A `Link` to a server that has been greeted; `over` is set when it is lost."""

    def __init__(self, server: Server, greeting: Greeting, way: Transport, relay: Relay, changes: "Changes") -> None:
        self._server = server
        self._greeting = greeting
        self._way = way
        self._relay = relay
        over_http = isinstance(server, HttpServer)
        self._stamp = Stamp(greeting.version, over_http, server.pass_headers if over_http else ())
        self._limiter = anyio.CapacityLimiter(server.max_concurrency) if server.max_concurrency is not None else None
        self._lists = Lists(server.key, self.request)
        self._level: str | None = None
        self._idle: anyio.Event | None = None
        self._watch: Subscriptions | ListenStream
        if self._stamp.handshake:
            resources = greeting.capabilities.get("resources")
            self._watch = Subscriptions(self.request, offered=is_json(resources) and bool(resources.get("subscribe")))
        else:
            self._watch = ListenStream(self._listen, greeting.capabilities, changes.all)
            relay.on_acknowledged = self._watch.acknowledged
        self.changes = changes
        self.over = way.over
        way.on_late_answer(relay.answered_late)
        undeclared = bool(greeting.declared) and "tools" not in greeting.declared
        self.notes: tuple[str, ...] = (NO_TOOLS_DECLARED,) if undeclared else ()
        """What is worth knowing of the server, a clause each."""

    @property
    def era(self) -> Era:
        """The era that it speaks."""
        return self._greeting.era

    @property
    def asks(self) -> bool:
        """Whether the server may put questions to clients in requests of its own."""
        return self._stamp.handshake and self._relay.owner is not None

    def start(self, tasks: anyio.abc.TaskGroup) -> None:
        """Relay what the server sends of its own accord from now on, in tasks of this group."""
        self._relay.start(tasks)
        if isinstance(self._watch, ListenStream):
            self._watch.start(tasks)

    @asynccontextmanager
    async def _turn(self, method: str, level: str | None) -> AsyncGenerator[None]:
        async with self._limiter if self._limiter is not None and method == "tools/call" else nullcontext():
            if level is not None:
                with anyio.move_on_after(LEVEL_WAIT):
                    await self._at_least(level)
            yield

    def turn(self, method: str, caller: Caller) -> AbstractAsyncContextManager[object]:
        """Wait until `caller`'s request can be sent: for its turn at the server (`max_concurrency`), its log level."""
        level = caller.channel.log_level if self._logs and caller.era == "modern" else None
        return _AT_ONCE if self._limiter is None and level is None else self._turn(method, level)

    async def watch(self, uris: Collection[str]) -> Mapping[str, Rejection]:
        """Hear of updates of exactly these resources from now on; the refusals of those that the server refuses.

        Raises:
            NotDelivered, ServerLost, ServerSilent: as `request`.
        """
        return await self._watch.set(uris)

    async def set_level(self, levels: frozenset[str]) -> None:
        """Have the server send log messages as severe as the least severe of these."""
        level = least_severe(levels)
        if level is None or level == self._level or not self._logs:
            return
        self._level = level
        try:
            await self.request("logging/setLevel", {"level": level})
        except ProxyError as error:
            log.debug("server.level_refused", server=self._server.key, reason=str(error))

    def forget(self, scope: ScopeId) -> None:
        """A scope is over whose requests this connection has carried."""
        self._relay.forget(scope)

    async def tell(self, method: str) -> None:
        """Send a notification without parameters."""
        await self._way.dispatcher.notify(method, None)

    async def offer(self, before: Offer | None = None, kinds: Collection[ListKind] = LISTS) -> Offer:
        """Everything the server offers, all pages of each list; of resources, skills and prompts what can be read.

        What a server has not declared it is not asked for: some end, or never answer. One that declares no list at all
        is asked for its tools, since many that are simple say nothing of what they have.

        `kinds`: the lists to read, skills along with resources, which their files are; the others are as `before`, as
        are those but tools that cannot be read now.

        Raises:
            CannotStart: its list of tools could not be read.
        """
        declared = self._greeting.declared
        offer = before or Offer(instructions=self._greeting.instructions, extension=self._greeting.skills)
        if "tools" in kinds and ("tools" in declared or not declared):
            tools = await self._tools(offer, needed=bool(declared))
            offer = replace(offer, tools=self._sound(Offer.of(tools=tools).tools))
            self._stamp.learn(offer.tools)
        if "resources" in kinds and "resources" in declared:
            resources = await self._besides("resources/list", "resources", offer.resources)
            templates = await self._besides("resources/templates/list", "resourceTemplates", offer.templates)
            read = Offer.of(resources=resources, templates=templates)
            offer = replace(offer, resources=read.resources, templates=read.templates)
        if "resources" in kinds and offer.extension is not None:
            skills = await self._besides("skills/list", "skills", offer.skills, most=SKILLS_LIMIT)
            offer = replace(offer, skills=Offer.of(skills=skills, extension=offer.extension).skills)
        if "prompts" in kinds and "prompts" in declared:
            prompts = await self._besides("prompts/list", "prompts", offer.prompts)
            offer = replace(offer, prompts=Offer.of(prompts=prompts).prompts)
        return replace(offer, left_out=self._lists.left_out, faults=self._lists.faults)

    async def _tools(self, before: Offer, *, needed: bool) -> Iterable[object]:
        """The list of tools; `needed`: that it cannot be read is a failure, else it stays as it was.

        Raises:
            CannotStart: it could not be read.
        """
        try:
            return await self._lists.read("tools/list", "tools")
        except Rejection as error:
            if needed:
                raise CannotStart(_unlisted(error)) from None
            if NO_TOOLS_LISTED not in self.notes:
                self.notes = (*self.notes, NO_TOOLS_LISTED)
            return before.tools
        except ProxyError as error:
            raise CannotStart(_unlisted(error)) from None

    async def how_it_ended(self) -> Failure:
        """How a lost connection ended."""
        return await self._way.how_it_ended()

    @property
    def in_work(self) -> bool:
        """Whether some request is in work."""
        return self._relay.in_work

    async def drained(self, within: float) -> None:
        """Wait until no request is in work, at most `within` seconds."""
        with anyio.move_on_after(within):
            while self._relay.in_work:
                if self._idle is None or self._idle.is_set():
                    self._idle = anyio.Event()
                await self._idle.wait()

    @property
    def _logs(self) -> bool:
        return self._stamp.handshake and self._greeting.capabilities.get("logging") is not None

    async def request(self, method: str, params: Json, caller: Caller | None = None) -> dict[str, Any]:
        """Send one request, which `caller` has caused, and return its result as it came; see `Link`."""
        key, limit = self._server.key, self._server.timeout
        if self._way.deaf:
            self.over.set()
        if self.over.is_set():
            raise NotDelivered(key, "the connection is closed")
        call = self._relay.begin(caller, progress_token(params))
        stamped, options = self._stamp.request(method, params, caller, None if call.token is None else call.number)
        options["request_id"] = call.number
        noted = delivery.set(call)
        result: dict[str, Any] | None = None
        try:
            result = await self._way.dispatcher.send_raw_request(method, stamped, options)
            if call.sending is not None:
                call.pause()
                await self._relay.sent(call)
        except asyncio.CancelledError:
            if result is None:
                self._relay.abandon(call)
            if call.absorbed():
                raise ServerSilent(key, limit) from None
            raise
        except MCPError as error:
            call.pause()  # it is over, and what it means takes a moment to tell
            meaning = await self._meaning(error)
            if isinstance(meaning, Rejection):
                self._relay.refused(call, meaning)
            raise meaning from None
        finally:
            delivery.reset(noted)
            self._relay.end(call)
            if self._idle is not None and not self._relay.in_work:
                self._idle.set()
        return result

    async def _at_least(self, level: str) -> None:
        """Have the server send log messages as severe as `level`, which one request wants."""
        if self._level is None or LEVELS.index(level) < LEVELS.index(self._level):
            await self.set_level(frozenset({level}))

    async def _listen(self, stream: str, params: Json) -> dict[str, Any]:
        """Run one `subscriptions/listen` until its end, which may be far away."""
        stamped, options = self._stamp.request("subscriptions/listen", params, None, None)
        try:
            return await self._way.dispatcher.send_raw_request(
                "subscriptions/listen", stamped, {**options, "request_id": stream}
            )
        except MCPError as error:
            raise Rejection(error.code, error.message, error.data) from None

    async def _meaning(self, error: MCPError) -> Exception:
        """What an error that the dispatcher raised means for the request."""
        key = self._server.key
        if isinstance(error.data, PostFailed):
            failed = error.data
            if failed.verdict.ends_connection:
                self.over.set()
            return self._without_result(failed.verdict, failed.reason)
        if isinstance(error, ExchangeFailed):
            return self._of_exchange(error)
        if closed(error) and await ends(self.over):
            return ServerLost(key, (await self._way.how_it_ended()).public)
        if (why := no_response(error)) is not None:
            return self._without_result(UNCLEAR, why)
        return Rejection(error.code, error.message, error.data)

    def _of_exchange(self, error: ExchangeFailed) -> Exception:
        """What an exchange over Streamable HTTP that has no result means for its request."""
        outcome = error.outcome
        if error.verdict.outcome == "error":
            return Rejection(error.code, error.message, error.data)
        log.info("server.no_response", server=self._server.key, reason=outcome.reason, detail=one_line(outcome.text))
        return self._without_result(error.verdict, outcome.reason, error.code, outcome.ending.status or None)

    def _without_result(
        self, verdict: Verdict, why: str, code: int = INTERNAL_ERROR, status: int | None = None
    ) -> Exception:
        """What a verdict says of a request that has neither a result nor an error of the server's own."""
        key = self._server.key
        if verdict.outcome == "not delivered":
            return NotDelivered(key, why)
        if verdict.outcome == "lost":
            return ServerLost(key, why)
        told = f"Server {key} gave no response: {why}"
        return Unanswered(code, told, server=key, reason=why, ran=verdict.may_have_run, status=status)

    def _sound(self, tools: tuple[Json, ...]) -> tuple[Json, ...]:
        """The tools without those that HTTP clients must not use (2026-07-28, basic/transports, `x-mcp-header`)."""
        if self._stamp.handshake or not isinstance(self._server, HttpServer):
            return tools
        sound: list[Json] = []
        for tool in tools:
            if (problem := find_invalid_x_mcp_header(tool.get("inputSchema"))) is None:
                sound.append(tool)
            else:
                log.warning("server.tool_left_out", server=self._server.key, tool=tool["name"], reason=problem)
        return tuple(sound)

    async def _besides(
        self, method: str, key: str, before: Iterable[object], *, most: int = MAX_LIST_ENTRIES
    ) -> Iterable[object]:
        """A list whose failure costs itself alone: it stays as it was."""
        try:
            return await self._lists.read(method, key, most)
        except ProxyError as error:
            log.warning("server.list_failed", server=self._server.key, method=method, reason=str(error))
            return before


class Changes:
    """Which lists of a server have changed since they were last read."""

    def __init__(self) -> None:
        self._stale: set[ListKind] = set()
        self._news = anyio.Event()

    def note(self, kind: ListKind) -> None:
        """A list has changed."""
        self._stale.add(kind)
        self._news.set()

    def has(self, kind: ListKind) -> bool:
        """Whether it is known that a list has changed."""
        return kind in self._stale

    def all(self) -> None:
        """Any list may have changed."""
        for kind in LISTS:
            self.note(kind)

    async def wait(self) -> None:
        """Wait until some list has changed."""
        await self._news.wait()

    def take(self) -> frozenset[ListKind]:
        """The lists that have changed, which count as read from now on."""
        taken, self._stale = frozenset(self._stale), set()
        self._news = anyio.Event()
        return taken


class _OtherOrder(CannotStart):
    """A greeting that came to nothing, and may come to something in another order on a connection of its own."""

    def __init__(self, failure: Failure, how: str) -> None:
        super().__init__(failure)
        self.how = how
        """How the server took it, as a clause."""


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """What connections to a server need of the proxy, the same for each."""

    mask: Callable[[str], str]
    """Takes secrets out of what the server says on stderr."""

    start: Callable[[StdioServer], Spawned]
    """Gives a process of a server."""

    owner: ScopeId | None
    """The scope that the connection belongs to, whose clients the server may ask."""

    clients: Clients
    input_wait: float
    """Seconds that a question may wait for its answer."""

    on_update: Callable[[Json], None]
    """Called with each `notifications/resources/updated`."""

    turns: Turns
    """Shared by all connections, for what servers send unasked."""

    eras: Eras
    """Shared by all connections."""

    waiting: Callable[[], AbstractContextManager[object]] = nullcontext
    """Counts a question that waits for the owner's clients inside, or raises PastLimit."""


@asynccontextmanager
async def connect(server: Server, options: ConnectionOptions) -> AsyncGenerator[Connection]:
    """A greeted connection to `server`, open inside the block, which has to stay in one task.

    Where the server ends, or refuses, because of the era that it was asked for first, it is started once more.

    Raises:
        CannotStart: with the reason.
    """
    client = None if options.owner is None else options.clients.era(options.owner)
    first, *others = options.eras.orders(server, client)
    async with AsyncExitStack() as open_connection:
        try:
            connection = await open_connection.enter_async_context(_greeted(server, options, first))
        except anyio.get_cancelled_exc_class():
            options.eras.unanswered(server, first)
            raise
        except _OtherOrder as refused:
            if not others:
                raise
            log.info("server.other_era", server=server.key, reason=refused.how)
            connection = await open_connection.enter_async_context(_greeted(server, options, others[0]))
            speaks = "the handshake" if connection.era == "handshake" else "2026-07-28"
            told = f"it speaks {speaks} only: {refused.how}; `era: {connection.era}` saves the second start"
            connection.notes = (told, *connection.notes)
            options.eras.met(server, others[0], connection.era, at_first=False)
        else:
            options.eras.met(server, first, connection.era, at_first=True)
        yield connection


@asynccontextmanager
async def _greeted(server: Server, options: ConnectionOptions, order: Order) -> AsyncGenerator[Connection]:
    """A connection that was greeted in one order.

    Raises:
        _OtherOrder: another order may do.
        CannotStart: none will.
    """
    greeting: Greeting | None = None
    asked = False
    owner, clients = options.owner, options.clients
    changes = Changes()
    relay = Relay(
        server.key,
        owner,
        clients,
        limit=server.timeout,
        input_wait=options.input_wait,
        on_change=changes.note,
        on_update=options.on_update,
        waiting=options.waiting,
        has_changed=changes.has,
    )
    try:
        opened = transport(server, options.mask, options.start, turns=options.turns, unwanted=relay.unwanted)
        # What comes over HTTP is handled in the context of the request that it came for, which only tasks have.
        at_once = relay.notified if isinstance(server, StdioServer) else None
        async with opened as way, anyio.create_task_group() as tasks:
            await tasks.start(way.dispatcher.run, relay.on_request, relay.on_notify, at_once)
            may_ask = relayed(clients.capabilities(owner)) if owner is not None else {}
            asked = True
            try:
                greeting = await greet(way.dispatcher, order, may_ask, way.over)
            except MCPError as error:
                raise await _not_greeted(error, way, order) from None
            connection = Connection(server, greeting, way, relay, changes)
            connection.start(tasks)
            yield connection
            tasks.cancel_scope.cancel()
    except Exception as error:  # boundary: whatever a transport raises ends this connection, and only it
        if greeting is not None:
            raise
        failed = next((leaf for leaf in root_errors(error) if isinstance(leaf, CannotStart)), None)
        if failed is None and asked and not is_unreachable(error):
            failed = _OtherOrder(failure_of(error, server), f"it breaks the connection off on {order[0]}")
        failed = failed or CannotStart(failure_of(error, server))
        if isinstance(server, HttpServer) and (name := proxy_variable(server.url)) is not None:
            why = failed.failure
            failed.failure = replace(why, reason=f"{why.reason} (by way of the HTTP proxy that {name} names)")
        raise failed from None


async def _not_greeted(error: MCPError, way: Transport, order: Order) -> CannotStart:
    """What a greeting that failed leads to.

    Another order may do where the server has ended or closed the connection, unless it has read nothing, and where it
    refuses the handshake, or the probe after it: some take no second opening on one connection. What has an HTTP
    status of an error was refused as such, whatever came before it.
    """
    failure = await way.why(error)
    if isinstance(error, ExchangeFailed) and (error.verdict.outcome != "error" or not error.outcome.ending.is_success):
        return CannotStart(failure)  # each exchange is one of its own, so what comes next in the order has been tried
    if closed(error):
        if way.child is None:
            return _OtherOrder(failure, f"it breaks the connection off on {order[0]}")
        return CannotStart(failure) if way.child.unheard else _OtherOrder(failure, f"it ends on {order[0]}")
    if order == PROBE_FIRST and error.code != UNSUPPORTED_PROTOCOL_VERSION:
        return _OtherOrder(failure, "it refuses initialize after server/discover")
    if order == HANDSHAKE_FIRST:  # the refused handshake may have settled the connection, as with the SDK's servers
        return _OtherOrder(failure, "it refuses initialize")
    return CannotStart(failure)


def _unlisted(error: ProxyError) -> Failure:
    """Why the tools of a server could not be read: its own text is the detail."""
    what = "its list of tools could not be read"
    if isinstance(error, Unanswered) or not isinstance(error, Rejection):
        return Failure(f"{what}: {error}")
    return Failure(f"{what}: it answered with {error_of(error.code)}", f"it said: {one_line(error.message)}")
