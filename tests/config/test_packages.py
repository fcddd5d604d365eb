"""Skill packages are placed whole or not at all, whoever made them."""

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.config.members import in_folder
from proxy.config.packages import BadPackage, Installed, add, digest_of_tree, installed, remove
from tests.conftest import ROOT

SKILL = b"---\nname: a-skill\n---\nDo this.\n"
FILES = {"SKILL.md": SKILL, "scripts/run.py": b"print()\n", "scripts/deep/er/x.txt": b""}
OTHER = FILES | {"SKILL.md": SKILL.replace(b"a-skill", b"other")}
MIB = 1024 * 1024


class Spoilt(Exception):
    """What a validator raises."""


def accept(folder: Path) -> None:
    """A validator that finds nothing."""


def name_of(file: Path) -> str:
    found = re.search(rb"name: (.*)", file.read_bytes())
    return found[1].decode(errors="replace") if found else ""  # archives that are damaged on purpose may have none


def put(source: Path, into: Path, validate: Callable[[Path], None] = accept, sha256: str | None = None) -> Installed:
    return add(source, into, validate, name_of, sha256)


# --- sources ---------------------------------------------------------------------------------------------------------


def a_folder(path: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def a_zip(path: Path, files: Mapping[str, bytes], *more: zipfile.ZipInfo) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that are there twice
        for name, content in files.items():
            archive.writestr(name, content)
        for info in more:
            archive.writestr(info, b"x")
    return path


def entry(name: str, mode: int = 0) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("x")
    info.filename, info.external_attr = name, mode << 16
    return info


def a_tar(files: Mapping[str, bytes], *more: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in more:
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    return packed.getvalue()


def a_tgz(path: Path, files: Mapping[str, bytes], *more: tarfile.TarInfo) -> Path:
    path.write_bytes(gzip.compress(a_tar(files, *more), mtime=0))
    return path


def header(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def wrapped(files: Mapping[str, bytes], top: str = "a-skill") -> dict[str, bytes]:
    return {f"{top}/{name}": content for name, content in files.items()}


def as_folder(at: Path) -> Path:
    return a_folder(at / "a-skill", FILES)


def as_zip(at: Path) -> Path:
    return a_zip(at / "package", wrapped(FILES))


def as_zip_without_a_folder(at: Path) -> Path:
    return a_zip(at / "whatever.tar.gz", FILES)


def as_tar_gz(at: Path) -> Path:
    return a_tgz(at / "whatever.zip", wrapped(FILES))


def as_tar_gz_of_a_folder_itself(at: Path) -> Path:
    """As `tar -cz .` makes it."""
    return a_tgz(at / "x.tgz", wrapped(FILES, "."), header("./", tarfile.DIRTYPE), header("./scripts", tarfile.DIRTYPE))


SOURCES = [as_folder, as_zip, as_zip_without_a_folder, as_tar_gz, as_tar_gz_of_a_folder_itself]
ARCHIVES = [a_zip, a_tgz]


# --- what is there ---------------------------------------------------------------------------------------------------


def everything(below: Path) -> dict[str, object]:
    """All that lies below a folder: kind and mode of each, and what is in it."""
    found: dict[str, object] = {}
    for at, folders, files in os.walk(below):
        for name in [*folders, *files]:
            path = Path(at, name)
            mode = path.lstat().st_mode
            held = path.read_bytes() if stat.S_ISREG(mode) else path.readlink() if stat.S_ISLNK(mode) else None
            found[os.fsdecode(path)] = (mode, held)
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "home" / "skills"


def refused(source: Path, into: Path, sha256: str | None = None) -> str:
    """Why a source is refused, which changes nothing anywhere; a line for people."""
    around = into.parent.parent
    before = everything(around)
    with pytest.raises(BadPackage) as caught:
        put(source, into, sha256=sha256)
    assert everything(around) == before
    message = str(caught.value)
    assert message.isprintable()
    assert ".staging" not in message
    return message


def make_old(path: Path, hours: float) -> None:
    then = (datetime.now(UTC) - timedelta(hours=hours)).timestamp()
    os.utime(path, (then, then))


# --- installing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES)
def test_a_skill_is_installed_from_every_kind_of_source_known_by_what_it_holds(tmp_path, into, source):
    seen: list[tuple[str, dict[str, bytes]]] = []
    skill = put(source(tmp_path), into, lambda folder: seen.append((folder.name, contents(folder))))
    assert skill.id == "a-skill"
    assert seen == [("a-skill", FILES)]
    assert contents(into / "a-skill") == FILES
    assert names_in(into) == [".installed", "a-skill"]
    assert installed(into) == (skill,)


def test_a_record_says_what_was_installed_and_not_where_it_lay(tmp_path, into):
    source = as_zip(tmp_path)
    began = datetime.now(UTC).replace(microsecond=0)
    put(source, into)
    text = (into / ".installed" / "a-skill.json").read_text()
    record = json.loads(text)
    assert str(tmp_path) not in text
    assert record["source"] == "package"
    assert record["sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert began <= datetime.fromisoformat(record["installed_at"]) <= datetime.now(UTC)
    assert record["files"] == {
        name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in FILES.items()
    }


@pytest.mark.parametrize("mask", [0o000, 0o077])
@pytest.mark.parametrize("files", [FILES, wrapped(FILES)], ids=["as-it-is", "in-a-folder"])
def test_nothing_that_is_installed_can_be_run_or_written_by_others(tmp_path, into, files, mask):
    program = header("a-skill/scripts/run", tarfile.REGTYPE)
    program.mode = 0o6777
    closed = header("a-skill/closed", tarfile.DIRTYPE)
    closed.mode = 0
    source = a_tgz(tmp_path / "x.tgz", files, program, closed)
    before = os.umask(mask)
    try:
        put(source, into)
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (into / "a-skill").rglob("*") if path.is_file()}
    folders = [into / "a-skill", *(path for path in (into / "a-skill").rglob("*") if path.is_dir())]
    assert modes == {0o644}
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o755}


@pytest.mark.parametrize("pack", [a_folder, *ARCHIVES])
def test_what_tools_leave_behind_and_what_may_hold_secrets_is_left_out(tmp_path, into, pack):
    extra = [".env", ".git/config", "scripts/__pycache__/x.pyc", "node_modules/m/index.js", "scripts/.DS_Store"]
    files = FILES | dict.fromkeys(extra, b"secret")
    source = pack(tmp_path / "a-skill", files)
    put(source, into)
    assert contents(into / "a-skill") == FILES


@pytest.mark.parametrize("pack", ARCHIVES)
def test_an_archive_is_called_what_its_skill_is_whatever_its_folder_is_called(tmp_path, into, pack):
    """A forge calls the folder in it after the repository and the revision."""
    skill = put(pack(tmp_path / "x", wrapped(FILES, "the.Skills-1a2b3c4")), into)
    assert skill.id == "a-skill"
    assert contents(into / "a-skill") == FILES
    assert {file.path for file in skill.files} == {*FILES}
    assert installed(into) == (skill,)


@pytest.mark.parametrize(
    ("folder", "name", "id_"),
    [
        ("weather-forecast", "weather", "weather-forecast"),
        ("weather_forecast", "weather-forecast", "weather-forecast"),
        ("weather_forecast", "weather_forecast", "weather_forecast"),
        ("weather_forecast", "", "weather_forecast"),
        ("Weather Forecast", "weather_forecast", "weather_forecast"),
        ("weather.forecast", "weather", "weather"),
    ],
)
def test_a_folder_and_an_archive_of_it_get_the_same_id(tmp_path, into, folder, name, id_):
    """That of the folder where it can be one, else what the skill calls itself; names of the standard come first."""
    files = {"SKILL.md": f"name: {name}\n".encode()} if name else {"SKILL.md": b"text"}
    assert put(a_folder(tmp_path / folder, files), into).id == id_
    for pack in ARCHIVES:
        assert put(pack(tmp_path / "x", wrapped(files, folder)), into).id == id_
    assert names_in(into) == [".installed", id_]
    remove(id_, into)


def test_an_id_may_be_chosen(tmp_path, into):
    """Whatever the folder and the skill are called."""
    odd = {"SKILL.md": b"name: Not an id!\n"}
    sources = [a_folder(tmp_path / "Odd", odd), a_zip(tmp_path / "x", wrapped(odd, "Odd")), a_zip(tmp_path / "y", odd)]
    for source in sources:
        assert "give --as ID" in refused(source, into)
        assert add(source, into, accept, name_of, as_id="chosen").id == "chosen"
        with pytest.raises(BadPackage, match="cannot be the name of a skill"):
            add(source, into, accept, name_of, as_id="../x")
    assert names_in(into) == [".installed", "chosen"]


def test_a_zip_that_the_finder_made_is_installed(tmp_path, into):
    put(a_zip(tmp_path / "x.zip", wrapped(FILES) | {"__MACOSX/a-skill/._SKILL.md": b"x"}), into)
    assert contents(into / "a-skill") == FILES


def test_a_zip_with_utf_8_names_but_without_the_flag_for_it_is_installed(tmp_path, into):
    source = a_zip(tmp_path / "x.zip", FILES | {"n__me.txt": b"x"})
    source.write_bytes(source.read_bytes().replace(b"n__me", "näme".encode()))
    put(source, into)
    assert (into / "a-skill" / "näme.txt").read_bytes() == b"x"


def test_a_lower_case_skill_md_will_do_and_those_further_down_are_part_of_the_skill(tmp_path, into):
    files = {"skill.md": SKILL, "examples/other/SKILL.md": b"x"}
    put(a_zip(tmp_path / "x.zip", files), into)
    assert contents(into / "a-skill") == files


def test_an_older_one_is_replaced_with_all_its_files(tmp_path, into):
    put(as_zip(tmp_path), into)
    (into / "a-skill" / "mine.txt").write_text("x")
    put(a_zip(tmp_path / "new.zip", {"SKILL.md": SKILL, "new.txt": b"new"}), into)
    assert contents(into / "a-skill") == {"SKILL.md": SKILL, "new.txt": b"new"}
    (skill,) = installed(into)
    assert (skill.source, skill.changes) == ("new.zip", ())
    assert names_in(into) == [".installed", "a-skill"]


def test_a_folder_may_be_given_as_dot_or_by_a_link(tmp_path, into, monkeypatch):
    monkeypatch.chdir(as_folder(tmp_path))
    assert put(Path(), into).source == "a-skill"
    monkeypatch.chdir("scripts")
    assert put(Path(".."), into).id == "a-skill"
    (tmp_path / "another").symlink_to("a-skill")
    assert put(tmp_path / "another", into).id == "another"


# --- digests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [as_folder, as_zip, as_tar_gz])
def test_a_digest_that_fits_is_accepted_in_either_case_and_another_is_refused(tmp_path, into, source):
    path = source(tmp_path)
    right = digest_of_tree(path) if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    message = refused(path, into, sha256="0" * 64)
    assert right in message
    assert "0" * 64 in message
    assert put(path, into, sha256=right.upper()).sha256 == right


@pytest.mark.parametrize("digest", ["", "abc", "g" * 64, "0" * 65, f"{'0' * 64}\n"])
def test_a_digest_that_is_none_is_refused(tmp_path, into, digest):
    assert "is no SHA-256: that is 64 digits" in refused(as_zip(tmp_path), into, sha256=digest)


def test_a_digest_is_compared_before_an_archive_is_looked_into(tmp_path, into):
    (tmp_path / "x.zip").write_bytes(b"PK\x03\x04 and nothing more")
    assert "its SHA-256 is" in refused(tmp_path / "x.zip", into, sha256="0" * 64)


def test_the_digest_of_a_folder_is_that_of_paths_sizes_and_contents(tmp_path):
    lines = [f"{name}\0{len(held)}\0{hashlib.sha256(held).hexdigest()}\n" for name, held in sorted(FILES.items())]
    folder = as_folder(tmp_path)
    assert digest_of_tree(folder) == hashlib.sha256("".join(lines).encode()).hexdigest()
    before = digest_of_tree(folder)
    (folder / ".env").write_text("left out")
    assert digest_of_tree(folder) == before
    (folder / "SKILL.md").write_bytes(SKILL + b"x")
    assert digest_of_tree(folder) != before


def test_there_is_no_digest_of_a_folder_that_cannot_be_installed(tmp_path):
    folder = as_folder(tmp_path)
    (folder / "link").symlink_to("SKILL.md")
    with pytest.raises(BadPackage, match=r"a-skill: 'link' is a link"):
        digest_of_tree(folder)
    with pytest.raises(BadPackage, match=r"nowhere cannot be read: No such file"):
        digest_of_tree(tmp_path / "nowhere")


# --- what is no package ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (a_tar(wrapped(FILES)), "a tar that is not compressed, and a skill is a folder, a .zip or a .tar.gz: compress"),
        (bz2.compress(a_tar(wrapped(FILES))), "it is a bzip2 file, and a skill is a folder, a .zip or a .tar.gz"),
        (lzma.compress(a_tar(wrapped(FILES))), "it is an xz file, and a skill is a folder, a .zip or a .tar.gz"),
        (SKILL, "it is neither a zip nor a gzipped tar, and a skill is a folder, a .zip or a .tar.gz"),
        (b"", "it is neither a zip nor a gzipped tar"),
        (gzip.compress(SKILL), "damaged or cut off"),
        (b"PK\x03\x04 and nothing more", "damaged or cut off"),
        (gzip.compress(a_tar(wrapped(FILES)))[:-4], "damaged or cut off"),
        (gzip.compress(a_tar(wrapped(FILES)))[:-8] + bytes(8), "damaged or cut off"),
        (gzip.compress(a_tar(wrapped(FILES))[:512]), "damaged or cut off"),
        (gzip.compress(a_tar(wrapped(FILES))[:1024]), "damaged or cut off"),
        (gzip.compress(a_tar(wrapped(FILES))[:1300]), "damaged or cut off"),
        (gzip.compress(a_tar(wrapped(FILES))[:1024] + b"x" * 1024), "damaged or cut off"),
        (b"PK\x05\x06" + bytes(18), "there is no SKILL.md in it"),
    ],
    ids=[
        "tar",
        "bzip2",
        "xz",
        "text",
        "empty",
        "gzip-of-text",
        "zip-begun",
        "gzip-cut-off",
        "gzip-checksum",
        "tar-header-alone",
        "tar-cut-between",
        "tar-cut-within",
        "tar-header-damaged",
        "zip-of-nothing",
    ],
)
def test_a_file_that_is_no_whole_archive_of_a_kind_that_is_accepted_is_refused(tmp_path, into, content, why):
    """Also one whose first members could be read: half a skill is none."""
    (tmp_path / "x.tar.gz").write_bytes(content)
    message = refused(tmp_path / "x.tar.gz", into)
    assert message.startswith(f"{tmp_path / 'x.tar.gz'}")
    assert why in message


