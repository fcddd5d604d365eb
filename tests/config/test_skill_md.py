"""One SKILL.md: what it says as a skill, what is lived with, and what is refused."""

from contextlib import suppress
from functools import partial
from textwrap import dedent

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.config.allowed_tools import granted
from proxy.config.models import SkillEntry, StepEntry
from proxy.config.problems import Refused
from proxy.config.skill_md import LARGEST, LARGEST_FRONT_MATTER, SkillMd, body, front_matter, read, split

FILE = "skills/pdf/SKILL.md"
SERVERS = ("git", "time", "my__own", "my", "mcp")


def skill(text: str, servers: tuple[str, ...] = SERVERS) -> SkillMd:
    """What a SKILL.md with this front matter says."""
    return read(f"---\n{dedent(text).strip()}\n---\nGuide.\n".encode(), FILE, servers)


def entry(text: str) -> SkillEntry:
    """The same as an entry, of a skill that has a description."""
    return skill(f"description: d\n{dedent(text).strip()}").entry


def notes(text: str) -> list[str]:
    """The notes about a skill that has a name and a description, without the name of the file."""
    return [str(note).removeprefix(f"{FILE}:") for note in skill(f"name: pdf\ndescription: d\n{text}").notes]


def problems(text: str | bytes) -> list[str]:
    """What the whole file is refused with, without its name."""
    with pytest.raises(Refused) as refused:
        read(text.encode() if isinstance(text, str) else text, FILE, SERVERS)
    assert all(problem.file == FILE for problem in refused.value.problems)
    return [str(problem).removeprefix(f"{FILE}:").strip() for problem in refused.value.problems]


def test_a_skill_of_the_standard_is_one_of_skill_configs():
    """Its description and body stand for desc and usage; the body is not kept."""
    found = skill("""
        name: pdf-processing
        description: Extract PDF text. Use when handling PDFs.
        license: Apache-2.0
        compatibility: Needs qpdf
        metadata:
          author: example-org
          version: "1.0"
        """)
    assert found.entry.model_dump(exclude_unset=True) == {
        "name": "pdf-processing",
        "desc": "Extract PDF text. Use when handling PDFs.",
        "author": "example-org",
        "version": "1.0",
        "tool_list": {},
    }
    assert (found.name, found.license, found.compatibility) == ("pdf-processing", "Apache-2.0", "Needs qpdf")
    assert (found.trusting, found.unknown, found.notes, found.unserved) == ((), (), (), "")


def test_all_that_skill_configs_can_say_can_be_said():
    found = entry("""
        tool_list: {git: [git_log, "git_diff*"], time: "*"}
        resource_list: {git: "file:///a,b"}
        prompt_list: {git: []}
        active: yes
        pinned: "true"
        enabled: no
        category: documents
        tags: [a, b]
        version: 1.10
        author: me
        required_capabilities: write
        requires: {bins: [qpdf], env: TOKEN, os: [linux], servers: [git]}
        requires_skills: [x, y]
        conflicts_with: z
        exclusive: on
        max_active_minutes: 1.5
        on_activate: [{tool: git/a, save_as: b}]
        on_offload: [{tool: git/c}]
        hook_timeout: 2
        internal_tools: {git: k}
        bind: {git/git_log: {n: 3, o: "4"}}
        parameters: {p: {type: string, default: ~}}
        steps: [{parallel: [{skill: q}]}]
        output: {r: 5.5, s: "true"}
        output_schema: {type: object}
        expose_as_tool: yes
        activation: required
        max_execution_time_seconds: 6
        max_iterations: 7
        max_concurrent_executions: 8
        """)
    step = {
        **dict.fromkeys(StepEntry.model_fields),
        "arguments": {},
        "when": True,
        "on_error": "fail",
        "idempotent": False,
    }
    assert found.model_dump(exclude={"name", "desc", "usage"}) == {
        "tool_list": {"git": ("git_log", "git_diff*"), "time": ("*",)},
        "resource_list": {"git": ("file:///a,b",)},
        "prompt_list": {"git": ()},
        "active": True,
        "pinned": True,
        "enabled": False,
        "category": "documents",
        "tags": ("a", "b"),
        "version": "1.10",
        "author": "me",
        "required_capabilities": ("write",),
        "requires": {"bins": ("qpdf",), "any_bins": (), "env": ("TOKEN",), "os": ("linux",), "servers": ("git",)},
        "requires_skills": ("x", "y"),
        "conflicts_with": ("z",),
        "exclusive": True,
        "max_active_minutes": 1.5,
        "on_activate": ({**step, "tool": "git/a", "save_as": "b"},),
        "on_offload": ({**step, "tool": "git/c"},),
        "hook_timeout": 2.0,
        "internal_tools": {"git": ("k",)},
        "bind": {"git/git_log": {"n": 3, "o": "4"}},
        "parameters": {"p": {"type": "string", "default": None}},
        "steps": ({**step, "parallel": ({**step, "skill": "q"},)},),
        "output": {"r": 5.5, "s": "true"},
        "output_schema": {"type": "object"},
        "expose_as_tool": True,
        "activation": "required",
        "max_execution_time_seconds": 6.0,
        "max_iterations": 7,
        "max_concurrent_executions": 8,
    }


