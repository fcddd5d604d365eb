"""Why a client sees a tool or does not: always what the decision says, and ways that lead there."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import relations
from proxy.core.catalogue import EVERYTHING, Allow, Catalogue, Skill
from proxy.core.decision import decide
from proxy.core.explanation import (
    MAX_WAYS,
    MAX_WAYS_BYTES,
    Explanation,
    Surroundings,
    ToolId,
    Verdict,
    Way,
    explain,
    matching,
    told_to_model,
)
from proxy.core.inventory import Inventory, Offer
from proxy.core.names import Naming
from proxy.core.profiles import Policy, Profile
from proxy.core.scope import ScopeState
from proxy.core.settings import Settings
from tests.core.changes import activated, offloaded, tried
from tests.core.strategies import World, allowlists, law, related, worlds

# --- laws ------------------------------------------------------------------------------------------------------------


@st.composite
def scenes(draw: st.DrawFn) -> tuple[World, ScopeState]:
    """A world whose skills require each other, conflict and are pinned, and a state that calls of `SKILL` lead to."""
    world, relating = draw(worlds()), draw(related())
    servers = [*world.catalogue.servers, "switched-off"]
    lists = st.fixed_dictionaries({}, optional={server: allowlists() for server in servers})
    catalogue = replace(
        world.catalogue,
        skills=tuple(replace(skill, tools=draw(lists)) for skill in relating.skills),
        max_active=relating.max_active,
    )
    state = relations.begin(catalogue)
    for change, skill in draw(
        st.lists(
            st.tuples(st.sampled_from((relations.activated, relations.offloaded)), st.sampled_from([*catalogue.by_id])),
            max_size=4,
        )
    ):
        state = tried(change, catalogue, state, skill)
    return World(catalogue, world.inventory, state.active), state


def tools_of(world: World) -> list[ToolId]:
    """Every tool that is offered or spelled, and some that are not."""
    lists = [world.catalogue.denied, *(skill.tools for skill in world.catalogue.skills)]
    spelled = {ToolId(server, name) for each in lists for server, allow in each.items() for name in allow.literals}
    offered = {ToolId(server, tool["name"]) for server, offer in world.inventory.items() for tool in offer.tools}
    return sorted({*spelled, *offered, *(ToolId(server, "absent") for server in world.catalogue.servers)})


def after(catalogue: Catalogue, state: ScopeState, way: Way) -> ScopeState:
    """The state after the calls of a way, each of which succeeds."""
    for skill in way.first:
        state = offloaded(catalogue, state, skill)
    return activated(catalogue, state, way.skill)


def sees(world: World, state: ScopeState, tool: ToolId) -> bool:
    return decide(world.catalogue, state.active, world.inventory).tool_of(*tool) is not None


@law
@given(scene=scenes())
def test_the_verdict_is_the_decision(scene: tuple[World, ScopeState]):
    """Visible now exactly where the decision has it; every way leads there; else no single activation does."""
    world, state = scene
    for tool in tools_of(world):
        found = explain(world.catalogue, state, world.inventory, tool)

        assert (found.verdict is Verdict.VISIBLE) == sees(world, state, tool)
        assert bool(found.ways) == (found.verdict is Verdict.ACTIVATABLE)
        assert bool(found.obstacles) == (found.verdict is Verdict.NEVER)
        for way in found.ways:
            reached = after(world.catalogue, state, way)
            assert reached.active == way.active
            assert sees(world, reached, tool)
        if found.verdict is Verdict.NEVER:
            for skill in world.catalogue.by_id:
                assert not sees(world, tried(relations.activated, world.catalogue, state, skill), tool)


@law
@given(world=worlds())
def test_a_tool_is_found_by_each_of_its_names(world: World):
    """By the name that clients see, its server's and its own."""
    for tool in tools_of(world):
        if tool.server not in world.catalogue.servers or tool.tool == "absent":
            continue
        names = [f"{tool.server}/{tool.tool}", f"{tool.server}.{tool.tool}", world.catalogue.naming.expose(*tool)]
        for name in names:
            assert tool in matching(world.catalogue, world.inventory, name).tools


