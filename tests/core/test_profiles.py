"""Profiles: who may use which skills, and that there is nothing else for them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import relations, skill_answers, wording
from proxy.core.catalogue import EVERYTHING, NOTHING, Allow, Catalogue, Folder, Skill, SkillFile
from proxy.core.decision import decide, missing
from proxy.core.inventory import Inventory, Offer
from proxy.core.names import Naming
from proxy.core.profiles import EVERYBODY, Policy, Profile, restricted
from proxy.core.published import published, skill_prompts, skill_resources, skill_templates, uri_of
from proxy.core.relations import Blocked, begin, refitted
from proxy.core.scope import ScopeId, ScopeState
from proxy.core.self_description import instructions
from proxy.core.skill_tool import skill_tool
from proxy.core.steps import Call
from tests.answers import available_skills
from tests.core.strategies import SKILL_IDS, law, related

PROCESS = ScopeId("process")
SESSION = ScopeId("session", "0123")
TEAM = ScopeId("namespace", "team-a")
OF_ALICE = ScopeId("namespace", "team-a", "alice")
ALICE = ScopeId("principal", "alice", "alice")
HER_SESSION = ScopeId("session", "0123", "alice")
SCOPES = (PROCESS, SESSION, TEAM, OF_ALICE, ALICE, HER_SESSION)


# --- whom a profile holds for ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "scopes"),
    [
        (Profile(namespace="*"), SCOPES),
        (Profile(principal="*"), SCOPES),
        (Profile(namespace="team-a"), (TEAM, OF_ALICE)),
        (Profile(namespace="team-?"), (TEAM, OF_ALICE)),
        (Profile(namespace="TEAM-A"), ()),
        (Profile(namespace="**"), (TEAM, OF_ALICE)),
        (Profile(namespace="0123"), ()),
        (Profile(principal="alice"), (OF_ALICE, ALICE, HER_SESSION)),
        (Profile(principal="a*"), (OF_ALICE, ALICE, HER_SESSION)),
        (Profile(principal="bob"), ()),
        (Profile(namespace="team-a", principal="alice"), (OF_ALICE,)),
        (Profile(namespace="team-a", principal="bob"), ()),
        (Profile(namespace="team-a", principal="*"), (TEAM, OF_ALICE)),
        (Profile(namespace="*", principal="alice"), (OF_ALICE, ALICE, HER_SESSION)),
    ],
)
def test_a_profile_holds_for_the_scopes_that_its_patterns_match(profile: Profile, scopes: Sequence[ScopeId]):
    """A session belongs to its user and to no namespace; `*` alone matches those that have no name, too."""
    assert [scope for scope in SCOPES if profile.holds(scope)] == list(scopes)


def skill(id_: str, *requires: str, wants: Iterable[str] = (), active: bool = False, pinned: bool = False) -> Skill:
    """A skill that grants all of a server of its own."""
    return replace(
        Skill(id_, "", "", "", active=active, pinned=pinned, tools={id_: EVERYTHING}),
        requires=requires,
        capabilities=tuple(wants),
    )


def catalogue(*skills: Skill) -> Catalogue:
    servers = tuple(skill.id for skill in skills)
    return Catalogue(servers, Naming(dict(zip(servers, servers, strict=True))), skills)


WEB = skill("web", wants=["net"])
NOTES = skill("notes", active=True)
SHELL = skill("shell", "notes", wants=["net", "admin"])
ALL = catalogue(WEB, NOTES, SHELL)


def ids(profile: Profile, of: Catalogue = ALL) -> list[str]:
    return list(restricted(of, profile).by_id)


def test_the_first_profile_that_holds_counts():
    """Whatever a later one allows; all scopes of a profile have one catalogue."""
    policy = Policy(ALL, (Profile(principal="alice", allowed=Allow.of(["notes"])), Profile(namespace="*")))

    assert list(policy.of(ALICE).by_id) == ["notes"]
    assert policy.of(HER_SESSION) is policy.of(OF_ALICE) is policy.of(ALICE)
    assert policy.of(TEAM) is policy.of(PROCESS) is not policy.of(ALICE)
    assert list(policy.of(TEAM).by_id) == ["notes"]


def test_without_a_profile_there_is_nothing():
    """And where the configuration has none, the same for everybody."""
    start = (Call("on_scope_start[0]", "greet", "web", "greet"),)
    policy = Policy(replace(ALL, on_start=start), (Profile(principal="alice", capabilities=EVERYTHING),))

    assert policy.of(ALICE).on_start == start
    assert policy.of(TEAM).on_start == ()
    assert list(policy.of(ALICE).by_id) == ["web", "notes", "shell"]
    assert policy.of(TEAM).skills == ()
    assert policy.of(TEAM) is policy.of(PROCESS)
    assert Policy(ALL).profiles == (EVERYBODY,)
    assert [list(Policy(ALL).of(scope).by_id) for scope in SCOPES] == [["notes"]] * len(SCOPES)


# --- what it allows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "usable"),
    [
        (Profile(), ["notes"]),
        (Profile(capabilities=Allow.of(["net"])), ["web", "notes"]),
        (Profile(capabilities=Allow.of(["net", "admin"])), ["web", "notes", "shell"]),
        (Profile(capabilities=Allow.of(["*"])), ["web", "notes", "shell"]),
        (Profile(capabilities=EVERYTHING, allowed=Allow.of(["w*"])), ["web"]),
        (Profile(capabilities=EVERYTHING, denied=Allow.of(["web"])), ["notes", "shell"]),
        (Profile(capabilities=EVERYTHING, allowed=Allow.of(["web"]), denied=Allow.of(["*"])), []),
        (Profile(allowed=Allow.of(["web"])), []),
    ],
)
def test_a_skill_is_for_those_who_may_use_it_and_can_do_all_that_it_wants(profile: Profile, usable: list[str]):
    """Denied counts more than allowed; being allowed is no capability."""
    assert ids(profile) == usable


def test_a_skill_goes_with_one_that_it_requires():
    """However far away; one that requires only what is there stays."""
    chain = catalogue(skill("a"), skill("b", "a"), skill("c", "b"), skill("d"))

    assert ids(Profile(denied=Allow.of(["a"])), chain) == ["d"]
    assert ids(Profile(denied=Allow.of(["c"])), chain) == ["a", "b", "d"]


def test_a_profile_says_what_is_active_at_the_start():
    """Instead of the skills themselves, if it says anything; pinned ones are in any case."""
    skills = catalogue(skill("a", active=True), skill("b"), skill("c", pinned=True), skill("d"))

    def started(active: tuple[str, ...] | None) -> tuple[str, ...]:
        return begin(restricted(skills, Profile(active=active, denied=Allow.of(["d"])))).active

    assert started(None) == ("a", "c")
    assert started(()) == ("c",)
    assert started(("b", "d", "unknown")) == ("b", "c")


def test_a_profile_says_how_many_may_be_active():
    """Each for itself."""
    two = restricted(catalogue(skill("a"), skill("b")), Profile(max_active=1))

    assert isinstance(relations.activated(two, ScopeState(active=("a",)), "b"), Blocked)
    assert restricted(two, Profile()).max_active is None


def test_what_starts_at_once_is_what_some_scope_begins_with():
    """In the order of the file; of one scope, its own alone."""
    skills = catalogue(skill("a", active=True), skill("b"), skill("c", active=True))
    policy = Policy(
        skills,
        (Profile(principal="alice", active=("b",)), Profile(namespace="team-a", allowed=Allow.of(["b", "c"]))),
    )

    assert policy.at_once() == ["b", "c"]
    assert policy.at_once(ALICE) == ["b"]
    assert policy.at_once(TEAM) == ["c"]
    assert policy.at_once(PROCESS) == []


# --- nothing outside a profile is ever visible or callable -----------------------------------------------------------

SERVERS: tuple[str, ...] = ("gh", "gl")
TOOLS = tuple(f"tl{letter}zq" for letter in SKILL_IDS)
"""Tools; each skill grants at least the one of its letter."""
IDS = tuple(f"id{letter}zq" for letter in SKILL_IDS)


def marks(id_: str) -> list[str]:
    """The words that a skill alone has: its id, name, description, guide, category, tag, capability and file."""
    return [id_, *(id_.replace("id", kind) for kind in ("nm", "ds", "us", "ct", "tg", "cp", "fl"))]


@dataclass(frozen=True)
class Case:
    """A catalogue of which a profile may use a part, what servers offer, and what somebody has active."""

    whole: Catalogue
    part: Catalogue
    inventory: Inventory
    active: tuple[str, ...]

    @property
    def secrets(self) -> list[str]:
        """What nobody may find who may only use the part: words that occur in nothing else."""
        words = [word for skill in self.whole.skills if skill.id not in self.part.by_id for word in marks(skill.id)]
        granted = (lists for skill in self.part.skills for lists in (skill.tools, skill.prompts))
        lists = [allow for each in granted for allow in each.values()]
        return words + [name for name in TOOLS if not any(allow.allows(name) for allow in lists)]


@st.composite
def marked(draw: st.DrawFn, skill: Skill) -> Skill:
    """A skill with words of its own in all places, and the tool of its letter."""
    id_, name, desc, usage, category, tag, capability, file = marks(f"id{skill.id}zq")
    own = f"tl{skill.id}zq"
    tools = {server: Allow.of([own]) for server in draw(st.sets(st.sampled_from(SERVERS), min_size=1))}
    if draw(st.sampled_from((False, False, False, True))):
        tools["gh"] = draw(st.sampled_from((EVERYTHING, Allow.of(["tl[a-c]zq"]))))
    return replace(
        skill,
        id=id_,
        name=name,
        desc=desc,
        usage=usage,
        tools=tools,
        resources={"gl": Allow.of([f"x:{own}"])},
        prompts={"gl": Allow.of([own])},
        category=category,
        tags=(tag,),
        capabilities=draw(st.sampled_from(((), (), (capability,)))),
        requires=tuple(f"id{other}zq" for other in skill.requires),
        conflicts=tuple(f"id{other}zq" for other in skill.conflicts),
        folder=draw(st.sampled_from((None, Folder("/s", "SKILL.md", (SkillFile(file, 1),))))),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    naming = Naming(draw(st.sampled_from(({"gh": "", "gl": ""}, {"gh": "gh", "gl": "gl"}))))
    whole = Catalogue(SERVERS, naming, tuple(draw(marked(skill)) for skill in draw(related()).skills))
    known = st.lists(st.sampled_from([*whole.by_id, "id[a-c]*"]), max_size=3).map(Allow.of)
    profile = Profile(
        allowed=draw(st.just(EVERYTHING) | known),
        denied=draw(known),
        capabilities=draw(st.lists(st.sampled_from([f"cp{letter}zq" for letter in SKILL_IDS])).map(Allow.of)),
        active=draw(st.none() | st.lists(st.sampled_from(list(whole.by_id)), unique=True).map(tuple)),
        max_active=draw(st.sampled_from((None, None, 1))),
    )
    offer = st.builds(
        Offer.of,
        tools=st.lists(st.sampled_from(TOOLS), unique=True).map(lambda names: [{"name": name} for name in names]),
        resources=st.just([{"uri": f"x:{name}"} for name in TOOLS]),
        prompts=st.just([{"name": name} for name in TOOLS]),
    )
    inventory = draw(st.dictionaries(st.sampled_from(SERVERS), offer))
    active = tuple(draw(st.lists(st.sampled_from(list(whole.by_id)), unique=True)))
    return Case(whole, restricted(whole, profile), inventory, active)


def assert_silent(case: Case, *said: object) -> None:
    """Nothing of it tells of a skill that is not for the profile, or of a tool that only such skills grant."""
    for each in said:
        text = each if isinstance(each, str) else json.dumps(each)
        found = [word for word in case.secrets if word in text]
        assert not found, (found, text)


@law
@given(cases())
def test_what_is_decided_is_granted_by_an_active_skill_of_the_profile(case: Case):
    """Also while a skill is still active that the profile may not use any more."""
    view = decide(case.part, case.active, case.inventory)

    counted = [skill for skill in case.part.skills if skill.id in case.active]
    for route in view.tools.values():
        assert any(route.server in s.tools and s.tools[route.server].allows(route.original) for s in counted)
    for route in view.prompts.values():
        assert any(grants(s, s.prompts, route.server, route.original) for s in counted)
    for route in view.resources:
        assert any(grants(s, s.resources, route.server, route.original) for s in counted)
    assert_silent(case, [*view.tools], [*view.prompts], [route.definition for route in view.resources])


def grants(skill: Skill, lists: Mapping[str, Allow], server: str, name: str) -> bool:
    """Whether a skill grants a resource or prompt: by a list of its own, or with all tools of the server."""
    return skill.tools.get(server, NOTHING).everything or lists.get(server, NOTHING).allows(name)


@law
@given(cases())
def test_what_is_not_for_the_profile_is_unknown_to_it(case: Case):
    """No refusal names a skill outside, or admits that there is a tool that only such a skill grants."""
    state = ScopeState(active=case.active, offloaded=frozenset(case.whole.by_id) - {*case.active})

    for server in SERVERS:
        for tool in TOOLS:
            found = missing(case.part, state, case.inventory, case.whole.naming.expose(server, tool))
            if found is not None:
                assert found.skill in case.part.by_id
                assert case.part.by_id[found.skill].tools[found.server].allows(tool)
                assert tool not in case.secrets


@law
@given(cases(), st.sampled_from(IDS))
def test_nothing_that_is_said_tells_of_what_is_not_for_the_profile(case: Case, wanted: str):
    """Neither our tool, nor the lists of resources and prompts, nor any answer."""
    state = refitted(ScopeState(active=case.active, expired=frozenset(case.whole.by_id) - {*case.active}), case.part)
    found = list(case.part.skills)
    other = wording.skill_not_found("else", case.part)
    assert_silent(
        case,
        skill_tool(case.part, state.active),
        instructions(case.part),
        skill_resources(case.part),
        skill_templates(case.part),
        skill_prompts(case.part),
        other,
        skill_answers.listing(case.part, state.active, found, page=1, asked={"query": "x"}),
        skill_answers.with_expired(other, frozenset(case.whole.by_id), case.part),
        [*state.active, *state.offloaded, *state.expired],
        [*begin(case.part).active],
    )
    if wanted not in case.part.by_id:
        assert published(case.part, uri_of(wanted, "SKILL.md")) is None
        assert_silent(case, available_skills(wording.skill_not_found(wanted, case.part)))
        return
    after = relations.activated(case.part, state, wanted)
    if isinstance(after, Blocked):
        assert_silent(case, skill_answers.blocked(wanted, after, case.part, state.active))
    else:
        assert_silent(case, [*after.active])
    going = relations.offloaded(case.part, state, wanted)
    if isinstance(going, Blocked):
        assert_silent(case, skill_answers.blocked(wanted, going, case.part, state.active))


@law
@given(cases())
def test_a_profile_has_all_that_the_skills_in_it_require(case: Case):
    """And each skill as it is, but for what is active at the start."""
    for skill in case.part.skills:
        assert {*skill.requires} <= case.part.by_id.keys()
        assert replace(skill, active=case.whole.by_id[skill.id].active) == case.whole.by_id[skill.id]