def test_a_path_to_nothing_or_to_a_pipe_is_refused(tmp_path, into):
    os.mkfifo(tmp_path / "pipe")
    assert "there is no such file or folder" in refused(tmp_path / "nowhere.zip", into)
    assert "neither a file nor a folder" in refused(tmp_path / "pipe", into)


def test_the_document_of_a_skill_is_refused_with_what_to_give_instead(tmp_path, into):
    assert "give the folder that holds it" in refused(as_folder(tmp_path) / "SKILL.md", into)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"README.md": b""}, "there is no SKILL.md in it"),
        ({"a/SKILL.md/x": b""}, "there is no SKILL.md in it"),
        ({"a/SKILL.md": SKILL, "b/SKILL.md": SKILL}, "several skills ('a', 'b')"),
        ({"w/s/a/SKILL.md": SKILL, "w/s/b/skill.md": SKILL}, "several skills ('w/s/a', 'w/s/b')"),
        ({"w/a/SKILL.md": SKILL}, "its skill is in 'w/a', below its top folder"),
        ({"a/SKILL.md": SKILL, "LICENSE": b""}, "beside its skill 'a' it holds 'LICENSE'"),
    ],
)
@pytest.mark.parametrize("pack", ARCHIVES)
def test_an_archive_holds_one_skill_and_nothing_else(tmp_path, into, pack, files, why):
    assert why in refused(pack(tmp_path / "x", files), into)


