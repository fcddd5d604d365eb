"""What a server sends of its own accord, brought to the client that it is for, and to no other."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from math import inf
from typing import Any, Final

import anyio
import structlog
from anyio.abc import TaskGroup
from mcp import MCPError
from mcp.shared.dispatcher import DispatchContext, coerce_request_id
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp.shared.transport_context import TransportContext
from mcp_types import METHOD_NOT_FOUND, REQUEST_TIMEOUT, URL_ELICITATION_REQUIRED

from proxy.core.capabilities import QUESTIONS
from proxy.core.errors import LIMIT_REACHED, PastLimit, Rejection
from proxy.core.inventory import Json, is_json, items, members_of
from proxy.core.scope import ScopeId
from proxy.core.waiting_messages import WaitingMessages
from proxy.ports import Caller, Clients, ListKind
from proxy.upstream.delivery import Delivery, delivery
from proxy.wire.ids import id_of

log = structlog.stdlib.get_logger("proxy.upstream")

ELICITATIONS: Final = 1000
"""How many elicitations by URL are remembered until the server says that they are complete, the newest ones."""
FIRST_NUMBER: Final = 1001
"""The id of the first request after the greeting, whose requests have the dispatcher's own, from 1 on."""
WAITING: Final = 1000
"""How many notifications of one request wait for its client to take them, the newest ones."""
WAITING_BYTES: Final = 4 * 1024 * 1024
"""How many bytes of them."""
CHANGES: Final[Mapping[str, ListKind]] = {
    "notifications/tools/list_changed": "tools",
    "notifications/resources/list_changed": "resources",
    "notifications/prompts/list_changed": "prompts",
}

_OF_NO_USE: Final = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"method"\s*:\s*'
    rb'"(notifications/(?:message|(?:tools|resources|prompts)/list_changed))"'
)
"""The beginning of a notification that may be of no use."""


class Call(Delivery):
    """One request in work at a server, and who has caused it.

    `number`: its id, which it asks for progress with too. `token`: the caller's progress token. `limit`: seconds
    without a sign of life after which its task is cancelled; `deadline` is when. `sending`: set when all that came for
    the caller before the result has been sent; None when nothing waits.
    """

    def __init__(self, number: int, caller: Caller | None, token: str | int | None, limit: float) -> None:
        super().__init__()
        self.number = number
        self.caller = caller
        self.token = token
        self._task = asyncio.current_task()
        self._cancelling = 0 if self._task is None else self._task.cancelling()
        self._over = False
        self.outbox: WaitingMessages | None = None
        self.sending: anyio.Event | None = None
        self._limit = limit
        self._questions = 0
        self.prolong()

    async def poll(self) -> None:
        """The server wants to be polled for the result: so does the proxy, where its client can do that."""
        if self.caller is not None:
            await self.caller.channel.poll()

    def prolong(self) -> None:
        """The limit counts anew from now, unless the client is asked something."""
        if not self._questions:
            self.deadline = anyio.current_time() + self._limit

    @contextmanager
    def asking(self) -> Generator[None]:
        """The limit does not count while the client is asked something inside."""
        self._questions += 1
        self.pause()
        try:
            yield
        finally:
            self._questions -= 1
            self.prolong()

    def pause(self) -> None:
        """The limit does not count: it is not the server that is waited for."""
        self.deadline = inf

    def end(self) -> None:
        """The time is over."""
        self.pause()
        if self._task is not None:
            self._over = True
            self._task.cancel()

    def absorbed(self) -> bool:
        """Whether a cancellation of the task was this one's alone, which then counts no more (as `asyncio.timeout`)."""
        return self._over and self._task is not None and self._task.uncancel() <= self._cancelling


