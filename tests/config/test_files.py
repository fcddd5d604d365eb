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
