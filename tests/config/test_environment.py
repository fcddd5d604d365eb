"""Where a server runs and what it gets (design rules 22 and 23; case B54)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.config import environment
from proxy.config.load import load
from proxy.core.server import StdioServer


def test_a_child_inherits_what_programs_need_and_nothing_else(room):
    """B54: proxy settings, certificates and the locale arrive; tokens do not."""
    names = """
        HOME LOGNAME PATH SHELL TERM USER LANG LANGUAGE LC_ALL LC_TIME TZ TMPDIR
        HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY
        http_proxy https_proxy no_proxy all_proxy SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE
        NODE_EXTRA_CA_CERTS XDG_CONFIG_HOME
    """
    wanted = {name: f"value of {name}" for name in names.split()}
    environ = {**wanted, "GITHUB_TOKEN": "t", "LCX": "1", "PYTHONPATH": "p", "BASH_FUNC": "() { :; }"}
    assert room.stdio("{command: python}", environ).env == wanted


def test_inherit_env_passes_chosen_variables(room):
    """B54: by name or by pattern; shell functions never."""
    environ = {"GITHUB_TOKEN": "t", "AWS_A": "1", "AWS_B": "2", "AWS_F": "() { :; }", "OTHER": "o"}
    server = room.stdio("{command: python, inherit_env: [GITHUB_TOKEN, 'AWS_*', NOT_SET]}", environ)
    assert server.env == {"GITHUB_TOKEN": "t", "AWS_A": "1", "AWS_B": "2"}


def test_env_wins_over_the_env_file_and_that_over_what_is_inherited(room):
    """The nearer, the stronger."""
    (room.folder / "s.env").write_text("LANG=file\nTZ=file\n")
    server = room.stdio("{command: python, env_file: s.env, env: {TZ: own}}", {"LANG": "l", "TZ": "t", "USER": "u"})
    assert server.env == {"LANG": "file", "TZ": "own", "USER": "u"}


def test_names_are_compared_without_case_on_windows(monkeypatch):
    """There `Path` and `PATH` are one."""
    monkeypatch.setattr(environment, "WINDOWS", True)
    assert environment.child_environment({"Path": "p", "other": "o"}, ["OTHER"]) == {"Path": "p", "other": "o"}


def test_the_env_file_of_the_file_gives_variables_that_the_environment_lacks(room):
    """The environment wins over it; nothing in it is expanded; it is not handed to servers."""
    (room.folder / "all.env").write_text("export A=file\nB='q $C ${A}'\n# comment\nNOVALUE\n", encoding="utf-8-sig")
    loaded = room.load(
        "env_file: all.env\nservers: {s: {command: python, args: ['${A}', '${B}', '${NOVALUE:-d}']}}\n",
        {"A": "environ"},
    )
    assert loaded.servers["s"].args == ("environ", "q $C ${A}", "d")
    assert loaded.servers["s"].env == {}


def test_a_servers_own_env_file_wins_for_that_server_alone(room):
    """Over the environment and over the file's; and the program gets its variables."""
    (room.folder / "own").mkdir()
    (room.folder / "own" / "s.env").write_text("A=own\n")
    (room.folder / "all.env").write_text("A=all\n")
    loaded = room.load(
        """
        env_file: all.env
        servers:
          s: {command: python, args: ["${A}"], envFile: own/s.env}
          t: {command: python, args: ["${A}"]}
        """,
        {"A": "environ"},
    )
    assert (loaded.servers["s"].args, loaded.servers["s"].env) == (("own",), {"A": "own"})
    assert (loaded.servers["t"].args, loaded.servers["t"].env) == (("environ",), {})


def test_an_env_file_also_serves_a_server_with_a_url(room):
    """For its URL and headers."""
    (room.folder / "s.env").write_text("T=token-1\n")
    server = room.http("{url: 'http://h', headers: {Authorization: 'Bearer ${T}'}, env_file: s.env}")
    assert server.headers == {"Authorization": "Bearer token-1"}


def test_an_env_file_that_cannot_be_read_refuses_the_file(room):
    """With the line that names it, for every one of them; a disabled server's is not looked at."""
    (room.folder / "latin.env").write_bytes(b"A=caf\xe9\n")
    (room.folder / "nul.env").write_bytes(b"A=\0\n")
    (room.folder / "broken.env").write_text("A=b\n'\"c\n")
    assert room.problems("""
        env_file: none.env
        servers:
          a: {command: x, env_file: latin.env}
          b:
            command: x
            envFile: .
          c: {command: x, env_file: nul.env}
          d: {command: x, env_file: none.env, disabled: true}
          e: {command: x, env_file: ""}
          f: {command: x, env_file: broken.env}
        """) == [
        f"2: env_file: {room.folder}/none.env does not exist",
        f"4: servers.a.env_file: {room.folder}/latin.env is not UTF-8 text",
        f"7: servers.b.envFile: {room.folder} cannot be read: Is a directory",
        f"8: servers.c.env_file: {room.folder}/nul.env is not a text file",
        "10: servers.e.env_file: is empty: write the path of a dotenv file, or leave it out",
        f"11: servers.f.env_file: {room.folder}/broken.env:2 is not of the form NAME=value",
    ]


