"""What a server wants to know before it answers: got from the client in the client's own era (design rule 31).

In the handshake era a server asks in a request of its own while the call waits. In the modern era it answers
`input_required`, and the client repeats the call with what was wanted (2026-07-28, basic/patterns/mrtr).
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

import anyio
from anyio.abc import TaskGroup

from proxy.core.byte_budget import ByteBudget, message_size
from proxy.core.capabilities import QUESTIONS, askable, lacking, refusal
from proxy.core.errors import PastLimit, Rejection
from proxy.core.inventory import Json, is_json, members_of
from proxy.core.scope import ScopeId
from proxy.core.settings import Settings
from proxy.gateway.parked_calls import ParkedCalls
from proxy.gateway.sealing import INVALID_PARAMS, Seal
from proxy.ports import Caller, Channel, Link, ListKind

ROUNDS: Final = 10
"""How often a server may want more for one request of a handshake-era client; the number that the SDKs have."""
PATIENCE: Final = (0.05, 0.25)
"""Seconds before a request is repeated that a server has answered with state alone: at first, and at most."""

_BROUGHT: Final = frozenset({"inputResponses", "requestState"})
"""The parameters by which a client brings what was wanted."""

Asked: TypeAlias = dict[str, Any]
"""One of a server's questions: `method` and `params`."""
Purpose: TypeAlias = list[str | None]
"""Where a state belongs: server, method, tool or prompt or resource, and scope."""


class Withdrawn(Exception):
    """What was exposed when a request came is exposed no more, or leads elsewhere, by the time that it can be sent."""


def wants_input(result: Json) -> bool:
    """Whether a result says that the server wants more before it answers."""
    return result.get("resultType") == "input_required"


