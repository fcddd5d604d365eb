"""Variables: one rule wherever they are expanded (design rule 22; case B53)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.expand import complaints, expand

ENVIRON = {"TOK": "va$lue", "EMPTY": "", "NESTED": "${TOK}", "ODD": "a \"b\" 'c'\nd $x"}

CASES = [
    ("${TOK}", "va$lue"),
    ("x-${TOK}-y-${TOK}", "x-va$lue-y-va$lue"),
    ("${TOK:-dflt}", "va$lue"),
    ("${EMPTY}", ""),
    ("${EMPTY:-dflt}", "dflt"),
    ("${NOPE:-dflt}", "dflt"),
    ("${NOPE:-}", ""),
    ("${NOPE:-a:-b c}", "a:-b c"),
    ("$TOK", "$TOK"),
    ("$$TOK", "$$TOK"),
    ("$", "$"),
    ("$${TOK}", "${TOK}"),
    ("$$${TOK}", "$${TOK}"),
    ("{TOK}", "{TOK}"),
    ("${NESTED}", "${TOK}"),
    ("%TOK% $(TOK)", "%TOK% $(TOK)"),
]


@pytest.mark.parametrize(("written", "meant"), CASES)
def test_the_same_rule_holds_in_every_place(room, written, meant):
    """B53: args, env values and headers are expanded alike."""
    quoted = "'" + written.replace("'", "''") + "'"
    stdio = room.stdio(f"{{command: python, args: [{quoted}], env: {{V: {quoted}}}}}", ENVIRON)
    assert stdio.args == (meant,)
    assert stdio.env["V"] == meant
    assert room.http(f"{{url: 'http://h/', headers: {{X-V: {quoted}}}}}", ENVIRON).headers == {"X-V": meant}


def test_command_cwd_and_url_are_expanded_too(room):
    """B53: no place sends a placeholder as it stands."""
    program = room.program("bin/tool")
    environ = {"WHERE": "bin", "HOST": "h.example"}
    server = room.stdio("{command: './${WHERE}/tool', cwd: '${WHERE}'}", environ)
    assert (server.command, server.cwd) == (str(program), str(program.parent))
    assert room.http("{url: 'https://${HOST}/${PATH_:-mcp}'}", environ).url == "https://h.example/mcp"


def test_quotes_and_line_breaks_in_a_value_arrive_as_they_are(room):
    """B53: a value is never parsed."""
    assert room.stdio("{command: python, env: {V: '${ODD}'}, args: ['${ODD}']}", ENVIRON).env["V"] == ENVIRON["ODD"]


def test_nothing_else_is_expanded(room):
    """Texts for the model, names and keys are left alone."""
    loaded = room.load(
        """
        servers: {s: {command: python, env: {"${TOK}": x}}}
        skill_configs: {"${TOK}": {name: "${TOK}", desc: "${TOK}", usage: "${input:x}", tool_list: {s: ["${TOK}"]}}}
        """,
        ENVIRON,
    )
    (skill,) = loaded.catalogue.skills
    assert (skill.id, skill.name, skill.desc, skill.usage) == ("${TOK}", "${TOK}", "${TOK}", "${input:x}")
    assert skill.tools["s"].entries == ("${TOK}",)
    assert loaded.servers["s"].env["${TOK}"] == "x"


@pytest.mark.parametrize(
    "entry",
    [
        "{command: '${NOPE}'}",
        "{command: python, args: ['${NOPE}']}",
        "{command: python, env: {A: 'x${NOPE}'}}",
        "{command: python, cwd: '${NOPE}'}",
        "{url: '${NOPE}'}",
        "{url: 'http://h', headers: {A: '${NOPE}'}}",
    ],
)
def test_an_unset_variable_keeps_its_server_from_starting_and_no_other(room, entry):
    """B53: the reason names the variable; other servers are not affected."""
    loaded = room.load(f"servers: {{s: {entry}, other: {{command: python}}}}")
    assert loaded.unstartable == {"s": "variable NOPE is not set"}
    assert list(loaded.servers) == ["other"]
    assert loaded.catalogue.servers == ("s", "other")


def test_several_unset_variables_are_all_named(room):
    """Once each."""
    entry = "{command: python, args: ['${A}', '${B}', '${A}']}"
    assert room.reason(entry) == "variables A, B are not set"


def test_a_variable_that_only_editors_fill_in_is_called_that(room):
    """Setting it would be no help."""
    entry = "{command: '${workspaceFolder}/x', args: ['${A}', '${userHome}']}"
    assert room.reason(entry) == (
        "${workspaceFolder} is the editor's: write a path; ${userHome} is the editor's: write a path; "
        "variable A is not set"
    )
    assert room.stdio("{command: python, args: ['${workspaceFolder}']}", {"workspaceFolder": "w"}).args == ("w",)


def test_nothing_is_replaced_in_the_path_of_an_env_file(room):
    """Said where it makes the difference: where there is no such file."""
    text = "servers: {{s: {{command: python, envFile: '{}'}}}}\n"
    at = "1: servers.s.envFile: "
    assert room.problems(text.format("${workspaceFolder}/.env")) == [
        f"{at}${{workspaceFolder}} is the editor's: write a path"
    ]
    assert room.problems(text.format("${HOME}/.env"), {"HOME": "/"}) == [
        f"{at}${{HOME}} is not replaced here: write a path"
    ]
    (room.folder / "${HOME}").write_text("A=b\n")
    assert room.load(text.format("${HOME}")).servers["s"].env["A"] == "b"


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("${input:key}", "${input:key} is not a variable: only an editor can ask for it; set an environment variable"),
        ("${workspaceFolder:x}", "${workspaceFolder:x} is not a variable: it is the editor's; write a path"),
        ("${env:KEY}", "${env:KEY} is not a variable: write ${KEY}"),
        ("${A-b}", "${A-b} is not a variable: write ${NAME} or ${NAME:-default}"),
        ("${}", "${} is not a variable"),
        ("${1}", "${1} is not a variable"),
        ("${A:?no}", "${A:?no} is not a variable"),
        ("${A:-${B}}", "${A:-${B}}: a default is plain text and holds no further variable"),
        ("${A", "${A has no closing brace; for a literal ${ write $${"),
    ],
)
@pytest.mark.parametrize("place", ["command", "args", "env", "cwd", "url", "headers"])
def test_other_placeholders_are_refused_by_name(room, written, complaint, place):
    """B53: nothing that looks like a variable is passed on as it stands."""
    value = f"'{written}'"
    text = {
        "command": f"command: {value}",
        "args": f"command: x\n    args: [{value}]",
        "env": f"command: x\n    env: {{A: {value}}}",
        "cwd": f"command: x\n    cwd: {value}",
        "url": f"url: {value}",
        "headers": f"url: http://h\n    headers: {{A: {value}}}",
    }[place]
    (problem,) = room.problems(f"servers:\n  s:\n    {text}\n")
    assert complaint in problem
    assert problem.startswith(f"{3 if place in {'command', 'url'} else 4}: servers.s.{place}")


def test_a_header_with_a_line_break_keeps_its_server_from_starting(room):
    """A value from outside cannot add a header."""
    reason = room.reason("{url: 'http://h', headers: {A: '${V}'}}", {"V": "x\r\nB: evil"})
    assert reason == "header A holds a line break or a character outside ASCII"


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("ftp://h/x", "must begin with http:// or https://"),
        ("h.example/mcp", "must begin with http:// or https://"),
        ("http://", "names no host"),
        ("http://h:port/", "is not a URL"),
        ("http://[/", "is not a URL"),
        ("http://h/a b", "holds a space or a line break"),
    ],
)
def test_a_url_must_be_one_for_http(room, url, fault):
    """As written it refuses the file; made of variables it keeps the server from starting."""
    assert room.problems(f"servers:\n  s:\n    url: '{url}'\n") == [f"3: servers.s.url: {fault}"]
    assert room.reason("{url: '${U}'}", {"U": url}) == f"url {fault}"


NAMES = st.from_regex(r"[A-Z_][A-Z0-9_]{0,5}", fullmatch=True)


@given(text=st.text(), variables=st.dictionaries(NAMES, st.text()))
def test_text_without_a_placeholder_stays_as_it_is(text, variables):
    """Only `${` means anything."""
    plain = text.replace("${", "")
    assert expand(plain, variables).text == plain
    assert not list(complaints(plain))


@given(name=NAMES, value=st.text(), before=st.text("ab{} "), after=st.text("ab{} "))
def test_a_value_is_put_in_whole_and_never_expanded_again(name, value, before, after):
    """Whatever a variable holds is what arrives."""
    expanded = expand(f"{before}${{{name}}}{after}", {name: value})
    assert expanded.text == before + value + after
    assert (expanded.values, expanded.missing) == ((value,), ())


@given(text=st.text("${}AB:-x"))
def test_doubling_the_dollar_keeps_any_text_literal(text):
    """`$${` is the one escape, and it always works."""
    literal = text.replace("$", "")
    escaped = literal.replace("{", "$${")
    assert expand(escaped, {}).text == literal.replace("{", "${")
    assert not list(complaints(escaped))
