"""The definitions of tools that clients were granted: their digests, and what a change of them leads to.

A tool is pinned, by the digests of its definition, when a client is first granted it. It can change later while its
name stays the same, so that clients go on calling something else than what they were shown.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from proxy.core.catalogue import NOTHING, Allow, Catalogue
from proxy.core.decision import union
from proxy.core.inventory import Json

Mode: TypeAlias = Literal["warn", "hold", "ignore"]
"""What a change leads to: it is told, or the tool is withheld until the user approves it, or nothing."""

Digests: TypeAlias = Mapping[str, str]
"""The digest of each part that a definition has, in hexadecimal."""

PARTS: Final = ("title", "description", "inputSchema", "outputSchema", "annotations", "icons", "execution", "_meta")
"""The fields with a digest of their own, by whose names a change is told."""
OTHER_FIELDS: Final = "other fields"
"""All the others together: their names are the server's own words."""
DIGEST_CHARS: Final = 32
PINS_LIMIT: Final = 10_000
"""Pins of one server, at most; beyond it, those go first that the server does not offer any more."""

_canonical: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


@dataclass(frozen=True)
class Grant:
    """What a client is granted of one server's tools: those on a list that are not denied."""

    allow: Allow = NOTHING
    denied: Allow = NOTHING

    def allows(self, tool: str) -> bool:
        """Whether the tool of that name is granted."""
        return self.allow.allows(tool) and not self.denied.allows(tool)


NO_GRANT: Final = Grant()


@dataclass(frozen=True)
class Pin:
    """One tool's definition as clients were granted it, and a changed one that waits for the user's approval."""

    granted: Digests | None
    """What clients were granted; None where that is not known any more."""

    held: Digests | None = None
    """The change that was seen last and is held; None where there is none."""

    @property
    def changed(self) -> tuple[str, ...]:
        """The parts in which what is held differs from what was granted."""
        return () if self.held is None else changed_parts(self.granted or {}, self.held)


Pins: TypeAlias = Mapping[str, Pin]
"""The pins of one server by the tool's own name."""


class PinsLost(Exception):
    """The pins of earlier runs are there but cannot be read; the text says why."""


class Change(NamedTuple):
    """One tool whose definition has changed: the server's key, the tool's own name and the parts that differ."""

    server: str
    tool: str
    parts: tuple[str, ...]
    held: bool = False
    """Whether it is withheld until the user approves it."""

    kept: bool = False
    """Whether the pin is in a file, so that the user can approve it."""


def digests_of(definition: Json) -> Digests:
    """The digests of the parts of a tool's definition, all but its name; the order of keys does not count."""
    parts = {part: definition[part] for part in PARTS if part in definition}
    if others := {key: value for key, value in definition.items() if key not in parts and key != "name"}:
        parts[OTHER_FIELDS] = others
    return {
        part: hashlib.sha256(_canonical(value).encode()).hexdigest()[:DIGEST_CHARS] for part, value in parts.items()
    }


def changed_parts(before: Digests, after: Digests) -> tuple[str, ...]:
    """The names of the parts that differ, are new or are gone."""
    return tuple(part for part in (*PARTS, OTHER_FIELDS) if before.get(part) != after.get(part))


def settle(
    pins: Pins, offered: Mapping[str, Digests], granted: Callable[[str], bool], mode: Mode
) -> tuple[Pins, Mapping[str, tuple[str, ...]]]:
    """The pins by what is `offered` now, and the parts in which tools have changed; the same pins where none is new.

    `offered`: by tool, of those that are pinned or granted. `granted`: whether some client is granted a tool now.
    Unless changes are held, one counts when a client is granted the tool, and the definition is the new pin.
    """
    new: dict[str, Pin] = {}
    changes: dict[str, tuple[str, ...]] = {}
    for tool, digests in offered.items():
        pin = pins.get(tool)
        if pin is None:
            if granted(tool):
                new[tool] = Pin(digests)
        elif pin.granted == digests:
            if pin.held is not None:
                new[tool] = Pin(digests)
        elif mode == "hold":
            if pin.held != digests:
                new[tool] = Pin(pin.granted, digests)
                changes[tool] = new[tool].changed
        elif granted(tool):
            new[tool] = Pin(digests)
            changes[tool] = changed_parts(pin.granted or {}, digests)
    return (_bounded({**pins, **new}, offered) if new else pins), changes


def unknown_before(offered: Mapping[str, Digests]) -> Pins:
    """The pins where those of earlier are lost: nothing counts as granted until the user approves it."""
    return {tool: Pin(None, digests) for tool, digests in offered.items()}


def withheld(pins: Pins, offered: Mapping[str, Digests]) -> Mapping[str, tuple[str, ...]]:
    """The tools that are offered otherwise than they were granted, with the parts that differ."""
    return {
        tool: changed_parts(pin.granted or {}, digests)
        for tool, digests in offered.items()
        if (pin := pins.get(tool)) is not None and pin.granted != digests
    }


def approved(pins: Pins, tools: Collection[str]) -> Pins:
    """The pins with what is held of these tools approved."""
    return {tool: Pin(pin.held) if tool in tools and pin.held is not None else pin for tool, pin in pins.items()}


def grants(catalogue: Catalogue, skills: Collection[str]) -> Mapping[str, Grant]:
    """By server, the tools that a client is granted by these skills."""
    active = [catalogue.by_id[skill] for skill in skills if skill in catalogue.by_id]
    return {
        server: Grant(
            union(skill.tools.get(server, NOTHING) for skill in active), catalogue.denied.get(server, NOTHING)
        )
        for server in catalogue.servers_of(skills)
    }


def of_skills(catalogue: Catalogue, skills: Collection[str], changes: Collection[Change]) -> list[Change]:
    """Those of `changes` that are of tools that these skills grant."""
    granted = grants(catalogue, skills)
    return [change for change in changes if granted.get(change.server, NO_GRANT).allows(change.tool)]


def _bounded(pins: Mapping[str, Pin], offered: Collection[str]) -> Pins:
    """At most `PINS_LIMIT` of the pins; those of tools that are not offered go first, the oldest before newer ones."""
    surplus = len(pins) - PINS_LIMIT
    if surplus <= 0:
        return pins
    gone = [tool for tool in pins if tool not in offered] + [tool for tool in reversed([*pins]) if tool in offered]
    dropped = {*gone[:surplus]}
    return {tool: pin for tool, pin in pins.items() if tool not in dropped}