@pytest.mark.parametrize(
    ("written", "key", "value"),
    [
        ("tool_list: {git: [git_log]}", "tool_list", {"git": ("git_log",)}),
        ("tool_list: '{git: [git_log]}'", "tool_list", {"git": ("git_log",)}),
        ("tool_list: 'git: [git_log]'", "tool_list", {"git": ("git_log",)}),
        ("tool_list: |\n    git: [git_log]\n    time: '*'", "tool_list", {"git": ("git_log",), "time": ("*",)}),
        ('resource_list: "{\\"git\\": []}"', "resource_list", {"git": ()}),
        ("prompt_list: 'git: a'", "prompt_list", {"git": ("a",)}),
        ("active: 'true'", "active", True),
        ("pinned: true", "pinned", True),
        ("enabled: 'off'", "enabled", False),
        ("exclusive: yes", "exclusive", True),
        ("max_active_minutes: '30'", "max_active_minutes", 30.0),
        ("requires_skills: a, b", "requires_skills", ("a", "b")),
        ("requires_skills: '[a, \"b\"]'", "requires_skills", ("a", "b")),
        ("conflicts_with: |\n    - a\n    - b", "conflicts_with", ("a", "b")),
        ("required_capabilities: [a, b]", "required_capabilities", ("a", "b")),
        ("requires: '{bins: [git, gh]}'", "requires.bins", ("git", "gh")),
        ("category: '[1]'", "category", "[1]"),
        ("version: 1.0", "version", "1.0"),
        ("tags: 'a, b , c'", "tags", ("a", "b", "c")),
        ("tags: '[a, \"b\"]'", "tags", ("a", "b")),
        ("tags: ['a, b', c]", "tags", ("a", "b", "c")),
        ("internal_tools: 'git: [a]'", "internal_tools", {"git": ("a",)}),
        ("bind: 'git/a: {n: 1, o: \"2\"}'", "bind", {"git/a": {"n": 1, "o": "2"}}),
        ("steps: '[{tool: git/a, arguments: {n: 1}}]'", "steps.0.arguments", {"n": 1}),
        ("on_activate: |\n    - tool: git/a\n      when: false", "on_activate.0.when", False),
        ("on_offload: '- skill: b'", "on_offload.0.skill", "b"),
        ("parameters: '{p: {default: 1}}'", "parameters", {"p": {"default": 1}}),
        ("output: '{{ steps.a }}'", "output", "{{ steps.a }}"),
        ("output: '{a: 1}'", "output", {"a": 1}),
        ("output: 'of {{ steps.a }}'", "output", "of {{ steps.a }}"),
        ("output_schema: 'type: string'", "output_schema", {"type": "string"}),
        ("expose_as_tool: 'true'", "expose_as_tool", True),
        ("hook_timeout: '3'", "hook_timeout", 3.0),
        ("max_iterations: '4'", "max_iterations", 4),
    ],
)
def test_metadata_may_hold_it_as_text(written, key, value):
    """The standard wants text there, and other programs rely on that."""
    found: object = entry(f"metadata:\n  {written}")
    for part in key.split("."):
        found = found[int(part)] if isinstance(found, tuple) else getattr(found, part)
    assert found == value


def test_the_top_level_wins_over_metadata():
    found = entry("""
        tool_list: {git: [a]}
        version: 2
        tags: []
        metadata: {tool_list: "{time: [b]}", version: 1, tags: x, author: me}
        """)
    assert (found.tool_list, found.version, found.tags, found.author) == ({"git": ("a",)}, "2", (), "me")


