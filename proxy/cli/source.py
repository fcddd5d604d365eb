"""What a client has: the servers in the file it keeps them in, as YAML for ours."""

import re
import tomllib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PureWindowsPath
from typing import Any, Final

import yaml

from proxy.cli import jsonc
from proxy.config import confidential
from proxy.config.core_schema import of_plain
from proxy.config.document import Bare, parse
from proxy.config.models import SERVERS, SKILLS
from proxy.config.parser import TEXT
from proxy.config.problems import Problem, Refused
from proxy.core.inventory import Json, is_json, items
from proxy.core.masking import is_secret

_OURSELVES: Final = re.compile(r"(?:.*[\\/])?mcp-skill-proxy(?:\.exe)?", re.DOTALL)
_OUR_ADDRESS: Final = re.compile(r"http://(?:127\.0\.0\.1|localhost):8765/mcp\b.*", re.DOTALL)
_TOML_PLACE: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class _Dumper(yaml.SafeDumper):
    """Writes text so that it reads back as the same: in quotes only where it had them or needs them."""


def _represented(dumper: _Dumper, text: str) -> yaml.Node:
    if isinstance(text, Bare):
        tag = dumper.resolve(yaml.ScalarNode, text, (True, False))
        return dumper.represent_scalar(tag, str(text))
    return dumper.represent_scalar(TEXT, text, None if isinstance(of_plain(text), str) else "'")


_Dumper.add_representer(str, _represented)
_Dumper.add_representer(Bare, _represented)


@dataclass(frozen=True)
class Source:
    """The keys of the servers that get a skill, YAML text that has the servers, and what is to be said about them."""

    servers: tuple[str, ...]
    text: str
    notes: tuple[str, ...] = ()


def read(source: Path, target: Path) -> Source:
    """The servers of `source`, a client's config (.json, .toml) or a YAML, for a configuration at `target`.

    Raises `Refused` where there are none to be had.
    """
    file = str(source)
    text = _text(source)
    try:
        if source.suffix.lower() in {".yaml", ".yml"}:
            return _from_yaml(text, source, target)
        document = tomllib.loads(text) if source.suffix.lower() == ".toml" else jsonc.parse(text)
        return _from_client(document, source, target)
    except jsonc.NotJson as error:
        raise _refused(file, str(error), error.line) from None
    except tomllib.TOMLDecodeError as error:
        place = _TOML_PLACE.search(str(error))
        line = int(place[1] or text.count("\n") + 1) if place else 1
        raise _refused(file, f"not TOML: {_TOML_PLACE.sub('', str(error))}", line) from None
    except (RecursionError, ValueError, yaml.YAMLError):
        raise _refused(file, "cannot be put into YAML: nested too deep, or a number or time out of range") from None


def dumped(document: object, *, flow: bool = False, style: str | None = None) -> str:
    """A document as YAML in its order, no text folded; `flow`: in brackets; `style`: the quotes of every text."""
    return yaml.dump(  # pyright: ignore[reportUnknownMemberType] - the stubs leave its `width` open
        document,
        None,
        _Dumper,
        default_flow_style=flow,
        default_style=style,
        sort_keys=False,
        allow_unicode=True,
        width=10**9,
    )


def _refused(file: str, what: str, line: int = 1) -> Refused:
    return Refused([Problem(file, line, "", what)])


