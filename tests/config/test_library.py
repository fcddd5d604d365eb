"""Folders with skills: which are found, which counts, what holds of them, and that nothing in them can do harm."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from unicodedata import normalize

import pytest

from proxy.config import library, tree
from proxy.config.files import Files, digests
from proxy.config.library import FolderSkill, Library, Root, find

SERVERS = ("git", "time")
ALL = "tool_list: {git: []}\n"


def document(name: str, more: str = "") -> str:
    return f"---\nname: {name}\ndescription: About {name}.\n{more}---\nThe guide.\n"


@dataclass(frozen=True)
class Shelf:
    """A folder in which the folders of skills are made."""

    folder: Path

    def put(self, path: str, more: str = "", name: str = "SKILL.md") -> Path:
        """Makes a skill of the folder at `path`; `more` is what else is in its front matter."""
        file = self.folder / path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(document(file.parent.name, more))
        return file

    def file(self, path: str, content: str | bytes = "x") -> Path:
        """Makes a file."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def link(self, path: str, target: str | Path) -> None:
        """Makes a link."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).symlink_to(target)

    def root(self, path: str = "s", *, trusted: bool = True) -> Root:
        """One of the folders as a root."""
        return Root(self.folder / path, trusted, path)

    def find(self, *roots: Root, last: Library | None = None, **decided: set[str]) -> Library:
        """What is below them, or below `s`; `decided`: what the configuration says of skills itself."""
        return find(roots or [self.root()], SERVERS, Files(), last, decided)

    def skill(self, *roots: Root) -> FolderSkill:
        """The only one that there is."""
        (skill,) = self.find(*roots).skills
        return skill


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    (tmp_path / "s").mkdir()
    return Shelf(tmp_path)


def ids(found: Library) -> list[str]:
    return [skill.id for skill in found.skills]


def left_out(found: Library) -> list[tuple[str, str, str]]:
    return [(each.id, each.file, each.why) for each in found.left_out]


# --- which there are --------------------------------------------------------------------------------------------------


def test_every_folder_with_a_document_is_a_skill(shelf):
    """At any depth, in a skill too; by the order of the roots, then of the paths."""
    for path in ("t/z", "s/b", "s/a/deep/er", "s/a/deep", "s/a b", "s/c/.hidden/d"):
        shelf.put(path)
    shelf.file("s/README.md")
    found = shelf.find(shelf.root("t"), shelf.root("s"))
    assert ids(found) == ["z", "deep", "er", "a b", "b", "d"]
    assert (found.left_out, [note for note in found.notes if "name" not in note]) == ((), [])


def test_a_skill_is_what_its_document_says(shelf):
    """The guide stays where it is."""
    file = shelf.put("s/pdf", "metadata: {pinned: true}\nallowed-tools: mcp__git__git_log Read\n")
    skill = shelf.skill()
    assert (skill.id, skill.name, skill.trusted, skill.shown) == ("pdf", "pdf", True, "s/pdf/SKILL.md")
    assert skill.file == file
    assert (skill.entry.desc, skill.entry.usage, skill.entry.pinned) == ("About pdf.", "", True)
    assert skill.entry.tool_list == {"git": ("git_log",)}
    assert "usage" not in skill.entry.model_fields_set
    assert (skill.folder.path, skill.folder.document, skill.folder.unserved) == (str(file.parent), "SKILL.md", "")


def test_a_root_may_be_a_skill_itself(shelf):
    shelf.put("s")
    shelf.put("s/inner")
    found = shelf.find()
    assert ids(found) == ["s", "inner"]
    assert [skill.file for skill in found.skills] == [shelf.folder / "s/SKILL.md", shelf.folder / "s/inner/SKILL.md"]
    assert [file.path for file in found.skills[0].folder.files] == ["SKILL.md", "inner/SKILL.md"]


def test_a_root_has_the_name_of_its_folder_whatever_way_leads_there(shelf):
    shelf.put("s")
    shelf.put("s/inner")
    assert ids(shelf.find(shelf.root("s/inner/.."))) == ["s", "inner"]


def test_a_document_may_be_written_small(shelf):
    """The usual spelling is looked for first."""
    shelf.put("s/a", name="skill.md")
    shelf.put("s/b", name="skill.md")
    shelf.put("s/b")
    shelf.put("s/c", name="Skill.md")
    assert [skill.folder.document for skill in shelf.find().skills] == ["skill.md", "SKILL.md"]


def test_what_programs_have_put_there_is_not_looked_at(shelf):
    for folder in (".git", "node_modules", "__pycache__"):
        shelf.put(f"s/{folder}/x")
        shelf.put(f"s/a/{folder}/y")
    shelf.put("s/a")
    assert ids(shelf.find()) == ["a"]


def test_a_root_that_is_not_there_is_noted(shelf):
    """As is one that is no folder; the others are looked at."""
    shelf.put("s/a")
    shelf.file("file")
    shelf.link("loop", "loop")
    found = shelf.find(shelf.root("none"), shelf.root("file"), shelf.root("loop"), shelf.root("s"))
    assert ids(found) == ["a"]
    assert found.notes == (
        "none: the folder does not exist",
        "file: is no folder",
        "loop: the folder cannot be read: Too many levels of symbolic links",
    )


def test_a_folder_that_cannot_be_read_is_noted(shelf, monkeypatch):
    """The others are looked at; that it cannot be read is no state to be missed when it changes."""
    shelf.put("s/a/x")
    shelf.put("s/b")
    readable = shelf.find()
    stamps = digests([], [shelf.folder / "s"])
    shut = str(shelf.folder / "s/a")
    scandir = os.scandir

    def refusing(path: str):
        if path == shut:
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    found = shelf.find(last=readable)
    assert ids(found) == ["b"]
    assert found.notes == ("s/a: the folder cannot be read: permission denied",)
    assert digests([], [shelf.folder / "s"]) != stamps


def test_a_document_that_cannot_be_read_is_left_out(shelf, monkeypatch):
    file = shelf.put("s/a")
    shelf.put("s/b")
    opening = os.open

    def refusing(path: str, flags: int, *, dir_fd: int | None = None):
        if path == "SKILL.md" and dir_fd is not None and os.stat(path, dir_fd=dir_fd).st_ino == file.stat().st_ino:
            raise PermissionError(13, "Permission denied", path)
        return opening(path, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refusing)
    found = shelf.find()
    assert ids(found) == ["b"]
    assert left_out(found) == [("a", "s/a/SKILL.md", "the file cannot be read: permission denied")]


@pytest.mark.parametrize("name", [" ", "a\nb", "a\x1b[31mb", "\u2028", "\u202eb", b"caf\xe9", "x" * 129])
def test_a_folder_whose_name_can_be_no_id_is_left_out(shelf, name):
    """Whatever it is called, nothing but text gets into a message."""
    folder = os.fsencode(shelf.folder / "s") + b"/" + (name if isinstance(name, bytes) else name.encode())
    os.mkdir(folder)  # noqa: PTH102 - a name that is no text
    Path(os.fsdecode(folder), "SKILL.md").write_text(document("x"))
    shelf.put("s/good")
    found = shelf.find()
    assert ids(found) == ["good"]
    ((id_, file, why),) = left_out(found)
    assert "the name of its folder is the id of the skill" in why
    assert all(text.isprintable() and text.encode() for text in (id_, file, why))


def test_a_name_with_any_printable_text_is_an_id(shelf):
    names = ["Größe", "a b", "x" * 128, "日本", "a.b"]
    for name in names:
        shelf.put(f"s/{name}")
    assert sorted(ids(shelf.find())) == sorted(names)


def test_a_name_other_than_the_folder_is_noted(shelf):
    """The folder's is the id; clients that know skills rely on both being the same."""
    shelf.file("s/pdf/SKILL.md", document("other"))
    found = shelf.find()
    assert ids(found) == ["pdf"]
    assert found.notes == ("s/pdf/SKILL.md: name: the name is other, the folder's is pdf: they should be the same",)
    assert found.skills[0].folder.unserved == "its name is not that of its folder"


