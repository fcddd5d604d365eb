"""One trial: a client in an empty home, the proxy, the scripted model and the server behind the proxy."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import model
from http_relay import relay
from install import Installer
from processes import Processes
from setups import Client, Place
from story import PROMPTS, SKILL_ID
from wire_log import WireLog

HERE = Path(__file__).parent
START_TIMEOUT_S = 30.0
SETTLE_S = 0.3
"""How long the logs may take to be written after the client has ended."""
NAMESPACE = "trial"
DEAD_PROXY = "http://127.0.0.1:9"
"""Where what a client would send to the internet goes: nothing listens there."""

GUIDE_LINES = tuple(f"Line {number:03d} of the guide: ask desk__get_weather for one city." for number in range(1, 201))
"""A guide of 13 KB, as long ones are, whose lines tell what of it a model has seen."""
OTHER_SKILLS = ("calendar", "mail", "maps", "news", "notes", "tickets", "travel")


class NotStarted(Exception):
    """The proxy could not be started; the message is one line."""


@dataclass(frozen=True)
class Ending:
    """How a client ended."""

    exit_code: int | None
    """None when it had to be stopped."""
    seconds: float


def configuration(calls: Path, settings: Mapping[str, object]) -> dict[str, object]:
    """The proxy's: the story's skill, and others beside it; `settings` are those of its block `proxy`."""
    server = {"command": sys.executable, "args": ["-I", str(HERE / "server.py"), str(calls)]}
    skill = {
        "name": "Weather",
        "desc": "The weather in a city, now.",
        "usage": "\n".join(GUIDE_LINES),
        "tool_list": {"desk": ["get_weather"]},
    }
    others = {
        name: {"desc": f"Everything about {name}.", "usage": "Nothing yet.", "tool_list": {"desk": ["get_weather"]}}
        for name in OTHER_SKILLS
    }
    return {"servers": {"desk": server}, "skill_configs": {SKILL_ID: skill, **others}, "proxy": settings}


@dataclass(frozen=True)
class Trial:
    """A client on one transport, in a folder that holds everything about the run."""

    client: Client
    transport: str
    folder: Path
    installer: Installer
    proxy: Sequence[str]
    """The proxy's program."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """What differs from its own defaults."""

    def run(self, timeout: float) -> Ending:
        """Play the story; what happened is in the folder's logs."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("home", "project", "temporary", "requests"):
            (self.folder / name).mkdir(parents=True)
        config = self.folder / "skills.json"
        content = configuration(self.folder / "calls.jsonl", self.settings)
        config.write_text(json.dumps(content, indent=1), encoding="utf-8")
        processes = Processes()
        with ExitStack() as stack:
            stack.callback(processes.end_all)
            address = stack.enter_context(model.running(self.folder)).url
            command, url = self._command(config), ""
            if self.transport != "stdio":
                command, url = [], stack.enter_context(self._served(config, processes))
            ending = self._play(self._place(address, command, url), processes, timeout)
            time.sleep(SETTLE_S)
        return ending

    def _play(self, place: Place, processes: Processes, timeout: float) -> Ending:
        launch = self.client.launch(place)
        prompts = list(PROMPTS.values())[: self.client.turns]
        environment = self._environment() | dict(launch.environment)
        begun = time.monotonic()
        with (
            (self.folder / "client.log").open("wb") as output,
            processes.running([*launch.command, *prompts], environment, self.folder / "project", output) as client,
        ):
            try:
                exit_code = client.wait(timeout)
            except subprocess.TimeoutExpired:
                exit_code = None
            return Ending(exit_code, time.monotonic() - begun)

    def _place(self, address: str, command: list[str], url: str) -> Place:
        def program(name: str) -> Path:
            return self.installer.program(self.client.package, name)

        return Place(self.folder / "home", address, command, url, program)

    def _command(self, config: Path) -> list[str]:
        """The recorder, which runs the proxy on stdio."""
        recorder = [sys.executable, "-I", "-S", str(HERE / "wire_log.py")]
        logs = [str(self.folder / "wire.jsonl"), str(self.folder / "proxy.log")]
        return [*recorder, *logs, *self.proxy, "serve", "--config", str(config)]

    @contextmanager
    def _served(self, config: Path, processes: Processes) -> Generator[str]:
        """The address of the proxy over HTTP, with the recorder before it."""
        command = [*self.proxy, "serve", "--config", str(config), "--transport", "http", "--port", "0"]
        log = self.folder / "proxy.log"
        wire = WireLog(str(self.folder / "wire.jsonl"))
        with (
            log.open("wb") as output,
            processes.running(command, self._environment(), self.folder, output) as proxy,
            relay(_port(proxy, log), wire) as port,
        ):
            suffix = f"/{NAMESPACE}" if self.transport == "namespace" else ""
            yield f"http://127.0.0.1:{port}/mcp{suffix}"

    def _environment(self) -> dict[str, str]:
        """An empty home, and nothing of the machine's own variables."""
        home = self.folder / "home"
        return {
            "CI": "1",
            "DO_NOT_TRACK": "1",
            "HOME": str(home),
            "HTTPS_PROXY": DEAD_PROXY,
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "PATH": os.pathsep.join([str(self.installer.node), "/usr/local/bin", "/usr/bin", "/bin"]),
            "SHELL": "/bin/sh",
            "TERM": "xterm-256color",
            "TMPDIR": str(self.folder / "temporary"),
            "USER": "trial",
            "XDG_CACHE_HOME": str(home / ".cache"),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_DATA_HOME": str(home / ".local" / "share"),
        }


def _port(proxy: subprocess.Popen[bytes], log: Path) -> int:
    """The port that the proxy names in its log."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and proxy.poll() is None:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        if ready := next((line for line in lines if '"proxy.ready"' in line), None):
            return int(urlsplit(json.loads(ready)["url"]).port or 0)
        time.sleep(0.05)
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    raise NotStarted(f"the proxy did not start: {''.join(said)[:200]}")
