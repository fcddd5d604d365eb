"""Loads a configuration file: refused whole with every problem, or turned into what the proxy works by."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from proxy.config.acting import Nameable, Spot, note_absent, start_steps
from proxy.config.checks import check_prefixes, check_references, check_shapes, check_usefulness, servers_in
from proxy.config.confidential import has_secrets
from proxy.config.document import Document, parse
from proxy.config.env_file import UnreadableEnvFile, read_env_file
from proxy.config.expand import complaints, expand, literal
from proxy.config.files import Files
from proxy.config.library import LeftOut, Library, Root, find
from proxy.config.models import ON_START, SKILL_PATHS, ProxyBlock, ServerEntry, StateBlock
from proxy.config.notations import Origins, in_our_words
from proxy.config.permissions import changeable_by_others, open_to_others
from proxy.config.places import located, path_fault
from proxy.config.problems import Findings, Place, Problem, Refused
from proxy.config.profiles import profiles_of
from proxy.config.resolve import Surroundings, has_literal_secrets, resolve
from proxy.config.skills import offered
from proxy.config.validation import Parts, validated, without_client_keys, without_nulls
from proxy.core.catalogue import Allow, Catalogue, Skill
from proxy.core.masking import Masker
from proxy.core.names import Naming
from proxy.core.profiles import EVERYBODY, Policy, Profile
from proxy.core.server import Server
from proxy.core.settings import MIN_TOKEN_CHARACTERS, PerKind, Publish, Settings
from proxy.core.steps import Steps

__all__ = ["Loaded", "Problem", "Refused", "load"]

_TOKEN = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Loaded:
    """What a configuration file says.

    `path`: the file, absolute. `catalogue`: servers without disabled ones, and the skills that are offered, which may
    name them. `library`: what was found in folders with skills; `left_out`: skills that are not offered, and why.
    `profiles`: who may use which of the skills. `servers`: key -> those that can be started; `unstartable`: key -> one
    line of reason, without secrets, for the others. `secrets`: values to mask. `notes`: `file:line: path: what`, by
    line. `empty`: the file holds nothing but comments. `digests`: every file and folder that was read, the
    configuration first, with what tells whether it has changed.
    """

    path: Path
    catalogue: Catalogue
    servers: Mapping[str, Server]
    library: Library = field(default_factory=Library, repr=False)
    profiles: tuple[Profile, ...] = (EVERYBODY,)
    left_out: tuple[LeftOut, ...] = ()
    unstartable: Mapping[str, str] = field(default_factory=dict[str, str])
    settings: Settings = field(default_factory=Settings)
    secrets: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    empty: bool = False
    digests: Mapping[Path, str] = field(default_factory=dict[Path, str], compare=False)

    @cached_property
    def policy(self) -> Policy:
        """The catalogue, and what of it exists for whom."""
        return Policy(self.catalogue, self.profiles)

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that it was read from: the configuration, then the env files that it names."""
        return tuple(self.digests)


