"""Names under which tools and prompts are shown (design rules 19 and 20)."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.names import RESERVED, Naming, sanitised
from tests.core.strategies import SERVER_KEYS, law, names, namings

VALID = re.compile(r"[A-Za-z0-9_-]+")


def plain(naming: Naming, server: str, original: str) -> str:
    return f"{naming.prefixes[server]}__{original}" if naming.prefixes[server] else original


@law
@given(naming=namings(SERVER_KEYS), server=st.sampled_from(SERVER_KEYS), original=names)
def test_every_name_is_one_that_every_client_takes(naming: Naming, server: str, original: str):
    """At most the limit of the safe characters, and none of ours, not even in other letters' case."""
    exposed = naming.expose(server, original)

    assert VALID.fullmatch(exposed)
    assert len(exposed) <= naming.limit
    assert exposed.casefold() not in RESERVED


@law
@given(naming=namings(SERVER_KEYS), server=st.sampled_from(SERVER_KEYS), original=names)
def test_a_name_that_is_not_the_plain_one_ends_in_a_hash(naming: Naming, server: str, original: str):
    """Whatever was altered says so, and `altered` tells which."""
    exposed = naming.expose(server, original)
    altered = exposed != plain(naming, server, original)

    assert naming.altered(server, original) is altered
    if altered:
        assert re.search(r"_[0-9a-f]{8}$", exposed)


@law
@given(naming=namings(SERVER_KEYS), server=st.sampled_from(SERVER_KEYS), first=names, second=names)
def test_two_tools_of_a_server_never_get_one_altered_name(naming: Naming, server: str, first: str, second: str):
    """Shortening and replacing never makes two names equal."""
    if first != second:
        assert naming.expose(server, first) != naming.expose(server, second)


@law
@given(naming=namings(SERVER_KEYS), server=st.sampled_from(SERVER_KEYS), original=names)
def test_an_unprefixed_name_is_never_taken_for_a_tool_of_another_server(naming: Naming, server: str, original: str):
    """What begins with another server's prefix is not shown as it is."""
    if naming.prefixes[server]:
        return
    for other in filter(None, naming.prefixes.values()):
        if original.startswith(sanitised(other) + "__"):
            assert naming.altered(server, original)


@pytest.mark.parametrize(
    ("server", "original", "exposed"),
    [
        ("gh", "search", "gh__search"),
        ("none", "search", "search"),
        ("gh", "time.get-now", "gh__time_get-now_a8b868b9"),
        ("gh", "a/b", "gh__a_b_e9a05c43"),
        ("none", "SKILL", "SKILL_6db721b9"),
        ("none", "skill_call", "skill_call_625b1210"),
        ("none", "gh__search", "gh__search_a316eb12"),
        ("my server", "x", "my_server__x_9dbd6e9e"),
        ("gh", "t" * 200, "gh__ttttttttttttttttttttttttttttttttttt_f75e8f2d"),
    ],
)
def test_names_survive_restarts_and_releases(server: str, original: str, exposed: str):
    """Written out: clients keep permissions by these names, so they change with no start and no version."""
    naming = Naming({"gh": "gh", "none": "", "my server": "my server"})

    assert naming.expose(server, original) == exposed


def test_a_name_just_within_the_limit_stays_and_one_beyond_is_shortened():
    """The limit is the longest name allowed."""
    naming = Naming({"gh": "gh"}, limit=16)

    assert naming.expose("gh", "t" * 12) == "gh__" + "t" * 12
    assert len(naming.expose("gh", "t" * 13)) == 16
    assert naming.altered("gh", "t" * 13)


# --- prompts ---------------------------------------------------------------------------------------------------------

ids = st.sets(names | st.sampled_from(("gh__search", "search", "Search", "my skill", "s" * 60)), max_size=4)


@law
@given(naming=namings(SERVER_KEYS), ids=ids, server=st.sampled_from(SERVER_KEYS), data=st.data())
def test_no_prompt_of_a_server_has_the_name_of_a_skill(naming: Naming, ids: set[str], server: str, data: st.DataObject):
    """In no letters' case; both are names that every client takes."""
    naming = replace(naming, skills=frozenset(ids))
    of_skills = {naming.prompt_of(skill) for skill in ids}
    wanted = [*ids, *of_skills, *map(str.upper, of_skills)]
    original = data.draw(names | st.sampled_from(wanted) if wanted else names)

    exposed = naming.expose_prompt(server, original)

    assert exposed.casefold() not in {name.casefold() for name in of_skills}
    for name in (exposed, *of_skills):
        assert VALID.fullmatch(name)
        assert len(name) <= naming.limit
    assert len(of_skills) == len(ids)


@pytest.mark.parametrize("id_", ["my skill", "s" * 60, "größe"])
def test_no_skill_can_be_called_what_the_prompt_of_another_is(id_: str):
    """Else a folder of that name would take the prompt of a skill that it has nothing to do with."""
    naming = Naming({})
    altered = naming.prompt_of(id_)

    assert naming.prompt_of(altered) not in {altered, id_}


