"""Skills and what they grant (design rules 4, 5 and 21; case B07)."""

import pytest

from proxy.core.catalogue import EVERYTHING, Allow, Skill
from proxy.core.scope import ScopeId

SERVERS = "servers: {gh: {command: python}, git: {command: python}}\n"


def granted(room, tool_list):
    return room.load(f"{SERVERS}skill_configs: {{a: {{tool_list: {tool_list}}}}}").catalogue.skills[0].tools


@pytest.mark.parametrize("everything", ["[]", '"*"', "'*'", '["*"]', '[x, "*"]'])
def test_an_empty_list_and_a_star_grant_all_tools(room, everything):
    """B07: both ways of saying all."""
    assert granted(room, f"{{gh: {everything}}}") == {"gh": EVERYTHING}


def test_no_list_grants_nothing(room):
    """B07: `{}` and no tool_list at all make a skill of instructions."""
    assert granted(room, "{}") == {}
    assert room.load("skill_configs: {a: {}}").catalogue.skills[0].tools == {}


def test_names_and_patterns_grant_what_they_match(room):
    """A bare string is a list of one, never its letters."""
    assert granted(room, "{gh: list_issues}") == {"gh": Allow(entries=("list_issues",))}
    assert granted(room, '{gh: "get_[a,b]"}') == {"gh": Allow(entries=("get_[a,b]",))}
    assert granted(room, '{gh: "get_*"}') == {"gh": Allow(entries=("get_*",))}
    assert granted(room, '{gh: [a, "get_*", a], git: [b]}') == {
        "gh": Allow(entries=("a", "get_*")),
        "git": Allow(entries=("b",)),
    }


@pytest.mark.parametrize("null", ["", "~", "null"])
@pytest.mark.parametrize(
    ("kind", "what"), [("tool_list", "tools"), ("resource_list", "resources"), ("prompt_list", "prompts")]
)
def test_a_null_says_neither_and_is_refused(room, null, kind, what):
    """B07: with file and line, and what to write."""
    assert room.problems(f"{SERVERS}skill_configs:\n  a:\n    {kind}:\n      gh: {null}\n") == [
        f"5: skill_configs.a.{kind}.gh: says neither all nor none: write [] for all {what}, or leave the server out"
    ]


def test_deny_lists_are_read_and_must_be_clear(room):
    """A list, one name, or "*" for all; nothing in between."""
    loaded = room.load(f'{SERVERS}black_tool_actions: {{gh: "*", git: [git_reset, "git_c*"]}}')
    assert loaded.catalogue.denied == {"gh": EVERYTHING, "git": Allow(entries=("git_reset", "git_c*"))}
    assert room.load(f"{SERVERS}black_tool_actions: {{gh: x}}").catalogue.denied == {"gh": Allow(entries=("x",))}
    assert room.problems(f"{SERVERS}black_tool_actions:\n  gh: a, b\n") == [
        "3: black_tool_actions.gh[0]: one text with a comma: write a list: [a, b]"
    ]
    assert room.problems(f"{SERVERS}black_tool_actions:\n  gh: []\n  git: ~\n") == [
        '3: black_tool_actions.gh: an empty list is unclear: write "*" to deny all tools, or leave the server out',
        '4: black_tool_actions.git: says neither all nor none: write "*" to deny all tools, or leave the server out',
    ]


def test_a_skill_is_read_whole(room):
    """With its texts as written and its switches."""
    (skill,) = room.load(f"""
{SERVERS}
skill_configs:
  one:
    name: The One
    desc: What for.
    usage: |
      Line 1: on
      Line 2
    active: yes
    pinned: on
    tool_list: {{gh: []}}
    resource_list: {{gh: "file://*"}}
    prompt_list: {{git: [p]}}
""").catalogue.skills
    assert skill == Skill(
        id="one",
        name="The One",
        desc="What for.",
        usage="Line 1: on\nLine 2\n",
        active=True,
        pinned=True,
        tools={"gh": EVERYTHING},
        resources={"gh": Allow(entries=("file://*",))},
        prompts={"git": Allow(entries=("p",))},
    )


def test_texts_that_are_left_out_are_the_id_or_empty(room):
    """A name that is given empty stays empty."""
    one, two = room.load('skill_configs: {one: {}, two: {name: ""}}').catalogue.skills
    assert one == Skill(id="one", name="one", desc="", usage="")
    assert two.name == ""


def test_a_disabled_skill_does_not_exist_but_is_still_checked(room):
    """Its mistakes would otherwise come back with it."""
    assert room.notes(f"{SERVERS}skill_configs: {{a: {{enabled: false, tool_list: {{gh: [], git: []}}}}}}") == [
        "1: no enabled skill: nothing is offered"
    ]
    (problem,) = room.problems(f"{SERVERS}skill_configs: {{a: {{enabled: false, tool_list: {{gi: []}}}}}}")
    assert "unknown server 'gi': did you mean 'git'?" in problem


def test_unknown_servers_are_named_with_the_nearest_known_one(room):
    """In every list that names servers."""
    assert room.problems(f"""{SERVERS}
skill_configs:
  a:
    tool_list: {{Gh: []}}
    resource_list: {{gti: []}}
    prompt_list:
      zzz: []
black_tool_actions: {{gitt: x}}
""") == [
        "5: skill_configs.a.tool_list.Gh: unknown server 'Gh': did you mean 'gh'?",
        "6: skill_configs.a.resource_list.gti: unknown server 'gti': did you mean 'git'?",
        "8: skill_configs.a.prompt_list.zzz: unknown server 'zzz': known here: gh, git",
        "9: black_tool_actions.gitt: unknown server 'gitt': did you mean 'git'?",
    ]
    assert room.problems("skill_configs: {a: {tool_list: {x: []}}}") == [
        "1: skill_configs.a.tool_list.x: unknown server 'x': there are none"
    ]


