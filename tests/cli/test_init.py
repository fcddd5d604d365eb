"""`init`: a configuration with one skill per server, from what a client has."""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.cli import jsonc
from proxy.cli.init import init as run_init
from proxy.cli.source import dumped, read
from proxy.config.core_schema import typed
from proxy.config.document import parse
from proxy.config.load import Refused, load
from tests.conftest import program

ENTRY = {"command": "mcp-server-time", "args": ["--local-timezone", "UTC"], "env": {"V": "1.10", "FLAG": "on"}}


def init(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        program("init", *arguments), cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return name


def init_from(folder: Path, servers: Any) -> subprocess.CompletedProcess[str]:
    return init(folder, "--from", written(folder, "c.json", json.dumps({"mcpServers": servers})))


def result(folder: Path) -> Any:
    return yaml.safe_load((folder / "skills.yaml").read_text(encoding="utf-8"))


VSCODE = """{
  // for the team
  "servers": {
    /* the time,
       "quoted" */
    "time": {
      "type": "stdio", "command": "mcp-server-time", // not remote
      "args": ["--local-timezone", "UTC",],
      "env": {"V": "1.10", "FLAG": "on", "URL": "https://x/*y*/,]",},
    },
  },
}
"""
SOURCES = {
    "claude.json": json.dumps({"mcpServers": {"time": ENTRY}}),
    "vscode.json": VSCODE,
    "settings.json": json.dumps({"mcp": {"servers": {"time": ENTRY}}}),
    "codex.toml": '[mcp_servers.time]\ncommand = "mcp-server-time"\nargs = ["--local-timezone", "UTC"]\n'
    'env = {V = "1.10", FLAG = "on"}\n',
    "mine.yaml": "# kept\nservers:\n  time:\n    command: mcp-server-time\n    args: [--local-timezone, UTC]\n"
    "    env: {V: 1.10, FLAG: on}\n",
    "flow.yaml": "{servers: {time: {command: mcp-server-time, args: [--local-timezone, UTC], "
    "env: {V: 1.10, FLAG: on}}}}",
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", SOURCES)
def test_what_a_client_has_is_taken_over(name: str, encoding: str, tmp_path: Path):
    """Each client's form gives a configuration that loads, with the server untouched and a skill of all its tools."""
    (tmp_path / name).write_text(SOURCES[name], encoding=encoding)
    done = init(tmp_path, "--from", name)
    assert done.returncode == 0, done.stderr
    assert "1 server with a skill;" in done.stdout
    loaded = load(tmp_path / "skills.yaml", {"PATH": "/nowhere"})
    (skill,) = loaded.catalogue.skills
    assert skill.tools["time"].everything
    server = loaded.servers["time"]
    assert getattr(server, "args", None) == ("--local-timezone", "UTC")
    assert {"V": "1.10", "FLAG": "on"}.items() <= dict(getattr(server, "env", {})).items()


def test_a_yaml_keeps_its_comments(tmp_path: Path):
    """The text of a YAML source is kept as it is; the skills are put below."""
    init(tmp_path, "--from", written(tmp_path, "mine.yaml", SOURCES["mine.yaml"]))
    assert SOURCES["mine.yaml"] in (tmp_path / "skills.yaml").read_text(encoding="utf-8")


def test_a_yaml_that_is_written_anew_says_the_same(tmp_path: Path):
    """Text in brackets cannot have skills put below it; what looks like a number stays one, or stays text."""
    source = tmp_path / "in.yaml"
    source.write_text(
        "{servers: {a: {command: x, env: {A: '1e3', B: 1.10, C: 'null', D: 0o17, E: ' x ', 'on': 'off'}}},"
        " on_scope_start: [{tool: a/t, arguments: {n: 5, t: '5', e: 1e3, x: '1e3', b: true}}]}"
    )
    written = read(source, tmp_path / "out.yaml").text
    before, after = parse(source.read_bytes(), "").data, parse(written.encode(), "").data
    assert typed(dict(after)) == typed(dict(before))
    assert after == before


def test_without_a_source_there_is_something_to_begin_with(tmp_path: Path):
    """Plain `init` writes a configuration that loads, and has nothing to add."""
    done = init(tmp_path)
    assert done.returncode == 0
    assert "To do" not in done.stdout
    assert load(tmp_path / "skills.yaml", {"PATH": "/nowhere"}).catalogue.skills


def test_hints_for_people_are_comments(tmp_path: Path):
    """The model never reads what a person is to edit; the comments say it."""
    init_from(tmp_path, {"a": ENTRY, "b": ENTRY})
    text = (tmp_path / "skills.yaml").read_text(encoding="utf-8")
    assert text.count("# edit: ") == 4
    assert "edit" not in json.dumps(result(tmp_path)["skill_configs"])


@pytest.mark.parametrize("key", ["a: b # c", "null", "1.10", 'say "hi", it\'s', "größe", "a\nb", "{x", "<<", "*"])
def test_any_key_gets_its_skill(key: str, tmp_path: Path):
    """Ids and texts are quoted where YAML needs it."""
    done = init_from(tmp_path, {key: ENTRY, "b": ENTRY})
    assert "2 servers with a skill each;" in done.stdout
    skill = result(tmp_path)["skill_configs"][key]
    assert skill["tool_list"] == {key: []}
    assert skill["desc"] == f"The tools of {key}."


def test_what_keeps_it_from_serving_is_told_at_once(tmp_path: Path):
    """What was written is loaded; problems and notes are listed, and the exit code stays 0."""
    done = init_from(
        tmp_path,
        {
            "a": {"command": "x", "env": {"K": "${input:key}"}},
            "b__c": {"command": "x", "http_headers": 1},
            "d": {"command": "x", "trust": True},
            "e": "text",
        },
    )
    assert done.returncode == 0
    todo = done.stdout.partition("To do before it can serve:")[2]
    assert all(word in todo for word in ("${input:key}", "b__c", "http_headers", "skills.yaml:", "servers.e"))
    done = init(tmp_path, "--from", written(tmp_path, "e.json", SOURCES["claude.json"]), "--output", "my skills.yaml")
    assert "check --config 'my skills.yaml'" in done.stdout
    done = init(tmp_path, "--from", written(tmp_path, "v.json", '{"servers": {"v": {"command": "${NOT_SET_}"}}}'))
    assert "exists already" in done.stderr
    done = init(tmp_path, "--from", "v.json", "--output", "v.yaml")
    assert "server v: variable NOT_SET_ is not set" in done.stdout


def test_what_others_spell_differently_is_translated(tmp_path: Path):
    """Codex's keys for headers and VS Code's variables become ours; the rest is untouched."""
    codex = """[mcp_servers.c]
url = "https://h.example/mcp"
http_headers = {"X-A" = "b"}
bearer_token_env_var = "C_TOKEN"
env_http_headers = {"X-Key" = "C_KEY"}
headers = {"X-B" = "c"}
"""
    done = init(tmp_path, "--from", written(tmp_path, "c.toml", codex))
    headers = {"X-A": "b", "X-B": "c", "X-Key": "${C_KEY}", "Authorization": "Bearer ${C_TOKEN}"}
    assert result(tmp_path)["servers"]["c"] == {"url": "https://h.example/mcp", "headers": headers}
    assert "secrets" not in done.stderr
    vscode = {"servers": {"v": {"command": "x", "env": {"A": "${env:B}", "C": "${input:d}"}, "x": [None, 1, {}, []]}}}
    init(tmp_path, "--from", written(tmp_path, "v.json", json.dumps(vscode)), "--output", "v.yaml")
    entry = yaml.safe_load((tmp_path / "v.yaml").read_text(encoding="utf-8"))["servers"]["v"]
    assert entry == {"command": "x", "env": {"A": "${B}", "C": "${input:d}"}, "x": [None, 1, {}, []]}


@pytest.mark.parametrize(
    "entry",
    [
        {"env": {"MY_API_KEY": "abc"}},
        {"headers": {"authorization": "Bearer abc"}},
        {"args": ["--token", "abc"]},
    ],
)
def test_clear_secrets_are_named_and_the_file_is_private(entry: dict[str, Any], tmp_path: Path):
    """A secret that comes along as it stands is said, not shown; the file is for its owner alone."""
    done = init_from(tmp_path, {"s": {"command": "x", **entry}, "t": {"command": "x", "env": {"A_KEY": "${A_KEY}"}}})
    assert "s: contains secrets as they stood: better ${VAR}" in done.stderr
    assert "t: contains" not in done.stderr
    assert "abc" not in done.stdout + done.stderr
    assert (tmp_path / "skills.yaml").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "/home/me/.venv/bin/mcp-skill-proxy", "args": ["serve"]},
        {"command": "C:\\venv\\Scripts\\mcp-skill-proxy.exe"},
        {"command": "python", "args": ["-m", "proxy", "serve"]},
        {"command": "uvx", "args": ["mcp-skill-proxy", "serve"]},
        {"url": "http://127.0.0.1:8765/mcp"},
    ],
)
def test_the_proxy_itself_is_left_out(entry: dict[str, Any], tmp_path: Path):
    """A client that has the proxy already does not make it a server of itself."""
    done = init_from(tmp_path, {"skills": entry, "time": ENTRY})
    assert "skills: is this proxy itself: left out" in done.stderr
    assert list(result(tmp_path)["servers"]) == list(result(tmp_path)["skill_configs"]) == ["time"]
    alone = init(tmp_path, "--from", written(tmp_path, "d.json", json.dumps({"servers": {"skills": entry}})))
    assert alone.returncode == 2
    assert "has no servers but this proxy itself" in alone.stderr
    text = yaml.safe_dump({"servers": {"skills": entry, "time": ENTRY}})
    kept = init(tmp_path, "--from", written(tmp_path, "e.yaml", text), "--output", "f.yaml")
    assert "skills: is this proxy itself: it gets no skill, take it out" in kept.stderr


