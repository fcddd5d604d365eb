"""The gate at work, against a model: several scopes over one store, and servers whose offers change."""

from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.core import relations
from proxy.core.catalogue import EVERYTHING, Allow, Catalogue, Skill
from proxy.core.decision import decide
from proxy.core.definitions import Change, Grant
from proxy.core.errors import Rejection, TooManyScopes
from proxy.core.inventory import Inventory, Offer
from proxy.core.names import Naming
from proxy.core.profiles import Policy, Profile
from proxy.core.scope import ScopeId, ScopeState
from proxy.core.settings import Settings, every_kind
from proxy.gateway.gate import DEFAULTS, Gate
from proxy.ports import Link, Status
from proxy.store.memory import MemoryStore
from tests.core.changes import Change as Transition
from tests.core.changes import activated, offloaded, tried

T = TypeVar("T")


def done(work: Coroutine[Any, Any, T]) -> T:
    """The outcome of work that never waits: nothing can get in between."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waited")


SCOPE = ScopeId("process")


class Servers:
    """`Upstreams` that offer what a test says."""

    def __init__(self, offers: Inventory) -> None:
        self.offers = offers
        self.held: dict[ScopeId, set[str]] = {}

    def inventory(self, scope: ScopeId) -> Inventory:
        return self.offers

    async def changed(self, since: int) -> int:
        raise AssertionError(since)

    def status(self, server: str, scope: ScopeId) -> Status:
        return Status("ready" if server in self.offers else "idle")

    def need(self, servers: Iterable[str], scope: ScopeId) -> None:
        raise AssertionError(servers)

    def hold(self, scope: ScopeId, servers: Mapping[str, Grant]) -> None:
        self.held[scope] = set(servers)

    def withheld(self, scope: ScopeId) -> Sequence[Change]:
        raise AssertionError(scope)

    def untold_changes(self, scope: ScopeId) -> Sequence[Change]:
        raise AssertionError(scope)

    async def settled(self, servers: Iterable[str], scope: ScopeId, within: float) -> None:
        raise AssertionError((servers, within))

    def set_levels(self) -> None: ...

    def roots_changed(self, scope: ScopeId) -> None: ...

    def follow_client(self, scope: ScopeId) -> None: ...

    async def watch(
        self,
        uris: Mapping[tuple[str, ScopeId], Collection[str]],
        wait_for: tuple[str, ScopeId] | None = None,
        within: float = 0.0,
    ) -> Mapping[str, Rejection]:
        raise AssertionError((uris, wait_for))

    async def connected(self, server: str, scope: ScopeId) -> Link:
        raise AssertionError(server)


SERVERS = ("gh", "gl", "free")
TEAM = (
    Skill("team", "Team", "", "", tools={"gl": Allow.of(["get_a"])}, requires=("first",)),
    Skill("rival", "Rival", "", "", tools={"gh": Allow.of(["search"])}, conflicts=("all",), exclusive=True),
)
"""`team` brings `first` with it; `rival` takes the place of `all`, which cannot come while it is there."""
TEAM_GRANTS = {"team": {("gl", "get_a")}, "rival": {("gh", "search")}}
CATALOGUE = Catalogue(
    servers=SERVERS,
    naming=Naming({"gh": "gh", "gl": "gl", "free": ""}),
    skills=(
        Skill("always", "Always", "", "", pinned=True, tools={"gl": Allow.of(["search"])}),
        Skill("first", "First", "", "", active=True, tools={"gh": Allow.of(["get_*"])}),
        Skill("all", "All", "", "", tools={"gh": EVERYTHING, "free": EVERYTHING}),
        Skill("guide", "Guide", "", ""),
        *TEAM,
    ),
    denied={"gh": Allow.of(["rm"])},
)
GRANTS = {
    "always": {("gl", "search")},
    "first": {("gh", "get_a"), ("gh", "get_b")},
    "all": {("gh", name) for name in ("search", "get_a", "get_b", "a.b")}
    | {("free", name) for name in ("search", "get_a", "get_b", "a.b", "rm")},
    "guide": set[tuple[str, str]](),
    **TEAM_GRANTS,
}
"""What each skill grants of the tools that the servers may offer, written out."""

OTHER = Catalogue(
    servers=SERVERS,
    naming=CATALOGUE.naming,
    skills=(
        Skill("all", "All", "", "", tools={"gh": Allow.of(["a.b"]), "gl": EVERYTHING}),
        Skill("first", "First", "", "", pinned=True, tools={"gh": Allow.of(["search"])}),
        Skill("guide", "Guide", "", "", active=True),
        *TEAM,
    ),
    denied={"gl": Allow.of(["rm"])},
)
OTHER_GRANTS = {
    "first": {("gh", "search")},
    "all": {("gh", "a.b")} | {("gl", name) for name in ("search", "get_a", "get_b", "a.b")},
    "guide": set[tuple[str, str]](),
    **TEAM_GRANTS,
}
"""The same for the other catalogue: `always` is gone, `first` is pinned, and other tools are on the lists."""


@dataclass(frozen=True)
class Part:
    """What some scopes may use: what each skill grants, which are pinned, which they begin with, and how many fit."""

    grants: Mapping[str, Collection[tuple[str, str]]]
    pinned: tuple[str, ...] = ()
    beginning: tuple[str, ...] = ()
    most: int = 99


@dataclass(frozen=True)
class Configuration:
    """A policy, what of it is for whom, and the servers that are started with a scope, if they are for it."""

    policy: Policy
    everybody: Part
    of_p: Part
    eager: tuple[str, ...] = ()

    @property
    def catalogue(self) -> Catalogue:
        return self.policy.catalogue

    def part(self, scope: ScopeId) -> Part:
        """What is for `scope`: the user `p` has a profile of its own."""
        return self.of_p if "p" in scope[1:] else self.everybody


def without(grants: Mapping[str, Collection[tuple[str, str]]], *skills: str) -> dict[str, Collection[tuple[str, str]]]:
    return {skill: tools for skill, tools in grants.items() if skill not in skills}


CONFIGURATIONS = (
    Configuration(
        Policy(
            CATALOGUE, (Profile(principal="p", denied=Allow.of(["all"]), active=("guide",)), Profile(namespace="*"))
        ),
        everybody=Part(GRANTS, ("always",), ("always", "first")),
        of_p=Part(without(GRANTS, "all"), ("always",), ("always", "guide")),
    ),
    Configuration(
        Policy(OTHER, (Profile(principal="p", denied=Allow.of(["first"]), max_active=1), Profile(namespace="*"))),
        everybody=Part(OTHER_GRANTS, ("first",), ("first", "guide")),
        of_p=Part(without(OTHER_GRANTS, "first", "team"), (), ("guide",), most=1),
        eager=("gl", "free"),
    ),
    Configuration(
        Policy(CATALOGUE, (Profile(principal="p", allowed=Allow.of(["first", "team"])),)),
        everybody=Part({}),
        of_p=Part(without(GRANTS, "always", "all", "guide", "rival"), (), ("first",)),
        eager=("free",),
    ),
)


@dataclass
class Model:
    """What a scope has: the active skills in order, and those of them that are there for themselves."""

    part: Part
    active: list[str] = field(default_factory=list)
    wanted: set[str] = field(default_factory=set)

    def activate(self, skill: str) -> None:
        """What becomes of it, in the words of this machine's few skills."""
        if skill == "all" and "rival" in self.active:
            return
        staying = [other for other in self.active if (skill, other) != ("rival", "all")]
        coming = [one for one in (["first", "team"] if skill == "team" else [skill]) if one not in staying]
        if len({*staying, *coming} - {*self.part.pinned}) > self.part.most:
            return
        self.active = staying + coming
        self.wanted.add(skill)

    def offload(self, skill: str) -> None:
        """Likewise."""
        if skill in self.part.pinned or (skill == "first" and "team" in self.active):
            return
        going = {skill, "first"} if skill == "team" and not {"first"} & {*self.wanted, *self.part.pinned} else {skill}
        self.active = [other for other in self.active if other not in going]
        self.wanted -= going

    def now(self, part: Part) -> "Model":
        """What is left in another configuration."""
        model = Model(part)
        for skill in (*(s for s in self.active if s in self.wanted and s in part.grants), *part.pinned):
            model.activate(skill)
        return model


