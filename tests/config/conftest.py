"""A folder with a configuration file in it, and what loading it gives."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

from proxy.config.load import Loaded, Refused, load
from proxy.core.server import HttpServer, StdioServer


@dataclass(frozen=True)
class Room:
    """A folder that holds a configuration file."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "skills.yaml"

    def load(self, text: str | bytes, environ: Mapping[str, str] | None = None) -> Loaded:
        """What the file loads as when it holds `text`, which may be indented as a whole."""
        self.file.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())
        return load(self.file, environ or {})

    def problems(self, text: str | bytes, environ: Mapping[str, str] | None = None) -> list[str]:
        """What the file is refused with, without its name."""
        with pytest.raises(Refused) as refused:
            self.load(text, environ)
        lines = str(refused.value).splitlines()
        assert lines == [str(problem) for problem in refused.value.problems]
        prefix = f"{self.file}:"
        assert all(line.startswith(prefix) for line in lines)
        return [line.removeprefix(prefix) for line in lines]

    def notes(self, text: str, environ: Mapping[str, str] | None = None) -> list[str]:
        """The notes, without the file's name."""
        return [note.removeprefix(f"{self.file}:") for note in self.load(text, environ).notes]

    def stdio(self, entry: str, environ: Mapping[str, str] | None = None) -> StdioServer:
        """The server `s` whose entry is the flow mapping `entry`."""
        loaded = self.load(f"servers: {{s: {entry}}}", environ)
        assert not loaded.unstartable
        server = loaded.servers["s"]
        assert isinstance(server, StdioServer)
        return server

    def http(self, entry: str, environ: Mapping[str, str] | None = None) -> HttpServer:
        """The same for a server with a URL."""
        loaded = self.load(f"servers: {{s: {entry}}}", environ)
        assert not loaded.unstartable
        server = loaded.servers["s"]
        assert isinstance(server, HttpServer)
        return server

    def reason(self, entry: str, environ: Mapping[str, str] | None = None) -> str:
        """Why the server `s` cannot be started."""
        loaded = self.load(f"servers: {{s: {entry}}}", environ)
        assert "s" not in loaded.servers
        assert "\n" not in loaded.unstartable["s"]
        return loaded.unstartable["s"]

    def put(self, path: str, more: str = "", desc: str = "", guide: str = "The guide.") -> Path:
        """Makes a skill of the folder at `path`; `more` is what else is in its front matter."""
        file = self.folder / path / "SKILL.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        name = file.parent.name
        file.write_text(f"---\nname: {name}\ndescription: {desc or f'About {name}.'}\n{more}---\n{guide}\n")
        return file

    def program(self, name: str) -> Path:
        """An executable file in the folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return path


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


@pytest.fixture
def no_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Puts the running interpreter into a folder of its own, which it gives."""
    beside = tmp_path / "interpreter"
    beside.mkdir()
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    return beside