class AbandonedCalls:
    """Requests that nobody waits for any more, each until the server has answered it, or for `limit` seconds."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._calls: dict[object, tuple[ScopeId, float]] = {}
        self._counts: Counter[ScopeId] = Counter()

    def add(self, number: int, scope: ScopeId, now: float) -> None:
        """A request of `scope` was given up."""
        self._calls[number] = (scope, now + self._limit)
        self._counts[scope] += 1
        self._expire(now)

    def answered(self, number: object) -> None:
        """The server has answered it, if it was given up."""
        if (call := self._calls.pop(number, None)) is not None:
            self._counts[call[0]] -= 1
            if not self._counts[call[0]]:
                del self._counts[call[0]]

    def forget(self, scope: ScopeId) -> None:
        """A scope is over."""
        if scope in self._counts:
            self._calls = {number: call for number, call in self._calls.items() if call[0] != scope}
            del self._counts[scope]

    def scopes(self, now: float) -> set[ScopeId]:
        """The scopes whose requests the server may still speak of."""
        self._expire(now)
        return set(self._counts)

    def _expire(self, now: float) -> None:
        """Forget those whose time is over: the oldest, since all have the same time."""
        while self._calls:
            number = next(iter(self._calls))
            if self._calls[number][1] > now:
                return
            self.answered(number)


class Relay:
    """The server's side of one connection.

    `owner`: the scope that the connection belongs to, whose clients the server may ask; None when several scopes share
    it. `limit`: seconds that a request may take without a sign of life. `input_wait`: seconds that a question may.
    `waiting`: counts a question that waits for the owner's clients inside, or raises PastLimit.
    `on_change` and `on_update` are told of lists that have changed, resources that were updated; `on_acknowledged` of
    listen streams that the server has taken note of. `has_changed`: whether it is known that a list has changed.
    """

    def __init__(  # noqa: PLR0913 - the connection gives it its parts by name
        self,
        key: str,
        owner: ScopeId | None,
        clients: Clients,
        *,
        limit: float,
        input_wait: float,
        on_change: Callable[[ListKind], None],
        on_update: Callable[[Json], None],
        waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
        has_changed: Callable[[ListKind], bool] = lambda _kind: False,
    ) -> None:
        self.owner = owner
        self._key = key
        self._clients = clients
        self._limit = limit
        self._input_wait = input_wait
        self._waiting = waiting
        self._on_change = on_change
        self._on_update = on_update
        self._has_changed = has_changed
        self.on_acknowledged: Callable[[object], None] = lambda _stream: None
        self._numbers = count(FIRST_NUMBER)
        self._calls: dict[int, Call] = {}
        self._abandoned = AbandonedCalls(limit)
        self._elicited: dict[str, ScopeId] = {}
        self._tasks: TaskGroup | None = None
        self._watching = False

    def start(self, tasks: TaskGroup) -> None:
        """Send from now on, in tasks of this group."""
        self._tasks = tasks

    def begin(self, caller: Caller | None, token: str | int | None) -> Call:
        """Take note of a request that goes out."""
        call = Call(next(self._numbers), caller, token, self._limit)
        self._calls[call.number] = call
        if not self._watching and self._tasks is not None:
            self._watching = True
            self._tasks.start_soon(self._watch)
        return call

    def end(self, call: Call) -> None:
        """The request is over."""
        del self._calls[call.number]

    def abandon(self, call: Call) -> None:
        """Nobody waits for the request any more, but the server may go on with it, and speak of it."""
        if call.caller is not None:
            self._abandoned.add(call.number, call.caller.scope, anyio.current_time())

    def answered_late(self, number: object) -> None:
        """The server has answered a request that nobody waits for any more: it is done with it."""
        self._abandoned.answered(number)

    def forget(self, scope: ScopeId) -> None:
        """A scope is over."""
        self._abandoned.forget(scope)
        self._elicited = {key: whose for key, whose in self._elicited.items() if whose != scope}

    @property
    def in_work(self) -> bool:
        """Whether some request is in work."""
        return bool(self._calls)

    async def sent(self, call: Call) -> None:
        """Wait until what came before the result has been sent to the caller."""
        while call.sending is not None:
            await call.sending.wait()

    def refused(self, call: Call, error: Rejection) -> None:
        """Take note of the elicitations that an error demands (2025-11-25, client/elicitation)."""
        if error.code == URL_ELICITATION_REQUIRED and is_json(error.data) and call.caller is not None:
            for wanted in items(error.data.get("elicitations")):
                self._expect(wanted, call.caller.scope)

    async def on_request(
        self, _ctx: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Answer a request of the server.

        Raises:
            MCPError: it may not ask this, or the client that it is for cannot answer.
        """
        if method == "ping":
            return {}
        if method not in QUESTIONS or self.owner is None:
            raise MCPError(METHOD_NOT_FOUND, "Method not found", method)
        asked = params or {}
        call = self._cause()
        self._expect(asked, self.owner)
        try:
            with self._waiting(), anyio.move_on_after(self._input_wait):
                if call is None or call.caller is None:
                    return await self._clients.ask(self.owner, method, asked)
                with call.asking():
                    return await call.caller.channel.ask(method, asked)
        except PastLimit as error:  # of the user's limits, a server is told no more than that one is reached
            wait = {"retryAfter": error.retry_after}
            raise MCPError(LIMIT_REACHED, "Too many questions wait for the user", wait) from None
        except Rejection as error:
            raise MCPError(error.code, error.message, error.data) from None
        raise MCPError(REQUEST_TIMEOUT, f"The client did not answer within {self._input_wait:g} s")

    async def on_notify(
        self, _ctx: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> None:
        """Pass on a notification of the server; its place among the others is taken before the first wait."""
        self.notified(method, params)

    def unwanted(self, line: bytes) -> bool:
        """Whether a message is a notification that changes nothing, or that nobody hears; told by how it begins."""
        told = _OF_NO_USE.match(line)
        if told is None:
            return False
        kind = told[1].decode()
        return self._has_changed(CHANGES[kind]) if kind in CHANGES else self.owner is None and self._cause() is None

    def notified(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Pass on a notification of the server; true, since that is all there is to do about it."""
        told = params or {}
        if method == "notifications/progress":
            token = id_of(told.get("progressToken"))
            number = None if token is None else coerce_request_id(token)
            call = self._calls.get(number) if isinstance(number, int) else None
            if call is not None:
                call.prolong()
                self._post(call, method, {**told, "progressToken": call.token})
        elif method == "notifications/message":
            self._log(told)
        elif method in CHANGES:
            self._on_change(CHANGES[method])
        elif method == "notifications/resources/updated":
            self._on_update(_without_subscription(told))
        elif method == "notifications/subscriptions/acknowledged":
            self.on_acknowledged(_meta_of(told).get(SUBSCRIPTION_ID_META_KEY))
        elif method == "notifications/elicitation/complete":
            scope = self._elicited.pop(str(told.get("elicitationId")), None)
            if scope is not None:
                self._clients.tell(scope, method, told)
        return True

    def _log(self, told: Json) -> None:
        call = self._cause()
        if call is not None:
            self._post(call, "notifications/message", told)
        elif self.owner is not None:
            self._clients.log(self.owner, told)
        else:
            log.debug("server.log", server=self._key, level=told.get("level"), data=told.get("data"))

    def _cause(self) -> Call | None:
        """The request that what came now belongs to.

        Over Streamable HTTP it came on that request's stream. Else it counts for the newest one in work, where all come
        from one scope; where they do not, nobody can tell, of a request that was given up as little as of one in work.
        """
        noted = delivery.get()
        if isinstance(noted, Call):
            return noted if noted.caller is not None else None
        scopes, newest = self._abandoned.scopes(anyio.current_time()), None
        for call in self._calls.values():
            if call.caller is not None:
                scopes.add(call.caller.scope)
                newest = call
        return newest if len(scopes) == 1 else None

    def _expect(self, wanted: object, scope: ScopeId) -> None:
        if is_json(wanted) and isinstance(elicitation := wanted.get("elicitationId"), str):
            self._elicited[elicitation] = scope
            if len(self._elicited) > ELICITATIONS:
                del self._elicited[next(iter(self._elicited))]

    def _post(self, call: Call, method: str, params: Json) -> None:
        if call.caller is None or self._tasks is None:
            return
        if call.outbox is None:
            call.outbox = WaitingMessages(self._clients.budget.share(WAITING_BYTES), WAITING)
        call.outbox.put(object(), method, params)
        if call.sending is None:
            call.sending = anyio.Event()
            self._tasks.start_soon(self._send, call, call.caller)

    async def _watch(self) -> None:
        """End the calls whose time is over, until none is in work: one timer for all costs each of them nothing."""
        try:
            while self._calls:
                now = anyio.current_time()
                for call in list(self._calls.values()):
                    if call.deadline <= now:
                        call.end()
                # What begins, or shows life, from now on has at least the limit.
                await anyio.sleep_until(min(now + self._limit, *(call.deadline for call in self._calls.values())))
        finally:
            self._watching = False

    async def _send(self, call: Call, caller: Caller) -> None:
        sending, outbox = call.sending, call.outbox
        try:
            while outbox:
                method, params = outbox.take()
                if method == "notifications/progress":
                    await caller.channel.progress(params)
                else:
                    await caller.channel.log(params)
        except Exception as error:  # noqa: BLE001 - boundary: what one client cannot be told is no matter of the server's
            log.debug("client.not_told", reason=str(error))
        finally:
            if outbox is not None:
                outbox.clear()  # of what could not be sent
            call.sending = None
            if sending is not None:
                sending.set()


def _meta_of(params: Json) -> Json:
    return members_of(params.get("_meta"))


def _without_subscription(params: Json) -> Json:
    """A notification without the mark of the stream that it came on, which is this hop's own."""
    kept = {key: value for key, value in _meta_of(params).items() if key != SUBSCRIPTION_ID_META_KEY}
    rest = {key: value for key, value in params.items() if key != "_meta"}
    return {**rest, "_meta": kept} if kept else rest
