"""Skills that nobody uses go by themselves, in made-up time."""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace

import anyio
import pytest
from structlog.testing import capture_logs

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.names import Naming
from proxy.core.profiles import Policy, Profile
from proxy.core.scope import ScopeId, ScopeState
from proxy.core.settings import every_kind
from proxy.gateway.gate import DEFAULTS, Gate
from proxy.gateway.idling import LONGEST, Idling
from proxy.store.memory import MemoryStore
from tests.conftest import PATIENCE
from tests.core.changes import activated
from tests.gateway.world import SCOPE, Servers

pytestmark = pytest.mark.anyio

OTHER = ScopeId("namespace", "b")
LIMIT = 60.0


def skill(id_: str, *requires: str, limit: float | None = LIMIT, pinned: bool = False) -> Skill:
    return Skill(id_, "", "", "", idle_limit=limit, pinned=pinned, requires=requires)


SKILLS = (skill("short"), skill("long", limit=600.0), skill("endless", limit=None), skill("top", "short"))


class World:
    """A gate, a clock that stands still unless it is set, and the scopes that were told of a change."""

    def __init__(self, *skills: Skill, policy: Policy | None = None, store: MemoryStore | None = None) -> None:
        self.now = 1000.0
        self.told: list[ScopeId] = []
        policy = policy or Policy(Catalogue((), Naming({}), skills or SKILLS))
        self.gate = Gate(policy, Servers({}), store or MemoryStore(every_kind(10)))
        self.idling = Idling(self.gate, lambda: self.now)

    async def activate(self, *skills: str, scope: ScopeId = SCOPE) -> None:
        for one in skills:
            with self.idling.use(scope, [one]):
                await self.gate.change(scope, lambda state, one=one: activated(self.gate.catalogue(scope), state, one))

    async def active(self, scope: ScopeId = SCOPE) -> tuple[str, ...]:
        return (await self.gate.state(scope)).active

    async def announce(self, scope: ScopeId) -> None:
        self.told.append(scope)

    async def sweep(self, after: float = 0.0) -> float:
        """Let time pass and look; the seconds until the next look."""
        self.now += after
        return await self.idling.sweep(self.announce) - self.now


async def test_a_skill_goes_when_it_was_not_used_for_as_long_as_it_may():
    """Not before; its scope is told, the log says so, and the client will be."""
    world = World()
    await world.activate("short", "endless")

    await world.sweep(after=LIMIT - 1)
    assert await world.active() == ("short", "endless")
    assert world.told == []

    with capture_logs() as logs:
        await world.sweep(after=1)
    assert await world.active() == ("endless",)
    assert world.told == [SCOPE]
    assert (await world.gate.state(SCOPE)).expired == {"short"}
    assert [(entry["event"], entry["skill"], entry["scope"]) for entry in logs] == [
        ("skill.expired", "short", "namespace a")
    ]


async def test_using_a_skill_begins_its_time_anew():
    """From the end of the use."""
    world = World()
    await world.activate("short")
    world.now += LIMIT - 1
    with world.idling.use(SCOPE, ["short"]):
        world.now += 1

    await world.sweep(after=LIMIT - 1)
    assert await world.active() == ("short",)
    await world.sweep(after=1)
    assert await world.active() == ()


async def test_a_skill_that_is_in_use_stays():
    """However long that takes, and though another use of it has ended; also where the use fails."""
    world = World()
    await world.activate("short")
    with world.idling.use(SCOPE, ["short"]):
        with suppress(ValueError), world.idling.use(SCOPE, ["short"]):
            raise ValueError
        await world.sweep(after=10 * LIMIT)
        assert await world.active() == ("short",)

    await world.sweep(after=LIMIT)
    assert await world.active() == ()


async def test_what_one_scope_does_keeps_nothing_active_in_another():
    """Each has its own time (rule 10)."""
    world = World()
    await world.activate("short")
    await world.activate("short", scope=OTHER)
    world.now += LIMIT - 1
    with world.idling.use(OTHER, ["short"]):
        pass

    await world.sweep(after=1)

    assert await world.active() == ()
    assert await world.active(OTHER) == ("short",)
    assert world.told == [SCOPE]


async def test_what_an_active_skill_requires_stays_as_long_as_that():
    """And goes with it."""
    world = World(skill("base"), skill("top", "base", limit=3 * LIMIT))
    await world.activate("base", "top")

    await world.sweep(after=LIMIT)
    assert await world.active() == ("base", "top")
    await world.sweep(after=2 * LIMIT)
    assert await world.active() == ()


