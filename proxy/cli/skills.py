"""`skills`: install, remove, list and validate skill packages."""

import argparse
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from platformdirs import user_data_path

from proxy.cli.exits import GOOD, LIVE_PROBLEM, REFUSED
from proxy.cli.layout import abridged, counted, indented, not_offered, say, short
from proxy.config.files import Files
from proxy.config.library import Library, Root, find, one_line
from proxy.config.load import load
from proxy.config.members import BadPackage
from proxy.config.packages import add, installed, remove
from proxy.config.problems import Refused
from proxy.config.records import Installed, changes_of
from proxy.config.skill_md import read
from proxy.config.tree import DOCUMENTS
from proxy.core.catalogue import Skill
from proxy.core.texts import printable

_PLAIN_PATH: Final = re.compile(r"/[\w./+-]*")
"""Paths that are text in YAML as they are."""


def skills(arguments: argparse.Namespace) -> int:
    """Run the command; 0 when it is done and all is good, 1 when something is not as it should be, 2 when refused.

    Raises `Refused` where a configuration is no good.
    """
    work: Callable[[argparse.Namespace], int] = _COMMANDS[arguments.skills_command]
    try:
        return work(arguments)
    except BadPackage as error:
        print(printable(f"mcp-skill-proxy: {error}", lines=True), file=sys.stderr)
        return REFUSED


def default_folder() -> Path:
    """Where packages are installed unless another folder is named.

    Raises:
        BadPackage: the user has no home directory that it could be in.
    """
    try:
        return user_data_path("mcp-skill-proxy") / "skills"
    except RuntimeError:
        raise BadPackage("there is no home directory: name the folder of skills, or set HOME") from None


def _add(arguments: argparse.Namespace) -> int:
    into = _folder(arguments.to)
    before = {one.id: one for one in installed(into)}
    done = add(arguments.source, into, _validate, _name_of, arguments.sha256, arguments.as_id)
    say(f"{done.id}: installed in {into / done.id} ({counted(len(done.files), 'file')}, SHA-256 {done.sha256})")
    if older := before.get(done.id):
        _print_replaced(older)
    for note in find([Root(into / done.id, trusted=True, shown=done.id)], (), Files()).notes:
        say(f"note: {note}")
    print(
        "To offer it, name that folder in the configuration; what it says of tools holds once it is trusted, or once\n"
        f"skill_configs.{done.id} grants them:\n  skill_paths: [{{path: {_in_yaml(into)}, trusted: false}}]"
    )
    return GOOD


def _print_replaced(older: Installed) -> None:
    """Say what is no longer there, with what somebody had changed in it."""
    say("note: it replaces an older one" + (f", from {older.source}" if older.source else ""))
    edits = tuple(change for change in older.changes if not change.startswith("missing: "))
    for line in changes_of(replace(older, changes=edits, damage="")):
        say(f"note: gone with that: {line}")


def _in_yaml(path: Path) -> str:
    """A path as it can stand in a mapping with braces."""
    return str(path) if _PLAIN_PATH.fullmatch(str(path)) else json.dumps(str(path), ensure_ascii=False)


def _remove(arguments: argparse.Namespace) -> int:
    into = _folder(arguments.source)
    remove(arguments.id, into)
    say(f"{arguments.id}: removed from {into}")
    return GOOD


def _list(arguments: argparse.Namespace) -> int:
    if arguments.config is None:
        return _print_installed(_folder(arguments.source))
    loaded = load(arguments.config, os.environ)
    packages = {os.path.realpath(root / one.id): one for root in loaded.library.visited for one in installed(root)}
    changed = any(one.changes or one.damage for one in packages.values())
    for skill in loaded.catalogue.skills:
        say(f"{skill.id}{_state(skill)}")
        if text := abridged(skill.desc):
            print(text)
        print(indented(_origin(skill)))
        if skill.folder is not None and (one := packages.pop(skill.folder.path, None)):
            _print_changes(one)
    if not loaded.catalogue.skills:
        print("No skill is offered.")
    if loaded.left_out:
        print(not_offered(loaded.left_out))
    if rest := [(path, one) for path, one in packages.items() if one.changes or one.damage]:
        print("\nInstalled, changed and not offered:")
        for path, one in rest:
            for change in changes_of(one):
                print(indented(f"{short(Path(path))}: {change}"))
    return LIVE_PROBLEM if changed else GOOD


def _validate_all(arguments: argparse.Namespace) -> int:
    servers = load(arguments.config, os.environ).library.servers if arguments.config else None
    good = True
    for given in arguments.path:
        path = given.parent if given.name in DOCUMENTS and given.is_file() else given
        found = find([Root(path.absolute(), trusted=True, shown=str(path))], servers or (), Files())
        good = _print_found(path, found, any_server=servers is None) and good
    return GOOD if good else LIVE_PROBLEM


def _print_found(path: Path, found: Library, *, any_server: bool) -> bool:
    """Print what was found below `path`; whether all of it is good."""
    for note in found.notes:
        say(f"note: {note}")
    for left in found.left_out:
        for problem in left.problems or (f"{left.file}: {left.why}",):
            say(f"problem: {problem}")
    good = bool(found.skills) and not found.left_out
    for skill in found.skills:
        unknown = () if any_server else skill.unknown
        for problem in unknown:
            say(f"problem: {problem}")
        if unknown:
            good = False
            continue
        why = skill.folder.unserved
        say(f"{skill.id}: good" + (f"; clients that know skills are not served it: {why}" if why else ""))
    if not found.skills and not found.left_out:
        say(f"problem: {path}: no skill is there: a skill is a folder with a SKILL.md")
    return good


def _print_installed(into: Path) -> int:
    found = installed(into)
    if not found:
        say(f"No skill is installed in {into}.")
    for one in found:
        files = counted(len(one.files), "file")
        say(one.id if one.damage else f"{one.id}: {files} from {one.source}, installed {one.installed_at}")
        _print_changes(one)
    return LIVE_PROBLEM if any(one.changes or one.damage for one in found) else GOOD


def _print_changes(one: Installed) -> None:
    for line in changes_of(one):
        print(indented(f"! {line}"))


def _state(skill: Skill) -> str:
    return ", pinned" if skill.pinned else ", active at once" if skill.active else ""


def _origin(skill: Skill) -> str:
    """Where a skill is from, and what it grants."""
    where = one_line(str(short(Path(skill.folder.path)))) if skill.folder is not None else "the configuration"
    grants = ", ".join(sorted(skill.servers))
    return f"from {where}; {f'grants at {grants}' if grants else 'a guide alone'}"


def _folder(given: Path | None) -> Path:
    return (default_folder() if given is None else given).absolute()


def _validate(folder: Path) -> None:
    """Refuse a skill that could not be offered."""
    found = find([Root(folder, trusted=True, shown=folder.name)], (), Files())
    if found.left_out:
        problems = found.left_out[0].problems
        raise BadPackage("\n".join(map(str, problems)) or f"{folder.name}: {found.left_out[0].why}")


def _name_of(document: Path) -> str:
    """The name that a SKILL.md gives itself."""
    try:
        return read(document.read_bytes(), document.name, ()).name
    except Refused as refused:
        raise BadPackage(str(refused)) from None


_COMMANDS: Final[dict[str, Callable[[argparse.Namespace], int]]] = {
    "add": _add,
    "remove": _remove,
    "list": _list,
    "validate": _validate_all,
}
