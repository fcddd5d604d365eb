"""A file's plain data as models, and what is wrong with it in plain words."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from proxy.config import instead
from proxy.config.client_entries import in_our_keys
from proxy.config.document import Plain
from proxy.config.models import (
    ALLOWLISTS,
    BIND,
    CLIENT_FILTERS,
    CLIENT_KEYS,
    DENIED,
    ON_START,
    PROFILES,
    SERVERS,
    SIGN_IN,
    SKILL_PATHS,
    SKILLS,
    STEP_LISTS,
    TIMES,
    File,
    ProfileEntry,
    ProxyBlock,
    ServerEntry,
    SkillEntry,
    SkillPath,
    StepEntry,
    binds,
    is_free,
    known_keys,
)
from proxy.config.problems import MAYBE_A_SPACE, Findings, Place, did_you_mean, lacks_a_space

Model = TypeVar("Model", bound=BaseModel)

_NULL_TEXT = 'is empty: write "" for empty text; quote it if it is a word'
_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(CLIENT_FILTERS, ": here tool_list and black_tool_actions choose tools"),
    **dict.fromkeys(TIMES, ": here timeout and start_timeout say that, in seconds"),
    **dict.fromkeys(SIGN_IN, ": here headers sign in, as Authorization: Bearer ${TOKEN}"),
}
"""What says the same here as keys of clients, by key."""
_OF_STEPS = (BIND, "arguments", "parameters", "output_schema")
_NULL_AT_KEY: Mapping[str | int, str] = {
    **dict.fromkeys(("name", "desc", "usage", "prefix"), _NULL_TEXT),
    **dict.fromkeys(
        (
            *("args", "inherit_env", "pass_headers", "call_route_clients", "allowed_hosts", "allowed_origins"),
            *(
                "tags",
                "required_capabilities",
                "requires_skills",
                "conflicts_with",
                "bins",
                "any_bins",
                "servers",
                "os",
            ),
            *(SKILL_PATHS, PROFILES, "allowed_skills", "denied_skills", "capabilities", "active"),
            *(*STEP_LISTS, "expression_env"),
        ),
        "is empty: write [] for an empty list, or leave it out",
    ),
    **dict.fromkeys(
        (
            *SERVERS,
            *ALLOWLISTS,
            SKILLS,
            DENIED,
            "env",
            "headers",
            "tokens",
            "proxy",
            "state",
            "publish",
            "limits",
            *_OF_STEPS,
        ),
        "is empty: write {} if nothing belongs there, or leave it out",
    ),
}


@dataclass(frozen=True)
class Parts:
    """The parts of a file that are right in themselves. `servers_key`: what they stand under, if anything."""

    env_file: str | None
    servers_key: str
    servers: Mapping[str, ServerEntry]
    skills: Mapping[str, SkillEntry]
    skill_paths: tuple[SkillPath, ...]
    profiles: tuple[ProfileEntry, ...] | None
    denied: Mapping[str, tuple[str, ...]]
    on_start: tuple[StepEntry, ...]
    proxy: ProxyBlock


def without_client_keys(data: Mapping[str, Plain], findings: Findings) -> dict[str, Plain]:
    """`data` with servers' entries in our keys, without what only clients understand; each is noted."""
    kept = dict(data)
    for part in SERVERS:
        servers = data.get(part)
        if isinstance(servers, dict):
            kept[part] = {key: _without_client_keys(entry, (part, key), findings) for key, entry in servers.items()}
    return kept


def _without_client_keys(entry: Plain, place: Place, findings: Findings) -> Plain:
    if not isinstance(entry, dict):
        return entry
    entry = in_our_keys(entry, place, findings)
    for key in entry.keys() & CLIENT_KEYS:
        findings.note((*place, key), f"not used, only some clients understand it{_INSTEAD.get(key, '')}")
    return {key: value for key, value in entry.items() if key not in CLIENT_KEYS}


def without_nulls(data: Mapping[str, Plain], findings: Findings) -> dict[str, Plain]:
    """`data` without its nulls, but for those in free values; each is a problem, as it never says what is meant."""
    return _without_null_values(data, (), findings)


def _without_null_values(data: Mapping[str, Plain], above: Place, findings: Findings) -> dict[str, Plain]:
    kept: dict[str, Plain] = {}
    for key, value in data.items():
        place = (*above, key)
        if binds(place) or _given(value, place, findings):
            kept[key] = value if is_free(place) else _without_nulls(value, place, findings)
    return kept


def _without_nulls(value: Plain, place: Place, findings: Findings) -> Plain:
    if isinstance(value, dict):
        return _without_null_values(value, place, findings)
    if isinstance(value, list):
        places = ((*place, index) for index in range(len(value)))
        return [
            _without_nulls(inner, at, findings) if _given(inner, at, findings) else "null"
            for at, inner in zip(places, value, strict=True)
        ]
    return value


