"""The gate: what is exposed, in which order, and what is said of the rest (design rules 1 to 8)."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import relations
from proxy.core.catalogue import EVERYTHING, NOTHING, Allow, Catalogue, Skill
from proxy.core.decision import Absence, Missing, Start, Step, View, clashes, decide, missing, union
from proxy.core.inventory import Inventory, Json, Offer
from proxy.core.names import Naming
from proxy.core.namespaced import Source
from proxy.core.scope import ScopeState
from proxy.core.steps import calls
from tests.core.changes import activated, offloaded, tried
from tests.core.strategies import (
    World,
    active_sets,
    allowlists,
    catalogues,
    inventories,
    law,
    names,
    pools,
    shuffled,
    worlds,
)

# --- laws ------------------------------------------------------------------------------------------------------------


def on(allow: Allow | None, name: str) -> bool:
    """The model of an allowlist."""
    return allow is not None and (allow.everything or any(name == e or fnmatchcase(name, e) for e in allow.entries))


def granted(catalogue: Catalogue, skills: Iterable[str], server: str, tool: str) -> bool:
    """The model of the gate: whether any of these skills grants a tool."""
    return not on(catalogue.denied.get(server), tool) and any(
        on(skill.tools.get(server), tool) for skill in catalogue.skills if skill.id in skills
    )


def offered(world: World) -> list[tuple[str, str]]:
    """Every tool that a server offers and that is not denied: (server, original name)."""
    return [
        (server, tool["name"])
        for server in world.catalogue.servers
        if server in world.inventory
        for tool in world.inventory[server].tools
        if not on(world.catalogue.denied.get(server), tool["name"])
    ]


def met(world: World) -> set[str]:
    """Exposed names that two offered tools would have."""
    counted = Counter(world.catalogue.naming.expose(*tool) for tool in offered(world))
    return {name for name, count in counted.items() if count > 1}


def originals(view: View) -> set[tuple[str, str]]:
    return {(route.server, route.original) for route in view.tools.values()}


def assert_acting(world: World, view: View, expected: Iterable[tuple[str, str]]) -> None:
    """What is seen is these tools, but those that meet, and nothing else; as their servers describe them."""
    assert originals(view) == {tool for tool in expected if world.catalogue.naming.expose(*tool) not in met(world)}
    assert view == View(tools=view.tools, prompts={}, resources=(), templates=())
    for route in view.tools.values():
        assert not route.bound
        assert any(route.definition is tool for tool in world.inventory[route.server].tools)


def bytes_of(view: View) -> str:
    """A view as a client would get it."""
    tools = [{**route.definition, "name": name} for name, route in view.tools.items()]
    prompts = [{**route.definition, "name": name} for name, route in view.prompts.items()]
    rest = [(route.exposed, route.server, route.definition) for route in (*view.resources, *view.templates)]
    return json.dumps([tools, prompts, rest, [(route.exposed, route.definition) for route in view.skills]])


@law
@given(worlds())
def test_exactly_what_active_skills_grant_is_exposed(world: World):
    """Never outside the union of the allowlists, never a denied tool, never one of two that meet."""
    view = decide(world.catalogue, world.active, world.inventory)
    expected = {tool for tool in offered(world) if granted(world.catalogue, world.active, *tool)}

    assert originals(view) == {tool for tool in expected if world.catalogue.naming.expose(*tool) not in met(world)}


@law
@given(worlds())
def test_what_is_listed_leads_to_the_tool_it_stands_for(world: World):
    """By table: the exposed name, the server's own name, and the definition as the server sent it."""
    view = decide(world.catalogue, world.active, world.inventory)

    for name, route in view.tools.items():
        assert name == route.exposed == world.catalogue.naming.expose(route.server, route.original)
        assert any(route.definition is tool for tool in world.inventory[route.server].tools)
        assert route.definition["name"] == route.original


@law
@given(st.data())
def test_a_tool_has_one_name_whatever_else_runs_or_is_active(data: st.DataObject):
    """In every inventory and with every set of active skills (rule 19)."""
    pool = data.draw(pools)
    catalogue = data.draw(catalogues(pool))
    shown: dict[tuple[str, str], str] = {}
    for _ in range(2):
        view = decide(catalogue, data.draw(active_sets(catalogue)), data.draw(inventories(catalogue.servers, pool)))
        for route in view.tools.values():
            assert shown.setdefault((route.server, route.original), route.exposed) == route.exposed


@law
@given(world=worlds(), data=st.data())
def test_the_view_grows_with_the_active_skills(world: World, data: st.DataObject):
    """One skill more takes nothing away, of any kind."""
    more = {*world.active, *data.draw(active_sets(world.catalogue))}
    less, all_of_it = (decide(world.catalogue, active, world.inventory) for active in (world.active, more))

    assert set(less.tools) <= set(all_of_it.tools)
    assert set(less.prompts) <= set(all_of_it.prompts)
    for kind in ("resources", "templates", "skills", "whole", "with_folders"):
        assert all(entry in getattr(all_of_it, kind) for entry in getattr(less, kind))


