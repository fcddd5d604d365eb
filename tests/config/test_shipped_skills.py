"""The skill folders in config/skills: they load as they are, the standard's own validator takes those that claim so."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import skills_ref

from proxy.config import skill_md
from proxy.config.files import Files
from proxy.config.library import Root, find

SKILLS = Path(__file__).parents[2] / "config" / "skills"
SERVERS = ("time", "git", "fetch")
STANDARD = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
FOLDERS = sorted(SKILLS.iterdir())


def fields(folder: Path) -> set[str]:
    return set(skill_md.front_matter((folder / "SKILL.md").read_bytes(), folder.name))


CLEAN = [folder for folder in FOLDERS if fields(folder) <= STANDARD]


def test_all_of_them_load_without_a_word():
    """Ten, some with files beside the guide, some of instructions alone, all to be served to clients that know them."""
    found = find([Root(SKILLS, trusted=True, shown="skills")], SERVERS, Files())
    assert (found.notes, found.left_out) == ((), ())
    assert [skill.id for skill in found.skills] == [folder.name for folder in FOLDERS]
    assert len(found.skills) >= 10
    assert sum(len(skill.folder.files) > 1 for skill in found.skills) >= 3
    assert not any(skill.folder.unserved for skill in found.skills)
    assert not all(skill.entry.tool_list for skill in found.skills)
    assert all(skill.entry.category and skill.entry.tags for skill in found.skills)


@pytest.mark.parametrize("folder", CLEAN, ids=lambda folder: folder.name)
def test_the_standards_validator_takes_those_with_its_fields_alone(folder: Path):
    """`skills-ref validate`, by its own function."""
    assert skills_ref.validate(folder) == []


def test_most_of_them_are_such():
    """The others show the fields that the standard has not."""
    assert 7 <= len(CLEAN) < len(FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_files_that_a_guide_names_are_there(folder: Path):
    """And all files that are there are named."""
    text = (folder / "SKILL.md").read_text(encoding="utf-8")
    beside = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    assert [path for path in beside if path != "SKILL.md" and path not in text] == []


def test_the_script_reads_lock_files(tmp_path: Path):
    """What is pinned gets an address to ask, what is not is told; with `--against`, what is new."""
    script = SKILLS / "dependency-audit" / "scripts" / "locked.py"
    (tmp_path / "requirements.txt").write_text("anyio==4.9.0\nhere @ file:///x\nloose\n", encoding="utf-8")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "requirements.txt").write_text("anyio==4.8.0\n", encoding="utf-8")

    def run(*arguments: str) -> str:
        command = [sys.executable, script, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60).stdout

    pinned, foreign, loose = run("requirements.txt").splitlines()
    assert "anyio" in pinned
    assert "4.9.0" in pinned
    assert "https://" in pinned
    assert "not from a registry" in foreign
    assert "not pinned" in loose
    assert "4.8.0" in run("requirements.txt", "--against", "old/requirements.txt")
    lock = {"lockfileVersion": 3, "packages": {"node_modules/x": {"version": "1.0.0", "resolved": "https://r/x.tgz"}}}
    (tmp_path / "package-lock.json").write_text(json.dumps(lock), encoding="utf-8")
    assert "1.0.0" in run("package-lock.json")
