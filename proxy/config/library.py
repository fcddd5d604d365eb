"""Stub."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy.config.files import Files
from proxy.config.models import SkillEntry
from proxy.core.catalogue import Folder


@dataclass(frozen=True)
class Root:
    """Stub."""

    path: Path
    trusted: bool
    shown: str


@dataclass(frozen=True)
class LeftOut:
    """Stub."""

    id: str
    where: str
    why: str


@dataclass(frozen=True)
class FolderSkill:
    """Stub."""

    id: str
    entry: SkillEntry
    folder: Folder
    shown: str


@dataclass(frozen=True)
class Library:
    """Stub."""

    skills: tuple[FolderSkill, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    ids: frozenset[str] = frozenset()


def find(roots: Sequence[Root], servers: Collection[str], reader: Files) -> Library:
    """Stub."""
    return Library()
