"""What is told of a session's event stream: when it has begun and when it has ended, in that order."""

import anyio
import pytest
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from proxy.core.catalogue import Catalogue
from proxy.core.limits import UNLIMITED, Limits
from proxy.core.names import Naming
from proxy.core.profiles import Policy
from proxy.core.scope import ScopeId
from proxy.core.settings import Settings, every_kind
from proxy.face import sessions, streams
from proxy.face.identity import Identity
from proxy.face.keepalive import COMMENT, KeepAlive
from proxy.face.sessions import Sessions
from proxy.gateway.quotas import Quotas
from tests.conftest import PATIENCE

pytestmark = pytest.mark.anyio

ID = "s1"
STREAM = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
EVENT = {"type": "http.response.body", "body": b"data: 1\r\n\r\n", "more_body": True}


def request(verb: str) -> Scope:
    headers = [(b"mcp-session-id", ID.encode())] if verb == "GET" else []
    accept = (b"accept", b"text/event-stream")
    return {"type": "http", "method": verb, "path": "/mcp", "query_string": b"", "headers": [accept, *headers]}


async def nothing(_message: Message) -> None:
    """Where responses go that are not looked at."""


async def silence() -> Message:
    """A client that stays."""
    await anyio.sleep_forever()
    raise AssertionError


class Upstream:
    """Stands for the SDK's app: opens a session, and holds streams until their clients leave."""

    status = 200

    def __init__(self) -> None:
        self.may_end = anyio.Event()
        self.may_end.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            opened = {"type": "http.response.start", "status": 200, "headers": [(b"mcp-session-id", ID.encode())]}
            await send(opened)
            await send({"type": "http.response.body", "body": b""})
            return
        assert "last-event-id" not in Headers(scope=scope)
        await send({**STREAM, "status": self.status})
        if self.status == 200:
            while (await receive())["type"] != "http.disconnect":
                pass
            with anyio.CancelScope(shield=True):
                await self.may_end.wait()
            return
        await send({"type": "http.response.body", "body": b""})


class Told:
    """Sessions around that app, and what they tell of its stream."""

    def __init__(self) -> None:
        self.changes: list[bool] = []
        self.upstream = Upstream()
        self._news = anyio.Event()
        self.sessions = Sessions(
            self.upstream,
            Identity(ScopeId("process")),
            60,
            lambda: 0.0,
            self._end,
            self._tell,
            quotas=Quotas(
                Policy(Catalogue((), Naming({}))), Settings(max_scopes=every_kind(1), limits=Limits(sessions=UNLIMITED))
            ),
        )

    async def _end(self, scope: ScopeId, session_id: str) -> None:
        raise AssertionError((scope, session_id))

    def _tell(self, scope: ScopeId, session_id: str, begun: bool) -> None:
        assert (scope, session_id) == (ScopeId("session", ID), ID)
        self.changes.append(begun)
        self._news.set()
        self._news = anyio.Event()

    async def until(self, *changes: bool) -> None:
        with anyio.fail_after(PATIENCE):
            while self.changes != [*changes]:
                await self._news.wait()


async def opened() -> Told:
    told = Told()
    await told.sessions(request("POST"), silence, nothing)
    return told


