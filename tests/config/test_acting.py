"""What skills do by themselves, from the file to what the proxy works by; every mistake is named at load."""

import subprocess
import sys

import pytest

from proxy.core.catalogue import EVERYTHING, Allow
from proxy.core.steps import Call, Parallel, Workflow

SERVERS = "servers: {desk: {command: p}, a: {command: p}, a/b: {command: p}, off: {command: p, disabled: true}}\n"
TRUSTED = SERVERS + "skill_paths: [{path: s, trusted: true}]\n"
EVERYTHING_AT_ONCE = """\
servers: {desk: {command: python}, a: {command: python}, a/b: {command: python}}
on_scope_start:
  - {tool: desk/whoami, save_as: heap.me, arguments: {region: "{{ env.REGION }}"}}
skill_configs:
  case:
    tool_list: {desk: [find, "get_*"]}
    internal_tools: {desk: open, a/b: []}
    on_activate:
      - name: open it
        tool: desk/open
        arguments: {who: "{{ heap.me }}", n: 5, s: "5", none: null, f: 1.5, "on": true, list: [1, "1", ~], text: on}
        save_as: case
        when: "{{ heap.me is defined }}"
        timeout: 2.5
        retry: {times: 3, delay: 0.5}
        idempotent: true
      - parallel:
          - {tool: desk/get_a, save_as: a}
          - {tool: a/b/c/d, save_as: heap.b, on_error: continue}
        when: "{{ steps.case.open }}"
    on_offload: [{tool: desk/find, when: false}]
    hook_timeout: 5
    bind: {desk/find: {customer: "{{ heap.me }}", limit: 3, none: ~}, a/b/c: {}}
    parameters: {q: {type: string, required: true}, n: {type: integer, default: 3}}
    steps:
      - {tool: desk/find, arguments: {q: "{{ params.q }}"}, save_as: found}
      - {skill: other, for_each: "{{ steps.found }}", arguments: {x: "{{ item.name }}"}, when: "{{ index < 3 }}"}
      - {skill: other, for_each: [1, "1"], arguments: {x: "a {{ item }}"}}
    output: {found: "{{ steps.found }}", none: null, n: 1}
    output_schema: {type: object, required: [found]}
    expose_as_tool: true
    activation: required
    max_execution_time_seconds: 10
    max_iterations: 4
    max_concurrent_executions: 2
  other:
    tool_list: {a: []}
    on_activate: []
    parameters: {x: {type: string, required: true}}
    steps: [{parallel: [{tool: a/c}, {tool: a/d}]}, {tool: a/e}]
proxy: {hook_timeout: 7, expression_env: [REGION]}
"""


def skills(room, text, environ=None):
    return room.load(text, environ).catalogue.by_id


def of_case(body: str) -> str:
    """A file whose skill `case` has this body, from line 4 on; beside it, skills that can and cannot be invoked."""
    return (
        SERVERS
        + "skill_configs:\n  case:\n"
        + "".join(f"    {line}\n" for line in body.splitlines())
        + "  runs: {tool_list: {desk: []}, parameters: {x: {required: true}}, steps: [{tool: desk/find}]}\n"
        + "  silent: {usage: Nothing to run.}\n"
    )


# --- what it becomes --------------------------------------------------------------------------------------------------


def test_a_file_with_everything_is_read_whole(room):
    """Free values have YAML's core types, and what is in quotes is text."""
    loaded = room.load(EVERYTHING_AT_ONCE, {"REGION": "north"})
    case, other = loaded.catalogue.skills

    assert (case.hook_timeout, other.hook_timeout) == (5.0, 7.0)
    assert case.on_activate == (
        Call(
            place="on_activate[0]",
            name="open it",
            server="desk",
            tool="open",
            arguments={
                "who": "{{ heap.me }}",
                "n": 5,
                "s": "5",
                "none": None,
                "f": 1.5,
                "on": True,
                "list": [1, "1", None],
                "text": "on",
            },
            save_as="case",
            when="{{ heap.me is defined }}",
            timeout=2.5,
            retries=3,
            retry_delay=0.5,
            idempotent=True,
        ),
        Parallel(
            place="on_activate[1]",
            steps=(
                Call("on_activate[1].parallel[0]", "a", "desk", "get_a", save_as="a"),
                Call("on_activate[1].parallel[1]", "heap.b", "a/b", "c/d", save_as="heap.b", on_error="continue"),
            ),
            when="{{ steps.case.open }}",
        ),
    )
    assert case.on_offload == (Call("on_offload[0]", "desk/find", "desk", "find", when=False),)
    assert case.internal == {"desk": Allow(entries=("open",)), "a/b": EVERYTHING}
    assert case.bind == {"desk": {"find": {"customer": "{{ heap.me }}", "limit": 3, "none": None}}}
    assert case.workflow == Workflow(
        steps=(
            Call("steps[0]", "found", "desk", "find", arguments={"q": "{{ params.q }}"}, save_as="found"),
            Call(
                "steps[1]",
                "other",
                skill="other",
                arguments={"x": "{{ item.name }}"},
                for_each="{{ steps.found }}",
                when="{{ index < 3 }}",
            ),
            Call("steps[2]", "other", skill="other", arguments={"x": "a {{ item }}"}, for_each=[1, "1"]),
        ),
        parameters={
            "type": "object",
            "properties": {"q": {"type": "string"}, "n": {"type": "integer", "default": 3}},
            "required": ["q"],
            "additionalProperties": False,
        },
        output={"found": "{{ steps.found }}", "none": None, "n": 1},
        own_output=True,
        output_schema={"type": "object", "required": ["found"]},
        tool=True,
        needs_activation=True,
        max_seconds=10.0,
        max_calls=4,
        max_runs=2,
    )
    assert (other.on_activate, other.workflow and other.workflow.max_calls) == ((), 30)
    assert loaded.catalogue.on_start == (
        Call(
            "on_scope_start[0]",
            "heap.me",
            "desk",
            "whoami",
            arguments={"region": "{{ env.REGION }}"},
            save_as="heap.me",
        ),
    )
    assert (loaded.catalogue.start_timeout, loaded.settings.expression_env) == (7.0, {"REGION": "north"})
    assert loaded.notes == ()