def test_a_folder_that_holds_skills_and_is_none_is_refused_with_their_names(tmp_path, into):
    folder = a_folder(tmp_path / "all", {"a/SKILL.md": SKILL})
    assert "but 'a' in it is one: give the path of that folder" in refused(folder, into)
    a_folder(folder, {"b/SKILL.md": SKILL})
    assert "several skills ('a', 'b')" in refused(folder, into)


BAD_IDS = ["A-Skill", "_a", "a_", "a__b", "a-_b", "-a", "a-", "a--b", "a" * 65, "repo-1.2", "ä"]


@pytest.mark.parametrize("name", BAD_IDS)
def test_a_name_that_the_standard_does_not_allow_is_refused_wherever_it_comes_from(tmp_path, into, name):
    sources = [
        a_folder(tmp_path / name, {"SKILL.md": f"name: {name}\n".encode()}),
        a_zip(tmp_path / "in", wrapped({"SKILL.md": f"name: {name}\n".encode()}, "Top")),
        a_tgz(tmp_path / "top", {"SKILL.md": f"name: {name}\n".encode()}),
    ]
    for source in sources:
        assert "cannot be the name of a skill: that is 1 to 64 of a-z and 0-9" in refused(source, into)


@pytest.mark.parametrize("name", ["..", ".", "../../x", "/tmp/x", ".installed", "a-skill\n"])
def test_a_name_in_a_skill_md_leads_nowhere_else(tmp_path, into, name):
    source = as_zip_without_a_folder(tmp_path)
    before = everything(tmp_path)
    with pytest.raises(BadPackage, match="cannot be the name of a skill"):
        add(source, into, accept, lambda _: name)
    assert everything(tmp_path) == before


