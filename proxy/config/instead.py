"""What to write instead of a value of the wrong shape, or of a key that only a client knows."""

import re
from collections.abc import Mapping
from typing import cast

from proxy.config import confidential
from proxy.config.document import Plain
from proxy.config.models import ALLOWLISTS, DENIED, SERVERS, SKILL_PATHS, SKILLS, STEP_LISTS
from proxy.config.problems import MAYBE_A_SPACE, Place, lacks_a_space, shown

GRANTED: Mapping[str, str] = dict(zip(ALLOWLISTS, ("tools", "resources", "prompts", "tools"), strict=True))

_TOOL = re.compile(r"[\w.-]+/[\w.-]+")
_NAME = re.compile(r"[\w.-]+")
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_LONG = 80


def of_key(place: Place, value: object) -> str | None:
    """What to write for `skills`, or for a key that Codex has in a server's entry.

    Values are shown only as names of variables.
    """
    match place, value:
        case ("skill" | "skills" | "skils",), _:
            return f"did you mean {(SKILLS if isinstance(value, dict) else SKILL_PATHS)!r}?"
        case (_, _, "bearer_token_env_var"), _:
            name = value if isinstance(value, str) and _VARIABLE.fullmatch(value) else "NAME"
            return f'write headers: {{Authorization: "Bearer ${{{name}}}"}}'
        case (_, _, "env_http_headers"), dict():
            headers = cast("dict[str, Plain]", value)
            return f"write headers: {{{', '.join(_from_variable(*pair) for pair in headers.items())}}}"
        case (_, _, "http_headers" | "env_http_headers"), _:
            return 'write headers: {Authorization: "Bearer ${NAME}"}, or what else is to be sent'
        case _:
            return None


def _from_variable(header: str, variable: Plain) -> str:
    name = variable if isinstance(variable, str) and _VARIABLE.fullmatch(variable) else "NAME"
    return f'{header}: "${{{name}}}"'


def of_no_mapping(place: Place, value: Plain) -> str:
    """To be added to `must be a mapping`."""
    if isinstance(value, str) and lacks_a_space(value):
        return MAYBE_A_SPACE
    match place:
        case (_, _, str(kind)) if kind in GRANTED:
            return f': write each server with its {GRANTED[kind]}: "{_first_name(value)}: []"'
        case (str(part),) if part == DENIED:
            return f': write each server with its tools: "{_first_name(value)}: [NAME]"'
        case (*_, str(key), int()) if key in STEP_LISTS:
            return f': write "tool: {value if isinstance(value, str) and _TOOL.fullmatch(value) else "SERVER/TOOL"}"'
        case (str(part), str(key)) if part in SERVERS and isinstance(value, str):
            return f': write "{shown((key,))}: {{{_server(value)}}}"'
        case _:
            return ""


def _first_name(value: Plain) -> str:
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(first, dict):
        first = next(iter(first), None)
    return first if isinstance(first, str) and _NAME.fullmatch(first) else "SERVER"


def _server(value: str) -> str:
    program, *args = value.split() or ["PROGRAM"]
    if "://" in value:
        return "url: ..."
    return f"command: {program}, args: [...]" if args else f"command: {program}"


def of_no_list(place: Place, value: str) -> str:
    """The list that the text `value` was to be; without what its arguments call secret."""
    items = value.split() if place[-1] == "args" else [item.strip() for item in value.split(",")]
    hidden = set(confidential.of_arguments(items)) - {""}
    if len(value) > _LONG or any(character in value for character in "\"'\\\n"):
        return '["...", "..."], each item in quotes'
    return "[" + ", ".join(f'"{_without(hidden, item)}"' for item in items) + "]"


def _without(hidden: set[str], item: str) -> str:
    for secret in hidden:
        item = item.replace(secret, "...")
    return item