def load(path: Path, environ: Mapping[str, str], files: Files | None = None, last: Library | None = None) -> Loaded:
    """The configuration at `path`, with variables taken from `environ` (names to values), read through `files`.

    `last`: what was found in folders before; what has not changed since is not read again.

    Raises `Refused`, with every problem, also when the file cannot be read.
    """
    files = files or Files()
    document = _read(path, files)
    origins = Origins()
    findings = Findings(document.file, document.line, document.problems, origins.written)
    data = without_client_keys(in_our_words(document.data, findings, origins), findings)
    check_shapes(data, findings)
    check_references(data, findings)
    data = without_nulls(data, findings)
    parts = validated(data, findings)
    check_prefixes(parts.servers_key, parts.servers, parts.proxy.name_limit, findings)

    folder = path.absolute().parent
    variables = partial(_variables, folder=folder, environ=environ, files=files, findings=findings)
    around = Surroundings(folder, environ, variables(parts.env_file, ("env_file",)))
    own = {
        key: variables(entry.dotenv, (parts.servers_key, key, "env_file" if entry.env_file is not None else "envFile"))
        for key, entry in parts.servers.items()
        if entry.on
    }
    _note_open_files(path, parts, around, own, findings)
    _check_lists(parts.proxy, findings)
    _check_sizes(parts.proxy, findings)
    tokens, token_values = _tokens(parts.proxy, around, findings)
    state_file = _state_file(parts.proxy.state, around, files, findings)
    findings.folders = bool(parts.skill_paths)
    decided = {id_: entry.model_fields_set for id_, entry in parts.skills.items()}
    library = find(_roots(parts, around, findings), tuple(parts.servers), files, last, decided)
    switched_on = dict.fromkeys(servers_in(data), True) | {key: entry.on for key, entry in parts.servers.items()}
    denied = {server: Allow.of(tools) for server, tools in parts.denied.items()}
    readable = _expression_env(parts.proxy, around, findings)
    nameable = Nameable(switched_on, denied, parts.proxy.expression_env)
    offer = offered(parts.skills, library, nameable, environ, findings, parts.proxy.hook_timeout)
    on_start = start_steps(parts.on_start, offer.nameable, findings)
    profiles = profiles_of(parts, offer, findings)
    if findings.problems:
        raise Refused(findings.problems)

    enabled = {key: entry for key, entry in parts.servers.items() if entry.on}
    catalogue = _catalogue(parts, enabled, offer.skills, on_start)
    check_usefulness(parts, catalogue, findings)
    note_absent(parts.on_start, (ON_START,), Spot(findings), offer.nameable, catalogue.by_id)
    limit = _message_size(parts.proxy) or Settings.max_message_size
    around = replace(around, names=frozenset({*enabled, *catalogue.by_id, *parts.proxy.tokens}))
    resolved = {key: resolve(key, entry, around, own.get(key, {}), limit) for key, entry in enabled.items()}
    secrets = frozenset({*token_values, *filter(None, (*around.env_file.values(), *readable.values()))}).union(
        *(each.secrets for each in resolved.values())
    )
    masker = Masker(secrets)
    for key, each in resolved.items():
        if each.searched:
            findings.note((parts.servers_key, key, "command"), f"searched PATH={masker.mask(each.searched)}")
    if document.empty:
        findings.note((), "the file is empty: no servers and no skills")
    if not catalogue.skills:
        findings.note((), "no enabled skill: nothing is offered")
    loaded = Loaded(
        path=path.absolute(),
        catalogue=catalogue,
        servers={key: each.server for key, each in resolved.items() if each.server is not None},
        library=library,
        profiles=profiles,
        left_out=offer.left_out,
        unstartable={key: masker.mask(each.reason) for key, each in resolved.items() if each.server is None},
        settings=_settings(parts.proxy, tokens, state_file, readable),
        secrets=secrets,
        notes=(*findings.notes, *library.notes, *offer.notes),
        empty=document.empty,
        digests=files.digests,
    )
    _ = loaded.policy.catalogues  # worked out here: of very many skills it takes a while, and clients wait later on
    return loaded


def _read(path: Path, files: Files) -> Document:
    file = str(path)
    try:
        content = files.read(path.absolute())
    except FileNotFoundError:
        what = "the file does not exist"
    except IsADirectoryError:
        what = "is a folder, not a file"
    except PermissionError:
        folder = os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises it again where the folder around is shut
        what = "is a folder, not a file" if folder else "the file may not be read: permission denied"
    except (OSError, ValueError) as error:
        what = f"the file cannot be read: {getattr(error, 'strerror', None) or error}"
    else:
        return parse(content, file)
    raise Refused([Problem(file, 0, "", what)])


def _variables(
    written: str | None, place: Place, folder: Path, environ: Mapping[str, str], files: Files, findings: Findings
) -> Mapping[str, str]:
    if written is None:
        return {}
    if not written:
        findings.problem(place, "is empty: write the path of a dotenv file, or leave it out")
        return {}
    try:
        return read_env_file(located(written, folder, environ), files)
    except UnreadableEnvFile as reason:
        findings.problem(place, path_fault(written, environ) or str(reason))
        return {}


