"""The one place that expands `${VAR}` and `${VAR:-default}` (design rule 22)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_PLACEHOLDER = re.compile(r"\$\$\{|\$\{(?P<inside>[^}]*)(?P<end>\}?)")
_VARIABLE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_ASKING = re.compile(r"(?:input|prompt\w*):(?P<name>.+)", re.DOTALL)
_ENVIRONMENT = re.compile(r"(?:env|localEnv):(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_SHOWN = 60
_EDITORS = re.compile(
    r"(?:workspaceFolder|workspaceFolderBasename|workspaceRoot|userHome|fileDirname|fileWorkspaceFolder|pathSeparator)"
    r"(?::.*)?"
)


@dataclass(frozen=True)
class Expanded:
    """A text after expansion. `values`: what variables (not defaults) put in; `missing`: variables that are not set."""

    text: str
    values: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def expand(text: str, variables: Mapping[str, str]) -> Expanded:
    """`text` with its placeholders replaced, once; a default counts when its variable is unset or empty.

    `$${` becomes `${`. Everything else stays as it is, also placeholders that `complaints` speaks of and variables
    without a value or default.
    """
    values: list[str] = []
    missing: list[str] = []

    def replaced(found: re.Match[str]) -> str:
        if found["inside"] is None:
            return "${"
        variable = _VARIABLE.fullmatch(found["inside"]) if found["end"] else None
        if variable is None:
            return found[0]
        value, default = variables.get(variable["name"]), variable["default"]
        if default is not None and not value:
            return default
        if value is None:
            missing.append(variable["name"])
            return found[0]
        values.append(value)
        return value

    return Expanded(_PLACEHOLDER.sub(replaced, text), tuple(values), tuple(dict.fromkeys(missing)))


def literal(text: str) -> str:
    """What of `text` is written there itself: its variables are left out, and their defaults are not."""
    return expand(text, dict.fromkeys(expand(text, {}).missing, "")).text


def has_placeholder(text: str) -> bool:
    """Whether expansion may change `text`."""
    return _PLACEHOLDER.search(text) is not None


def editors_own(name: str) -> bool:
    """Whether `name` is that of a variable which editors fill in, and nobody else."""
    return _EDITORS.fullmatch(name) is not None


def in_a_path(text: str) -> str | None:
    """What to say about a placeholder in `text`, a path in which none is replaced; None where there is none."""
    if not (found := _PLACEHOLDER.search(text)):
        return None
    why = "is the editor's" if editors_own(found["inside"] or "") else "is not replaced here"
    return f"{found[0]} {why}: write a path"


def complaints(text: str) -> Iterator[str]:
    """What is wrong with the placeholders in `text`, each by name and with what to write instead."""
    for found in _PLACEHOLDER.finditer(text):
        inside = found["inside"]
        if inside is None:
            continue
        name = found[0] if len(found[0]) <= _SHOWN else found[0][:_SHOWN] + "…"
        if not found["end"]:
            yield f"{name} has no closing brace; for a literal ${{ write $${{"
            continue
        variable = _VARIABLE.fullmatch(inside)
        if variable is None:
            yield f"{name} is not a variable: {_hint(inside)}"
        elif "${" in (variable["default"] or ""):
            yield f"{name}}}: a default is plain text and holds no further variable"


def _hint(inside: str) -> str:
    if editors_own(inside):
        return "it is the editor's; write a path"
    if _ASKING.fullmatch(inside):
        return "only an editor can ask for it; set an environment variable and write ${ITS_NAME}"
    if found := _ENVIRONMENT.fullmatch(inside):
        return f"write ${{{found['name']}}}"
    return "write ${NAME} or ${NAME:-default}; for a literal ${ write $${"
