"""Noticing that the configuration has changed, however it is saved, and refusing what cannot be meant."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from proxy.config import library, reload
from proxy.config.files import Files
from proxy.config.library import Library
from proxy.config.links import way
from proxy.config.load import load
from proxy.config.reload import Reload, Watcher
from proxy.core.settings import Settings
from tests.upstream.bench import DEADLINE, until

pytestmark = pytest.mark.anyio

MOMENT = 0.05
"""Seconds between saves that follow each other closely."""


def text(*skills: str, **settings: str) -> str:
    """A configuration with these skills, and these settings of `proxy`."""
    lines = ["skill_configs:", *(f"  {skill}: {{}}" for skill in skills)]
    return "\n".join(
        [*lines, "proxy:", *(f"  {key}: {value}" for key, value in {"list_wait": "1", **settings}.items())]
    )


@dataclass
class Watch:
    """A watcher at work: what it handed on, and what it logged."""

    watcher: Watcher
    log: list[Any]
    reloads: list[Reload] = field(default_factory=list[Reload])
    held: anyio.Event | None = None

    async def take(self, reload: Reload) -> None:
        self.reloads.append(reload)
        if self.held is not None:
            await self.held.wait()

    @property
    def skills(self) -> list[list[str]]:
        """The skills of each configuration that was handed on."""
        return [[skill.id for skill in reload.loaded.catalogue.skills] for reload in self.reloads]

    @property
    def refusals(self) -> list[list[str]]:
        """The problems of each that was refused."""
        return [event["problems"] for event in self.log if event["event"] == "config.refused"]

    async def handed_on(self, *skills: str) -> Reload:
        """Wait until the newest configuration that was handed on has these skills."""
        await until(lambda: self.skills[-1:] == [list(skills)])
        return self.reloads[-1]

    async def refused(self, count: int = 1) -> list[str]:
        """Wait until so many were refused; the problems of the newest."""
        await until(lambda: len(self.refusals) >= count)
        return self.refusals[-1]


@asynccontextmanager
async def watching(file: Path, environ: Mapping[str, str] | None = None) -> AsyncGenerator[Watch]:
    """A watcher of `file`, which exists."""
    with capture_logs() as log:
        watch = Watch(Watcher(load(file, environ or {}), environ or {}), log)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.watcher.run, watch.take)
            yield watch
            tasks.cancel_scope.cancel()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration with the skill `first`."""
    file = tmp_path / "config" / "skills.yaml"
    file.parent.mkdir()
    file.write_text(text("first"))
    return file


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Iterable[Path]]:
    """The looks at the files so far."""
    looks: list[Iterable[Path]] = []
    look = reload.digests

    def counted(paths: Iterable[Path], roots: Collection[Path]) -> Mapping[Path, str]:
        looks.append(paths)
        return look(paths, roots)

    monkeypatch.setattr(reload, "digests", counted)
    return looks


@pytest.fixture
def restless(looks: list[Iterable[Path]], monkeypatch: pytest.MonkeyPatch) -> list[Iterable[Path]]:
    """The same, with a look every moment."""
    monkeypatch.setattr(reload, "INTERVAL", MOMENT)
    return looks


async def some_more(looks: list[Iterable[Path]]) -> None:
    """Wait until the files have been looked at some more, with all that a look leads to."""
    before = len(looks)
    await until(lambda: len(looks) > before + 2)


# --- ways to save ----------------------------------------------------------------------------------------------------


def in_place(file: Path, content: str) -> None:
    file.write_text(content)


def by_rename(file: Path, content: str) -> None:
    new = file.with_name("skills.yaml.tmp")
    new.write_text(content)
    new.replace(file)


def with_a_backup(file: Path, content: str) -> None:
    file.rename(file.with_name("skills.yaml~"))
    file.write_text(content)


def deleted_first(file: Path, content: str) -> None:
    delete(file)
    in_place(file, content)