def test_whatever_is_wrong_with_one_skill_the_others_are_found(shelf):
    shelf.put("s/a")
    shelf.put("s/b", "tool_list: x\nactive: y\n")
    shelf.put("s/c", "tool_list: {gti: []}\n")
    shelf.file("s/d/SKILL.md", "no front matter")
    shelf.file("s/e/SKILL.md", document("e").encode("utf-16"))
    shelf.file("s/f/SKILL.md", b"---\nx: &a [" + b"x, " * 9_000 + b"]\n" + b"y: [*a, *a]\n---\n")
    with shelf.file("s/g/SKILL.md").open("r+b") as file:
        file.truncate(1024**4)
    shelf.put("s/h", "tool_lst: x\n")
    found = shelf.find()
    assert ids(found) == ["a", "c", "h"]
    assert left_out(found) == [
        (
            "b",
            "s/b/SKILL.md",
            (
                "line 4: tool_list: must be a mapping (key: value), not text: write each server with its tools: "
                '"x: []" (and 1 more)'
            ),
        ),
        (
            "d",
            "s/d/SKILL.md",
            'line 1: the first line must be "---": the front matter with name and description begins there',
        ),
        ("e", "s/e/SKILL.md", "line 1: not UTF-8 text: save the file as UTF-8"),
        ("f", "s/f/SKILL.md", "line 2: x[1998]: more than 2,000 values once the aliases are expanded"),
        ("g", "s/g/SKILL.md", "the file cannot be read: it holds more than 1 MiB"),
    ]
    assert [str(problem) for problem in found.left_out[0].problems][1] == (
        "s/b/SKILL.md:5: active: must be true or false"
    )
    assert found.notes == ("s/h/SKILL.md:4: tool_lst: unknown key, ignored: did you mean 'tool_list'?",)


def test_nothing_in_a_document_breaks_a_message(shelf):
    """A note is one line of printable text, whatever it shows."""
    escapes = '"a\\n\\e31m\\u202e\\x9b,b"'
    shelf.file("s/a/SKILL.md", f"---\nname: {escapes}\ndescription: d\ntool_list: {{{escapes}: []}}\n---\n")
    shelf.file("s/b/SKILL.md", f"---\nname: b\ndescription: d\ntool_list: {{git: {escapes}}}\n---\n")
    shelf.put("s/c", f"tool_list: {{git: '{'x,' * 9_000}'}}\n")
    for found in (shelf.find(), shelf.find(shelf.root(trusted=False))):
        problems = [str(problem) for each in found.left_out for problem in each.problems]
        assert problems or len(found.notes) >= 3
        assert all(
            line.isprintable() and len(line) < 600
            for line in (*found.notes, *problems, *(each.why for each in found.left_out))
        )


def test_what_a_skill_grants_at_servers_that_there_are_not_is_told_where_it_is_trusted(shelf):
    """The configuration may say otherwise, which is not known here; an untrusted skill gets none of them anyway."""
    shelf.put("s/a", "tool_list: {gti: []}\n")
    (problem,) = shelf.skill().unknown
    assert str(problem) == "s/a/SKILL.md:4: tool_list.gti: unknown server 'gti': did you mean 'git'?"
    assert shelf.skill(shelf.root(trusted=False)).unknown == ()