def _text(source: Path) -> str:
    try:
        content = source.read_bytes()
    except OSError as error:
        raise _refused(str(source), f"cannot be read: {error.strerror}") from None
    wide = content.startswith((BOM_UTF16_LE, BOM_UTF16_BE))  # what PowerShell's > writes
    try:
        text = re.sub(r"\r\n?", "\n", content.decode("utf-16" if wide else "utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _refused(str(source), "not UTF-8 text: save the file as UTF-8", line) from None
    if not text.strip():
        raise _refused(str(source), "is empty")
    return text


def _from_yaml(text: str, source: Path, target: Path) -> Source:
    """A YAML keeps its text, with its comments, unless nothing can be put below it."""
    document = parse(text.encode(), str(source))
    if document.problems:
        raise Refused(document.problems)
    if SKILLS in document.data:
        raise _refused(str(source), f"has {SKILLS} already: edit it", document.line((SKILLS,)))
    servers = _servers(document.data, source)
    try:
        parse(f"{text}\n{SKILLS}: {{}}".encode(), str(source))
    except Refused:
        text = dumped(document.data)
    others = _without_ourselves(servers, source)
    said = [f"{key}: is this proxy itself: it gets no skill, take it out" for key in servers if key not in others]
    return Source(tuple(others), text, (*said, *_said(others, source, target)))


def _from_client(document: object, source: Path, target: Path) -> Source:
    servers = _servers(document, source)
    others = {key: _in_our_words(entry) for key, entry in _without_ourselves(servers, source).items()}
    said = [f"{key}: is this proxy itself: left out" for key in servers if key not in others]
    return Source(tuple(others), dumped({"servers": others}), (*said, *_said(others, source, target)))


def _servers(document: object, source: Path) -> Json:
    """The servers of a document: at the top, or below `mcp` (VS Code's settings)."""
    for holder in (document, document.get("mcp")) if is_json(document) else ():
        for key in SERVERS:
            if is_json(holder) and is_json(found := holder.get(key)) and found:
                return found
    raise _refused(str(source), f"has no servers: looked for {', '.join(SERVERS)}")


def _without_ourselves(servers: Json, source: Path) -> Json:
    if others := {key: entry for key, entry in servers.items() if not _is_this_proxy(entry)}:
        return others
    raise _refused(str(source), "has no servers but this proxy itself")


def _is_this_proxy(entry: object) -> bool:
    if not is_json(entry):
        return False
    args = items(entry.get("args"))
    urls = (entry.get(key) for key in ("url", "httpUrl", "serverUrl"))
    return (
        _OURSELVES.fullmatch(str(entry.get("command"))) is not None
        or "mcp-skill-proxy" in args  # uvx mcp-skill-proxy
        or any(pair == ("-m", "proxy") for pair in pairwise(args))
        or any(_OUR_ADDRESS.fullmatch(str(url)) for url in urls)
    )


def _in_our_words(entry: object) -> object:
    """An entry with VS Code's `${env:X}` and Codex's keys for headers as we write them; all else is untouched."""
    entry = _with_our_variables(entry)
    if not is_json(entry) or not is_json(entry.get("headers", {})):
        return entry
    kept: dict[str, Any] = {}
    headers: dict[str, Any] = {}
    for key, value in entry.items():
        if key in {"headers", "http_headers"} and is_json(value):
            headers |= value
        elif key == "env_http_headers" and is_json(value):
            headers |= {header: f"${{{variable}}}" for header, variable in value.items()}
        elif key == "bearer_token_env_var" and isinstance(value, str):
            headers["Authorization"] = f"Bearer ${{{value}}}"
        else:
            kept[key] = value
    return {**kept, "headers": headers} if headers else dict(entry)


def _with_our_variables(value: object) -> object:
    if isinstance(value, str):
        return re.sub(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}", r"${\1}", value)
    if is_json(value):
        return {key: _with_our_variables(inner) for key, inner in value.items()}
    return [_with_our_variables(item) for item in items(value)] or value


def _said(servers: Json, source: Path, target: Path) -> list[str]:
    """What a person should know about the entries: secrets, and paths that begin elsewhere now."""
    said: list[str] = []
    moved = source.absolute().parent.resolve() != target.absolute().parent.resolve()
    for key, entry in servers.items():
        if not is_json(entry):
            continue
        if any(value and "${" not in value for value in _secrets(entry)):
            said.append(f"{key}: contains secrets as they stood: better ${{VAR}}")
        said += [
            f"{key}: {name} {entry[name]!r} is relative, from now on to the folder of {target}"
            for name in ("command", "cwd", "env_file", "envFile")
            if moved and _is_relative(entry.get(name), bare=name == "command")
        ]
    return said


def _secrets(entry: Json) -> list[str]:
    pairs = [pair for key in ("env", "headers") if is_json(given := entry.get(key)) for pair in given.items()]
    named = [value for name, value in pairs if is_secret(name, str(value))]
    args = [arg for arg in items(entry.get("args")) if isinstance(arg, str)]
    return [*map(str, named), *confidential.of_arguments(args)]


def _is_relative(path: object, *, bare: bool) -> bool:
    """Whether `path` begins at some folder; a `bare` command is looked for on PATH."""
    if (
        not isinstance(path, str)
        or not path
        or path.startswith(("~", "/", "${"))
        or PureWindowsPath(path).is_absolute()
    ):
        return False
    return not bare or "/" in path or "\\" in path