def delete(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("save", [in_place, by_rename, with_a_backup, deleted_first])
async def test_a_saved_file_is_handed_on_however_it_is_saved(file: Path, save: Callable[[Path, str], None]):
    """Once for each time, with everything that it says; nobody asked for it in full."""
    async with watching(file) as watch:
        save(file, text("second", list_wait="2"))
        handed_on = await watch.handed_on("second")
        assert handed_on.loaded == load(file, {})
        assert handed_on.loaded.settings == Settings(list_wait=2)
        assert not handed_on.full
        save(file, text("third"))
        await watch.handed_on("third")
        assert watch.skills == [["second"], ["third"]]
        assert not watch.log


async def test_news_does_not_wait_for_the_regular_look(file: Path, monkeypatch: pytest.MonkeyPatch):
    """The file system tells of it."""
    monkeypatch.setattr(reload, "INTERVAL", 1000.0)
    async with watching(file) as watch:
        for skill in ("second", "third", "fourth"):
            by_rename(file, text(skill))
            await watch.handed_on(skill)


async def test_a_change_before_the_watching_began_is_noticed(file: Path, monkeypatch: pytest.MonkeyPatch):
    """What counts is what was read at the start, not what was there when the watching began."""
    monkeypatch.setattr(reload, "INTERVAL", 1000.0)
    async with watching(file) as watch:
        in_place(file, text("second"))  # nothing has been awaited: the watcher has not begun
        await watch.handed_on("second")


async def test_a_mounted_config_map_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The file is a link into a folder that is a link, and only that one is replaced, each time by another."""
    monkeypatch.setattr(reload, "INTERVAL", 1000.0)

    def mount(version: str) -> None:
        (tmp_path / version).mkdir()
        (tmp_path / version / "skills.yaml").write_text(text(version))
        (tmp_path / "..data_tmp").symlink_to(version)
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")

    mount("v1")
    file = tmp_path / "skills.yaml"
    file.symlink_to("..data/skills.yaml")
    async with watching(file) as watch:
        mount("v2")
        await watch.handed_on("v2")
        shutil.rmtree(tmp_path / "v1")
        mount("v3")
        await watch.handed_on("v3")
        assert watch.skills == [["v2"], ["v3"]]
        assert not watch.log


async def test_a_link_to_the_folder_is_followed(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Both when the link is replaced and when the file in the folder is, old or new."""
    monkeypatch.setattr(reload, "INTERVAL", 1000.0)
    link = tmp_path / "current"
    link.symlink_to(file.parent)
    async with watching(link / "skills.yaml") as watch:
        by_rename(file, text("second"))
        await watch.handed_on("second")
        other = tmp_path / "other"
        other.mkdir()
        (other / "skills.yaml").write_text(text("third"))
        (tmp_path / "new").symlink_to(other)
        (tmp_path / "new").replace(link)
        await watch.handed_on("third")
        by_rename(other / "skills.yaml", text("fourth"))
        await watch.handed_on("fourth")


async def test_a_folder_that_is_gone_for_a_while_is_found_again(file: Path, tmp_path: Path):
    """It is said once that the file is missing, and what comes back is watched as before."""
    async with watching(file) as watch:
        away = file.parent.rename(tmp_path / "away")
        assert await watch.refused() == [f"{file}: the file does not exist"]
        (away / "skills.yaml").write_text(text("second"))
        away.rename(file.parent)
        await watch.handed_on("second")
        in_place(file, text("third"))
        await watch.handed_on("third")
        assert len(watch.log) == 1


async def test_a_folder_that_another_has_replaced_is_noticed(file: Path, tmp_path: Path):
    """Which no event tells of; what happens in the new one is heard."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "skills.yaml").write_text(text("second"))
    async with watching(file) as watch:
        file.parent.rename(tmp_path / "old")
        other.rename(file.parent)
        await watch.handed_on("second")
        in_place(file, text("third"))
        await watch.handed_on("third")


async def test_without_news_from_the_file_system_it_looks_by_itself(file: Path, monkeypatch: pytest.MonkeyPatch):
    """As where the machine has no watches left: said once."""

    def no_watch_left(*_: object) -> None:
        raise OSError("OS file watch limit reached.")

    monkeypatch.setattr(reload, "INTERVAL", 0.05)
    monkeypatch.setattr("watchfiles._rust_notify.RustNotify", no_watch_left)
    async with watching(file) as watch:
        for skill in ("second", "third"):
            in_place(file, text(skill))
            await watch.handed_on(skill)
        (event,) = watch.log
        assert event == {
            "event": "config.not_watched",
            "log_level": "warning",
            "why": "OS file watch limit reached.",
            "instead": "looked at every 0.05 s",
        }


# --- folders with skills ---------------------------------------------------------------------------------------------


def put(file: Path, path: str, desc: str = "D", more: str = "") -> Path:
    """Make or change the skill in the folder at `path`, beside the configuration."""
    document = file.parent / path / "SKILL.md"
    document.parent.mkdir(parents=True, exist_ok=True)
    document.write_text(f"---\nname: {document.parent.name}\ndescription: {desc}\n{more}---\nGuide.\n")
    return document


@pytest.fixture
def shelf(file: Path) -> Path:
    """The same, with the skills in the folder `s`, in which there are `a` and `b`."""
    file.write_text(f"{text('first')}\nskill_paths: [s]\n")
    put(file, "s/a")
    put(file, "s/b")
    return file


@pytest.fixture(params=["heard", "deaf"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system tells of changes and nobody looks, or the other way round."""

    def no_watch_left(*_: object) -> None:
        raise OSError("OS file watch limit reached.")

    if request.param == "heard":
        monkeypatch.setattr(reload, "INTERVAL", 1000.0)
    else:
        monkeypatch.setattr(reload, "INTERVAL", MOMENT)
        monkeypatch.setattr("watchfiles._rust_notify.RustNotify", no_watch_left)


def described(watch: Watch, skill: str) -> str | None:
    """What the newest configuration that was handed on says of a skill."""
    return watch.reloads[-1].loaded.catalogue.by_id[skill].desc if watch.reloads else None


def listed(watch: Watch, skill: str) -> list[tuple[str, int]]:
    """The files of a skill in it, with their sizes."""
    folder = watch.reloads[-1].loaded.catalogue.by_id[skill].folder if watch.reloads else None
    return [(file.path, file.size) for file in folder.files] if folder is not None else []


@pytest.mark.usefixtures("either_way")
async def test_skills_that_are_changed_or_put_into_a_folder_or_taken_out_are_followed(shelf: Path):
    """At any depth, also below folders that are new."""
    async with watching(shelf) as watch:
        put(shelf, "s/a", "Another")
        await until(lambda: described(watch, "a") == "Another")
        put(shelf, "s/new/deep/c")
        await watch.handed_on("first", "a", "b", "c")
        put(shelf, "s/new/deep/c", "Changed")
        await until(lambda: described(watch, "c") == "Changed")
        shutil.rmtree(shelf.parent / "s" / "a")
        await watch.handed_on("first", "b", "c")
        (shelf.parent / "s" / "b").rename(shelf.parent / "s" / "z")
        await watch.handed_on("first", "c", "z")


@pytest.mark.usefixtures("either_way")
async def test_the_other_files_of_a_skill_are_followed(shelf: Path):
    """They are what is served beside its guide."""
    scripts = shelf.parent / "s" / "a" / "scripts"
    async with watching(shelf) as watch:
        scripts.mkdir()
        (scripts / "run.py").write_text("x")
        await until(lambda: ("scripts/run.py", 1) in listed(watch, "a"))
        (scripts / "run.py").write_text("xy")
        await until(lambda: ("scripts/run.py", 2) in listed(watch, "a"))
        (scripts / "run.py").unlink()
        await until(lambda: [path for path, _ in listed(watch, "a")] == ["SKILL.md"])


@pytest.mark.usefixtures("either_way")
async def test_a_folder_with_skills_that_comes_later_is_found(shelf: Path):
    """As well as one that is named later."""
    (shelf.parent / "s").rename(shelf.parent / "away")
    async with watching(shelf) as watch:
        (shelf.parent / "away").rename(shelf.parent / "s")
        await watch.handed_on("first", "a", "b")
        put(shelf, "t/c")
        in_place(shelf, f"{text('first')}\nskill_paths: [s, t]\n")
        await watch.handed_on("first", "a", "b", "c")
        put(shelf, "t/d")
        await watch.handed_on("first", "a", "b", "c", "d")


async def test_a_document_that_is_wrong_costs_its_skill_alone(shelf: Path):
    """And it is back when it is right again."""
    async with watching(shelf) as watch:
        put(shelf, "s/a", more="required_capabilities: {a: b}\n")
        reload = await watch.handed_on("first", "b")
        assert [(left.id, left.why) for left in reload.loaded.left_out] == [
            ("a", "line 4: required_capabilities: must be a list, not a mapping")
        ]
        put(shelf, "s/a")
        await watch.handed_on("first", "a", "b")
        assert not watch.log


async def test_only_documents_that_have_changed_are_read_again(shelf: Path, monkeypatch: pytest.MonkeyPatch):
    """There may be ten thousand."""
    read: list[str] = []
    reading = library.read_regular

    def counted(path: Path, most: int) -> bytes:
        read.append(path.parent.name)
        return reading(path, most)

    async with watching(shelf) as watch:
        monkeypatch.setattr(library, "read_regular", counted)
        put(shelf, "s/b", "Another")
        put(shelf, "s/c")
        await watch.handed_on("first", "a", "b", "c")
        assert {*read} == {"b", "c"}


@pytest.mark.parametrize("wrong", ["not YAML: [", "skill_paths: [s]\nskils: {}\n", "skill_paths: [t]\nskils: {}\n"])
async def test_a_bad_file_costs_no_more_than_looks_until_it_changes(
    shelf: Path, restless: list[Iterable[Path]], monkeypatch: pytest.MonkeyPatch, wrong: str
):
    """Whether its folders were looked at before it was refused or not."""
    async with watching(shelf) as watch:
        in_place(shelf, wrong)
        await watch.refused()
        with monkeypatch.context() as unwanted:
            unwanted.delattr(reload, "load")
            await some_more(restless)
        in_place(shelf, f"{text('second')}\nskill_paths: [s]\n")
        await watch.handed_on("second", "a", "b")
        assert len(watch.refusals) == 1


# --- what counts as a change -----------------------------------------------------------------------------------------


async def test_many_saves_in_a_moment_are_one_reload(file: Path):
    """Of the last content."""
    async with watching(file) as watch:
        for number in range(15):
            in_place(file, text(f"s{number}"))
            await anyio.sleep(MOMENT)
        in_place(file, text("last"))
        await watch.handed_on("last")
        assert watch.skills == [["last"]]
        assert not watch.log


async def test_a_file_that_is_being_written_is_not_taken(file: Path):
    """Though every part of it would be a good configuration, and the first one an empty one."""
    async with watching(file) as watch:
        with file.open("w") as writing:
            writing.write("skill_configs:\n")
            for number in range(15):
                writing.write(f"  s{number}: {{}}\n")
                writing.flush()
                await anyio.sleep(MOMENT)
        await watch.handed_on(*(f"s{number}" for number in range(15)))
        assert len(watch.reloads) == 1
        assert not watch.log


async def test_the_same_content_saved_again_is_no_change(
    file: Path, restless: list[Iterable[Path]], monkeypatch: pytest.MonkeyPatch
):
    """Nor is a new time stamp; neither costs more than the look."""
    async with watching(file) as watch:
        with monkeypatch.context() as unwanted:
            unwanted.delattr(reload, "load")
            by_rename(file, text("first"))
            await some_more(restless)
            os.utime(file, (1, 1))
            await some_more(restless)
        in_place(file, text("second"))
        await watch.handed_on("second")
        assert watch.skills == [["second"]]


async def test_a_file_that_is_back_as_it_was_is_no_change(file: Path, restless: list[Iterable[Path]]):
    """It was gone for a moment only."""
    async with watching(file) as watch:
        before = len(restless)
        delete(file)
        await until(lambda: len(restless) > before)
        in_place(file, text("first"))
        await some_more(restless)
        in_place(file, text("second"))
        await watch.handed_on("second")
        assert watch.skills == [["second"]]
        assert not watch.log


async def test_other_files_in_the_folder_are_none_of_its_business(
    file: Path, looks: list[Iterable[Path]], monkeypatch: pytest.MonkeyPatch
):
    """A busy folder costs no look at the files."""
    monkeypatch.setattr(reload, "INTERVAL", 1000.0)
    async with watching(file) as watch:
        await until(lambda: len(looks) == 1)
        for number in range(30):
            (file.parent / f"other{number}").write_text("x")
            (file.parent / f"other{number}").rename(file.parent / f"renamed{number}")
            await anyio.sleep(MOMENT)
        before = len(looks)
        in_place(file, text("second"))
        await watch.handed_on("second")
        assert before == 1


@pytest.mark.parametrize("where", ["env_file: {}", "servers: {{a: {{command: x, env_file: {}}}}}"])
async def test_an_env_file_is_part_of_the_configuration(file: Path, where: str):
    """Wherever it is named; a link to it counts as well."""
    secrets, env = file.parent / "secrets.env", file.parent.parent / "real.env"
    env.write_text("A=1\n")
    secrets.symlink_to(env)
    in_place(file, f"{where.format('secrets.env')}\n{text('first')}")
    async with watching(file) as watch:
        by_rename(env, "A=2\n")
        assert "2" in (await watch.handed_on("first")).loaded.secrets
        secrets.unlink()
        problem = await watch.refused()
        assert problem[0].endswith(f"env_file: {secrets} does not exist")
        secrets.write_text("A=3\n")
        await until(lambda: len(watch.reloads) == 2)
        assert "3" in watch.reloads[-1].loaded.secrets


async def test_an_env_file_counts_from_when_it_is_named_on(file: Path, monkeypatch: pytest.MonkeyPatch):
    """And no longer when it is not."""
    monkeypatch.setattr(reload, "INTERVAL", 1000.0)
    env = file.parent / "new.env"
    env.write_text("A=1\n")
    async with watching(file) as watch:
        in_place(file, f"env_file: new.env\n{text('second')}")
        assert (await watch.handed_on("second")).loaded.files == (file, env)
        env.write_text("A=2\n")
        await until(lambda: len(watch.reloads) == 2)
        in_place(file, text("third"))
        assert (await watch.handed_on("third")).loaded.files == (file,)
        env.unlink()
        in_place(file, text("fourth"))
        await watch.handed_on("fourth")
        assert watch.skills == [["second"], ["second"], ["third"], ["fourth"]]
        assert not watch.log


# --- what is refused -------------------------------------------------------------------------------------------------


async def test_a_bad_file_is_said_once_with_every_problem(file: Path, restless: list[Iterable[Path]]):
    """Again only when it is bad in another way; a good one after it is handed on."""
    async with watching(file) as watch:
        in_place(file, "skils: {}\nserver: {}\n")
        await watch.refused()
        await some_more(restless)
        in_place(file, "skils: {}\n")
        await watch.refused(2)
        in_place(file, text("second"))
        await watch.handed_on("second")
        what = [
            f"{file}:1: skils: unknown key: did you mean 'skill_configs'?",
            f"{file}:2: server: unknown key: did you mean 'servers'?",
        ]
        assert watch.log == [
            {
                "event": "config.refused",
                "log_level": "error",
                "file": str(file),
                "problems": problems,
                "kept": "what was loaded before",
            }
            for problems in (what, what[:1])
        ]
        assert watch.skills == [["second"]]


@pytest.mark.parametrize("content", ["", "\n\n", "# nothing yet\n", "---\n", "~"])
async def test_an_empty_file_is_refused_once_something_runs(file: Path, content: str):
    """It is written for a moment by many editors, or by accident; `{}` says that it is meant."""
    async with watching(file) as watch:
        in_place(file, content)
        (problem,) = await watch.refused()
        assert problem.startswith(f"{file}: the file is empty")
        in_place(file, "{}")
        await watch.handed_on()
        assert len(watch.log) == 1


async def test_a_missing_file_is_said_once(file: Path, restless: list[Iterable[Path]]):
    """Though it is looked for time and again."""
    async with watching(file) as watch:
        delete(file)
        assert await watch.refused() == [f"{file}: the file does not exist"]
        await some_more(restless)
        in_place(file, text("second"))
        await watch.handed_on("second")
        assert len(watch.log) == 1


async def test_whatever_else_is_wrong_with_a_file_is_said_and_ends_nothing(file: Path, monkeypatch: pytest.MonkeyPatch):
    """Also what nobody has thought of; the next change counts again."""

    def fails(path: Path, _environ: Mapping[str, str], files: Files, _last: Library) -> None:
        files.read(path)
        raise KeyError("unthought-of")

    async with watching(file) as watch:
        monkeypatch.setattr(reload, "load", fails)
        in_place(file, text("second"))
        (problem,) = await watch.refused()
        assert "KeyError: 'unthought-of'" in problem
        assert str(file) in problem
        monkeypatch.undo()
        in_place(file, text("third"))
        await watch.handed_on("third")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
async def test_a_pipe_in_the_file_s_place_is_refused_and_not_read(file: Path):
    """It would be waited for without end."""
    async with watching(file) as watch:
        delete(file)
        os.mkfifo(file)
        (problem,) = await watch.refused()
        assert problem == f"{file}: the file cannot be read: it is a pipe or a device, which is read at the start only"
        delete(file)
        in_place(file, text("second"))
        await watch.handed_on("second")


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="needs /dev/fd")
async def test_a_configuration_from_a_pipe_is_good_for_the_start(restless: list[Iterable[Path]]):
    """As `--config <(command)` gives it: that it cannot be read again is said only when it is asked for."""
    reading, writing = os.pipe()
    os.write(writing, text("first").encode())
    os.close(writing)
    async with watching(Path(f"/dev/fd/{reading}")) as watch:
        await some_more(restless)
        assert not watch.log
        watch.watcher.hangup()
        (problem,) = await watch.refused()
        assert "read at the start only" in problem
    os.close(reading)


