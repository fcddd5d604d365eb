"""The files of skills: read from real folders when they are asked for, whatever has become of these meanwhile."""

import os
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from unicodedata import normalize

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.config import skill_files
from proxy.config.skill_files import FolderFiles
from proxy.config.skill_md import body, front_matter
from proxy.core.catalogue import Skill
from proxy.core.errors import Unreadable
from proxy.core.published import described, has_file
from proxy.core.wording import UNTRUSTED_GUIDE

pytestmark = pytest.mark.anyio

GUIDE = "Do this.\n\nThen that."


@pytest.fixture
def files() -> FolderFiles:
    return FolderFiles()


@pytest.fixture
def pdf(room) -> Skill:
    """A skill of a folder with some files."""
    room.put("s/pdf", guide=GUIDE)
    (room.folder / "s/pdf/scripts").mkdir()
    (room.folder / "s/pdf/scripts/run.py").write_bytes(b"print()\n")
    (room.folder / "s/pdf/notes.txt").write_bytes(b"\xff\0")
    (room.folder / "s/pdf/same.txt").symlink_to("scripts/run.py")
    return only(room)


def only(room, more: str = "") -> Skill:
    """The skill `pdf` as it is loaded now."""
    return room.load(f"skill_paths: [s]\n{more}").catalogue.by_id["pdf"]


async def refused(files: FolderFiles, skill: Skill, path: str) -> str:
    """Why a file is not read."""
    with pytest.raises(Unreadable) as caught:
        await files.read(skill, path)
    assert (caught.value.skill, caught.value.path) == (skill.id, path)
    return str(caught.value)


def open_files() -> int:
    return len([*Path("/dev/fd").iterdir()])


# --- as they are ------------------------------------------------------------------------------------------------------


async def test_the_guide_is_what_is_below_the_front_matter_as_it_is_now(room, pdf: Skill, files: FolderFiles):
    assert files.guide(pdf) == GUIDE
    room.put("s/pdf", guide="Another.")
    assert files.guide(pdf) == "Another."


async def test_the_guide_that_the_file_says_needs_no_folder(room, pdf: Skill, files: FolderFiles):
    skill = only(room, "skill_configs: {pdf: {usage: Mine.}}")
    (room.folder / "s/pdf/SKILL.md").unlink()
    assert files.guide(skill) == "Mine."
    assert files.guide(only(room, "skill_configs: {pdf: {}}")) == ""


async def test_a_guide_that_cannot_be_read_any_more_says_why(room, pdf: Skill, files: FolderFiles):
    document = room.folder / "s/pdf/SKILL.md"
    document.write_text("no front matter")
    with pytest.raises(OSError, match="the first line must be"):
        files.guide(pdf)
    document.unlink()
    with pytest.raises(FileNotFoundError):
        files.guide(pdf)


async def test_every_file_is_read_as_its_bytes(room, pdf: Skill, files: FolderFiles):
    assert await files.read(pdf, "notes.txt") == b"\xff\0"
    assert await files.read(pdf, "scripts/run.py") == b"print()\n"
    assert await files.read(pdf, "same.txt") == b"print()\n"
    assert await files.read(pdf, "SKILL.md") == (room.folder / "s/pdf/SKILL.md").read_bytes()


async def test_a_lower_case_document_is_read_as_skill_md_too(room, files: FolderFiles):
    document = room.put("s/pdf", guide=GUIDE)
    document.rename(document.with_name("skill.md"))
    skill = only(room)
    content = document.with_name("skill.md").read_bytes()
    assert await files.read(skill, "SKILL.md") == await files.read(skill, "skill.md") == content
    assert [*(await files.manifest(skill)).digests] == ["SKILL.md"]


async def test_a_manifest_has_the_front_matter_and_the_digest_of_every_file(pdf: Skill, files: FolderFiles):
    found = await files.manifest(pdf)
    assert found.front_matter == {"name": "pdf", "description": "About pdf."}
    assert [*found.digests] == ["SKILL.md", "notes.txt", "same.txt", "scripts/run.py"]
    for path, (size, digest) in found.digests.items():
        content = await files.read(pdf, path)
        assert (size, digest) == (len(content), sha256(content).hexdigest())


