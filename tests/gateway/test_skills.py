"""`SKILL`, from the use case's side: what each action does to the scope of its caller, and answers."""

from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from proxy.core.catalogue import EVERYTHING, Allow, Catalogue, Folder, Skill, SkillFile
from proxy.core.errors import Unknown
from proxy.core.inventory import Offer
from proxy.core.names import Naming
from proxy.core.profiles import Policy, Profile
from proxy.core.scope import ScopeId, ScopeState
from proxy.core.settings import every_kind
from proxy.core.skill_answers import READ_LIMIT
from proxy.core.wording import skill_call
from proxy.gateway.gate import DEFAULTS, Gate
from proxy.gateway.idling import Idling
from proxy.ports import Caller, Status
from proxy.store.memory import MemoryStore
from tests.answers import (
    also_offloaded,
    available_skills,
    current_skills,
    file_told,
    files_told,
    guide_told,
    listed_skills,
    not_ready,
    replaced_skills,
    required_skills,
    schemas_told,
    text_of,
    tools_told,
    total_listed,
)
from tests.gateway.wired import Wired, wired
from tests.gateway.world import SCOPE, Channel, Files, Server, Servers, caller

pytestmark = pytest.mark.anyio

STRANGER = caller()._replace(scope=ScopeId("namespace", "b"))
"""The client of a scope whose profile may use no more than `base`."""

PATHS = ("SKILL.md", "scripts/run.py", "big.bin")
FOLDER = Folder("/base", "SKILL.md", tuple(SkillFile(p, READ_LIMIT + 1 if p == "big.bin" else 5) for p in PATHS))
SKILLS = (
    Skill(
        "base", "Base", "What others build on", None, tools={"s": Allow.of(["read"])}, folder=FOLDER, idle_limit=60.0
    ),
    Skill("top", "Top", "Builds on base", "Do it.", tools={"s": Allow.of(["write"])}, requires=("base",)),
    Skill("rival", "Rival", "Not beside base", "Do this.", conflicts=("base",)),
    Skill("alone", "Alone", "Beside nothing", "Only this.", conflicts=("top", "base", "rival"), exclusive=True),
    Skill("pinned", "Pinned", "Stays", "Always.", pinned=True),
    Skill("off", "Off", "Of a server that is switched off", "", tools={"switched-off": EVERYTHING}),
)
OFFER = Offer.of(
    tools=[{"name": "read", "inputSchema": {"type": "object"}}, {"name": "write"}, {"name": "wipe"}],
    instructions="Be gentle.",
)


class Failing(Servers):
    """Servers that do not start."""

    def status(self, server: str, scope: ScopeId) -> Status:
        return Status("failed", "no such file", 7.2)


@dataclass
class World:
    together: Wired
    gate: Gate
    idling: Idling
    servers: Servers
    files: Files
    now: list[float] = field(default_factory=lambda: [0.0])

    async def skill(self, action: str, skill: str | None = None, *, by: Caller | None = None, **more: Any) -> Any:
        """The result of a call of `SKILL`."""
        arguments = {"action": action, **({} if skill is None else {"skill_name": skill}), **more}
        return await self.together.calling.call(by or caller(), {"name": "SKILL", "arguments": arguments})

    async def active(self, scope: ScopeId = SCOPE) -> tuple[str, ...]:
        return (await self.gate.state(scope)).active

    async def state(self) -> ScopeState:
        return await self.gate.state(SCOPE)


async def serving(servers: Servers) -> AsyncGenerator[World]:
    catalogue = Catalogue(("s",), Naming({"s": "s"}), SKILLS)
    policy = Policy(catalogue, (Profile(namespace="b", allowed=Allow.of(["base"])), Profile(namespace="*")))
    gate = Gate(policy, servers, MemoryStore(every_kind(10)))
    files, now = Files({("base", "scripts/run.py"): b"print"}), [0.0]
    async with anyio.create_task_group() as tasks:
        together = wired(gate, tasks, lambda: now[0], files)
        yield World(together, gate, together.idling, servers, files, now)
        tasks.cancel_scope.cancel()


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    async for one in serving(Servers({"s": OFFER}, {"s": Server({"content": []})})):
        yield one


# --- activate --------------------------------------------------------------------------------------------------------


async def test_activating_brings_what_the_skill_requires_with_it(world: World):
    """In one change: the tools of both, the guide of the one that was wanted, and a word on the other."""
    channel = Channel()
    with capture_logs() as logs:
        answer = await world.skill("activate", "top", by=caller(channel))

    assert current_skills(answer) == ["pinned", "base", "top"]
    assert guide_told(answer) == "Do it."
    assert required_skills(answer) == ["base"]
    assert tools_told(answer) == ["s__read", "s__write"]
    assert "\n<server_instructions>\n| Be gentle.\n</server_instructions>" in text_of(answer)
    assert channel.sent == ["tools"]
    assert [entry["skill"] for entry in logs if entry["event"] == "skill.activated"] == ["top"]


