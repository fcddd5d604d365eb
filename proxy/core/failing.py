"""How steps fail: which one, why, and what had run before."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from proxy.core.run import TEXT_LIMIT, StepRecord
from proxy.core.texts import shortened

Event: TypeAlias = Literal["activate", "offload", "scope_start"]
"""What a hook belongs to."""


class StepFailed(Exception):
    """A step has failed, and with it what it was part of.

    `name`: how people are told of it. `place`: where the configuration has it. `target`: what it calls, empty for
    nothing. `reason`: of which a beginning is kept: it may be all that a server says.
    """

    def __init__(self, name: str, place: str, target: str, reason: str) -> None:
        reason = shortened(reason, TEXT_LIMIT)
        where = f"{place}, {target}" if target not in {"", name} else place
        super().__init__(f"step {name} ({where}) failed: {reason}")
        self.name = name
        self.place = place
        self.target = target
        self.reason = reason

    @property
    def told(self) -> dict[str, Any]:
        """The failure as structured content."""
        told = {"step": self.name, "place": self.place, "target": self.target, "reason": self.reason}
        return {key: value for key, value in told.items() if value}


class OutOfBounds(StepFailed):
    """A step has failed in a way that ends all, whatever it says of errors."""


@dataclass(frozen=True)
class HookFailed:
    """A hook has failed: of `skill`, or of a scope's start where that is empty. `done`: the steps that had run."""

    event: Event
    skill: str
    step: StepFailed
    done: tuple[StepRecord, ...]


def steps_told(done: Iterable[StepRecord]) -> list[dict[str, Any]]:
    """Steps that have run as structured content."""
    told = [
        {"step": one.name, "target": one.target, "status": one.status, "error": one.error}
        for one in done
        if one.status != "skipped"
    ]
    return [{key: value for key, value in one.items() if value} for one in told]