def test_a_bare_command_is_looked_for_beside_the_interpreter_first(room, no_interpreter):
    """Then on the child's PATH, which may be set by its own env."""
    beside, on_path = room.program("interpreter/tool"), room.program("bin/tool")
    environ = {"PATH": str(on_path.parent)}
    assert room.stdio("{command: tool}", environ).command == str(beside)
    beside.unlink()
    assert room.stdio("{command: tool}", environ).command == str(on_path)
    own = f"{{command: tool, env: {{PATH: {on_path.parent}}}}}"
    assert room.stdio(own, {"PATH": "/nowhere"}).command == str(on_path)


def test_a_command_that_is_not_found_says_where_it_was_looked_for(room, no_interpreter):
    """B54: the reason names the command and what to do; the PATH, which models need not read, is a note."""
    environ = {"PATH": "/usr/nowhere:/nowhere", "HTTPS_PROXY": "http://p:1"}
    assert room.reason("{command: npx}", environ) == (
        "command npx not found: neither beside the proxy's Python nor on PATH; give an absolute path"
    )
    text = "servers:\n  s:\n    command: npx\nskill_configs: {a: {tool_list: {s: []}}}\n"
    assert room.notes(text, environ) == ["3: servers.s.command: searched PATH=/usr/nowhere:/nowhere"]


def test_the_path_that_was_searched_holds_no_secrets(room, no_interpreter):
    """What a variable has put into it may be one."""
    text = "servers: {s: {command: npx, env: {PATH: '/nowhere:${HIDDEN}'}}}\n"
    assert "1: servers.s.command: searched PATH=/nowhere:***" in room.notes(text, {"HIDDEN": "hidden-folder"})


def test_without_a_path_the_systems_default_is_searched(room, no_interpreter):
    """As programs do it."""
    assert f"1: servers.s.command: searched PATH={os.defpath}" in room.notes("servers: {s: {command: not-there}}")


def test_relative_paths_start_at_the_file_and_tilde_is_home(room, monkeypatch):
    """B54: whatever folder the proxy was started in."""
    tool = room.program("bin/tool")
    monkeypatch.chdir("/")
    for written in ("./bin/tool", "bin/tool", "~/bin/tool", str(tool)):
        assert room.stdio(f"{{command: '{written}'}}", {"HOME": str(room.folder)}).command == str(tool)
    for written in ("bin", "~/bin", str(tool.parent)):
        assert room.stdio(f"{{command: python, cwd: '{written}'}}", {"HOME": str(room.folder)}).cwd == str(tool.parent)
    assert room.stdio("{command: python, cwd: '~'}", {"HOME": str(room.folder)}).cwd == str(room.folder)
    assert room.stdio("{command: python}").cwd is None


def test_relative_paths_hold_when_the_file_itself_was_named_relatively(room, monkeypatch):
    """The result is absolute all the same."""
    tool = room.program("bin/tool")
    room.file.write_text("servers: {s: {command: ./bin/tool}}")
    monkeypatch.chdir(room.folder)
    loaded = load(Path("skills.yaml"), {})
    server = loaded.servers["s"]
    assert isinstance(server, StdioServer)
    assert server.command == str(tool)
    assert loaded.path == room.file


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("{command: ./none}", "command ./none not found: no file {folder}/none"),
        ("{command: ./plain}", "command ./plain is not executable"),
        ("{command: '${E:-}'}", "command is empty"),
        ("{command: '  '}", "command    not found: neither beside"),
        (
            "{command: a-server --zone UTC}",
            "command a-server ... not found: the words after the program belong into args",
        ),
        ("{command: a-server UTC}", "command a-server ... not found: the words after the program belong into args"),
        ("{command: npx -y @scope/x}", "command npx ... not found: the words after the program belong into args"),
        ("{command: ./there x/y.py}", "command ./there ... not found: the words after the program belong into args"),
        ("{command: ./with space/x}", "command ./with space/x not found: no file {folder}/with space/x"),
        ("{command: python, cwd: none}", "cwd none is not a directory: {folder}/none"),
        ("{command: python, cwd: plain}", "cwd plain is not a directory: {folder}/plain"),
        ("{command: ./none, cwd: none}", "no file {folder}/none; cwd none is not a directory"),
        ("{command: ~nobody-of-that-name/x}", "command ~nobody-of-that-name/x: there is no user nobody-of-that-name"),
    ],
)
def test_what_is_not_there_keeps_the_server_from_starting(room, entry, reason):
    """With one line of reason; the file itself is fine."""
    (room.folder / "plain").write_text("")
    room.program("there")
    assert reason.format(folder=room.folder) in room.reason(entry)


def test_the_resolved_server_starts_with_nothing_else(room):
    """What was resolved is complete: the program runs with exactly this environment."""
    server = room.stdio(
        "{command: python, args: [-c, 'import os; print(os.environ[\"V\"])'], env: {V: '${X}'}}",
        {"X": 'a $b "c"', "PATH": os.environ["PATH"]},
    )
    out = subprocess.run(
        [server.command, *server.args], env=dict(server.env), capture_output=True, check=True, text=True
    )
    assert out.stdout == 'a $b "c"\n'
    assert shutil.which("python", path=str(Path(sys.executable).parent)) == server.command