THEIRS = {
    "mcp_config": {"mcpServers": {"time": ENTRY}},
    "name": "theirs",
    "init_skills": ["a"],
    "black_tool_actions": {"time": ["convert_time"]},
    "skill_configs": {
        "a": {"name": "null", "desc": "on", "tool_list": {"time": [], "gone": ["x"]}, "skill_type": "x"},
        "b": {"description": "1e3", "required_tools": ["time/now", "web_search"], "odd": 3, "active": True},
        "c": {"mcp_servers": ["time"], "requires": 5},
        "d": {
            "id": "e",
            "tool_list": {"time": "now"},
            "steps": [{"tool": "time/now", "arguments": {"n": "1e3", "k": 1.0, "b": True, "s": "true", "z": None}}],
            "parameters": [{"name": "p", "type": "string"}],
            "output_schema": {"summary": "string"},
        },
    },
}


@pytest.mark.parametrize(("name", "text"), [("x.json", json.dumps(THEIRS)), ("x.yaml", dumped(THEIRS))])
def test_skills_are_taken_over_in_our_words(name: str, text: str, tmp_path: Path):
    """With what holds for them; what cannot be had is left out, and said with the reason; the rest passes `check`."""
    done = init(tmp_path, "--from", written(tmp_path, name, text))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("skills.yaml: 3 skills taken over; edit it")
    loaded = load(tmp_path / "skills.yaml", {"PATH": "/nowhere"})
    a, b, d = loaded.catalogue.skills
    assert (a.id, a.name, a.desc, a.tools["time"].everything) == ("a", "null", "on", True)
    assert (b.id, b.desc, b.active, [*b.tools]) == ("b", "1e3", True, ["time"])
    assert b.tools["time"].allows("now")
    assert not b.tools["time"].allows("other")
    assert d.workflow is not None
    (step,) = d.workflow.steps
    assert getattr(step, "arguments", None) == {"n": "1e3", "k": 1.0, "b": True, "s": "true", "z": None}
    assert d.workflow.parameters["required"] == ["p"]
    assert d.workflow.output_schema is not None
    assert loaded.catalogue.denied["time"].allows("convert_time")
    for told in (
        "init_skills: no skill runs by being named here",
        "skill_configs.a.tool_list.gone: unknown server 'gone'",
        "skill_configs.a.skill_type: not used",
        "skill_configs.b.required_tools[1]: names no server",
        "left out: skill_configs.b.odd: unknown key",
        "left out: skill_configs.c: must be a mapping",
        "skill_configs.d.id: the id of a skill is the key of its entry",
        "left out: name: unknown key",
    ):
        assert told in done.stderr
    assert done.stderr.count("note: ") == 9