def test_description_and_guide_are_not_said_twice():
    """desc and usage are keys of skill_configs alone."""
    found = entry("desc: other\nusage: other\nmetadata: {desc: other, usage: other}")
    assert (found.desc, found.usage) == ("d", "")
    assert not found.model_fields_set & {"usage"}


@pytest.mark.parametrize(
    ("tokens", "granted"),
    [
        ("mcp__git__git_log", {"git": ("git_log",)}),
        ("mcp__git__git_*", {"git": ("git_*",)}),
        ("mcp__git__*", {"git": ()}),
        ("mcp__git", {"git": ()}),
        ("git__git_log", {"git": ("git_log",)}),
        ("git__*", {"git": ()}),
        ("git:git_log git:git_show", {"git": ("git_log", "git_show")}),
        ("git:*", {"git": ()}),
        ("git:a git:*", {"git": ()}),
        ("git:* git:a", {"git": ()}),
        ("git:a, time:b,git:a", {"git": ("a",), "time": ("b",)}),
        ("my__own__x", {"my__own": ("x",)}),
        ("my__other", {"my": ("other",)}),
        ("mcp__my__own", {"my__own": ()}),
        ("mcp__my__own__a__b", {"my__own": ("a__b",)}),
        ("mcp__x", {"mcp": ("x",)}),
        ("mcp__mcp__x", {"mcp": ("x",)}),
        ("Read Bash(git:*) Bash(git status:*) Bash(mcp__git__x git:y)", {}),
        ("mcp__git__x(y) git:x(y) (git:x)", {}),
        ("git git__ git: : __ other:x other__x mcp__other mcp__", {"mcp": ("other",)}),
        ("Bash(a (git:b) git:c", {"git": ("c",)}),
        ("", {}),
    ],
)
def test_allowed_tools_grant_what_they_name_at_servers(tokens, granted):
    """What is written otherwise is about tools that the client has itself."""
    assert entry(f"allowed-tools: '{tokens}'").tool_list == granted
    assert entry(f"allowed-tools: ['{tokens}']").tool_list == granted


def test_very_many_allowed_tools_are_read_one_after_the_other():
    """Each is added to those before without looking at them again; with all among them, these are all."""
    tools = tuple(f"t{number}" for number in range(200_000))
    text = " ".join(f"git:{tool}" for tool in tools)
    assert granted([text, text], SERVERS) == {"git": tools}
    assert granted([text, "git:*"], SERVERS) == {"git": ()}


def test_allowed_tools_add_to_the_tool_list():
    """All tools of a server stay all."""
    found = entry("tool_list: {git: [a], time: []}\nallowed-tools: [git__b, time__c, my__d]")
    assert found.tool_list == {"git": ("a", "b"), "time": (), "my": ("d",)}


@pytest.mark.parametrize(
    ("text", "trusting"),
    [
        ("tool_list: {git: []}\nmetadata: {pinned: true}", ("tool_list", "metadata.pinned")),
        ("allowed-tools: git:a Read", ("allowed-tools",)),
        ("allowed-tools: Read\nactive: false\ntool_list: {}\nenabled: false\nrequires: {bins: a}", ()),
        ("requires_skills: a\nconflicts_with: b", ("requires_skills", "conflicts_with")),
        ("exclusive: true\nmax_active_minutes: 1", ("exclusive", "max_active_minutes")),
    ],
)
def test_what_needs_trust_is_named_as_it_is_written(text, trusting):
    """Where it changes nothing, it needs none."""
    assert skill(f"description: d\n{text}").trusting == trusting


