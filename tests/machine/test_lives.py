"""The lives of servers and scopes in a running proxy, in made-up time: whatever happens, the laws hold.

Every call gets one answer. No scope sees another's tools, answers, notices or progress. What is listed can be called,
what is not never reaches a server. A server that is held comes back when it can. Nothing is left at the end.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import anyio
from anyio.abc import TaskGroup
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from structlog.testing import capture_logs

from proxy.app import Running, running
from proxy.config.difference import in_force
from proxy.config.load import Loaded, load
from proxy.core.scope import ScopeId
from proxy.core.server import Server
from proxy.ports import Status
from proxy.upstream.life import LONGEST_PAUSE
from proxy.upstream.pool import REPLACE_WITHIN
from tests.core.strategies import law
from tests.machine.clients import Call, Client
from tests.machine.clock import MadeUpTime
from tests.machine.doubles import Double, Opening

TOOLS = ("read", "write", "more")
SERVERS = ("alpha", "beta", "gamma")
SKILLS = ("reading", "writing", "own", "web", "guide")
IDLE = 1800.0
TIMEOUT = 300.0
SOON = 3 * LONGEST_PAUSE
"""Seconds in which whatever can come back does, however often it has failed."""


@dataclass(frozen=True)
class Config:
    """A configuration: how `alpha` (`stdio`) is started; whether `beta` has a connection for each scope, whether there
    is `gamma` (`http`), and how servers and skills are set besides. `single`: `beta` runs for one scope at a time.
    """

    version: int = 1
    isolated: bool = True
    web: bool = True
    idle_stop: bool = False
    eager: bool = False
    wide: bool = False
    writing: bool = True
    pinned: bool = False
    single: bool = False

    @property
    def grants(self) -> dict[str, set[tuple[str, str]]]:
        """What each skill grants, written out."""
        grants = {
            "reading": {("alpha", tool) for tool in (TOOLS if self.wide else ["read"])},
            "own": {("beta", tool) for tool in TOOLS},
            "guide": set[tuple[str, str]](),
        }
        if self.writing:
            grants["writing"] = {("alpha", "write"), ("beta", "read")}
        if self.web:
            grants["web"] = {("gamma", "read")}
        return grants

    @property
    def beginning(self) -> list[str]:
        """The skills that a scope begins with."""
        return ["reading", *self.always]

    @property
    def always(self) -> list[str]:
        """The skills that cannot be offloaded."""
        return ["writing"] if self.writing and self.pinned else []


@cache
def loaded(config: Config) -> Loaded:
    """The configuration as the program reads it."""
    common = {"era": "handshake", "timeout": TIMEOUT, **({"idle_stop": 5} if config.idle_stop else {})}
    stdio = {"command": sys.executable, "args": [str(config.version)], **common}
    starts = {"start": "eager"} if config.eager else {}
    limit = {"max_connections": 1} if config.isolated and config.single else {}
    data = {
        "servers": {
            "alpha": stdio,
            "beta": {**stdio, **starts, "isolation": "scope" if config.isolated else "shared", **limit},
            **({"gamma": {"url": "http://127.0.0.1:9/mcp", **common}} if config.web else {}),
        },
        "skill_configs": {
            "reading": {"active": True, "tool_list": {"alpha": [] if config.wide else ["read"]}},
            "own": {"tool_list": {"beta": []}},
            "guide": {"usage": "Read this."},
            **(
                {"writing": {"pinned": config.pinned, "tool_list": {"alpha": ["write"], "beta": ["read"]}}}
                if config.writing
                else {}
            ),
            **({"web": {"tool_list": {"gamma": ["re*"]}}} if config.web else {}),
        },
        "proxy": {"keep_inventories": False, "scope_idle": IDLE},
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "skills.json")
        file.write_text(json.dumps(data))
        return load(file, {})


def _names(tools: Iterable[tuple[str, str]]) -> set[str]:
    return {f"{server}__{tool}" for server, tool in tools}


def answered_by(call: Call, server: str, answer: dict[str, Any], *, may_be_unknown: bool) -> bool:
    """Whether this can be the answer to a call: by the server, or with a text that says why not."""
    if (error := answer.get("error")) is not None:
        if error["code"] == -32050:
            return error["data"] == call.arguments
        return may_be_unknown and error["message"] == f"Unknown tool: {call.tool}"
    told = answer["result"]["content"][0]["text"]
    if not answer["result"].get("isError"):
        return json.loads(told) == call.arguments
    return server in told


class Lives(RuleBasedStateMachine):
    """Clients come and go, activate, call and cancel; servers start, fail, hang, change and die; the file changes."""

    # --- the world

    @initialize(config=st.builds(Config, *[st.integers(1, 2)], *[st.booleans()] * 8))
    def begin(self, config: Config) -> None:
        self.clock = MadeUpTime()
        self.config, self.approved = config, config
        self.model: dict[ScopeId, list[str]] = {}
        self.clients: dict[str, Client] = {}
        self.asked: dict[str, tuple[Client, Call, str, bool, int]] = {}
        self.sessions = 0
        self.changes = 0
        self.wrong: list[object] = []
        self.servers = {key: Double(key, self.arrives) for key in SERVERS}
        self.patches = ExitStack()
        self.log: Any = self.patches.enter_context(capture_logs())
        self.patches.enter_context(patch("proxy.upstream.connection.transport", self.transport))
        self.patches.enter_context(patch("proxy.app.time", SimpleNamespace(monotonic=self.clock.time)))
        self.main = self.clock.create_task(self.live())
        self.clock.advance()
        self._come(None)
        self._come("one")

    async def live(self) -> None:
        self.proxy: Running
        self.tasks: TaskGroup
        self.leave_off = anyio.Event()
        async with running(loaded(self.config), None) as self.proxy, anyio.create_task_group() as self.tasks:
            await self.leave_off.wait()
            self.tasks.cancel_scope.cancel()

    def transport(self, server: Server, _mask: object, _start: object, **_named: object) -> Any:
        return self.servers[server.key].transport(server)

    def arrives(self, server: str, tool: str, arguments: dict[str, Any]) -> None:
        """What reaches a server is what its caller may call at that moment."""
        client = self.clients.get(arguments["who"])
        if client is None or (server, tool) not in self.granted(client.scope):
            self.wrong.append(("this was not to reach a server", server, tool, arguments))

    def granted(self, scope: ScopeId) -> set[tuple[str, str]]:
        grants = self.config.grants
        return {tool for skill in self.model.get(scope, ()) for tool in grants[skill]}

    def needed(self, scope: ScopeId) -> set[str]:
        """The servers that are held for a scope."""
        inforce = in_force(loaded(self.approved), loaded(self.config)).servers
        of_skills = loaded(self.config).catalogue.servers_of(self.model[scope])
        eager = [key for key in loaded(self.config).catalogue.needed if key in inforce and inforce[key].eager]
        return {*of_skills, *eager} & inforce.keys()

    # --- clients

    @precondition(lambda self: len(self.clients) < 5)
    @rule(namespace=st.sampled_from([None, None, "one", "two"]))
    def come(self, namespace: str | None) -> None:
        self._come(namespace)

    def _come(self, namespace: str | None) -> None:
        self.sessions += 1

        async def connect() -> Client:
            client = Client(f"session-{self.sessions}", namespace)
            self.clients[client.session] = client
            self.tasks.start_soon(client.run, self.proxy, self.proxy._session_ended)
            return client

        client = self.clock.outcome(connect())
        about = {"capabilities": {}, "clientInfo": {"name": "client", "version": "1"}}
        client.request("initialize", {"protocolVersion": "2025-11-25", **about})
        self.clock.advance()
        self.model.setdefault(client.scope, self.config.beginning)
        client.tell("notifications/initialized", {})
        self.clock.advance()
        self.clock.call_soon(self.proxy.clients.streaming, client.scope, client.session, True)
        self.clock.advance()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self._leave(self._one(data, self.clients.values()))

    def _leave(self, client: Client) -> None:
        client.hear()
        del self.clients[client.session]
        client.leave()
        if client.scope.kind == "session":
            del self.model[client.scope]
        self.asked = {marker: asked for marker, asked in self.asked.items() if asked[0] is not client}
        self.clock.advance()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), skill=st.sampled_from(SKILLS))
    def activate(self, data: st.DataObject, skill: str) -> None:
        client = self._one(data, self.clients.values())
        if skill in self.config.grants and skill not in self.model[client.scope]:
            self.model[client.scope] = [*self.model[client.scope], skill]
            self.changes += 1
        client.request("tools/call", {"name": "SKILL", "arguments": {"action": "activate", "skill_name": skill}})
        self.clock.advance()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def offload(self, data: st.DataObject) -> None:
        client = self._one(data, self.clients.values())
        self._offload(client, self._one(data, [*self.model[client.scope], "guide"]))

    def _offload(self, client: Client, skill: str) -> None:
        if skill in self.model[client.scope] and skill not in self.config.always:
            self.model[client.scope] = [other for other in self.model[client.scope] if other != skill]
            self.changes += 1
        client.request("tools/call", {"name": "SKILL", "arguments": {"action": "offload", "skill_name": skill}})
        self.clock.advance()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), server=st.sampled_from(SERVERS), tool=st.sampled_from(TOOLS), takes_time=st.booleans())
    def call(self, data: st.DataObject, server: str, tool: str, *, takes_time: bool) -> None:
        self._call(self._one(data, self.clients.values()), server, tool, takes_time=takes_time)

    @precondition(lambda self: any(self.granted(client.scope) for client in self.clients.values()))
    @rule(data=st.data())
    def call_what_is_granted(self, data: st.DataObject) -> None:
        client = self._one(data, [client for client in self.clients.values() if self.granted(client.scope)])
        server, tool = self._one(data, sorted(self.granted(client.scope)))
        self._call(client, server, tool, takes_time=True)

    @precondition(lambda self: any(self.granted(client.scope) for client in self.clients.values()))
    @rule(data=st.data())
    def take_away_what_is_called(self, data: st.DataObject) -> None:
        """While the call waits for its server: it is not sent any more, where nothing else grants the tool."""
        client = self._one(data, [client for client in self.clients.values() if self.granted(client.scope)])
        server, tool = self._one(data, sorted(self.granted(client.scope)))
        self._stall(server)
        self._call(client, server, tool, takes_time=False)
        for skill in self.model[client.scope]:
            self._offload(client, skill)
        self._turn(server, "works")
        self.clock.advance(1)

    def _call(self, client: Client, server: str, tool: str, *, takes_time: bool) -> Call:
        marker = f"call {len(client.calls)} of {client.session}"
        arguments = {"who": client.session, "marker": marker, "takes_time": takes_time}
        name = f"{server}__{tool}"
        view = self.proxy.gate.sight(client.scope, self.model[client.scope]).view
        listed = name in view.tools and tool in self.servers[server].tools
        call = client.call(name, arguments)
        self.asked[marker] = (client, call, server, listed, self.changes)
        self.clock.advance()
        return call

    @precondition(lambda self: any(not asked[1].over for asked in self.asked.values()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        client, call, *_ = self._one(data, [asked for asked in self.asked.values() if not asked[1].over])
        client.cancel(next(number for number, each in client.calls.items() if each is call))
        self.clock.advance()

    # --- servers

    @rule(
        server=st.sampled_from(SERVERS),
        opening=st.sampled_from(["works", "fails", "hangs"]),
        lingers=st.sampled_from([0.0, 2.0]),
    )
    def turns(self, server: str, opening: Opening, lingers: float) -> None:
        self.servers[server].lingers = lingers
        self._turn(server, opening)

    def _turn(self, server: str, opening: Opening) -> None:
        self.servers[server].opening = opening
        if opening == "works":
            for process in self.servers[server].running:
                process.greet()
        self.clock.advance()

    @rule(server=st.sampled_from(SERVERS), tools=st.sampled_from([TOOLS, ("read",), ("read", "write")]))
    def offers(self, server: str, tools: tuple[str, ...]) -> None:
        self.servers[server].offer(tools)
        self.changes += 1
        self.clock.advance()

    @precondition(lambda self: any(double.running for double in self.servers.values()))
    @rule(data=st.data())
    def dies(self, data: st.DataObject) -> None:
        self._one(data, [each for double in self.servers.values() for each in double.running]).die()
        self.clock.advance()

    @rule(server=st.sampled_from(SERVERS))
    def stalls(self, server: str) -> None:
        """It dies, and does not come back for now."""
        self._stall(server)

    def _stall(self, server: str) -> None:
        self.servers[server].opening = "hangs"
        for process in self.servers[server].running:
            process.die()
        self.clock.advance()

    @precondition(lambda self: any(self._waiting()))
    @rule(data=st.data(), how=st.sampled_from(["answer", "refuse", "progress"]))
    def works_on_a_call(self, data: st.DataObject, how: str) -> None:
        process, number = self._one(data, self._waiting())
        getattr(process, how)(number)
        self.clock.advance()

    # --- time, and the file

    @rule(seconds=st.sampled_from([0.05, 0.5, 3.0, 11.0, 31.0, 70.0]))
    def passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(
        full=st.booleans(),
        changed=st.sets(st.sampled_from([key for key in asdict(Config()) if key != "version"]), max_size=3),
        version=st.integers(1, 2),
    )
    def changes_the_file(self, changed: set[str], version: int, *, full: bool) -> None:
        before = asdict(self.config)
        self.config = Config(**{**before, "version": version, **{key: not before[key] for key in changed}})
        if full:
            self.approved = self.config
        self.changes += 1
        for scope, active in self.model.items():
            kept = [skill for skill in active if skill in self.config.grants]
            self.model[scope] = [*kept, *(skill for skill in self.config.always if skill not in kept)]
        self.clock.outcome(self.proxy.reload(loaded(self.config), full=full))

    @precondition(lambda self: not self.asked)
    @rule()
    def nobody_says_anything_for_long(self) -> None:
        """Scopes without a connection end."""
        self.clock.advance(IDLE + 1)
        self.clock.outcome(self.proxy.lifetimes.sweep())
        here = {client.scope for client in self.clients.values()}
        self.model = {scope: active for scope, active in self.model.items() if scope in here}
        self.clock.advance()

    # --- the laws

    @invariant()
    def nothing_has_gone_wrong(self) -> None:
        """No server was reached by what may not; no task has died, and nothing was logged that is an error."""
        assert not self.wrong
        assert not self.clock.complaints
        assert not [event for event in self.log if event["log_level"] == "error" or event.get("exc_info")]

    @invariant()
    def one_process_runs_at_a_time(self) -> None:
        """A process of a shared server begins when the one before it has ended."""
        assert self.servers["alpha"].most <= 1

    @invariant()
    def each_call_gets_its_own_answer(self) -> None:
        for client in self.clients.values():
            client.hear()
            assert all(len(answers) <= 1 for answers in client.others.values())
            for told in client.progress:
                assert told["message"] == client.session
                assert told["progressToken"].startswith(f"{client.session} ")
        for marker, (_, call, server, listed, changes) in list(self.asked.items()):
            for answer in call.answers:
                unknown = not listed or changes != self.changes
                assert call.cancelled or answered_by(call, server, answer, may_be_unknown=unknown), (call, answer)
            if call.over:
                del self.asked[marker]

    @invariant()
    def scopes_are_those_that_were_begun(self) -> None:
        """With what is active in each; and what is held is what they need."""
        states = self.proxy.gate.store._states  # pyright: ignore[reportAttributeAccessIssue] - the memory store's
        assert {scope: sorted(state.active) for scope, state in states.items()} == {
            scope: sorted(active) for scope, active in self.model.items()
        }
        held = {scope: {server for server, _ in places} for scope, places in self.proxy.pool._held.items() if scope}
        assert held == {scope: needed for scope in self.model if (needed := self.needed(scope))}

    @rule()
    def what_is_needed_comes_back(self) -> None:
        """When servers can be started again; and then what is listed is what may be called, and can be called."""
        for double in self.servers.values():
            double.opening = "works"
            for process in double.running:
                process.greet()
        self._answer_everything()
        self.clock.advance(SOON + REPLACE_WITHIN)
        self._answer_everything()
        self.each_call_gets_its_own_answer()
        assert not self.asked
        for scope in self.model:
            for server in self.needed(scope):
                status = self.clock.outcome(self._status(server, scope))
                assert status.state == "ready" or self._full(server, status.reason), (server, scope, status)
        most = self._beta().max_connections if self._isolated() else 1
        assert len(self.servers["beta"].running) <= min(most, max(1, len(self.model)))
        for client in self.clients.values():
            self._lists_what_it_may_call(client)

    def _answer_everything(self) -> None:
        while waiting := self._waiting():
            for process, number in waiting:
                process.answer(number)
            self.clock.advance()

    async def _status(self, server: str, scope: ScopeId) -> Status:
        return self.proxy.pool.status(server, scope)

    def _beta(self) -> Server:
        return in_force(loaded(self.approved), loaded(self.config)).servers["beta"]

    def _isolated(self) -> bool:
        return self._beta().isolation == "scope"

    def _full(self, server: str, reason: str) -> bool:
        """Whether it is said, and so, that a server runs for as many scopes as it may."""
        running = len(self.servers["beta"].running)
        return server == "beta" and "max_connections" in reason and running == self._beta().max_connections

    def _lists_what_it_may_call(self, client: Client) -> None:
        number = client.request("tools/list", {})
        self.clock.advance()
        client.hear()
        (answer,) = client.others[number]
        startable = in_force(loaded(self.approved), loaded(self.config)).servers
        may = {
            (server, tool)
            for server, tool in self.granted(client.scope)
            if tool in self.servers[server].tools and server in startable
        }
        names = {tool["name"] for tool in answer["result"]["tools"]} - {"SKILL"}
        there = {key for key in startable if self.clock.outcome(self._status(key, client.scope)).state == "ready"}
        known = {name for name in names if name.partition("__")[0] not in there}  # offered to others, or last
        assert names - known == _names(tool for tool in may if tool[0] in there)
        for server, tool in may:
            if f"{server}__{tool}" not in names:
                continue
            call = self._call(client, server, tool, takes_time=False)
            client.hear()
            (answer,) = call.answers
            assert "result" in answer, answer
            failed = answer["result"].get("isError", False)
            assert not failed or self._full(server, answer["result"]["content"][0]["text"]), answer

    def teardown(self) -> None:
        if not hasattr(self, "main"):
            return
        try:
            for client in list(self.clients.values()):
                self._leave(client)
            self.clock.advance(IDLE + 1)
            self.clock.outcome(self.proxy.lifetimes.sweep())
            self.clock.advance(SOON)
            self._nothing_is_left_of_scopes()
            self.clock.call_soon(self.leave_off.set)
            self.clock.advance(10)
            assert self.main.done()
            self.main.result()
            assert not asyncio.all_tasks(self.clock)
            assert not any(double.running for double in self.servers.values())
            self.nothing_has_gone_wrong()
        finally:
            for task in asyncio.all_tasks(self.clock):
                task.cancel()
            self.clock.advance(10)
            self.clock.close()
            self.patches.close()

    def _nothing_is_left_of_scopes(self) -> None:
        proxy, pool = self.proxy, self.proxy.pool
        assert proxy.gate.store._states == {}  # pyright: ignore[reportAttributeAccessIssue] - the memory store's
        assert {place for place in pool._lives if place[1] is not None} == set()
        assert set(pool._held) <= {None}
        assert {scope for life in pool._lives.values() for scope in life._holders} <= {None}
        assert {place for place in pool._offers._offers if place[1] is not None} == set()
        assert set(pool._offers._inventories) <= {None}
        assert not proxy.announcer._in_change
        assert not proxy.reads._expected
        clients = proxy.clients
        assert not any([clients._peers, clients._listening, clients._streams, clients._declared])
        assert not any([proxy.lifetimes._in_use, proxy.lifetimes._last_used])
        subscriptions: Any = pool.on_update.__self__  # pyright: ignore[reportFunctionMemberAccess] - a method
        assert not subscriptions._wishes
        assert not (self._isolated() and self.servers["beta"].running)

    def _waiting(self) -> list[tuple[Any, int]]:
        return [
            (process, number)
            for double in self.servers.values()
            for process in double.running
            for number in process.waiting
        ]

    @staticmethod
    def _one(data: st.DataObject, choices: Iterable[Any]) -> Any:
        return data.draw(st.sampled_from(list(choices)))


TestLives = Lives.TestCase
TestLives.settings = settings(
    law,
    max_examples=50,
    stateful_step_count=40,
    phases=[Phase.generate],  # shrinking so many steps takes longer than a test may
)
