"""What `check` finds when it holds a configuration against what servers offer."""

from dataclasses import replace
from typing import Any

import pytest

from proxy.core.catalogue import EVERYTHING, Allow, Catalogue, Skill
from proxy.core.inventory import Inventory, Offer
from proxy.core.names import Naming
from proxy.core.report import SkillReport, deeds, grants, report
from proxy.core.steps import Call, Parallel, Workflow

INVENTORY: Inventory = {
    "gh": Offer.of(
        tools=[{"name": "search"}, {"name": "a.b"}, {"name": "rm"}, {"name": "unused"}],
        resources=[{"uri": "gh://readme", "name": "Readme"}],
        templates=[{"uriTemplate": "gh://file/{n}"}],
        prompts=[{"name": "review"}],
    ),
    "gl": Offer.of(tools=[{"name": "search"}]),
}


def catalogue(*skills: Skill, denied: dict[str, Allow] | None = None, **prefixes: str) -> Catalogue:
    servers = {"gh": "gh", "gl": "gl", **prefixes}
    return Catalogue(tuple(servers), Naming(servers), skills, denied or {})


def skill(
    tools: dict[str, Allow] | None = None,
    usage: str = "How.",
    resources: dict[str, Allow] | None = None,
    prompts: dict[str, Allow] | None = None,
) -> Skill:
    return Skill("s", "S", "", usage, tools=tools or {}, resources=resources or {}, prompts=prompts or {})


def of(one: Skill, failed: dict[str, str] | None = None) -> SkillReport:
    (found,) = report(catalogue(one), INVENTORY, failed or {}).skills
    return found


def test_a_good_configuration_has_no_problem():
    """What each skill grants is counted."""
    found = report(catalogue(skill({"gh": EVERYTHING, "gl": EVERYTHING})), INVENTORY, {})

    assert found.good
    assert found.problems == ()
    (one,) = found.skills
    assert [route.exposed for route in one.tools][-2:] == ["gh__unused", "gl__search"]
    assert (len(one.tools), one.resources, one.prompts, one.problems) == (5, 2, 1, ())


def test_entries_of_lists_that_were_not_read_are_counted():
    """By server and list; of skills more are read than of other lists."""
    cut = replace(Offer.of(tools=[{"name": "search"}]), left_out={"tools": 195_000, "skills": 1})

    assert report(catalogue(skill({"gl": EVERYTHING})), {"gl": cut}, {}).notes == (
        "server gl: at least 195,000 entries of its list of tools are left out: 5,000 of a list are read, and 16 MiB",
        "server gl: at least 1 entries of its list of skills are left out: 10,000 of a list are read, and 16 MiB",
    )


def test_entries_that_match_nothing_are_named_with_the_nearest_that_would():
    """Names and patterns of all three kinds of lists (rule 4)."""
    found = of(
        skill(
            {"gh": Allow.of(["serch", "zz*", "search"])},
            resources={"gh": Allow.of(["gh://readmee", "Readme"])},
            prompts={"gh": Allow.of(["revue"])},
        )
    )

    assert found.problems == (
        "server gh offers no tool serch; the nearest is search",
        "server gh: the pattern zz* matches no tool",
        "server gh offers no resource gh://readmee; the nearest is gh://readme",
        "server gh offers no prompt revue; the nearest is review",
    )


def test_a_skill_that_a_server_serves_is_granted_as_a_resource_is():
    """By its name or the URI of its document; counted, and known to be there."""
    refunds = {
        "uri": "skill://refunds/SKILL.md",
        "frontmatter": {"name": "refunds", "description": ""},
        "resources": "dynamic",
    }
    serving = {"gh": Offer.of(skills=[refunds], extension={})}

    for entry in ("refunds", "skill://*"):
        (found,) = report(catalogue(skill(resources={"gh": Allow.of([entry])})), serving, {}).skills
        assert (found.resources, found.problems) == (1, ())
    (found,) = report(catalogue(skill(resources={"gh": Allow.of(["refund"])})), serving, {}).skills
    assert found.problems == ("server gh offers no resource refund; the nearest is refunds",)


def test_where_nothing_is_offered_nothing_is_nearest():
    """No guess is made up."""
    assert of(skill(prompts={"gl": Allow.of(["revue"])})).problems == ("server gl offers no prompt revue",)