# --- asking for it, and what may change ------------------------------------------------------------------------------


async def test_a_hangup_hands_on_in_full_though_nothing_has_changed(file: Path, monkeypatch: pytest.MonkeyPatch):
    """At once, also where it came before the watching began; the next change is no full one."""
    monkeypatch.setattr(reload, "INTERVAL", 1000.0)
    async with watching(file) as watch:
        watch.watcher.hangup()
        assert (await watch.handed_on("first")).full
        watch.watcher.hangup()
        await until(lambda: len(watch.reloads) == 2)
        in_place(file, text("second"))
        await watch.handed_on("second")
        assert [reload.full for reload in watch.reloads] == [True, True, False]


async def test_a_hangup_says_again_what_is_wrong(file: Path):
    """The user wants to know."""
    async with watching(file) as watch:
        in_place(file, "skils: {}\n")
        problems = await watch.refused()
        watch.watcher.hangup()
        assert await watch.refused(2) == problems
        assert not watch.reloads


async def test_without_watching_only_a_hangup_reloads(file: Path):
    """Until it brings a configuration that says otherwise; `off` is text, not false."""
    async with watching(file) as witness:
        in_place(file, text("off", reload="off"))
        await witness.handed_on("off")
        async with watching(file) as watch:
            in_place(file, text("unseen", reload="off"))
            await witness.handed_on("unseen")
            in_place(file, text("second", reload="off"))
            watch.watcher.hangup()
            await watch.handed_on("second")
            await witness.handed_on("second")
            in_place(file, text("unseen"))
            await witness.handed_on("unseen")
            watch.watcher.hangup()
            await watch.handed_on("unseen")
            in_place(file, text("third"))
            await watch.handed_on("third")
            assert watch.skills == [["second"], ["unseen"], ["third"]]
            assert [reload.full for reload in watch.reloads] == [True, True, False]