def test_a_server_that_a_skill_requires_is_not_told_once_more(shelf):
    """Without it the skill is not offered anyway."""
    shelf.put("s/a", "tool_list: {other: []}\nrequires: {servers: [other]}\n")
    assert shelf.skill().unknown == ()


# --- what is no file of a skill ---------------------------------------------------------------------------------------


def test_the_files_of_a_skill_are_listed(shelf):
    """By path, with their sizes; those of skills in it too."""
    shelf.put("s/a")
    shelf.put("s/a/inner")
    for path in ("s/a/z.txt", "s/a/scripts/run.py", "s/a/scripts/lib/x.py", "s/b/other"):
        shelf.file(path, path)
    first = shelf.find().skills[0]
    sizes = {file.path: file.size for file in first.folder.files}
    assert list(sizes) == ["SKILL.md", "inner/SKILL.md", "scripts/lib/x.py", "scripts/run.py", "z.txt"]
    assert sizes["scripts/run.py"] == len("s/a/scripts/run.py")
    assert sizes["SKILL.md"] == first.file.stat().st_size


def test_hidden_files_are_no_part_of_a_skill(shelf):
    """They may hold secrets; nor is what programs have put there, or what has a name that cannot be told."""
    shelf.put("s/a")
    shelf.put("s/a/.hidden/b")
    for path in (".env", ".ssh/id", "scripts/.env", "node_modules/x/y.js", "__pycache__/x.pyc", "x/.git/config"):
        shelf.file(f"s/a/{path}")
    Path(os.fsdecode(os.fsencode(shelf.folder / "s/a") + b"/\xff")).write_text("x")
    for name in ("x\n- y", "x\u2028y", "\u202etxt.exe", "x\x1b[2J", "f\no/z"):
        shelf.file(f"s/a/{name}")
    os.mkfifo(shelf.folder / "s/a/pipe")
    found = shelf.find()
    assert ids(found) == ["a", "b"]
    assert [file.path for file in found.skills[0].folder.files] == ["SKILL.md"]


def test_names_of_files_may_hold_any_letters(shelf):
    """And the spaces that systems put there by themselves."""
    shelf.put("s/a")
    shelf.file("s/a/Größe 10.00\u202fAM 图.png")
    assert [file.path for file in shelf.skill().folder.files] == ["Größe 10.00\u202fAM 图.png", "SKILL.md"]


def test_links_are_files_where_they_stay_in_the_skill(shelf):
    shelf.file("secret", "secret")
    shelf.put("s/a")
    shelf.file("s/a/real/file", "12345")
    shelf.file("s/shared/file")
    shelf.link("s/a/near", "real/file")
    shelf.link("s/a/again", "real")
    shelf.link("s/a/out", "../../secret")
    shelf.link("s/a/beside", "../shared/file")
    shelf.link("s/a/beside too", "../shared")
    shelf.file("s/a/.env", "secret")
    shelf.file("s/a/.hidden/file", "secret")
    shelf.link("s/a/env", ".env")
    shelf.link("s/a/revealed", ".hidden")
    shelf.link("s/a/nothing", "none")
    shelf.link("s/a/self", "self")
    shelf.link("s/a/up", "..")
    skill = shelf.skill()
    assert {file.path: file.size for file in skill.folder.files}.keys() == {"SKILL.md", "near", "real/file"}
    assert {file.path: file.size for file in skill.folder.files}["near"] == 5


@pytest.mark.parametrize(("count", "unserved"), [(512, ""), (513, "it has more than 512 files")])
def test_a_skill_of_too_many_files_is_not_served_to_clients_that_know_skills(shelf, count, unserved):
    shelf.put("s/a")
    for index in range(count - 1):
        shelf.file(f"s/a/{index}")
    skill = shelf.skill()
    assert (len(skill.folder.files), skill.folder.unserved) == (count, unserved)


def test_a_skill_that_is_too_large_is_not_served_to_clients_that_know_skills(shelf):
    shelf.put("s/a")
    with shelf.file("s/a/large").open("r+b") as file:
        file.truncate(16 * 1024**2)
    assert shelf.skill().folder.unserved == "its files are larger than 16 MiB"


def test_only_so_many_files_are_listed(shelf, monkeypatch):
    monkeypatch.setattr(library, "MOST_LISTED", 3)
    shelf.put("s/a")
    for name in "bcde":
        shelf.file(f"s/a/{name}")
    found = shelf.find()
    assert len(found.skills[0].folder.files) == 3
    assert found.notes == ("s/a: only 3 of its files are listed",)


# --- links and other traps --------------------------------------------------------------------------------------------


def test_a_linked_skill_counts_as_if_it_were_there(shelf):
    """As installers make them, also by way of other links, and as a package manager's store has them."""
    shelf.put("store/123-x")
    shelf.file("store/123-x/real/file", "12345")
    shelf.link("store/123-x/near", "real/file")
    shelf.link("agents/x", "../store/123-x")
    shelf.link("s/x", "../agents/x")
    shelf.put("s-more/y", name="skill.md")
    shelf.link("s/y", shelf.folder / "s-more/y")
    found = shelf.find()
    assert ids(found) == ["x", "y"]
    assert [skill.file for skill in found.skills] == [
        shelf.folder / "store/123-x/SKILL.md",
        shelf.folder / "s-more/y/skill.md",
    ]
    assert [file.path for file in found.skills[0].folder.files] == ["SKILL.md", "near", "real/file"]
    assert [skill.shown for skill in found.skills] == ["s/x/SKILL.md", "s/y/skill.md"]
    assert not [note for note in found.notes if "link" in note]