@law
@given(world=worlds(), data=st.data())
def test_the_list_is_the_same_to_the_byte_however_it_came_about(world: World, data: st.DataObject):
    """By the server's place in the file, then by the tool's original name (rule 8, B09)."""
    view = decide(world.catalogue, world.active, world.inventory)
    order = [(world.catalogue.servers.index(route.server), route.original) for route in view.tools.values()]
    assert order == sorted(order)

    inventory: Inventory = {
        server: Offer(
            tools=tuple(shuffled(data.draw, world.inventory[server].tools)),
            resources=world.inventory[server].resources,
            templates=world.inventory[server].templates,
            prompts=world.inventory[server].prompts,
            skills=world.inventory[server].skills,
            extension=world.inventory[server].extension,
        )
        for server in shuffled(data.draw, world.inventory)
    }
    active = shuffled(data.draw, world.active)
    assert bytes_of(decide(world.catalogue, active, inventory)) == bytes_of(view)


@law
@given(world=worlds(), skill=st.sampled_from(("s1", "s2", "s3", "no such skill")))
def test_a_step_sees_exactly_what_its_skill_grants_and_its_internal_tools(world: World, skill: str):
    """Without what is denied, whatever is active; tools alone, as their servers describe them."""
    view = decide(world.catalogue, world.active, world.inventory, Step(skill))

    lists = [(one.tools, one.internal) for one in world.catalogue.skills if one.id == skill]
    expected = {
        (server, tool)
        for server, tool in offered(world)
        if any(on(allows.get(server), tool) for both in lists for allows in both)
    }
    assert_acting(world, view, expected)


@law
@given(worlds())
def test_what_a_scope_starts_with_sees_exactly_what_its_steps_name(world: World):
    """Without what is denied, whatever is active; those side by side count, and skills that they run grant nothing."""
    view = decide(world.catalogue, world.active, world.inventory, Start())

    named = {(call.server, call.tool) for call in calls(world.catalogue.on_start)}
    assert_acting(world, view, named.intersection(offered(world)))


@law
@given(worlds())
def test_a_client_never_sees_an_internal_tool_whatever_is_active(world: World):
    """It sees what it would see if no skill and no start did anything by itself."""
    plain = replace(
        world.catalogue, skills=tuple(replace(one, internal={}) for one in world.catalogue.skills), on_start=()
    )

    assert decide(world.catalogue, world.active, world.inventory) == decide(plain, world.active, world.inventory)


@law
@given(worlds())
def test_a_tool_is_found_by_its_server_and_its_own_name_exactly_where_it_is_seen(world: World):
    """By which steps name it."""
    view = decide(world.catalogue, world.active, world.inventory)

    for server, tool in offered(world):
        found = view.tool_of(server, tool)
        assert (found is not None) is ((server, tool) in originals(view))
        assert found is None or view.tools[found.exposed] is found
    assert view.tool_of("no such server", "search") is None


def called_so(world: World) -> set[str]:
    """The exposed names of all tools that are offered, or that some skill names, shown or not."""
    literals = [
        (server, name)
        for skill in world.catalogue.skills
        for server, allow in skill.tools.items()
        if server in world.catalogue.servers
        for name in allow.literals
        if not on(world.catalogue.denied.get(server), name)
    ]
    return {world.catalogue.naming.expose(*tool) for tool in (*offered(world), *literals)}


@law
@given(worlds())
def test_a_servers_own_name_leads_to_the_one_tool_that_is_shown_and_has_it(world: World):
    """Where no tool is called so, shown or not, and neither is one of ours (MCP Apps)."""
    view = decide(world.catalogue, world.active, world.inventory)

    counted = Counter(route.original for route in view.tools.values())
    expected = {
        route.original: route
        for route in view.tools.values()
        if counted[route.original] == 1
        and route.original not in called_so(world)
        and route.original.casefold() not in ("skill", "skill_call", "skill_invoke")
    }
    assert view.by_own_name == expected
    for name in {*expected, *counted, *view.tools}:
        assert view.tool(name) is (view.tools.get(name) or expected.get(name))


@law
@given(worlds())
def test_a_name_of_a_tool_never_leads_to_another(world: World):
    """Whatever is active, and however servers call their tools: what is not shown is not reached by any name."""
    view = decide(world.catalogue, world.active, world.inventory)

    for name in called_so(world):
        found = view.tool(name)
        assert found is None or found.exposed == name
    for server, tool in set(offered(world)) - originals(view):
        found = view.tool(tool)
        assert found is None or (found.server, found.original) != (server, tool)


@law
@given(worlds())
def test_with_nothing_active_nothing_is_granted(world: World):
    """Of no kind (rule 2)."""
    assert decide(world.catalogue, (), world.inventory) == View({}, {}, (), ())
    assert decide(world.catalogue, ("no such skill",), world.inventory) == View({}, {}, (), ())