async def test_a_hangup_can_end_the_watching(file: Path):
    """Where the file says `off` by then; before it, that file was noticed, and went on being watched."""
    async with watching(file) as witness, watching(file) as watch:
        in_place(file, text("second", reload="off"))
        await watch.handed_on("second")
        watch.watcher.hangup()
        await until(lambda: [reload.full for reload in watch.reloads] == [False, True])
        in_place(file, text("unseen"))
        await witness.handed_on("unseen")
        in_place(file, text("third"))
        watch.watcher.hangup()
        await watch.handed_on("third")
        assert watch.skills == [["second"], ["second"], ["third"]]


async def test_a_file_cannot_lift_its_own_brake(file: Path):
    """`reload: full` in a changed file makes neither that change a full one nor the next, until somebody asks."""
    async with watching(file) as watch:
        in_place(file, text("second", reload="full"))
        assert not (await watch.handed_on("second")).full
        in_place(file, text("third", reload="full"))
        assert not (await watch.handed_on("third")).full
        watch.watcher.hangup()
        await until(lambda: watch.reloads[-1].full)
        in_place(file, text("fourth", reload="full"))
        assert (await watch.handed_on("fourth")).full


async def test_with_everything_allowed_each_change_is_a_full_one(file: Path):
    """Also the one that forbids it, which holds from the next on."""
    in_place(file, text("first", reload="full"))
    async with watching(file) as watch:
        in_place(file, text("second", reload="skills"))
        assert (await watch.handed_on("second")).full
        in_place(file, text("third", reload="full"))
        assert not (await watch.handed_on("third")).full