async def test_a_manifest_follows_every_change_of_a_file_however_small_and_close(room, pdf: Skill, files: FolderFiles):
    """Also one of the same size that leaves the time of the file as it was."""
    file = room.folder / "s/pdf/notes.txt"
    before = file.stat()
    for content in (b"ab", b"cd", b"ef", b"gh"):
        file.write_bytes(content)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (await files.manifest(pdf)).digests["notes.txt"] == (2, sha256(content).hexdigest())


async def test_a_file_is_read_once_for_its_digest_as_long_as_it_stays_as_it_is(
    pdf: Skill, files: FolderFiles, monkeypatch: pytest.MonkeyPatch
):
    now = time.time()
    monkeypatch.setattr(skill_files.time, "time", lambda: now + 60)
    found = await files.manifest(pdf)
    digested: list[bytes] = []
    monkeypatch.setattr(skill_files, "sha256", lambda content: digested.append(content) or sha256(content))
    assert await files.manifest(pdf) == found
    assert len(digested) == 1  # the document, which is read for its front matter anyway


async def test_no_more_digests_are_kept_than_may_be(pdf: Skill, files: FolderFiles, monkeypatch: pytest.MonkeyPatch):
    now = time.time()
    monkeypatch.setattr(skill_files.time, "time", lambda: now + 60)
    monkeypatch.setattr(skill_files, "KEPT", 1)
    found = await files.manifest(pdf)
    assert await files.manifest(pdf) == found
    assert len(files._digests) == 1


# --- what is no file of the skill -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", ".", "..", "scripts", "../../skills.yaml", "/etc/hosts", "none", ".env", "a\0b"])
async def test_only_what_was_found_in_the_folder_is_read(room, files: FolderFiles, pdf: Skill, path: str):
    (room.folder / "s/pdf/.env").write_text("SECRET=1")
    assert "it is no file of the skill" in await refused(files, pdf, path)


def outside(room) -> Path:
    """A folder beside those with skills, with files of the same names."""
    folder = room.folder / "outside"
    (folder / "scripts").mkdir(parents=True)
    for name in ("SKILL.md", "notes.txt", "scripts/run.py"):
        (folder / name).write_text("SECRET")
    return folder


def swap(path: Path, target: Path | str) -> None:
    """Put a link in the place of a file or folder."""
    path.rename(path.with_name(f"{path.name}.old"))
    path.symlink_to(target)


SWAPS: dict[str, Callable[[Path, Path], None]] = {
    "the file": lambda skill, elsewhere: swap(skill / "scripts/run.py", elsewhere / "scripts/run.py"),
    "its folder": lambda skill, elsewhere: swap(skill / "scripts", elsewhere / "scripts"),
    "the skill's folder": swap,
    "the folder of all skills": lambda skill, elsewhere: swap(skill.parent, elsewhere.parent / "others"),
}


@pytest.mark.parametrize("what", SWAPS)
async def test_what_has_become_a_link_that_leads_out_is_not_read(room, pdf: Skill, files: FolderFiles, what: str):
    """By a relative or an absolute link."""
    elsewhere = outside(room)
    (room.folder / "others").mkdir()
    (room.folder / "others/pdf").symlink_to(elsewhere)
    SWAPS[what](room.folder / "s/pdf", elsewhere)
    assert "leads out of the skill's folder" in await refused(files, pdf, "scripts/run.py")
    with pytest.raises(Unreadable, match="leads out"):
        await files.manifest(pdf)


async def test_what_becomes_a_link_between_looking_and_opening_is_not_read(
    room, pdf: Skill, files: FolderFiles, monkeypatch: pytest.MonkeyPatch
):
    """Wherever on the way that is."""
    elsewhere = outside(room)
    realpath = os.path.realpath
    for what in ("the file", "its folder", "the skill's folder"):

        def late(path: str, what: str = what) -> str:
            real = realpath(path)
            SWAPS[what](room.folder / "s/pdf", elsewhere)
            return real

        with monkeypatch.context() as patch:
            patch.setattr(os.path, "realpath", late)
            assert "SECRET" not in await refused(files, pdf, "scripts/run.py")
        for path in (
            room.folder / "s/pdf.old",
            room.folder / "s/pdf/scripts.old",
            room.folder / "s/pdf/scripts/run.py.old",
        ):
            if path.exists():
                path.with_suffix("").unlink()
                path.rename(path.with_suffix(""))
        assert await files.read(pdf, "scripts/run.py") == b"print()\n"