def test_a_yaml_in_our_words_with_skills_is_taken_over_too(tmp_path: Path):
    """Also without servers, and with an empty list of skills, to which each server then gets one."""
    init(tmp_path, "--from", written(tmp_path, "guides.yaml", "skill_configs: {a: {usage: Think.}}"))
    assert [skill.id for skill in load(tmp_path / "skills.yaml", {}).catalogue.skills] == ["a"]
    empty = written(tmp_path, "empty.yaml", f"{SOURCES['mine.yaml']}skill_configs: {{}}\nproxy: {{name_limit: 40}}\n")
    init(tmp_path, "--from", empty, "--output", "t.yaml")
    loaded = load(tmp_path / "t.yaml", {"PATH": "/nowhere"})
    assert [skill.id for skill in loaded.catalogue.skills] == ["time"]
    assert loaded.catalogue.naming.limit == 40


def test_a_guide_between_three_quotes_is_taken_over_from_json(tmp_path: Path):
    """As somebody writes it who knows Python."""
    text = '{"mcpServers": {"t": {"command": "x"}},\n"skill_configs": {"a": {"usage": """\n  Do:\n    this\n  """}}}'
    init(tmp_path, "--from", written(tmp_path, "x.json", text))
    assert result(tmp_path)["skill_configs"]["a"]["usage"] == "Do:\n  this"