TOOLS = ("search", "get_a", "get_b", "a.b", "rm")
LIMIT = 1
LIMITS = every_kind(LIMIT)

scopes = st.sampled_from(
    (
        ScopeId("process"),
        ScopeId("namespace", "a"),
        ScopeId("namespace", "a", principal="p"),
        ScopeId("session", "a"),
        ScopeId("principal", "p"),
    )
)
skills = st.sampled_from(tuple(GRANTS))
offered = st.dictionaries(st.sampled_from(SERVERS), st.lists(st.sampled_from(TOOLS), unique=True))


class GateMachine(RuleBasedStateMachine):
    """Clients come, activate, offload, list and call; servers change, catalogue and profiles do; scopes end."""

    @initialize(offers=offered)
    def begin(self, offers: dict[str, list[str]]) -> None:
        self.offers = offers
        self.now = CONFIGURATIONS[0]
        self.servers = Servers({})
        self.store = MemoryStore(LIMITS)
        self.gate = Gate(self.now.policy, self.servers, self.store)
        self.model: dict[ScopeId, Model] = {}
        self.change_offers(offers)

    @rule(offers=offered)
    def change_offers(self, offers: dict[str, list[str]]) -> None:
        self.offers = offers
        self.servers.offers = {
            server: Offer.of(tools=[{"name": name, "at": server} for name in names]) for server, names in offers.items()
        }

    @rule(configuration=st.sampled_from(CONFIGURATIONS))
    def adopt(self, configuration: Configuration) -> None:
        """What is active stays as far as it is there for its scope; what is pinned there comes."""
        self.now = configuration
        self.gate.adopt(configuration.policy, DEFAULTS, configuration.eager)
        for scope in self.model:  # every decision goes by it at once, whatever the scopes' states still hold
            granted = {(route.server, route.original) for route in done(self._sees(scope)).view.tools.values()}
            assert granted == self._granted(scope)
        done(self.gate.refit())
        for scope, model in self.model.items():
            self.model[scope] = model.now(configuration.part(scope))

    @rule(scope=scopes, skill=skills)
    def activate(self, scope: ScopeId, skill: str) -> None:
        if skill in self.now.part(scope).grants and self._comes(scope):
            self._change(relations.activated, scope, skill)
            self.model[scope].activate(skill)

    @rule(scope=scopes, skill=skills)
    def offload(self, scope: ScopeId, skill: str) -> None:
        if self._comes(scope):
            self._change(relations.offloaded, scope, skill)
            self.model[scope].offload(skill)

    @rule(scope=scopes)
    def come(self, scope: ScopeId) -> None:
        known = scope in self.model
        if self._comes(scope):
            state = done(self.gate.state(scope))
            assert known or state.active == self.now.part(scope).beginning

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        scope = data.draw(st.sampled_from(list(self.model)))
        done(self.store.remove(scope))
        del self.model[scope]

    @rule(scope=scopes, server=st.sampled_from(SERVERS), tool=st.sampled_from(TOOLS))
    def look_up(self, scope: ScopeId, server: str, tool: str) -> None:
        """A call goes by one look-up in the very view that is listed."""
        if not self._comes(scope):
            return
        found = done(self._sees(scope)).view.tools.get(CATALOGUE.naming.expose(server, tool))
        assert (found is not None) is ((server, tool) in self._granted(scope))
        if found is not None:
            assert (found.server, found.original, found.definition["at"]) == (server, tool, server)

    @rule(scope=scopes, tool=st.sampled_from(TOOLS))
    def look_up_by_own_name(self, scope: ScopeId, tool: str) -> None:
        """A server's own name leads to a tool that is granted, where no other has it and none is exposed as it."""
        if not self._comes(scope):
            return
        owners = {server for server, name in self._granted(scope) if name == tool}
        if tool in self.offers.get("free", []) and tool != "a.b":  # exposed as it is: it always means that one
            owners &= {"free"}
        found = done(self._sees(scope)).view.tool(tool)
        assert (None if found is None else found.server) == (owners.pop() if len(owners) == 1 else None)
        assert found is None or found.original == tool

    @invariant()
    def every_scope_sees_its_own_and_nothing_else(self) -> None:
        assert set(done(self.store.scopes())) == set(self.model)
        for scope, model in self.model.items():
            assert list(done(self.gate.state(scope)).active) == model.active
            sight = done(self._sees(scope))
            assert {(route.server, route.original) for route in sight.view.tools.values()} == self._granted(scope)

    @invariant()
    def what_is_listed_is_callable_and_nothing_else(self) -> None:
        for scope, model in self.model.items():
            sight = done(self._sees(scope))
            assert [tool["name"] for tool in sight.tools] == [*self._own(scope), *sight.view.tools]
            assert sight.view == decide(self.now.catalogue, model.active, self.servers.offers)

    @invariant()
    def every_scope_is_told_of_its_own_skills_alone(self) -> None:
        for scope, model in self.model.items():
            sight = done(self._sees(scope))
            assert {prompt["name"] for prompt in sight.prompts} == model.part.grants.keys()
            assert {resource["name"] for resource in sight.resources} == model.part.grants.keys()
            for tool in sight.tools[: len(self._own(scope))]:
                assert {*tool["inputSchema"]["properties"]["skill_name"]["enum"]} == model.part.grants.keys()

    @invariant()
    def every_scope_holds_the_servers_of_what_is_active_in_it(self) -> None:
        for scope, model in self.model.items():
            named = {server for skill in model.part.grants for server in self.now.catalogue.by_id[skill].servers}
            held = {*self.now.catalogue.servers_of(model.active), *named.intersection(self.now.eager)}
            assert self.servers.held.get(scope, set()) == held, (scope, model)

    @invariant()
    def the_stable_list_is_that_of_pinned_skills(self) -> None:
        for scope in self.model:
            names = [tool["name"] for tool in self.gate.sight(scope, self.gate.catalogue(scope).pinned).tools]
            part = self.model[scope].part
            pinned_tools = [tool for skill in part.pinned for tool in part.grants[skill]]
            assert names == [
                *self._own(scope),
                *(f"{server}__{name}" for server, name in pinned_tools if name in self.offers.get(server, [])),
            ]

    @invariant()
    def clients_are_told_of_the_list_that_they_see(self) -> None:
        stable = Gate(self.now.policy, self.servers, self.gate.store, Settings(listing="stable"))
        for scope, model in self.model.items():
            for gate, seen in ((self.gate, model.active), (stable, model.part.pinned)):
                shown, known = gate.shown(scope, model.active), gate.lists(scope, model.active)
                assert shown is gate.sight(scope, seen)
                assert known.keys() == shown.digests.keys()
                for kind, digest in shown.digests.items():
                    assert known[kind].startswith(digest)

    async def _sees(self, scope: ScopeId):
        return self.gate.sight(scope, (await self.gate.state(scope)).active)

    def _granted(self, scope: ScopeId) -> set[tuple[str, str]]:
        there = {(server, name) for server, names in self.offers.items() for name in names}
        grants = self.now.part(scope).grants
        return there & {tool for skill in self.model[scope].active for tool in grants.get(skill, ())}

    def _own(self, scope: ScopeId) -> list[str]:
        """Our own tools: none where no skill is for the scope (rule 15)."""
        return ["SKILL"] if self.model[scope].part.grants else []

    def _change(self, change: Transition, scope: ScopeId, skill: str) -> None:
        done(self.gate.change(scope, lambda state: tried(change, self.gate.catalogue(scope), state, skill)))

    def _comes(self, scope: ScopeId) -> bool:
        """Whether there is room for `scope`; where there is none it is refused, and nobody else suffers."""
        if scope in self.model:
            return True
        if scope.kind == "process" or sum(other.kind == scope.kind for other in self.model) < LIMIT:
            part = self.now.part(scope)
            self.model[scope] = Model(part, [*part.beginning], {*part.beginning})
            return True
        with pytest.raises(TooManyScopes):
            done(self.gate.state(scope))
        return False