def test_an_archive_that_names_its_skill_nowhere_is_refused(tmp_path, into):
    with pytest.raises(
        BadPackage,
        match=r"its SKILL\.md has no name: write one there, pack its folder, of that name, or give --as ID",
    ):
        add(as_zip_without_a_folder(tmp_path), into, accept, lambda _: "")
    assert not into.exists()


# --- hostile names and members ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../x", "leads out of its folder"),
        ("a-skill/../../x", "leads out of its folder"),
        ("node_modules/../../x", "leads out of its folder"),
        ("/tmp/x", "is absolute"),
        ("C:/x", "is absolute"),
        ("C:x", "is absolute"),
        ("a-skill/a\\b", "has a backslash"),
        ("..\\x", "has a backslash"),
        ("a-skill//x", "is no plain path"),
        ("a-skill/./x", "is no plain path"),
        ("a-skill/a\x1b[2J", "has control characters"),
        ("a-skill/a\nb", "has control characters"),
        ("a-skill/txt\u202eexe", "has control characters"),
        ("/".join(["a-skill", *"abcdefghijklmnop"]), "is more than 16 levels deep"),
        (f"a-skill/{'/'.join(['x' * 100] * 6)}", "is longer than 512 bytes"),
        (f"a-skill/{'x' * 256}", "has a part that is too long"),
        ("a-skill/SKILL.md", "is there twice"),
        ("a-skill/scripts", "is both a file and a folder"),
        ("a-skill/SKILL.md/x", "is both a file and a folder"),
        ("a-skill/skill.MD", "are one name to some systems"),
        ("a-skill/Scripts/y", "are one name to some systems"),
        ("A-Skill/y", "are one name to some systems"),
        ("a-skill/e\u0301", "are one name to some systems"),
        ("a-skill/\uff25\u0301", "are one name to some systems"),
    ],
)
@pytest.mark.parametrize("pack", ARCHIVES)
def test_a_name_that_leads_elsewhere_or_could_mean_two_things_is_refused(tmp_path, into, pack, name, why):
    files = wrapped(FILES | {"\u00e9": b""})
    source = a_zip(tmp_path / "x", files, entry(name)) if pack is a_zip else a_tgz(tmp_path / "x", files, header(name))
    assert why in refused(source, into)


def test_a_nul_in_a_name_is_refused_and_not_taken_for_its_end(tmp_path, into):
    assert "has control characters" in refused(a_zip(tmp_path / "x", wrapped(FILES), entry("a-skill/x\0.txt")), into)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        info = header("a-skill/x")
        info.pax_headers = {"path": "a-skill/x\0.txt"}
        archive.addfile(info)
    (tmp_path / "y").write_bytes(packed.getvalue())
    assert "has control characters" in refused(tmp_path / "y", into)


def test_a_name_that_is_not_utf_8_is_refused(tmp_path, into):
    tar = a_tgz(tmp_path / "x.tgz", wrapped(FILES), header("a-skill/\udcff"))
    zipped = a_zip(tmp_path / "x.zip", wrapped(FILES | {"n_me": b""}))
    zipped.write_bytes(zipped.read_bytes().replace(b"n_me", b"n\xe4me"))
    folder = as_folder(tmp_path)
    (folder / "n\udce4me").touch()
    for source in (tar, zipped, folder):
        assert "is not UTF-8" in refused(source, into)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (tarfile.SYMTYPE, "is a link"),
        (tarfile.LNKTYPE, "is a link"),
        (tarfile.FIFOTYPE, "is a device, a pipe"),
        (tarfile.CHRTYPE, "is a device, a pipe"),
        (tarfile.BLKTYPE, "is a device, a pipe"),
        (tarfile.CONTTYPE, "is a device, a pipe or something unusual"),
        (b"Z", "is a device, a pipe or something unusual"),
        (tarfile.GNUTYPE_SPARSE, "is a sparse file"),
    ],
)
def test_what_is_neither_file_nor_folder_in_a_tar_is_refused(tmp_path, into, kind, why):
    for link in ("/etc", "SKILL.md"):
        source = a_tgz(tmp_path / "x.tgz", wrapped(FILES), header("a-skill/x", kind, link), header("a-skill/x/y"))
        assert f"'a-skill/x' {why}" in refused(source, into)