@settings(deadline=None)
@given(
    st.sampled_from(
        ["null", "~", "true", "on", "1.0", "1e3", "0o14", "0x1f", ".5", "=", "<<", "", " x", "a\nb\n", "- x"]
    )
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12)
)
def test_what_is_written_reads_back_the_same(text: str):
    """As a name, as a key, and as a value that may be of any type."""
    said = {"skill_configs": {"a": {"desc": text, "parameters": {"p": {"type": "string", "default": text}}}}}
    document = parse(dumped(said).encode(), "f")
    assert not document.problems
    assert typed(dict(document.data)) == said


def test_relative_paths_that_begin_elsewhere_now_are_named(tmp_path: Path):
    """Where the output is in another folder, relative commands and folders are said; others are not."""
    (tmp_path / "sub").mkdir()
    entries = {
        "a": {"command": "./server", "cwd": "data"},
        "b": {"command": "server", "cwd": "/data", "env_file": "~/x"},
        "c": {"command": "C:\\x\\y.exe"},
    }
    done = init_from(tmp_path, entries)
    assert "relative" not in done.stderr
    done = init(tmp_path, "--from", "c.json", "--output", "sub/s.yaml")
    assert done.stderr.splitlines() == [
        "note: a: command './server' is relative, from now on to the folder of sub/s.yaml",
        "note: a: cwd 'data' is relative, from now on to the folder of sub/s.yaml",
    ]


def test_nothing_is_overwritten(tmp_path: Path):
    """A file that is there stays, and the message says what to do."""
    written(tmp_path, "skills.yaml", "mine")
    done = init(tmp_path)
    assert done.returncode == 2
    assert "exists already" in done.stderr
    assert (tmp_path / "skills.yaml").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("none.json", "{}", "none.json:1: has no servers"),
        ("only.json", "// nothing\n", "only.json:1: is empty"),
        ("zero.json", "", "zero.json:1: is empty"),
        ("zero.yaml", "\n", "zero.yaml:1: is empty"),
        ("open.json", "{", "open.json:1: not JSON: it ends too early"),
        ("comma.json", '{\n  "a": 1\n  "b": 2\n}', "comma.json:3: not JSON: a comma or a closing bracket is missing"),
        ("slash.json", '{\n"a": "C:\\Users"}', "slash.json:2: not JSON: a backslash in a text must be doubled"),
        ("bare.json", "{a: 1}", "bare.json:1: not JSON: a key in double quotes is missing"),
        ("remark.json", '{\n/* x\n"a": 1}', "remark.json:2: a comment begins here whose */ is missing"),
        ("twice.json", '{"servers": {"a": {},\n"\\u0061": {}}}', 'twice.json:2: the key "\\u0061" is given twice'),
        ("deep.json", "[" * 100_000, "deep.json:1: nested too deep"),
        ("long.json", f'{{"servers": {"9" * 5000}}}', "long.json:1: a number is too long"),
        ("broken.toml", "a = 1\nb =\n", "broken.toml:2: not TOML: Invalid value"),
        ("end.toml", "a = [", "end.toml:1: not TOML: Invalid value"),
        ("hour.toml", "[mcp_servers.a]\nt = 07:32:00\n", "hour.toml:1: cannot be put into YAML"),
        ("broken.yaml", "a: [", "broken.yaml:1:"),
        ("list.yaml", "- a", "list.yaml:1:"),
        ("twice.yaml", "servers: {}\nservers: {}", "twice.yaml:2: servers: given twice"),
    ],
)
def test_a_source_that_cannot_be_used_is_named(name: str, text: str, said: str, tmp_path: Path):
    """What is wrong with the source is said in a line, without a traceback and without a file written."""
    done = init(tmp_path, "--from", written(tmp_path, name, text))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "skills.yaml").exists()


