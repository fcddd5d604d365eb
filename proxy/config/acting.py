"""What skills do by themselves: entries of steps, bindings and workflows as the core has them, and their mistakes."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

from proxy.config.models import BIND, HOOKS, INTERNAL, ON_START, PARALLEL, STEPS, WORKFLOW, SkillEntry, StepEntry
from proxy.config.problems import Findings, Place, did_you_mean, shown
from proxy.core.catalogue import NOTHING, Allow, is_pattern
from proxy.core.inventory import Json, is_json, items
from proxy.core.names import SEPARATOR
from proxy.core.parameters import BadSchema, result_schema_of, schema_of
from proxy.core.steps import CALLS_PER_STEP, HEAP, Bindings, Call, Parallel, Step, Steps, Workflow, calls

Names: TypeAlias = Mapping[str, Collection[str] | None]
"""The names that expressions may use, each with its members, None for any."""

_TOOLS_OF_OURS: Final = frozenset({"SKILL", "SKILL_CALL", "SKILL_INVOKE"})
_SAVED: Final = re.compile(rf"(?:{HEAP}\.)?[A-Za-z_][A-Za-z0-9_]*")
_SCOPE: Final = ("id", "namespace", "principal", "client")
_EVENT: Final = ("name", "skill", "reason")
_NO_PARAMETERS: Final[Json] = {"type": "object", "properties": {}, "additionalProperties": False}
_OPENING: Final = ("patternProperties", "$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas")
"""Keys of a schema by which others than its properties may be allowed."""


@dataclass(frozen=True)
class Invoked:
    """A skill as others see it that invoke it.

    `steps`: whether it has any. `parameters`: as written. `from_folder`: whether a folder says some of it, which may
    change without the file.
    """

    steps: bool
    parameters: Json | None
    from_folder: bool

    @cached_property
    def schema(self) -> Json | None:
        """The schema of its parameters; None where that is wrong."""
        return _NO_PARAMETERS if self.parameters is None else _schema_of(self.parameters)[0]


@dataclass(frozen=True)
class Nameable:
    """What there is for steps to name.

    `servers`: whether each server of the file is on. `denied`: tools that nobody may call. `variables`: those that
    expressions may read. `skills`: by id; None for those of which nothing is known but that they are there.
    """

    servers: Mapping[str, bool]
    denied: Mapping[str, Allow]
    variables: Collection[str]
    skills: Mapping[str, Invoked | None] = field(default_factory=dict[str, Invoked | None])

    def names(self, *others: str) -> dict[str, Collection[str] | None]:
        """What every expression may use, and these `others`."""
        known: dict[str, Collection[str] | None] = {HEAP: None, "scope": _SCOPE, "env": self.variables}
        return known | {name: _EVENT if name == "event" else None for name in others}


class Spot(NamedTuple):
    """Where something is written: whose `findings` they are, and the place there of the skill, empty for the top.

    `of_folder`: whether that is a file of a skill, which is not the configuration.
    """

    findings: Findings
    above: Place = ()
    of_folder: bool = False

    def problem(self, place: Place, what: str) -> None:
        """Something is wrong at `place` of it."""
        self.findings.problem((*self.above, *place), what)

    def note(self, place: Place, what: str) -> None:
        """Something is worth saying about `place` of it."""
        self.findings.note((*self.above, *place), what)


@dataclass(frozen=True)
class Acts:
    """What a skill does by itself, as `core.catalogue.Skill` has it."""

    on_activate: Steps = ()
    on_offload: Steps = ()
    bind: Bindings = field(default_factory=dict[str, Mapping[str, Mapping[str, Any]]])
    workflow: Workflow | None = None


NO_ACTS: Final = Acts()


def acts(entry: SkillEntry, nameable: Nameable, spot_of: Callable[[str], Spot]) -> Acts:
    """What the skill `entry` does; `spot_of`: where each of its keys is written, whose findings get what is wrong."""

    def steps_at(key: str, entries: Sequence[StepEntry], names: Names) -> tuple[Steps, Names]:
        reading = _Reading(
            spot_of(key), nameable, names, lambda server, tool: _not_granted(entry, nameable, server, tool)
        )
        return reading.steps(entries, (key,)), reading.names

    of_event = nameable.names("event")
    on_activate, _ = steps_at("on_activate", entry.on_activate, of_event)
    on_offload, _ = steps_at("on_offload", entry.on_offload, of_event)
    _note_unused(entry, nameable, spot_of)
    _refuse_granted(entry, spot_of(INTERNAL))
    bind = _bindings(entry, nameable, spot_of(BIND))
    if not entry.steps:
        _refuse_without_steps(entry, spot_of)
        return Acts(on_activate, on_offload, bind)
    parameters = _parameters(entry, spot_of("parameters"))
    steps, names = steps_at(STEPS, entry.steps, {**of_event, "params": _members(parameters)})
    _check_value(spot_of("output"), ("output",), entry.output, names)
    output_schema = _result_schema(entry, spot_of("output_schema"))
    most = entry.max_iterations
    workflow = Workflow(
        steps=steps,
        parameters=parameters,
        output=entry.output,
        own_output="output" in entry.model_fields_set,
        output_schema=output_schema,
        tool=entry.expose_as_tool,
        needs_activation=entry.activation == "required",
        max_seconds=entry.max_execution_time_seconds,
        max_calls=CALLS_PER_STEP * len([*calls(steps)]) if most is None else most,
        max_runs=entry.max_concurrent_executions,
    )
    return Acts(on_activate, on_offload, bind, workflow)


def start_steps(entries: Sequence[StepEntry], nameable: Nameable, findings: Findings) -> Steps:
    """What is done when a scope starts; what is wrong with it goes to `findings`."""
    reading = _Reading(
        Spot(findings), nameable, nameable.names("event"), lambda server, tool: _denied(nameable, server, tool)
    )
    return reading.steps(entries, (ON_START,))


def note_absent(
    entries: Sequence[StepEntry], place: Place, spot: Spot, nameable: Nameable, offered: Collection[str]
) -> None:
    """Note which steps at `place` invoke skills that there are, but that are not among those `offered`."""
    for index, entry in enumerate(entries):
        at = (*place, index)
        if entry.skill in nameable.skills and entry.skill not in offered:
            spot.note((*at, "skill"), f"skill {entry.skill} is not offered: the step will fail")
        note_absent(entry.parallel or (), (*at, PARALLEL), spot, nameable, offered)


def _members(schema: Json) -> Collection[str] | None:
    """The names of the arguments that fit the schema of an object; None where any may."""
    if schema.get("additionalProperties") is not False or not schema.keys().isdisjoint(_OPENING):
        return None
    return tuple(schema.get("properties", {}))


class _Reading:
    """Reads one list of steps. `names`: what expressions below the steps so far may use.

    `refusal`: why a tool, by server and name, may not be called here, empty where it may.
    """

    def __init__(self, spot: Spot, nameable: Nameable, names: Names, refusal: Callable[[str, str], str]) -> None:
        self._spot = spot
        self._nameable = nameable
        self._known = names
        self._refusal = refusal
        self._saved: dict[str, Place] = {}

    @property
    def names(self) -> Names:
        return {**self._known, "steps": tuple(name for name in self._saved if "." not in name)}

    def steps(self, entries: Sequence[StepEntry], place: Place) -> Steps:
        """The steps at `place`."""
        return tuple(self._step(entry, (*place, index)) for index, entry in enumerate(entries))

    def _step(self, entry: StepEntry, place: Place) -> Step:
        self._check_kind(entry, place)
        if entry.parallel is None:
            call = self._call(entry, place, self.names)
            self._save(entry, place)
            return call
        for key in sorted(entry.model_fields_set - {"tool", "skill", PARALLEL, "when"}):
            self._spot.problem((*place, key), "does not go with parallel: write it at the steps in there")
        inside = [(each, (*place, PARALLEL, index)) for index, each in enumerate(entry.parallel)]
        if not inside:
            self._spot.problem((*place, PARALLEL), "is empty: write the steps that run side by side")
        names = self.names  # none of them sees what those beside it have saved
        self._check_when(entry, place, names)
        side_by_side: list[Call] = []
        for each, at in inside:
            if each.parallel is not None:
                what = "parallel cannot stand inside of parallel: put its steps beside the others"
                self._spot.problem((*at, PARALLEL), what)
                continue
            self._check_kind(each, at)
            side_by_side.append(self._call(each, at, names))
        for each, at in inside:
            self._save(each, at)
        return Parallel(shown(place), tuple(side_by_side), entry.when)

    def _check_kind(self, entry: StepEntry, place: Place) -> None:
        kinds = [key for key in ("tool", "skill", PARALLEL) if getattr(entry, key) is not None]
        if not kinds:
            what = "a step has one of tool, skill and parallel: write tool: SERVER/TOOL, or skill: ID"
            self._spot.problem(place, what)
        for extra in kinds[1:]:
            self._spot.problem((*place, extra), f"a step has one of tool, skill and parallel, and this has {kinds[0]}")

    def _call(self, entry: StepEntry, place: Place, names: Names) -> Call:
        server, tool = "", ""
        if entry.tool is not None:
            at = (*place, "tool")
            server, tool = _tool_named(entry.tool, self._nameable, self._spot, at) or ("", "")
            if server and (refusal := self._refusal(server, tool)):
                self._spot.problem(at, refusal)
            elif server and not self._nameable.servers[server]:
                self._spot.note(at, f"server {server} is disabled: the step will fail")
        elif entry.skill is not None:
            self._check_skill(entry, entry.skill, place)
        if entry.for_each is not None:
            self._check_one(entry.for_each, list, (*place, "for_each"), names)
            names = {**names, "item": None, "index": None}
        self._check_when(entry, place, names)
        _check_value(self._spot, (*place, "arguments"), entry.arguments, names)
        if entry.idempotent and entry.retry is None:
            self._spot.note((*place, "idempotent"), "not used: it goes with retry")
        return Call(
            place=shown(place),
            name=next(filter(None, (entry.name, entry.save_as, entry.tool, entry.skill)), ""),
            server=server,
            tool=tool,
            skill=entry.skill or "",
            arguments=entry.arguments,
            save_as=entry.save_as or "",
            when=entry.when,
            for_each=entry.for_each,
            on_error=entry.on_error,
            timeout=entry.timeout,
            retries=0 if entry.retry is None else entry.retry.times,
            retry_delay=Call.retry_delay if entry.retry is None else entry.retry.delay,
            idempotent=entry.idempotent,
        )

    def _check_skill(self, entry: StepEntry, id_: str, place: Place) -> None:
        at, skills = (*place, "skill"), self._nameable.skills
        if id_ not in skills:
            self._spot.findings.unknown_skill((*self._spot.above, *at), id_, skills)
            return
        if (skill := skills[id_]) is None:
            return
        tell = self._spot.note if skill.from_folder else self._spot.problem
        if not skill.steps:
            tell(at, f"skill {id_} has no steps: there is nothing to invoke")
            return
        if (schema := skill.schema) is None:
            return
        at = (*place, "arguments")
        if (allowed := _members(schema)) is not None:
            for name in entry.arguments:
                if name not in allowed:
                    tell((*at, name), f"skill {id_} has no such parameter: {did_you_mean(name, allowed)}")
        for name in _missing(schema, entry.arguments):
            tell(at, f"skill {id_} needs the parameter {name}: add it")

    def _save(self, entry: StepEntry, place: Place) -> None:
        if (name := entry.save_as) is None:
            return
        at = (*place, "save_as")
        if not _SAVED.fullmatch(name):
            self._spot.problem(at, f"must be a name of letters, digits and _, or {HEAP}. and such a name")
        elif name in self._saved:
            self._spot.problem(at, f"{shown(self._saved[name])} is saved as that, too: each needs a name of its own")
        else:
            self._saved[name] = place

    def _check_when(self, entry: StepEntry, place: Place, names: Names) -> None:
        self._check_one(entry.when, bool, (*place, "when"), names)

    def _check_one(self, value: object, kind: type, place: Place, names: Names) -> None:
        """Name what is wrong with a value that is one expression, or of the type `kind`: bool or list."""
        sound = _check_value(self._spot, place, value, names)
        if sound and not isinstance(value, kind) and not _is_one_expression(value):
            wanted = "true, false or one expression" if kind is bool else "a list, or one expression for it"
            self._spot.problem(place, f'must be {wanted}, such as "{{{{ steps.found }}}}"')


def _parameters(entry: SkillEntry, spot: Spot) -> Json:
    if entry.parameters is None:
        return _NO_PARAMETERS
    schema, fault = _schema_of(entry.parameters)
    if fault:
        spot.problem(("parameters",), fault)
    return _NO_PARAMETERS | {"additionalProperties": True} if schema is None else schema


def _result_schema(entry: SkillEntry, spot: Spot) -> Json | None:
    if entry.output_schema is None:
        return None
    try:
        return result_schema_of(entry.output_schema)
    except BadSchema as fault:
        spot.problem(("output_schema",), str(fault))
        return None


def _schema_of(written: Json) -> tuple[Json | None, str]:
    """The schema of the parameters `written`, or what is wrong with them."""
    try:
        return schema_of(written), ""
    except BadSchema as fault:
        return None, str(fault)


def _missing(schema: Json, given: Collection[str]) -> tuple[str, ...]:
    """The arguments that a schema requires, has no default for, and that are not `given`."""
    properties = schema.get("properties", {})
    filled = {name for name, one in properties.items() if is_json(one) and "default" in one}
    return tuple(name for name in items(schema.get("required")) if name not in {*given, *filled})


def _bindings(entry: SkillEntry, nameable: Nameable, spot: Spot) -> Bindings:
    bind: dict[str, dict[str, Mapping[str, Any]]] = {}
    for written, arguments in entry.bind.items():
        place = (BIND, written)
        if (named := _tool_named(written, nameable, spot, place)) is None:
            continue
        server, tool = named
        if not nameable.servers[server]:
            spot.note(place, f"not used: server {server} is disabled")
        for argument, value in arguments.items():
            if not argument:
                spot.problem((*place, argument), "the name of an argument is not empty")
            _check_value(spot, (*place, argument), value, nameable.names())
        if arguments:
            bind.setdefault(server, {})[tool] = arguments
    return bind


def _note_unused(entry: SkillEntry, nameable: Nameable, spot_of: Callable[[str], Spot]) -> None:
    hooked = any(getattr(entry, key) for key in HOOKS)
    if entry.hook_timeout is not None and not hooked:
        spot_of("hook_timeout").note(("hook_timeout",), f"not used: it goes with {' and '.join(HOOKS)}")
    if entry.internal_tools and not hooked and not entry.steps:
        spot_of(INTERNAL).note((INTERNAL,), "not used: only steps may call them, and there are none")
    for server in entry.internal_tools:
        if nameable.servers.get(server) is False:
            spot_of(INTERNAL).note((INTERNAL, server), f"server {server} is disabled: its tools cannot be called")


def _refuse_granted(entry: SkillEntry, spot: Spot) -> None:
    """Name internal tools that clients may call, too, by what the skill says itself."""
    for server, tools in entry.internal_tools.items():
        for tool in tools:
            if not is_pattern(tool) and _allows(entry.tool_list.get(server), tool):
                what = f"{tool} is on tool_list, too, by which clients may call it: take it out of one of the two"
                spot.problem((INTERNAL, server), what)


def _refuse_without_steps(entry: SkillEntry, spot_of: Callable[[str], Spot]) -> None:
    """Name what is said of steps that there are not; a file that has a folder's go may leave the rest there."""
    for key in WORKFLOW:
        spot = spot_of(key)
        if key in entry.model_fields_set and (spot_of(STEPS).of_folder or not spot.of_folder):
            spot.problem((key,), "goes with steps, of which there are none: write some, or take it out")