TestGate = GateMachine.TestCase
TestGate.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


# --- one thing at a time ---------------------------------------------------------------------------------------------

HERE = ScopeId("process")


class Contested(MemoryStore):
    """A store in which others get in between before the first swaps."""

    def __init__(self, others: int) -> None:
        super().__init__(LIMITS)
        self.others = others

    async def swap(self, scope: ScopeId, old: ScopeState | None, new: ScopeState) -> bool:
        if self.others:
            self.others -= 1
            known = old or ScopeState()
            await super().swap(scope, old, replace(known, active=(*known.active, f"other {self.others}")))
        return await super().swap(scope, old, new)


def test_a_change_that_somebody_got_in_between_is_tried_again():
    """On what the other left: neither change is lost (rule 13)."""
    gate = Gate(Policy(CATALOGUE), Servers({}), Contested(others=2))

    state = done(gate.change(HERE, lambda state: activated(CATALOGUE, state, "guide")))

    assert state.active == ("other 1", "other 0", "guide")
    assert done(gate.state(HERE)) is state


class Remembering(MemoryStore):
    """A store that has one earlier run's state for every scope."""

    def __init__(self, state: ScopeState) -> None:
        super().__init__(LIMITS)
        self.state = state

    async def remembered(self, scope: ScopeId) -> ScopeState | None:
        return self.state


