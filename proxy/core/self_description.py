"""What the proxy says of itself to a client that connects: the results of `initialize` and `server/discover`.

It imports nothing heavy, since a client on stdio is answered before the SDK is there.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from proxy import __version__
from proxy.core.catalogue import Catalogue, Skill
from proxy.core.foreign_text import one_line
from proxy.core.protocol import MODERN_VERSIONS
from proxy.core.published import EXTENSION
from proxy.core.settings import Publish
from proxy.core.skill_tool import is_switchable
from proxy.core.texts import NAME_LIMIT, fitting

NAME: Final = "mcp-skill-proxy"
SERVER_INFO: Final[Mapping[str, str]] = {"name": NAME, "version": __version__}

INSTRUCTIONS_LIMIT: Final = 512
"""Characters of `instructions`, at most: some clients keep no more."""
_HOW: Final = (
    "Tools here come in skills. Call the tool SKILL of this server with action activate and a skill_name to get that "
    "skill's guide and tools, and with action offload when done. Skills: "
)
_HOW_PINNED: Final = (
    "Tools here come in skills, which are always active. Call the tool SKILL of this server with action read and a "
    "skill_name to get that skill's guide. Skills: "
)
_WORD_LIMITS: Final = (60, 40, 24, 16, 0)
"""Characters of each skill's description that are tried, one after the other, until all skills fit."""


def initialize_result(version: str, catalogue: Catalogue, whole: Catalogue, publish: Publish) -> dict[str, Any]:
    """The result of `initialize` at the agreed revision `version`; the other arguments as `discover_result`."""
    return {
        "protocolVersion": version,
        "capabilities": capabilities(whole, publish),
        "serverInfo": dict(SERVER_INFO),
        **_instructions_member(catalogue),
    }


def discover_result(catalogue: Catalogue, whole: Catalogue, publish: Publish) -> dict[str, Any]:
    """The result of `server/discover` without what every modern result has.

    `catalogue`: what exists for the client, whose skills are named. `whole`: the whole configuration, by which
    capabilities are declared.
    """
    return {
        "supportedVersions": list(MODERN_VERSIONS),
        "capabilities": capabilities(whole, publish),
        **_instructions_member(catalogue),
    }


def capabilities(whole: Catalogue, publish: Publish) -> dict[str, Any]:
    """What something behind the proxy can answer; every list says that it changes, or clients would not read it again.

    All of it is declared to everybody: after a change of the configuration more may be there than was declared, or
    less.
    """
    declared: dict[str, Any] = {"tools": {"listChanged": True}}
    if not whole.skills:
        return declared
    declared |= {
        "resources": {"listChanged": True, "subscribe": True},
        "prompts": {"listChanged": True},
        "completions": {},
    }
    if whole.needed:
        declared["logging"] = {}
    if publish.extension:
        declared["extensions"] = {EXTENSION: {"directoryRead": True}}
    return declared


def instructions(catalogue: Catalogue) -> str | None:
    """The server's `instructions`: how to use `SKILL`, and the skills with the first words of what each is for.

    None where there are no skills, since the tool `SKILL` is not there either.
    """
    if not catalogue.skills:
        return None
    how = _HOW if is_switchable(catalogue) else _HOW_PINNED
    for limit in _WORD_LIMITS if len(catalogue.skills) < INSTRUCTIONS_LIMIT // len("x, ") else ():
        text = how + "; ".join(_named(skill, limit) for skill in catalogue.skills) + "."
        if len(text) <= INSTRUCTIONS_LIMIT:
            return text
    return how + _ids(catalogue, INSTRUCTIONS_LIMIT - len(how))


def _instructions_member(catalogue: Catalogue) -> dict[str, str]:
    text = instructions(catalogue)
    return {} if text is None else {"instructions": text}


def _named(skill: Skill, limit: int) -> str:
    id_ = one_line(skill.id, NAME_LIMIT)
    words = one_line(skill.desc or skill.name, limit) if limit else ""
    return f"{id_} ({words})" if words and words != id_ else id_


def _ids(catalogue: Catalogue, room: int) -> str:
    """As many ids as fit into `room` characters, and how many skills there are."""
    last = f"… ({len(catalogue.skills):,} in all)."
    ids = [f"{one_line(skill.id, NAME_LIMIT)}, " for skill in islice(catalogue.skills, room)]
    return "".join(fitting(ids, room - len(last), len)) + last
