"""Reading YAML: text stays text, and every fault has its line (design rule 21; cases B58 and B07)."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.config.document import parse
from proxy.config.load import Refused, load

AS_WRITTEN = [
    "on",
    "no",
    "yes",
    "2",
    "1.10",
    "0123",
    "1e3",
    "12:30",
    "12:30:45",
    "2026-11-05",
    "0x1F",
    "1_000",
    "true",
    "=",
]


def test_names_and_values_are_text_as_written(room):
    """B58: whatever YAML would make of it, a name or a variable's value is what stands in the file."""
    loaded = room.load(f"""
        servers:
          1: {{command: python, env: {{PORT: 8080, FLAG: on, V: 1.10, D: 2026-11-05, T: 12:30:45, N: "null"}}}}
        skill_configs:
          on:
            tool_list: {{1: [{", ".join(AS_WRITTEN)}]}}
        """)
    server = loaded.servers["1"]
    expected = {"PORT": "8080", "FLAG": "on", "V": "1.10", "D": "2026-11-05", "T": "12:30:45", "N": "null"}
    assert server.env.items() >= expected.items()
    (skill,) = loaded.catalogue.skills
    assert (skill.id, skill.name) == ("on", "on")
    assert skill.tools["1"].entries == tuple(AS_WRITTEN)


@pytest.mark.parametrize("null", ["null", "~", "Null", "NULL"])
def test_a_null_among_names_is_refused_and_a_quoted_one_is_a_name(room, null):
    """B58: a null says nothing; the message says to quote it."""
    text = "servers: {s: {command: python}}\nskill_configs:\n  a:\n    tool_list:\n      s: [x, %s]\n"
    assert room.problems(text % null) == [
        "5: skill_configs.a.tool_list.s[1]: is empty: quote it if it is a name, or take it out"
    ]
    assert room.load(text % f"'{null}'").catalogue.skills[0].tools["s"].entries == ("x", null)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("servers:\n\ts: {}\n", "2: a tab cannot indent or separate here: use spaces"),
        ("a:\n  b: [*, x]\n", '2: a * that stands for itself needs quotes: "*"'),
        ("a:\n  b: [&, x]\n", "2: text that begins with & needs quotes"),
        ("- a\n- b\n", "1: the top level must be a mapping with keys such as servers and skill_configs"),
        ("just text", "1: the top level must be a mapping with keys such as servers and skill_configs"),
        ("proxy: {}\n---\nproxy: {}\n", "2: a second document begins here: put everything into one"),
        ("proxy: {}\nproxy: {}\n", "2: proxy: given twice (first on line 1): keep one"),
        ("? [a]\n: b\n", "1: a key must be text, not a list or a mapping"),
        ("~: b\n", "1: a key cannot be ~: quote it if it is a name"),
        ("proxy:\n  ? \n  : b\n", "2: proxy: a key cannot be empty: quote it if it is a name"),
        (
            "env_file: !!python/name:os.system x\n",
            "1: env_file: the tag !!python/name:os.system means nothing here: remove it",
        ),
        ("proxy: !own {}\n", "1: proxy: the tag !own means nothing here: remove it"),
        ("proxy: *nowhere\n", "1: no &nowhere stands above; text that begins with * needs quotes"),
        ("proxy: &a\n  tokens: *a\n", "1: proxy.tokens: an alias stands inside what it names"),
        ("proxy: &a\n  <<: *a\n", "1: proxy: an alias stands inside what it names"),
        ("proxy:\n  <<: {}\n  <<: {}\n", "3: proxy: << is given twice here: merge a list, <<: [*a, *b]"),
        ('a: b\nc: "\\U00110000"\n', "2: not valid YAML: a number or an escape is out of range"),
        (f"%YAML 1.{'9' * 5000}\n---\na: b\n", "1: not valid YAML: a number or an escape is out of range"),
        ("proxy:\n  <<: text\n", "2: proxy: << merges a mapping or a list of mappings"),
        ('env_file: "a\\0b"\n', "1: env_file: text cannot hold the character NUL"),
        ('env_file: "\\ud83d"\n', "1: env_file: half of a \\u pair: the other half is missing"),
        ("proxy: {}\nenv_file: \x01\n", "2: the character U+0001 cannot stand in YAML"),
        ("proxy: " + "[" * 100_000, "1: not valid YAML: nested too deep"),
    ],
)
def test_what_is_not_readable_is_refused_with_its_line(room, text, problem):
    """B58: a fault in the YAML is one plain sentence with a line."""
    assert problem in room.problems(text)


