"""What a client has: the servers in the file it keeps them in, as YAML for ours."""

import re
import tomllib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PureWindowsPath
from typing import Any, Final

import yaml

from proxy.cli import jsonc
from proxy.cli.sound_skills import ROUNDS, problems_of, take_out
from proxy.config import confidential, core_schema
from proxy.config.document import Bare, Document, Plain, parse
from proxy.config.models import SERVERS, SKILLS, known_keys
from proxy.config.notations import Origins, in_our_words
from proxy.config.parser import TEXT
from proxy.config.problems import Findings, Problem, Refused
from proxy.config.triple_quotes import without_triple_quotes
from proxy.core.inventory import Json, is_json, items
from proxy.core.masking import is_secret

_OURSELVES: Final = re.compile(r"(?:.*[\\/])?mcp-skill-proxy(?:\.exe)?", re.DOTALL)
_OUR_ADDRESS: Final = re.compile(r"http://(?:127\.0\.0\.1|localhost):8765/mcp\b.*", re.DOTALL)
_TOML_PLACE: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class _Dumper(yaml.SafeDumper):
    """Writes text so that the configuration reads the same: `null`, `on` and `1e3` in quotes, unless it had none."""


def _of_text(dumper: Any, text: str) -> yaml.ScalarNode:  # noqa: ANN401 - the stubs leave a dumper open
    style = None if isinstance(core_schema.of_plain(text), str) else "'"
    if not text.isprintable():
        style = "|" if "\n" in text and text.replace("\n", "").isprintable() else '"'
    return dumper.represent_scalar(TEXT, text, style=style)


def _of_bare(dumper: Any, text: Bare) -> yaml.ScalarNode:  # noqa: ANN401 - as above
    return dumper.represent_scalar(dumper.resolve(yaml.ScalarNode, str(text), (True, False)), str(text))


_Dumper.add_representer(str, _of_text)
_Dumper.add_representer(Bare, _of_bare)


@dataclass(frozen=True)
class Source:
    """The keys of the servers that get a skill, YAML text that has the servers, and what is to be said about them.

    `skills`: how many skills the text has already; then no server gets one.
    """

    servers: tuple[str, ...]
    text: str
    notes: tuple[str, ...] = ()
    skills: int = 0


def read(source: Path, target: Path) -> Source:
    """What `source` has for a configuration at `target`: a client's config (.json, .toml), or any YAML.

    Its servers, and its skills where it has any, in our words. Raises `Refused` where there is nothing to be had.
    """
    file = str(source)
    text = _text(source)
    kind = source.suffix.lower()
    try:
        if kind in {".yaml", ".yml"}:
            document = parse(text.encode(), file)
            if document.problems:
                raise Refused(document.problems)
            return _taken_over(document, text, source, target)
        value = tomllib.loads(text) if kind == ".toml" else jsonc.parse(without_triple_quotes(text))
        if not is_json(value):
            raise _no_servers(source)
        return _taken_over(_as_document(value, file), "", source, target)
    except jsonc.NotJson as error:
        raise _refused(file, str(error), error.line) from None
    except tomllib.TOMLDecodeError as error:
        place = _TOML_PLACE.search(str(error))
        line = int(place[1] or text.count("\n") + 1) if place else 1
        raise _refused(file, f"not TOML: {_TOML_PLACE.sub('', str(error))}", line) from None
    except (RecursionError, ValueError, yaml.YAMLError):
        raise _refused(file, "cannot be put into YAML: nested too deep, or a number or time out of range") from None


def _as_document(value: Json, file: str) -> Document:
    """What a file that is not YAML says, as if it were; its lines are not known."""
    try:
        document = parse(dumped(value).encode(), file)
    except Refused as refused:
        raise Refused([replace(problem, line=1) for problem in refused.problems]) from None
    if document.problems:
        raise Refused([replace(problem, line=1) for problem in document.problems])
    return replace(document, lines={})


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


def _taken_over(document: Document, text: str, source: Path, target: Path) -> Source:
    """`text`: the source itself, where it is YAML: that is kept, with its comments, unless something has to change."""
    origins = Origins()
    findings = Findings(document.file, document.line, (), origins.written)
    data = in_our_words(document.data, findings, origins)
    said = [_about(one, text) for one in findings.noted]
    said += [f"left out: {_about(one, text)}" for one in sorted(findings.problems, key=lambda one: one.line)]
    skills = data.pop(SKILLS, None)
    skills = dict(skills) if isinstance(skills, dict) else {}
    has_skills = bool(skills)
    servers = _servers(data, source, needed=not has_skills)
    others = _without_ourselves(servers, source, needed=not has_skills)
    itself = [key for key in servers if key not in others]
    if text and not said and not has_skills and SKILLS not in document.data and _can_go_on(text, source):
        said = [f"{key}: is this proxy itself: it gets no skill, take it out" for key in itself]
        return Source(tuple(others), text, (*said, *_said(others, source, target)))
    said += [f"{key}: is this proxy itself: left out" for key in itself]
    written: dict[str, Any] = {}
    if text or has_skills:
        said += [f"left out: {key}: unknown key" for key in data if key not in {*known_keys(()), "mcp"}]
        written = {key: data[key] for key in known_keys(()) if key in data and key not in {*SERVERS, "$schema"}}
    written = {"servers": {key: _in_our_words(entry) for key, entry in others.items()}, **written}
    if not has_skills:
        return Source(tuple(others), dumped(written), (*said, *_said(others, source, target)))
    written[SKILLS] = skills
    said += _left_out_of(written, target)
    return Source((), dumped(written), (*said, *_said(others, source, target)), len(skills))


def _about(one: Problem, text: str) -> str:
    """A finding; with its line where the source is YAML."""
    return str(one if text else replace(one, line=0))


def _can_go_on(text: str, source: Path) -> bool:
    """Whether skills can be written below the text."""
    try:
        return not parse(f"{text}\n{SKILLS}: {{}}".encode(), str(source)).problems
    except Refused:
        return False


def _left_out_of(written: dict[str, Plain], target: Path) -> list[str]:
    """Take out of the skills what no configuration can have; what that was, and why."""
    said: list[str] = []
    for _ in range(ROUNDS):
        out = [(take_out(written, one), one.what) for one in problems_of(dumped(written), target)]
        if not any(place for place, _ in out):
            break
        said += [f"left out: {place}: {what}" for place, what in out if place]
    return said


def _no_servers(source: Path) -> Refused:
    return _refused(str(source), f"has no servers: looked for {', '.join(SERVERS)}")


def _servers(document: Json, source: Path, *, needed: bool) -> Json:
    """The servers of a document: at the top, or below `mcp` (VS Code's settings)."""
    for holder in (document, document.get("mcp")):
        for key in SERVERS:
            if is_json(holder) and is_json(found := holder.get(key)) and found:
                return found
    if needed:
        raise _no_servers(source)
    return {}


def _without_ourselves(servers: Json, source: Path, *, needed: bool) -> Json:
    others = {key: entry for key, entry in servers.items() if not _is_this_proxy(entry)}
    if others or not needed:
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
        ours = re.sub(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}", r"${\1}", value)
        return value if ours == value else ours  # which keeps what was a number
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