def test_a_file_with_holes_in_a_tar_is_refused(tmp_path, into):
    """A few bytes that say they are a terabyte."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        info = header("a-skill/x")
        sparse = {"major": "0", "minor": "1", "map": "0,0", "size": str(1024**4)}
        info.pax_headers = {f"GNU.sparse.{key}": value for key, value in sparse.items()}
        archive.addfile(info)
    (tmp_path / "x").write_bytes(packed.getvalue())
    assert "is a sparse file" in refused(tmp_path / "x", into)


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        (stat.S_IFLNK | 0o777, "is a link"),
        (stat.S_IFIFO | 0o644, "is a device, a pipe"),
        (stat.S_IFCHR | 0o644, "is a device, a pipe"),
        (stat.S_IFSOCK | 0o644, "is a device, a pipe"),
    ],
)
def test_what_is_neither_file_nor_folder_in_a_zip_is_refused(tmp_path, into, mode, why):
    source = a_zip(tmp_path / "x.zip", wrapped(FILES), entry("a-skill/x", mode))
    assert f"'a-skill/x' {why}" in refused(source, into)


def test_what_is_encrypted_or_compressed_in_an_unusual_way_is_refused(tmp_path, into):
    for flag in (0x1, 0x40, 0x2000):
        with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
            archive.writestr("a-skill/SKILL.md", SKILL)
            archive.infolist()[0].flag_bits |= flag
        assert "'a-skill/SKILL.md' is encrypted" in refused(tmp_path / "x.zip", into)
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a-skill/SKILL.md", SKILL)
    assert "is compressed in an unusual way" in refused(tmp_path / "x.zip", into)


@pytest.mark.parametrize("target", ["SKILL.md", "/etc/passwd", "/etc", "nowhere", "."])
def test_a_link_in_a_folder_is_refused_and_never_followed(tmp_path, into, target):
    folder = as_folder(tmp_path)
    (folder / "scripts" / "link").symlink_to(target)
    assert "'scripts/link' is a link" in refused(folder, into)


def test_a_pipe_in_a_folder_is_refused_and_not_waited_for(tmp_path, into):
    folder = as_folder(tmp_path)
    os.mkfifo(folder / "pipe")
    assert "'pipe' is a device, a pipe or a socket" in refused(folder, into)


@pytest.mark.parametrize("become", [lambda path: path.symlink_to("/etc/passwd"), os.mkfifo])
def test_a_file_that_becomes_something_else_once_it_was_seen_is_not_read(tmp_path, become):
    folder = a_folder(tmp_path / "a-skill", {"SKILL.md": SKILL})
    with closing(in_folder(folder)) as members:
        member = next(members)
        (folder / "SKILL.md").unlink()
        become(folder / "SKILL.md")
        with pytest.raises((OSError, BadPackage), match=r"symbolic links|was a file and is none any more"):
            member.open()


def test_names_that_some_systems_take_for_one_are_refused_in_a_folder_too(tmp_path, into):
    folder = a_folder(tmp_path / "a-skill", FILES | {"readme": b"", "README": b""})
    if len(names_in(folder)) < len({"SKILL.md", "scripts", "readme", "README"}):
        pytest.skip("this file system is one of them")
    assert "are one name to some systems" in refused(folder, into)


def test_a_link_that_is_left_out_does_no_harm(tmp_path, into):
    folder = as_folder(tmp_path)
    (folder / ".venv").symlink_to("/etc")
    put(folder, into)
    assert contents(into / "a-skill") == FILES


# --- too much --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [a_folder, *ARCHIVES])
def test_more_than_64_mib_in_all_are_refused(tmp_path, into, pack):
    files = {"SKILL.md": SKILL} | {f"{number}": bytes(10 * MIB) for number in range(7)}
    assert "more than 64 MiB" in refused(pack(tmp_path / "a-skill", files), into)


@pytest.mark.parametrize("pack", [a_folder, *ARCHIVES])
def test_2000_files_are_installed_and_one_more_is_refused(tmp_path, into, pack):
    files = {"SKILL.md": SKILL} | {f"d/{number}": b"" for number in range(1999)}
    assert len(put(pack(tmp_path / "a-skill", files), into).files) == 2000
    remove("a-skill", into)
    source = pack(tmp_path / "a-skill", files | {"one-more": b""})
    assert "more than 2,000 files" in refused(source, into)


@pytest.mark.parametrize("pack", ARCHIVES)
def test_an_archive_of_very_many_members_is_refused_though_they_are_left_out(tmp_path, into, pack):
    files = wrapped(FILES) | {f"node_modules/{number}": b"" for number in range(10_001)}
    assert "more than 10,000" in refused(pack(tmp_path / "x", files), into)


@pytest.mark.parametrize("said", [1, 20 * MIB])
def test_a_zip_that_lies_about_a_size_is_refused(tmp_path, into, said):
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a-skill/SKILL.md", SKILL)
        archive.writestr("a-skill/x", bytes(10 * MIB))
        archive.infolist()[1].file_size = said
    assert re.search("does not hold the|damaged", refused(tmp_path / "x.zip", into))


@pytest.mark.parametrize("members", [1, 3])
def test_a_tar_that_unzips_to_too_much_is_refused_though_it_is_left_out(tmp_path, into, members):
    """Also where it is many gzip members, one after the other."""
    big = header("node_modules/big")
    big.size = 150 * MIB
    start, rest = a_tar(wrapped(FILES))[:-10240], big.tobuf()
    parts = [gzip.compress(start + rest), *[gzip.compress(bytes(150 * MIB // members))] * members]
    (tmp_path / "x.tgz").write_bytes(b"".join(parts))
    assert "unzips to more than 128 MiB" in refused(tmp_path / "x.tgz", into)


def test_a_gzip_file_of_very_many_members_is_refused_before_they_are_unzipped(tmp_path, into):
    (tmp_path / "x.tgz").write_bytes(gzip.compress(b"") * 10_001)
    assert "more than 10,000 pieces" in refused(tmp_path / "x.tgz", into)


def test_an_archive_that_is_itself_too_large_is_refused(tmp_path, into):
    with (tmp_path / "x.zip").open("wb") as file:
        file.write(b"PK\x03\x04")
        file.truncate(64 * MIB + 1)
    assert "larger than 64 MiB" in refused(tmp_path / "x.zip", into)


def test_a_tar_with_a_header_beyond_all_need_is_refused_before_it_is_read(tmp_path, into):
    """`tarfile` searches such headers with patterns that take the square of their length."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        info = header("a-skill/SKILL.md")
        info.pax_headers = {"comment": "1" * 100_000}
        archive.addfile(info)
    (tmp_path / "x.tgz").write_bytes(packed.getvalue())
    assert re.search(r"a header of 1\d{5} bytes", refused(tmp_path / "x.tgz", into))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_tar_with_a_header_of_less_than_nothing_is_refused(tmp_path, into, kind):
    info = header("a-skill/x", kind)
    info.size = -512
    content = info.tobuf(tarfile.GNU_FORMAT) + a_tar(wrapped(FILES))
    (tmp_path / "x.tgz").write_bytes(gzip.compress(content))
    assert "a header of -512 bytes" in refused(tmp_path / "x.tgz", into)