async def test_the_tools_of_what_was_there_before_are_not_told_again(world: World):
    """The client has them."""
    await world.skill("activate", "base")

    answer = await world.skill("activate", "top")

    assert tools_told(answer) == ["s__write"]


async def test_the_instructions_of_a_server_come_once(world: World):
    """Not with every skill of it; again once no skill of it is active, when the guide comes again too."""
    told: list[bool] = []
    for action, skill in (
        *(("activate", "base"), ("activate", "top"), ("offload", "top"), ("activate", "top")),
        *(("offload", "top"), ("offload", "base"), ("activate", "base"), ("offload", "base"), ("activate", "top")),
    ):
        answer = text_of(await world.skill(action, skill))
        if action == "activate":
            told.append("| Be gentle." in answer)

    assert told == [True, False, False, True, True]
    assert "| Be gentle." in text_of(await world.skill("activate", "base", by=STRANGER))


async def test_of_skills_that_are_activated_together_one_brings_the_instructions_of_their_server(world: World):
    """Whichever answer is made first."""
    answers: list[str] = []

    async def activate(skill: str) -> None:
        answers.append(text_of(await world.skill("activate", skill)))

    async with anyio.create_task_group() as tasks:
        for skill in ("base", "top"):
            tasks.start_soon(activate, skill)

    assert ["| Be gentle." in answer for answer in answers].count(True) == 1


async def test_instructions_that_come_late_are_told_when_they_are_there(world: World):
    """A server that was not ready when the first skill of it was activated."""
    world.servers.offers = {}
    assert "Be gentle" not in text_of(await world.skill("activate", "base"))
    world.servers.offers = {"s": OFFER}

    assert "| Be gentle." in text_of(await world.skill("activate", "top"))


async def test_activating_again_changes_nothing_and_is_short(world: World):
    """The tools, and how to read the guide, without a notice."""
    await world.skill("activate", "base")
    before, channel = await world.state(), Channel()

    answer = await world.skill("activate", "base", by=caller(channel))

    assert text_of(answer).startswith("skill base already activated, current skills: ['pinned', 'base']")
    assert guide_told(answer) is None
    assert tools_told(answer) == ["s__read"]
    assert text_of(answer).endswith('SKILL({"action": "read", "skill_name": "base"}) shows its guide.')
    assert await world.state() is before
    assert channel.sent == []


async def test_a_skill_that_conflicts_is_refused_and_nothing_changes(world: World):
    """With the call that helps, which does."""
    await world.skill("activate", "top")
    before, channel = await world.state(), Channel()

    refused = await world.skill("activate", "rival", by=caller(channel))

    assert refused["isError"] is True
    assert 'SKILL({"action": "offload", "skill_name": "top"})' in text_of(refused)
    assert await world.state() is before
    assert channel.sent == []
    await world.skill("offload", "top")
    assert current_skills(await world.skill("activate", "rival")) == ["pinned", "rival"]


async def test_an_exclusive_skill_says_what_it_has_replaced(world: World):
    """With what went along."""
    await world.skill("activate", "top")

    answer = await world.skill("activate", "alone")

    assert current_skills(answer) == ["pinned", "alone"]
    assert replaced_skills(answer) == ["base", "top"]


async def test_a_server_that_does_not_start_is_a_problem_and_no_error():
    """The skill is active; what it cannot bring yet is said, also of what it requires."""
    async for world in serving(Failing({})):
        answer = await world.skill("activate", "top")

        assert not_ready(answer) == {"s": "failed: no such file (tried again in 8 s)"}
        assert "isError" not in answer
        assert await world.active() == ("pinned", "base", "top")


async def test_a_server_that_is_switched_off_is_said_to_be(world: World):
    """It never comes."""
    answer = await world.skill("activate", "off")

    assert not_ready(answer) == {"switched-off": "is switched off: the configuration says so"}


class Changing(Servers):
    """Servers during whose start the configuration changes."""

    change: Callable[[], Coroutine[Any, Any, None]] | None = None

    async def settled(self, servers: object, scope: ScopeId, within: float) -> None:
        if self.change is not None:
            await self.change()


async def test_a_skill_that_goes_while_its_servers_start_is_not_found():
    """The answer is of the configuration in force."""
    servers = Changing({"s": OFFER})
    async for world in serving(servers):

        async def change(world: World = world) -> None:
            policy = Policy(Catalogue(("s",), Naming({"s": "s"}), SKILLS[-2:]))
            world.gate.adopt(policy, DEFAULTS, ())
            await world.gate.refit()

        servers.change = change
        answer = await world.skill("activate", "top")

        assert text_of(answer).startswith("skill not found: 'top'. Available skills: ")
        assert sorted(available_skills(answer)) == ["off", "pinned"]
        assert await world.active() == ("pinned",)