def test_a_linked_skill_that_changes_is_read_again(shelf):
    shelf.put("store/x")
    shelf.link("s/x", "../store/x")
    first = shelf.find()
    before = digests([], [shelf.folder / "s"])
    shelf.file("store/x/SKILL.md", document("x").replace("About x.", "Something else."))
    assert digests([], [shelf.folder / "s"]) != before
    assert shelf.find(last=first).skills[0].entry.desc == "Something else."


def test_other_links_that_leave_the_root_are_not_followed(shelf):
    """It is noted, with what to do."""
    shelf.file("elsewhere/private/file")
    shelf.put("elsewhere/x")
    shelf.put("s/a")
    shelf.link("s/a/x", "../../elsewhere/x")
    shelf.link("s/deeper/x", "../../elsewhere/x")
    shelf.link("s/private", "../elsewhere/private")
    shelf.link("s/up", "../..")
    found = shelf.find()
    assert ids(found) == ["a"]
    what = "the link leads out of the folder and is not followed: to use it, name its target in skill_paths"
    assert sorted(found.notes) == [f"s/{path}: {what}" for path in ("a/x", "deeper/x", "private", "up")]
    assert [file.path for file in found.skills[0].folder.files] == ["SKILL.md"]


def test_links_out_of_a_linked_skill_are_not_followed(shelf):
    """Neither to what is beside it nor to what is below the root."""
    shelf.put("store/x")
    shelf.file("store/secret", "secret")
    shelf.file("s/shared/file")
    shelf.link("store/x/secret", "../secret")
    shelf.link("store/x/beside", "..")
    shelf.link("store/x/shared", shelf.folder / "s/shared")
    shelf.link("s/x", "../store/x")
    (skill,) = shelf.find().skills
    assert [file.path for file in skill.folder.files] == ["SKILL.md"]


def test_a_linked_document_alone_is_not_followed(shelf):
    shelf.put("store/x")
    shelf.link("s/x/SKILL.md", "../../store/x/SKILL.md")
    assert [(id_, why) for id_, _, why in left_out(shelf.find())] == [
        ("x", "is a link out of its folder, which is not followed: put the file itself here")
    ]


def test_a_root_that_is_a_skill_itself_holds_no_links_to_others(shelf):
    shelf.put("s")
    shelf.put("elsewhere/x")
    shelf.link("s/x", "../elsewhere/x")
    assert ids(shelf.find()) == ["s"]


def test_a_link_to_what_holds_the_root_is_not_followed(shelf):
    shelf.put("top")
    shelf.put("top/s/a")
    shelf.link("top/s/all", "..")
    assert ids(shelf.find(shelf.root("top/s"))) == ["a"]


def test_a_linked_skill_is_trusted_as_the_link_is_unless_it_is_in_an_untrusted_root(shelf):
    shelf.put("store/x", "pinned: true\n")
    shelf.link("s/x", "../store/x")
    assert shelf.find(shelf.root("s")).skills[0].entry.pinned
    found = shelf.find(shelf.root("s"), shelf.root("store", trusted=False))
    assert [(skill.id, skill.trusted, skill.entry.pinned) for skill in found.skills] == [("x", False, False)]
    assert not shelf.find(shelf.root("s", trusted=False)).skills[0].entry.pinned


def test_a_root_may_be_a_link(shelf):
    shelf.put("real/a")
    shelf.link("linked", "real")
    assert ids(shelf.find(shelf.root("linked"))) == ["a"]


def test_a_folder_is_looked_at_once_whatever_links_lead_there(shelf):
    """As what it is, not as a link to it; loops end."""
    shelf.put("s/m")
    shelf.link("s/a", "m")
    shelf.link("s/z", "m")
    shelf.link("s/m/loop", "..")
    shelf.link("s/self", ".")
    shelf.link("s/one", "two")
    shelf.link("s/two", "one")
    found = shelf.find()
    assert ids(found) == ["m"]
    assert found.folders == (shelf.folder / "s", shelf.folder / "s/m")


def test_a_link_to_what_is_not_looked_at_otherwise_is_followed(shelf):
    """Such as a package that holds skills; links in it too."""
    shelf.put("s/node_modules/package/skills/x")
    shelf.put("s/node_modules/other/y")
    shelf.link("s/packaged", "node_modules/package/skills")
    shelf.link("s/node_modules/package/skills/more", "../../other/y")
    found = shelf.find()
    assert ids(found) == ["more", "x"]
    assert [skill.file for skill in found.skills] == [
        shelf.folder / "s/node_modules/other/y/SKILL.md",
        shelf.folder / "s/node_modules/package/skills/x/SKILL.md",
    ]
    assert [skill.shown for skill in found.skills] == ["s/packaged/more/SKILL.md", "s/packaged/x/SKILL.md"]
    assert [file.path for skill in found.skills for file in skill.folder.files] == ["SKILL.md", "SKILL.md"]


def test_a_document_may_be_a_link_in_its_folder(shelf):
    shelf.file("s/a/docs/a.md", document("a"))
    shelf.link("s/a/SKILL.md", "docs/a.md")
    assert shelf.skill().entry.desc == "About a."


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path) -> None:
    path.mkdir()


