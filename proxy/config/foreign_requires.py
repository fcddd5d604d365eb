"""What skills require by the words of other systems: `metadata.openclaw.requires` and its like."""

from collections.abc import Iterator, Mapping
from typing import Final

from proxy.config.document import Plain, parse_text
from proxy.config.problems import Findings, Place, Refused

SYSTEMS: Final = ("openclaw", "clawdbot", "moltbot", "clawdis")
"""Names under which one family of systems has its block in `metadata`."""

_OURS: Final[Mapping[str, str]] = {
    "bins": "bins",
    "anyBins": "any_bins",
    "any_bins": "any_bins",
    "env": "env",
    "os": "os",
}
"""The keys that are looked at, and what they are called here."""


def requires_in(metadata: Plain, at: Place, findings: Findings) -> dict[str, Plain]:
    """What all blocks of `metadata` require together, as `requires` has it; empty where none does.

    A block is `NAME: {requires: {bins, anyBins, env, config, os}, os, always}`; it may be JSON in a text, and so may
    `metadata`. What is not as it should be is noted in `findings`, and costs nothing.
    """
    found: dict[str, Plain] = {}
    for system, block in _mapping(metadata).items():
        place = (*at, system)
        for key, names, where in _required(system, _mapping(block), place, findings):
            if key in found and key == "any_bins" and found[key] != names:
                findings.note(where, "not used: another block of metadata says otherwise")
            else:
                earlier = found.get(key)
                found[key] = [*dict.fromkeys([*(earlier if isinstance(earlier, list) else ()), *names])]
    return found


def _required(
    system: str, block: Mapping[str, Plain], at: Place, findings: Findings
) -> Iterator[tuple[str, list[str], Place]]:
    """What one block requires: a key of ours, names, and where they stand."""
    if str(block.get("always")).lower() == "true":
        return
    if system in SYSTEMS and "os" in block:
        yield from _named("os", block["os"], (*at, "os"), findings)
    requires = _mapping(block.get("requires"))
    for key, value in requires.items():
        place = (*at, "requires", key)
        if key in _OURS:
            yield from _named(_OURS[key], value, place, findings)
        elif value:
            findings.note(place, "not looked at: it is about another program's own settings")


def _named(key: str, value: Plain, at: Place, findings: Findings) -> Iterator[tuple[str, list[str], Place]]:
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and (texts := [name for name in names if isinstance(name, str) and name]) == names:
        if texts:
            yield key, texts, at
    elif value is not None:
        findings.note(at, "not used: must be a name, or a list of names")


def _mapping(value: Plain) -> Mapping[str, Plain]:
    """A mapping, which may be JSON in a text; empty for anything else."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return parse_text(value, "", "").data
        except Refused:
            return {}
    return value if isinstance(value, dict) else {}