class Rounds:
    """Sends requests, and gets servers what they want to know meanwhile.

    `waiting`: counts a question that waits for the clients of a scope inside, or raises PastLimit.
    """

    def __init__(
        self,
        settings: Settings,
        tasks: TaskGroup,
        budget: ByteBudget | None = None,
        waiting: Callable[[ScopeId], AbstractContextManager[object]] = lambda _scope: nullcontext(),
    ) -> None:
        self._wait = settings.input_wait
        self._waiting = waiting
        self._tasks = tasks
        self._seal = Seal()
        self._parked = ParkedCalls[_Held](budget or ByteBudget(), _Held.give_up)

    async def exchange(
        self,
        link: Link,
        caller: Caller,
        server: str,
        method: str,
        params: Mapping[str, Any],
        same: Callable[[], Awaitable[bool]],
        *,
        in_person: bool = False,
    ) -> dict[str, Any]:
        """Send `method` to `server` and answer what it wants to know; its result, or what a modern client has to bring.

        `same`: whether the decision by which this is sent still holds, which is asked right before each sending.
        `in_person`: the caller's channel can put questions to its client, of whatever era that is.

        Raises:
            Withdrawn: it holds no more; nothing was sent since.
            Rejection: the state that the client brought back was not given for this; or the server's own error.
            NotDelivered, ServerLost, ServerSilent: as `Link.request`.
        """
        way = _Way(link, caller, method, same)
        if in_person or caller.era == "handshake":
            return await self._ask_in_person(way, params)
        purpose = _purpose(caller, server, method, params)
        if "requestState" in params:
            kept = self._seal.open(purpose, params["requestState"])
            if (call := kept.get("call")) is not None:
                return await self._resume(call, caller, purpose, params)
            params = {key: value for key, value in params.items() if key != "requestState"} | kept
        if link.asks and askable(caller.channel.capabilities):
            held = _Held(self._wait)
            self._tasks.start_soon(held.run, partial(way.of(held).send, params))
            return await self._await(held, caller, purpose)
        return self._passed_on(await way.send(params), caller, purpose)

    async def in_person(
        self, caller: Caller, params: Mapping[str, Any], work: Callable[[Caller], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        """Do `work` for a call of a tool, on a channel that can put questions to the client while it is done.

        A modern client is asked in results, and comes back for `resumed`: the work goes on behind its requests.
        """
        if caller.era == "handshake" or not askable(caller.channel.capabilities):
            return await work(caller)
        held = _Held(self._wait)
        self._tasks.start_soon(held.run, partial(work, caller._replace(channel=held)))
        return await self._await(held, caller, _own_purpose(caller, params))

    async def resumed(self, caller: Caller, params: Mapping[str, Any], *, ours: bool) -> dict[str, Any] | None:
        """What becomes of work that waits for what the client brings now; None where it brings nothing for any.

        `ours`: the call is of a tool of ours, which nobody else has given a state for. Without its work it is no new
        call: that would do everything once more.

        Raises:
            Rejection: the work waits no more.
        """
        if caller.era == "handshake" or "requestState" not in params:
            return None
        purpose = _own_purpose(caller, params)
        try:
            kept = self._seal.open(purpose, params["requestState"])
        except Rejection:
            if ours:
                raise
            return None  # it is a server's
        return await self._resume(kept["call"], caller, purpose, params)

    def scope_ended(self, scope: ScopeId) -> None:
        """A scope is over: nobody comes back for the calls in it."""
        self._parked.forget(scope)

    def _passed_on(self, result: dict[str, Any], caller: Caller, purpose: Purpose) -> dict[str, Any]:
        """A modern server's result for a modern client: its state is bound to where it belongs."""
        if not wants_input(result):
            return result
        for asked in _questions(result).values():
            if (needed := _needed(caller.channel.capabilities, asked)) is not None:
                raise refusal(needed)
        if "requestState" not in result:
            return result
        sealed = self._seal.close(purpose, {"requestState": result["requestState"]})
        return {**result, "requestState": sealed}

    async def _ask_in_person(self, way: "_Way", params: Mapping[str, Any]) -> dict[str, Any]:
        """Send a handshake-era client's request; what a modern server wants is asked in requests of ours."""
        if not _BROUGHT.isdisjoint(params):  # this era has none of its own
            params = {key: value for key, value in params.items() if key not in _BROUGHT}
        sent = params
        pause, longest = PATIENCE
        for _ in range(ROUNDS):
            result = await way.send(sent)
            if not wants_input(result):
                return result
            brought = {key: result[key] for key in ("requestState",) if key in result}
            if questions := _questions(result):
                brought["inputResponses"] = await self._answers(way.caller, questions)
            sent = {**params, **brought}
            if not questions:
                await anyio.sleep(pause)
                pause = min(2 * pause, longest)
        raise Rejection(INVALID_PARAMS, f"The server wanted more input {ROUNDS} times")

    async def _answers(self, caller: Caller, questions: Mapping[str, Asked]) -> dict[str, Any]:
        """The client's answers to all of a server's questions, asked side by side.

        Raises:
            Rejection: the first that it cannot answer.
        """
        answers: dict[str, Any] = {}
        refused: list[Rejection] = []

        async def put(key: str, asked: Asked, tasks: TaskGroup) -> None:
            try:
                with self._waiting(caller.scope), anyio.fail_after(self._wait):
                    answers[key] = await caller.channel.ask(asked["method"], asked["params"])
            except (Rejection, PastLimit) as error:
                refused.append(error if isinstance(error, Rejection) else error.as_rejection())
                tasks.cancel_scope.cancel()
            except TimeoutError:
                refused.append(_no_answer(self._wait))
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            for key, asked in questions.items():
                tasks.start_soon(put, key, asked, tasks)
        if refused:
            raise refused[0]
        return answers

    async def _resume(self, call: str, caller: Caller, purpose: Purpose, params: Mapping[str, Any]) -> dict[str, Any]:
        """Go on with a call that waits at a handshake-era server for what the client brings now.

        Raises:
            Rejection: the call waits no more.
        """
        held = self._parked.take(caller.scope, call)
        if held is None:
            raise Rejection(INVALID_PARAMS, "Invalid or expired requestState")
        held.answer(members_of(params.get("inputResponses")))
        return await self._await(held, caller, purpose)

    async def _await(self, held: "_Held", caller: Caller, purpose: Purpose) -> dict[str, Any]:
        """What comes first of a held call: its outcome, or a question, with which the request ends for now."""
        held.attach(caller.channel)
        try:
            asked = await held.news()
        except BaseException:  # the client has cancelled
            held.scope.cancel()
            raise
        finally:
            held.detach()
        if asked is None:
            return held.outcome()
        call = secrets.token_urlsafe(16)
        held.on_more = lambda what: self._parked.grow(caller.scope, call, message_size(what))
        held.on_end = lambda: self._parked.take(caller.scope, call)
        self._parked.park(caller.scope, call, held, message_size(asked))
        sealed = self._seal.close(purpose, {"call": call})
        return {"resultType": "input_required", "inputRequests": asked, "requestState": sealed}


@dataclass(frozen=True)
class _Way:
    """From a caller to a server, for as long as the decision holds."""

    link: Link
    caller: Caller
    method: str
    same: Callable[[], Awaitable[bool]]

    async def send(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send once, when it is the request's turn; its result as it came.

        Raises:
            Withdrawn: the decision holds no more; nothing was sent.
        """
        async with self.link.turn(self.method, self.caller):
            if not await self.same():
                raise Withdrawn
            return await self.link.request(self.method, params, self.caller)

    def of(self, channel: Channel) -> "_Way":
        """The same way for a call that is heard of on another channel."""
        return replace(self, caller=self.caller._replace(channel=channel))


@dataclass(eq=False)
class _Question:
    asked: Asked
    shown: bool = False
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: Any = None


class _Held:
    """A call at a handshake-era server that outlives the requests of the modern client that has caused it.

    It is the `Channel` of that call as well: what comes while some request is attached goes out on that one. `on_more`
    is called with a question or a result that waits for the client, `on_end` when nothing does any more.
    """

    def __init__(self, wait: float) -> None:
        self.scope = anyio.CancelScope()
        self.on_end: Callable[[], object] = lambda: None
        self.on_more: Callable[[object], None] = lambda _what: None
        self._wait = wait
        self._channel: Channel | None = None
        self._capabilities: Json = {}
        self._log_level: str | None = None
        self._headers: Mapping[str, str] = {}
        self._questions: dict[str, _Question] = {}
        self._numbers = 0
        self._news = anyio.Event()
        self._done = False
        self._shown = False
        self._fetched = anyio.Event()
        self._result: dict[str, Any] | None = None
        self._error: Exception | None = None

    @property
    def capabilities(self) -> Json:
        """What the client declared in its newest request."""
        return self._capabilities

    @property
    def log_level(self) -> str | None:
        """What the client wanted in its newest request."""
        return self._log_level

    @property
    def headers(self) -> Mapping[str, str]:
        """Those of the newest request."""
        return self._headers

    async def run(self, work: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        """Do the work and keep its outcome, a while longer than the client may take to come for it."""
        try:
            with self.scope:
                self._result = await work()
        except Exception as error:  # noqa: BLE001 - whoever fetches the outcome raises it
            self._error = error
        finally:
            self._done = True
            self._news.set()
        self.on_more(self._result)
        if self._shown:
            with anyio.move_on_after(self._wait):
                await self._fetched.wait()
        self.on_end()

    def give_up(self) -> None:
        """End the call, whose outcome nobody will come for."""
        self.scope.cancel()
        self._fetched.set()

    def attach(self, channel: Channel) -> None:
        """A request of the client waits for this call from now on."""
        self._channel = channel
        self._capabilities, self._log_level, self._headers = channel.capabilities, channel.log_level, channel.headers

    def detach(self) -> None:
        """No request waits for this call any more."""
        self._channel = None

    async def news(self) -> dict[str, Asked] | None:
        """The questions that are open by now, at least one, which the client is shown; None once the call is over."""
        while not self._done and not self._questions:
            self._news = anyio.Event()
            await self._news.wait()
        if self._done:
            return None
        self._shown = True
        for question in self._questions.values():
            question.shown = True
        return {key: question.asked for key, question in self._questions.items()}

    def answer(self, answers: Json) -> None:
        """Give the server what the client has brought; what it was shown and has not brought is refused."""
        for key, question in list(self._questions.items()):
            if question.shown:
                question.answer = answers.get(key)
                question.answered.set()
                del self._questions[key]

    def outcome(self) -> dict[str, Any]:
        """The result of the call.

        Raises what `Link.request` raises.
        """
        self._fetched.set()
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise Rejection(INVALID_PARAMS, "The call was cancelled")
        return self._result

    def check(self, schema: object, arguments: Json) -> None:
        """Hold what the headers of the request that waits say against the arguments.

        Raises:
            Rejection: they differ.
        """
        if self._channel is not None:
            self._channel.check(schema, arguments)

    async def list_changed(self, kind: ListKind) -> None:
        """Nothing: the modern era has these notices on listen streams."""

    async def progress(self, params: Json) -> None:
        """Send progress on the request that waits, if one does."""
        if self._channel is not None:
            await self._channel.progress(params)

    async def log(self, params: Json) -> None:
        """Send a log message on the request that waits, if one does."""
        if self._channel is not None:
            await self._channel.log(params)

    async def poll(self) -> None:
        """Nothing: the modern era has no streams to resume."""

    async def ask(self, method: str, params: Json) -> dict[str, Any]:
        """Have the client bring the answer with its next request.

        Raises:
            Rejection: it cannot answer, or did not in time.
        """
        if (needed := lacking(self._capabilities, method, params)) is not None:
            raise refusal(needed)
        self._numbers += 1
        key = str(self._numbers)
        question = self._questions[key] = _Question({"method": method, "params": dict(params)})
        self._news.set()
        self.on_more(question.asked)
        try:
            with anyio.move_on_after(self._wait):
                await question.answered.wait()
        finally:
            self._questions.pop(key, None)
        if not is_json(question.answer):
            raise (
                _no_answer(self._wait)
                if not question.answered.is_set()
                else Rejection(INVALID_PARAMS, "The client brought no answer")
            )
        return dict(question.answer)


def _purpose(caller: Caller, server: str, method: str, params: Mapping[str, Any]) -> Purpose:
    scope = caller.scope
    return [server, method, params.get("name", params.get("uri")), scope.kind, scope.name, scope.principal]


def _own_purpose(caller: Caller, params: Mapping[str, Any]) -> Purpose:
    """Where the state of work of our own belongs: to no server, whose key is never empty."""
    return _purpose(caller, "", "tools/call", params)


def _questions(result: Json) -> dict[str, Asked]:
    """What an `input_required` result asks, by the server's keys; what is no question of the protocol is left out."""
    found: dict[str, Asked] = {}
    for key, one in members_of(result.get("inputRequests")).items():
        if is_json(one) and one.get("method") in tuple(QUESTIONS) and is_json(params := one.get("params") or {}):
            found[key] = {"method": one["method"], "params": params}
    return found


def _needed(capabilities: Json, asked: Asked) -> dict[str, Any] | None:
    return lacking(capabilities, asked["method"], asked["params"])


def _no_answer(wait: float) -> Rejection:
    return Rejection(-32001, f"The client did not answer within {wait:g} s")