# --- examples --------------------------------------------------------------------------------------------------------

LOG, PUSH = ToolId("git", "log"), ToolId("git", "push")


def offer(*names: str, **more: object) -> Offer:
    return Offer.of(tools=[{"name": name, **more} for name in names])


GIT: Inventory = {"git": offer("log", "push")}


def skill(id_: str, *tools: str, **more: object) -> Skill:
    made = Skill(id_, "", "", "", tools={"git": Allow.of(tools)} if tools else {})
    return replace(made, **more)  # pyright: ignore[reportArgumentType] - what a test says of one


def catalogue(*skills: Skill, **more: object) -> Catalogue:
    made = Catalogue(("git", "hub"), Naming({"git": "git", "hub": "hub"}), skills)
    return replace(made, **more)  # pyright: ignore[reportArgumentType] - as above


def why(
    of: Catalogue,
    tool: ToolId = LOG,
    around: Surroundings | None = None,
    inventory: Inventory = GIT,
    state: ScopeState | None = None,
) -> Explanation:
    return explain(of, relations.begin(of) if state is None else state, inventory, tool, around)


def test_what_grants_a_tool_is_told_with_the_call_that_helps():
    """Each list by what of it counts."""
    found = why(catalogue(skill("a", "log"), skill("b", "l*"), skill("c", "*"), skill("d", "push")))

    assert found.granting == ("a", "b", "c")
    assert found.chain[:6] == (
        "server: git offers 2 tools",
        "definition: offered as log",
        "list: skill a grants it (its name)",
        "list: skill b grants it (pattern l*)",
        "list: skill c grants it (all tools of git)",
        "deny: nothing denies it",
    )
    assert found.outcome[0] == ('Visible when skill a is active: SKILL({"action": "activate", "skill_name": "a"})')
    assert len(found.outcome) == 3


def test_a_tool_of_active_skills_is_visible_now():
    """And the skills are named."""
    pinned = catalogue(skill("a", "log", pinned=True), skill("b", "log", active=True), skill("c", "log"))

    assert why(pinned).outcome == ("Visible now: skills a, b are active.",)
    assert why(catalogue(skill("a", "log", active=True))).outcome == ("Visible now: skill a is active.",)
    assert [line for line in why(pinned).chain if line.startswith("relation")] == [
        "relation: skill a: pinned",
        "relation: skill b: active",
        "relation: skill c: not active",
    ]


def test_a_skill_in_the_way_is_offloaded_first():
    """By the calls in their order."""
    rivals = catalogue(skill("a", "log", conflicts=("b",)), skill("b", active=True))

    found = why(rivals)

    assert found.outcome == (
        (
            'Visible when skill a is active: SKILL({"action": "offload", "skill_name": "b"}), then '
            'SKILL({"action": "activate", "skill_name": "a"})'
        ),
    )
    assert "relation: skill a: not active; cannot be active beside b" in found.chain


def test_what_a_skill_requires_and_whose_place_it_takes_are_told():
    """Both in the line of its relations."""
    found = why(catalogue(skill("a", "log", requires=("b",), conflicts=("c",), exclusive=True), skill("b"), skill("c")))

    assert "relation: skill a: not active; requires b; takes the place of c" in found.chain


OFF = Surroundings(not_ready={"git": "failed: command not found"})
HELD = Surroundings(held={LOG: ("description", "_meta")})
GONE: Inventory = {"git": offer("push")}


