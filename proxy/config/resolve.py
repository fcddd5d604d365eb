"""A server's entry with everything resolved, or the reason why it cannot be started (design rules 22 to 24)."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proxy.config import confidential
from proxy.config.checks import url_fault
from proxy.config.environment import child_environment
from proxy.config.expand import editors_own, expand, literal
from proxy.config.models import ServerEntry
from proxy.config.places import NotFound, found_command, found_folder
from proxy.core.plain_values import is_plain
from proxy.core.server import HttpServer, Server, StdioServer

_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")


@dataclass(frozen=True)
class Surroundings:
    """What an entry is resolved in: the folder of the file, our own environment, and the file's env_file.

    `names`: those of servers, skills and users, which the proxy's texts are full of.
    """

    folder: Path
    environ: Mapping[str, str]
    env_file: Mapping[str, str] = field(default_factory=dict[str, str])
    names: frozenset[str] = frozenset()

    def variables(self, own: Mapping[str, str]) -> Mapping[str, str]:
        """What `${…}` sees; a server's `own` env_file wins over our environment, and that over the file's env_file."""
        return {**self.env_file, **self.environ, **own}


@dataclass(frozen=True)
class Resolved:
    """`server`, or the one-line `reason` why it cannot be started; and the secrets met on the way.

    `searched`: the PATH on which its command was not found, if that is so.
    """

    server: Server | None
    reason: str
    secrets: frozenset[str]
    searched: str = ""


@dataclass(frozen=True)
class _Attempt:
    """A server as far as it could be resolved, what is wrong with it, and its own secrets."""

    server: Server
    faults: tuple[str, ...]
    secrets: Iterable[str]
    searched: str = ""


def resolve(
    key: str, entry: ServerEntry, around: Surroundings, own: Mapping[str, str], max_message_size: int
) -> Resolved:
    """The server that `entry` describes under `key`.

    `own`: what its env_file holds. `max_message_size`: of a message that it may send, in bytes.
    """
    expansion = _Expansion(around.variables(own))
    attempt = (
        _stdio(key, entry, around, own, expansion, max_message_size)
        if entry.address is None
        else _http(key, entry, expansion, max_message_size)
    )
    reason = _reason(expansion.missing, attempt.faults)
    secrets = frozenset(filter(None, [*expansion.values, *own.values(), *attempt.secrets]))
    return Resolved(None if reason else attempt.server, reason, secrets, attempt.searched)


def has_literal_secrets(entry: ServerEntry) -> bool:
    """Whether secrets stand in an entry themselves, and not by the names of variables."""
    named = {name: literal(text) for texts in (entry.env, entry.headers) for name, text in texts.items()}
    return confidential.has_secrets(named, [*map(literal, entry.args)], literal(entry.address or ""))


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


def _http(key: str, entry: ServerEntry, expansion: _Expansion, max_message_size: int) -> _Attempt:
    server = HttpServer(
        key=key,
        url=expansion.one(entry.address or ""),
        headers=expansion.all(entry.headers),
        transport="sse" if entry.type == "sse" else "http",
        timeout=entry.timeout,
        start_timeout=entry.start_timeout,
        idle_stop=entry.idle_stop,
        eager=entry.start == "eager",
        era=entry.era,
        isolation=entry.isolation,
        pass_headers=tuple(dict.fromkeys(name.lower() for name in entry.pass_headers)),
        max_concurrency=entry.max_concurrency,
        max_connections=entry.max_connections,
        max_message_size=max_message_size,
    )
    faults = [f"url {fault}" for fault in [url_fault(server.url)] if fault]
    faults += [
        f"header {name} holds a line break or a character outside ASCII"
        for name, value in server.headers.items()
        if not _HEADER_VALUE.fullmatch(value)
    ]
    secrets = [*confidential.of_url(server.url), *confidential.of_headers(server.headers)]
    return _Attempt(server, tuple(faults), secrets)


def _stdio(
    key: str,
    entry: ServerEntry,
    around: Surroundings,
    own: Mapping[str, str],
    expansion: _Expansion,
    max_message_size: int,
) -> _Attempt:
    written = expansion.one(entry.command or "")
    args = tuple(expansion.one(arg) for arg in entry.args)
    explicit = expansion.all(entry.env)
    environment = child_environment(around.environ, entry.inherit_env, own, explicit)
    cwd = None if entry.cwd is None else expansion.one(entry.cwd)
    faults: list[NotFound] = []
    command = written
    if not expansion.missing:
        try:
            command = found_command(written, around.folder, around.environ, environment.get("PATH", os.defpath))
        except NotFound as reason:
            faults.append(reason)
        try:
            cwd = None if cwd is None else found_folder(cwd, around.folder, around.environ)
        except NotFound as reason:
            faults.append(reason)
    server = StdioServer(
        key=key,
        command=command,
        args=args,
        env=environment,
        cwd=cwd,
        timeout=entry.timeout,
        start_timeout=entry.start_timeout,
        stop_timeout=entry.stop_timeout,
        idle_stop=entry.idle_stop,
        eager=entry.start == "eager",
        era=entry.era,
        isolation=entry.isolation,
        max_concurrency=entry.max_concurrency,
        max_connections=entry.max_connections,
        max_message_size=max_message_size,
    )
    written_plain = {name for name, text in entry.env.items() if is_plain(literal(text))}
    unnamed = (explicit.keys() | environment.keys() - child_environment(around.environ).keys()) - written_plain
    secrets = [
        *confidential.of_environment(environment, unnamed, around.names),
        *confidential.of_arguments(args),
    ]
    return _Attempt(server, tuple(map(str, faults)), secrets, "".join(fault.searched for fault in faults))


def _reason(missing: Iterable[str], faults: Iterable[str]) -> str:
    names = list(dict.fromkeys(missing))
    unset = [name for name in names if not editors_own(name)]
    told = [f"${{{name}}} is the editor's: write a path" for name in names if editors_own(name)]
    if unset:
        told.append(
            f"variable {unset[0]} is not set" if len(unset) == 1 else f"variables {', '.join(unset)} are not set"
        )
    return " ".join("; ".join(told or faults).split("\n"))