@pytest.mark.parametrize("size", [-512, -1])
def test_a_tar_that_sends_its_reader_back_is_refused(tmp_path, into, size):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        info = header("a-skill/SKILL.md")
        info.pax_headers = {"size": str(size)}
        archive.addfile(info)
    (tmp_path / "x.tgz").write_bytes(packed.getvalue())
    refused(tmp_path / "x.tgz", into)


# --- errors on the way -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Spoilt, KeyboardInterrupt, OSError])
@pytest.mark.parametrize("older", [False, True])
def test_what_a_check_raises_passes_and_nothing_has_changed(tmp_path, into, older, error):
    if older:
        put(as_zip(tmp_path), into)
    source = a_tgz(tmp_path / "new.tgz", {"SKILL.md": SKILL, "new": b""})

    def fail(path: Path) -> NoReturn:
        raise error

    before = everything(tmp_path)
    with pytest.raises(error):
        add(source, into, fail, name_of)
    with pytest.raises(error):
        add(source, into, accept, fail)
    assert everything(tmp_path) == before


class Interrupted:
    """Has the user interrupt the program before, or after, call number `at` (from 1) of any of `steps`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: list[str], at: int, *, after: bool) -> None:
        self.left = at
        for step in steps:
            monkeypatch.setattr(os, step, self.wrap(getattr(os, step), after=after))

    def wrap(self, do: Callable[..., None], *, after: bool) -> Callable[..., None]:
        def step(*args: object, **kwargs: object) -> None:
            self.left -= 1
            if self.left == 0 and not after:
                raise KeyboardInterrupt
            do(*args, **kwargs)
            if self.left == 0:
                raise KeyboardInterrupt

        return step


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("older", [False, True])
def test_whenever_it_is_interrupted_there_is_the_old_or_the_new_as_a_whole(tmp_path, into, older, after):
    """With the record that belongs to it, and nothing else."""
    old = a_zip(tmp_path / "old.zip", {"SKILL.md": SKILL, "old": b"old"})
    new = a_zip(tmp_path / "new.zip", {"SKILL.md": SKILL, "new": b"new"})
    for at in count(1):  # every step of the way, until none is left
        if older:
            put(old, into)
        before = everything(into.parent)
        with pytest.MonkeyPatch.context() as patch:
            interrupt = Interrupted(patch, ["rename", "replace"], at, after=after)
            try:
                put(new, into)
            except KeyboardInterrupt:
                pass
            else:
                assert interrupt.left > 0
                assert at > 3
                return
        if everything(into.parent) != before:
            (skill,) = installed(into)
            assert (skill.source, skill.changes, skill.damage) == ("new.zip", (), "")
            assert names_in(into) == [".installed", "a-skill"]
        shutil.rmtree(into, ignore_errors=True)


@pytest.mark.parametrize("after", [False, True])
def test_whenever_removing_is_interrupted_the_skill_is_there_as_a_whole_or_not_at_all(tmp_path, into, after):
    source = as_zip(tmp_path)
    for at in range(1, 3):
        put(source, into)
        before = everything(into)
        with pytest.MonkeyPatch.context() as patch:
            Interrupted(patch, ["rename", "unlink"], at, after=after)
            with pytest.raises(KeyboardInterrupt):
                remove("a-skill", into)
        assert everything(into) == before or (names_in(into), installed(into)) == ([".installed"], ())


KILLED = """
import os, signal, sys
from pathlib import Path
from proxy.config.packages import add

rename = os.rename
def once_aside(old, new):
    rename(old, new)
    if Path(old) == Path(sys.argv[2], "a-skill"):
        os.kill(os.getpid(), signal.SIGKILL)

os.rename = once_aside
add(Path(sys.argv[1]), Path(sys.argv[2]), lambda folder: None, lambda file: "a-skill")
"""


def test_a_skill_that_a_killed_program_has_put_aside_is_put_back_after_an_hour(tmp_path, into):
    put(as_zip(tmp_path), into)
    (was,) = installed(into)
    new = a_zip(tmp_path / "new.zip", {"SKILL.md": SKILL, "new": b"new"})
    ended = subprocess.run([sys.executable, "-c", KILLED, new, into], cwd=ROOT, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not (into / "a-skill").exists()
    other = a_zip(tmp_path / "other.zip", OTHER)
    (left,) = into.glob(".staging-*")
    make_old(left, hours=0.9)
    put(other, into)
    assert left.exists()
    make_old(left, hours=1.1)
    put(other, into)
    assert names_in(into) == [".installed", "a-skill", "other"]
    assert installed(into)[0] == was
    assert contents(into / "a-skill") == FILES


def test_what_a_killed_program_has_put_aside_is_no_longer_wanted_once_the_skill_was_removed(tmp_path, into):
    put(as_zip(tmp_path), into)
    new = a_zip(tmp_path / "new.zip", {"SKILL.md": SKILL, "new": b"new"})
    subprocess.run([sys.executable, "-c", KILLED, new, into], cwd=ROOT, check=False)
    (left,) = into.glob(".staging-*")
    remove("a-skill", into)
    make_old(left, hours=2)
    put(a_zip(tmp_path / "other.zip", OTHER), into)
    assert names_in(into) == [".installed", "other"]


def test_two_programs_at_once_leave_one_of_two_whole_skills(tmp_path, into):
    program = """
import sys
from pathlib import Path
from proxy.config.packages import add
for _ in range(40):
    add(Path(sys.argv[1]), Path(sys.argv[2]), lambda folder: None, lambda file: "a-skill")