async def test_the_tools_that_are_told_are_those_of_now(world: World, monkeypatch: pytest.MonkeyPatch):
    """Though the configuration changes while the guide is read."""

    def change_and_read(skill: Skill) -> str:
        denied = Catalogue(("s",), Naming({"s": "s"}), SKILLS, {"s": EVERYTHING})
        world.gate.adopt(Policy(denied), DEFAULTS, ())
        return "Do it."

    monkeypatch.setattr(world.files, "guide", change_and_read)
    answer = await world.skill("activate", "base")

    assert guide_told(answer) == "Do it."
    assert tools_told(answer) == []


# --- offload ---------------------------------------------------------------------------------------------------------


async def test_offloading_says_what_went_with_it(world: World):
    """And the log says it of each."""
    await world.skill("activate", "top")

    with capture_logs() as logs:
        answer = await world.skill("offload", "top")

    assert also_offloaded(answer) == ["base"]
    assert await world.active() == ("pinned",)
    assert sorted(entry["skill"] for entry in logs if entry["event"] == "skill.offloaded") == ["base", "top"]


@pytest.mark.parametrize(("skill", "why"), [("pinned", "is pinned"), ("base", "required by top")])
async def test_a_skill_that_has_to_stay_is_not_offloaded(world: World, skill: str, why: str):
    """Nothing changes."""
    await world.skill("activate", "top")
    before = await world.state()

    answer = await world.skill("offload", skill)

    assert answer["isError"] is True
    assert why in text_of(answer)
    assert await world.state() is before


@pytest.mark.parametrize(("skill", "said"), [("top", "is not active"), ("unheard of", "not found")])
async def test_what_is_not_active_is_as_wished(world: World, skill: str, said: str):
    """No error, whether there is such a skill or not."""
    answer = await world.skill("offload", skill)

    assert text_of(answer) == f"skill {skill} {said}, current skills: ['pinned']"
    assert "isError" not in answer


# --- list and read ---------------------------------------------------------------------------------------------------


async def test_the_list_is_of_what_the_caller_may_use(world: World):
    """With what is active there."""
    own = await world.skill("list")
    others = await world.skill("list", by=STRANGER)

    assert listed_skills(own) == [skill.id for skill in SKILLS]
    assert listed_skills(others) == ["base"]
    assert (current_skills(own), current_skills(others)) == (["pinned"], [])
    assert total_listed(await world.skill("list", query="x")) == 0


async def test_reading_a_guide_activates_nothing(world: World):
    """It comes from its file where it is there; where that is gone, the reason stands in its place."""
    before = await world.state()

    assert guide_told(await world.skill("read", "top")) == "Do it."
    assert guide_told(await world.skill("read", "base")) == "The guide of base."
    world.files.broken.add("base")
    assert "cannot be read: it is gone" in text_of(await world.skill("read", "base"))

    assert await world.state() is before


@pytest.mark.parametrize("path", ["scripts/run.py", "./scripts/run.py"])
async def test_a_file_of_a_skill_can_be_read(world: World, path: str):
    """As it is."""
    answer = await world.skill("read", "base", path=path)

    assert file_told(answer) == ("utf-8", "print")


@pytest.mark.parametrize(
    ("path", "listed"),
    [("scripts", ["scripts/run.py"]), ("scripts/", ["scripts/run.py"]), (".", [*PATHS]), ("./", [*PATHS])],
)
async def test_a_folder_of_a_skill_can_be_looked_into(world: World, path: str, listed: list[str]):
    """At any depth."""
    answer = await world.skill("read", "base", path=path)

    assert [path for path, _ in files_told(answer)] == listed


async def test_a_file_that_has_grown_since_is_too_large(world: World):
    """It would fill a model's context before the change of its folder is noticed."""
    world.files.contents["base", "scripts/run.py"] = b"x" * (READ_LIMIT + 1)

    answer = await world.skill("read", "base", path="scripts/run.py")

    assert answer["isError"] is True
    assert "holds 131,073 bytes, and read gives at most 128 KiB" in answer["content"][0]["text"]


@pytest.mark.parametrize(
    ("skill", "path", "why"),
    [
        ("base", "big.bin", "read gives at most 128 KiB"),
        ("base", "SKILL.md", "cannot be read: it is gone"),
        ("base", "../../etc/passwd", "has no file '../../etc/passwd'"),
        ("base", "scripts/../SKILL.md", "has no file"),
        ("base", "/base/SKILL.md", "has no file"),
        ("base", "script", "has no file"),
        ("top", "x", "has no files beside its guide"),
    ],
)
async def test_what_cannot_be_read_is_refused_with_the_reason(world: World, skill: str, path: str, why: str):
    """Only files that the skill is known to have are asked for at all."""
    answer = await world.skill("read", skill, path=path)

    assert answer["isError"] is True
    assert why in text_of(answer)