@law
@given(worlds())
def test_resources_and_prompts_come_with_all_tools_or_by_their_own_lists(world: World):
    """Rule 6, in words of its own."""
    skills = [skill for skill in world.catalogue.skills if skill.id in world.active]
    view = decide(world.catalogue, world.active, world.inventory)
    resources: list[tuple[str, Json]] = []
    prompts: dict[tuple[str, str], str] = {}
    everybody = Counter[str]()
    for server in world.catalogue.servers:
        offer = world.inventory.get(server, Offer())
        every_tool = any(skill.tools.get(server, NOTHING).everything for skill in skills)
        for entry in (*offer.resources, *offer.templates):
            keys = [entry.get(key) for key in ("uri", "uriTemplate", "name")]
            if every_tool or any(on(s.resources.get(server), key) for s in skills for key in keys if key is not None):
                resources.append((server, entry))
        for prompt in offer.prompts:
            everybody[world.catalogue.naming.expose(server, prompt["name"])] += 1
            if every_tool or any(on(skill.prompts.get(server), prompt["name"]) for skill in skills):
                prompts[server, prompt["name"]] = world.catalogue.naming.expose(server, prompt["name"])

    found = [(route.server, route.definition) for route in (*view.resources, *view.templates)]
    assert Counter(map(repr, found)) == Counter(map(repr, resources))
    assert {(route.server, route.original): name for name, route in view.prompts.items()} == {
        prompt: name for prompt, name in prompts.items() if everybody[name] == 1
    }


@law
@given(lists=st.lists(allowlists(), max_size=4), name=names, data=st.data())
def test_a_union_allows_what_one_of_its_lists_allows(lists: list[Allow], name: str, data: st.DataObject):
    """In any order; everything in one place is everything."""
    both = union(lists)

    assert both.allows(name) is any(allow.allows(name) for allow in lists)
    assert both.everything is any(allow.everything for allow in lists)
    assert union(shuffled(data.draw, lists)).allows(name) is both.allows(name)


@st.composite
def asked(draw: st.DrawFn) -> tuple[World, ScopeState, str]:
    """A world, what a scope went through in it, and a name that somebody asks for."""
    world = draw(worlds())
    state = ScopeState()
    for skill in world.active:
        state = tried(relations.activated, world.catalogue, state, skill)
    for skill in draw(active_sets(world.catalogue)):
        state = tried(relations.offloaded, world.catalogue, state, skill)
    literals = [
        (server, literal)
        for skill in world.catalogue.skills
        for server, allow in skill.tools.items()
        if server in world.catalogue.servers
        for literal in allow.literals
    ]
    known = [world.catalogue.naming.expose(*tool) for tool in (*offered(world), *literals)]
    return world, state, draw(st.sampled_from([*known, "search"]) if known else names)


@law
@given(asked())
def test_a_refusal_never_names_a_skill_that_does_not_help(case: tuple[World, ScopeState, str]):
    """The named skill grants a tool of that very name at that very server; it is active only if the server is away."""
    world, state, name = case
    found = missing(world.catalogue, state, world.inventory, name)
    if found is None:
        return
    skill = world.catalogue.by_id[found.skill]
    offer = world.inventory.get(found.server, Offer())
    named = {name for skill in world.catalogue.skills for name in skill.tools.get(found.server, NOTHING).literals}
    tools = [*named, *(tool["name"] for tool in offer.tools)]

    assert found.server in skill.servers
    assert any(
        world.catalogue.naming.expose(found.server, tool) == name
        and granted(world.catalogue, [found.skill], found.server, tool)
        for tool in tools
    )
    assert (found.why is Absence.UNAVAILABLE) is (found.skill in state.active)


@law
@given(worlds())
def test_nothing_is_missing_that_is_exposed(world: World):
    """Whoever asks by mistake is not told that a server is away."""
    state = ScopeState(active=world.active)

    for name in decide(world.catalogue, world.active, world.inventory).tools:
        assert missing(world.catalogue, state, world.inventory, name) is None


@law
@given(asked())
def test_what_a_skill_would_bring_is_not_called_unknown(case: tuple[World, ScopeState, str]):
    """If activating some skill exposes the name, the refusal names a skill; the caller can help itself (rule 7)."""
    world, state, name = case
    if name in decide(world.catalogue, state.active, world.inventory).tools:
        return
    helping = [s.id for s in world.catalogue.skills if name in decide(world.catalogue, [s.id], world.inventory).tools]

    found = missing(world.catalogue, state, world.inventory, name)

    assert bool(helping) <= (found is not None)


# --- examples --------------------------------------------------------------------------------------------------------


def skill(
    id_: str,
    tools: dict[str, Allow] | None = None,
    resources: dict[str, Allow] | None = None,
    prompts: dict[str, Allow] | None = None,
) -> Skill:
    return Skill(id_, id_, "", "", tools=tools or {}, resources=resources or {}, prompts=prompts or {})


def catalogue(*skills: Skill, denied: dict[str, Allow] | None = None, **prefixes: str) -> Catalogue:
    servers = {"gh": "gh", "gl": "gl", **prefixes}
    return Catalogue(tuple(servers), Naming(servers), skills, denied or {})