@pytest.mark.parametrize(
    ("wanted", "close"),
    [
        ("get_time", "get_current_time"),
        ("getTime", "get_current_time"),
        ("git-log", "git_log"),
        ("git_stauts", "git_status"),
        ("git_log_all", "git_log"),
        ("git_nonono", None),
        ("git_add", None),
        ("zzz", None),
        ("__", None),
    ],
)
def test_only_a_name_that_may_be_meant_is_called_the_nearest(wanted: str, close: str | None):
    """One with all its words, the shortest first, or one whose other words are alike; nothing far off."""
    names = ["get_current_time_and_date", "get_current_time", "git_log", "git_status", "_"]
    inventory = {"gl": Offer.of(tools=[{"name": name} for name in names])}
    (found,) = report(catalogue(skill({"gl": Allow.of([wanted])})), inventory, {}).skills

    nearest = f"; the nearest is {close}" if close else ""
    assert found.problems == (f"server gl offers no tool {wanted}{nearest}",)


def test_a_resource_may_be_listed_by_template_or_by_name():
    """What matches is no problem."""
    assert of(skill(resources={"gh": Allow.of(["gh://file/*", "Read*"])})).problems == ()


def test_a_server_that_does_not_start_is_a_problem_of_the_file_and_of_its_skills():
    """The reason stands once; what it would offer is not known."""
    broken = skill({"off": Allow.of(["x"])})
    found = report(catalogue(broken, off="off"), INVENTORY, {"off": "no such file"})

    assert found.skills[0].problems == ("server off failed",)
    assert found.problems == ("server off failed: no such file",)
    assert not found.good


def test_what_a_server_that_does_not_start_would_offer_is_not_missed():
    """Nothing is known of it, of no kind."""
    broken = skill({"off": Allow.of(["x"])}, resources={"off": Allow.of(["x:1"])}, prompts={"off": Allow.of(["p"])})

    assert report(catalogue(broken, off="off"), INVENTORY, {"off": "gone"}).skills[0].problems == ("server off failed",)


def test_a_skill_that_grants_nothing_is_a_problem_unless_it_has_a_guide():
    """A skill of instructions only is one (rule 4)."""
    assert of(skill()).problems == ()
    assert of(skill(usage=" ")).problems == ("it grants nothing and has no usage guide",)
    assert of(skill(resources={"gl": EVERYTHING})).problems == (
        "it grants nothing: its servers offer nothing that it lists",
    )


def test_a_skill_whose_servers_are_all_switched_off_is_no_problem():
    """Somebody wanted it so; the catalogue does not have them."""
    assert of(skill({"off": EVERYTHING})).problems == ()


def test_a_problem_of_one_skill_makes_the_whole_not_good():
    """Also where the file as such is right."""
    found = report(catalogue(skill({"gh": Allow.of(["serch"])})), INVENTORY, {})

    assert found.problems == ()
    assert not found.good


def test_no_skill_is_a_problem():
    """Clients would see nothing (rule 15)."""
    assert report(catalogue(), {}, {}).problems == ("no skill is enabled: clients will see no tool at all",)


def test_tools_that_meet_are_said():
    """Neither is shown (rule 19)."""
    unprefixed = Catalogue(("gh", "gl"), Naming({"gh": "", "gl": ""}), (skill({"gh": EVERYTHING}),))
    (problem,) = report(unprefixed, INVENTORY, {}).problems

    assert "would be shown as search" in problem
    assert "set a prefix" in problem


def test_what_is_denied_in_vain_is_said():
    """A slip in `black_tool_actions` leaves a tool open (rule 5)."""
    denying = catalogue(skill({"gh": EVERYTHING}), denied={"gh": Allow.of(["rmm", "rm"]), "off": Allow.of(["x"])})

    assert report(denying, INVENTORY, {}).problems == (
        "black_tool_actions: server gh offers no tool rmm; the nearest is rm",
    )


def test_what_is_only_worth_knowing_is_noted():
    """Tools that nobody reaches, that are denied, and that are shown under another name."""
    naming = Naming({"gh": "gh", "gl": "gl"})
    noting = catalogue(skill({"gh": Allow.of(["search", "a.b"]), "gl": EVERYTHING}), denied={"gh": Allow.of(["rm"])})

    assert report(noting, INVENTORY, {}).notes == (
        "server gh: no skill reaches unused",
        "server gh: denied to every skill: rm",
        f"server gh: tool a.b is shown as {naming.expose('gh', 'a.b')}",
    )


def with_page(name: str, uri: str) -> dict[str, Any]:
    return {"name": name, "_meta": {"ui": {"resourceUri": uri}}}