@pytest.mark.parametrize("tool", ["s__read", "read"])
async def test_one_tool_of_a_skill_can_be_read(world: World, tool: str):
    """By either name, also while the skill is not active."""
    answer = await world.skill("read", "base", tool=tool)

    assert schemas_told(answer) == {"s__read": {"type": "object"}}
    assert await world.active() == ("pinned",)


async def test_a_tool_that_is_read_says_how_it_becomes_visible(world: World):
    """Which skills of the caller grant it, and the call that helps; or that it is visible."""
    before = text_of(await world.skill("read", "base", tool="read")).splitlines()
    await world.skill("activate", "base")
    after = text_of(await world.skill("read", "base", tool="read")).splitlines()

    assert before[-1].startswith("Visible when skill ")
    assert "Visible when skill base is active: " + skill_call("activate", "base") in before
    assert after[-1].startswith("Visible now: ")
    assert [line for line in before if line.startswith("Granted by")] == [
        line for line in after if line.startswith("Granted by")
    ]


async def test_a_tool_that_the_skill_does_not_grant_cannot_be_read(world: World):
    """Though its server has it, and another skill grants it."""
    for tool in ("s__wipe", "write", "unheard of"):
        answer = await world.skill("read", "base", tool=tool)

        assert text_of(answer) == f"skill base has no tool {tool!r}. Its tools: ['s__read']."


# --- other profiles --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["activate", "read", "offload"])
async def test_a_skill_of_another_profile_does_not_exist(world: World, action: str):
    """The answer is that to a name which nobody has heard of."""
    real, made_up = [await world.skill(action, name, by=STRANGER) for name in ("top", "tip")]

    assert text_of(real).replace("top", "NAME") == text_of(made_up).replace("tip", "NAME")
    assert await world.active(STRANGER.scope) == ()


async def test_without_a_profile_there_is_no_skill_tool(world: World):
    """It is called like any tool that does not exist."""
    world.gate.adopt(Policy(world.gate.policy.catalogue, (Profile(principal="alice"),)), DEFAULTS, ())

    with pytest.raises(Unknown, match="Unknown tool: SKILL"):
        await world.skill("list")


# --- skills that nobody uses -----------------------------------------------------------------------------------------


async def test_the_next_answer_tells_once_what_has_gone_by_itself(world: World):
    """Whatever it is an answer to; reading a skill uses it."""
    await world.skill("activate", "base")
    world.now[0] = 59.0
    await world.skill("read", "base")
    announced: list[ScopeId] = []
    announce = partial(_note, announced)
    world.now[0] = 60.0
    await world.idling.sweep(announce)
    assert await world.active() == ("pinned", "base")
    world.now[0] = 119.0
    await world.idling.sweep(announce)
    assert await world.active() == ("pinned",)
    assert announced == [SCOPE]

    first, second = [await world.skill("read", "top") for _ in range(2)]

    assert text_of(first).endswith("\n\nskill base was offloaded: it was not used for 1 minute.")
    assert "was offloaded" not in text_of(second)


async def _note(announced: list[ScopeId], scope: ScopeId) -> None:
    announced.append(scope)


async def test_calling_a_tool_of_a_skill_uses_it(world: World):
    """Its time begins anew."""
    await world.skill("activate", "base")
    world.now[0] = 59.0
    await world.together.calling.call(caller(), {"name": "s__read"})
    world.now[0] = 60.0

    await world.idling.sweep(partial(_note, []))

    assert await world.active() == ("pinned", "base")


# --- what cannot be understood ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "The action is missing."),
        ({"action": ""}, "The action is missing."),
        ({"action": "dance"}, "Unknown action 'dance'."),
        ({"action": ["list"]}, "Unknown action"),
        ({"action": "activate"}, "Action activate needs a skill_name."),
        ({"action": "read", "skill_name": 5}, "Action read needs a skill_name."),
    ],
)
async def test_a_call_that_cannot_be_understood_is_answered_with_what_is_wrong(
    world: World, arguments: dict[str, Any], why: str
):
    """And with what `SKILL` takes."""
    answer = await world.together.calling.call(caller(), {"name": "SKILL", "arguments": arguments})

    assert text_of(answer).startswith(why)
    assert answer["isError"] is True


async def test_the_older_names_of_actions_are_understood(world: World):
    """As other programs of this kind have them."""
    await world.skill("active_skill", "base")
    assert await world.active() == ("pinned", "base")
    await world.skill("offload_skill", "base")
    assert await world.active() == ("pinned",)
