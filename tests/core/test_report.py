"""What `check` finds when it holds a configuration against what servers offer."""

from dataclasses import replace
from typing import Any

import pytest

from proxy.core.catalogue import EVERYTHING, Allow, Catalogue, Skill
from proxy.core.expressions import holds_expressions
from proxy.core.inventory import Inventory, Offer
from proxy.core.names import Naming
from proxy.core.parameters import invalid_constants
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
        (call("either", "other"), "steps[0]: gh/either: query: is required"),
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


TRACKER: Inventory = {
    "tracker": Offer.of(
        tools=[
            {
                "name": "search",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "q": {"type": "string"},
                        "state": {"enum": ["open", "closed"]},
                        "page": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
                    },
                    "required": ["q"],
                },
            },
            {
                "name": "list_labels",
                "inputSchema": {"allOf": [{"properties": {"n": {"type": "integer"}}, "required": ["n"]}]},
            },
            {"name": "delete_issue", "inputSchema": {"type": "object"}},
            {"name": "broken", "inputSchema": {"type": 5}},
        ]
    )
}


def of_tracker(usage: str | None, *tools: str, guide: str = "") -> SkillReport:
    one = replace(skill({"tracker": Allow.of(tools)}), usage=usage)
    named = Catalogue(("tracker",), Naming({"tracker": "tracker"}), (one,))
    return report(named, TRACKER, {}, {"s": guide}).skills[0]


SEARCH_NOTE = "names search: clients see that tool as tracker__search"


@pytest.mark.parametrize(
    ("guide", "line"),
    [
        ("Call `search` first.", 1),
        ("First.\n\n- ``search`` finds issues", 3),
        ("Then search(q='x') finds it.", 1),
        ('```\nSKILL_CALL({"tool": "search"})\n```', 2),
        ("Use `search(q)`.", 1),
    ],
)
def test_a_guide_that_names_a_tool_as_its_server_does_is_told_how_clients_see_it(guide: str, line: int):
    """In code and in calls, with the line; also where the guide stands in a folder's file."""
    told = (f"its guide, line {line}, {SEARCH_NOTE}",)
    assert of_tracker(guide, "search").notes == told
    assert of_tracker(None, "search", guide=guide).notes == told
    assert of_tracker(guide, "search").problems == ()


@pytest.mark.parametrize("spelling", ["tracker/search", "tracker.search", "tracker:search", "mcp__tracker__search"])
def test_a_guide_may_name_the_server_too(spelling: str):
    (note,) = of_tracker(f"Call `{spelling}`.", "search").notes
    assert note == f"its guide, line 1, names {spelling}: clients see that tool as tracker__search"


@pytest.mark.parametrize(
    "guide",
    [
        "Search before you write: a search is cheap, and (re)search too.",
        "Call tracker__search first, then `search` again.",
        "See docs/search and ./search(1), `search the web`, --search, $search, search(s).",
        "The `q` of `tracker__search` is plain text.",
        "Give `delete-issue` or broken things no thought.",
        "",
    ],
)
def test_words_that_are_no_names_are_not_taken_for_tools(guide: str):
    assert of_tracker(guide, "search", "broken").notes == ()


def test_what_is_spelled_like_no_word_is_a_name_everywhere():
    """Also where the skill does not grant that tool."""
    assert of_tracker("Never delete_issue without list_labels.", "list_labels").notes == (
        "its guide, line 1, names delete_issue of server tracker, which the skill does not grant",
        "its guide, line 1, names list_labels: clients see that tool as tracker__list_labels",
    )
    assert of_tracker("Read docs/list_labels.md, set list_labels=1, --list_labels.", "list_labels").notes == ()


