#!/usr/bin/env python3
"""List the packages of a lock file, or what changed in it, each with the address that answers for that version."""

import argparse
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

ADDRESS = "https://api.deps.dev/v3/systems/{}/packages/{}/versions/{}"
PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^]]*])?\s*={2,3}\s*([^\s;,*]+)\s*(?:;.*)?")
# How a package that is in no registry says where it is, in the files of uv, poetry, pdm and PEP 751.
ELSEWHERE = ("archive", "directory", "editable", "file", "git", "path", "url", "vcs", "virtual")
FOREIGN = "not from a registry"


class Package(NamedTuple):
    """A locked package; `remark` says why there is nothing to ask about it, and is empty otherwise."""

    name: str
    version: str
    remark: str = ""


Reader = Callable[[str], Iterator[Package]]


def requirements(text: str) -> Iterator[Package]:
    """The packages of a requirements file, as pip reads it; nested files are named, not read."""
    for written in re.sub(r"\\\r?\n", " ", text).splitlines():
        line = re.sub(r"(^|\s)#.*|\s--hash[= ]\S+", "", written).strip()
        shown = re.sub(r"://[^/@\s]*@", "://***@", line)  # a password or token may stand there
        if pin := PINNED.fullmatch(line):
            yield Package(*pin.groups())
        elif line.startswith(("-e", "--editable")):
            yield Package(shown, "", FOREIGN)
        elif line.startswith(("-r", "-c", "--requirement", "--constraint")):
            yield Package(shown, "", "another file, not read")
        elif line and not line.startswith("-"):
            yield Package(shown, "", FOREIGN if "@" in line or "/" in line else "not pinned")


def toml(text: str) -> Iterator[Package]:
    """The packages of the lock files of uv, poetry and pdm, and of `pylock.toml`."""
    document = tomllib.loads(text)
    for entry in document.get("package", document.get("packages", [])):
        source = entry.get("source", entry)
        kind = source.get("type", "")  # poetry names it: "legacy" is a registry of one's own
        local = kind in ELSEWHERE or (not kind and any(key in source for key in ELSEWHERE))
        yield Package(entry["name"], entry.get("version", ""), FOREIGN if local else "")


def cargo(text: str) -> Iterator[Package]:
    """The packages of a `Cargo.lock`; those of the workspace itself have no source."""
    for entry in tomllib.loads(text).get("package", []):
        registry = entry.get("source", "").startswith(("registry+", "sparse+"))
        yield Package(entry["name"], entry["version"], "" if registry else FOREIGN)


def npm(text: str) -> Iterator[Package]:
    """The packages of a `package-lock.json` of npm 7 or newer; any https address passes for a registry's."""
    document = json.loads(text)
    if document.get("lockfileVersion") == 1:
        raise ValueError("it was written by npm 6 or older: run `npm install --package-lock-only` with a newer one")
    for path, entry in document["packages"].items():
        _, inside, name = path.rpartition("node_modules/")
        if inside and not entry.get("link"):
            registry = entry.get("resolved", "https:").startswith("https:")
            yield Package(entry.get("name", name), entry.get("version", ""), "" if registry else FOREIGN)


def reader_for(name: str) -> tuple[str, Reader]:
    """The system of packages and the reader for a lock file of this name; raises ValueError for any other."""
    if name in {"package-lock.json", "npm-shrinkwrap.json"}:
        return "npm", npm
    if name == "Cargo.lock":
        return "cargo", cargo
    if name in {"uv.lock", "poetry.lock", "pdm.lock"} or re.fullmatch(r"pylock\.([^.]+\.)?toml", name):
        return "pypi", toml
    if name.endswith(".txt"):
        return "pypi", requirements
    raise ValueError("not the name of a lock file that this script reads")


def packages(path: Path, reader: Reader) -> set[Package]:
    """What a file locks; raises OSError, or ValueError where it is not of that form."""
    try:
        return set(reader(path.read_text(encoding="utf-8-sig")))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("not a lock file of this kind") from error


def lines(system: str, now: set[Package], before: set[Package] | None) -> Iterator[str]:
    """One line for each package, tab-separated; with `before` only for those that are new or gone."""
    for package in sorted(now if before is None else now ^ before):
        names = (quote(part, safe="") for part in package[:2])
        what = package.remark or ADDRESS.format(system, *names)
        change = () if before is None else ("new" if package in now else "gone",)
        yield "\t".join((*change, package.name, package.version, what))


def main(arguments: list[str] | None = None) -> None:
    """Read the command line, print the lines; ends with 2 and one sentence on stderr where that is not possible."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="the lock file")
    parser.add_argument("--against", type=Path, metavar="OLDER", help="the same file as it was, under any name")
    given: Any = parser.parse_args(arguments)
    path = given.file
    try:
        system, reader = reader_for(path.name)
        now = packages(path, reader)
        path = given.against
        before = packages(path, reader) if path else None
    except (OSError, ValueError) as error:
        parser.error(f"{path}: {getattr(error, 'strerror', None) or error}")
    try:
        sys.stdout.writelines(f"{line}\n" for line in lines(system, now, before))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has read enough; nothing is left to be written when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