@pytest.mark.parametrize(
    ("of", "inventory", "around", "said"),
    [
        (
            catalogue(skill("a", "log"), servers=("hub",)),
            {},
            None,
            "because server git is switched off; it would be if it were switched on.",
        ),
        (
            catalogue(skill("a", "log")),
            {},
            OFF,
            (
                "because server git offers nothing now (failed: command not found); it would be if server git "
                "ran and offered it."
            ),
        ),
        (
            catalogue(skill("a", "log")),
            GONE,
            HELD,
            "because its definition has changed; it would be if `mcp-skill-proxy pins approve git/log` approved that.",
        ),
        (
            catalogue(skill("a", "log")),
            {"git": offer("logs")},
            None,
            (
                "because server git offers no tool of that name (the nearest is logs); it would be if server git "
                "offered it."
            ),
        ),
        (
            catalogue(skill("a", "log"), denied={"git": Allow.of(["l*"])}),
            GIT,
            None,
            "because black_tool_actions denies it; it would be if black_tool_actions did not.",
        ),
        (
            catalogue(skill("a", "push"), denied={"git": Allow.of(["log"])}),
            GIT,
            None,
            (
                "because black_tool_actions denies it; no skill grants it; it would be if black_tool_actions did not "
                "and the tool_list of a skill had git/log."
            ),
        ),
        (
            catalogue(skill("a", "log"), skill("b", pinned=True, conflicts=("a",))),
            GIT,
            None,
            (
                "because skill a cannot be activated: it conflicts with an active skill (b); it would be if skill b "
                "did not have to stay active."
            ),
        ),
        (
            catalogue(skill("a", "log", requires=("b",)), skill("b"), max_active=1),
            GIT,
            None,
            (
                "because skill a cannot be activated: as many skills are active as may be; it would be if "
                "max_active_skills allowed more."
            ),
        ),
        (
            catalogue(skill("a", "log"), naming=Naming({"git": "", "hub": ""})),
            {**GIT, "hub": offer("log")},
            None,
            ("because hub/log would have the same name; it would be if server git had a prefix of its own."),
        ),
    ],
)
def test_what_never_is_visible_says_why_and_what_would_change_it(
    of: Catalogue, inventory: Inventory, around: Surroundings | None, said: str
):
    """All that stands in the way, and nothing else."""
    found = why(of, around=around, inventory=inventory)

    assert found.outcome == (f"Never visible: {said}",)


def test_the_chain_tells_what_is_wrong_with_each_link():
    """A server that failed or was not asked, a changed definition, a denied tool, a shared and an altered name."""
    one = catalogue(skill("a", "push", internal={"git": Allow.of(["lo?"])}), denied={"git": EVERYTHING})
    assert why(one, around=OFF, inventory={}).chain[0] == "server: git: failed: command not found"
    assert why(one, inventory={}).chain[0] == "server: git: it has not been asked"
    assert why(replace(one, servers=())).chain[0] == "server: git is switched off"
    assert why(one, around=HELD, inventory=GONE).chain[1] == (
        "definition: withheld, since it has changed (description, _meta)"
    )
    assert why(one, inventory=GONE).chain[1] == "definition: not offered as log"
    assert why(one).chain[2:4] == (
        "list: skill a may call it in its steps (pattern lo? of internal_tools)",
        "deny: black_tool_actions takes it from every skill (all tools of git)",
    )
    assert why(catalogue(skill("a"))).chain[2] == "list: no skill names it"


def test_the_name_is_told_with_how_it_was_made():
    """By prefix, without one, altered, and left out where another tool would have it."""

    def name(of: Naming, tool: ToolId = LOG, inventory: Inventory = GIT) -> str:
        chain = why(catalogue(skill("a", "*"), naming=of), tool, inventory=inventory).chain
        return next(line for line in chain if line.startswith("name: "))

    bare = Naming({"git": "", "hub": ""})
    assert name(Naming({"git": "g", "hub": ""})) == "name: g__log, the prefix g before its own name"
    assert name(bare) == "name: log, its own name"
    assert name(bare, ToolId("git", "SKILL")).endswith(", which is altered and ends in a hash of the original")
    twins: Inventory = {**GIT, "hub": offer("log")}
    assert name(bare, inventory=twins) == "name: log is left out: hub/log would have it too"