def test_the_name_of_an_argument_is_a_tool_only_where_it_is_called():
    offer = Offer.of(
        tools=[{"name": "query", "inputSchema": {"properties": {"query": {}}}}, {"name": "read", "inputSchema": {}}]
    )
    one = skill({"db": EVERYTHING}, usage="Give `query`; `read` of SKILL shows this. ")
    named = Catalogue(("db",), Naming({"db": "db"}), (one,))
    assert report(named, {"db": offer}, {}).skills[0].notes == ()
    called = replace(named, skills=(replace(one, usage="Run query(sql)."),))
    assert report(called, {"db": offer}, {}).skills[0].notes == (
        "its guide, line 1, names query: clients see that tool as db__query",
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"q": 5}, "q: 5 is not of type 'string'"),
        ({"q": "x", "state": "opn"}, "state: 'opn' is not one of ['open', 'closed']"),
        ({"q": "{{ params.q }}", "state": "opn"}, "state: 'opn' is not one of ['open', 'closed']"),
        ({"q": "x", "page": {"m": "{{ params.q }}"}}, "page.n: is required"),
        ({"q": "x", "page": ["{{ params.q }}"]}, "page: it is not of type 'object'"),
        ({"q": "{{ params.q }}", "state": "{{ params.n }}"}, None),
        ({"q": "x", "page": {"n": "{{ params.n }}"}}, None),
        ({"q": "x", "page": "{{ params.n }}"}, None),
        ({"q": "x"}, None),
    ],
)
def test_constant_arguments_are_held_against_the_schema(arguments: dict[str, Any], problem: str | None):
    """Those of steps, of hooks and of bindings; what holds an expression is not known yet."""
    step = Call("steps[0]", "s", "tracker", "search", arguments=arguments)
    allowed = {"tracker": Allow.of(["search"])}
    steps = Workflow((step,), {"type": "object", "properties": {"q": {}, "n": {}}})
    hooked = Skill("h", "", "", "U", tools=allowed, on_activate=(replace(step, place="on_activate[0]"),))
    bound = Skill("b", "", "", "U", tools=allowed, bind={"tracker": {"search": arguments}})
    skills = (Skill("w", "", "", "U", tools=allowed, workflow=steps), hooked, bound)
    found = report(Catalogue(("tracker",), Naming({"tracker": "t"}), skills), TRACKER, {}).skills
    places = ("steps[0]: tracker/search", "on_activate[0]: tracker/search", "bind tracker/search")
    expected = [(f"{place}: {problem}",) if problem else () for place in places]
    assert [one.problems for one in found] == expected


def test_constants_are_held_against_schemas_that_say_it_elsewhere():
    """A binding may leave out what is required; a schema that is none says nothing."""
    allowed = {"tracker": EVERYTHING}
    calls = tuple(
        Call(f"steps[{place}]", "s", "tracker", tool, arguments=arguments)
        for place, (tool, arguments) in enumerate(
            [("list_labels", {"n": "x"}), ("list_labels", {}), ("broken", {"n": 1}), ("list_labels", {"n": "{{ 1 }}"})]
        )
    )
    bound = {"tracker": {"list_labels": {"other": 1}}}
    one = Skill("s", "", "", "U", tools=allowed, workflow=Workflow(calls, {}), bind=bound)
    found = report(Catalogue(("tracker",), Naming({"tracker": "t"}), (one,)), TRACKER, {}).skills[0]
    assert found.problems == (
        "steps[0]: tracker/list_labels: n: 'x' is not of type 'integer'",
        "steps[1]: tracker/list_labels: n: is required",
    )


def test_a_constant_that_is_nested_too_deeply_is_not_judged():
    deep: Any = "{{ 1 }}"
    for _ in range(5_000):
        deep = [deep]
    assert invalid_constants({"properties": {"a": {"items": {"type": "string"}}}}, {"a": deep}, holds_expressions) == []


def invoking(id_: str, *steps: Call | Parallel, **more: Any) -> Skill:
    return Skill(id_, id_, "", "U", workflow=Workflow(steps, {"properties": {"n": {}}}), **more)


def to(skill: str, place: str = "steps[0]", **more: Any) -> Call:
    return Call(place, "", skill=skill, **more)


def loops(*skills: Skill, on_start: tuple[Call, ...] = ()) -> tuple[list[str], list[str]]:
    found = report(replace(catalogue(*skills), on_start=on_start), {}, {})
    problems = [f"{one.skill.id}: {problem}" for one in found.skills for problem in one.problems]
    return [*problems, *found.problems], [*found.notes]


