"""Notices that the configuration has changed: its file, the links that lead there, or an env file that it names."""

import os
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import anyio
import structlog
from anyio import to_thread

from proxy.config.files import Files, digests
from proxy.config.library import Library
from proxy.config.links import way
from proxy.config.load import Loaded, Problem, Refused, load

log = structlog.stdlib.get_logger("proxy.config")

INTERVAL = 3.0
"""Seconds after which the files are looked at even if nothing was heard: not every file system tells."""
SELDOM = 20
"""How much longer than a look takes, at least, it is until the next one."""
SETTLED = 0.25
"""Seconds that a changed content stays the same before it counts, lest half of a file be taken for all of it."""
STEP, GROUPED = 200, 500
"""Milliseconds between looks for news, which come when nothing more has happened in one; and until they come anyway."""


@dataclass(frozen=True)
class Reload:
    """What the configuration says from now on. `full`: servers, and the setting `reload`, may change too."""

    loaded: Loaded
    full: bool


class Watcher:
    """Watches the configuration that `current` was loaded from; `environ`: the variables that it was loaded with.

    Its `proxy.reload` is in force until a full reload brings another, so that no change of the file lifts the brake
    on the next one.
    """

    def __init__(self, current: Loaded, environ: Mapping[str, str]) -> None:
        self._path = current.path
        self._environ = environ
        self._mode = current.settings.reload
        self._seen = current.digests
        self._roots: Collection[Path] = tuple(current.library.visited)
        self._library = current.library
        self._interval = INTERVAL
        self._asked = False
        self._woken = anyio.Event()
        self._deaf = False

    def hangup(self) -> None:
        """Have the configuration read again and handed on in full, changed or not."""
        self._asked = True
        self._woken.set()

    async def run(self, on_reload: Callable[[Reload], Awaitable[None]]) -> None:
        """Hand on every new content that is good, one after the other, until cancelled; log one that is not.

        `on_reload` may raise Refused for one that cannot be put into effect.
        """
        while True:
            self._woken = anyio.Event()
            if self._mode == "off":
                if not self._asked:
                    await self._woken.wait()
                await self._look(on_reload)
                continue
            files = self._seen
            # From here on nothing goes unheard.
            with closing(await to_thread.run_sync(_Ear, files, self._library.folders)) as ear:
                self._tell_of(ear)
                await self._look(on_reload)
                if self._seen is files:  # else there may be others to listen to
                    await self._until_heard(ear)

    async def _until_heard(self, ear: "_Ear") -> None:
        """Wait for something to happen to the files, for `hangup`, or for the time to look anyway."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, ear)
            try:
                with anyio.move_on_after(self._interval):
                    await self._woken.wait()
            finally:
                ear.stop()  # a thread takes no notice of cancellation

    async def _listen(self, ear: "_Ear") -> None:
        await to_thread.run_sync(ear.listen)
        self._woken.set()

    async def _look(self, on_reload: Callable[[Reload], Awaitable[None]]) -> None:
        """Hand on or refuse what the files hold, if it is not what they held at the last look or was asked for."""
        asked, self._asked = self._asked, False
        began = time.monotonic()
        now = await to_thread.run_sync(digests, self._seen, self._roots, abandon_on_cancel=True)
        self._interval = max(INTERVAL, SELDOM * (time.monotonic() - began))
        if now == self._seen and not asked:
            return
        found = await self._settled(now)
        if found.digests == self._seen and not asked:
            return
        self._seen, self._roots = found.digests, found.roots
        self._library = found.library
        if found.loaded is None:
            self._tell_of_problems(found.problems)
            return
        full = asked or self._mode == "full"
        try:
            await on_reload(Reload(found.loaded, full))
        except Refused as refused:
            self._tell_of_problems(refused.problems)
            return
        if full:
            self._mode = found.loaded.settings.reload

    def _tell_of_problems(self, problems: Iterable[Problem]) -> None:
        told = [str(problem) for problem in problems]
        log.error("config.refused", file=str(self._path), problems=told, kept="what was loaded before")

    async def _settled(self, before: Mapping[Path, str]) -> "_Found":
        """What is found in files that are no longer being written; `before`: what they held just now."""
        while True:
            if before != self._seen:
                await anyio.sleep(SETTLED)
            found = await to_thread.run_sync(_found, self._path, self._environ, self._library, abandon_on_cancel=True)
            if found.digests == before:
                return found
            before = found.digests

    def _tell_of(self, ear: "_Ear") -> None:
        if ear.deaf and not self._deaf:
            log.warning("config.not_watched", why=ear.deaf, instead=f"looked at every {self._interval:g} s")
        self._deaf = bool(ear.deaf)


@dataclass(frozen=True)
class _Found:
    """What was found in the files and in the folders `roots`: a configuration, or the problems with it."""

    digests: Mapping[Path, str]
    roots: tuple[Path, ...]
    library: Library
    loaded: Loaded | None
    problems: tuple[Problem, ...] = ()


def _found(path: Path, environ: Mapping[str, str], last: Library) -> _Found:
    """What is there now; `last`: what was found in folders before, which goes on being watched if nothing is now."""
    files = Files(again=True)
    try:
        loaded = load(path, environ, files, last)
    except Refused as refused:
        return _Found(files.digests, files.roots, last, None, refused.problems)
    except Exception as error:  # noqa: BLE001 - boundary: whatever is wrong with a change, the clients that are there go on
        what = f"the file cannot be understood: {type(error).__name__}: {error}"
        return _Found(files.digests, files.roots, last, None, (Problem(str(path), 0, "", what),))
    if loaded.empty:
        what = "the file is empty, by accident or while it is written: write {} if nothing is to be offered"
        return _Found(files.digests, files.roots, last, None, (Problem(str(path), 0, "", what),))
    return _Found(files.digests, files.roots, loaded.library, loaded)


class _Ear:
    """Hears what happens to files, to the links that lead to them, and in folders, from its making to its closing.

    `deaf`: why it hears nothing, if so.
    """

    def __init__(self, paths: Iterable[Path], inside: Iterable[Path] = ()) -> None:
        # Its documented backend, as `awatch` has no moment between the beginning to hear and the waiting, and cannot be
        # cancelled while it waits. Imported when it is needed: not while the program starts.
        from watchfiles._rust_notify import RustNotify  # noqa: PLC0415

        steps = {step for path in paths for step in way(path)}
        self._inside = {str(folder) for folder in inside}
        folders = {str(step.parent) for step in steps}
        there = [folder for folder in folders | self._inside if os.path.isdir(folder)]  # noqa: PTH112 - Path.is_dir may raise
        self._names = folders | {str(step) for step in steps}
        self._stopped = threading.Event()
        self._notify: RustNotify | None = None
        self.deaf = ""
        try:
            self._notify = RustNotify(there, False, False, 0, False, True)  # noqa: FBT003 - takes no names
        except (OSError, RuntimeError) as error:  # such as too many watches on this machine
            self.deaf = str(error)

    def listen(self) -> None:
        """Wait until something has happened to one of them, or until `stop`; what else is in their folders is noise."""
        if self._notify is None:
            self._stopped.wait()
            return
        while True:
            news = self._notify.watch(GROUPED, STEP, 0, self._stopped)
            if isinstance(news, str) or any(map(self._concerns, (name for _, name in news))):
                return

    def _concerns(self, name: str) -> bool:
        return name in self._names or os.path.dirname(name) in self._inside  # noqa: PTH120 - thousands of them, perhaps

    def stop(self) -> None:
        """End `listen`, within a STEP."""
        self._stopped.set()

    def close(self) -> None:
        """Hear no more."""
        if self._notify is not None:
            self._notify.close()