def offer(*tools: str) -> Offer:
    return Offer.of(tools=[{"name": name} for name in tools])


GH: Inventory = {"gh": offer("list_issues", "get_issue", "delete_repo")}


def shown(catalogue: Catalogue, inventory: Inventory, *active: str) -> list[str]:
    return list(decide(catalogue, active, inventory).tools)


@pytest.mark.parametrize(
    ("allow", "tools"),
    [
        (EVERYTHING, ["gh__delete_repo", "gh__get_issue", "gh__list_issues"]),
        (Allow.of(["*"]), ["gh__delete_repo", "gh__get_issue", "gh__list_issues"]),
        (Allow.of(["list_issues"]), ["gh__list_issues"]),
        (Allow.of(["get_*", "list_issues"]), ["gh__get_issue", "gh__list_issues"]),
        (Allow.of(["l"]), []),
        (NOTHING, []),
    ],
)
def test_a_skill_grants_what_its_list_says(allow: Allow, tools: list[str]):
    """Everything, names, patterns; a name is never its letters or its beginning (rule 4, B07)."""
    assert shown(catalogue(skill("s", {"gh": allow})), GH, "s") == tools


def test_a_skill_without_a_tool_list_is_instructions_only():
    """It grants nothing anywhere (rule 4, B07)."""
    assert decide(catalogue(skill("s")), ("s",), GH) == View({}, {}, (), ())


@pytest.mark.parametrize("order", [("all", "one"), ("one", "all")])
def test_everything_wins_whatever_the_order(order: tuple[str, str]):
    """Of the file or of activation (rule 3, B07)."""
    lists = {"all": EVERYTHING, "one": Allow.of(["list_issues"])}

    both = catalogue(*(skill(id_, {"gh": lists[id_]}) for id_ in order))

    assert len(shown(both, GH, *order)) == len(shown(both, GH, *reversed(order))) == 3
    assert shown(both, GH, "one") == ["gh__list_issues"]


def test_deny_beats_allow():
    """A denied tool is granted by no skill, everything or literal, and no refusal promises it (rule 5)."""
    skills = (skill("all", {"gh": EVERYTHING}), skill("one", {"gh": Allow.of(["delete_repo"])}))
    denying = catalogue(*skills, denied={"gh": Allow.of(["delete_*"])})

    assert shown(denying, GH, "all", "one") == ["gh__get_issue", "gh__list_issues"]
    assert shown(denying, GH, "one") == []
    assert missing(denying, ScopeState(), GH, "gh__delete_repo") is None


@pytest.mark.parametrize(
    "spelling",
    ["delete_repo", "gh__Delete_repo", "GH__delete_repo", "gh__delete_repo ", "gh_delete_repo", "gh.delete_repo", ""],
)
def test_another_spelling_is_not_the_tool(spelling: str):
    """Names are looked up in a table; nothing is guessed (rules 1 and 20, B05)."""
    all_of_gh = catalogue(skill("all", {"gh": EVERYTHING}))

    view = decide(all_of_gh, ("all",), GH)
    assert spelling not in view.tools
    assert (view.tool(spelling) is None) is (spelling != "delete_repo")  # that is its server's own name for it
    assert missing(all_of_gh, ScopeState(), GH, spelling) is None


def test_a_tool_can_be_called_as_its_server_calls_it():
    """As pages of MCP Apps do, which know no other name; the route is that of the exposed name."""
    view = decide(catalogue(skill("s", {"gh": Allow.of(["list_*"])})), ("s",), GH)

    assert view.tool("list_issues") is view.tools["gh__list_issues"]
    assert view.tool("get_issue") is None


def test_a_name_that_two_servers_have_leads_nowhere():
    """Of those that are shown; one that is hidden stands in nobody's way."""
    both: Inventory = {"gh": offer("search"), "gl": offer("search")}
    two = catalogue(skill("one", {"gh": EVERYTHING}), skill("other", {"gl": EVERYTHING}))

    assert decide(two, ("one", "other"), both).tool("search") is None
    found = decide(two, ("other",), both).tool("search")
    assert found is not None
    assert found.server == "gl"


@pytest.mark.parametrize("offered", [True, False])
def test_the_exposed_name_of_a_tool_means_that_tool_alone(offered: bool):
    """Also while it is hidden, or only named by a skill: the name must not mean this now and that later."""
    named = catalogue(skill("s", {"gh": EVERYTHING}), skill("t", {"free": Allow.of(["search"])}), free="")
    both: Inventory = {"gh": offer("search")} | ({"free": offer("search")} if offered else {})

    assert decide(named, ("s",), both).tool("search") is None
    found = decide(named, ("s", "t"), both).tool("search")
    assert (found is not None and found.server == "free") is offered


