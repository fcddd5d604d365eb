"""Which files a configuration was read from, and what tells that they have changed."""

import os
from pathlib import Path

import pytest

from proxy.config.files import LARGEST, Files, digests
from proxy.config.load import Refused, load


def test_a_configuration_knows_every_file_it_was_read_from(room):
    """Its own first; those of servers that are left out are not read."""
    for name in ("all.env", "a.env"):
        (room.folder / name).write_text("A=1\n")
    loaded = room.load(
        """
        env_file: all.env
        servers:
          a: {command: x, env_file: a.env}
          b: {command: x, env_file: ./all.env}
          c: {command: x, env_file: none.env, disabled: true}
        """
    )
    assert loaded.files == (room.file, room.folder / "all.env", room.folder / "a.env")
    assert loaded.digests == digests(loaded.files)


def test_its_files_are_absolute(room, monkeypatch):
    """They stay right wherever the program goes."""
    room.file.write_text("{}")
    monkeypatch.chdir(room.folder)
    assert load(Path(room.file.name), {}).files == (room.file,)


def test_only_the_content_tells_a_change(tmp_path):
    """Not the time; a file that cannot be read is another content."""
    file = tmp_path / "file"
    file.write_text("a")
    first = digests([file])
    os.utime(file, (1, 1))
    assert digests([file]) == first
    file.write_text("b")
    second = digests([file])
    file.unlink()
    missing = digests([file])
    file.mkdir()
    assert len({each[file] for each in (first, second, missing, digests([file]))}) == 4


def test_a_file_that_is_too_large_is_refused_unread(room):
    """No configuration is: reading it as YAML would hold up everything that the proxy does."""
    room.file.write_text("#" * LARGEST)
    assert load(room.file, {}).empty
    room.file.write_text("#" * (LARGEST + 1))
    with pytest.raises(Refused) as refused:
        load(room.file, {})
    assert [problem.what for problem in refused.value.problems] == ["the file cannot be read: it holds more than 4 MiB"]


def test_an_env_file_without_an_end_is_refused(room):
    """Such as a device, which is read at the start."""
    room.file.write_text("env_file: /dev/zero")
    with pytest.raises(Refused, match="/dev/zero cannot be read: it holds more than 4 MiB"):
        load(room.file, {})


def test_a_pipe_is_read_once_and_then_left_alone():
    """It counts as unchanged as long as it is one."""
    reading, writing = os.pipe()
    os.write(writing, b"x")
    os.close(writing)
    path = Path(f"/dev/fd/{reading}")
    files = Files()
    assert files.read(path) == b"x"
    assert digests([path]) == files.digests
    with pytest.raises(OSError, match="a pipe or a device"):
        Files(again=True).read(path)
    os.close(reading)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a skill and some files."""
    folder = tmp_path / "skills"
    for name in ("a/SKILL.md", "a/scripts/run.py", "a/.env"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / "link").symlink_to("a/SKILL.md")
    return folder


def _touch(file: Path) -> None:
    os.utime(file, (1, 1))


@pytest.mark.parametrize(
    "change",
    [
        lambda root: _touch(root / "a/SKILL.md"),
        lambda root: (root / "a/SKILL.md").write_text("longer"),
        lambda root: (root / "a/scripts/run.py").unlink(),
        lambda root: (root / "a/scripts/run.py").rename(root / "a/scripts/other.py"),
        lambda root: (root / "a").rename(root / "b"),
        lambda root: (root / "a/scripts/new").mkdir(),
        lambda root: (root / "new").symlink_to("a"),
        lambda root: [(root / "link").unlink(), (root / "link").symlink_to("a/scripts/run.py")],
        lambda root: root.rename(root.parent / "elsewhere"),
    ],
)
def test_a_folder_has_another_digest_after_every_change(root, change):
    """Of names, sizes, times and links; nothing in it is read."""
    files = Files()
    files.tree(root)
    assert files.roots == (root,)
    assert digests(files.digests, files.roots) == files.digests
    change(root)
    assert digests(files.digests, files.roots) != files.digests


@pytest.mark.parametrize("path", ["a/.env", "a/.new", "node_modules/x", ".git/index", "a/__pycache__/x.pyc"])
def test_what_is_no_part_of_a_skill_changes_no_digest(root, path):
    before = digests([], [root])
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_text("other")
    assert digests([], [root]) == before


def test_a_folder_that_a_file_was_expected_to_be_is_told_from_one_that_was_walked(root):
    """Even where it is both."""
    files = Files()
    with pytest.raises(IsADirectoryError):
        files.read(root)
    assert (files.roots, files.digests) == ((), digests([root]))
    files.tree(root)
    assert files.digests == digests([root], [root]) != digests([root])


def test_a_tree_knows_its_folders(root):
    assert Files().tree(root).folders == (root, root / "a", root / "a/scripts")