def a_link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (a_pipe, "is a pipe, a socket or a device, not a file"),
        (a_folder, "is a folder, not a file"),
        (a_link("none"), "is a link to nothing"),
        (a_link("SKILL.md"), "is a link to nothing"),
        (a_link("../b/SKILL.md"), "is a link out of its folder, which is not followed: put the file itself here"),
        (a_link("../../secret"), "is a link out of its folder, which is not followed: put the file itself here"),
        (a_link("/dev/zero"), "is a link out of its folder, which is not followed: put the file itself here"),
        (a_link(".."), "is a folder, not a file"),
        (
            a_link(".src/doc.md"),
            "is a link to what is hidden in its folder, which is not followed: put the file itself here",
        ),
    ],
)
def test_a_document_that_is_no_file_of_the_folder_is_left_out(shelf, make, why):
    """Above all, nothing waits for it."""
    shelf.file("secret", document("secret"))
    shelf.put("s/b")
    shelf.file("s/a/.src/doc.md", document("a"))
    make(shelf.folder / "s/a/SKILL.md")
    found = shelf.find()
    assert ids(found) == ["b"]
    assert left_out(found) == [("a", "s/a/SKILL.md", why)]


def test_a_document_that_becomes_a_pipe_is_not_waited_for(shelf, monkeypatch):
    """Even between being seen and being read."""
    file = shelf.put("s/a")
    walked = tree.walked

    def and_then(root: Path):
        found = walked(root)
        file.unlink()
        os.mkfifo(file)
        return found

    monkeypatch.setattr("proxy.config.files.walked", and_then)
    assert left_out(shelf.find()) == [("a", "s/a/SKILL.md", "the file cannot be read: it is no regular file")]


@pytest.mark.parametrize("moved", ["s/a", "s"])
def test_a_folder_that_becomes_a_link_leads_nowhere(shelf, monkeypatch, moved):
    """Even between being seen and being read: what it leads to is not read now, nor taken for the skill's folder."""
    shelf.put("s/a")
    shelf.put("elsewhere/a")
    walked = tree.walked

    def and_then(root: Path):
        found = walked(root)
        (shelf.folder / moved).rename(shelf.folder / "away")
        shelf.link(moved, shelf.folder / moved.replace("s", "elsewhere", 1))
        return found

    monkeypatch.setattr("proxy.config.files.walked", and_then)
    found = shelf.find()
    assert found.skills == ()
    assert [(id_, file) for id_, file, _ in left_out(found)] == [("a", "s/a/SKILL.md")]


def test_what_has_not_changed_is_not_taken_from_where_a_link_leads_by_now(shelf, monkeypatch):
    """Its document is not read again, so it is the folder that has to be the one that was seen."""
    shelf.put("s/a")
    shelf.file("s/a/key", "ours")
    shelf.put("elsewhere/a")
    shelf.file("elsewhere/a/key", "secret")
    first = shelf.find()
    walked = tree.walked

    def and_then(root: Path):
        found = walked(root)
        (shelf.folder / "s/a").rename(shelf.folder / "away")
        shelf.link("s/a", shelf.folder / "elsewhere/a")
        return found

    monkeypatch.setattr("proxy.config.files.walked", and_then)
    assert shelf.find(last=first).skills[0].folder.path == str(shelf.folder.resolve() / "s/a")


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_folders_are_looked_at_to_a_depth(shelf):
    shelf.put("s/1/2/3/4/5/6/7/8")
    shelf.put("s/1/2/3/4/5/6/7/8/9")
    found = shelf.find()
    assert ids(found) == ["8"]
    assert found.notes[0] == "s/1/2/3/4/5/6/7/8/9: not looked at: more than 8 folders deep"


def test_only_so_many_folders_are_looked_at(shelf, monkeypatch):
    monkeypatch.setattr(tree, "MOST_FOLDERS", 3)
    for name in "abcd":
        shelf.put(f"s/{name}")
    found = shelf.find()
    assert ids(found) == ["a", "b"]
    assert found.notes == ("s/c: not looked at, nor what comes after it: there are more than 3 folders",)


def test_only_so_many_entries_are_looked_at(shelf, monkeypatch):
    monkeypatch.setattr(tree, "MOST_ENTRIES", 4)
    for name in "abc":
        shelf.put(f"s/{name}")
    found = shelf.find()
    assert ids(found) == ["a"]
    assert found.notes == ("s/b: not looked at, nor what comes after it: there are more than 4 files and folders",)
    monkeypatch.setattr(tree, "MOST_ENTRIES", 2)
    assert shelf.find().notes[0] == "s: not all of it is looked at: there are more than 2 files and folders"


def test_only_so_many_skills_are_looked_at(shelf, monkeypatch):
    """Below each root."""
    monkeypatch.setattr(library, "MOST_SKILLS", 2)
    for path in ("s/a", "s/b", "s/c", "t/d"):
        shelf.put(path)
    found = shelf.find(shelf.root("s"), shelf.root("t"))
    assert ids(found) == ["a", "b", "d"]
    assert found.notes == ("s/c: not looked at, nor what comes after it: there are more than 2 skills",)


def test_only_so_many_notes_are_kept(shelf, monkeypatch):
    monkeypatch.setattr(library, "MOST_NOTES", 2)
    for name in "abcd":
        shelf.link(f"s/{name}", "/")
    notes = shelf.find().notes
    assert len(notes) == 3
    assert notes[2] == "s: 2 more such notes"


def test_a_great_many_skills_are_found(shelf):
    for index in range(2_000):
        shelf.put(f"s/{index % 20}/skill-{index}", ALL)
    found = shelf.find()
    assert len(found.skills) == 2_000
    assert all(skill.entry.tool_list == {"git": ()} for skill in found.skills)
    assert (found.left_out, found.notes) == ((), ())


