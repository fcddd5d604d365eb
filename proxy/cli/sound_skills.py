"""Skills that are taken over from another file, without what a configuration cannot have."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from proxy.config.document import Plain
from proxy.config.files import Files
from proxy.config.load import load
from proxy.config.models import ALLOWLISTS, INTERNAL, SKILLS, SkillEntry
from proxy.config.problems import Place, Problem, Refused, shown

ROUNDS: Final = 20
"""How often what is left is looked at again: taking one thing out may show, or make, another fault."""

_HARMLESS: Final = frozenset(
    {
        *("name", "desc", "usage", "active", "pinned", "category", "tags", "version", "author", "output_schema"),
        *(key for key in ALLOWLISTS if key != INTERNAL),
    }
)
"""Keys of a skill without which it grants and does no more than with them; so does one that is unknown."""


class _Unwritten(Files):
    """Reads a file that is not there yet, and all others from the disk."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__()
        self._path = path.absolute()
        self._text = text

    def read(self, path: Path) -> bytes:
        """The content of a file; see `Files`."""
        return self._text.encode() if path == self._path else super().read(path)


def problems_of(text: str, target: Path) -> tuple[Problem, ...]:
    """What a configuration at `target` would be refused for that holds `text`."""
    try:
        load(target, os.environ, _Unwritten(target, text))
    except Refused as refused:
        return refused.problems
    return ()


def take_out(document: dict[str, Plain], problem: Problem) -> str:
    """Take what a problem is about out of the skills of `document`; what that was, empty where it is about no skill.

    That is one grant, or one key. Where the skill would do more without the key than with it, it is the whole skill.
    """
    skills = document.get(SKILLS)
    for place in _places(skills) if isinstance(skills, dict) else ():
        if _is_at(problem.path, place):
            _delete(document, place)
            return shown(place)
    return ""


def _places(skills: Mapping[str, Plain]) -> Iterator[Place]:
    """What may be taken out, the deepest places first."""
    for id_, entry in skills.items():
        for key, value in entry.items() if isinstance(entry, dict) else ():
            if key in _HARMLESS and key in ALLOWLISTS and isinstance(value, dict):
                yield from ((SKILLS, id_, key, server) for server in value)
            if key in _HARMLESS or key not in SkillEntry.model_fields:
                yield (SKILLS, id_, key)
        yield (SKILLS, id_)


def _is_at(path: str, place: Place) -> bool:
    above = shown(place)
    return path == above or path.startswith((f"{above}.", f"{above}["))


def _delete(document: dict[str, Plain], place: Place) -> None:
    mapping: Plain = document
    for key in place[:-1]:
        mapping = mapping[str(key)] if isinstance(mapping, dict) else None
    if isinstance(mapping, dict):
        del mapping[str(place[-1])]
