"""`skills`: packages are installed, listed, removed and validated, and all is said by exit code and in words."""

import hashlib
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.cli import skills
from proxy.cli.main import main
from tests.conftest import program


def document(name: str, more: str = "", desc: str = "Fills in forms.") -> str:
    return f"---\nname: {name}\ndescription: {desc}\n{more}---\nThe guide.\n"


def folder(path: str, more: str = "", **texts: str) -> Path:
    """A skill, here."""
    made = Path(path)
    (made / "scripts").mkdir(parents=True, exist_ok=True)
    (made / "SKILL.md").write_text(document(made.name, more, **texts))
    (made / "scripts" / "run.py").write_text("print()\n")
    return made


def a_folder() -> Path:
    return folder("pdf")


def a_zip() -> Path:
    """As a forge makes it: in a folder that is called after the repository and the revision."""
    with zipfile.ZipFile("pdf.zip", "w") as archive:
        for name in ("SKILL.md", "scripts/run.py"):
            archive.write(folder("source/pdf") / name, f"The.Skills-1a2b3c4/{name}")
    return Path("pdf.zip")


def a_tar_gz() -> Path:
    with tarfile.open("pdf.tar.gz", "w:gz") as archive:
        archive.add(folder("source/pdf"), "pdf")
    return Path("pdf.tar.gz")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that we are in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command: its exit code, and what it prints to people and about errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main(["skills", *map(str, arguments)])
        said = capsys.readouterr()
        for text in (said.out, said.err):
            assert ".staging" not in text
            assert "Traceback" not in text
        return code, said.out, said.err

    return run


# --- add --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [a_folder, a_zip, a_tar_gz])
def test_a_skill_is_installed_from_a_folder_a_zip_and_a_tar_gz(here, run, source):
    """And it is said where it is now, and how to offer it."""
    code, out, err = run("add", source(), "--to", "to")
    assert (code, err) == (0, "")
    assert out.startswith(f"pdf: installed in {here}/to/pdf (2 files, SHA-256 ")
    assert f"skill_configs.pdf grants them:\n  skill_paths: [{{path: {here}/to, trusted: false}}]\n" in out
    assert (here / "to/pdf/SKILL.md").read_text() == document("pdf")
    assert (here / "to/pdf/scripts/run.py").read_text() == "print()\n"


def test_the_program_installs_where_the_user_keeps_data_unless_told_otherwise(here, run, monkeypatch):
    monkeypatch.setattr(skills, "user_data_path", lambda name: here / "data" / name)
    assert run("add", a_folder())[0] == 0
    assert (here / "data/mcp-skill-proxy/skills/pdf/SKILL.md").exists()
    assert run("list")[1].startswith("pdf: 2 files from pdf, installed ")
    assert run("remove", "pdf")[0] == 0
    assert not (here / "data/mcp-skill-proxy/skills/pdf").exists()