def test_resources_templates_and_pages_that_two_servers_have_are_noted():
    """In the order in which they are asked; not what one server has twice, nor what no skill grants at a second one."""
    first, second = {"uriTemplate": "x:{n}"}, {"uriTemplate": "y:{n}"}
    inventory: Inventory = {
        "gh": Offer.of(
            tools=[with_page("a", "ui://app"), with_page("b", "ui://app"), with_page("c", "ui://gh")],
            resources=[{"uri": "x:1"}, {"uri": "x:2"}, {"uri": "ui://gh"}],
            templates=[first, second],
        ),
        "gl": Offer.of(
            tools=[with_page("a", "ui://app"), with_page("c", "ui://gl")],
            resources=[{"uri": "x:1"}],
            templates=[{"uriTemplate": "x:{m}"}, second],
        ),
        "third": Offer.of(resources=[{"uri": "x:1"}, {"uri": "ui://gl"}], templates=[first]),
    }

    skills = [skill({"gh": EVERYTHING, "gl": EVERYTHING}, resources={"third": Allow.of(["x:7"])})]
    notes = report(catalogue(*skills, third="third"), inventory, {}).notes

    shared = [note for note in notes if "the same resource" in note]
    where = (
        "read at the one whose tool has handed it out to the client, else at the first of them, in this order, for "
        "which an active skill grants it"
    )
    assert shared == [
        f"servers gh, gl offer the same resource URI, ui://app: it is {where}",
        f"servers gh, gl offer the same resource URI, x:1: it is {where}",
        f"servers gh, gl offer the same resource template, y:{{n}}: what fits it is {where}",
    ]


def test_what_a_skill_grants_is_a_line_for_each_server():
    """As it is in force after merges."""
    assert list(grants(skill({"gh": Allow.of(["a", "b*"]), "gl": EVERYTHING}))) == ["gh: a, b*", "gl: all"]
    assert not list(grants(skill()))


# --- what skills do by themselves -------------------------------------------------------------------------------------

STRICT = {"type": "object", "properties": {"query": {}, "limit": {}}, "required": ["query"]}
DESK: Inventory = {
    "gh": Offer.of(
        tools=[
            {"name": "find", "inputSchema": STRICT},
            {"name": "close", "inputSchema": {**STRICT, "additionalProperties": False}},
            {"name": "open", "inputSchema": {**STRICT, "additionalProperties": True}},
            {"name": "any", "inputSchema": {"type": "object"}},
            {"name": "either", "inputSchema": {**STRICT, "anyOf": [{"properties": {"other": {}}}]}},
            {"name": "unused"},
        ]
    )
}
TOOLS = ("find", "close", "open", "any", "either")


def acting(*steps: Call | Parallel, bind: dict[str, dict[str, object]] | None = None, **more: Any) -> Skill:
    """A skill that does these steps when it is invoked, and may call all tools of `gh` that it needs."""
    workflow = Workflow(steps, {"type": "object", "properties": {"q": {}, "n": {}}, "required": ["q"]})
    tools: dict[str, Any] = {"internal": {"gh": Allow(entries=TOOLS)}} | more
    return Skill("s", "S", "", "", workflow=workflow if steps else None, bind={"gh": bind} if bind else {}, **tools)


def call(tool: str, *arguments: str, place: str = "steps[0]") -> Call:
    return Call(place, tool, "gh", tool, arguments=dict.fromkeys(arguments, 1))


def held(one: Skill) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found = report(catalogue(one), DESK, {})
    return found.skills[0].problems, tuple(note for note in found.notes if note.startswith("skill s: "))


@pytest.mark.parametrize(
    ("one", "problem"),
    [
        (call("fnd", "query"), "steps[0]: server gh offers no tool fnd; the nearest is find"),
        (Parallel("steps[0]", (call("fnd"),)), "steps[0]: server gh offers no tool fnd; the nearest is find"),
        (call("find", "limit"), "steps[0]: gh/find needs the argument query"),
        (call("either", "other"), None),
        (call("close", "query", "limt"), "steps[0]: gh/close: there is no argument limt; the nearest is limit"),
        (call("close", "query", "zzz"), "steps[0]: gh/close: there is no argument zzz"),
        (call("open", "query", "limt"), None),
        (call("any", "limt"), None),
        (call("find", "query", "limit"), None),
        (Call("steps[0]", "s", skill="fnd"), None),
        (Call("steps[0]", "s", "gl", "fnd"), None),
    ],
)
def test_a_step_is_held_against_what_its_server_offers(one: Call | Parallel, problem: str | None):
    """Where the schema of a tool tells what it takes; nothing is said of servers that are not there."""
    assert held(acting(one)) == ((problem,) if problem else (), ())