@pytest.mark.parametrize("name", ["SKILL", "SKILL_CALL", "SKILL_INVOKE", "skill_call", "report"])
def test_the_names_of_our_own_tools_and_of_skills_lead_to_no_server(name: str):
    """Also to a client that is not shown that tool: `report` is a skill that is a tool while it is active (rule 19)."""
    naming = Naming({"gh": "gh"}, skills=frozenset({"report"}), tools=frozenset({"report"}))
    ours = Catalogue(("gh",), naming, (skill("s", {"gh": EVERYTHING}), skill("report")))

    view = decide(ours, ("s",), {"gh": offer(name, "other")})

    assert view.tool(name) is None
    assert view.tool("other") is not None


# --- pages of MCP Apps -----------------------------------------------------------------------------------------------


def with_page(name: str, uri: object) -> Json:
    return {"name": name, "_meta": {"ui": {"resourceUri": uri}}}


PAGES: Inventory = {
    "gh": Offer.of(tools=[with_page("show", "ui://gh/show"), with_page("hide", "ui://gh/hide"), {"name": "plain"}]),
    "gl": Offer.of(tools=[with_page("show", "ui://gh/show"), with_page("open", "https://gl.example/")]),
}


def test_a_page_belongs_to_the_first_server_with_a_tool_that_is_shown_with_it():
    """In the order of the file; of a tool that is hidden or denied there is none, and so of one without a page."""
    both = catalogue(skill("gh", {"gh": Allow.of(["show", "plain"])}), skill("gl", {"gl": EVERYTHING}))

    assert decide(both, ("gl", "gh"), PAGES).page_owner("ui://gh/show") == "gh"
    assert decide(both, ("gl",), PAGES).page_owner("ui://gh/show") == "gl"
    assert decide(both, (), PAGES).page_owner("ui://gh/show") is None
    for uri in ("ui://gh/hide", "ui://gh/show/", "UI://gh/show", "https://gl.example/", ""):
        assert decide(both, ("gh", "gl"), PAGES).page_owner(uri) is None
    denying = catalogue(skill("gh", {"gh": EVERYTHING}), denied={"gh": Allow.of(["show"])})
    assert decide(denying, ("gh",), PAGES).page_owner("ui://gh/show") is None
    assert decide(denying, ("gh",), PAGES).page_owner("ui://gh/hide") == "gh"


def test_of_several_servers_that_have_a_uri_the_one_that_handed_it_out_is_meant():
    """Of those alone: what others hand out changes nothing."""
    inventory: Inventory = {
        "gh": Offer.of(tools=[with_page("show", "ui://both")], resources=[{"uri": "x:1"}]),
        "gl": Offer.of(tools=[with_page("show", "ui://both")], resources=[{"uri": "x:1"}]),
    }
    view = decide(catalogue(skill("s", {"gh": EVERYTHING, "gl": EVERYTHING})), ("s",), inventory)

    for find, uri in ((view.lister_of, "x:1"), (view.page_owner, "ui://both")):
        assert [find(uri, giver) for giver in (None, "gh", "gl", "other")] == ["gh", "gh", "gl", "gh"]


def test_a_page_is_no_resource_that_is_listed():
    """To be granted a tool is to be granted its page, and nothing else of its server."""
    one = catalogue(skill("gh", {"gh": Allow.of(["show"])}))
    inventory = {"gh": replace(PAGES["gh"], resources=({"uri": "ui://gh/show"}, {"uri": "ui://gh/other"}))}

    view = decide(one, ("gh",), inventory)

    assert view.resources == ()
    assert view.page_owner("ui://gh/show") == "gh"
    assert view.page_owner("ui://gh/other") is None


RICH: Inventory = {
    "gh": Offer.of(
        tools=[{"name": "search"}],
        resources=[{"uri": "gh://readme", "name": "Readme"}, {"uri": "gh://license", "name": "License"}],
        templates=[{"uriTemplate": "gh://file/{name}", "name": "File"}],
        prompts=[{"name": "review"}, {"name": "explain"}],
    )
}


def test_all_tools_of_a_server_bring_its_resources_templates_and_prompts():
    """Rule 6; a pattern that happens to cover every tool does not say "all"."""
    both = catalogue(skill("all", {"gh": EVERYTHING}), skill("every", {"gh": Allow.of(["?*"])}))

    view = decide(both, ("all",), RICH)
    assert [route.original for route in view.resources] == ["gh://readme", "gh://license"]
    assert [route.original for route in view.templates] == ["gh://file/{name}"]
    assert list(view.prompts) == ["gh__review", "gh__explain"]
    assert decide(both, ("every",), RICH) == View(view.tools, {}, (), (), by_own_name=view.by_own_name)


@pytest.mark.parametrize("entry", ["gh://readme", "Readme", "gh://r*", "Read*"])
def test_a_skill_may_list_resources_of_its_own(entry: str):
    """By URI or by name, patterns too; it needs no tool for that (rule 6)."""
    view = decide(catalogue(skill("s", resources={"gh": Allow.of([entry])})), ("s",), RICH)

    assert [route.exposed for route in view.resources] == ["gh://readme"]
    assert (view.tools, view.prompts, view.templates) == ({}, {}, ())


