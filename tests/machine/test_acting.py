"""Skills that act, in made-up time: whatever clients, servers and the configuration do, in any order, the laws hold.

Hooks pair up: what has begun ends once. While they run, nobody is granted the skill. Steps reach what they may, clients
nothing internal. Every run has one record. No scope sees another's heap, and nothing is left when all is quiet.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, TypeAlias

import anyio
import anyio.lowlevel
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.core.catalogue import Allow, Catalogue, Skill
from proxy.core.errors import NotDelivered, ProxyError, Rejection, ServerLost, ServerUnavailable
from proxy.core.failing import StepFailed
from proxy.core.inventory import Json, Offer
from proxy.core.known_clients import DOES_NOT_REREAD
from proxy.core.names import Naming
from proxy.core.profiles import Policy
from proxy.core.run import Run
from proxy.core.scope import ScopeId, ScopeState
from proxy.core.settings import Settings, every_kind
from proxy.core.steps import Call, Parallel, Steps, Workflow
from proxy.face.lifetimes import Lifetimes
from proxy.gateway.gate import Gate
from proxy.gateway.running import Work
from proxy.ports import Caller
from proxy.store.memory import MemoryStore
from tests.core.strategies import law
from tests.gateway.wired import wired
from tests.gateway.world import Channel, Server, Servers
from tests.machine.clock import MadeUpTime

HERE, THERE = ScopeId("namespace", "here"), ScopeId("namespace", "there")
HOOKED = ("case", "base", "top", "rival", "auto", "idle")
FLOWS = ("flow", "inner")
SKILLS = (*HOOKED, *FLOWS)
MOST_RUNS = 2
HOOK_TIME = 30.0
RUN_TIME = 300.0
LIMIT, SHORT_LIMIT = 60.0, 20.0
QUIET = 5 * RUN_TIME
"""Seconds in which everything ends, whatever hangs."""

Mood: TypeAlias = Literal["answers", "dawdles", "holds", "fails", "refuses", "is lost", "is dead", "is away"]
MOODS: tuple[Mood, ...] = ("answers", "dawdles", "holds", "fails", "refuses", "is lost", "is dead", "is away")


@dataclass(frozen=True)
class Config:
    """A configuration: the skills that it has not, the tools that it denies, and those that are always active.

    `version`: what steps say. `start`: whether something is done when a scope starts.
    """

    start: bool = True
    version: int = 1
    without: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()
    pinned: frozenset[str] = frozenset()

    def steps_may(self, skill: str) -> set[str]:
        """The tools of both servers that steps of a skill may call, written out."""
        own = {"shared", f"in-{skill}"} if skill in FLOWS else {skill, "shared", f"in-{skill}"}
        return own - self.denied

    def clients_may(self, skills: Iterable[str]) -> set[str]:
        """The tools that clients may call while these skills are active, written out."""
        granted = {tool for skill in skills if skill not in self.without for tool in (skill, "shared")}
        return granted - self.denied - {*FLOWS}


def step(place: str, server: str, tool: str, by: str, at: str, version: int, **more: Any) -> Call:
    """A step that says who it is, and what it knows."""
    known = {"namespace": "{{ scope.namespace }}", "heap": "{{ heap }}", "version": version}
    return Call(place, place, server=server, tool=tool, arguments={"by": by, "at": at, **known}, **more)


@cache
def catalogue(config: Config) -> Catalogue:
    def hooks(skill: str, event: str) -> Steps:
        def one(index: int, server: str, tool: str, **more: Any) -> Call:
            return step(f"on_{event}[{index}]", server, tool, skill, event, config.version, **more)

        first = one(0, "desk", f"in-{skill}", save_as=f"{skill}_{event}")
        return (first, Parallel("side", (one(1, "log", f"in-{skill}"), one(2, "desk", skill))))

    def hooked(skill: str, **more: Any) -> Skill:
        return Skill(
            skill,
            "",
            "",
            "",
            tools={"desk": Allow.of([skill, "shared"])},
            internal={key: Allow.of([f"in-{skill}"]) for key in ("desk", "log")},
            on_activate=hooks(skill, "activate"),
            on_offload=hooks(skill, "offload"),
            hook_timeout=HOOK_TIME,
            pinned=skill in config.pinned,
            **more,
        )

    def flow(skill: str, *steps: Call | Parallel, **more: Any) -> Skill:
        internal = {key: Allow.of([f"in-{skill}"]) for key in ("desk", "log")}
        workflow = Workflow(steps, {"type": "object"}, max_runs=MOST_RUNS, max_seconds=RUN_TIME, **more)
        return Skill(skill, "", "", "", tools={"desk": Allow.of(["shared"])}, internal=internal, workflow=workflow)

    def at(place: str, server: str, tool: str, skill: str) -> Call:
        return step(place, server, tool, skill, "invoke", config.version)

    side = Parallel("side", (at("0", "desk", "in-flow", "flow"), at("1", "log", "in-flow", "flow")))
    skills = (
        hooked("case"),
        hooked("base", idle_limit=SHORT_LIMIT),
        hooked("top", requires=("base",)),
        hooked("rival", conflicts=("case", "base"), exclusive=True),
        hooked("auto", active=True),
        hooked("idle", idle_limit=LIMIT),
        flow("flow", side, Call("2", "2", skill="inner"), max_calls=10),
        flow("inner", at("0", "desk", "in-inner", "inner"), tool=True, max_calls=10),
    )
    return Catalogue(
        ("desk", "log"),
        Naming({"desk": "desk", "log": "log"}),
        tuple(skill for skill in skills if skill.id not in config.without),
        denied={key: Allow.of(config.denied) for key in ("desk", "log")} if config.denied else {},
        on_start=(step("start", "desk", "starts", "start", "start", config.version, save_as="start"),)
        if config.start
        else (),
    )


TOOLS = (*SKILLS, "shared", "starts", *(f"in-{skill}" for skill in SKILLS))
INTERNAL = ("starts", *(f"in-{skill}" for skill in SKILLS))
SPELLINGS: tuple[Callable[[str], str], ...] = (
    lambda tool: f"desk__{tool}",
    lambda tool: tool,
    lambda tool: f"desk/{tool}",
    lambda tool: f"log__{tool}",
    lambda tool: f"DESK__{tool}",
    lambda tool: f"desk__{tool} ",
)


@dataclass
class Held:
    """A request that waits at a server until a test lets it go on."""

    let_go: anyio.Event = field(default_factory=anyio.Event)


class MadeUp(Server):
    """A server that does what its mood is, when it gets a request; `on_call` is told of each."""

    def __init__(self, key: str, on_call: Callable[[str, Caller, Json], None]) -> None:
        super().__init__({})
        self.key = key
        self.mood: Mood = "answers"
        self.held: list[Held] = []
        self._on_call = on_call

    async def request(self, method: str, params: Json, caller: Caller | None = None) -> dict[str, Any]:
        assert method == "tools/call"
        assert caller is not None
        mood = self.mood
        if mood == "is dead":
            raise NotDelivered(self.key, "it is dead")
        self._on_call(params["name"], caller, params.get("arguments", {}))
        if mood in ("dawdles", "is lost", "refuses"):
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
        if mood == "holds":
            held = Held()
            self.held.append(held)
            try:
                await held.let_go.wait()
            finally:
                self.held.remove(held)
        if mood == "is lost":
            raise ServerLost(self.key, "it is gone")
        if mood == "refuses":
            raise Rejection(-32050, "no")
        told = {"scope": caller.scope.name}
        return {"content": [], "structuredContent": told, "isError": mood == "fails"}


class MadeUpServers(Servers):
    """All servers, each of which is there or is waited for."""

    def __init__(self, *servers: MadeUp) -> None:
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        super().__init__({server.key: Offer.of(tools=tools) for server in servers})
        self.servers = {server.key: server for server in servers}

    async def connected(self, server: str, scope: ScopeId) -> Server:
        one = self.servers[server]
        await anyio.lowlevel.checkpoint()
        if one.mood == "is away":
            raise ServerUnavailable(server, "it is away")
        if one.mood == "dawdles":
            await anyio.sleep(1)
        return one


class Watched(MemoryStore):
    """A store whose watcher is told of the skills that are active and have begun, before and after each change."""

    def __init__(self, on_change: Callable[[ScopeId, ScopeState | None, ScopeState | None], None]) -> None:
        super().__init__(every_kind(10))
        self._on_change = on_change

    async def swap(self, scope: ScopeId, old: ScopeState | None, new: ScopeState) -> bool:
        done = await super().swap(scope, old, new)
        if done:
            self._on_change(scope, old, new)
        return done

    async def remove(self, scope: ScopeId) -> None:
        before = await self.get(scope)
        await super().remove(scope)
        self._on_change(scope, before, None)


class Acting(RuleBasedStateMachine):
    """Clients activate, offload, invoke, call and cancel; servers fail and hang; skills idle out and are removed."""

    @initialize(start=st.booleans())
    def begin(self, *, start: bool) -> None:
        self.clock = MadeUpTime()
        self.config = Config(start=start)
        self.wrong: list[object] = []
        self.acts: list[asyncio.Task[None]] = []
        self.hooks: dict[tuple[ScopeId, str], list[tuple[str, str]]] = {}
        self.at_work: Counter[tuple[ScopeId, str, str]] = Counter()
        self.owed: Counter[tuple[ScopeId, str]] = Counter()
        self.starts: Counter[ScopeId] = Counter()
        self.runs: dict[str, str] = {}
        self.recorded: dict[str, Run] = {}
        self.begun: set[ScopeId] = set()
        self.released: set[ScopeId] = set()
        self.over: set[ScopeId] = set()
        self.reloads = self.reloads_at_finish = 0
        self.servers = {key: MadeUp(key, self.arrives) for key in ("desk", "log")}
        self.main = self.clock.create_task(self.live())
        self.clock.advance()

    async def live(self) -> None:
        self.leave_off = anyio.Event()
        store = Watched(self.changes)
        keep = store.keep
        store.keep = lambda scope, run: (self.records(run), keep(scope, run))[1]
        self.gate = Gate(Policy(catalogue(self.config)), MadeUpServers(*self.servers.values()), store, SETTINGS)
        async with anyio.create_task_group() as tasks:
            self.wired = wired(self.gate, tasks, self.clock.time)
            self.lifetimes = Lifetimes(store, every_kind(1800.0), self.clock.time, lambda _: False, self.ends)
            runner: Any = self.wired.hooks._runner
            runner.run = self.watching(runner.run)
            await self.leave_off.wait()
            await self.wired.hooks.shut_down()
            tasks.cancel_scope.cancel()

    # --- what is watched

    def watching(self, run: Callable[[Work, Steps, float], Coroutine[Any, Any, None]]) -> Any:
        """The runner's `run`, with a note of what begins and how it ends."""

        async def watched(work: Work, steps: Steps, within: float) -> None:
            name, skill, scope = work.event["name"], work.event["skill"], work.caller.scope
            self.begins(name, scope, skill, work.run)
            outcome = "cancelled"
            try:
                await run(work, steps, within)
                outcome = "completed"
            except StepFailed:
                outcome = "failed"
                raise
            finally:
                self.finishes(name, scope, skill, work.run, outcome)

        return watched

    def begins(self, name: str, scope: ScopeId, skill: str, run: str) -> None:
        if name == "invoke":
            self.claim(run not in self.runs, "a run has begun twice", run)
            self.runs[run] = "at work"
            return
        self.claim(not self.at_work[scope, name, str(skill)], "it runs twice at a time", scope, name, skill)
        self.at_work[scope, name, str(skill)] += 1
        if name == "activate":
            self.claim(not self.owed[scope, skill], "it begins before its end", scope, skill)
            self.claim(not self.at_work[scope, "offload", skill], "it begins during its end", scope, skill)
            told = self.hooks.get((scope, skill), [])
            self.claim(("activate", "live") not in told[-1:], "it begins twice", scope, skill)
        elif name == "offload":
            self.claim(self.owed[scope, skill] == 1, "it ends without having begun", scope, skill)
            self.owed[scope, skill] -= 1

    def finishes(self, name: str, scope: ScopeId, skill: str, run: str, outcome: str) -> None:
        if name == "invoke":
            self.runs[run] = outcome
            return
        self.at_work[scope, name, str(skill)] -= 1
        self.reloads_at_finish = self.reloads
        if name == "scope_start":
            self.starts[scope] += outcome == "completed"
            self.claim(self.starts[scope] <= 1, "a scope has started twice", scope)
        else:
            self.hooks.setdefault((scope, skill), []).append((name, outcome))

    def changes(self, scope: ScopeId, before: ScopeState | None, after: ScopeState | None) -> None:
        """The state of a scope changes."""
        if after is None:
            self.starts[scope] = 0
        self.owe(scope, live(before) - live(after))
        for skill in live(after) - live(before):
            told = self.hooks.setdefault((scope, skill), [])
            self.claim(told[-1:] == [("activate", "completed")], "it is active and has not begun", scope, skill, told)
            self.claim(not self.owed[scope, skill], "it is active before its end", scope, skill)
            told.append(("activate", "live"))

    def owe(self, scope: ScopeId, skills: Iterable[str]) -> None:
        """Skills of a scope have ended."""
        for skill in skills:
            self.owed[scope, skill] += 1
            self.hooks[scope, skill].append(("activate", "over"))

    def records(self, run: Run) -> None:
        if run.status == "running":
            return
        self.claim(run.id not in self.recorded, "a run has two records", run)
        self.claim(self.runs.get(run.id) == run.status, "a record is not true", run, self.runs.get(run.id))
        self.recorded[run.id] = run

    def arrives(self, tool: str, caller: Caller, arguments: Json) -> None:
        """A call reaches a server: it may, and knows nothing of others."""
        by, scope = arguments.get("by"), caller.scope
        state = self.gate.store._states.get(scope)  # pyright: ignore[reportAttributeAccessIssue] - the memory store's
        if by is None:
            may = set[str]() if state is None else self.config.clients_may({*state.active} - state.due)
            self.claim(tool in may, "a client reaches a tool that it may not call", tool, state)
        elif by == "start":
            self.claim(tool == "starts", "a start reaches another tool", tool)
        else:
            self.claim(tool in self.config.steps_may(by), "a step reaches a tool that it may not call", tool, by)
        if by != "start" and arguments.get("at") != "offload" and self.config.start:
            self.claim(self.starts[scope] == 1, "a call comes before the start", tool, scope)
        if by is not None:
            known = [value["scope"] for value in arguments["heap"].values() if value is not None]
            self.claim({arguments["namespace"], *known} == {scope.name}, "a scope knows another", arguments)

    def ends(self, scope: ScopeId, state: ScopeState | None) -> None:
        def released() -> None:
            busy = [at for at, number in self.at_work.items() if number and at[0] == scope]
            self.claim(not busy, "its servers are let go while it ends", busy)
            self.claim(scope not in self.begun, "its servers are let go when it is back", scope)
            self.released.add(scope)

        self.over.add(scope)
        self.wired.idling.forget(scope)
        self.wired.hooks.scope_ended(scope, state, released)

    def claim(self, holds: bool, *what: object) -> None:
        if not holds:
            self.wrong.append(what)

    # --- clients

    def call(self, scope: ScopeId, client: int, tool: str, arguments: Json, cancelled_after: int | None) -> None:
        """A client calls a tool, and perhaps cancels after so many turns of the loop."""

        async def work() -> None:
            quick = client == 1  # for the other, results are held a while, in which much can happen
            name = DOES_NOT_REREAD[0] if quick else "somebody"
            caller = Caller(scope, "handshake", f"{scope.name} {client}", name, Channel())
            self.lifetimes.begun(scope)
            self.begun.add(scope)
            try:
                answer = await self.wired.calling.call(caller, {"name": tool, "arguments": arguments})
                if quick and arguments.get("action") == "activate" and not answer.get("isError"):
                    state = await self.gate.state(scope)
                    told = arguments["skill_name"] not in state.due or self.reloads != self.reloads_at_finish
                    self.claim(told, "what has begun has yet to begin", arguments, state)
            except ProxyError:
                pass
            finally:
                await self.lifetimes.ended(scope)

        task = self.clock.create_task(work())
        self.acts.append(task)
        if cancelled_after is not None:
            self.clock.call_soon(self.later, cancelled_after, task.cancel)

    def later(self, turns: int, do: Callable[[], object]) -> None:
        if turns:
            self.clock.call_soon(self.later, turns - 1, do)
        else:
            do()

    @rule(
        acts=st.lists(
            st.tuples(
                st.sampled_from([HERE, HERE, THERE]),
                st.integers(1, 2),
                st.one_of(
                    st.tuples(st.sampled_from(["activate", "activate", "offload"]), st.sampled_from(HOOKED)),
                    st.tuples(st.just("invoke"), st.sampled_from(SKILLS)),
                    st.tuples(st.sampled_from(["call", "skill_call"]), st.sampled_from(TOOLS)),
                ),
                st.none() | st.integers(0, 40),
                st.sampled_from(SPELLINGS) | st.just(SPELLINGS[0]),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def clients_act(self, acts: list[Any]) -> None:
        """Several at once."""
        for scope, client, (action, name), cancelled_after, spelled in acts:
            if action in ("activate", "offload"):
                self.call(scope, client, "SKILL", {"action": action, "skill_name": name}, cancelled_after)
            elif action == "invoke":
                self.call(scope, client, "SKILL_INVOKE", {"skill_name": name}, cancelled_after)
            elif action == "call":
                self.call(scope, client, spelled(name), {}, cancelled_after)
            else:
                self.call(scope, client, "SKILL_CALL", {"tool": spelled(name), "arguments": {}}, cancelled_after)
        self.clock.advance()

    @rule(
        scope=st.sampled_from([HERE, THERE]),
        skill=st.sampled_from(HOOKED),
        cancelled_after=st.none() | st.integers(0, 40),
    )
    def activates_and_uses(self, scope: ScopeId, skill: str, cancelled_after: int | None) -> None:
        """One after the other, while another client of the scope invokes a skill."""
        self.call(scope, 1, "SKILL", {"action": "activate", "skill_name": skill}, cancelled_after)
        self.clock.advance()
        self.call(scope, 1, f"desk__{skill}", {}, None)
        self.call(scope, 2, "SKILL_INVOKE", {"skill_name": "flow"}, cancelled_after)
        self.clock.advance()

    @rule(scope=st.sampled_from([HERE, THERE]), way=st.sampled_from(["offload", "replace"]))
    def gives_up_while_several_end(self, scope: ScopeId, way: str) -> None:
        """The client has activated a skill that brings another one, and cancels while the first of them ends."""
        self.servers["desk"].mood = self.servers["log"].mood = "answers"
        self.call(scope, 1, "SKILL", {"action": "activate", "skill_name": "top"}, None)
        self.clock.advance()
        call = {"offload": ("offload", "top"), "replace": ("activate", "rival")}[way]
        self.call(scope, 1, "SKILL", {"action": call[0], "skill_name": call[1]}, None)
        self.servers["log"].mood = "holds"
        self.clock.advance()
        self.acts[-1].cancel()
        self.clock.advance()

    @precondition(lambda self: any(not act.done() for act in self.acts))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        act = data.draw(st.sampled_from([act for act in self.acts if not act.done()]))
        act.cancel()
        self.clock.advance()

    # --- servers

    @rule(
        server=st.sampled_from(["desk", "desk", "log"]),
        mood=st.sampled_from([*MOODS, "holds", "dawdles", "answers", "answers"]),
    )
    def turns(self, server: str, mood: Mood) -> None:
        self.servers[server].mood = mood

    @precondition(lambda self: any(server.held for server in self.servers.values()))
    @rule(data=st.data(), mood=st.sampled_from(MOODS))
    def lets_go(self, data: st.DataObject, mood: Mood) -> None:
        """A request that hangs goes on; the next ones are met in that mood."""
        server, held = data.draw(
            st.sampled_from([(server, held) for server in self.servers.values() for held in server.held])
        )
        server.mood = mood
        held.let_go.set()
        self.clock.advance()

    # --- time, the configuration and scopes

    @rule(seconds=st.sampled_from([0.5, SHORT_LIMIT + 1, HOOK_TIME, LIMIT + 1]))
    def passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.clock.outcome(self.wired.idling.sweep(self.told))

    async def told(self, scope: ScopeId) -> None: ...

    @rule(
        without=st.frozensets(st.sampled_from(SKILLS), max_size=2),
        denied=st.frozensets(st.sampled_from(["shared", "in-case", "auto", "in-flow"]), max_size=1),
        pinned=st.frozensets(st.sampled_from(["case", "base"]), max_size=1),
        version=st.integers(1, 2),
    )
    def changes_the_file(
        self, without: frozenset[str], denied: frozenset[str], pinned: frozenset[str], version: int
    ) -> None:
        without |= {"top"} if "base" in without else set()
        self.reloads += 1
        self.config = replace(self.config, without=without, denied=denied, pinned=pinned, version=version)
        self.gate.adopt(Policy(catalogue(self.config)), SETTINGS, ())
        self.clock.outcome(self.gate.refit())
        self.clock.advance()

    @precondition(lambda self: self.idle_scopes())
    @rule(data=st.data())
    def scope_ends(self, data: st.DataObject) -> None:
        """As long as nobody uses it; perhaps it is back at once."""
        scope = data.draw(st.sampled_from(self.idle_scopes()))
        self.begun.discard(scope)
        self.released.discard(scope)
        self.clock.outcome(self.lifetimes.end(scope))
        if data.draw(st.booleans()):
            self.clock.advance()

    def idle_scopes(self) -> list[ScopeId]:
        """The scopes that nobody uses, in which something is active that has begun."""
        states = self.gate.store._states  # pyright: ignore[reportAttributeAccessIssue] - the memory store's
        return [scope for scope, state in states.items() if live(state) and scope not in self.lifetimes._in_use]

    # --- the laws

    @invariant()
    def nothing_has_gone_wrong(self) -> None:
        assert not self.wrong, self.wrong
        assert not self.clock.complaints
        assert not self.main.done()
        for act in self.acts:
            if act.done() and not act.cancelled():
                act.result()

    @invariant()
    def what_begins_or_ends_is_not_listed(self) -> None:
        """Nor is anything internal."""
        for scope, state in self.gate.store._states.items():  # pyright: ignore[reportAttributeAccessIssue]
            caller = Caller(scope, "handshake", "list", "", Channel())
            names = {tool["name"] for tool in self.clock.outcome(self.wired.listing.tools(caller))}
            listed = {name.removeprefix("desk__") for name in names if name.startswith("desk__")}
            assert listed == self.config.clients_may(state.active)
            assert not any(tool in name for name in names for tool in INTERNAL)
            for at, name, skill in self.at_work:
                if at == scope and name != "scope_start" and self.at_work[at, name, skill]:
                    assert skill not in live(state), (name, skill)

    @rule()
    def all_is_quiet(self) -> None:
        """Nothing is left to wait for."""
        self.calm_down()
        hooks, invoking = self.wired.hooks, self.wired.invoking
        assert all(act.done() for act in self.acts)
        assert not hooks._turns
        assert not hooks._ending
        assert not invoking._running
        assert not self.wired.idling._in_use
        assert not +self.owed, self.owed
        assert not +self.at_work
        assert {run: self.recorded[run].status for run in self.runs} == self.runs
        assert not self.lifetimes._in_use
        assert {*self.gate.store._states} == self.begun  # pyright: ignore[reportAttributeAccessIssue]
        assert self.over <= self.released | self.begun
        self.acts.clear()

    def calm_down(self) -> None:
        for server in self.servers.values():
            server.mood = "answers"
        while any(server.held for server in self.servers.values()):
            for server in self.servers.values():
                for held in server.held:
                    held.let_go.set()
            self.clock.advance()
        self.clock.advance(QUIET)

    def teardown(self) -> None:
        if not hasattr(self, "main"):
            return
        try:
            self.all_is_quiet()
            self.clock.call_soon(self.leave_off.set)
            self.clock.advance(10)
            assert self.main.done()
            self.main.result()
            assert not self.wrong, self.wrong
            assert not +self.owed, self.owed
            assert not asyncio.all_tasks(self.clock)
        finally:
            for task in asyncio.all_tasks(self.clock):
                task.cancel()
            self.clock.advance(10)
            self.clock.close()


SETTINGS = Settings(call_route="on")


def live(state: ScopeState | None) -> set[str]:
    """The skills that are active and have begun, of those with hooks."""
    return set() if state is None else {*state.active}.difference(state.due).intersection(HOOKED)


TestActing = Acting.TestCase
TestActing.settings = settings(
    law,
    max_examples=60,
    stateful_step_count=30,
    phases=[Phase.generate],  # shrinking so many steps takes longer than a test may
)
