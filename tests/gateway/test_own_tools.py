"""The lists of a scope whose skills can be invoked: which of our own tools stand in them, and when they differ."""

from dataclasses import replace

import pytest

from proxy.core.catalogue import EVERYTHING, Catalogue, Skill
from proxy.core.inventory import Offer
from proxy.core.names import Naming
from proxy.core.profiles import Policy
from proxy.core.settings import every_kind
from proxy.core.steps import Call, Workflow
from proxy.gateway.gate import Gate
from proxy.store.memory import MemoryStore
from tests.gateway.world import SCOPE, Servers

READS = {"name": "read", "annotations": {"readOnlyHint": True, "openWorldHint": False}}
CALL = Call("steps[0]", "read", "s", "read")
RUNS = Workflow((CALL,), {"type": "object", "properties": {}}, tool=True)
SKILLS = (
    Skill("second", "", "", "", tools={"s": EVERYTHING}),
    Skill("run", "", "", "", workflow=replace(RUNS, tool=False)),
    Skill("s__tool", "", "", "", workflow=RUNS),
    Skill("tool", "", "", "", workflow=RUNS),
)
NAMING = Naming({"s": "s"}, tools=frozenset({"s__tool", "tool"}))
MARKED = NAMING.tool_of("s__tool")


def gate(*skills: Skill, offer: Offer | None = None) -> Gate:
    servers = Servers({"s": offer or Offer.of(tools=[READS, {"name": "a"}])})
    return Gate(Policy(Catalogue(("s",), NAMING, skills)), servers, MemoryStore(every_kind(10)))


def names(gate: Gate, *active: str, with_call: bool = False) -> list[str]:
    sight = gate.sight(SCOPE, active)
    return [tool["name"] for tool in (sight.with_call if with_call else sight.tools)]


def test_what_runs_skills_stands_before_the_tools_of_servers():
    """Ours first, then the active skills that are tools, in the order of the file (rule 8)."""
    found = gate(*SKILLS)

    assert names(found) == ["SKILL", "SKILL_INVOKE"]
    assert names(found, "tool", "second", "run") == ["SKILL", "SKILL_INVOKE", "tool", "s__a", "s__read"]
    assert names(found, "tool", "s__tool", with_call=True) == ["SKILL", "SKILL_CALL", "SKILL_INVOKE", MARKED, "tool"]


def test_the_names_of_skills_that_are_tools_lead_to_the_skills():
    """Those that are active alone, and no other skill."""
    found = gate(*SKILLS)

    assert found.sight(SCOPE, ["tool", "s__tool", "run"]).own_tools == {MARKED: "s__tool", "tool": "tool"}
    assert found.sight(SCOPE, ["second", "run"]).own_tools == {}


def test_without_a_skill_that_can_be_invoked_there_is_nothing_to_invoke():
    """The tool is there only where it is of use."""
    assert names(gate(SKILLS[0]), "second") == ["SKILL", "s__a", "s__read"]


def test_clients_are_told_when_a_skill_becomes_a_tool():
    """It is in their list then."""
    found = gate(*SKILLS)

    before, after = found.lists(SCOPE, []), found.lists(SCOPE, ["tool"])

    assert before["tools"] != after["tools"]


def test_clients_are_told_when_what_is_known_of_a_skills_steps_changes():
    """A server that comes, and says that its tools only read, makes the skill harmless."""
    there, absent = gate(*SKILLS), gate(*SKILLS, offer=Offer())

    hints = [one.sight(SCOPE, []).tools[1]["annotations"]["destructiveHint"] for one in (there, absent)]

    assert hints == [False, True]
    assert there.sight(SCOPE, []).digests["tools"] != absent.sight(SCOPE, []).digests["tools"]


@pytest.mark.parametrize(("tool", "destructive"), [("read", False), ("a", True)])
def test_skill_is_marked_by_what_hooks_do(tool: str, destructive: bool):
    """Approving it for good approves them; a workflow has a tool of its own to be approved."""
    hooked = Skill("hooked", "", "", "", on_activate=(replace(CALL, tool=tool),))

    (skill, *_) = gate(hooked, replace(SKILLS[1], workflow=replace(RUNS, steps=()))).sight(SCOPE, []).tools

    assert skill["annotations"]["destructiveHint"] is destructive
    assert skill["annotations"]["openWorldHint"] is destructive