"""
    sources = [a_zip(tmp_path / f"{number}.zip", FILES | {f"{number}": b""}) for number in range(2)]
    running = [subprocess.Popen([sys.executable, "-c", program, source, into], cwd=ROOT) for source in sources]
    assert [each.wait() for each in running] == [0, 0]
    (skill,) = installed(into)
    assert (skill.changes, skill.damage) == ((), "")
    assert names_in(into) == [".installed", "a-skill"]


FULL = """
import resource, sys
from pathlib import Path
from proxy.config.packages import BadPackage, add

limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
try:
    add(Path(sys.argv[1]), Path(sys.argv[2]), lambda folder: None, lambda file: "a-skill")
except BadPackage as bad:
    print(bad)
finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)  # what measures the coverage writes a file at the end
"""


@pytest.mark.parametrize("older", [False, True])
def test_where_there_is_no_space_left_that_is_said_and_nothing_has_changed(tmp_path, into, older):
    if older:
        put(as_zip(tmp_path), into)
    source = a_zip(tmp_path / "x.zip", FILES | {"x": bytes(MIB)})
    before = everything(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-c", FULL, source, into], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert ended.stdout == f"{source}: 'x' cannot be written: File too large\n"
    assert everything(tmp_path) == before


def test_a_file_where_skills_are_to_be_installed_is_named(tmp_path):
    into = tmp_path / "file"
    into.touch()
    with pytest.raises(BadPackage, match=r"file is not a folder: give the path of one"):
        put(as_zip(tmp_path), into)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    into = tmp_path / "file" / "skills"
    (tmp_path / "file").touch()
    with pytest.raises(BadPackage, match=r"file/skills cannot be written: Not a directory"):
        put(as_zip(tmp_path), into)


def test_a_folder_that_changes_while_it_is_read_is_refused(tmp_path, into):
    """As an editor does it that saves; seen by a name that is looked up again."""
    folder = as_folder(tmp_path)
    make = tempfile.mkdtemp

    def save(*args: str, **kwargs: str) -> str:
        (folder / "SKILL.md").write_bytes(SKILL + b"more")
        return make(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "mkdtemp", save)
        with pytest.raises(BadPackage, match=r"a-skill: it changed while it was read"):
            put(folder, into)
    assert not into.exists()


# --- what is in the way ----------------------------------------------------------------------------------------------


def a_link(target: Path) -> None:
    (target.parent.parent / "elsewhere").mkdir()
    target.symlink_to(target.parent.parent / "elsewhere")


def a_broken_link(target: Path) -> None:
    target.symlink_to("nowhere")


def a_file(target: Path) -> None:
    target.write_text("mine")


def a_folder_of_the_user(target: Path) -> None:
    target.mkdir()
    (target / "SKILL.md").write_text("mine")


@pytest.mark.parametrize(
    ("obstacle", "why"),
    [
        (a_link, "is a link or a file, where the skill's folder belongs: move it away"),
        (a_broken_link, "is a link or a file, where the skill's folder belongs: move it away"),
        (a_file, "is a link or a file, where the skill's folder belongs: move it away"),
        (a_folder_of_the_user, "is there, and was not installed: move it away"),
    ],
)
def test_what_was_not_installed_is_never_replaced(tmp_path, into, obstacle, why):
    into.mkdir(parents=True)
    obstacle(into / "a-skill")
    assert f"{into / 'a-skill'} {why}" in refused(as_zip(tmp_path), into)


def test_records_are_not_written_where_a_link_leads(tmp_path, into):
    into.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a-skill.json").touch()
    (into / ".installed").symlink_to(tmp_path / "elsewhere")
    assert "is a link or a file, where the folder of records belongs" in refused(as_zip(tmp_path), into)
    with pytest.raises(BadPackage, match="where the folder of records belongs"):
        remove("a-skill", into)
    assert (tmp_path / "elsewhere" / "a-skill.json").exists()


# --- removing --------------------------------------------------------------------------------------------------------


def test_a_skill_is_removed_with_its_record_and_what_was_changed_in_it(tmp_path, into):
    put(as_zip(tmp_path), into)
    (into / "a-skill" / "mine").touch()
    remove("a-skill", into)
    assert names_in(into) == [".installed"]
    assert installed(into) == ()
    with pytest.raises(BadPackage, match="a-skill was not installed in"):
        remove("a-skill", into)


def test_a_link_that_has_come_in_a_skills_place_is_removed_and_not_what_it_leads_to(tmp_path, into):
    put(as_zip(tmp_path), into)
    (into / "a-skill").rename(tmp_path / "mine")
    (into / "a-skill").symlink_to(tmp_path / "mine")
    remove("a-skill", into)
    assert names_in(into) == [".installed"]
    assert contents(tmp_path / "mine") == FILES


def test_a_skill_whose_folder_is_gone_or_whose_record_is_damaged_can_be_removed(tmp_path, into):
    put(as_zip(tmp_path), into)
    shutil.rmtree(into / "a-skill")
    remove("a-skill", into)
    put(as_zip(tmp_path), into)
    (into / ".installed" / "a-skill.json").write_text("{")
    remove("a-skill", into)
    assert names_in(into) == [".installed"]


def test_a_folder_that_was_not_installed_is_not_removed(tmp_path, into):
    into.mkdir(parents=True)
    a_folder_of_the_user(into / "a-skill")
    with pytest.raises(BadPackage, match=r"a-skill was not installed in .*: delete its folder yourself"):
        remove("a-skill", into)
    assert (into / "a-skill" / "SKILL.md").read_text() == "mine"


@pytest.mark.parametrize("name", ["../mine", "..", ".", "", "/tmp", ".installed", "a-skill/", *BAD_IDS])
def test_no_path_is_taken_for_the_name_of_a_skill_to_remove(tmp_path, into, name):
    put(as_zip(tmp_path), into)
    a_folder(tmp_path / "home" / "mine", {"SKILL.md": b"x"})
    before = everything(tmp_path)
    with pytest.raises(BadPackage, match="cannot be the name of a skill"):
        remove(name, into)
    assert everything(tmp_path) == before


# --- telling ---------------------------------------------------------------------------------------------------------


def test_it_is_told_what_has_changed_since_a_skill_was_installed(tmp_path, into):
    put(as_zip(tmp_path), into)
    put(a_zip(tmp_path / "other.zip", OTHER), into)
    skill = into / "a-skill"
    (skill / "SKILL.md").write_bytes(SKILL.replace(b"this", b"that"))
    (skill / "scripts" / "run.py").unlink()
    (skill / "scripts" / "run.py").symlink_to("/etc/passwd")
    shutil.rmtree(skill / "scripts" / "deep")
    (skill / "extra").mkdir()
    (skill / "extra" / "x").touch()
    (skill / "bell\a").touch()
    for ignored in (".env", "__pycache__", "node_modules"):
        (skill / ignored).mkdir()
        (skill / ignored / "x").touch()
    changed, other = installed(into)
    assert (other.id, other.changes) == ("other", ())
    assert changed.changes == (
        "changed: SKILL.md",
        r"new: 'bell\x07'",
        "new: extra/x",
        "missing: scripts/deep/er/x.txt",
        "changed: scripts/run.py",
    )
    assert (changed.source, changed.damage) == ("package", "")


def test_a_folder_that_is_gone_or_has_become_a_link_has_lost_all_its_files(tmp_path, into):
    put(as_zip(tmp_path), into)
    (into / "a-skill").rename(tmp_path / "mine")
    assert {change.split(":")[0] for change in installed(into)[0].changes} == {"missing"}
    (into / "a-skill").symlink_to(tmp_path / "mine")
    assert len(installed(into)[0].changes) == len(FILES)
    (into / "a-skill").unlink()
    os.mkfifo(into / "a-skill")
    assert len(installed(into)[0].changes) == len(FILES)


def damaged(text: str, **changed: object) -> str:
    return json.dumps(json.loads(text) | changed)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:-10],
        lambda text: "[]",
        lambda text: "\0\udcff",
        lambda text: damaged(text, format=2),
        lambda text: damaged(text, more=1),
        lambda text: damaged(text, sha256="\x1b[2J"),
        lambda text: damaged(text, installed_at="\x1b[2J"),
        lambda text: damaged(text, files={"../../x": {"size": 1, "sha256": "0" * 64}}),
        lambda text: damaged(text, files={"x": {"size": 10**12, "sha256": "0" * 64}}),
        lambda text: damaged(text, files=[["SKILL.md", 1]]),
        lambda text: "[" * 100_000,
    ],
)
def test_a_damaged_record_is_told_as_such_beside_the_others(tmp_path, into, damage):
    put(as_zip(tmp_path), into)
    put(a_zip(tmp_path / "other.zip", OTHER), into)
    record = into / ".installed" / "a-skill.json"
    record.write_bytes(damage(record.read_text()).encode(errors="surrogateescape"))
    bad, good = installed(into)
    assert bad == Installed("a-skill", damage="its record cannot be read: remove the skill, and install it anew")
    assert (good.id, good.damage, good.changes) == ("other", "", ())


def test_what_is_no_record_at_all_is_told_as_a_damaged_one(tmp_path, into):
    put(as_zip(tmp_path), into)
    records = into / ".installed"
    (records / "b.json").mkdir()
    os.mkfifo(records / "c.json")
    (records / "D.json").write_text((records / "a-skill.json").read_text())
    (records / "notes.txt").touch()
    assert {skill.id: bool(skill.damage) for skill in installed(into)} == {
        "D": True,
        "a-skill": False,
        "b": True,
        "c": True,
    }


def test_where_nothing_was_installed_there_is_nothing_to_tell(tmp_path, into):
    assert installed(into) == ()
    (tmp_path / "file").touch()
    assert installed(tmp_path / "file") == ()


# --- whatever comes --------------------------------------------------------------------------------------------------

PARTS = st.sampled_from(
    ["..", ".", "", "a", "A", "SKILL.md", "C:", "\\", "..\\", "~", ".git", "é", "e\u0301", "\u202e", "x\ny", "*"]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NAMES = st.lists(PARTS, min_size=1, max_size=5).map("/".join)


@given(names=st.lists(NAMES, max_size=6), zipped=st.booleans())
@settings(max_examples=150, deadline=None)
def test_whatever_the_names_in_an_archive_nothing_is_written_outside(names, zipped):
    """And what is installed is what the record says."""
    with tempfile.TemporaryDirectory() as room:
        source, into = Path(room, "source"), Path(room, "home", "skills")
        into.mkdir(parents=True)
        if zipped:
            a_zip(source, {"a/SKILL.md": SKILL}, *map(entry, names))
        else:
            a_tgz(source, {"a/SKILL.md": SKILL}, *map(header, names))
        before = everything(Path(room))
        try:
            add(source, into, accept, lambda _: "a")
        except BadPackage:
            assert everything(Path(room)) == before
        else:
            (skill,) = installed(into)
            assert contents(into / "a").keys() == {file.path for file in skill.files}
            assert skill.changes == ()
            shutil.rmtree(into / "a")
            shutil.rmtree(into / ".installed")
            assert everything(Path(room)) == before


@given(data=st.data(), zipped=st.booleans())
@settings(max_examples=200, deadline=None)
def test_whatever_becomes_of_an_archive_on_its_way_it_is_installed_or_refused(data, zipped):
    """Never half, and never with another error. The tar is damaged before it is compressed: else a checksum tells."""
    with tempfile.TemporaryDirectory() as room:
        source, into = Path(room, "source"), Path(room, "skills")
        content = bytearray(a_zip(source, wrapped(FILES)).read_bytes() if zipped else a_tar(wrapped(FILES))[:4096])
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(content) - 1))
            content[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        source.write_bytes(content if zipped else gzip.compress(content))
        try:
            put(source, into)
        except BadPackage:
            assert not into.exists()
        else:
            assert [skill.changes for skill in installed(into)] == [()]
