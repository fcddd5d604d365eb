"""Where files, folders and commands that a configuration names really are (design rule 23)."""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path


class NotFound(Exception):
    """What a configuration names is not there; its text is the reason, in one line."""


def located(written: str, folder: Path, environ: Mapping[str, str]) -> Path:
    """A path as written in a configuration in `folder`: `~` is the home folder, relative ones start at `folder`."""
    return folder / _with_home(written, environ)


def found_command(written: str, folder: Path, environ: Mapping[str, str], search: str) -> str:
    """The absolute path of a command; `search` is the child's PATH.

    With a path separator it is a path. Without, it is looked for beside the running interpreter, then on `search`.
    Raises `NotFound`.
    """
    if not written:
        raise NotFound("command is empty")
    command = _with_home(written, environ)
    if os.sep in command or (os.altsep and os.altsep in command):
        path = folder / command
        if found := shutil.which(path.name, path=str(path.parent)):
            return str(Path(found).absolute())
        raise NotFound(f"command {written} {'is not executable' if path.is_file() else f'not found: no file {path}'}")
    beside = str(Path(sys.executable).parent) if sys.executable else ""
    for folders in (beside, search):
        if found := shutil.which(command, path=folders):
            return str(Path(found).absolute())
    raise NotFound(f"command {written} not found beside the interpreter or on PATH={search}; give an absolute path")


def found_folder(written: str, folder: Path, environ: Mapping[str, str]) -> str:
    """The absolute path of a server's working directory. Raises `NotFound`."""
    path = located(written, folder, environ)
    if not path.is_dir():
        raise NotFound(f"cwd {written} is not a directory: {path}")
    return str(path)


def _with_home(written: str, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME") or environ.get("USERPROFILE")
    rest = written[1:]
    if home and written.startswith("~") and (not rest or rest[0] in {os.sep, os.altsep}):
        return home + rest
    return os.path.expanduser(written)  # noqa: PTH111 - Path.expanduser raises where there is no such user