def test_the_real_program_tells_what_it_installed_and_what_it_refuses(here):
    """By its exit code too."""

    def real(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = program("skills", *arguments)
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    good = real("add", a_zip(), "--to", "to")
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.startswith(f"pdf: installed in {here}/to/pdf (2 files")
    bad = real("add", "none.zip", "--to", "to")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr == "mcp-skill-proxy: none.zip: there is no such file or folder: correct the path\n"
    (here / "to/pdf/SKILL.md").write_text("x")
    changed = real("list", "--from", "to")
    assert (changed.returncode, changed.stderr) == (1, "")
    assert changed.stdout.endswith("  ! changed since it was installed: SKILL.md\n")


@pytest.mark.parametrize("source", [a_zip, a_tar_gz])
def test_what_has_another_digest_is_not_installed(here, run, source):
    archive = source()
    right = hashlib.sha256(archive.read_bytes()).hexdigest()
    code, out, err = run("add", archive, "--to", "to", "--sha256", "0" * 64)
    assert (code, out) == (2, "")
    assert err.startswith(f"mcp-skill-proxy: {archive}: its SHA-256 is {right}, and {'0' * 64} is expected")
    assert not (here / "to").exists()
    assert run("add", archive, "--to", "to", "--sha256", right)[0] == 0


@pytest.mark.parametrize("pack", [a_folder, a_zip, a_tar_gz])
def test_a_skill_that_could_not_be_offered_is_not_installed(here, run, pack, monkeypatch):
    """Everything that is wrong with it is said."""
    monkeypatch.setattr(f"{__name__}.document", lambda *_: "---\nname: pdf\ntool_list: x\nactive: y\n---\n")
    code, out, err = run("add", pack(), "--to", "to")
    assert (code, out) == (2, "")
    assert "description: is missing" in err
    assert "SKILL.md:3: tool_list: must be a mapping" in err
    assert "SKILL.md:4: active: must be true or false" in err
    assert not (here / "to").exists()


def test_a_skill_that_is_no_good_leaves_the_older_one_in_its_place(here, run):
    run("add", a_folder(), "--to", "to")
    folder("pdf", "active: y\n")
    code, _, err = run("add", "pdf", "--to", "to")
    assert (code, "active: must be true or false" in err) == (2, True)
    assert (here / "to/pdf/SKILL.md").read_text() == document("pdf")


def test_a_newer_skill_replaces_the_older_one(here, run):
    run("add", a_folder(), "--to", "to")
    folder("pdf", desc="Does more.")
    Path("pdf/scripts/run.py").unlink()
    code, out, _ = run("add", "pdf", "--to", "to")
    assert (code, "(1 file, SHA-256" in out) == (0, True)
    assert (here / "to/pdf/SKILL.md").read_text() == document("pdf", desc="Does more.")
    assert not (here / "to/pdf/scripts").exists()
    assert run("list", "--from", "to")[0] == 0


def test_a_folder_of_somebody_s_own_is_not_replaced(here, run):
    folder("to/pdf", desc="My own.")
    code, _, err = run("add", a_zip(), "--to", "to")
    assert (code, f"{here}/to/pdf is there, and was not installed: move it away" in err) == (2, True)
    assert (here / "to/pdf/SKILL.md").read_text() == document("pdf", desc="My own.")


def test_what_is_worth_saying_of_a_skill_is_said_when_it_is_installed(run):
    """Such as a name that is not that of its folder."""
    folder("pdf").rename("forms")
    code, out, _ = run("add", "forms", "--to", "to")
    assert code == 0
    assert "\nnote: forms/SKILL.md: name: the name is pdf, the folder's is forms: they should be the same\n" in out


# --- list -------------------------------------------------------------------------------------------------------------


def test_what_is_installed_is_listed_with_what_has_changed_since(here, run):
    """The exit code says whether anything has."""
    run("add", a_folder(), "--to", "to")
    run("add", folder("ocr"), "--to", "to")
    code, out, _ = run("list", "--from", "to")
    assert code == 0
    assert [line.split(", ")[0] for line in out.splitlines()] == ["ocr: 2 files from ocr", "pdf: 2 files from pdf"]
    (here / "to/pdf/SKILL.md").write_text("x")
    (here / "to/pdf/scripts/run.py").unlink()
    for number in range(10):
        (here / f"to/pdf/{number}").touch()
    code, out, _ = run("list", "--from", "to")
    assert code == 1
    assert out.splitlines()[2:] == [
        "  ! new since it was installed: 0, 1, 2, 3, 4, 5, 6, 7, … (10 in all)",
        "  ! changed since it was installed: SKILL.md",
        "  ! missing since it was installed: scripts/run.py",
    ]


def test_a_damaged_record_is_listed_as_one(here, run):
    run("add", a_folder(), "--to", "to")
    (here / "to/.installed/pdf.json").write_text("{")
    assert run("list", "--from", "to")[:2] == (
        1,
        "pdf\n  ! its record cannot be read: remove the skill, and install it anew\n",
    )


def test_where_nothing_is_installed_that_is_said(here, run):
    assert run("list", "--from", "to") == (0, f"No skill is installed in {here}/to.\n", "")


def config(text: str) -> Path:
    Path("c.yaml").write_text(f"servers: {{git: {{command: python}}}}\n{text}")
    return Path("c.yaml")


def test_the_skills_of_a_configuration_are_listed_with_their_origin(here, run):
    """And those that are not offered with the reason; texts are cut and wrapped, and show nothing to a terminal."""
    folder(
        "s/pdf", "tool_list: {git: []}\npinned: true\n", desc='"Fills in \\e[31mforms.\\n' + "And so on. " * 30 + '"'
    )
    folder("s/gone", "requires: {bins: no-such-program, env: [A_VARIABLE, ANOTHER_ONE, YET_ANOTHER_ONE]}\n")
    text = "skill_paths: [{path: s, trusted: true}]\nskill_configs: {own: {desc: Mine, active: true}, none: {}}\n"
    code, out, err = run("list", "--config", config(text))
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "own, active at once",
        "  Mine",
        "  from the configuration; a guide alone",
        "none",
        "  from the configuration; a guide alone",
        "pdf, pinned",
        "  Fills in [31mforms. And so on. And so on. And so on. And so on. And so on. And",
        "  so on. And so on. And so on. And so on. And so on. And so on. And so on. And …",
        "  from s/pdf; grants at git",
        "",
        "Not offered:",
        "  gone: the program no-such-program is not on PATH; the variable A_VARIABLE is",
        "    not set; the variable ANOTHER_ONE is not set; the variable YET_ANOTHER_ONE",
        "    is not set (s/gone/SKILL.md)",
    ]
    assert max(map(len, out.splitlines())) <= 80