@pytest.mark.parametrize("target", [".env", ".git/config", "node_modules/x"])
async def test_what_has_become_a_link_to_what_is_hidden_in_the_folder_is_not_read(
    room, pdf: Skill, files: FolderFiles, target: str
):
    hidden = room.folder / "s/pdf" / target
    hidden.parent.mkdir(exist_ok=True)
    hidden.write_text("SECRET")
    swap(room.folder / "s/pdf/notes.txt", target)
    assert "it leads to what is no part of the skill" in await refused(files, pdf, "notes.txt")


async def test_a_document_that_is_wrong_by_now_has_no_manifest(room, pdf: Skill, files: FolderFiles):
    """It says why, and what it is about; the bytes are still there to be read."""
    (room.folder / "s/pdf/SKILL.md").write_text("---\nname: [\n---\n")
    with pytest.raises(Unreadable, match=r"a \[ opens here and is not closed") as caught:
        await files.manifest(pdf)
    assert (caught.value.skill, caught.value.path) == ("pdf", "SKILL.md")
    assert await files.read(pdf, "SKILL.md") == b"---\nname: [\n---\n"


@pytest.mark.parametrize("path", ["notes.txt", "SKILL.md"])
async def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(room, pdf: Skill, files: FolderFiles, path: str):
    (room.folder / "s/pdf" / path).unlink()
    os.mkfifo(room.folder / "s/pdf" / path)
    assert "it is no regular file" in await refused(files, pdf, path)
    with pytest.raises(Unreadable, match="no regular file"):
        await files.manifest(pdf)


async def test_a_folder_in_the_place_of_a_file_is_not_read(room, pdf: Skill, files: FolderFiles):
    (room.folder / "s/pdf/notes.txt").unlink()
    (room.folder / "s/pdf/notes.txt").mkdir()
    assert "it is no regular file" in await refused(files, pdf, "notes.txt")


async def test_a_file_that_has_grown_without_end_is_not_read(room, pdf: Skill, files: FolderFiles):
    with (room.folder / "s/pdf/notes.txt").open("r+b") as file:
        file.truncate(1024**4)
    assert "it holds more than 16 MiB" in await refused(files, pdf, "notes.txt")


async def test_nothing_of_the_machine_is_told_of_a_file_that_is_gone(room, pdf: Skill, files: FolderFiles):
    (room.folder / "s/pdf/notes.txt").unlink()
    (room.folder / "s/pdf/SKILL.md").unlink()
    for path in ("notes.txt", "SKILL.md"):
        assert str(room.folder) not in await refused(files, pdf, path)


async def test_reading_leaves_no_file_open(room, pdf: Skill, files: FolderFiles):
    """Whether it succeeds or not."""
    (room.folder / "s/pdf/notes.txt").unlink()
    os.mkfifo(room.folder / "s/pdf/notes.txt")
    await files.read(pdf, "SKILL.md")
    before = open_files()
    for _ in range(5):
        await files.read(pdf, "scripts/run.py")
        await refused(files, pdf, "notes.txt")
    assert open_files() == before


# --- documents that are made ------------------------------------------------------------------------------------------


async def test_a_skill_of_the_file_has_a_document(room, files: FolderFiles):
    skill = room.load("skill_configs: {pdf: {name: PDF, desc: 'About: it', usage: Do.}}").catalogue.by_id["pdf"]
    document = await files.read(skill, "SKILL.md")
    assert document == b'---\nname: "pdf"\ndescription: "About: it"\n---\n\nDo.'
    found = await files.manifest(skill)
    assert found.front_matter == {"name": "pdf", "description": "About: it"}
    assert found.digests == {"SKILL.md": (len(document), sha256(document).hexdigest())}
    assert "it is no file of the skill" in await refused(files, skill, "notes.txt")