# --- which counts -----------------------------------------------------------------------------------------------------


def test_the_later_root_counts(shelf):
    shelf.put("s/x")
    shelf.put("t/x")
    found = shelf.find(shelf.root("s"), shelf.root("t"))
    assert [skill.shown for skill in found.skills] == ["t/x/SKILL.md"]
    assert found.notes == (
        (
            "s/x/SKILL.md: not used: t/x/SKILL.md has the same id x, and counts because it is in a later folder of "
            "skill_paths (t)"
        ),
    )


def test_the_later_path_counts(shelf):
    shelf.put("s/a/x")
    shelf.put("s/b/x")
    shelf.put("s/a/b/x")
    found = shelf.find()
    assert [skill.file for skill in found.skills] == [shelf.folder / "s/b/x/SKILL.md"]
    assert found.notes == (
        (
            "s/a/b/x/SKILL.md: not used: s/a/x/SKILL.md has the same id x, and counts because it comes later in the "
            "same folder"
        ),
        (
            "s/a/x/SKILL.md: not used: s/b/x/SKILL.md has the same id x, and counts because it comes later in the same "
            "folder"
        ),
    )


def test_an_untrusted_root_in_a_trusted_one_stays_untrusted(shelf):
    """What is said of the folder itself counts; one that is trusted in an untrusted one is trusted."""
    shelf.put("s/ours", ALL)
    shelf.put("s/theirs/a", ALL)
    shelf.put("s/theirs/ours too/b", ALL)
    shelf.link("way", "s/theirs")
    roots = [shelf.root("s"), shelf.root("way", trusted=False), shelf.root("s/theirs/ours too")]
    for order in (roots, roots[::-1]):
        found = {skill.id: (skill.trusted, bool(skill.entry.tool_list)) for skill in shelf.find(*order).skills}
        assert found == {"ours": (True, True), "a": (False, False), "b": (True, True)}


@pytest.mark.parametrize("roots", [("s", "t"), ("t", "s")])
def test_an_untrusted_skill_never_takes_the_place_of_a_trusted_one(shelf, roots):
    shelf.put("s/x", ALL)
    shelf.put("t/x", ALL)
    found = shelf.find(*(shelf.root(root, trusted=root == "s") for root in roots))
    assert [(skill.shown, skill.entry.tool_list) for skill in found.skills] == [("s/x/SKILL.md", {"git": ()})]
    assert found.notes == (
        "t/x/SKILL.md: not used: s/x/SKILL.md has the same id x, and counts because it is in a trusted folder (s)",
    )


@pytest.mark.parametrize(
    ("one", "other"), [("PDF", "pdf"), ("straße", "STRASSE"), ("\ufb01le", "file"), ("é", "e\u0301")]
)
def test_ids_that_look_the_same_are_the_same(shelf, one, other):
    """Else an untrusted one could stand beside a trusted one."""
    shelf.put(f"s/{one}")
    shelf.put(f"t/{other}")
    found = shelf.find(shelf.root("s"), shelf.root("t", trusted=False))
    assert ids(found) == [one]
    same = f"the same id {one}" if normalize("NFC", other) == one else f"{one}, the same id but for its spelling"
    assert any(same in note for note in found.notes)


def test_a_wrong_skill_keeps_its_place(shelf):
    """A slip in the one that counts does not bring back another, which may grant more."""
    shelf.put("s/x", ALL)
    shelf.put("t/x", "tool_list: git\n")
    found = shelf.find(shelf.root("s"), shelf.root("t"))
    assert ids(found) == []
    assert [each.file for each in found.left_out] == ["t/x/SKILL.md"]
    assert ids(shelf.find(shelf.root("s"), shelf.root("t", trusted=False))) == ["x"]


def test_a_disabled_skill_keeps_its_place_too(shelf):
    """It is how one of an earlier folder is switched off."""
    shelf.put("s/x")
    shelf.put("t/x", "enabled: false\n")
    (skill,) = shelf.find(shelf.root("s"), shelf.root("t")).skills
    assert not skill.entry.enabled


def test_a_root_may_be_named_twice(shelf):
    """The later one counts, and says so."""
    shelf.put("s/x")
    found = shelf.find(shelf.root("s"), shelf.root("s"))
    assert ids(found) == ["x"]
    assert len(found.notes) == 1


# --- trust ------------------------------------------------------------------------------------------------------------

EVERYTHING = """\
tool_list: {git: [a]}
resource_list: {git: [b]}
prompt_list: {git: [c]}
active: true
pinned: true
requires_skills: d
conflicts_with: e
exclusive: true
max_active_minutes: 5
on_activate: [{tool: git/a}]
on_offload: [{tool: git/a}]
hook_timeout: 1
internal_tools: {git: [k]}
bind: {git/a: {l: m}}
parameters: {n: {type: string}}
steps: [{tool: git/a}]
output: o
output_schema: {type: string}
expose_as_tool: true
activation: required
max_execution_time_seconds: 6
max_iterations: 7
max_concurrent_executions: 8
"""
HARMLESS = """\
enabled: false
category: f
tags: [g]
version: 1.0
author: h
required_capabilities: i
requires: {bins: j}
"""