def test_a_skill_may_list_prompts_and_templates_of_its_own():
    """By name, or by the template as it is written (rule 6)."""
    listing = skill("s", resources={"gh": Allow.of(["gh://file/*"])}, prompts={"gh": Allow.of(["rev*"])})

    view = decide(catalogue(listing), ("s",), RICH)

    assert list(view.prompts) == ["gh__review"]
    assert [route.definition["name"] for route in view.templates] == ["File"]
    assert view.resources == ()


def served(uri: str, name: str, resources: object = "dynamic") -> Json:
    """The entry of a skill that a server serves."""
    return {"uri": uri, "frontmatter": {"name": name, "description": "…"}, "resources": resources}


REFUNDS = served("skill://refunds/SKILL.md", "refunds", [{"uri": "skill://refunds/a.md"}])
DAILY = served("gh://reports/daily/SKILL.md", "daily")
SERVING: Inventory = {
    "gh": Offer.of(
        tools=[{"name": "search"}],
        resources=[{"uri": "skill://refunds/a.md"}, {"uri": "Skill://x"}, {"uri": "memo://one"}],
        templates=[{"uriTemplate": "skill://t/{name}"}, {"uriTemplate": "memo://{day}"}],
        skills=[REFUNDS, DAILY],
        extension={"directoryRead": True},
    ),
    "gl": Offer.of(tools=[{"name": "search"}], skills=[REFUNDS], extension={}),
}
ALL_OF_GH = ("skill://server.gh/refunds/SKILL.md", "skill://server.gh/gh:/reports/daily/SKILL.md")


def skills_of(view: View) -> list[str]:
    return [route.exposed for route in view.skills]


def seen(*skills: Skill) -> View:
    """What is seen of `SERVING` with these active."""
    return decide(catalogue(*skills), [skill.id for skill in skills], SERVING)


def test_skills_that_servers_serve_come_with_all_tools_or_by_the_list_of_resources():
    """By the URI of their document or by their name, in the order of the file; each under its server (rule 6)."""
    every = skill("all", {"gh": EVERYTHING, "gl": EVERYTHING})
    assert skills_of(seen(every)) == [*ALL_OF_GH, "skill://server.gl/refunds/SKILL.md"]
    assert skills_of(seen(skill("tool", {"gh": Allow.of(["*earch"])}))) == []
    for entry, found in (("refunds", ALL_OF_GH[:1]), ("gh://*", ALL_OF_GH[1:]), ("d*", ALL_OF_GH[1:])):
        assert skills_of(seen(skill("s", resources={"gh": Allow.of([entry])}))) == list(found)
    assert skills_of(seen(skill("s", resources={"gh": EVERYTHING}))) == list(ALL_OF_GH)


def test_resources_in_our_scheme_stand_under_their_servers_name():
    """However the scheme is written; all others under their own (rule 6)."""
    view = seen(skill("all", {"gh": EVERYTHING}))

    assert [route.exposed for route in view.resources] == [
        "skill://server.gh/refunds/a.md",
        "skill://server.gh/Skill:/x",
        "memo://one",
    ]
    assert [route.exposed for route in view.templates] == ["skill://server.gh/t/{name}", "memo://{day}"]
    assert view.has_template("skill://server.gh/t/{name}") == Source("gh", "skill://t/{name}")
    assert view.has_template("skill://t/{name}") is None


@pytest.mark.parametrize("claim", ["skill://{+all}", "{+all}", "skill://echo/SKILL.md"])
def test_no_template_of_a_server_reaches_into_our_scheme(claim: str):
    """It may fit, but only under the server's name (rule 6)."""
    inventory: Inventory = {"gh": Offer.of(templates=[{"uriTemplate": claim}], resources=[{"uri": "Skill://echo"}])}
    view = decide(catalogue(skill("all", {"gh": EVERYTHING})), ("all",), inventory)

    assert [view.template_of(uri) for uri in ("skill://echo/SKILL.md", "SKILL://echo/SKILL.md")] == [None, None]
    assert view.lister_of("Skill://echo") is None
    assert view.shows(Source("gh", "skill://echo/SKILL.md")) is claim.startswith("skill://")


@pytest.mark.parametrize(
    ("listed", "uri", "shown", "as_skill", "as_folder"),
    [
        ("refunds", "skill://refunds/SKILL.md", True, True, True),
        ("refunds", "skill://refunds/a.md", True, False, True),
        ("refunds", "skill://refunds/b.md", False, False, True),
        ("refunds", "skill://refunds", False, False, True),
        ("refunds", "skill://refunds/../other/SKILL.md", False, False, False),
        ("refunds", "gh://reports/daily/SKILL.md", False, False, False),
        ("refunds", "memo://one", False, False, False),
        ("daily", "gh://reports/daily/any/file", True, False, True),
        ("daily", "gh://reports/other/SKILL.md", False, False, False),
        ("Skill://x", "Skill://x", True, False, False),
        ("Skill://x", "skill://x", False, False, False),
        ("skill://t/*", "skill://t/any", True, False, False),
        ("memo:*", "memo://one", False, False, False),
        ("memo:*", "memo://friday", False, False, False),
    ],
)
def test_of_a_skill_that_is_listed_its_own_files_are_seen(
    listed: str, uri: str, shown: bool, as_skill: bool, as_folder: bool
):
    """And nothing beside it; what is shown under its own URI is not shown under its server's name (rule 6)."""
    view, source = seen(skill("s", resources={"gh": Allow.of([listed])})), Source("gh", uri)

    assert (view.shows(source), view.shows_skill(source), view.shows_folder(source)) == (shown, as_skill, as_folder)
    other = Source("gl", uri)
    assert (view.shows(other), view.shows_skill(other), view.shows_folder(other)) == (False, False, False)