def test_steps_that_say_little_have_the_defaults(room):
    """And a skill without parameters takes none."""
    (case,) = skills(
        room, f"{SERVERS}skill_configs: {{c: {{tool_list: {{desk: []}}, steps: [{{tool: desk/x}}]}}}}"
    ).values()
    assert case.workflow == Workflow(
        steps=(Call("steps[0]", "desk/x", "desk", "x"),),
        parameters={"type": "object", "properties": {}, "additionalProperties": False},
    )
    assert case.hook_timeout == 30.0


def test_an_empty_list_of_steps_does_nothing(room):
    loaded = room.load(
        f"{SERVERS}on_scope_start: []\nskill_configs: {{c: {{steps: [], on_activate: [], on_offload: []}}}}"
    )
    assert (loaded.catalogue.by_id["c"].workflow, loaded.catalogue.by_id["c"].hooked) == (None, False)
    assert loaded.catalogue.on_start == ()


def test_values_by_anchor_and_merge_keep_their_types(room):
    body = """\
tool_list: {desk: []}
on_activate:
  - &step {tool: desk/a, arguments: &given {n: 1, s: "1"}}
  - {<<: *step, tool: desk/b, arguments: {<<: *given, s: two}}
"""
    first, second = skills(room, of_case(body))["case"].on_activate
    assert (first.arguments, second.tool, second.arguments) == ({"n": 1, "s": "1"}, "b", {"n": 1, "s": "two"})


def test_variables_for_expressions_come_from_the_environment_or_the_env_file_and_are_secrets(room):
    """The environment wins; what is not set is said."""
    (room.folder / "x.env").write_text("A=from-the-file\nB=of-the-file\n")
    loaded = room.load("env_file: x.env\nproxy: {expression_env: [A, B, C]}", {"A": "from-outside", "D": "not-listed"})
    assert loaded.settings.expression_env == {"A": "from-outside", "B": "of-the-file"}
    assert {"from-outside", "of-the-file"} <= loaded.secrets
    assert "not-listed" not in loaded.secrets
    assert f"{room.file}:2: proxy.expression_env[2]: variable C is not set: env.C is undefined" in loaded.notes