def test_a_scope_begins_with_what_an_earlier_run_knew_of_it():
    """Brought up to today's catalogue; exactly the servers of these skills are started, and its lists are known."""
    servers = Servers({"gh": Offer.of(tools=[{"name": "search"}])})
    before = ScopeState(active=("guide", "gone"), offloaded=frozenset({"first"}))
    gate = Gate(Policy(CATALOGUE), servers, Remembering(before))

    state = done(gate.state(HERE))

    assert state.active == ("guide", "always")
    assert state.offloaded == {"first"}
    assert state.lists == gate.lists(HERE, state.active)
    assert servers.held == {HERE: {"gl"}}


def test_what_is_remembered_counts_when_a_scope_begins_alone():
    """Later changes are made to what it is by then."""
    gate = Gate(Policy(CATALOGUE), Servers({}), Remembering(ScopeState(active=("all", "always"))))

    done(gate.change(HERE, lambda state: offloaded(CATALOGUE, state, "all")))

    assert done(gate.state(HERE)).active == ("always",)


def test_a_change_that_changes_nothing_swaps_nothing():
    """The record stays the very object it was."""
    gate = Gate(Policy(CATALOGUE), Servers({}), MemoryStore(LIMITS))
    state = done(gate.state(HERE))

    assert done(gate.change(HERE, lambda same: activated(CATALOGUE, same, "first"))) is state


