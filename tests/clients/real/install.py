"""Installs clients into the work folder, from npm and PyPI, each when it is first run."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Literal

from processes import Processes, Word

INSTALL_TIMEOUT_S = 900.0
STAMP = "installed.json"
LOG = "install.log"


class NotInstalled(Exception):
    """A client that cannot be had; the message is one line."""


@dataclass(frozen=True)
class Package:
    """What to install for a client: packages of one registry, the one that gives the version first."""

    registry: Literal["npm", "pypi"]
    specs: tuple[str, ...]
    folder: str
    """Where, below the work folder; clients of one package share it."""


NODE = Package("npm", ("node@24",), "npm/node")
"""The Node that all clients on npm run on."""


@dataclass(frozen=True)
class Installer:
    """The installed clients in one work folder."""

    work: Path

    @property
    def node(self) -> Path:
        """The folder with the Node that clients are run with."""
        return self.work / NODE.folder / "node_modules" / ".bin"

    def program(self, package: Package, name: str) -> Path:
        """A program of an installed package."""
        middle = Path("node_modules", ".bin") if package.registry == "npm" else Path("bin")
        return self.work / package.folder / middle / name

    def install(self, package: Package) -> str:
        """Install what is missing; the version of the package.

        Raises:
            NotInstalled: the registry does not give it, or it cannot be installed here.
        """
        if package.registry == "npm" and package is not NODE:
            self.install(NODE)
        folder = self.work / package.folder
        stamp = folder / STAMP
        if not (stamp.is_file() and json.loads(stamp.read_text(encoding="utf-8"))["specs"] == list(package.specs)):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            version = self._npm(package, folder) if package.registry == "npm" else _pip(package, folder)
            stamp.write_text(json.dumps({"specs": package.specs, "version": version}), encoding="utf-8")
        return json.loads(stamp.read_text(encoding="utf-8"))["version"]

    def _npm(self, package: Package, folder: Path) -> str:
        npm = shutil.which("npm")
        if npm is None:
            raise NotInstalled("npm is not on PATH")
        (folder / "package.json").write_text('{"private": true}', encoding="utf-8")
        quiet = ("--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
        _run([npm, "install", *quiet, *package.specs], folder, {"PATH": f"{self.node}{os.pathsep}{os.environ['PATH']}"})
        spec = package.specs[0]
        name = spec[0] + spec[1:].partition("@")[0]
        return json.loads((folder / "node_modules" / name / "package.json").read_text(encoding="utf-8"))["version"]


def _pip(package: Package, folder: Path) -> str:
    _run([sys.executable, "-m", "venv", folder], folder)
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    _run([folder / "bin" / "python", "-m", "pip", "install", *quiet, *package.specs], folder)
    name = re.split(r"[\[<>=]", package.specs[0])[0]
    return next(iter(distributions(name=name, path=list(map(str, folder.glob("lib/python*/site-packages")))))).version


def _run(command: Sequence[Word], folder: Path, more: Mapping[str, str] | None = None) -> None:
    """Run a command behind everything else on the machine, with all that it starts ended in time."""
    polite = [*(["nice"] if shutil.which("nice") else []), *command]
    log = folder / LOG
    processes = Processes()
    try:
        with (
            log.open("wb") as output,
            processes.running(polite, {**os.environ, **(more or {})}, folder, output) as process,
        ):
            exit_code = process.wait(INSTALL_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotInstalled(f"{Path(command[0]).name}: {error}") from error
    finally:
        processes.end_all()
    if exit_code != 0:
        said = log.read_text(encoding="utf-8", errors="replace").splitlines()
        errors = [line.strip() for line in said if "error" in line.lower()] or [f"exit code {exit_code}"]
        raise NotInstalled(f"{Path(command[0]).name}: {'; '.join(errors[:2])[:200]}")