def test_a_server_with_all_tools_granted_is_asked_for_skills_that_it_does_not_list():
    """It may serve more than it lists; for folders, where it has said that it can be (rule 6)."""
    view = seen(skill("all", {"gh": EVERYTHING, "gl": EVERYTHING}))

    for server, folders in (("gh", True), ("gl", False)):
        assert view.shows_skill(Source(server, "gh://unlisted/SKILL.md"))
        assert not view.shows_skill(Source(server, "gh://unlisted/README.md"))
        assert view.shows(Source(server, "gh://unlisted/README.md"))
        assert view.shows_folder(Source(server, "gh://unlisted")) is folders


def test_a_server_that_serves_no_skills_is_asked_for_what_it_lists_alone():
    """Also when all its tools are granted."""
    inventory: Inventory = {"gh": Offer.of(tools=[{"name": "search"}], resources=[{"uri": "skill://x"}])}
    view = decide(catalogue(skill("all", {"gh": EVERYTHING})), ("all",), inventory)

    assert [view.shows(Source("gh", uri)) for uri in ("skill://x", "skill://y")] == [True, False]
    assert not view.shows_skill(Source("gh", "skill://x/SKILL.md"))
    assert not view.shows_folder(Source("gh", "skill://x"))


def test_a_uri_belongs_to_the_server_that_lists_it_then_to_one_whose_template_fits():
    """The first in the order of the file; else to nobody (rule 6)."""
    inventory: Inventory = {
        "gl": Offer.of(resources=[{"uri": "x:1"}, {"uri": "x:a/1"}]),
        "gh": Offer.of(resources=[{"uri": "x:1"}], templates=[{"uriTemplate": "x:a/{n}"}]),
    }
    view = decide(catalogue(skill("s", {"gh": EVERYTHING, "gl": EVERYTHING})), ("s",), inventory)

    assert [view.lister_of(uri) for uri in ("x:1", "x:a/1", "x:a/2", "")] == ["gh", "gl", None, None]
    assert [view.template_of(uri) for uri in ("x:1", "x:a/1", "x:a/2", "x:b")] == [None, "gh", "gh", None]
    assert [view.has_template(t) for t in ("x:a/{n}", "x:{n}", "x:a/1")] == [("gh", "x:a/{n}"), None, None]
    assert View({}, {}, (), ()).lister_of("x:1") is None


def test_equal_names_at_two_servers_are_two_tools():
    """Each under the name of its server, whichever came first (B13)."""
    both = catalogue(skill("s", {"gh": EVERYTHING, "gl": EVERYTHING}))

    alone = decide(both, ("s",), {"gh": offer("search")})
    together = decide(both, ("s",), {"gl": offer("search"), "gh": offer("search")})

    assert list(alone.tools) == ["gh__search"]
    assert [(name, route.server) for name, route in together.tools.items()] == [
        ("gh__search", "gh"),
        ("gl__search", "gl"),
    ]


def test_two_tools_that_meet_are_both_left_out():
    """Active or not, so that no name leads to one thing now and to another later; a denied one meets nobody."""
    skills = (skill("s", {"a": EVERYTHING}), skill("t", {"b": EVERYTHING}))
    meeting = catalogue(*skills, a="", b="")
    inventory = {"a": offer("search", "only_a"), "b": offer("search", "only_b")}

    assert clashes(meeting, inventory) == {"search"}
    assert shown(meeting, inventory, "s") == ["only_a"]
    assert missing(meeting, ScopeState(), inventory, "search") is None
    denying = catalogue(*skills, denied={"b": Allow.of(["search"])}, a="", b="")
    assert shown(denying, inventory, "s") == ["only_a", "search"]


def test_two_prompts_that_meet_take_no_tool_with_them():
    """Prompts and tools are asked for in different ways: their names cannot meet (rule 19)."""
    unprefixed = catalogue(skill("s", {"a": EVERYTHING, "b": EVERYTHING}), a="", b="")
    inventory = {
        "a": Offer.of(tools=[{"name": "review"}], prompts=[{"name": "review"}]),
        "b": Offer.of(prompts=[{"name": "review"}]),
    }

    view = decide(unprefixed, ("s",), inventory)

    assert list(view.tools) == ["review"]
    assert list(view.prompts) == []