def test_an_untrusted_skill_is_a_guide_alone(shelf):
    """What would grant tools or change what is active does not hold, and it is said what to do."""
    shelf.put("s/x", EVERYTHING)
    found = shelf.find(shelf.root(trusted=False))
    (skill,) = found.skills
    assert skill.entry.model_dump(exclude={"requires"}) == {
        "name": "x",
        "desc": "About x.",
        "usage": "",
        "active": False,
        "pinned": False,
        "enabled": True,
        "tool_list": {},
        "resource_list": {},
        "prompt_list": {},
        "category": "",
        "tags": (),
        "version": "",
        "author": "",
        "required_capabilities": (),
        "requires_skills": (),
        "conflicts_with": (),
        "exclusive": False,
        "max_active_minutes": None,
        "on_activate": (),
        "on_offload": (),
        "hook_timeout": None,
        "internal_tools": {},
        "bind": {},
        "parameters": None,
        "steps": (),
        "output": None,
        "output_schema": None,
        "expose_as_tool": False,
        "activation": "optional",
        "max_execution_time_seconds": 300.0,
        "max_iterations": None,
        "max_concurrent_executions": 10,
    }
    assert skill.entry.model_fields_set == {"name", "desc"}
    assert found.notes == (
        (
            "s/x/SKILL.md: tool_list, resource_list, prompt_list, active, pinned, requires_skills, conflicts_with, "
            "exclusive, max_active_minutes, on_activate, on_offload, hook_timeout, internal_tools, bind, steps, "
            "parameters, output, output_schema, expose_as_tool, activation, max_execution_time_seconds, "
            "max_iterations and max_concurrent_executions are not in force, as s is not trusted: write trusted: true "
            "beside its path, or what is to hold into skill_configs.x"
        ),
    )


def test_what_narrows_holds_of_an_untrusted_skill_too(shelf):
    shelf.put("s/x", HARMLESS)
    untrusted, trusted = shelf.find(shelf.root(trusted=False)), shelf.find(shelf.root())
    assert untrusted.notes == ()
    assert untrusted.skills[0].entry == trusted.skills[0].entry
    assert untrusted.skills[0].entry.requires.bins == ("j",)


def test_allowed_tools_of_an_untrusted_skill_grant_nothing(shelf):
    shelf.put("s/x", "allowed-tools: git__git_log Read\n")
    found = shelf.find(shelf.root(trusted=False))
    assert found.skills[0].entry.tool_list == {}
    assert found.notes == (
        (
            "s/x/SKILL.md: allowed-tools is not in force, as s is not trusted: write trusted: true beside its path, or "
            "what is to hold into skill_configs.x"
        ),
    )


def test_what_the_configuration_decides_of_an_untrusted_skill_is_not_told_as_open(shelf):
    """Who has done what was said is not told once more."""
    said = "active: true\nmax_active_minutes: 5\nallowed-tools: git__git_log\nmetadata: {tool_list: '{git: []}'}\n"
    shelf.put("s/x", said)
    root = shelf.root(trusted=False)
    (note,) = shelf.find(root, x={"tool_list", "active"}).notes
    assert note.startswith("s/x/SKILL.md: max_active_minutes is not in force, as s is not trusted")
    assert shelf.find(root, x={"tool_list", "active", "max_active_minutes"}).notes == ()


def test_what_has_no_force_costs_an_untrusted_skill_nothing_where_it_is_wrong(shelf):
    """A trusted one is left out."""
    shelf.put("s/x", "tool_list: git\n")
    found = shelf.find(shelf.root(trusted=False))
    assert (ids(found), found.left_out) == (["x"], ())
    (note,) = found.notes
    assert note.startswith("s/x/SKILL.md:4: tool_list: ignored: must be a mapping (key: value), not text")
    assert (ids(shelf.find()), len(shelf.find().left_out)) == ([], 1)


# --- reload -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The documents that are read from now on, by the names of their folders."""
    names: list[str] = []
    reading = library.read_regular

    def noted(path: Path, most: int) -> bytes:
        names.append(path.parent.name)
        return reading(path, most)

    monkeypatch.setattr(library, "read_regular", noted)
    return names


def test_only_what_has_changed_is_read_again(shelf, reads):
    """Which gives the same as reading all."""
    for name in "abc":
        shelf.put(f"s/{name}", "tool_list: x\n" if name == "c" else "")
    first = shelf.find()
    assert reads == ["a", "b", "c"]
    reads.clear()
    assert shelf.find(last=first) == first
    assert reads == []
    os.utime(shelf.put("s/b", ALL), (1, 1))
    shelf.put("s/d")
    second = shelf.find(last=first)
    assert reads == ["b", "d"]
    assert ids(second) == ["a", "b", "d"]
    assert second == shelf.find()


def test_other_files_of_a_skill_are_seen_without_reading_it(shelf, reads):
    shelf.put("s/a")
    first = shelf.find()
    reads.clear()
    shelf.file("s/a/new", "123")
    assert shelf.find(last=first).skills[0].folder.files[-1][:2] == ("new", 3)
    assert reads == []


def test_with_other_servers_all_is_read_again(shelf, reads):
    """What allowed-tools grants depends on them."""
    shelf.put("s/a", "allowed-tools: web:fetch\n")
    first = shelf.find()
    again = find([shelf.root()], ["web"], Files(), first)
    assert again.skills[0].entry.tool_list == {"web": ("fetch",)}
    assert reads == ["a", "a"]


def test_trust_that_has_changed_holds_at_once(shelf):
    shelf.put("s/a", ALL)
    trusted = shelf.find()
    untrusted = shelf.find(shelf.root(trusted=False), last=trusted)
    assert untrusted.skills[0].entry.tool_list == {}
    assert shelf.find(last=untrusted).skills[0].entry.tool_list == {"git": ()}