async def test_a_pinned_skill_and_one_without_a_limit_stay():
    """For good."""
    world = World(skill("always", pinned=True), skill("endless", limit=None), skill("short"))
    await world.activate("endless")

    await world.sweep(after=1e9)

    assert await world.active() == ("always", "endless")


async def test_the_time_of_a_skill_that_nobody_has_used_begins_with_the_first_look():
    """A scope may begin with it."""
    world = World(Skill("early", "", "", "", active=True, idle_limit=LIMIT))
    assert await world.active() == ("early",)

    await world.sweep(after=10 * LIMIT)
    assert await world.active() == ("early",)
    await world.sweep(after=LIMIT)
    assert await world.active() == ()


async def test_the_next_look_is_when_the_next_skill_may_be_due():
    """In any case soon, for scopes that begin meanwhile; never where no skill has a limit."""
    world = World(skill("quick", limit=5.0), skill("slow", limit=600.0))
    assert await world.sweep() == LONGEST
    await world.activate("slow", "quick")
    assert await world.sweep(after=2) == 3.0
    assert await world.sweep(after=3) == LONGEST

    assert await World(skill("endless", limit=None)).sweep() == float("inf")


async def test_each_scope_goes_by_the_limits_of_its_own_profile():
    """What is not for it has none there."""
    whole = Catalogue((), Naming({}), (skill("short"), skill("always", limit=LIMIT)))
    nobody = Profile(namespace="b", active=("always",))
    world = World(policy=Policy(whole, (nobody, Profile(namespace="*"))))
    await world.activate("short")
    await world.active(OTHER)

    await world.sweep()
    await world.sweep(after=LIMIT)

    assert await world.active() == await world.active(OTHER) == ()
    assert set(world.told) == {SCOPE, OTHER}


class Contested(MemoryStore):
    """A store in which something happens before the first change of a state."""

    meanwhile: Callable[[], None] | None = None

    async def swap(self, scope: ScopeId, old: ScopeState | None, new: ScopeState) -> bool:
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
            self._states[scope] = replace(self._states[scope])  # so that the change has to be tried again
        return await super().swap(scope, old, new)


@pytest.mark.parametrize("ended", [False, True])
async def test_a_use_that_begins_while_a_skill_is_about_to_go_keeps_it(ended: bool):
    """Whether it has ended by then or not: what counts is the moment of the change."""
    store = Contested(every_kind(10))
    world = World(store=store)
    await world.activate("short")
    with ExitStack() as uses:

        def use() -> None:
            uses.enter_context(world.idling.use(SCOPE, ["short"]))
            if ended:
                uses.close()

        store.meanwhile = use
        await world.sweep(after=LIMIT)

        assert store.meanwhile is None
        assert await world.active() == ("short",)


@pytest.mark.parametrize("in_use", [False, True])
async def test_nothing_is_left_of_a_scope_that_has_ended(in_use: bool):
    """Also where one of its skills was in use."""
    world = World()
    await world.activate("short")
    if in_use:
        with world.idling.use(SCOPE, ["short"]):
            await world.gate.store.remove(SCOPE)
            world.idling.forget(SCOPE)
    else:
        await world.gate.store.remove(SCOPE)
        world.idling.forget(SCOPE)

    await world.sweep()

    assert not world.idling._last
    assert not world.idling._in_use


async def test_no_times_are_kept_once_no_skill_has_a_limit():
    """The configuration may change."""
    world = World()
    await world.activate("short")
    world.gate.adopt(Policy(Catalogue((), Naming({}), (skill("short", limit=None),))), DEFAULTS, ())

    assert await world.sweep(after=1e9) == float("inf")

    assert await world.active() == ("short",)
    assert not world.idling._last


async def test_it_runs_by_itself_and_hears_of_news():
    """By a real clock: of a skill that is used for the first time, and of limits that change."""
    gone = anyio.Event()
    gate = Gate(Policy(Catalogue((), Naming({}), (skill("s", limit=None),))), Servers({}), MemoryStore(every_kind(10)))
    idling = Idling(gate, anyio.current_time)

    async def announce(scope: ScopeId) -> None:
        assert scope == SCOPE
        gone.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(idling.run, announce)
        await anyio.wait_all_tasks_blocked()
        gate.adopt(Policy(Catalogue((), Naming({}), (skill("s", limit=0.01),))), DEFAULTS, ())
        idling.wake()
        await anyio.wait_all_tasks_blocked()
        with idling.use(SCOPE, ["s"]):
            await gate.change(SCOPE, lambda state: activated(gate.catalogue(SCOPE), state, "s"))
        with anyio.fail_after(min(PATIENCE, LONGEST - 1)):
            await gone.wait()
        tasks.cancel_scope.cancel()
    assert (await gate.state(SCOPE)).active == ()