def test_servers_that_there_are_not_are_named():
    """The file may be right, and the configuration another; where it requires the server, it is not offered anyway."""
    text = "description: d\nmetadata:\n  tool_list: '{gti: [], git: []}'\nprompt_list: {tme: []}\n"
    assert list(map(str, skill(text).unknown)) == [
        f"{FILE}:4: metadata.tool_list.gti: unknown server 'gti': did you mean 'git'?",
        f"{FILE}:5: prompt_list.tme: unknown server 'tme': did you mean 'time'?",
    ]
    assert skill(f"{text}requires: {{servers: [gti, tme]}}").unknown == ()
    many = ", ".join(f"s{index}: []" for index in range(1_000))
    assert len(skill(f"description: d\ntool_list: {{{many}}}").unknown) == 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("homepage: x\ndisable-model-invocation: true\nmodel: y\nmetadata: {a: b, tools: c}", []),
        ("tool_lst: {git: []}", ["4: tool_lst: unknown key, ignored: did you mean 'tool_list'?"]),
        ("metadata: {pined: true}", ["4: metadata.pined: unknown key, ignored: did you mean 'pinned'?"]),
        ("desc: x", ["4: desc: ignored: write description instead"]),
        ("usage: x", ["4: usage: ignored: the guide is the text below the front matter"]),
        ("allowedTools: x", ["4: allowedTools: unknown key, ignored: did you mean 'allowed-tools'?"]),
        ("metadata: text", ["4: metadata: ignored: must be a mapping, not text"]),
        ("license: [a]", ["4: license: ignored: must be text, not a list"]),
        ("license: '2'", []),
        ("license: 2", ["4: license: must be text, not a number or true or false: taken as text, put it in quotes"]),
        (f"compatibility: {'x' * 501}", ["4: compatibility: is longer than 500 characters"]),
        ("category: [a]", ["4: category: ignored: must be text, not a list"]),
        ("metadata: {author: {a: b}}", ["4: metadata.author: ignored: must be text, not a mapping"]),
        ("version:\nlicense:\ntags:\nmetadata:\nallowed-tools:", []),
        ("tags: {a: b}", ["4: tags: ignored: must be a list of words"]),
        ("tags: [a, [b]]", ["4: tags: ignored: must be a list of words"]),
        ("allowed-tools: {a: b}", ["4: allowed-tools: ignored: must be text or a list of texts, not a mapping"]),
        ("allowed-tools: [git:a, ~, [b]]", ["4: allowed-tools: ignored: must be text or a list of texts, not a list"]),
    ],
)
def test_what_only_people_look_at_is_ignored_where_it_is_wrong(text, expected):
    assert notes(text) == expected


def test_a_long_description_is_noted():
    """It is served nevertheless."""
    found = skill(f"name: a\ndescription: {'x' * 1025}")
    assert list(map(str, found.notes)) == [f"{FILE}:3: description: is longer than 1024 characters"]
    assert found.unserved == ""