def test_a_sight_is_looked_at_once_while_nothing_changes():
    """Per active set, whatever the order of activation; a new inventory makes it new (section 12)."""
    servers = Servers({"gh": Offer.of(tools=[{"name": "get_a"}])})
    gate = Gate(Policy(CATALOGUE), servers, MemoryStore(LIMITS))

    sight = gate.sight(SCOPE, ("first", "all"))
    assert gate.sight(SCOPE, ["all", "first"]) is sight
    assert gate.sight(SCOPE, ["all"]) is not sight

    servers.offers = dict(servers.offers)
    again = gate.sight(SCOPE, ("first", "all"))
    assert again is not sight
    assert again == sight


def changed_lists(before: Collection[str], after: Collection[str], offer: Offer) -> set[str]:
    gate = Gate(Policy(CATALOGUE), Servers({"gh": offer}), MemoryStore(LIMITS))
    one, other = gate.sight(SCOPE, before).digests, gate.sight(SCOPE, after).digests
    return {kind for kind in one if one[kind] != other[kind]}


def test_digests_tell_which_lists_differ():
    """One for each list that clients hear of; resources and their templates are one (rule 17)."""
    everything = Offer.of(
        tools=[{"name": "get_a"}], resources=[{"uri": "x:1"}], templates=[], prompts=[{"name": "review"}]
    )

    assert changed_lists([], ["all"], everything) == {"tools", "resources", "prompts"}
    assert changed_lists(["all"], ["all", "first"], everything) == set()
    assert changed_lists([], ["first"], everything) == {"tools"}
    assert changed_lists([], ["all"], Offer.of(templates=[{"uriTemplate": "x:{n}"}])) == {"resources"}
    assert changed_lists([], ["guide"], everything) == set()


def test_without_a_skill_there_is_no_skill_tool():
    """Nothing is offered (rule 15)."""
    servers = Servers({"gh": Offer.of(tools=[{"name": "a"}])})
    gate = Gate(Policy(Catalogue(("gh",), Naming({"gh": "gh"}))), servers, MemoryStore(LIMITS))

    assert gate.sight(SCOPE, ()).tools == []


def test_what_a_client_gets_is_the_definition_under_the_exposed_name():
    """All else as the server sent it (rule 30)."""
    offer = Offer.of(
        tools=[{"name": "get_a", "x": [1.0]}], prompts=[{"name": "p", "y": None}], resources=[{"uri": "x:1"}]
    )

    sight = Gate(Policy(CATALOGUE), Servers({"gh": offer}), MemoryStore(LIMITS)).sight(SCOPE, ["all"])

    assert sight.tools[1:] == [{"name": "gh__get_a", "x": [1.0]}]
    assert sight.prompts[len(CATALOGUE.skills) :] == [{"name": "gh__p", "y": None}]
    assert sight.resources[len(CATALOGUE.skills) :] == [{"uri": "x:1"}]