def test_how_clients_come_to_it_depends_on_the_settings():
    """And on whether it is for the pages of an app."""

    def client(settings: Settings, inventory: Inventory = GIT) -> str:
        around = Surroundings(settings=settings)
        return why(catalogue(skill("a", "log")), around=around, inventory=inventory).chain[-1]

    assert client(Settings()).endswith("call it through SKILL_CALL as git__log")
    assert client(Settings(call_route="on")) == "client: every client can call it through SKILL_CALL as git__log"
    assert "SKILL_CALL is off" in client(Settings(call_route="off"))
    assert client(Settings(listing="stable")).endswith("only where a pinned skill grants it")
    pages = {"git": offer("log", _meta={"ui": {"visibility": ["app"]}})}
    assert client(Settings(), pages).endswith("alone, not for models (_meta.ui.visibility)")


def test_profiles_are_told_with_what_they_may_use():
    """And that the skills of others would help; nothing is said of them where there are none."""
    whole = catalogue(skill("a", "log"), skill("b", "log"), skill("c"))
    profiles = (
        Profile(namespace="x*", principal="al", allowed=Allow.of(["a"])),
        Profile(namespace="y", allowed=Allow.of(["c"])),
        Profile(),
    )
    policy = Policy(whole, profiles)

    found = why(policy.catalogues[1], around=Surroundings(policy))

    assert [line for line in found.chain if line.startswith("profile")] == [
        "profile: 1 (namespace x*, principal al) may use a; may not use b",
        "profile: 2 (namespace y) may not use a, b",
        "profile: 3 (everybody) may use a, b",
    ]
    assert found.outcome == (
        "Never visible: because its profile may not use skills a, b; it would be if the profile had skills a, b.",
    )
    assert not any(line.startswith("profile") for line in why(whole, around=Surroundings(Policy(whole))).chain)
    guarded = Policy(catalogue(skill("a", "log", capabilities=("ship", "sail"))))
    assert (
        "profile: 1 (everybody) may not use a (lacks capability ship, sail)"
        in why(guarded.catalogues[0], around=Surroundings(guarded)).chain
    )
    assert (
        "profile: 1 (namespace y) has no skill that grants it"
        in why(catalogue(skill("c")), around=Surroundings(Policy(catalogue(skill("c")), profiles[1:2]))).chain
    )


def test_a_name_means_every_tool_that_has_it():
    """At all servers, also those that offer nothing now if they are named with it; else the nearest are named."""
    of = catalogue(skill("a", "log"))
    both: Inventory = {"git": offer("log"), "hub": offer("log")}
    assert matching(of, both, "log").tools == (LOG, ToolId("hub", "log"))
    assert matching(of, both, "git/log").tools == (LOG,)
    assert matching(of, {}, "hub__find").tools == (ToolId("hub", "find"),)
    assert matching(of, {}, "hub.find").tools == (ToolId("hub", "find"),)
    assert matching(of, {}, "hub/").tools == ()
    assert matching(of, GONE, "log", [LOG]).tools == (LOG,)
    assert matching(of, GONE, "git/log", [PUSH, ToolId("git", "tag")]).tools == (LOG,)
    found = matching(of, both, "git__lag")
    assert found.tools == ()
    assert found.nearest[0] == "git__log"
    away = catalogue(skill("a", "log"), servers=("hub",), naming=Naming({"hub": "hub"}))
    assert matching(away, {}, "git/other").tools == (ToolId("git", "other"),)


def test_a_model_is_told_of_its_own_skills_alone():
    """Which grant it, and the outcome; within a bound however many there are. None of other profiles."""
    whole = catalogue(skill("a", "log"), skill("hidden", "log", active=True))
    own = Policy(whole, (Profile(allowed=Allow.of(["a"])),)).catalogues[0]
    assert "hidden" not in told_to_model(why(own))
    told = told_to_model(why(catalogue(skill("a", "log"), skill("b", "push"))))
    assert told == (
        'Granted by skill a.\nVisible when skill a is active: SKILL({"action": "activate", "skill_name": "a"})'
    )
    many = catalogue(*(skill(f"skill-{number:04}", "log") for number in range(1_000)))
    found = why(many)
    assert len(found.ways) == MAX_WAYS
    told = told_to_model(found)
    assert told.startswith("Granted by skills skill-0000, skill-0001, ")
    assert " more.\nVisible when skill skill-0000 is active" in told
    assert len(told) < 2 * MAX_WAYS_BYTES + 100