@pytest.mark.parametrize(
    ("name", "note", "unserved"),
    [
        ("name: a1-b2", None, ""),
        ("other: x", None, "it has no name"),
        ("name:", None, "it has no name"),
        ("name: ''", None, "it has no name"),
        ("name: [a]", "name: ignored: must be text, not a list", "it has no name"),
        *[
            (f"name: {name}", f"name: {what}", f"its name {what}")
            for what in ["may only hold a-z, 0-9 and single hyphens between them"]
            for name in ("PDF", "-pdf", "pdf-", "pdf--x", "pdf x", "pdf_x", "é")
        ],
        (f"name: {'x' * 65}", "name: is longer than 64 characters", "its name is longer than 64 characters"),
        (
            "name: 12",
            "name: must be text, not a number or true or false: taken as text, put it in quotes",
            "its name is no text",
        ),
        ("name: '12'", None, ""),
    ],
)
def test_a_name_that_is_not_as_the_standard_wants_it(name, note, unserved):
    """The skill is there, but clients that know skills are not served it."""
    found = skill(f"{name}\ndescription: d")
    assert list(map(str, found.notes)) == ([f"{FILE}:2: {note}"] if note else [])
    assert found.unserved == unserved


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: a\n", "1: description: is missing: write one line by which a model can choose the skill"),
        (
            "name: a\ndescription:\n",
            "3: description: is missing: write one line by which a model can choose the skill",
        ),
        ("desc: what it is for\n", "2: desc: write description instead"),
        ("name: a\nDescription: what it is for\n", "3: Description: write description instead"),
        ("name: a\ndescripton: what it is for\n", "3: descripton: write description instead"),
        ("description: ' '\n", "2: description: is missing: write one line by which a model can choose the skill"),
        ("description: [a]\n", "2: description: must be text, not a list: put it in quotes"),
        ("description: {a: b}\n", "2: description: must be text, not a mapping: put it in quotes"),
        ("description: 5\n", "2: description: must be text, not a number or true or false: put it in quotes"),
        ("description: true\n", "2: description: must be text, not a number or true or false: put it in quotes"),
        ("", "1: description: is missing: write one line by which a model can choose the skill"),
        ("- a\n", "2: the front matter must be a mapping with keys such as name and description"),
        ("text\n", "2: the front matter must be a mapping with keys such as name and description"),
        ("description: d\ndescription: e\n", "3: description: given twice (first on line 2): keep one"),
    ],
)
def test_a_front_matter_that_says_nothing_is_refused(text, expected):
    assert problems(f"---\n{text}---\n") == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tool_list:", "3: tool_list: is empty: write {} if nothing belongs there, or leave it out"),
        (
            "tool_list: {git: }",
            "3: tool_list.git: says neither all nor none: write [] for all tools, or leave the server out",
        ),
        (
            "resource_list: {git: ~}",
            "3: resource_list.git: says neither all nor none: write [] for all resources, or leave the server out",
        ),
        ("tool_list: {git: [a, ~]}", "3: tool_list.git[1]: is empty: quote it if it is a name, or take it out"),
        ("tool_list: {git: 'a, b'}", "3: tool_list.git[0]: one text with a comma: write a list: [a, b]"),
        (
            "tool_list: git_log",
            '3: tool_list: must be a mapping (key: value), not text: write each server with its tools: "git_log: []"',
        ),
        (
            "tool_list: ''",
            '3: tool_list: must be a mapping (key: value), not text: write each server with its tools: "SERVER: []"',
        ),
        ("prompt_list: {git: {a: b}}", "3: prompt_list.git: must be a list, not a mapping"),
        ("active: maybe", "3: active: must be true or false"),
        ("pinned:", "3: pinned: is empty: write a value, or leave it out"),
        ("enabled: [true]", "3: enabled: must be true or false"),
        ("requires: {bin: [a]}", "3: requires.bin: unknown key: did you mean 'bins'?"),
        ("requires: [a]", "3: requires: must be a mapping (key: value), not a list"),
        ("requires_skills: a, b", "3: requires_skills[0]: one text with a comma: write a list: [a, b]"),
        ("max_active_minutes: 0", "3: max_active_minutes: must be a number of minutes greater than 0, such as 30"),
        (
            "metadata:\n  required_capabilities: ''",
            '4: metadata.required_capabilities[0]: is empty text and no name: take it out ([] or "*" stands for all)',
        ),
        (
            "metadata:\n  tool_list: '{git: [a'",
            "4: metadata.tool_list: holds YAML that is wrong: a [ opens here and is not closed",
        ),
        (
            "metadata:\n  tool_list: '{git: a, git: b}'",
            "4: metadata.tool_list: holds YAML that is wrong: given twice (first on line 2): keep one",
        ),
        (
            "metadata:\n  requires: text",
            "4: metadata.requires: must be a mapping (key: value), not text",
        ),
        (
            "metadata:\n  tool_list: '{git: ~}'",
            "4: metadata.tool_list.git: says neither all nor none: write [] for all tools, or leave the server out",
        ),
        (
            "metadata:\n  tool_list: ~",
            "4: metadata.tool_list: is empty: write {} if nothing belongs there, or leave it out",
        ),
        (
            "metadata:\n  requires_skills: '[a'",
            "4: metadata.requires_skills: holds YAML that is wrong: a [ opens here and is not closed",
        ),
    ],
)
def test_what_the_gate_goes_by_is_never_guessed(text, expected):
    """The same words as for skill_configs, at the place where it is written."""
    assert problems(f"---\ndescription: d\n{text}\n---\n") == [expected]