def _note_open_files(
    path: Path, parts: Parts, around: Surroundings, own: Mapping[str, Mapping[str, str]], findings: Findings
) -> None:
    """Say which of the files that hold secrets themselves others than their owner can reach."""
    tokens = any(map(literal, parts.proxy.tokens.values()))
    told = open_to_others(path.absolute())
    if told and (tokens or any(map(has_literal_secrets, parts.servers.values()))):
        findings.note((), f"it holds secrets, and {told}")
    files: list[tuple[Place, str | None, Mapping[str, str]]] = [(("env_file",), parts.env_file, around.env_file)]
    for key, values in own.items():
        entry = parts.servers[key]
        name = "env_file" if entry.env_file is not None else "envFile"
        files.append(((parts.servers_key, key, name), entry.dotenv, values))
    for place, written, values in files:
        told = open_to_others(located(written, around.folder, around.environ)) if written else None
        if told and has_secrets(values):
            findings.note(place, f"the file holds secrets, and {told}")


def _tokens(proxy: ProxyBlock, around: Surroundings, findings: Findings) -> tuple[Mapping[str, str], Iterable[str]]:
    """The token of every principal, and all values that must be masked for them."""
    tokens: dict[str, str] = {}
    values: list[str] = []
    for principal, written in proxy.tokens.items():
        place: Place = ("proxy", "tokens", principal)
        expanded = expand(written, around.variables({}))
        faults = [*complaints(written), *(f"variable {name} is not set" for name in expanded.missing)]
        if not principal.strip():
            faults.append("a token needs a name that is not empty")
        if not faults and not _TOKEN.fullmatch(expanded.text):
            faults.append("a token is not empty and holds printable ASCII characters without spaces")
        if not faults and expanded.text in tokens.values():
            faults.append("another name has the same token: each needs its own")
        for fault in faults:
            findings.problem(place, fault)
        if not faults and len(expanded.text) < MIN_TOKEN_CHARACTERS:
            told = (
                f"has fewer than {MIN_TOKEN_CHARACTERS} characters: is refused where other machines can reach the proxy"
            )
            findings.note(place, told)
        tokens[principal] = expanded.text
        values += [expanded.text, *filter(None, expanded.values)]
    return tokens, values


def _check_lists(proxy: ProxyBlock, findings: Findings) -> None:
    """Name settings of lists whose name or meaning has changed."""
    if proxy.modern_listing is not None:
        place: Place = ("proxy", "modern_listing")
        if proxy.listing is not None and proxy.listing != proxy.modern_listing:
            told = f"is the old name of listing, and contradicts it (listing: {proxy.listing}): remove modern_listing"
            findings.problem(place, told)
        else:
            findings.note(place, "is the old name of listing, and holds for clients of every revision: write listing")
    if others := [name for name in proxy.call_route_clients if name not in Settings.call_route_clients]:
        findings.note(
            ("proxy", "call_route_clients"),
            f"{', '.join(others)}: assumed to read a changed list in time, and not given SKILL_CALL; this setting used "
            "to name the clients that need SKILL_CALL, which all other clients get now",
        )
    if proxy.call_route == "off" and "stable" in (proxy.listing, proxy.modern_listing):
        findings.note(
            ("proxy", "call_route"),
            "off, while lists never change: clients see the tools of pinned skills alone, whatever they activate",
        )


def _sizes(proxy: ProxyBlock) -> dict[str, int]:
    """The names under which the largest message is given."""
    names = ("max_message_size", "max_request_size", "max_event_size")
    return {name: size for name in names if (size := getattr(proxy, name)) is not None}


def _message_size(proxy: ProxyBlock) -> int | None:
    return next(iter(_sizes(proxy).values()), None)


def _check_sizes(proxy: ProxyBlock, findings: Findings) -> None:
    """Refuse names of one setting that contradict each other, and name the older ones."""
    given = _sizes(proxy)
    if len({*given.values()}) > 1:
        last = [*given][-1]
        told = f"{' and '.join(given)} are names of one setting, and differ: write max_message_size once"
        findings.problem(("proxy", last), told)
        return
    for name in [*given][1 if "max_message_size" in given else 0 :]:
        findings.note(
            ("proxy", name),
            "is an older name of max_message_size, which holds for every message of clients and servers: write that",
        )


def _expression_env(proxy: ProxyBlock, around: Surroundings, findings: Findings) -> Mapping[str, str]:
    """The variables that expressions may read, those that are set."""
    known = around.variables({})
    for index, name in enumerate(proxy.expression_env):
        if name not in known:
            findings.note(("proxy", "expression_env", index), f"variable {name} is not set: env.{name} is undefined")
    return {name: known[name] for name in proxy.expression_env if name in known}