async def test_sessions_in_namespaces_and_others_leave_each_other_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a bound, beyond which a new one is refused before it is opened, with the setting where there is one."""
    monkeypatch.setattr(sessions, "SESSIONS_IN_NAMESPACES", 2)
    told = await opened()
    answers: list[Message] = []

    async def keep(message: Message) -> None:
        answers.append(message)

    in_a_namespace = {**request("POST"), "path": "/mcp/a", "path_params": {"namespace": "a"}}
    for asked in (in_a_namespace, request("POST"), in_a_namespace, in_a_namespace):
        await told.sessions(asked, silence, keep)
    assert [message["status"] for message in answers if "status" in message] == [200, 503, 200, 503]
    texts = [message["body"].decode() for message in answers if message.get("body")]
    assert ["proxy.max_scopes.session" in text for text in texts] == [True, False]


async def test_a_stream_is_told_of_when_it_has_begun_and_when_it_has_ended() -> None:
    """Its end also where the client leaves without a word."""
    told = await opened()
    leave = anyio.Event()

    async def leaving() -> Message:
        await leave.wait()
        return {"type": "http.disconnect"}

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(told.sessions, request("GET"), leaving, nothing)
        await told.until(True)
        leave.set()
        await told.until(True, False)


async def test_a_stream_that_is_cancelled_has_ended() -> None:
    """As at the end of the program."""
    told = await opened()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(told.sessions, request("GET"), silence, nothing)
        await told.until(True)
        tasks.cancel_scope.cancel()
    assert told.changes == [True, False]


async def test_the_end_of_a_replaced_stream_is_told_before_the_beginning_of_the_new_one() -> None:
    """So that whoever counts never counts two; the replaced response is complete."""
    told = await opened()
    last: list[Message] = []

    async def keep(message: Message) -> None:
        last[:] = [message]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(told.sessions, request("GET"), silence, keep)
        await told.until(True)
        tasks.start_soon(told.sessions, request("GET"), silence, nothing)
        await told.until(True, False, True)
        with anyio.fail_after(PATIENCE):
            while last[0].get("more_body", True):  # noqa: ASYNC110
                await anyio.sleep(0.001)
        tasks.cancel_scope.cancel()
    assert told.changes == [True, False, True, False]


async def test_of_several_that_wait_for_the_stream_the_last_gets_it() -> None:
    """One that was overtaken while it waited is refused, and never begins."""
    told = await opened()
    told.upstream.may_end = anyio.Event()
    statuses: dict[str, int] = {}

    async def ask(name: str) -> None:
        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses[name] = message["status"]

        await told.sessions(request("GET"), silence, note)

    async with anyio.create_task_group() as tasks:
        for name in ("first", "second", "third"):
            tasks.start_soon(ask, name)
            await anyio.wait_all_tasks_blocked()
        assert statuses == {"first": 200}
        told.upstream.may_end.set()
        await told.until(True, False, True)
        assert statuses == {"first": 200, "second": 409, "third": 200}
        tasks.cancel_scope.cancel()


async def test_a_stream_that_does_not_give_way_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK then answers the new request as it will."""
    monkeypatch.setattr(streams, "PATIENCE", 0.05)
    told = await opened()
    told.upstream.may_end = anyio.Event()
    answered: list[int] = []

    async def note(message: Message) -> None:
        answered.append(message.get("status", 0))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(told.sessions, request("GET"), silence, nothing)
        await told.until(True)
        told.upstream.status = 409
        with anyio.fail_after(PATIENCE):
            await told.sessions(request("GET"), silence, note)
        assert answered == [409, 0]
        told.upstream.may_end.set()
        tasks.cancel_scope.cancel()
    assert told.changes == [True, False]


async def test_a_refused_request_for_a_stream_is_not_told_of() -> None:
    """There was none."""
    told = await opened()
    told.upstream.status = 409
    await told.sessions(request("GET"), silence, nothing)
    assert told.changes == []


async def test_comments_come_between_events_and_never_after_the_end() -> None:
    """One message at a time is sent; the end of a response ends its comments."""
    sent: list[bytes] = []
    inside = 0

    async def send(message: Message) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        await anyio.sleep(0.02)  # a client that reads slowly
        sent.append(message.get("body", b""))
        inside -= 1

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(dict(STREAM))
        for _ in range(20):
            await send(EVENT)
            await anyio.sleep(0.01)
        while COMMENT not in sent:  # noqa: ASYNC110
            await anyio.sleep(0.01)
        await send({"type": "http.response.body", "body": b"last"})
        await anyio.sleep(0.05)

    with anyio.fail_after(PATIENCE):
        await KeepAlive(app, 0.01)(request("GET"), silence, send)
    assert sent[-1] == b"last"
    assert sent.count(EVENT["body"]) == 20
    assert set(sent) == {b"", EVENT["body"], COMMENT, b"last"}