@law
@given(naming=namings(SERVER_KEYS), server=st.sampled_from(SERVER_KEYS), original=names)
def test_a_prompt_is_called_as_a_tool_is_where_no_skill_is_called_so(naming: Naming, server: str, original: str):
    """A pure function of configuration, server and name, too (rule 19)."""
    assert naming.expose_prompt(server, original) == naming.expose(server, original)


def test_the_prompt_of_a_skill_is_called_as_the_skill_is():
    """Where clients take that; a prompt of a server that would be called so is marked."""
    naming = Naming({"gh": "gh", "none": ""}, skills=frozenset({"review", "gh__x", "my skill"}))

    assert naming.prompt_of("review") == "review"
    assert re.fullmatch(r"my_skill_[0-9a-f]{8}", naming.prompt_of("my skill"))
    assert re.fullmatch(r"Review_[0-9a-f]{8}", naming.expose_prompt("none", "Review"))
    assert re.fullmatch(r"gh__x_[0-9a-f]{8}", naming.expose_prompt("gh", "x"))
    assert naming.expose_prompt("gh", "review") == "gh__review"
    assert naming.expose("gh", "x") == "gh__x"


# --- skills that are tools -------------------------------------------------------------------------------------------

of_tools = st.sets(
    names | st.sampled_from(("gh__search", "GH__x", "a__x", "gh___", "skill__x", "Search", "my skill", "s" * 60)),
    max_size=4,
)


@law
@given(naming=namings(SERVER_KEYS), ids=of_tools, server=st.sampled_from(SERVER_KEYS), data=st.data())
def test_no_tool_of_a_server_has_the_name_of_a_skill(naming: Naming, ids: set[str], server: str, data: st.DataObject):
    """In no letters' case; both are names that every client takes, each of its own, and never one of ours."""
    naming = replace(naming, tools=frozenset(ids))
    of_skills = {naming.tool_of(skill) for skill in ids}
    wanted = [*ids, *of_skills, *map(str.upper, of_skills)]
    wanted += [name.partition("__")[2] or name for name in wanted]
    original = data.draw(names | st.sampled_from(wanted) if wanted else names)

    exposed = naming.expose(server, original)

    assert exposed.casefold() not in {name.casefold() for name in of_skills}
    for name in (exposed, *of_skills):
        assert VALID.fullmatch(name)
        assert len(name) <= naming.limit
        assert name.casefold() not in RESERVED
    assert len(of_skills) == len(ids)


@law
@given(naming=namings(SERVER_KEYS), skill=names | of_tools.filter(bool).map(min), data=st.data())
def test_no_skill_is_called_like_a_tool_of_a_server(naming: Naming, skill: str, data: st.DataObject):
    """However it begins, and wherever its name is cut: a permission for all of a server's tools is none for it."""
    prefixes = [sanitised(prefix) for prefix in naming.prefixes.values() if prefix]
    cut = data.draw(
        st.sampled_from((skill, *(f"{prefix}_{skill}" for prefix in prefixes), *(f"{p}__" for p in prefixes)))
    )

    name = naming.tool_of(cut).casefold()

    assert not any(name.startswith(f"{prefix.casefold()}__") for prefix in prefixes)


@law
@given(naming=namings(SERVER_KEYS), server=st.sampled_from(SERVER_KEYS), original=names, ids=of_tools)
def test_prompts_and_other_tools_are_called_as_they_were(naming: Naming, server: str, original: str, ids: set[str]):
    """A skill that is a tool takes its one name from tools, and none from prompts."""
    with_tools = replace(naming, tools=frozenset(ids))
    taken = {with_tools.tool_of(skill).casefold() for skill in ids}

    assert with_tools.expose_prompt(server, original) == naming.expose_prompt(server, original)
    if (name := naming.expose(server, original)).casefold() not in taken:
        assert with_tools.expose(server, original) == name


def test_the_tool_of_a_skill_is_called_as_the_skill_is():
    """Where clients take that, and where it cannot be taken for another's; a tool that would be called so is marked."""
    naming = Naming({"gh": "gh", "none": ""}, tools=frozenset({"review", "gh__x", "my skill"}))

    assert naming.tool_of("review") == "review"
    assert re.fullmatch(r"my_skill_[0-9a-f]{8}", naming.tool_of("my skill"))
    assert re.fullmatch(r"gh_x_[0-9a-f]{8}", naming.tool_of("gh__x"))
    assert re.fullmatch(r"gh_[0-9a-f]{8}", naming.tool_of("gh__"))
    assert re.fullmatch(r"Skill_Invoke_[0-9a-f]{8}", naming.tool_of("Skill_Invoke"))
    assert re.fullmatch(r"Review_[0-9a-f]{8}", naming.expose("none", "Review"))
    assert naming.altered("none", "Review")
    assert naming.expose("gh", "x") == "gh__x"
    assert naming.expose("gh", "review") == "gh__review"
