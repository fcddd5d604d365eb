"""Checks that need more than one value of the file: shapes of servers, names, and who names whom (rules 19 and 21)."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import get_args
from urllib.parse import urlsplit

from proxy.config.document import Plain
from proxy.config.expand import complaints, has_placeholder
from proxy.config.headers import check_pass_headers, is_header_name
from proxy.config.models import ALLOWLISTS, DENIED, SERVERS, SKILLS, Kind, ServerEntry
from proxy.config.problems import Findings, Place, did_you_mean
from proxy.config.validation import Parts
from proxy.core.catalogue import Catalogue, Skill
from proxy.core.names import SEPARATOR, sanitised

URLS = ("url", "httpUrl", "serverUrl")
ENV_FILES = ("env_file", "envFile")
KINDS = get_args(Kind)

_PREFIX = re.compile(r"[A-Za-z0-9_-]*")
_UNLIKELY_SECONDS = 10_000.0


def check_shapes(data: Mapping[str, Plain], findings: Findings) -> None:
    """Names what is wrong with servers and skills as they are written, even where other values in them are wrong."""
    present = sorted((key for key in SERVERS if key in data), key=lambda key: findings.line((key,)))
    for extra in present[1:]:
        first = findings.line((present[0],))
        findings.problem((extra,), f"servers are given twice, here and on line {first}: put all under one key")
    block = data.get("proxy")
    tokens = block.get("tokens") if isinstance(block, dict) else None
    for part in present:
        for key, entry in _entries(data.get(part)):
            if not key.strip():
                findings.problem((part, key), "a server needs a key that is not empty")
            if isinstance(entry, dict):
                _check_server(entry, (part, key), findings)
                check_pass_headers(entry, (part, key), tokens, findings)
    for key, _ in _entries(data.get(SKILLS)):
        if not key.strip():
            findings.problem((SKILLS, key), "a skill needs an id that is not empty")


def check_references(data: Mapping[str, Plain], findings: Findings) -> None:
    """Names the servers that skills and `black_tool_actions` speak of and that there are not."""
    if any(not isinstance(data.get(part, {}), dict) for part in SERVERS):
        return
    known = servers_in(data)
    for place in _references(data):
        if place[-1] not in known:
            findings.problem(place, f"unknown server {place[-1]!r}: {did_you_mean(str(place[-1]), known)}")


def servers_in(data: Mapping[str, Plain]) -> list[str]:
    """The keys of the servers of a file, right or wrong."""
    return [key for part in SERVERS for key, _ in _entries(data.get(part))]


def check_prefixes(part: str, servers: Mapping[str, ServerEntry], limit: int, findings: Findings) -> None:
    """Names prefixes that are no good (design rule 19); `limit`: the longest name of a tool, in characters."""
    owners: dict[str, str] = {}
    for key, entry in servers.items():
        place = (part, key)
        if entry.prefix is None:
            if SEPARATOR in sanitised(key):
                findings.problem(place, f"a key with {SEPARATOR} needs a prefix without it: add prefix: NAME")
                continue
        elif not _PREFIX.fullmatch(entry.prefix):
            findings.problem((*place, "prefix"), "may only hold letters A-Z and a-z, digits, _ and -")
            continue
        elif SEPARATOR in entry.prefix:
            findings.problem((*place, "prefix"), f"cannot hold {SEPARATOR}, which ends a prefix")
            continue
        elif len(entry.prefix) > limit // 2:
            findings.problem((*place, "prefix"), f"is longer than {limit // 2} characters, half of name_limit")
            continue
        prefix = sanitised(key if entry.prefix is None else entry.prefix)
        if not entry.on or not prefix:
            continue
        if (other := owners.setdefault(prefix, key)) != key:
            what = f"servers {other!r} and {key!r} have the same prefix {prefix!r}: give one of them another prefix"
            findings.problem(place if entry.prefix is None else (*place, "prefix"), what)


def check_usefulness(parts: Parts, catalogue: Catalogue, findings: Findings) -> None:
    """Notes what a right file has but that has no effect, or an unlikely one."""
    part, skills = parts.servers_key, catalogue.skills
    named = {server for skill in skills for server in skill.needs}
    for key, entry in parts.servers.items():
        if not entry.on:
            findings.note((part, key), f"disabled: it is not started{_going_without(key, skills)}")
        elif named and key not in {*named, *catalogue.start_tools}:
            findings.note((part, key), "no skill names it: it is never started")
        for setting in ("timeout", "start_timeout", "stop_timeout"):
            value: float = getattr(entry, setting)
            if value >= _UNLIKELY_SECONDS:
                findings.note((part, key, setting), f"{value:g} seconds; if milliseconds are meant, divide by 1000")


def _going_without(server: str, skills: Collection[Skill]) -> str:
    names = [skill.id for skill in skills if server in skill.needs]
    if not names:
        return ""
    return f"; skill {names[0]} goes without it" if len(names) == 1 else f"; skills {', '.join(names)} go without it"


def url_fault(url: str) -> str | None:
    """What is wrong with the URL of a server, if anything; the URL itself is not shown."""
    if any(character <= " " or character == "\x7f" for character in url):
        return "holds a space or a line break"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in {"http", "https"}:
        return "must begin with http:// or https://"
    return None if host else "names no host"


def _check_server(entry: dict[str, Plain], place: Place, findings: Findings) -> None:
    urls = [key for key in URLS if key in entry]
    for extra in urls[1:]:
        findings.problem((*place, extra), f"says the same as {urls[0]}: keep one of them")
    if all(key in entry for key in ENV_FILES):
        findings.problem((*place, ENV_FILES[1]), f"says the same as {ENV_FILES[0]}: keep one of them")
    _check_kind(entry, urls[0] if urls else None, place, findings)
    for at, text in _expanded(entry, place):
        for complaint in complaints(text):
            findings.problem(at, complaint)
        if at[2] in URLS and not has_placeholder(text) and (fault := url_fault(text)):
            findings.problem(at, fault)
    for name, _ in _entries(entry.get("env")):
        if not name or "=" in name:
            findings.problem((*place, "env", name), "the name of a variable is not empty and holds no =")
    for name, _ in _entries(entry.get("headers")):
        if not is_header_name(name):
            findings.problem((*place, "headers", name), "cannot be the name of an HTTP header")


def _check_kind(entry: dict[str, Plain], url: str | None, place: Place, findings: Findings) -> None:
    kind, command = entry.get("type"), "command" in entry
    if command and url:
        what = (
            f"has both command and {url}: keep command for a program to start, {url} for a server that runs elsewhere"
        )
        findings.problem(place, what)
    elif not command and not url:
        what = "has neither command nor url: write command for a program to start, url for a server that runs elsewhere"
        findings.problem(place, what)
    elif kind in KINDS and command != (kind == "stdio"):
        what = f"goes with {'a url' if command else 'a command'}, but there is {'a command' if command else f'a {url}'}"
        findings.problem((*place, "type"), f"{kind} {what}: correct one of them")
    elif command:
        _note_unused(entry, ("headers",), "it goes with a url", place, findings)
        if entry["command"] == "":
            findings.problem((*place, "command"), "is empty: write the program to start")
    else:
        _note_unused(
            entry, ("args", "env", "cwd", "inherit_env", "stop_timeout"), "it goes with a command", place, findings
        )


def _note_unused(entry: dict[str, Plain], keys: tuple[str, ...], why: str, place: Place, findings: Findings) -> None:
    for key in keys:
        if entry.get(key):
            findings.note((*place, key), f"not used: {why}")


def _expanded(entry: dict[str, Plain], place: Place) -> Iterator[tuple[Place, str]]:
    """The texts of a server's entry in which variables are expanded."""
    for key in ("command", "cwd", *URLS):
        if isinstance(text := entry.get(key), str):
            yield (*place, key), text
    args = entry.get("args")
    for index, text in enumerate(args if isinstance(args, list) else ()):
        if isinstance(text, str):
            yield (*place, "args", index), text
    for key in ("env", "headers"):
        for name, text in _entries(entry.get(key)):
            if isinstance(text, str):
                yield (*place, key, name), text


def _references(data: Mapping[str, Plain]) -> Iterator[Place]:
    """Every place whose last key names a server."""
    for skill, entry in _entries(data.get(SKILLS)):
        for kind in ALLOWLISTS:
            for server, _ in _entries(entry.get(kind) if isinstance(entry, dict) else None):
                yield (SKILLS, skill, kind, server)
    for server, _ in _entries(data.get(DENIED)):
        yield (DENIED, server)


def _entries(mapping: Plain) -> list[tuple[str, Plain]]:
    return list(mapping.items()) if isinstance(mapping, dict) else []