def _tool_named(text: str, nameable: Nameable, spot: Spot, place: Place) -> tuple[str, str] | None:
    """The server and the tool that `text` at `place` names; None where it is wrong."""
    servers = [key for key in nameable.servers if text.startswith(f"{key}/")]
    if servers:
        server = max(servers, key=len)
        tool = text.removeprefix(f"{server}/")
        if not tool:
            spot.problem(place, f"names no tool of server {server}: write {server}/TOOL")
        elif is_pattern(tool):
            spot.problem(place, "is a pattern: write the name of one tool")
        else:
            return server, tool
        return None
    server, slash, _ = text.partition("/")
    if slash:
        spot.problem(place, f"unknown server {server!r}: {did_you_mean(server, nameable.servers)}")
    elif text in _TOOLS_OF_OURS:
        spot.problem(place, "a step calls a tool of a server, or `skill: ID`; only clients activate skills")
    elif text in nameable.skills:
        spot.problem(place, f"names no server: write SERVER/TOOL, or skill: {text}")
    else:
        key, separator, tool = text.partition(SEPARATOR)
        instead = f"{key}/{tool}" if separator and key in nameable.servers else "SERVER/TOOL"
        spot.problem(place, f"names no server: write {instead}")
    return None


def _denied(nameable: Nameable, server: str, tool: str) -> str:
    return "is denied by black_tool_actions" if nameable.denied.get(server, NOTHING).allows(tool) else ""