def test_every_problem_is_named():
    assert problems("---\nname: a\ntool_list: x\nactive: y\n---\n") == [
        "1: description: is missing: write one line by which a model can choose the skill",
        '3: tool_list: must be a mapping (key: value), not text: write each server with its tools: "x: []"',
        "4: active: must be true or false",
    ]


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("name: a\ndescription: Use when: asked\n", "Use when: asked"),
        (
            "name: a\ndescription: Use when: it's asked\n  Or: not\n\n  or else\n",
            "Use when: it's asked Or: not\nor else",
        ),
        ("name: a\ndescription: [beta] Reads files\n", "[beta] Reads files"),
        ("name: a\ndescription: *Always* use: it\n", "*Always* use: it"),
        ("name: a\r\ndescription: Use when: asked\r\n", "Use when: asked"),
        ("name: a\nlicense: See: LICENSE\ndescription: d\ncompatibility: @all\n", "d"),
        ('name: a\ndescription: "Reads" files\n', '"Reads" files'),
        ("name: a\ndescription: 'it's here'\n", "it's here"),
        ('name: a\ndescription: "C:\\path"\nmodel: x\n', "C:\\path"),
        ("name: a\ndescription: `code` first\n", "`code` first"),
        ("name: a\ndescription: %s is: it\n", "%s is: it"),
        ("name: a\ndescription: First: line\ngoes on here\n", "First: line goes on here"),
        ("name: a\ndescription: > Use when: asked\n", "> Use when: asked"),
        ("name: a\ndescription: Use when: asked\t \n", "Use when: asked"),
        ("name: a\ndescription:\n  Use when: asked\n", "Use when: asked"),
        ("name: a\ndescription:\n  Use when: asked\n  Not: else\n", "Use when: asked Not: else"),
    ],
)
def test_texts_that_need_quotes_are_read_as_if_they_had_them(text, description):
    """Other programs read them so; but they are no YAML, and clients that know skills would stumble."""
    found = read(f"---\n{text}---\n".encode(), FILE, SERVERS)
    assert found.entry.desc == description
    assert found.name == "a"
    assert [note.line for note in found.notes] == ([3, 5] if "compatibility" in text else [3])
    assert all(str(note).endswith(": read as if the text were in quotes") for note in found.notes)
    assert found.unserved.startswith(("the front matter is not valid YAML: ", "its description is no text"))
    with suppress(Refused):
        assert not isinstance(front_matter(f"---\n{text}---\n".encode(), FILE)["description"], str)


def test_numbers_in_a_front_matter_that_needs_quotes_are_text():
    """It cannot be told what they are to other readers."""
    found = read(b"---\nname: 12\ndescription: b: c\n---\n", FILE, SERVERS)
    assert (found.name, len(found.notes)) == ("12", 1)


def test_only_texts_that_need_quotes_get_them():
    """A name that is a list stays one; grants keep their meaning, and are refused where they have none."""
    found = read(b"---\nname: [a]\ndescription: b: c\ntool_list: {git: [x]}\n---\n", FILE, SERVERS)
    assert (found.name, found.entry.tool_list) == ("", {"git": ("x",)})
    assert problems("---\ndescription: b: c\ntool_list: git: x\n---\n") == [
        '3: tool_list: text with ": " in it needs quotes, or a value stands on the wrong line'
    ]


FOREIGN = [
    *(
        "argument-hint: [a] [b]",
        "when_to_use: Use when: asked",
        "allowed-tools: *",
        "allowed-tools: Bash(git: *), Read",
    ),
    *("argument-hint: <a>: <b>", "model: *opus", "hint: &x &y", "hint: !x", "hint: !x y", "hint: %x", "hint: @x"),
    *("hint: `x`", "hint: 'a'b'", 'hint: "a" b', 'hint: "\\d"', "hint: {a: 1, a: 2}", "hint: [1,\n  2", "hint: | x"),
    *("hint: {{x}}", "hint: }", "hint: - x", "hint: a\n- b", "hint:\n\tx: y", "hint: x\nhint: y", "~: x"),
    *(
        "hooks:\n  Pre:\n  - x: y\n z: 1",
        "hint: x\n  y: z",
        "mcp:\n  a: !!python/name:os.system y",
    ),
    *("x: *a\ny: &a b", "allowed-tools: [Read] [Write]", "[a]: b", "{a}: b", "hint: 'open", 'hint: "open'),
]


@pytest.mark.parametrize("text", FOREIGN)
@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("form", ["{0}\nname: a\ndescription: d\n", "name: a\ndescription: d\n{0}\n"])
def test_what_means_nothing_here_never_costs_a_skill(text, trusted, form):
    found = read(f"---\n{form.format(text)}---\n".encode(), FILE, SERVERS, trusted=trusted)
    assert (found.name, found.entry.desc, found.entry.tool_list) == ("a", "d", {})
    assert found.notes
    assert found.unserved


