"""Other systems' notations in a configuration: read as they were meant, or refused or noted with words that help."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.document import parse
from proxy.config.triple_quotes import unquoted, without_triple_quotes
from proxy.core.catalogue import EVERYTHING, Allow

SERVERS = "servers: {git: {command: git-server}, my-time: {command: time-server}}\n"


def skill(room, entry: str, servers: str = SERVERS):
    """The skill `a` of this entry."""
    (found,) = room.load(f"{servers}skill_configs:\n  a: {entry}\n").catalogue.skills
    return found


def names(room, entry: str) -> list[str]:
    """What a file is refused with whose skill `a` has this entry, from the skill on."""
    return [line.partition("skill_configs.a")[2] for line in room.problems(f"{SERVERS}skill_configs:\n  a: {entry}\n")]


# --- servers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["mcp_config", "mcpConfig"])
@pytest.mark.parametrize(
    "config",
    [
        "{mcpServers: {git: {command: x}}}",
        "{mcp_servers: {git: {command: x}}}",
        "{git: {command: x}}",
        '\'{"mcpServers": {"git": {"command": "x"}}}\'',
    ],
)
def test_servers_may_stand_in_an_mcp_config(room, key, config):
    loaded = room.load(f"{key}: {config}\nskill_configs: {{a: {{tool_list: {{git: []}}}}}}")
    assert loaded.catalogue.servers == ("git",)


def test_an_mcp_config_that_holds_no_servers_is_refused_where_it_stands(room):
    (line,) = room.problems("mcp_config: {a: b}")
    assert line.startswith("1: mcp_config: holds no servers: write mcp_config: {mcpServers:")
    (line,) = room.problems("mcp_config: {mcpServers: {git: {comand: x}}}\n")[:1]
    assert line.startswith("1: mcp_config.mcpServers.git")
    assert room.problems(f"{SERVERS}mcp_config: {{mcpServers: {{}}}}\n") == [
        "2: mcp_config: servers are given twice, here and on line 1: put all under one key"
    ]


def test_servers_that_a_skill_defines_are_granted_to_it_alone_where_it_grants_nothing_else(room):
    loaded = room.load(f"""\
{SERVERS}skill_configs:
  a: {{mcp_config: {{mcpServers: {{new: {{command: x}}}}}}}}
  b: {{mcpServers: {{new: {{command: x}}, other: {{command: y}}}}, tool_list: {{git: [log], other: [z]}}}}