async def test_a_document_over_which_something_is_laid_keeps_the_rest(room, files: FolderFiles):
    room.put("s/pdf", "license: MIT\nmetadata: {a b: [1, 'x: y', 2.5, true, null]}\n'odd key': x\n", guide=GUIDE)
    skill = only(room, "skill_configs: {pdf: {desc: Mine.}}")
    document = await files.read(skill, "SKILL.md")
    assert front_matter(document, "") == {
        "name": "pdf",
        "description": "Mine.",
        "license": "MIT",
        "metadata": {"a b": [1, "x: y", 2.5, True, None]},
        "odd key": "x",
    }
    assert body(document, "") == f"{UNTRUSTED_GUIDE}\n\n{GUIDE}"
    assert (await files.manifest(skill)).digests["SKILL.md"] == (len(document), sha256(document).hexdigest())
    trusted = room.load("skill_paths: [{path: s, trusted: true}]\nskill_configs: {pdf: {desc: Mine.}}")
    assert body(await files.read(trusted.catalogue.by_id["pdf"], "SKILL.md"), "") == GUIDE
    other = only(room, "skill_configs: {pdf: {usage: Mine.}}")
    assert body(await files.read(other, "SKILL.md"), "") == "Mine."


HOSTILE = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
        st.sampled_from("\n\r\t\x85\u2028\u2029\ufeff\x1b\x7f\x9b\ufffe\uffff\"'\\:#-{}[]&*!|>%@`,? "),
    ),
    max_size=60,
)


@given(HOSTILE, HOSTILE)
async def test_a_made_document_says_what_the_skill_does_whatever_that_is(desc: str, usage: str):
    skill = Skill("pdf", "PDF", desc, usage)
    files = FolderFiles()
    document = await files.read(skill, "SKILL.md")
    assert front_matter(document, "") == {"name": "pdf", "description": described(skill)}
    assert body(document, "") == usage.strip("\r\n")
    found = await files.manifest(skill)
    assert found.front_matter == front_matter(document, "")
    assert found.digests == {"SKILL.md": (len(document), sha256(document).hexdigest())}


WORDS_OF_YAML = [
    *("null", "~", "true", "False", "yes", "no", "on", "off", "y", "n", "1.0", "2024-01-01", "0x1f", "1e3", ".inf"),
    *(
        ".nan",
        "0o17",
        "12:30:45",
        "1_000",
        " a ",
        "- x",
        "",
        "<<",
        "=",
        "? x",
        "%x",
        "---",
        "...",
        "a: b",
        "a #b",
        "!x",
    ),
]


@given(HOSTILE | st.sampled_from(WORDS_OF_YAML), st.dictionaries(HOSTILE, HOSTILE, max_size=3))
@example("null", {})
@example("true", {"on": "off"})
def test_what_a_folder_s_document_says_stays_the_same_in_one_that_is_made(value: str, metadata: dict[str, str]):
    """Text of any kind, which the front matter of the folder has in its own way."""
    fields = {"name": "pdf", "description": "d", "license": value, "metadata": metadata, value or "k": "x"}
    assert front_matter(skill_files._document(fields, GUIDE), "") == fields


@pytest.mark.parametrize("word", WORDS_OF_YAML)
def test_words_that_yaml_takes_for_something_else_stay_text_for_every_reader(word: str):
    """As keys and as values, for readers of YAML 1.1 also."""
    fields = {"name": "pdf", word or "k": word, "metadata": {word: word}}
    document = skill_files._document(fields, GUIDE)
    assert front_matter(document, "") == fields
    written = document.decode().removeprefix("---\n").partition("\n---\n")[0]
    assert yaml.safe_load(written) == fields


@pytest.mark.parametrize("form", ["NFC", "NFD"])
async def test_a_file_is_found_however_unicode_composes_its_name(room, files: FolderFiles, form):
    """As macOS keeps names, and as people type them; the very name goes before the other."""
    room.put("s/pdf", guide=GUIDE)
    other = "NFD" if form == "NFC" else "NFC"
    (room.folder / "s/pdf" / normalize(form, "résumé.md")).write_bytes(form.encode())
    skill = only(room)
    assert await files.read(skill, normalize("NFC", "résumé.md")) == form.encode()
    assert await files.read(skill, normalize("NFD", "résumé.md")) == form.encode()
    assert has_file(skill, normalize(other, "résumé.md"))
    (room.folder / "s/pdf" / normalize(other, "résumé.md")).write_bytes(other.encode())
    skill = only(room)
    assert await files.read(skill, normalize("NFC", "résumé.md")) == b"NFC"
    assert await files.read(skill, normalize("NFD", "résumé.md")) == b"NFD"
    assert skill.folder is not None
    assert skill.folder.file("resume.md") is None
