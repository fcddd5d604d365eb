"""Where files, folders and commands that a configuration names really are (design rule 23)."""

import os
import pwd
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from proxy.config.expand import in_a_path


class NotFound(Exception):
    """What a configuration names is not there; its text is the reason, in one line. `searched`: a PATH, if one was."""

    def __init__(self, reason: str, searched: str = "") -> None:
        super().__init__(reason)
        self.searched = searched


def located(written: str, folder: Path, environ: Mapping[str, str]) -> Path:
    """A path as written in a configuration in `folder`: `~` is the home folder, relative ones start at `folder`."""
    return folder / _with_home(written, environ)


def path_fault(written: str, environ: Mapping[str, str]) -> str | None:
    """What is wrong with a path as it is written, whatever is there; None for nothing."""
    return in_a_path(written) or _home_fault(written, environ)


def found_command(written: str, folder: Path, environ: Mapping[str, str], search: str) -> str:
    """The absolute path of a command; `search` is the child's PATH.

    With a path separator it is a path. Without, it is looked for beside the running interpreter, then on `search`.
    Raises `NotFound`.
    """
    if not written:
        raise NotFound("command is empty")
    if fault := _home_fault(written, environ):
        raise NotFound(f"command {written}: {fault}")
    command = _with_home(written, environ)
    if found := _program(command, folder, search):
        return found
    program, *words = command.split() or [command]
    if words and (_is_bare(command) or words[0].startswith("-") or _program(program, folder, search)):
        raise NotFound(f"command {program} ... not found: the words after the program belong into args")
    if _is_bare(command):
        what = f"command {written} not found: neither beside the proxy's Python nor on PATH; give an absolute path"
        raise NotFound(what, search)
    path = folder / command
    raise NotFound(f"command {written} {'is not executable' if path.is_file() else f'not found: no file {path}'}")


def _is_bare(command: str) -> bool:
    return os.sep not in command and not (os.altsep and os.altsep in command)


def _program(command: str, folder: Path, search: str) -> str | None:
    """The absolute path of the program called `command`, if there is one."""
    path = folder / command
    beside = str(Path(sys.executable).parent) if sys.executable else ""
    for name, folders in [(command, beside), (command, search)] if _is_bare(command) else [(path.name, path.parent)]:
        if found := shutil.which(name, path=str(folders)):
            return str(Path(found).absolute())
    return None


def found_folder(written: str, folder: Path, environ: Mapping[str, str]) -> str:
    """The absolute path of a server's working directory. Raises `NotFound`."""
    if fault := _home_fault(written, environ):
        raise NotFound(f"cwd {written}: {fault}")
    path = located(written, folder, environ)
    if not path.is_dir():
        raise NotFound(f"cwd {written} is not a directory: {path}")
    return str(path)


def _home_fault(written: str, environ: Mapping[str, str]) -> str | None:
    if not written.startswith("~") or _with_home(written, environ) != written:
        return None
    user = written[1:].partition(os.sep)[0]
    what = f"there is no user {user}" if user else "~ is the home directory, and there is none: set HOME"
    return f"{what}, or write an absolute path"


def _with_home(written: str, environ: Mapping[str, str]) -> str:
    rest = written[1:]
    if written.startswith("~") and (not rest or rest[0] in {os.sep, os.altsep}):
        home = environ.get("HOME") or environ.get("USERPROFILE") or _listed_home()
        return home + rest if home else written
    return os.path.expanduser(written)  # noqa: PTH111 - Path.expanduser raises where there is no such user


def _listed_home() -> str:
    """The home directory that the system's list of users has for this one; empty where there is none."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""