@pytest.mark.parametrize(
    ("skill", "problem"),
    [
        ("{tool_lst: {}}", ".tool_lst: unknown key: did you mean 'tool_list'?"),
        ("{descripton: x}", ".descripton: unknown key: did you mean 'desc'?"),
        ("{usage: ~}", '.usage: is empty: write "" for empty text; quote it if it is a word'),
        ("{usage: [a]}", ".usage: must be text, not a list"),
        ("{active: maybe}", ".active: must be true or false"),
        ("{tool_list: ~}", ".tool_list: is empty: write {} if nothing belongs there, or leave it out"),
        (
            "{tool_list: []}",
            '.tool_list: must be a mapping (key: value), not a list: write each server with its tools: "SERVER: []"',
        ),
        (
            "{tool_list: [gh, git]}",
            '.tool_list: must be a mapping (key: value), not a list: write each server with its tools: "gh: []"',
        ),
        (
            "{prompt_list: [{gh: [x]}]}",
            '.prompt_list: must be a mapping (key: value), not a list: write each server with its prompts: "gh: []"',
        ),
        ("{tool_list: {gh: ['a, b']}}", ".tool_list.gh[0]: one text with a comma: write a list: [a, b]"),
        ("{tool_list: {gh: 'a,'}}", ".tool_list.gh[0]: one text with a comma: write a list: [a]"),
        ("{tool_list: {gh: {a: b}}}", ".tool_list.gh: must be a list, not a mapping"),
        ("{tool_list: {gh: [[a]]}}", ".tool_list.gh[0]: must be text, not a list"),
        ("{tool_list: {gh: ''}}", ".tool_list.gh[0]: is empty text and no name: take it out"),
        ("~", ": is empty: write its settings below it, or take it out"),
        ("[]", ": must be a mapping (key: value), not a list"),
    ],
)
def test_what_is_wrong_with_a_skill_is_said_with_what_to_do(room, skill, problem):
    """In words for people, with line and path, and once."""
    (said,) = room.problems(f"{SERVERS}skill_configs:\n  a: {skill}\n")
    assert said.startswith(f"3: skill_configs.a{problem}")


def test_who_may_use_what_is_known_when_a_file_is_loaded(room, monkeypatch):
    """Of very many skills it takes a while to work out, in which no client shall wait."""
    loaded = room.load(
        "{skill_configs: {a: {}, b: {}}, profiles: [{namespace: x, denied_skills: a}, {namespace: '*'}]}"
    )
    monkeypatch.delattr("proxy.core.profiles.restricted")
    assert [*loaded.policy.of(ScopeId("namespace", "x")).by_id] == ["b"]
    assert [*loaded.policy.of(ScopeId("process")).by_id] == ["a", "b"]


@pytest.mark.parametrize(
    ("folder", "problem"),
    [
        ("{trusted: true}", ".path: is missing: write it, since there is no default"),
        ("{path: x, trust: true}", ".trust: unknown key: did you mean 'trusted'?"),
        ("{path: x, trusted: maybe}", ".trusted: must be true or false"),
        ("''", ".path: is empty: write the path of a folder"),
        ("{path: ' '}", ".path: is empty: write the path of a folder"),
    ],
)
def test_what_is_wrong_with_a_folder_of_skills_is_said_with_what_to_do(room, folder, problem):
    assert room.problems(f"skill_configs: {{a: {{}}}}\nskill_paths:\n  - {folder}\n") == [f"3: skill_paths[0]{problem}"]


@pytest.mark.parametrize(
    ("folders", "note", "trusted"),
    [
        ("[lib, other, ./lib]", "skill_paths[0]: not used: skill_paths[2] is the same folder, and counts", False),
        (
            "[{path: lib, trusted: true}, lib]",
            "skill_paths[1]: not used: skill_paths[0] is the same folder, and counts",
            True,
        ),
        (
            "[lib, {path: link, trusted: true}]",
            "skill_paths[0]: not used: skill_paths[1] is the same folder, and counts",
            True,
        ),
    ],
)
def test_a_folder_of_skills_that_is_named_twice_is_one_note(room, folders, note, trusted):
    """However many skills are in it: it is no collision of each with itself."""
    (room.folder / "other").mkdir()
    (room.folder / "link").symlink_to("lib")
    for name in ("x", "y"):
        (room.folder / "lib" / name).mkdir(parents=True)
        (room.folder / "lib" / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\nGuide.\n")
    loaded = room.load(f"skill_paths: {folders}\n")
    assert [str(said).removeprefix(f"{room.file}:") for said in loaded.notes] == [f"1: {note}"]
    assert [(found.id, found.trusted) for found in loaded.library.skills] == [("x", trusted), ("y", trusted)]


def test_an_empty_id_is_refused(room):
    """There would be no way to ask for it."""
    assert room.problems("skill_configs: {'': {}}") == ['1: skill_configs."": a skill needs an id that is not empty']


def test_without_an_enabled_skill_a_note_says_that_nothing_is_offered(room):
    """Loudly enough for `check`."""
    assert room.notes("servers: {a: {command: python}}") == ["1: no enabled skill: nothing is offered"]