def test_a_document_is_named_as_its_root_is_now(shelf):
    shelf.put("s/a", "tool_list: x\n")
    renamed = replace(shelf.root(), shown="./s/")
    assert shelf.find(renamed, last=shelf.find()).left_out[0].file == "./s/a/SKILL.md"


def test_what_is_gone_is_forgotten(shelf):
    shelf.put("s/a")
    first = shelf.find()
    (shelf.folder / "s/a/SKILL.md").unlink()
    second = shelf.find(last=first)
    assert (second.skills, dict(second.documents)) == ((), {})


# --- look-alikes ------------------------------------------------------------------------------------------------------

WHAT = "the name of its folder is the id of the skill, and"
HELP = "rename the folder, or trust s"


@pytest.mark.parametrize(
    ("id_", "stray"),
    [
        ("p\u0430yments", "\u0430 (U+0430 CYRILLIC SMALL LETTER A)"),
        ("\u0440ayments", "\u0440 (U+0440 CYRILLIC SMALL LETTER ER)"),
        ("g\u03bft", "\u03bf (U+03BF GREEK SMALL LETTER OMICRON)"),
        ("\u043e\u03bf", "\u03bf (U+03BF GREEK SMALL LETTER OMICRON)"),
        ("git-\u65e5", "\u65e5 (U+65E5 CJK UNIFIED IDEOGRAPH-65E5)"),
        ("v\u0967", "\u0967 (U+0967 DEVANAGARI DIGIT ONE)"),
        ("payments\ufe0f", "\ufe0f (U+FE0F VARIATION SELECTOR-16)"),
        ("payments\u3164", "\u3164 (U+3164 HANGUL FILLER)"),
    ],
)
def test_an_id_that_mixes_scripts_is_refused_unless_its_folder_is_trusted(shelf, id_: str, stray: str):
    """With the file, the character and its name; also where the configuration speaks of the skill."""
    shelf.put(f"s/{id_}")
    for decided in ({}, {id_: {"desc"}}):
        untrusted = shelf.find(shelf.root(trusted=False), **decided)
        assert ids(untrusted) == []
        why = f"{WHAT} {stray} does not belong there: {HELP}"
        assert left_out(untrusted) == [(id_, f"s/{id_}/SKILL.md", why)]
    assert ids(shelf.find()) == [id_]


@pytest.mark.parametrize(
    "id_",
    [
        *("payments", "Pay_ments-2", "größe", "naïve", "\uff47\uff49\uff54", "оплата", "πληρωμές", "платежи-2"),
        *("支払い", "カタカナ", "請求書を送る", "일정日", "ㄅ日", "مدفوعات", "भुगतान", "👍", "v1.2"),
    ],
)
def test_an_id_of_one_script_is_taken(shelf, id_: str):
    """Japanese, Korean and Chinese are written in several; digits and signs belong to all."""
    shelf.put(f"s/{id_}")
    assert ids(shelf.find(shelf.root(trusted=False))) == [id_]


@pytest.mark.parametrize(
    ("id_", "other"),
    [
        *(("\u0441\u0430\u0440\u0430", "capa"), ("\u03c1\u03b1\u03c7", "pax"), ("paypaI", "paypal")),
        *(("t00l", "tool"), ("too1", "tool"), ("\u0262\u026a\u1d1b", "git")),
    ],
)
def test_an_id_that_looks_like_another_is_refused_unless_its_folder_is_trusted(shelf, id_: str, other: str):
    """Wherever the other one is: in a folder, which may come first or last, or in the configuration."""
    shelf.put(f"s/{id_}")
    why = f"{WHAT} it looks like {other}, which is another: {HELP}"
    untrusted = shelf.root(trusted=False)
    assert ids(shelf.find(untrusted)) == [id_]
    of_file = shelf.find(untrusted, **{other: {"desc"}})
    assert (ids(of_file), left_out(of_file)) == ([], [(id_, f"s/{id_}/SKILL.md", why)])
    shelf.put(f"t/{other}")
    for roots in ((untrusted, shelf.root("t")), (shelf.root("t"), untrusted)):
        found = shelf.find(*roots)
        assert (ids(found), left_out(found)) == ([other], [(id_, f"s/{id_}/SKILL.md", why)])
    assert sorted(ids(shelf.find(shelf.root(), shelf.root("t")))) == sorted([id_, other])


def test_of_two_untrusted_ids_that_look_alike_the_one_of_ascii_stays(shelf):
    """Whichever comes later; of two of the same letters the one that counts more."""
    shelf.put("s/\u0441\u0430\u0440\u0430")
    shelf.put("s/capa")
    shelf.put("s/too1")
    shelf.put("s/tool")
    found = shelf.find(shelf.root(trusted=False))
    assert ids(found) == ["capa", "tool"]
    assert [one for one, _, _ in left_out(found)] == ["too1", "\u0441\u0430\u0440\u0430"]


def test_an_id_that_the_configuration_names_may_look_like_another(shelf):
    """It says which is meant."""
    shelf.put("s/too1")
    shelf.put("s/tool")
    assert ids(shelf.find(shelf.root(trusted=False), too1={"desc"})) == ["too1"]
    assert ids(shelf.find(shelf.root(trusted=False), too1={"desc"}, tool={"desc"})) == ["too1", "tool"]


def test_a_skill_knows_whether_its_folder_is_trusted(shelf):
    """Its guide says so where it is told."""
    shelf.put("s/a")
    assert [shelf.skill(shelf.root(trusted=trusted)).folder.trusted for trusted in (True, False)] == [True, False]
