"""What skills do by themselves: the steps of hooks and workflows, as the configuration has them."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from proxy.core.inventory import Json

HEAP: Final = "heap"
"""The name of the values that a scope keeps; `save_as: heap.NAME` puts one there."""
HOOK_TIMEOUT: Final = 30.0
"""Seconds that a hook may take, unless the configuration says otherwise."""
MOST_RETRIES: Final = 10
"""How often a step may be tried again at most."""
MOST_RETRY_DELAY_S: Final = 300.0
"""Seconds between two attempts of a step, at most."""
CALLS_PER_STEP: Final = 10
"""How many calls a workflow may make for each of its steps, unless it says otherwise."""


@dataclass(frozen=True)
class Call:
    """One step: the call of a tool of a server; or, where there is a `skill`, the invocation of that.

    `place`: where the skill, or the configuration, has it, such as `steps[0]` or `on_activate[1].parallel[0]`. `name`:
    how people are told of it. `arguments`: JSON whose texts may hold expressions; so may `when`, without which it is
    left out, and `for_each`, the values for which it is done one after the other (None: it is done once).
    `save_as`: `NAME` or `heap.NAME`, empty for nowhere. `timeout`: seconds of one attempt, None for as long as all
    steps have.
    """

    place: str
    name: str
    server: str = ""
    tool: str = ""
    skill: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    save_as: str = ""
    when: Any = True
    for_each: Any = None
    on_error: Literal["fail", "continue"] = "fail"
    timeout: float | None = None
    retries: int = 0
    """How often it is tried again, where its failure may pass and it does no harm twice."""
    retry_delay: float = 1.0
    """Seconds before each further attempt."""
    idempotent: bool = False
    """The configuration says that it does no harm twice."""

    @property
    def target(self) -> str:
        """What it calls, as the configuration says it."""
        return f"skill {self.skill}" if self.skill else f"{self.server}/{self.tool}"


@dataclass(frozen=True)
class Parallel:
    """Steps that run side by side; the next one begins when all have ended. `when`: without it none runs."""

    place: str
    steps: tuple[Call, ...]
    when: Any = True


Step: TypeAlias = Call | Parallel
Steps: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True)
class Workflow:
    """What a skill runs when it is invoked.

    `parameters`: the JSON Schema of its arguments, an object's. `output`: the value of its result, which may hold
    expressions; of the last step, where `own_output` is false. `output_schema`: the JSON Schema of that, None for any.
    `tool`: whether it is a tool of its own name while the skill is active. `needs_activation`: whether it can be
    invoked only then. `max_seconds`: of a run. `max_calls`: of servers and skills in a run. `max_runs`: at a time in a
    scope.
    """

    steps: Steps
    parameters: Json
    output: Any = None
    own_output: bool = False
    output_schema: Json | None = None
    tool: bool = False
    needs_activation: bool = False
    max_seconds: float = 300.0
    max_calls: int = CALLS_PER_STEP
    max_runs: int = 10


Bindings: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By server, tool and argument, the value that is filled in; its texts may hold expressions."""


def calls(steps: Iterable[Step]) -> Iterator[Call]:
    """Every call among `steps`, those side by side one after the other."""
    for step in steps:
        if isinstance(step, Call):
            yield step
        else:
            yield from step.steps