def test_what_is_not_utf_8_is_refused_with_its_line(room):
    """Latin-1 is not guessed at."""
    assert room.problems(b"proxy: {}\nenv_file: caf\xe9\n") == ["2: not UTF-8 text: save the file as UTF-8"]


def test_a_byte_order_mark_is_fine(room):
    """Editors on Windows write one."""
    assert room.load(b"\xef\xbb\xbfproxy: {list_wait: 5}\r\n").settings.list_wait == 5.0


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "~\n"])
def test_an_empty_file_has_no_servers_and_no_skills_and_says_so(room, text):
    """B58: an empty file loads, and the notes say what that means."""
    loaded = room.load(text)
    assert (loaded.catalogue.servers, loaded.catalogue.skills) == ((), ())
    assert loaded.notes == (
        f"{room.file}:1: the file is empty: no servers and no skills",
        f"{room.file}:1: no enabled skill: nothing is offered",
    )


def test_json_is_yaml(room):
    """A file in JSON loads the same, also when it is indented with tabs and writes characters as pairs of halves."""
    content = {
        "$schema": "./skills.schema.json",
        "mcpServers": {"s": {"command": "python", "args": ["-m", "x"], "timeout": 60, "disabled": False}},
        "skill_configs": {"a": {"usage": '\U0001f600 "quoted" / line\nbreak', "active": True, "tool_list": {"s": []}}},
    }
    loaded = room.load(json.dumps(content, indent="\t").replace("/", "\\/").encode())
    assert loaded.catalogue.skills[0].usage == content["skill_configs"]["a"]["usage"]
    assert loaded.catalogue.skills[0].active
    assert loaded.servers["s"].timeout == 60.0


def test_anchors_and_merge_keys_mean_what_yaml_says(room):
    """What stands in the mapping wins, then the first of several merged ones; nested lists are replaced."""
    loaded = room.load("""
        servers:
          a: &a {command: python, args: [x, y], timeout: 5, env: {A: 1, B: 2}}
          b: &b {<<: *a, args: [z]}
          c: {<<: [*b, *a], env: {C: 3}, start_timeout: 7}
          d: *a
        skill_configs:
          one: {tool_list: {a: &tools [t, u], b: *tools}}
        """)
    b, c = loaded.servers["b"], loaded.servers["c"]
    assert (b.args, b.timeout, b.env["B"]) == (("z",), 5.0, "2")
    assert (c.args, c.timeout, c.start_timeout) == (("z",), 5.0, 7.0)
    assert c.env["C"] == "3"
    assert "A" not in c.env
    assert loaded.servers["d"].args == ("x", "y")
    assert loaded.catalogue.servers == ("a", "b", "c", "d")
    assert loaded.catalogue.skills[0].tools["b"].entries == ("t", "u")


def test_a_quoted_merge_key_is_a_key_and_an_anchor_may_be_set_anew(room):
    """Both as YAML has it."""
    loaded = room.load("""
        servers: {s: {command: python, env: {"<<": <<, A: &v one, B: *v, C: &v two, D: *v}}}
        """)
    assert loaded.servers["s"].env.items() >= {"<<": "<<", "A": "one", "B": "one", "C": "two", "D": "two"}.items()


@pytest.mark.parametrize("merge", [False, True])
def test_a_bomb_is_refused_quickly(room, merge):
    """Nine levels of ten aliases each would be a billion values."""
    lines = ["a0: &a0 {x: y}"]
    for level in range(1, 10):
        aliases = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} " + (f"{{<<: [{aliases}]}}" if merge else f"[{aliases}]"))
    assert any("more than 100,000 values once the aliases are expanded" in p for p in room.problems("\n".join(lines)))


