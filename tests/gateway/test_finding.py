"""The `list` action: what is narrowed by what, and what is searched in."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from proxy.core.catalogue import Allow, Catalogue, Skill
from proxy.core.names import Naming
from proxy.core.profiles import Profile, restricted
from proxy.gateway.finding import KEPT, Finding
from proxy.ports import SkillText
from tests.answers import listed_skills
from tests.gateway.world import Files

pytestmark = pytest.mark.anyio

SKILLS = (
    Skill("clock", "Clock", "Tells the time", "Ask for a zone.", category="Time", tags=("now", "Zones")),
    Skill("diary", "Diary", "Keeps dates", None, category="time", tags=("zones",)),
    Skill("git", "Git", "Looks at commits", "Begin with status.", tags=("code",)),
)
ALL = Catalogue((), Naming({}), SKILLS)


class Search:
    """Finds every skill whose texts or guide hold the query, the last one first; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Sequence[SkillText], str]] = []

    async def find(self, skills: Sequence[SkillText], query: str, guide_of: Callable[[str], str]) -> list[str]:
        self.asked.append((skills, query))
        return [skill.id for skill in reversed(skills) if query in f"{skill} {guide_of(skill.id)}"]


class World:
    def __init__(self) -> None:
        self.search = Search()
        self.made = 0
        self.finding = Finding(self._search, Files())

    def _search(self) -> Search:
        self.made += 1
        return self.search

    async def found(self, catalogue: Catalogue = ALL, **arguments: Any) -> list[str]:
        return listed_skills(await self.finding.list(catalogue, [], arguments))


async def test_without_more_all_skills_are_listed_and_nothing_is_searched():
    """In the order of the file."""
    world = World()

    assert await world.found() == ["clock", "diary", "git"]
    assert await world.found(query=" ", category="", tags=[]) == ["clock", "diary", "git"]
    assert world.made == 0


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"category": "time"}, ["clock", "diary"]),
        ({"category": " TIME "}, ["clock", "diary"]),
        ({"category": "tim"}, []),
        ({"tags": ["zones"]}, ["clock", "diary"]),
        ({"tags": ["ZONES", "now"]}, ["clock"]),
        ({"tags": "zones, now"}, ["clock"]),
        ({"tags": ["zones", "code"]}, []),
        ({"query": "dates"}, ["diary"]),
        ({"query": "zone"}, ["diary", "clock"]),
        ({"query": "zone", "tags": ["now"]}, ["clock"]),
        ({"query": "zone", "category": "other"}, []),
        ({"category": None, "tags": None, "query": None, "page": None}, ["clock", "diary", "git"]),
    ],
)
async def test_a_list_is_narrowed_by_all_that_is_asked(asked: dict[str, Any], found: list[str]):
    """Categories and tags in any case; what search finds is in its order."""
    assert await World().found(**asked) == found


async def test_guides_are_searched_wherever_they_are():
    """In the configuration, or in a file."""
    assert await World().found(query="Begin with") == ["git"]
    assert await World().found(query="guide of diary") == ["diary"]


async def test_what_is_not_in_the_catalogue_is_not_searched():
    """It has no part in how others are ranked, and is not counted."""
    world = World()
    part = restricted(ALL, Profile(denied=Allow.of(["clock"])))

    result = await world.finding.list(part, [], {"query": "o"})

    assert "clock" not in str(result)
    assert [skill.id for skill in world.search.asked[0][0]] == ["diary", "git"]


async def test_the_texts_of_a_catalogue_are_the_same_object_each_time():
    """By which search knows that it has read them; only some are kept."""
    world = World()
    await world.found(query="o")
    await world.found(query="i")
    assert world.search.asked[0][0] is world.search.asked[1][0]

    others = [Catalogue((), Naming({}), SKILLS[:1]) for _ in range(KEPT)]
    for other in others:
        await world.found(other, query="o")
    await world.found(others[-1], query="o")
    assert world.search.asked[-1][0] is world.search.asked[-2][0]
    assert len(world.finding._texts) == KEPT
    await world.found(query="o")
    assert world.search.asked[-1][0] is not world.search.asked[0][0]


@pytest.mark.parametrize("page", [0, -1, True, 1.5, "x", "-1", "0", "", [], "9" * 5000, "٣"])
async def test_what_is_no_page_is_refused(page: object):
    """In words, whatever it is."""
    result = await World().finding.list(ALL, [], {"page": page})

    assert result["isError"] is True
    assert result["content"][0]["text"] == "page must be a whole number from 1 on."


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"query": []}, "query must be text."),
        ({"query": 5, "category": "time"}, "query must be text."),
        ({"category": {"a": 1}}, "category must be text."),
        ({"tags": 5}, "tags must be a list of texts."),
        ({"tags": ["zones", 5]}, "tags must be a list of texts."),
        ({"tags": {"zones": True}}, "tags must be a list of texts."),
    ],
)
async def test_what_cannot_narrow_a_list_is_refused(asked: dict[str, Any], why: str):
    """Or whoever asked would take all skills for those that match."""
    result = await World().finding.list(ALL, [], asked)

    assert (result["isError"], result["content"][0]["text"]) == (True, why)


@pytest.mark.parametrize("page", [1, "1"])
async def test_a_page_may_be_given_as_text(page: object):
    """Some models write it so."""
    assert await World().found(page=page) == ["clock", "diary", "git"]