async def test_changes_during_a_slow_reload_come_after_it(file: Path):
    """One after the other, and a hangup among them is not forgotten."""
    async with watching(file) as watch:
        watch.held = anyio.Event()
        in_place(file, text("second"))
        await watch.handed_on("second")
        in_place(file, text("third"))
        watch.watcher.hangup()
        watch.held.set()
        assert (await watch.handed_on("third")).full
        assert watch.skills == [["second"], ["third"]]


# --- its end ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads by /proc")
@pytest.mark.parametrize("setting", ["skills", "off"])
def test_cancelled_it_ends_within_a_second_and_leaves_no_thread(file: Path, setting: str):
    """Neither of Python nor of the library."""

    def threads() -> set[str]:
        return {task.name for task in Path("/proc/self/task").iterdir()}

    async def main() -> None:
        async with watching(file) as watch:
            watch.watcher.hangup()
            await watch.handed_on("first")
            assert setting == "off" or threads() - before
            cancelled = anyio.current_time()
        assert anyio.current_time() - cancelled < 1

    in_place(file, text("first", reload=setting))
    before = threads()
    anyio.run(main)
    anyio.run(until, lambda: threads() <= before)


async def test_it_ends_while_it_reads(file: Path, monkeypatch: pytest.MonkeyPatch):
    """A file system that does not answer holds up nobody."""
    reading, answered = threading.Event(), threading.Event()

    def stuck(paths: Iterable[Path], _roots: Collection[Path]) -> Mapping[Path, str]:
        reading.set()
        answered.wait(DEADLINE)
        return dict.fromkeys(paths, "")

    monkeypatch.setattr(reload, "digests", stuck)
    try:
        async with watching(file):
            await until(reading.is_set)
            cancelled = anyio.current_time()
        assert anyio.current_time() - cancelled < 1
    finally:
        answered.set()


def test_the_library_is_not_loaded_until_something_is_watched():
    """It is not on the way of the start."""
    script = "import sys, proxy.config.reload; sys.exit('watchfiles' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


# --- the way to a file -----------------------------------------------------------------------------------------------


def test_the_way_to_a_file_has_every_link(tmp_path: Path):
    """Relative, absolute and upward ones; a missing file ends it; a circle has an end."""
    real = tmp_path / "real"
    (real / "deep").mkdir(parents=True)
    (real / "file").write_text("")
    (tmp_path / "absolute").symlink_to(real)
    (real / "deep" / "up").symlink_to("../file")
    (tmp_path / "round").symlink_to("round")
    assert list(way(real / "file")) == [real / "file"]
    found = [tmp_path / "absolute", real / "deep" / "up", real / "file"]
    assert list(way(tmp_path / "absolute" / "deep" / "up")) == found
    assert list(way(tmp_path / "absolute" / "none" / "file")) == [tmp_path / "absolute", real / "none" / "file"]
    assert set(way(tmp_path / "round" / "file")) == {tmp_path / "round"}
