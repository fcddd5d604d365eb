"""`skills add` and `validate`: what is said where something is replaced, or named otherwise than by its folder."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from proxy.cli.main import main


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the command here, where it succeeds: what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        assert main(["skills", *arguments]) == 0
        return capsys.readouterr().out

    return run


def write_skill(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(f"---\nname: {folder.name}\ndescription: d\n---\nGuide.\n")


def test_it_is_said_which_older_skill_is_replaced_and_what_was_changed_in_it(tmp_path: Path, run: Callable[..., str]):
    """Whoever has edited an installed skill learns that the edits are gone."""
    write_skill(tmp_path / "pdf")
    assert "replaces" not in run("add", "pdf", "--to", "to")
    assert run("add", "pdf", "--to", "to").splitlines()[1] == "note: it replaces an older one, from pdf"

    (tmp_path / "to" / "pdf" / "SKILL.md").write_text("mine")
    (tmp_path / "to" / "pdf" / "mine.md").write_text("mine")
    assert run("add", "pdf", "--to", "to").splitlines()[1:4] == [
        "note: it replaces an older one, from pdf",
        "note: gone with that: changed since it was installed: SKILL.md",
        "note: gone with that: new since it was installed: mine.md",
    ]


@pytest.mark.parametrize("folder", ["plain", "with space", "a, b", "a: b", "a #b", "a}b", 'a"b', "ü"])
def test_the_setting_that_offers_a_skill_can_be_pasted(tmp_path: Path, run: Callable[..., str], folder: str):
    """Whatever the folder is called."""
    write_skill(tmp_path / "pdf")
    pasted = re.search(r"^  (skill_paths: .*)$", run("add", "pdf", "--to", folder), re.MULTILINE)
    assert pasted is not None
    assert yaml.safe_load(pasted[1]) == {"skill_paths": [{"path": str(tmp_path / folder), "trusted": False}]}


def test_a_skill_may_be_named_by_its_document_to_be_validated(tmp_path: Path, run: Callable[..., str]):
    """As the standard's own validator has it."""
    write_skill(tmp_path / "pdf")
    assert run("validate", "pdf/SKILL.md") == "pdf: good\n"


def test_the_id_of_an_installed_skill_may_be_chosen(tmp_path: Path, run: Callable[..., str]):
    """By `--as`, which is asked for where no name there can be one."""
    write_skill(tmp_path / "Not An Id")
    with pytest.raises(AssertionError):
        run("add", "Not An Id", "--to", "to")
    assert run("add", "Not An Id", "--to", "to", "--as", "chosen").startswith("chosen: installed in ")
    assert (tmp_path / "to" / "chosen" / "SKILL.md").is_file()