def test_no_name_of_a_folder_gets_through_to_a_terminal(run):
    """Nor keeps the others from being listed."""
    folder(os.fsdecode(b"s/\xff\x1b[31m/pdf"))
    code, out, _ = run("list", "--config", config("skill_paths: [s]\n"))
    assert (code, out.splitlines()[2]) == (0, r"  from s/\udcff\x1b[31m/pdf; a guide alone")


def test_the_skills_of_a_configuration_are_listed_with_what_has_changed_in_them(here, run):
    """Also in one that is not offered, as another has its id."""
    for root in ("s", "t"):
        run("add", a_folder(), "--to", root)
        (here / root / "pdf/scripts/run.py").write_text("x")
    code, out, _ = run("list", "--config", config("skill_paths: [s, t]\n"))
    assert code == 1
    assert out.splitlines() == [
        "pdf",
        "  Fills in forms.",
        "  from t/pdf; a guide alone",
        "  ! changed since it was installed: scripts/run.py",
        "",
        "Installed, changed and not offered:",
        "  s/pdf: changed since it was installed: scripts/run.py",
    ]


def test_a_configuration_without_skills_lists_none(run):
    assert run("list", "--config", config("")) == (0, "No skill is offered.\n", "")


def test_a_configuration_that_is_refused_lists_nothing(run):
    code, out, err = run("list", "--config", config("skill_configs: {a: {desk: x}}\n"))
    assert (code, out) == (2, "")
    assert err == "c.yaml:2: skill_configs.a.desk: unknown key: did you mean 'desc'?\n"


def test_one_list_is_asked_for_at_a_time(run, capsys):
    with pytest.raises(SystemExit) as ended:
        run("list", "--config", "c.yaml", "--from", "to")
    assert ended.value.code == 2
    assert "not allowed with argument --config" in capsys.readouterr().err


# --- remove -----------------------------------------------------------------------------------------------------------


def test_what_was_installed_is_removed_and_nothing_else(here, run):
    run("add", a_folder(), "--to", "to")
    folder("to/mine")
    assert run("remove", "pdf", "--from", "to") == (0, f"pdf: removed from {here}/to\n", "")
    assert sorted(path.name for path in (here / "to").iterdir() if not path.name.startswith(".")) == ["mine"]
    for id_ in ("pdf", "mine"):
        code, out, err = run("remove", id_, "--from", "to")
        assert (code, out) == (2, "")
        assert err.startswith(f"mcp-skill-proxy: {id_} was not installed in {here}/to: delete its folder yourself")
    code, _, err = run("remove", "../pdf", "--from", "to")
    assert (code, "cannot be the name of a skill" in err) == (2, True)
    assert (here / "pdf/SKILL.md").exists()


# --- validate ---------------------------------------------------------------------------------------------------------


def test_good_skills_are_called_good(run):
    folder("s/pdf", "tool_list: {anywhere: []}\n")
    folder("s/Odd_name")
    code, out, err = run("validate", "s", a_folder())
    assert (code, err) == (0, "")
    assert out.splitlines()[-3:] == [
        (
            "Odd_name: good; clients that know skills are not served it: its name may only hold a-z, 0-9 and single "
            "hyphens between them"
        ),
        "pdf: good",
        "pdf: good",
    ]


def test_everything_that_is_wrong_with_a_skill_is_said_with_its_place(run):
    folder("s/bad", "tool_list: x\nactive: y\nexlusive: true\n")
    folder("s/pdf")
    code, out, err = run("validate", "s")
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        (
            "problem: s/bad/SKILL.md:4: tool_list: must be a mapping (key: value), not text: write each server with "
            'its tools: "x: []"'
        ),
        "problem: s/bad/SKILL.md:5: active: must be true or false",
        "pdf: good",
    ]


def test_servers_are_known_where_a_configuration_is_named(run):
    """Be they switched off."""
    folder("s/pdf", "tool_list: {git: [], gti: []}\n")
    folder("s/off", "tool_list: {off: []}\n")
    Path("c.yaml").write_text("servers: {git: {command: python}, off: {command: python, disabled: true}}\n")
    assert run("validate", "s")[:2] == (0, "off: good\npdf: good\n")
    code, out, _ = run("validate", "s", "--config", "c.yaml")
    assert (code, out.splitlines()) == (
        1,
        ["off: good", "problem: s/pdf/SKILL.md:4: tool_list.gti: unknown server 'gti': did you mean 'git'?"],
    )


@pytest.mark.parametrize("path", ["none", "empty", "file"])
def test_where_there_is_no_skill_that_is_a_problem(run, path):
    Path("empty").mkdir()
    Path("file").touch()
    code, out, _ = run("validate", path)
    assert code == 1
    assert out.endswith(f"problem: {path}: no skill is there: a skill is a folder with a SKILL.md\n")