def test_a_tool_and_a_prompt_may_have_one_name():
    """That is no meeting."""
    view = decide(
        catalogue(skill("s", {"gh": EVERYTHING})),
        ("s",),
        {"gh": Offer.of(tools=[{"name": "review"}], prompts=[{"name": "review"}])},
    )

    assert (list(view.tools), list(view.prompts)) == (["gh__review"], ["gh__review"])


# --- refusals --------------------------------------------------------------------------------------------------------

TWO = catalogue(
    skill("literal", {"gh": Allow.of(["search"])}),
    skill("pattern", {"gh": Allow.of(["s*", "get_*"])}),
    skill("all", {"gl": EVERYTHING}),
)


def test_a_tool_granted_by_literal_name_is_refused_with_its_skill():
    """Before its server was ever seen; the first in the file where several grant it (rule 7)."""
    assert missing(TWO, ScopeState(), {}, "gh__search") == Missing(Absence.INACTIVE, "literal", "gh")


def test_a_tool_granted_by_a_pattern_needs_the_last_known_inventory():
    """A pattern alone promises nothing (rule 7)."""
    assert missing(TWO, ScopeState(), {}, "gh__get_a") is None
    assert missing(TWO, ScopeState(), {"gh": offer("get_a")}, "gh__get_a") == Missing(Absence.INACTIVE, "pattern", "gh")
    assert missing(TWO, ScopeState(), {"gl": offer("x")}, "gl__x") == Missing(Absence.INACTIVE, "all", "gl")
    assert missing(TWO, ScopeState(), {"gl": offer("x")}, "gl__y") is None


def test_a_tool_that_was_offloaded_is_refused_as_such():
    """Until its skill is active again (rule 7)."""
    inventory = {"gl": offer("x")}
    state = offloaded(TWO, activated(TWO, ScopeState(), "all"), "all")

    assert missing(TWO, state, inventory, "gl__x") == Missing(Absence.OFFLOADED, "all", "gl")


def test_a_tool_whose_skill_went_by_itself_is_refused_as_such():
    """Also when another skill that grants it was offloaded by somebody; until the client has been told."""
    inventory = {"gl": offer("x")}
    state = ScopeState(offloaded=frozenset({"all", "literal"}), expired=frozenset({"all"}))

    assert missing(TWO, state, inventory, "gl__x") == Missing(Absence.EXPIRED, "all", "gl")
    assert missing(TWO, relations.told(state), inventory, "gl__x") == Missing(Absence.OFFLOADED, "all", "gl")


def test_a_tool_of_an_active_skill_whose_server_is_away_is_unavailable():
    """The active skill counts, not the first in the file: activating another would not help."""
    state = activated(TWO, ScopeState(), "pattern")

    assert missing(TWO, activated(TWO, ScopeState(), "literal"), {}, "gh__search") == Missing(
        Absence.UNAVAILABLE, "literal", "gh"
    )
    assert missing(TWO, state, {}, "gh__search") == Missing(Absence.UNAVAILABLE, "pattern", "gh")


def test_a_tool_of_a_server_that_is_switched_off_is_unknown():
    """No skill can bring it."""
    assert missing(catalogue(skill("s", {"off": Allow.of(["x"])})), ScopeState(), {}, "off__x") is None


def test_a_skill_that_is_a_tool_while_it_is_active_is_refused_with_itself():
    """By the name that it would have; one that is active, or cannot be used here, is not missing."""
    naming = Naming({"gh": "gh"}, tools=frozenset({"run", "hidden"}))
    runs = Catalogue(("gh",), naming, (skill("other"), skill("run")))

    assert missing(runs, ScopeState(), {}, "run") == Missing(Absence.INACTIVE, "run", "")
    assert missing(runs, ScopeState(offloaded=frozenset({"run"})), {}, "run") == Missing(Absence.OFFLOADED, "run", "")
    assert missing(runs, ScopeState(active=("run",)), {}, "run") is None
    assert missing(runs, ScopeState(), {}, "other") is None
    assert missing(runs, ScopeState(), {}, "hidden") is None


def test_a_tool_that_no_skill_grants_is_unknown_like_one_that_does_not_exist():
    """One answer for both (rule 7, B05)."""
    inventory = {"gh": offer("search", "delete_repo")}

    assert missing(TWO, ScopeState(), inventory, "gh__delete_repo") is None
    assert missing(TWO, ScopeState(), inventory, "gh__no_such_tool") is None


def test_a_name_that_one_skill_spells_is_known_of_all_skills_that_grant_it():
    """The first in the file is named whether its server was seen yet or not: it grants all tools of the server."""
    skills = catalogue(skill("clock", {"gh": EVERYTHING}), skill("notes", {"gh": Allow.of(["now"])}))

    before = missing(skills, ScopeState(), {}, "gh__now")

    assert before == Missing(Absence.INACTIVE, "clock", "gh")
    assert before == missing(skills, ScopeState(), {"gh": offer("now")}, "gh__now")