def test_what_is_beside_an_unreadable_key_holds():
    found = skill(
        "name: a\nargument-hint: [a] [b]\ndescription: d\ntool_list: {git: [x]}\nmetadata:\n  author: A: B\n"
        "  pinned: true\n  hint: [a] [b]"
    )
    assert (found.entry.tool_list, found.entry.author, found.entry.pinned) == ({"git": ("x",)}, "A: B", True)
    assert [note.path for note in found.notes] == ["metadata.author", "argument-hint", "metadata.hint"]
    assert found.trusting == ("tool_list", "metadata.pinned")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("tool_list: [a] [b]", 3),
        ("tool_list: {git: [a]}\ntool_list: {git: [b]}", 4),
        ("pinned: !x true", 3),
        ("allowed-tools: [Read] [mcp__git__x]", 3),
        ("allowed-tools: *, git:x", 3),
        ("metadata:\n  tool_list: [a] [b]", 4),
        ("metadata: {tool_list: [a] [b]}", 3),
        ("hint: 'open\ntool_list: {git: []}", 3),
        ("hint: [open\nmetadata:\n  tool_list: '{git: []}'", 3),
    ],
)
def test_a_grant_that_cannot_be_read_is_never_guessed(text, line):
    """Where the folder is trusted; elsewhere it has no force."""
    (problem,) = problems(f"---\ndescription: d\n{text}\n---\n")
    assert problem.startswith(f"{line}: ")
    assert read(f"---\ndescription: d\n{text}\n---\n".encode(), FILE, SERVERS, trusted=False).notes


@pytest.mark.parametrize(
    "text",
    [
        *("requires: [python3]", "requires: python3", "requires: {node: '>=18'}", "parameters: none", "steps: 3"),
        *(
            "tool_list: Bash",
            "tool_list: [Read]",
            "active: always",
            "enabled: auto",
            "bind: x",
            "on_activate: run",
            "output_schema: text",
            "exclusive: [a]",
            "max_iterations: many",
            "metadata: {requires: '{a'}",
            "pinned:",
            "metadata:\n  steps: 'x: [y'",
            "expose_as_tool: maybe",
            "requires_skills: {a: b}",
            "resource_list: 5",
        ),
    ],
)
def test_keys_of_others_that_are_called_like_ours_cost_nothing_where_they_have_no_force(text):
    content = f"---\nname: a\ndescription: d\n{text}\n---\n".encode()
    found = read(content, FILE, SERVERS, trusted=False)
    assert found.notes[0].what.startswith("ignored: ")
    assert (found.entry.desc, found.trusting) == ("d", ())
    with pytest.raises(Refused):
        read(content, FILE, SERVERS)


def test_what_is_right_of_what_an_untrusted_skill_requires_holds():
    found = read(b"---\ndescription: d\nrequires: {bins: [git], node: '>=18'}\n---\n", FILE, SERVERS, trusted=False)
    assert found.entry.requires.bins == ("git",)


@pytest.mark.parametrize("text", ["required_capabilities: {a: b}", "metadata:\n  required_capabilities: [a] [b]"])
def test_what_narrows_who_may_use_a_skill_is_never_guessed(text):
    with pytest.raises(Refused):
        read(f"---\ndescription: d\n{text}\n---\n".encode(), FILE, SERVERS, trusted=False)


def test_very_many_keys_are_not_read_one_by_one():
    keys = "".join(f"k{number}: x\n" for number in range(5_000))
    (problem,) = problems(f"---\ndescription: d\n{keys}x: [a] [b]\n---\n")
    assert problem.startswith("5003: ")


@pytest.mark.parametrize(
    ("content", "front", "guide"),
    [
        (b"---\nname: a\n---\nGuide\n", "name: a\n", "Guide\n"),
        (b"\xef\xbb\xbf---\nname: a\n---\nGuide", "name: a\n", "Guide"),
        (b"---\r\nname: a\r\n---\r\nGuide\r\n", "name: a\r\n", "Guide\r\n"),
        (b"--- \t\nname: a\n---  \nGuide\n", "name: a\n", "Guide\n"),
        (b"---\n---\n", "", ""),
        (b"---\n---", "", ""),
        (b"---\nname: a\n---\n\nOne\n---\nTwo\n", "name: a\n", "\nOne\n---\nTwo\n"),
        (b"---\na: b --- c\n ---\n----\n---\n", "a: b --- c\n ---\n----\n", ""),
    ],
)
def test_a_file_is_split_where_its_front_matter_ends(content, front, guide):
    assert split(content, FILE) == (front, guide, 1)