def _not_granted(entry: SkillEntry, nameable: Nameable, server: str, tool: str) -> str:
    if denied := _denied(nameable, server, tool):
        return denied
    if any(_allows(lists.get(server), tool) for lists in (entry.tool_list, entry.internal_tools)):
        return ""
    line = f"{INTERNAL}: {{{shown((server,))}: [{shown((tool,))}]}}"
    return f"the skill does not grant this tool: add {line}, or to tool_list what clients may call, too"


def _allows(listed: Collection[str] | None, tool: str) -> bool:
    """Whether a tool is on a list as it is written, where an empty one means all."""
    return listed is not None and (not listed or Allow.of(listed).allows(tool))


def _check_value(spot: Spot, place: Place, value: object, names: Names) -> bool:
    """Whether the expressions in a value are right; what is wrong is named."""
    if not _may_hold_expressions(value):
        return True
    from proxy.core.expressions import faults  # noqa: PLC0415 - slow, and seldom needed

    found = [*faults(value, names)]
    for inside, what in found:
        spot.problem((*place, *inside), what)
    return not found


def _may_hold_expressions(value: object) -> bool:
    if is_json(value):
        return any(map(_may_hold_expressions, value.values()))
    return "{" in value if isinstance(value, str) else any(map(_may_hold_expressions, items(value)))


def _is_one_expression(value: object) -> bool:
    if not _may_hold_expressions(value):
        return False
    from proxy.core.expressions import is_one_expression  # noqa: PLC0415 - slow, and seldom needed

    return is_one_expression(value)