def test_what_is_no_text_or_no_file_is_named(tmp_path: Path):
    """Other encodings, folders and files that are not there are said to be so."""
    (tmp_path / "latin.json").write_bytes(b'{\n"\xe9": 1}')
    for name, said in (
        ("latin.json", "latin.json:2: not UTF-8 text: save the file as UTF-8"),
        ("nope.json", "nope.json:1: cannot be read: No such file"),
        (".", "cannot be read: Is a directory"),
    ):
        done = init(tmp_path, "--from", name)
        assert done.returncode == 2
        assert said in done.stderr
    done = init(tmp_path, "--output", "no/s.yaml")
    assert done.returncode == 2
    assert "no/s.yaml: No such file" in done.stderr


def test_to_standard_output(tmp_path: Path):
    """`--output -` prints the configuration alone, whatever the terminal's encoding; notes go to stderr."""
    written(tmp_path, "c.json", json.dumps({"servers": {"größe": {"command": "x", "env": {"A_TOKEN": "abc"}}}}))
    done = init(tmp_path, "--from", "c.json", "--output", "-")
    assert done.returncode == 0
    assert "größe" in yaml.safe_load(done.stdout)["skill_configs"]
    assert "--config -" not in done.stdout
    assert "secrets" in done.stderr
    assert not (tmp_path / "skills.yaml").exists()


# --- comments and trailing commas ------------------------------------------------------------------------------------

TEXTS = st.text(st.sampled_from('/*,"\\]}{[: \n\té😀ab'), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
)
REMARKS = st.sampled_from(["", " ", "\n", "/**/", '/* , ] } " // \n */', '// " /* ] }, \n', "/*/*/", "// */\n"])


@given(value=VALUES, data=st.data())
def test_comments_and_trailing_commas_never_change_the_data(value: Any, data: st.DataObject):
    """JSON with remarks anywhere between its parts, and commas before closing brackets, says what plain JSON says."""

    def remark() -> str:
        return data.draw(REMARKS)

    def shown(part: Any) -> str:
        if isinstance(part, dict):
            inside = [f"{shown(key)}{remark()}:{shown(inner)}" for key, inner in part.items()]
        elif isinstance(part, list):
            inside = [shown(inner) for inner in part]
        else:
            return f"{remark()}{json.dumps(part, ensure_ascii=data.draw(st.booleans()))}{remark()}"
        trailing = "," + remark() if inside and data.draw(st.booleans()) else ""
        opening, closing = "{}" if isinstance(part, dict) else "[]"
        return f"{remark()}{opening}{remark()}{','.join(inside)}{trailing}{closing}{remark()}"

    assert jsonc.parse(shown(value)) == value


PIECES = st.sampled_from(
    [
        *SOURCES.values(),
        *'{}[],:"\\\n\t\0',
        *("//", "/*", "*/", "...", "---", "&a ", "*a", "<<: ", "!x ", '"\\ud800"', '{"servers": {"a": '),
        '{"servers": {"a": {"http_headers": {"A": null}, "headers": [1], "env_http_headers": {"A": [1]}}}}',
        *('{"command": "x"}', '{"headers": 3, "env": [], "args": {}, "url": null}', "servers:\n  "),
    ]
)


@settings(deadline=None)
@given(
    content=st.binary(max_size=60)
    | st.lists(PIECES, max_size=8).map(lambda pieces: "".join(pieces).encode())
    | st.lists(PIECES, max_size=8).map(lambda pieces: "".join(pieces).encode("utf-16")),
    suffix=st.sampled_from([".json", ".toml", ".yaml", ""]),
)
def test_no_source_breaks_it(content: bytes, suffix: str):
    """Whatever the file holds: a configuration, or a refusal in words."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / f"s{suffix}", Path(folder) / "t.yaml"
        source.write_bytes(content)
        try:
            made = run_init(source, target) == 0
        except Refused as refused:
            made = not all(problem.what for problem in refused.problems)
        assert made == target.exists()