def test_the_guide_is_what_is_below():
    """Without the blank lines around it; its indentation is its own."""
    assert body(b"---\na: b\n---\r\n\n    code\n\ntext\n\n", FILE) == "    code\n\ntext"
    assert body(b"---\na: b\n---\n\n", FILE) == ""


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", '1: the first line must be "---": the front matter with name and description begins there'),
        (
            b"# Title\n---\na: b\n---\n",
            '1: the first line must be "---": the front matter with name and description begins there',
        ),
        (
            b"\n---\na: b\n---\n",
            '1: the first line must be "---": the front matter with name and description begins there',
        ),
        (
            b"---\ra: b\r---\r",
            '1: the first line must be "---": the front matter with name and description begins there',
        ),
        (b"---\nname: a\n", '1: the front matter that begins here does not end: write a line "---" below it'),
        (
            b"---\nname: a\n --- \n----\n",
            '1: the front matter that begins here does not end: write a line "---" below it',
        ),
        (b"---\nname: \xff\n---\n", "2: not UTF-8 text: save the file as UTF-8"),
        ("---\nname: a\n---\n".encode("utf-16"), "1: not UTF-8 text: save the file as UTF-8"),
        (b"---\n---\n" + b"x" * LARGEST, "larger than 1 MiB: move what is not needed at once to other files"),
        (
            b"---\n" + b"#" * LARGEST_FRONT_MATTER + b"\n---\n",
            "1: the front matter is larger than 64 KiB: move text below it",
        ),
        (b"---\nname: \x00\n---\n", "2: the character U+0000 cannot stand in YAML"),
        (
            b"---\na: &a [" + b"x, " * 99 + b"]\nb: [" + b"*a, " * 99 + b"]\n---\n",
            "2: b[18]: more than 2,000 values once the aliases are expanded",
        ),
        (
            b"---\nl0: &l0 [x, x]\n"
            + b"".join(b"l%d: &l%d [*l%d, *l%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 60))
            + b"---\n",
            "2: l8[1]: more than 2,000 values once the aliases are expanded",
        ),
        (b"---\n" + b"[" * 60_000 + b"\n---\n", "2: not valid YAML: nested too deep"),
    ],
)
def test_what_is_no_skill_md_is_refused(content, expected):
    """Quickly, whatever it holds."""
    (problem,) = problems(content)
    assert problem == expected


def test_clients_that_know_skills_get_the_front_matter_as_it_is_written():
    """With its own types: they parse the file themselves, and compare."""
    text = "---\nname: a\nversion: 1.10\nmetadata: {n: 0123, t: 12:30, b: yes, q: '1', ok: true, x: }\nl: [1, a]\n---\n"
    assert front_matter(text.encode(), FILE) == {
        "name": "a",
        "version": 1.1,
        "metadata": {"n": 123, "t": "12:30", "b": "yes", "q": "1", "ok": True, "x": None},
        "l": [1, "a"],
    }


@pytest.mark.parametrize("text", ["- a\n", "text\n", "", "a: 1\na: 2\n", "a: [\n"])
def test_a_front_matter_without_a_single_meaning_is_not_given(text):
    with pytest.raises(Refused):
        front_matter(f"---\n{text}---\n".encode(), FILE)


PIECES = [
    *(
        b"---\n",
        b"---\r\n",
        b"--- \n",
        b"name: a\n",
        b"description: b\n",
        b"description: b: c\n",
        b"description: '",
        b"\n",
    ),
    *(
        b"metadata:\n",
        b"  tool_list: ",
        b"'{git: [a]}'\n",
        b"tool_list: ",
        b"{git: [a]}\n",
        b"- x\n",
        b"  y: z\n",
        b"[",
        b"}",
    ),
    *(
        b"\xff",
        b"\x00",
        b"\xef\xbb\xbf",
        b"&a ",
        b"*a\n",
        b"<<: ",
        b"'",
        b'"',
        b"\\ud800",
        b"\t",
        b"\r",
        b"|\n",
        b"!!x ",
        b": ",
        b", ",
    ),
    *(
        b"  requires: '",
        b"  conflicts_with: '[",
        b"allowed-tools: ",
        b"mcp__git__a ",
        b"git:(",
        b"\xe2\x80\xa8",
        b"\xc2\x85",
        b"# ",
    ),
]
CONTENTS = st.binary() | st.lists(st.sampled_from(PIECES)).map(b"".join)


@given(CONTENTS | CONTENTS.map(lambda inside: b"---\ndescription: d\n" + inside + b"\n---\n"))
@example(b'---\ndescription: d\nmetadata:\n  tool_list: "\\u2028---\\n...\\n"\n---\n')
def test_no_bytes_do_anything_but_be_read_or_refused(content):
    for reading in (split, body, front_matter, partial(read, servers=SERVERS)):
        with suppress(Refused):
            reading(content, FILE)
