"""What is said of tools whose definitions have changed since a client was granted them."""

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, Final

from proxy.core.definitions import Change
from proxy.core.names import Naming
from proxy.core.texts import fitting
from proxy.core.wording import refusal

CHANGES_LIMIT: Final = 1_500
"""Longest list of changed tools, in bytes."""
CHANGED_HEADING: Final = "Changed by their servers:"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
"""Names of tools that can stand in a command as they are; a server chooses them."""


def held(name: str, change: Change) -> dict[str, Any]:
    """The refusal of a tool that is withheld; `name`: as the client calls it."""
    return refusal(f"Tool {name} cannot be called: {_withheld(change)} The call was not sent.")


def changed(naming: Naming, changes: Sequence[Change]) -> str:
    """A paragraph on what has changed, a line each as far as they go; empty where nothing has."""
    if not changes:
        return ""
    lines = [_line(naming.expose(change.server, change.tool), change) for change in changes]
    shown = fitting(lines, CHANGES_LIMIT)
    more = [f"- … and {len(lines) - len(shown):,} more"] if len(shown) < len(lines) else []
    return "\n".join([CHANGED_HEADING, *shown, *more])


def _line(name: str, change: Change) -> str:
    if change.held:
        return f"- {name} is not available: {_withheld(change)}"
    return f"- {name}: its definition has changed ({_parts(change.parts)}). Read it before you call it again."


def _withheld(change: Change) -> str:
    until = (
        f"until the user approves it with `{_command(change)}`"
        if change.kept
        else "to this client any more; one that connects anew gets it as it then is"
    )
    return f"its definition has changed ({_parts(change.parts)}) since it was granted, and it is not offered {until}."


def _parts(parts: Iterable[str]) -> str:
    return ", ".join(parts)


def _command(change: Change) -> str:
    """The command that approves the tool, or all of its server where its name is none for a command line."""
    what = f"{change.server}/{change.tool}" if _PLAIN.fullmatch(change.tool) else change.server
    return f"mcp-skill-proxy pins approve {shlex.quote(what)}"