def _given(value: Plain, place: Place, findings: Findings) -> bool:
    if value is None:
        glued = isinstance(place[-1], str) and lacks_a_space(place[-1])
        findings.problem(place, f"is empty{MAYBE_A_SPACE}" if glued else _about_null(place))
    return value is not None


def _about_null(place: Place) -> str:
    match place:
        case (part, _, str(kind), str()) if part == SKILLS and kind in ALLOWLISTS:
            return f"says neither all nor none: write [] for all {instead.GRANTED[kind]}, or leave the server out"
        case (part, str()) if part == DENIED:
            return 'says neither all nor none: write "*" to deny all tools, or leave the server out'
        case (part, str()) if part in {*SERVERS, SKILLS}:
            return "is empty: write its settings below it, or take it out"
        case (*_, int()):
            return "is empty: quote it if it is a name, or take it out"
        case (part, _, str(key), str()) if part == SKILLS and key == BIND:
            return "is empty: write {} if nothing belongs there, or leave it out"
        case (*_, "env" | "headers" | "tokens", str()):
            return _NULL_TEXT
        case _:
            return _NULL_AT_KEY.get(place[-1], "is empty: write a value, or leave it out")


def validated(data: Mapping[str, Plain], findings: Findings) -> Parts:
    """The parts of `data` (without nulls and client-only keys) that are right; the rest is named in `findings`."""
    try:
        File.model_validate(data)
    except ValidationError as error:
        _name_all(error, (), findings)
    key = next((key for key in SERVERS if key in data), SERVERS[0])
    env_file = data.get("env_file")
    return Parts(
        env_file if isinstance(env_file, str) else None,
        key,
        dict(_right(ServerEntry, data.get(key))),
        dict(_right(SkillEntry, data.get(SKILLS))),
        _alone(data, SKILL_PATHS).skill_paths,
        _alone(data, PROFILES).profiles,
        _alone(data, DENIED).black_tool_actions,
        _alone(data, ON_START).on_scope_start,
        _one(ProxyBlock, data.get("proxy")) or ProxyBlock(),
    )


def _alone(data: Mapping[str, Plain], part: str) -> File:
    """A file that holds this part alone, if it is right; else one that holds nothing."""
    return _one(File, {part: data[part]} if part in data else {}) or File()


def valid_skill(entry: Plain, place: Place, findings: Findings) -> SkillEntry | None:
    """The one skill `entry`, without nulls, which stands at `place`; None where `findings` say what is wrong."""
    try:
        return SkillEntry.model_validate(entry)
    except ValidationError as error:
        _name_all(error, place, findings)
        return None


def _name_all(errors: ValidationError, above: Place, findings: Findings) -> None:
    """Every error in what stands at `above`."""
    for error in errors.errors(include_url=False):
        place = (*above, *error["loc"])
        findings.problem(place, _in_plain_words(error, place))


def _right(model: type[Model], entries: Plain) -> Iterable[tuple[str, Model]]:
    for key, entry in entries.items() if isinstance(entries, dict) else ():
        part = _one(model, entry)
        if part is not None:
            yield key, part


def _one(model: type[Model], data: object) -> Model | None:
    try:
        return model.model_validate(data)
    except ValidationError:
        return None


def _in_plain_words(error: ErrorDetails, place: Place) -> str:
    given = error["input"]
    match error["type"]:
        case "extra_forbidden":
            what = instead.of_key(place, given) if place[0] in SERVERS or len(place) == 1 else None
            return f"unknown key: {what or did_you_mean(str(place[-1]), known_keys(place[:-1]))}"
        case "missing":
            return "is missing: write it, since there is no default"
        case "string_type":
            return f"must be text, not {kind_of(given)}"
        case "dict_type" | "model_type" | "mapping_type" | "model_attributes_type":
            return f"must be a mapping (key: value), not {kind_of(given)}{instead.of_no_mapping(place, given)}"
        case "tuple_type" | "list_type":
            return _about_no_list(place, given)
        case "literal_error":
            choices = error.get("ctx", {}).get("expected", "")
            return f"must be one of {choices}"
        case _:
            return error["msg"]


def _about_no_list(place: Place, given: object) -> str:
    if place[-1] in STEP_LISTS:
        return "must be a list of steps: write - tool: SERVER/TOOL below it"
    if isinstance(given, str):
        return f"must be a list: write {instead.of_no_list(place, given)}"
    return f"must be a list, not {kind_of(given)}"


def kind_of(value: object) -> str:
    """What a value of a file is called in messages."""
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else "text"