def test_an_argument_that_a_tool_may_not_know_is_worth_knowing():
    """Its schema allows others than it names."""
    assert held(acting(call("find", "query", "limt"))) == (
        (),
        ("skill s: steps[0]: gh/find: there is no argument limt; the nearest is limit",),
    )


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (Call("steps[0]", "find", "gh", "open", retries=2), "gh/open"),
        (Call("steps[0]", "find", "gh", "open", retries=2, idempotent=True), None),
        (Call("steps[0]", "find", "gh", "open"), None),
        (Call("steps[0]", "find", "gl", "open", retries=2), None),
        (Call("steps[0]", "s", skill="fnd", retries=2), "skill fnd"),
    ],
)
def test_a_step_that_will_not_be_tried_again_is_worth_knowing(one: Call, told: str | None):
    """Where what the server says is known."""
    expected = (
        f"skill s: steps[0]: retry is not used: {told} does not say by readOnlyHint or idempotentHint that it does no "
        "harm twice; write idempotent: true where it does none"
    )
    assert held(acting(one))[1] == ((expected,) if told else ())


def test_hooks_and_what_is_done_at_the_start_are_held_against_the_offers_too():
    one = acting(on_activate=(call("fnd", place="on_activate[0]"),), on_offload=(call("clse", place="on_offload[0]"),))
    assert held(one)[0] == (
        "on_activate[0]: server gh offers no tool fnd; the nearest is find",
        "on_offload[0]: server gh offers no tool clse; the nearest is close",
    )
    start = (call("fnd", place="on_scope_start[0]"), call("find", "query", "zzz", place="on_scope_start[1]"))
    found = report(replace(catalogue(one), on_start=start), DESK, {})
    assert found.problems == ("on_scope_start[0]: server gh offers no tool fnd; the nearest is find",)
    assert "on_scope_start[1]: gh/find: there is no argument zzz" in found.notes


def test_internal_tools_and_bindings_are_held_against_the_offers():
    one = acting(
        call("any"),
        internal={"gh": Allow.of(["any", "fnd", "zz*"]), "gl": EVERYTHING},
        bind={"find": {"query": 1, "limt": 2}, "clse": {"a": 1}, "any": {"b": 2}},
    )
    assert held(one)[0] == (
        "internal_tools: server gh offers no tool fnd; the nearest is find",
        "internal_tools: server gh: the pattern zz* matches no tool",
        "bind gh/find: there is no argument limt; the nearest is limit",
        "bind gh/clse: server gh offers no tool clse; the nearest is close",
    )


def test_a_server_that_only_steps_need_and_that_failed_is_a_problem_of_the_skill():
    found = report(catalogue(acting(call("any"))), {}, {"gh": "gone"})
    assert found.skills[0].problems == ("server gh failed",)


def test_a_tool_that_only_steps_call_is_reached_but_shown_to_nobody():
    """Neither is it said how it would be called."""
    start = (Call("on_scope_start[0]", "x", "gh", "unused"),)
    internal = acting(call("any"), internal={"gh": Allow.of(["any", "a.b"])})
    offers = {"gh": Offer.of(tools=[*DESK["gh"].tools, {"name": "a.b"}])}
    assert report(replace(catalogue(internal), on_start=start), offers, {}).notes == (
        "server gh: no skill reaches find, close, open, either",
    )


def test_a_skill_that_does_something_needs_no_guide_and_grants_nothing():
    assert held(acting(call("any")))[0] == ()
    assert held(acting(internal={}, bind={"any": {"b": 1}}))[0] == ()
    assert held(acting(internal={}))[0] == ("it grants nothing and has no usage guide",)


def test_what_a_skill_does_is_told_in_lines():
    side_by_side = Parallel("steps[0]", (call("find"), Call("steps[0].parallel[1]", "x", skill="other")))
    one = acting(
        side_by_side,
        call("close"),
        on_activate=(call("open"),),
        on_offload=(call("close"), call("any")),
        internal={"gh": Allow.of(["find", "o*"]), "gl": EVERYTHING},
        bind={"find": {"query": 1, "limit": 2}},
    )
    assert tuple(deeds(one)) == (
        "on activation calls gh/open",
        "on offloading calls gh/close, gh/any",
        "invoked with q, n (optional) calls gh/find | skill other, gh/close",
        "internal tools of gh: find, o*",
        "internal tools of gl: all",
        "fills in gh/find: query, limit",
    )
    assert tuple(deeds(acting(internal={}))) == ()
    bare = replace(one, workflow=Workflow((call("any"),), {"type": "object"}))
    assert "invoked with nothing calls gh/any" in tuple(deeds(bare))