def test_a_file_that_cannot_be_read_is_refused(room):
    """A missing file, a folder and a file in a file are told like any other problem."""
    for path, what in [
        (room.folder / "none.yaml", "the file does not exist"),
        (room.folder, "is a folder, not a file"),
        (Path(__file__) / "x", "the file cannot be read: Not a directory"),
        (Path("a\0b"), "the file cannot be read: embedded null byte"),
    ]:
        with pytest.raises(Refused) as refused:
            load(path, {})
        assert str(refused.value) == f"{path}: {what}"


@pytest.mark.parametrize("shut", ["open", "stat"])
def test_a_file_that_may_not_be_read_is_refused(room, monkeypatch, shut):
    """The reason is said in words, also where already the folder is shut."""

    def denied(self, *_mode, **_options):
        raise PermissionError

    room.file.touch()
    monkeypatch.setattr(Path, shut, denied)
    with pytest.raises(Refused, match="may not be read: permission denied"):
        load(room.file, {})


def load_or_refuse(room, content):
    """Loads `content`; anything that is raised but `Refused` fails the test."""
    try:
        room.load(content, {"A": "1"})
    except Refused as refused:
        problems = refused.problems
    else:
        return
    assert problems
    assert all(problem.line >= 1 and problem.what for problem in problems)


ROOM_IS_SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@ROOM_IS_SHARED
@given(content=st.binary())
def test_loading_raises_nothing_but_refused_for_arbitrary_bytes(room, content):
    """No bytes make a traceback."""
    load_or_refuse(room, content)


FRAGMENTS = st.sampled_from(
    [
        *(
            "servers",
            "skill_configs",
            "tool_list",
            "a",
            "command",
            "url",
            "http://h",
            "<<",
            "*x",
            "&x ",
            "!!python ",
            "!",
        ),
        *(
            "~",
            "null",
            ": ",
            "- ",
            "\n",
            "\n  ",
            "\n    ",
            "{",
            "}",
            "[",
            "]",
            ", ",
            '"',
            "'",
            "|\n",
            "? ",
            "# ",
            "---\n",
        ),
        *(
            "%YAML 1.2\n",
            "\\U00110000",
            "\\ud800",
            "\t",
            "${A}",
            "${input:x}",
            "$${",
            "env",
            "env_file",
            "proxy",
            "tokens",
        ),
    ]
)


@ROOM_IS_SHARED
@given(pieces=st.lists(FRAGMENTS, max_size=40))
def test_loading_raises_nothing_but_refused_for_yaml_like_text(room, pieces):
    """Nor does text that comes close to a configuration."""
    load_or_refuse(room, "".join(pieces).encode())


PLAIN_DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
KEYS = ["servers", "mcpServers", "mcp_servers", "skill_configs", "black_tool_actions", "env_file", "proxy"]
INNER_KEYS = st.sampled_from(
    ["command", "url", "env", "headers", "args", "prefix", "tool_list", "name", "tokens", "timeout", "type", "enabled"]
)


@ROOM_IS_SHARED
@given(
    data=st.dictionaries(
        st.sampled_from(KEYS),
        PLAIN_DATA
        | st.dictionaries(INNER_KEYS, PLAIN_DATA)
        | st.dictionaries(st.text(), st.dictionaries(INNER_KEYS, PLAIN_DATA)),
    )
)
def test_loading_raises_nothing_but_refused_for_any_data(room, data):
    """Whatever stands where, it is loaded or refused."""
    load_or_refuse(room, json.dumps(data).encode())


@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_any_quoted_text_survives_as_written(text):
    """Text in double quotes, as JSON writes it, is read as it was, as a value and as a key."""
    assert parse(json.dumps({"k": [text]}).encode(), "f").data == {"k": [text]}
    assert parse(f"? {json.dumps(text)}\n: v\n".encode(), "f").data == {text: "v"}


WORDS = st.from_regex(r"[A-Za-z0-9_.+/][A-Za-z0-9_.+/:-]*[A-Za-z0-9_.+/]|[A-Za-z0-9_.]", fullmatch=True)


@given(words=st.lists(WORDS.filter(lambda word: word.lower() != "null"), max_size=5))
def test_any_plain_word_survives_as_written(words):
    """No plain scalar but a null is anything else than its text."""
    assert parse(("k: [" + ", ".join(words) + "]").encode(), "f").data == {"k": words}
