"""A server's entry with everything resolved, or the reason why it cannot be started (design rules 22 to 24)."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proxy.config import confidential
from proxy.config.checks import url_fault
from proxy.config.environment import child_environment
from proxy.config.expand import expand
from proxy.config.models import ServerEntry
from proxy.config.places import NotFound, found_command, found_folder
from proxy.core.server import HttpServer, Server, StdioServer

_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")


@dataclass(frozen=True)
class Surroundings:
    """What an entry is resolved in: the folder of the file, our own environment, and the file's env_file."""

    folder: Path
    environ: Mapping[str, str]
    env_file: Mapping[str, str] = field(default_factory=dict[str, str])

    def variables(self, own: Mapping[str, str]) -> Mapping[str, str]:
        """What `${…}` sees; a server's `own` env_file wins over our environment, and that over the file's env_file."""
        return {**self.env_file, **self.environ, **own}


@dataclass(frozen=True)
class Resolved:
    """`server`, or the one-line `reason` why it cannot be started; and the secrets met on the way."""

    server: Server | None
    reason: str
    secrets: frozenset[str]


def resolve(key: str, entry: ServerEntry, around: Surroundings, own: Mapping[str, str]) -> Resolved:
    """The server that `entry` describes under `key`; `own` is what its env_file holds."""
    expansion = _Expansion(around.variables(own))
    server, faults, secrets = (
        _http(key, entry, expansion) if entry.address is not None else _stdio(key, entry, around, own, expansion)
    )
    reason = _reason(expansion.missing, faults)
    return Resolved(
        None if reason else server, reason, frozenset(filter(None, [*expansion.values, *own.values(), *secrets]))
    )


class _Expansion:
    """Expands the texts of one entry and remembers what variables put in and which were not set."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self.values: list[str] = []
        self.missing: list[str] = []

    def one(self, text: str) -> str:
        expanded = expand(text, self._variables)
        self.values += expanded.values
        self.missing += expanded.missing
        return expanded.text

    def all(self, texts: Mapping[str, str]) -> dict[str, str]:
        return {name: self.one(text) for name, text in texts.items()}


def _http(key: str, entry: ServerEntry, expansion: _Expansion) -> tuple[Server, list[str], Iterable[str]]:
    server = HttpServer(
        key=key,
        url=expansion.one(entry.address or ""),
        headers=expansion.all(entry.headers),
        transport="sse" if entry.type == "sse" else "http",
        timeout=entry.timeout,
        start_timeout=entry.start_timeout,
        eager=entry.start == "eager",
        era=entry.era,
    )
    faults = [f"url {fault}" for fault in [url_fault(server.url)] if fault]
    faults += [
        f"header {name} holds a line break or a character outside ASCII"
        for name, value in server.headers.items()
        if not _HEADER_VALUE.fullmatch(value)
    ]
    return server, faults, [*confidential.of_url(server.url), *confidential.of_headers(server.headers)]


def _stdio(
    key: str, entry: ServerEntry, around: Surroundings, own: Mapping[str, str], expansion: _Expansion
) -> tuple[Server, list[str], Iterable[str]]:
    written = expansion.one(entry.command or "")
    args = tuple(expansion.one(arg) for arg in entry.args)
    explicit = expansion.all(entry.env)
    environment = child_environment(around.environ, entry.inherit_env, own, explicit)
    cwd = None if entry.cwd is None else expansion.one(entry.cwd)
    faults: list[str] = []
    command = written
    if not expansion.missing:
        try:
            command = found_command(written, around.folder, around.environ, environment.get("PATH", os.defpath))
        except NotFound as reason:
            faults.append(str(reason))
        try:
            cwd = None if cwd is None else found_folder(cwd, around.folder, around.environ)
        except NotFound as reason:
            faults.append(str(reason))
    server = StdioServer(
        key=key,
        command=command,
        args=args,
        env=environment,
        cwd=cwd,
        timeout=entry.timeout,
        start_timeout=entry.start_timeout,
        eager=entry.start == "eager",
        era=entry.era,
    )
    return server, faults, [*confidential.of_environment(environment), *confidential.of_arguments(args)]


def _reason(missing: Iterable[str], faults: Iterable[str]) -> str:
    names = list(dict.fromkeys(missing))
    if names:
        return f"variable {names[0]} is not set" if len(names) == 1 else f"variables {', '.join(names)} are not set"
    return " ".join("; ".join(faults).split("\n"))