def test_a_skill_that_invokes_itself_for_ever_is_a_problem():
    """Directly, through others, side by side, and for each of a list that is not empty."""
    assert loops(invoking("a", to("a")))[0] == ["a: steps[0]: it invokes itself for ever: a -> a"]
    inside = Parallel("steps[0]", (to("c", "steps[0].parallel[0]"),))
    problems, notes = loops(invoking("a", to("b")), invoking("b", inside), invoking("c", to("a", for_each=[1])))
    assert problems == [
        "a: steps[0]: it invokes itself for ever: a -> b -> c -> a",
        "b: steps[0].parallel[0]: it invokes itself for ever: b -> c -> a -> b",
        "c: steps[0]: it invokes itself for ever: c -> a -> b -> c",
    ]
    assert notes == []
    assert loops(invoking("a", to("a", when="{{ 1 == 1 }}")))[0]


def test_hooks_and_the_start_that_come_to_such_a_skill_are_problems():
    hooked = Skill("h", "", "", "U", on_activate=(to("b", "on_activate[0]"),), on_offload=(to("x", "on_offload[0]"),))
    chain = invoking("b", to("a"), to("x"))
    start = (to("a", "on_scope_start[0]"), to("x", "on_scope_start[1]"))
    problems, _ = loops(hooked, chain, invoking("a", to("a")), invoking("x"), on_start=start)
    assert problems == [
        "h: on_activate[0]: it invokes skill b, which never ends: skill a invokes itself",
        "a: steps[0]: it invokes itself for ever: a -> a",
        "on_scope_start[0]: it invokes skill a, which never ends: skill a invokes itself",
    ]


@pytest.mark.parametrize(
    "step",
    [
        to("a", when="{{ params.n }}"),
        to("a", for_each="{{ params.n }}"),
        Parallel("steps[0]", (to("a"),), when="{{ params.n }}"),
    ],
)
def test_a_skill_that_may_invoke_itself_is_worth_knowing(step: Call | Parallel):
    problems, notes = loops(invoking("a", step))
    assert problems == []
    assert notes == ["skill a: steps[0]: it may invoke itself, as a condition decides: a -> a"]


@pytest.mark.parametrize("more", [{"when": False}, {"when": "{{ false }}"}, {"for_each": []}, {"skill": "gone"}])
def test_what_is_never_invoked_makes_no_loop(more: dict[str, Any]):
    assert loops(invoking("a", replace(to("a"), **more), to("b")), invoking("b", to("c")), invoking("c"))[1] == []
    assert loops(invoking("a", replace(to("a"), **more)))[0] == []


def test_pages_of_tools_that_nobody_can_read_are_named():
    """A `ui://` page is granted with its tool; of another scheme it has to be listed."""
    ui = {
        "name": "chart",
        "_meta": {"ui": {"resourceUri": "ui://x/chart"}},
    }
    plain = {"name": "form", "_meta": {"ui/resourceUri": "page://form"}}
    poll = {"name": "poll", "_meta": {"ui": {"visibility": ["app"]}}}
    offer = Offer.of(tools=[ui, plain, poll], resources=[{"uri": "page://form", "name": "f"}])

    def found(one: Skill, offer: Offer = offer) -> SkillReport:
        return report(Catalogue(("x",), Naming({"x": "x"}), (one,)), {"x": offer}, {}).skills[0]

    some = found(skill({"x": Allow.of(["chart", "form"])}))
    (problem,) = some.problems
    assert problem.startswith("tool x__form is shown with the page page://form, which the skill does not grant: ")
    unlisted, for_page = some.notes
    assert unlisted == "tool x__chart is shown with the page ui://x/chart, which server x does not list"
    assert for_page.startswith("tool x__chart is shown with a page, and the skill does not grant poll, ")
    templates = replace(offer, templates=({"uriTemplate": "ui://x/{page}"},))
    assert found(skill({"x": EVERYTHING}), templates).notes == ()
    assert found(skill({"x": EVERYTHING}), templates).problems == ()
    listed = skill({"x": Allow.of(["form"])}, resources={"x": Allow.of(["page://*"])})
    assert found(listed).problems == ()