def test_neither_jinja_nor_jsonschema_is_loaded_for_a_file_without_expressions_and_schemas(room):
    """They take their time, at every start."""
    room.load(
        of_case("tool_list: {desk: []}\non_activate: [{tool: desk/a, arguments: {n: 1}}]\nbind: {desk/a: {m: x}}")
    )
    text = room.file.read_text().replace("parameters: {x: {required: true}}, ", "")
    room.file.write_text(text)
    code = (
        "import sys; from pathlib import Path; from proxy.config.load import load; load(Path(sys.argv[1]), {}); "
        "print({'jinja2', 'jsonschema', 'referencing'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code, room.file], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# --- mistakes ---------------------------------------------------------------------------------------------------------

GRANTS = "tool_list: {desk: [find, 'get_*']}\n"
CASE = "skill_configs.case"
ONE_OF = "a step has one of tool, skill and parallel"
OURS = "a step calls a tool of a server, or `skill: ID`; only clients activate skills"
MISTAKES = [
    # kinds of steps
    (
        "steps: [{}]",
        ["5: {}.steps[0]: " + ONE_OF + ": write tool: SERVER/TOOL, or skill: ID"],
    ),
    (
        "on_activate:\n  - tool: desk/find\n    skill: runs\n    arguments: {x: y}",
        ["7: {}.on_activate[0].skill: " + ONE_OF + ", and this has tool"],
    ),
    ("steps: [{parallel: []}]", ["5: {}.steps[0].parallel: is empty: write the steps that run side by side"]),
    (
        "steps:\n  - parallel: [{tool: desk/find}]\n    save_as: x\n    name: y",
        [
            "7: {}.steps[0].save_as: does not go with parallel: write it at the steps in there",
            "8: {}.steps[0].name: does not go with parallel: write it at the steps in there",
        ],
    ),
    (
        "steps:\n  - parallel:\n    - parallel: [{tool: desk/find}]",
        [
            (
                "7: {}.steps[0].parallel[0].parallel: "
                "parallel cannot stand inside of parallel: put its steps beside the others"
            )
        ],
    ),
    (
        "steps:\n  - parallel:\n    - {}",
        ["7: {}.steps[0].parallel[0]: " + ONE_OF + ": write tool: SERVER/TOOL, or skill: ID"],
    ),
    # shapes
    ("steps: {tool: desk/find}", ["5: {}.steps: must be a list of steps: write - tool: SERVER/TOOL below it"]),
    ("on_offload: desk/find", ["5: {}.on_offload: must be a list of steps: write - tool: SERVER/TOOL below it"]),
    ("steps: [desk/find]", ['5: {}.steps[0]: must be a mapping (key: value), not text: write "tool: desk/find"']),
    (
        "on_offload: [find, [x]]",
        [
            '5: {}.on_offload[0]: must be a mapping (key: value), not text: write "tool: SERVER/TOOL"',
            '5: {}.on_offload[1]: must be a mapping (key: value), not a list: write "tool: SERVER/TOOL"',
        ],
    ),
    (
        (
            "steps:\n  - tool: desk/find\n    arguments: {a: {{ params.x }}}\n"
            "  - tool: desk/find\n    arguments:\n      a: {{ 1 }}"
        ),
        [
            '7: {}.steps[0].arguments.a: an expression needs quotes: write "{{{{ … }}}}"',
            '10: {}.steps[1].arguments.a: an expression needs quotes: write "{{{{ … }}}}"',
        ],
    ),
    (
        "steps: [{tool: desk/find, arguments: {a: '{{ steps.a }}', b: '{{ params.b }}', c: '{{ env.C }}'}}]",
        [
            "5: {}.steps[0].arguments.a: steps: there is no member 'a'; no step before this one saves it",
            "5: {}.steps[0].arguments.b: params: there is no member 'b'; parameters does not have it",
            "5: {}.steps[0].arguments.c: env: there is no member 'C'; proxy.expression_env does not have it",
        ],
    ),
    ("steps: [{tol: desk/find}]", ["5: {}.steps[0].tol: unknown key: did you mean 'tool'?"]),
    (
        "steps: [{parallel: [{tool: desk/find, on_eror: fail}]}]",
        ["5: {}.steps[0].parallel[0].on_eror: unknown key: did you mean 'on_error'?"],
    ),
    (
        "steps: [{tool: desk/find, arguments: [a]}]",
        ["5: {}.steps[0].arguments: must be a mapping (key: value), not a list"],
    ),
    (
        "steps: [{tool: desk/find, timeout: soon}]",
        ["5: {}.steps[0].timeout: must be a number of seconds greater than 0, such as 30"],
    ),
    ("on_activate:", ["5: {}.on_activate: is empty: write [] for an empty list, or leave it out"]),
    (
        "steps: [{tool: desk/find, arguments: }]",
        ["5: {}.steps[0].arguments: is empty: write {{}} if nothing belongs there, or leave it out"],
    ),
    ("steps: [{tool: desk/find, when: }]", ["5: {}.steps[0].when: is empty: write a value, or leave it out"]),
    (
        "internal_tools: {desk: }",
        ["5: {}.internal_tools.desk: says neither all nor none: write [] for all tools, or leave the server out"],
    ),
    ("bind: {desk/find: }", ["5: {}.bind.desk/find: is empty: write {{}} if nothing belongs there, or leave it out"]),
    # names of tools and skills
    ("steps: [{tool: dask/find}]", ["5: {}.steps[0].tool: unknown server 'dask': did you mean 'desk'?"]),
    ("steps: [{tool: desk/}]", ["5: {}.steps[0].tool: names no tool of server desk: write desk/TOOL"]),
    ("steps: [{tool: find}]", ["5: {}.steps[0].tool: names no server: write SERVER/TOOL"]),
    ("steps: [{tool: desk__find}]", ["5: {}.steps[0].tool: names no server: write desk/find"]),
    ("steps: [{tool: runs}]", ["5: {}.steps[0].tool: names no server: write SERVER/TOOL, or skill: runs"]),
    (
        "on_activate: [{tool: SKILL, arguments: {action: activate}}]",
        ["5: {}.on_activate[0].tool: " + OURS],
    ),
    (
        "steps: [{tool: SKILL_CALL}, {tool: SKILL_INVOKE}]",
        [
            "5: {}.steps[0].tool: " + OURS,
            "5: {}.steps[1].tool: " + OURS,
        ],
    ),
    ("steps: [{tool: 'desk/get_*'}]", ["5: {}.steps[0].tool: is a pattern: write the name of one tool"]),
    (
        "steps: [{tool: desk/close}]",
        [
            (
                "5: {}.steps[0].tool: the skill does not grant this tool: add internal_tools: {{desk: [close]}}, or to "
                "tool_list what clients may call, too"
            )
        ],
    ),
    (
        "steps: [{tool: a/b/c}]",
        [
            (
                "5: {}.steps[0].tool: the skill does not grant this tool: add internal_tools: {{a/b: [c]}}, or to "
                "tool_list what clients may call, too"
            )
        ],
    ),
    ("internal_tools:\n  dask: [x]", ["6: {}.internal_tools.dask: unknown server 'dask': did you mean 'desk'?"]),
    ("steps: [{skill: rums}]", ["5: {}.steps[0].skill: unknown skill 'rums': did you mean 'runs'?"]),
    ("steps: [{skill: silent}]", ["5: {}.steps[0].skill: skill silent has no steps: there is nothing to invoke"]),
    (
        "steps:\n  - skill: runs\n    arguments:\n      y: 1",
        [
            "7: {}.steps[0].arguments: skill runs needs the parameter x: add it",
            "8: {}.steps[0].arguments.y: skill runs has no such parameter: known here: x",
        ],
    ),
    ("on_activate: [{skill: runs}]", ["5: {}.on_activate[0].arguments: skill runs needs the parameter x: add it"]),
    # names that results are kept under
    (
        "steps: [{tool: desk/find, save_as: a-b}, {tool: desk/find, save_as: steps.a}, {tool: desk/find, save_as: 1a}]",
        [
            "5: {}.steps[0].save_as: must be a name of letters, digits and _, or heap. and such a name",
            "5: {}.steps[1].save_as: must be a name of letters, digits and _, or heap. and such a name",
            "5: {}.steps[2].save_as: must be a name of letters, digits and _, or heap. and such a name",
        ],
    ),
    (
        "steps:\n  - {tool: desk/find, save_as: a}\n  - parallel:\n    - {tool: desk/find, save_as: a}",
        ["8: {}.steps[1].parallel[0].save_as: steps[0] is saved as that, too: each needs a name of its own"],
    ),
    # retry
    (
        "steps: [{tool: desk/find, retry: {times: 11}}, {tool: desk/find, retry: {delay: 2}}]",
        [
            "5: {}.steps[0].retry.times: must be a whole number from 1 to 10",
            "5: {}.steps[1].retry.times: is missing: write it, since there is no default",
        ],
    ),
    (
        "steps: [{tool: desk/find, retry: {times: 0, delay: 301}}, {tool: desk/find, retry: {tims: 1, times: 2}}]",
        [
            "5: {}.steps[0].retry.times: must be a whole number from 1 to 10",
            "5: {}.steps[0].retry.delay: must be a number of seconds greater than 0, at most 300",
            "5: {}.steps[1].retry.tims: unknown key: did you mean 'times'?",
        ],
    ),
    (
        "steps: [{tool: desk/find, retry: 3}]",
        ["5: {}.steps[0].retry: must be a mapping (key: value), not text"],
    ),
    (
        "steps: [{parallel: [{tool: desk/find}], retry: {times: 2}}]",
        ["5: {}.steps[0].retry: does not go with parallel: write it at the steps in there"],
    ),
    # when and for_each
    (
        "steps: [{tool: desk/find, when: yes}]",
        ['5: {}.steps[0].when: must be true, false or one expression, such as "{{{{ steps.found }}}}"'],
    ),
    (
        'steps: [{tool: desk/find, when: "not {{ heap.x }}"}]',
        ['5: {}.steps[0].when: must be true, false or one expression, such as "{{{{ steps.found }}}}"'],
    ),
    (
        'steps: [{parallel: [{tool: desk/find}], when: "true"}]',
        ['5: {}.steps[0].when: must be true, false or one expression, such as "{{{{ steps.found }}}}"'],
    ),
    (
        "steps: [{tool: desk/find, for_each: 3}, {tool: desk/find, for_each: {a: 1}}]",
        [
            '5: {}.steps[0].for_each: must be a list, or one expression for it, such as "{{{{ steps.found }}}}"',
            '5: {}.steps[1].for_each: must be a list, or one expression for it, such as "{{{{ steps.found }}}}"',
        ],
    ),
    # workflows
    (
        "output: x\nparameters: {}\nactivation: required",
        [
            "5: {}.output: goes with steps, of which there are none: write some, or take it out",
            "6: {}.parameters: goes with steps, of which there are none: write some, or take it out",
            "7: {}.activation: goes with steps, of which there are none: write some, or take it out",
        ],
    ),
    (
        "steps: []\nmax_iterations: 3",
        ["6: {}.max_iterations: goes with steps, of which there are none: write some, or take it out"],
    ),
    (
        "steps: [{tool: desk/find}]\nparameters: {q: {type: text}}",
        ["6: {}.parameters: q: there is no type 'text': string, integer, number, boolean, array, object, null"],
    ),
    (
        "steps: [{tool: desk/find}]\nparameters: {q: {pattern: '(a)\\1'}}",
        [r"6: {}.parameters: properties.q.pattern: '(a)\\1' cannot be used: back-references are not supported"],
    ),
    (
        "steps: [{tool: desk/find}]\noutput_schema: {patternProperties: {'(?=a)': {}}}",
        ["6: {}.output_schema: patternProperties: '(?=a)' cannot be used: look-around is not supported"],
    ),
    (
        "steps: [{tool: desk/find}]\nparameters: {q: }",
        ["6: {}.parameters: q: is neither a type, such as string, nor a mapping such as {{type: string}}"],
    ),
    (
        "steps: [{tool: desk/find}]\noutput_schema: {type: text}",
        [
            (
                "6: {}.output_schema: type: 'text' is no type: "
                "there are string, integer, number, boolean, array, object, null"
            )
        ],
    ),
    (
        "steps: [{tool: desk/find}]\noutput_schema: {$ref: 'https://example.com/x'}",
        ["6: {}.output_schema: $ref: https://example.com/x is not in the schema itself; nothing is fetched"],
    ),
    ("steps: [{tool: desk/find}]\noutput:", ["6: {}.output: is empty: write a value, or leave it out"]),
    ("activation: sometimes", ["5: {}.activation: must be one of 'optional' or 'required'"]),
    # bindings
    ("bind: {find: {a: 1}}", ["5: {}.bind.find: names no server: write SERVER/TOOL"]),
    ('bind: {"desk/*": {a: 1}}', ["5: {}.bind.desk/*: is a pattern: write the name of one tool"]),
    ('bind: {desk/find: {"": 1}}', ['5: {}.bind.desk/find."": the name of an argument is not empty']),
    ("bind: {desk/find: [a]}", ["5: {}.bind.desk/find: must be a mapping (key: value), not a list"]),
]


@pytest.mark.parametrize(("body", "problems"), MISTAKES, ids=[body for body, _ in MISTAKES])
def test_each_mistake_is_named_with_its_place_and_what_to_write(room, body, problems):
    assert room.problems(of_case(GRANTS + body)) == [problem.format(CASE) for problem in problems]


def test_an_internal_tool_cannot_be_on_the_list_of_its_skill_too(room):
    """Clients could call it; a pattern, which may mean more than the list has, is no contradiction."""
    lists = "tool_list: {desk: ['get_*'], a: [], a/b: [c]}\ninternal_tools: {desk: [get_a, put], a: x, a/b: ['*']}\n"
    why = "is on tool_list, too, by which clients may call it: take it out of one of the two"

    assert room.problems(of_case(lists + "steps: [{tool: desk/put}]")) == [
        f"5: {CASE}.internal_tools.desk: get_a {why}",
        f"5: {CASE}.internal_tools.a: x {why}",
    ]


def test_a_denied_tool_is_refused_whoever_calls_it(room):
    """A skill that lists it, one that names it as internal, and what is done at the start."""
    denied = "black_tool_actions: {desk: [rm, 'drop_*']}\non_scope_start: [{tool: desk/rm}]\n"
    lists = "tool_list: {desk: [rm]}\ninternal_tools: {desk: [drop_all]}\n"
    body = f"{lists}steps: [{{tool: desk/rm}}, {{tool: desk/drop_all}}]"
    assert room.problems(of_case(body) + denied) == [
        f"6: {CASE}.steps[0].tool: is denied by black_tool_actions",
        f"6: {CASE}.steps[1].tool: is denied by black_tool_actions",
        "10: on_scope_start[0].tool: is denied by black_tool_actions",
    ]


def test_what_is_done_at_the_start_may_call_any_tool_and_is_checked_as_steps_are(room):
    steps = ("{tool: a/x, save_as: m}", "{tool: dusk/x}", "{tool: a/y, arguments: {z: '{{ stops.m }}'}}")
    start = "on_scope_start:\n" + "".join(f"  - {step}\n" for step in steps)
    unknown, misspelled = room.problems(SERVERS + start)
    assert unknown == "4: on_scope_start[1].tool: unknown server 'dusk': did you mean 'desk'?"
    assert misspelled.startswith("5: on_scope_start[2].arguments.z: ")
    assert room.problems("on_scope_start:\n  - {tol: a}\n") == [
        "2: on_scope_start[0].tol: unknown key: did you mean 'tool'?"
    ]


# --- names in expressions ---------------------------------------------------------------------------------------------


def with_value(where: str, expression: str) -> str:
    """A file that has the expression at one place."""
    body = {
        "steps": "steps: [{tool: desk/find, save_as: a}, {tool: desk/find, save_as: heap.h}, "
        "{tool: desk/find, arguments: {v: [X]}}]",
        "beside": "steps: [{parallel: [{tool: desk/find, save_as: a}, {tool: desk/find, arguments: {v: X}}]}]",
        "after": "steps: [{parallel: [{tool: desk/find, save_as: a}]}, {tool: desk/find, arguments: {v: X}}]",
        "before": "steps: [{tool: desk/find, arguments: {v: X}}, {tool: desk/find, save_as: a}]",
        "each": "steps: [{tool: desk/find, save_as: a}, {tool: desk/find, for_each: [1], when: X}]",
        "list": "steps: [{tool: desk/find, save_as: a}, {tool: desk/find, for_each: X}]",
        "output": "steps: [{tool: desk/find, save_as: a}]\noutput: {v: X}",
        "hook": "on_activate: [{tool: desk/find, save_as: a}, {tool: desk/find, arguments: {v: X}}]",
        "other hook": "on_activate: [{tool: desk/find, save_as: a}]\non_offload: [{tool: desk/find, when: X}]",
        "bind": "bind: {desk/find: {v: X}}",
    }[where].replace("X", f'"{{{{ {expression} }}}}"')
    given = "parameters: {p: {type: string}}\n" if where not in {"hook", "other hook", "bind"} else ""
    return of_case(f"{GRANTS}{given}{body}") + "proxy: {expression_env: [REGION]}\n"


@pytest.mark.parametrize(
    ("where", "expression"),
    [
        *((where, "heap.anything") for where in ("steps", "each", "list", "output", "hook", "bind")),
        *((where, "scope.client.name") for where in ("steps", "each", "list", "output", "hook", "bind")),
        *((where, "env.REGION") for where in ("steps", "each", "list", "output", "hook", "bind")),
        *((where, "event.reason") for where in ("steps", "each", "list", "output", "hook")),
        *((where, "params.p") for where in ("steps", "beside", "each", "list", "output")),
        *((where, "steps.a") for where in ("steps", "after", "each", "list", "output", "hook")),
        *(("each", name) for name in ("item.x", "index")),
    ],
)
def test_a_place_knows_the_names_that_it_has(room, where, expression):
    assert "case" in skills(room, with_value(where, expression), {"REGION": "x"})


@pytest.mark.parametrize(
    ("where", "expression", "place"),
    [
        *(
            (where, "params.p", at)
            for where, at in (("hook", "on_activate[1].arguments.v"), ("bind", "bind.desk/find.v"))
        ),
        *((where, "item", at) for where, at in (("steps", "steps[2].arguments.v[0]"), ("list", "steps[1].for_each"))),
        ("steps", "params.q", "steps[2].arguments.v[0]"),
        ("steps", "steps.h", "steps[2].arguments.v[0]"),
        ("steps", "env.HOME", "steps[2].arguments.v[0]"),
        ("steps", "scope.user", "steps[2].arguments.v[0]"),
        ("output", "event.time", "output.v"),
        ("output", "item", "output.v"),
        ("output", "steps.b", "output.v"),
        ("beside", "steps.a", "steps[0].parallel[1].arguments.v"),
        ("before", "steps.a", "steps[0].arguments.v"),
        ("other hook", "steps.a", "on_offload[0].when"),
        ("bind", "steps.a", "bind.desk/find.v"),
        ("bind", "event.name", "bind.desk/find.v"),
        ("each", "item.", "steps[1].when"),
        ("list", "for x in y", "steps[1].for_each"),
    ],
)
def test_a_name_that_a_place_has_not_is_an_error_there(room, where, expression, place):
    (problem,) = room.problems(with_value(where, expression))
    assert problem.partition(": ")[2].startswith(f"{CASE}.{place}: ")


def test_a_schema_that_allows_more_than_its_properties_allows_any_name(room):
    steps = "steps: [{tool: desk/find, when: '{{ params.q }}'}]"
    body = f"{GRANTS}parameters: {{type: object, properties: {{p: {{}}}}}}\n{steps}"
    assert "case" in skills(room, of_case(body))
    closed = body.replace("properties:", "additionalProperties: false, properties:")
    (problem,) = room.problems(of_case(closed))
    assert problem.startswith(f"6: {CASE}.steps[0].when: ")


def test_a_parameter_with_a_default_need_not_be_given(room):
    body = "steps: [{skill: fills}]"
    given = "parameters: {x: {type: string, required: true, default: d}}"
    fills = f"  fills: {{tool_list: {{desk: []}}, {given}, steps: [{{tool: desk/y}}]}}\n"
    assert "case" in skills(room, of_case(body) + fills)
    by_schema = fills.replace(given, "parameters: {type: object, properties: {x: {default: d}}, required: [x]}")
    assert "case" in skills(room, of_case(body) + by_schema)


# --- what is worth knowing --------------------------------------------------------------------------------------------


def test_what_names_a_disabled_server_is_noted(room):
    lists = "tool_list: {off: [x]}\ninternal_tools: {off: [y]}\n"
    body = f"{lists}steps: [{{tool: off/x}}, {{tool: off/y}}]\nbind: {{off/x: {{a: 1}}}}"
    notes = room.notes(of_case(body) + "on_scope_start: [{tool: off/z}]\n")
    assert [note for note in notes if "servers." not in note] == [
        f"5: {CASE}.internal_tools.off: server off is disabled: its tools cannot be called",
        f"6: {CASE}.steps[0].tool: server off is disabled: the step will fail",
        f"6: {CASE}.steps[1].tool: server off is disabled: the step will fail",
        f"7: {CASE}.bind.off/x: not used: server off is disabled",
        "10: on_scope_start[0].tool: server off is disabled: the step will fail",
    ]


def test_a_server_that_only_steps_need_is_needed(room):
    """And is not called one that nobody names."""
    start = f"{SERVERS}on_scope_start: [{{tool: a/x}}]\n"
    text = f"{start}skill_configs: {{c: {{internal_tools: {{desk: [y]}}, steps: [{{tool: desk/y}}]}}}}"
    loaded = room.load(text)
    assert loaded.catalogue.needed == ("desk", "a")
    assert [note for note in loaded.notes if "no skill names it" in note] == [
        f"{room.file}:1: servers.a/b: no skill names it: it is never started"
    ]


def test_what_has_no_effect_is_noted(room):
    assert room.notes(of_case(f"{GRANTS}hook_timeout: 3\ninternal_tools: {{desk: [x]}}"))[-2:] == [
        f"5: {CASE}.hook_timeout: not used: it goes with on_activate and on_offload",
        f"6: {CASE}.internal_tools: not used: only steps may call them, and there are none",
    ]


def test_a_step_that_invokes_a_skill_which_is_not_offered_is_noted(room):
    gone = "  gone: {enabled: false, tool_list: {desk: []}, steps: [{tool: desk/y}]}\non_scope_start: [{skill: gone}]\n"
    notes = room.notes(of_case("steps: [{parallel: [{skill: gone}]}]") + gone)
    assert notes[-2:] == [
        f"4: {CASE}.steps[0].parallel[0].skill: skill gone is not offered: the step will fail",
        "8: on_scope_start[0].skill: skill gone is not offered: the step will fail",
    ]


# --- bindings that differ ---------------------------------------------------------------------------------------------


def binding(**skills_: str) -> str:
    entries = "".join(f"  {id_}: {entry}\n" for id_, entry in skills_.items())
    return f"{SERVERS}skill_configs:\n{entries}"


ONE, TWO = "bind: {desk/find: {c: 1}}", "bind: {desk/find: {c: 2, d: 3}}"


def test_skills_that_bind_differently_cannot_be_active_together_and_that_is_said(room):
    text = binding(a=f"{{{ONE}}}", b=f"{{{ONE}}}", c=f"{{{TWO}}}", d="{bind: {desk/find: {d: 3}}}")
    assert [note for note in room.notes(text) if "bind" in note] == [
        "5: skill_configs.c.bind: binds arguments to other values than a, b: they cannot be active together"
    ]
    assert room.load(text).catalogue.rivals == {"a": {"c"}, "b": {"c"}, "c": {"a", "b"}}


def test_that_they_differ_is_not_said_twice(room):
    notes = room.notes(binding(a=f"{{{ONE}, conflicts_with: [b]}}", b=f"{{{TWO}}}"))
    assert not [note for note in notes if "binds" in note]


def test_skills_that_bind_differently_cannot_both_be_active_from_the_start_nor_require_each_other(room):
    assert room.problems(binding(a=f"{{{ONE}, active: true}}", b=f"{{{TWO}, pinned: true}}")) == [
        "4: skill_configs.b.pinned: it is active from the start, and so is a, with which it conflicts"
    ]
    assert room.problems(binding(a=f"{{{ONE}, requires_skills: [b]}}", b=f"{{{TWO}}}")) == [
        "3: skill_configs.a.requires_skills: it requires b, which conflicts with it"
    ]


# --- skills in folders ------------------------------------------------------------------------------------------------

ACTING = "tool_list: {desk: [find]}\nsteps:\n- {tool: desk/find, save_as: x}\non_activate: [{tool: desk/find}]\n"


def why_left_out(loaded):
    return {left.id: left.why for left in loaded.left_out}


def test_a_skill_of_a_trusted_folder_does_what_it_says_and_of_another_nothing(room):
    room.put("s/pdf", ACTING)
    trusted = room.load(TRUSTED).catalogue.by_id["pdf"]
    assert (trusted.on_activate, trusted.workflow and trusted.workflow.steps) == (
        (Call("on_activate[0]", "desk/find", "desk", "find"),),
        (Call("steps[0]", "x", "desk", "find", save_as="x"),),
    )
    loaded = room.load(f"{SERVERS}skill_paths: [s]")
    untrusted = loaded.catalogue.by_id["pdf"]
    assert (untrusted.hooked, untrusted.workflow) == (False, None)
    assert any("on_activate and steps are not in force, as s is not trusted" in note for note in loaded.notes)


def test_a_mistake_in_a_trusted_folder_costs_that_skill_alone(room):
    """Named as in the file, with its line; the file is not refused."""
    room.put("s/pdf", "tool_list: {desk: [find]}\nsteps:\n- tool: desk/find\n- tool: desk/fund\n  when: maybe\n")
    room.put("s/meta", "metadata:\n  steps: '[{tool: desk/gone}]'\n")
    room.put("s/good", ACTING)
    loaded = room.load(TRUSTED)
    assert [skill.id for skill in loaded.catalogue.skills] == ["good"]
    refusal, instead = (
        "the skill does not grant this tool: add internal_tools",
        "or to tool_list what clients may call, too",
    )
    assert why_left_out(loaded) == {
        "pdf": f"line 7: steps[1].tool: {refusal}: {{desk: [fund]}}, {instead} (and 1 more)",
        "meta": f"line 5: metadata.steps[0].tool: {refusal}: {{desk: [gone]}}, {instead}",
    }
    pdf = next(left for left in loaded.left_out if left.id == "pdf")
    assert [str(problem).partition(": must")[0] for problem in pdf.problems][1] == "s/pdf/SKILL.md:8: steps[1].when"


def test_a_mistake_in_what_the_file_lays_over_a_folder_refuses_the_file(room):
    room.put("s/pdf", ACTING)
    over = f"{TRUSTED}skill_configs:\n  pdf:\n    on_offload: [{{tool: desk/gone}}]\n"
    (problem,) = room.problems(over)
    assert problem.startswith("5: skill_configs.pdf.on_offload[0].tool: the skill does not grant this tool")


def test_the_file_replaces_what_a_folder_says_key_by_key(room):
    """Also where the folder's steps cannot be called any more with what the file grants."""
    room.put("s/pdf", f"{ACTING}output: '{{{{ steps.x }}}}'\n")
    own = room.load(f"{TRUSTED}skill_configs: {{pdf: {{on_activate: [], output: 1}}}}").catalogue.by_id["pdf"]
    assert (own.on_activate, own.workflow and (own.workflow.output, len(own.workflow.steps))) == ((), (1, 1))
    off = room.load(f"{TRUSTED}skill_configs: {{pdf: {{steps: []}}}}").catalogue.by_id["pdf"]
    assert (off.workflow, len(off.on_activate)) == (None, 1)
    less = room.load(f"{TRUSTED}skill_configs: {{pdf: {{tool_list: {{desk: [other]}}}}}}")
    assert why_left_out(less)["pdf"].startswith("line 7: on_activate[0].tool: the skill does not grant this tool")


def test_what_folders_have_or_have_not_refuses_no_file(room):
    """They may change while the file does not."""
    room.put("s/silent")
    room.put("s/runs", f"{ACTING}parameters: {{n: {{type: string, required: true}}}}\n")
    notes = room.notes(
        f"{TRUSTED}skill_configs: {{c: {{steps: [{{skill: gone}}, {{skill: silent}}, {{skill: runs}}]}}}}"
    )
    assert [note for note in notes if "steps" in note] == [
        "3: skill_configs.c.steps[0].skill: unknown skill 'gone': known here: c, runs, silent",
        "3: skill_configs.c.steps[1].skill: skill silent has no steps: there is nothing to invoke",
        "3: skill_configs.c.steps[2].arguments: skill runs needs the parameter n: add it",
    ]


def test_what_a_folder_s_steps_name_that_is_not_there_is_noted(room):
    room.put("s/pdf", "steps: [{skill: gone}]\n")
    loaded = room.load(TRUSTED)
    assert "pdf" in loaded.catalogue.by_id
    assert "s/pdf/SKILL.md:4: steps[0].skill: unknown skill 'gone': did you mean 'pdf'?" not in loaded.notes
    assert any(note.startswith("s/pdf/SKILL.md:4: steps[0].skill: unknown skill 'gone'") for note in loaded.notes)


def test_of_a_folder_s_skills_that_bind_differently_the_later_is_left_out_where_both_begin(room):
    room.put("s/a", f"active: true\n{ONE}\n")
    room.put("s/b", f"active: true\n{TWO}\n")
    assert why_left_out(room.load(TRUSTED)) == {
        "b": "it is active from the start, and so is a, with which it conflicts"
    }
    loaded = room.load(f"{TRUSTED}skill_configs: {{a: {{active: false}}}}")
    assert (
        "s/b/SKILL.md:5: bind: binds arguments to other values than a: they cannot be active together" in loaded.notes
    )


def test_of_a_skill_that_is_wrong_nothing_more_is_said_where_it_is_invoked(room):
    """Of its parameters, which it is told of itself, or of its document."""
    body = f"{GRANTS}parameters: {{q: {{type: text}}}}\nsteps: [{{skill: case, arguments: {{x: 1}}}}]"
    (problem,) = room.problems(of_case(body))
    assert problem.startswith(f"5: {CASE}.parameters: q: there is no type 'text'")

    room.put("s/pdf", "steps: 1\n")
    notes = room.notes(f"{TRUSTED}skill_configs: {{c: {{steps: [{{skill: pdf}}]}}}}")
    assert [note for note in notes if "pdf" in note] == [
        "3: skill_configs.c.steps[0].skill: skill pdf is not offered: the step will fail"
    ]