def _state_file(state: StateBlock, around: Surroundings, files: Files, findings: Findings) -> str | None:
    """The absolute path of the file that remembers scopes, if there is to be one; none of `files` that were read."""
    place: Place = ("proxy", "state")
    if state.backend == "memory":
        if state.path is not None:
            findings.problem((*place, "path"), "goes with backend: sqlite: write that too, or take the path out")
        return None
    if not state.path:
        findings.problem(place, "backend: sqlite needs the path of a file: write path: FILE")
        return None
    if fault := path_fault(state.path, around.environ):
        findings.problem((*place, "path"), fault)
    path = located(state.path, around.folder, around.environ)
    if any(_same(path, file) for file in files.digests):
        findings.problem((*place, "path"), "the configuration is read from this file: write the path of one of its own")
    for told in changeable_by_others(path):
        findings.note((*place, "path"), told)
    return str(path)


def _same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except (OSError, ValueError):  # it is not there, or no path at all
        return False


def _roots(parts: Parts, around: Surroundings, findings: Findings) -> list[Root]:
    """The folders with skills, in the order of the file, each once: where it is trusted, else where it stands last."""
    roots: dict[str, tuple[int, Root]] = {}
    for index, entry in enumerate(parts.skill_paths):
        if fault := path_fault(entry.path, around.environ):
            findings.problem((SKILL_PATHS, index), fault)
            continue
        root = Root(located(entry.path, around.folder, around.environ), entry.trusted, entry.path)
        real = os.path.realpath(root.path)
        if real in roots:
            other, earlier = roots[real]
            unused, counts = (index, other) if earlier.trusted and not root.trusted else (other, index)
            findings.note((SKILL_PATHS, unused), f"not used: {SKILL_PATHS}[{counts}] is the same folder, and counts")
            if unused == index:
                continue
            del roots[real]
        roots[real] = index, root
    return [root for _, root in roots.values()]


def _catalogue(
    parts: Parts, enabled: Mapping[str, ServerEntry], skills: tuple[Skill, ...], on_start: Steps
) -> Catalogue:
    return Catalogue(
        servers=tuple(enabled),
        naming=Naming(
            prefixes={key: key if entry.prefix is None else entry.prefix for key, entry in enabled.items()},
            limit=parts.proxy.name_limit,
            skills=frozenset(skill.id for skill in skills),
            tools=frozenset(skill.id for skill in skills if skill.workflow is not None and skill.workflow.tool),
        ),
        skills=skills,
        denied={server: Allow.of(tools) for server, tools in parts.denied.items() if server in enabled},
        on_start=on_start,
        start_timeout=parts.proxy.hook_timeout,
    )


def _settings(
    proxy: ProxyBlock, tokens: Mapping[str, str], state_file: str | None, variables: Mapping[str, str]
) -> Settings:
    most, idle, size = proxy.max_scopes, proxy.scope_idle, _message_size(proxy)
    return Settings(
        list_wait=proxy.list_wait,
        activation_wait=proxy.activation_wait,
        call_route=proxy.call_route,
        call_route_clients=proxy.call_route_clients,
        listing=proxy.listing or proxy.modern_listing or Settings.listing,
        publish=Publish(
            prompts=proxy.publish.prompts, resources=proxy.publish.resources, extension=proxy.publish.extension
        ),
        guidance=proxy.guidance,
        max_scopes=PerKind(session=most.session, namespace=most.namespace, principal=most.principal),
        scope_idle=PerKind(session=idle.session, namespace=idle.namespace, principal=idle.principal),
        state_file=state_file,
        tokens=tokens,
        allowed_hosts=proxy.allowed_hosts,
        allowed_origins=proxy.allowed_origins,
        keep_alive=proxy.keep_alive,
        max_request_size=size or Settings.max_request_size,
        max_message_size=size or Settings.max_message_size,
        input_wait=proxy.input_wait,
        keep_inventories=proxy.keep_inventories,
        definitions=proxy.definitions,
        expression_env=variables,
        log_level=proxy.log_level,
        reload=proxy.reload,
        limits=proxy.limits.limits,
    )