""")
    assert loaded.catalogue.servers == ("git", "my-time", "new", "other")
    a, b = loaded.catalogue.skills
    assert a.tools == {"new": EVERYTHING}
    assert b.tools == {"git": Allow.of(["log"]), "other": Allow.of(["z"])}
    assert any("read as tool_list: {new: []}, all tools" in note for note in loaded.notes)


def test_one_server_cannot_be_two(room):
    assert names(room, "{mcp_config: {mcpServers: {git: {command: another}}}}") == [
        ".mcp_config.mcpServers.git: says otherwise than servers.git: keep one of them"
    ]


@pytest.mark.parametrize("key", ["mcp_servers", "mcpServers", "servers"])
def test_servers_that_a_skill_names_are_granted_as_a_whole_where_there_is_no_tool_list(room, key):
    assert skill(room, f"{{{key}: [git, my-time]}}").tools == {"git": EVERYTHING, "my-time": EVERYTHING}
    assert skill(room, f"{{{key}: git}}").tools == {"git": EVERYTHING}
    assert skill(room, f"{{{key}: [git], tool_list: {{git: [log]}}}}").tools == {"git": Allow.of(["log"])}
    (line,) = names(room, f"{{{key}: [git, my-time], tool_list: {{git: [log]}}}}")
    assert line.startswith(f".{key}: names other servers than tool_list: take it out")
    (line,) = names(room, f"{{{key}: [gti]}}")
    assert line == f".{key}.gti: unknown server 'gti': did you mean 'git'?"


# --- tools -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["tool_list", "required_tools", "requiredTools"])
@pytest.mark.parametrize(
    "tools",
    [
        "[git/log, my-time/now, git/show]",
        "[git.log, my-time.now, git.show]",
        "[mcp__git__log, mcp__my-time__now, git__show]",
        "['git:log', 'my-time:now', 'git:show']",
        "[{server: git, tools: [log, show]}, {server: my-time, tools: now}]",
        "[{git: [log, show]}, {my-time: [now]}]",
        "{git: {tools: [log, show]}, my-time: [now]}",
        '\'{"git": ["log", "show"], "my-time": ["now"]}\'',
    ],
)
def test_tools_may_be_listed_as_others_do(room, key, tools):
    assert skill(room, f"{{{key}: {tools}}}").tools == {"git": Allow.of(["log", "show"]), "my-time": Allow.of(["now"])}


@pytest.mark.parametrize("tools", ["[git/log, 'git/*']", "[{server: git, tools: '*'}]", "[{git: []}, git/log]"])
def test_all_tools_of_a_server_win_over_some(room, tools):
    assert skill(room, f"{{tool_list: {tools}}}").tools == {"git": EVERYTHING}


@pytest.mark.parametrize(
    ("tools", "told"),
    [
        ("[git, git/log]", "[0]: names a server and no tool: write tool_list: {git: []} for all of them"),
        ("[git/log, web_search]", "[1]: names no server: write tool_list: {SERVER: [TOOL]}"),
        ("[gti/log]", "[0]: unknown server 'gti': did you mean 'git'?; write tool_list: {SERVER: [TOOL]}"),
        ("[{server: git}]", "[0]: says no tools: write tool_list: {git: []} for all of them"),
        ("[{server: gti, tools: []}]", "[0].tools: unknown server 'gti': did you mean 'git'?"),
        ("[[x]]", "[0]: names no tool: write tool_list: {SERVER: [TOOL]}"),
        ("[a, b]", ': must be a mapping (key: value), not a list: write each server with its tools: "a: []"'),
    ],
)
def test_a_tool_that_is_none_of_any_server_is_refused_with_the_right_form(room, tools, told):
    """And by its own place."""
    assert names(room, f"{{tool_list: {tools}}}") == [f".tool_list{told}"]


# --- texts, parameters, results --------------------------------------------------------------------------------------


def test_description_is_desc(room):
    assert skill(room, "{description: About.}").desc == "About."
    assert skill(room, "{description: About., desc: About.}").desc == "About."
    assert names(room, "{description: x, desc: y}") == [
        ".description: is another name of desc, and says otherwise: keep one of them"
    ]


def test_the_id_is_the_key_of_the_entry(room):
    assert skill(room, "{id: a}").id == "a"
    assert names(room, "{id: b}") == [".id: the id of a skill is the key of its entry, here 'a': write it there"]


def test_skills_may_be_a_list_with_ids(room):
    loaded = room.load(f"{SERVERS}skill_configs:\n- {{id: a, name: A}}\n- {{name: b, tool_list: {{git: []}}}}\n")
    assert [(one.id, one.name) for one in loaded.catalogue.skills] == [("a", "A"), ("b", "b")]
    assert room.problems("skill_configs:\n- {desc: x}\n- {id: a}\n- {id: a}\n- {id: c, tool_list: {x: []}}\n") == [
        "2: skill_configs[0]: has no id: write the skills as a mapping, each under its id",
        "4: skill_configs[2]: there is a skill 'a' above: each needs an id of its own",
        "5: skill_configs[3].tool_list.x: unknown server 'x': there are none",
    ]


STEPS = "steps: [{tool: git/log}], tool_list: {git: []}"


def test_listed_parameters_are_required_unless_they_say_otherwise(room):
    found = skill(
        room,
        f"{{{STEPS}, parameters: [{{name: x, type: string}}, {{name: y, type: integer, required: false}}, "
        "{name: z, default: 3}]}",
    )
    assert found.workflow.parameters["required"] == ["x"]
    assert [*found.workflow.parameters["properties"]] == ["x", "y", "z"]
    assert names(room, f"{{{STEPS}, parameters: [{{type: string}}, {{name: x}}, {{name: x}}]}}") == [
        ".parameters[0]: has no name: write {name: NAME, type: string}, or all by name, NAME: {type: string}",
        ".parameters[2]: there is a 'x' above: each needs a name of its own",
    ]


@pytest.mark.parametrize(
    "schema", ["{summary: string}", "[{name: summary, type: string}]", "{summary: {type: string, required: true}}"]
)
def test_a_short_output_schema_holds(room, schema):
    """It is expanded to one that a result without the member does not fit."""
    assert skill(room, f"{{{STEPS}, output_schema: {schema}}}").workflow.output_schema == {
        "type": "object",
        "properties": {"summary": {"type": "string"}},
        "required": ["summary"],
    }
    (line,) = names(room, f"{{{STEPS}, output_schema: {{summary: strng}}}}")
    assert line == ".output_schema: summary: there is no type 'strng', did you mean 'string'?"


def test_what_means_nothing_here_is_noted(room):
    notes = room.notes("\n\nskill_configs:\n  a:\n    entry_points: [x.py]\n    skill_type: python\n    type: x\n")
    assert [note.partition(": not used")[0] for note in notes][:3] == [
        f"{line}: skill_configs.a.{key}" for line, key in ((5, "entry_points"), (6, "skill_type"), (7, "type"))
    ]
    assert "become no tools" in notes[0]


@pytest.mark.parametrize("key", ["init_skills", "initSkills", "finalization_skills", "finalizationSkills"])
def test_the_skills_that_a_plugin_runs_are_refused_with_what_to_write(room, key):
    (line,) = room.problems(f"{key}: [a]\n")
    assert line.startswith(f"1: {key}: no skill runs by being named here: write ")
    assert ("on_offload" if key.startswith("final") else "on_scope_start: [{skill: ID}]") in line


# --- requirements ----------------------------------------------------------------------------------------------------

HERE = {"linux": "linux", "darwin": "darwin", "win32": "win32"}[sys.platform]
REQUIREMENTS = [
    ({"openclaw": {"requires": {"bins": ["no-such"]}}}, "the program no-such is not on PATH"),
    ({"clawdbot": {"requires": {"bins": "no-such"}}}, "the program no-such is not on PATH"),
    (
        {"moltbot": {"requires": {"anyBins": ["no-such", "nor-this"]}}},
        "none of the programs no-such, nor-this is on PATH",
    ),
    ({"any-name": {"requires": {"env": ["NOT_SET"]}}}, "the variable NOT_SET is not set"),
    ({"openclaw": {"os": ["beos"]}}, f"it is for beos, and this is {HERE.replace('darwin', 'macos')}"),
    (
        {"openclaw": {"requires": {"bins": ["a1"]}}, "moltbot": {"requires": {"bins": ["a1", "a2"]}}},
        "the program a1 is",
    ),
    ({"openclaw": {"always": True, "requires": {"bins": ["no-such"]}}}, ""),
    ({"openclaw": {"os": [HERE], "requires": {"bins": [], "config": ["x.y"]}, "emoji": "x"}}, ""),
    ({"openclaw": {"requires": {"bins": [["x"]], "env": 0.5}}, "short": "text", "version": "1.0"}, "the variable 0.5"),
]


@pytest.mark.parametrize(
    "form", ["in a file", "in a file as text", "in a folder", "in a folder as text", "block as text"]
)
@pytest.mark.parametrize(("metadata", "why"), REQUIREMENTS)
def test_what_other_systems_require_is_required(room, metadata, why, form):
    """As `requires` has it, in a SKILL.md of a folder that nobody trusts, too."""
    if form == "block as text":
        metadata = {key: json.dumps(block) if isinstance(block, dict) else block for key, block in metadata.items()}
    text = json.dumps(metadata)
    text = f"'{text}'" if form.endswith(" as text") and form != "block as text" else text
    if "folder" in form:
        room.put("s/a", f"metadata: {text}\n")
        loaded = room.load("skill_paths: [s]")
    else:
        loaded = room.load(f"skill_configs:\n  a:\n    metadata: {text}\n")
    assert [left.why.startswith(why) for left in loaded.left_out] == ([True] if why else [])
    assert [one.id for one in loaded.catalogue.skills] == ([] if why else ["a"])


def test_what_cannot_be_looked_at_is_noted(room):
    room.put("s/a", 'metadata: {"openclaw": {"requires": {"config": ["a.b"], "bins": {"x": 1}}}}\n')
    notes = [note.partition("metadata")[2] for note in room.load("skill_paths: [s]").notes]
    assert ".openclaw.requires.config: not looked at: it is about another program's own settings" in notes
    assert ".openclaw.requires.bins: not used: must be a name, or a list of names" in notes


def test_a_skill_md_may_say_what_others_say(room):
    """In a trusted folder servers named as a whole are granted; definitions of servers, and scripts, are noted."""
    room.put("s/a", "mcp_servers: [git]\nmcp_config: {mcpServers: {}}\nentry_points: [x]\nskill_type: y\n")
    room.put("s/b", "mcp_servers: [git]\ntool_list: ['my-time/now']\n")
    loaded = room.load(f"{SERVERS}skill_paths: [{{path: s, trusted: true}}]")
    assert [one.tools for one in loaded.catalogue.skills] == [{"git": EVERYTHING}, {"my-time": Allow.of(["now"])}]
    assert sum(": not used: " in note and "SKILL.md" in note for note in loaded.notes) == 3
    assert not any(one.tools for one in room.load(f"{SERVERS}skill_paths: [s]").catalogue.skills)


# --- three quotes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        'usage: """\n      Look: at "this".\n\n        Then \\d.\n      """\n    desc: x',
        "usage: '''\n      Look: at \"this\".\n\n        Then \\d.\n      '''\n    desc: x",
        'usage: """Look: at "this".\n\n    Then \\d.""" # so\n    desc: x',
        'usage: |\n      """\n      Look: at "this".\n\n        Then \\d.\n      """\n    desc: x',
    ],
)
def test_a_guide_may_stand_between_three_quotes(room, written):
    """Its common indentation goes, and what follows keeps its line."""
    loaded = room.load(f"skill_configs:\n  a:\n    {written}\n")
    (found,) = loaded.catalogue.skills
    assert found.usage.replace("  Then", "Then") == 'Look: at "this".\n\nThen \\d.'
    assert found.desc == "x"
    text = f"skill_configs:\n  a:\n    {written}\n    tool_list: {{x: []}}\n"
    (line,) = room.problems(text)
    assert line.startswith(f"{text.count(chr(10))}: skill_configs.a.tool_list.x")


@pytest.mark.parametrize("text", ['{"a": {"usage": """x\ny""", "b": """z"""}, "c": 1}', '{"a": {"usage": "x\\ny"}}'])
def test_json_may_have_three_quotes(text):
    (entry,) = [one for id_, one in parse(text.encode(), "f").data.items() if id_ == "a"]
    assert isinstance(entry, dict)
    assert entry["usage"] == "x\ny"


@pytest.mark.parametrize(
    "text",
    [
        'a: |\n  def f():\n    x: """doc"""\nb: c\n',
        "- >-\n  x: '''doc\n  '''\n- b\n",
        "a: '''x'''\n",
        'a: """ never closed\n',
        "a: b\n",
    ],
)
def test_what_is_no_text_between_three_quotes_is_left_alone(text):
    assert without_triple_quotes(text) == text


TEXTS = st.text(st.sampled_from("ab \\n#:{},[]\\\\'\"|>-é"), max_size=40)


@given(TEXTS.filter(lambda text: '"""' not in text and not text.endswith('"')))
def test_any_text_between_three_quotes_is_read_as_it_is_written(text):
    """But for white space around it."""
    read = parse(f'a: """{text}"""\nb: c\n'.encode(), "f").data
    assert read["b"] == "c"
    assert isinstance(read["a"], str)
    assert read["a"].split() == text.split()


def test_quotes_are_taken_from_around_a_text_alone():
    assert unquoted('"""x"""') == "x"
    assert unquoted('"""x') == '"""x'
    assert unquoted('""') == '""'
