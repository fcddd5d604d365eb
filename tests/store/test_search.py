"""Which skills a search finds, and in which order."""

import sqlite3
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from anyio import to_thread
from hypothesis import example, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from proxy.ports import SkillText
from proxy.store import search
from proxy.store.search import LONGEST_GUIDE, LONGEST_QUERY, MOST_WORDS, FtsSearch, has_fts5
from tests.conftest import PATIENCE

pytestmark = pytest.mark.anyio

SHIPPED = yaml.safe_load(Path("config/skills.yaml").read_text("utf-8"))["skill_configs"]


def skill(key: str, name: str = "", desc: str = "", *tags: str) -> SkillText:
    return SkillText(key, name, desc, tags)


def guides(**texts: str) -> Callable[[str], str]:
    """The guides by id; empty for the others."""
    return lambda key: texts.get(key, "")


NO_GUIDES = guides()


class Library:
    """Counts how often each guide is read; reading takes until `open` is set."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.read: Counter[str] = Counter()
        self.threads: set[int] = set()
        self.open = threading.Event()
        if is_open:
            self.open.set()

    def __call__(self, key: str) -> str:
        self.read[key] += 1
        self.threads.add(threading.get_ident())
        assert self.open.wait(PATIENCE)
        return "a guide"


async def find(skills: Sequence[SkillText], query: str, guide_of: Callable[[str], str] = NO_GUIDES) -> list[str]:
    return await FtsSearch().find(skills, query, guide_of)


# --- what is found ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["pdf-processing", "Papers", "extract", "office", "metadata"])
async def test_a_word_is_found_in_the_id_the_name_the_description_the_tags_and_the_guide(query: str):
    skills = (skill("clock"), skill("pdf-processing", "Papers", "Extract text.", "office"))

    assert await find(skills, query, guides(**{"pdf-processing": "Ask for metadata."})) == ["pdf-processing"]


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("pdf-processing", "pdf"),
        ("pdf-processing", "processing pdf"),
        ("get_time", "time"),
        ("getTime", "time"),
        ("getTime", "get"),
        ("PDFReader", "reader"),
        ("PDFReader", "pdf"),
        ("oauth2", "oauth"),
        ("get_time", "getTime"),
        ("getTime", "gettime"),
        ("server.tool/read", "tool"),
    ],
)
@pytest.mark.parametrize("as_id", [True, False])
async def test_a_name_is_found_by_its_parts_and_as_a_whole(name: str, query: str, as_id: bool):
    found = await find((skill("clock"), skill(name) if as_id else skill("it", name)), f"{query} nowhere")

    assert found == [name if as_id else "it"]


@pytest.mark.parametrize("query", ["converting", "converts", "CONVERT", "resumes", "Résumé", "re\u0301sume\u0301"])
async def test_case_accents_and_the_endings_of_words_do_not_matter(query: str):
    assert await find((skill("it", "", "Converted résumés"), skill("other")), query) == ["it"]


async def test_the_beginning_of_the_last_word_is_enough():
    """Of an earlier one it is not: that has been typed to its end."""
    skills = (skill("clock", "Clock", "Time zones"), skill("road", "Road", "Two lanes"))

    assert await find(skills, "time z") == ["clock"]
    assert await find(skills, "nowhere zon") == ["clock"]
    assert await find(skills, "zon lanes") == ["road"]
    assert await find(skills, "nowhere plan", guides(road="Plans a way.")) == ["road"]


async def test_a_whole_word_counts_more_than_one_that_only_begins_so():
    assert await find((skill("a", "", "login page"), skill("b", "", "log page")), "log") == ["b", "a"]


@pytest.mark.parametrize("query", ["", "   \n", "nowhere", "!?", "\0", "\ud800", "\ufe0f", "🦀"])
async def test_nothing_is_found_where_nothing_matches(query: str):
    assert await find((skill("clock", "Clock", "The time."),), query) == []


async def test_nothing_is_found_among_no_skills():
    assert await find((), "time") == []


@pytest.mark.parametrize("query", ["网页", "网", "网页内容", "打开网页", "网页 x", "pdf网页", "ﾜﾝ", "ワン"])
async def test_chinese_and_japanese_words_are_found_inside_of_what_has_no_spaces(query: str):
    skills = (skill("clock", "", "查询时间。"), skill("web", "读取网页", "PDF文件和网页内容ワンページ"))

    assert await find(skills, query) == ["web"]


async def test_more_pairs_of_characters_in_common_rank_higher():
    skills = (skill("a", "", "时间转换"), skill("b", "", "查询当前时间"))

    assert await find(skills, "请查询时间") == ["b", "a"]


@pytest.mark.parametrize("query", ["🕐", "ockwor", "\uff4f\uff43\uff4b", "c++ 🕐", "+"])
async def test_what_is_no_word_is_found_as_it_stands(query: str):
    assert await find((skill("a", "Else"), skill("it", "Clockwork 🕐 x++")), query) == ["it"]


# --- their order -----------------------------------------------------------------------------------------------------


async def test_a_name_counts_more_than_a_tag_that_more_than_a_description_and_that_more_than_a_guide():
    skills = (
        skill("by-guide", "other", "other", "other"),
        skill("by-desc", "other", "word", "other"),
        skill("by-tag", "other", "other", "word"),
        skill("by-name", "word here", "other", "other"),
    )

    found = await find(skills, "word", guides(**{"by-guide": "word " * 50}))

    assert found == ["by-name", "by-tag", "by-desc", "by-guide"]


async def test_any_word_will_do_and_more_of_them_rank_higher():
    skills = (skill("a", "", "red tea"), skill("b", "", "blue car"), skill("c", "", "red car"), skill("d", "", "green"))

    found = await find(skills, "red car")

    assert found[0] == "c"
    assert sorted(found) == ["a", "b", "c"]


async def test_the_last_word_outweighs_no_better_match_of_an_earlier_one():
    skills = (skill("a", "", "file"), skill("b", "stage"))

    assert await find(skills, "stage file") == ["b", "a"]


async def test_those_that_match_alike_come_in_the_order_given():
    names = [f"s{number}" for number in (3, 1, 2, 10, 7)]

    assert await find([skill(name, "", "the time") for name in names], "time") == names


async def test_the_id_that_was_asked_for_comes_first_then_the_name_then_the_rank():
    skills = (
        skill("time-time", "time time", "time time time", "time"),
        skill("x", "TIME"),
        skill("TIME"),
        skill("time"),
    )

    assert await find(skills, " time ") == ["time", "TIME", "x", "time-time"]


@pytest.mark.parametrize("name", ["...", "C++", "時計", "Größe 🕐", "a b  c", "SKILL" * 40])
async def test_any_id_and_name_can_be_asked_for(name: str):
    others = [skill(f"other-{number}", f"{name} {name}", name * 2) for number in range(3)]

    assert (await find([*others, skill(name)], name))[0] == name
    assert (await find([*others, skill("it", name)], name.upper()))[0] == "it"


async def test_a_word_that_most_skills_hold_still_counts():
    """The skill named after it comes before one whose guide happens to hold the rare word."""
    skills = (skill("clock"), skill("commit", "", "commit"), skill("a", "", "commit"), skill("b", "", "commit"))

    assert (await find(skills, "commit today now", guides(clock="today")))[0] == "commit"


async def test_a_long_guide_does_not_lower_what_the_name_counts_for():
    skills = (skill("a", "time keeping"), skill("b", "time keeping"))

    assert await find(skills, "time", guides(a="something else " * 500)) == ["a", "b"]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("time zone", "clock"),
        ("time z", "clock"),
        ("what time is it in Tokyo", "clock"),
        ("git history", "repository"),
        ("commit changes", "commit"),
        ("git commit today", "commit"),
        ("create a branch", "commit"),
        ("read a web page", "web"),
        ("url", "web"),
        ("notes of a release", "release-notes"),
    ],
)
async def test_the_shipped_skills_are_found_by_what_people_would_ask(query: str, first: str):
    skills = [skill(key, each["name"], each["desc"]) for key, each in SHIPPED.items()]

    assert (await find(skills, query, lambda key: SHIPPED[key]["usage"]))[0] == first


async def test_what_is_in_one_set_has_no_part_in_the_order_of_another():
    a, b = skill("a", "", "alpha"), skill("b", "", "beta")
    own, wider = (a, b), (a, b, *(skill(f"c{number}", "", "alpha alpha") for number in range(20)))
    searching = FtsSearch()

    before = await searching.find(own, "alpha beta x", NO_GUIDES)
    others = await searching.find(wider, "alpha beta x", NO_GUIDES)
    after = await searching.find(own, "alpha beta x", NO_GUIDES)

    assert before == after == ["a", "b"]
    assert others.index("b") < others.index("a")  # there, alpha is a frequent word


# --- queries are data ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        '"git',
        'git"',
        "nowhere AND git",
        "NOT git",
        "git NOT git",
        "NEAR(git nowhere, 1)",
        "nowhere:git",
        "{guide desc}: git",
        "-git",
        "^git",
        "git*",
        "(git",
        "nowhere + git",
        "git\0",
        "\ud800git\udfff",
        "git; DROP TABLE label",
        "'git",
        "git\ufe0f",
    ],
)
async def test_nothing_in_a_query_is_syntax(query: str):
    assert await find((skill("git"), skill("clock", "Clock", "The time.")), f"{query} nowhere") == ["git"]


@pytest.mark.parametrize("ranks", [True, False])
@settings(max_examples=100, deadline=None)
@given(query=st.text() | st.text(st.sampled_from('"*^-+:(){},\0\ud800 .aANDORTNE件🕐\u0301\ufe0f')), data=st.data())
@example(query="w" * 100_000, data=None)
@example(query="word " * 10_000, data=None)
@example(query="\ufdfa" * LONGEST_QUERY, data=None)
@example(query=" ".join(map(str, range(10_000))), data=None)
def test_no_query_and_no_text_of_a_skill_raises(ranks: bool, query: str, data: st.DataObject | None):
    text = data.draw(st.text()) if data else "\ud800\0"
    skills = (skill("a", text, text, text), skill("b"))
    with pytest.MonkeyPatch.context() as patch, capture_logs():
        patch.setattr(search, "has_fts5", lambda: ranks)
        found = anyio.run(find, skills, query, lambda _: text)

    assert set(found) <= {"a", "b"}
    assert len(found) == len(set(found))


async def test_what_is_beyond_the_bounds_of_a_query_is_not_looked_for():
    skills = (skill("git"), skill("clock"))
    words = " ".join(f"x{number}" for number in range(MOST_WORDS - 1))

    assert await find(skills, f"{words} git") == ["git"]
    assert await find(skills, f"{words} y git") == []
    assert await find(skills, "x" * (LONGEST_QUERY - 4) + " git") == ["git"]
    assert await find(skills, "x" * LONGEST_QUERY + " git") == []


# --- guides and indexes ----------------------------------------------------------------------------------------------


async def test_a_guide_that_cannot_be_read_keeps_no_skill_from_being_found():
    def guide_of(key: str) -> str:
        if key == "a":
            raise PermissionError(13, "Permission denied")
        return "rare"

    skills = (skill("a", "Clock"), skill("b", "Clock"))

    assert await find(skills, "clock", guide_of) == ["a", "b"]
    assert await find(skills, "rare", guide_of) == ["b"]


async def test_of_a_long_guide_the_beginning_counts():
    guide = f"early {'x ' * (LONGEST_GUIDE // 2)} late"

    assert await find((skill("it"),), "early", guides(it=guide)) == ["it"]
    assert await find((skill("it"),), "late", guides(it=guide)) == []


async def test_guides_are_read_once_for_a_set_that_stays_the_same_and_not_in_the_event_loop():
    library, skills = Library(), (skill("a"), skill("b"))
    searching = FtsSearch()

    for query in ("a", "b", "guide", "nowhere"):
        await searching.find(skills, query, library)

    assert library.read == {"a": 1, "b": 1}
    assert threading.get_ident() not in library.threads


async def test_an_equal_set_is_another_one():
    library, searching = Library(), FtsSearch()

    for skills in ([skill("a")], [skill("a")]):
        await searching.find(skills, "a", library)

    assert library.read == {"a": 2}


async def test_those_who_search_at_once_share_one_reading_and_keep_no_thread_from_others():
    library, skills, found = Library(is_open=False), (skill("a"), skill("b")), list[str]()
    searching = FtsSearch()

    async def one() -> None:
        found.extend(await searching.find(skills, "guide", library))

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(one)
            await anyio.wait_all_tasks_blocked()
            assert to_thread.current_default_thread_limiter().borrowed_tokens == 0
            library.open.set()

    assert found == ["a", "b"] * 5
    assert library.read == {"a": 1, "b": 1}


async def test_who_gives_up_need_not_wait_and_what_was_begun_serves_the_next():
    library, skills = Library(is_open=False), (skill("a"), skill("b"))
    searching = FtsSearch()

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(searching.find, skills, "guide", library)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert not library.open.is_set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(searching.find, skills, "guide", library)
            await anyio.wait_all_tasks_blocked()
            library.open.set()
        assert await searching.find(skills, "guide", library) == ["a", "b"]

    assert library.read == {"a": 1, "b": 1}


async def test_after_an_error_the_next_search_begins_anew():
    skills, searching = (skill("a"),), FtsSearch()

    def broken(key: str) -> str:
        raise LookupError(key)

    with pytest.raises(LookupError):
        await searching.find(skills, "guide", broken)

    assert await searching.find(skills, "guide", guides(a="A guide.")) == ["a"]


async def test_the_sets_used_last_are_kept():
    library, searching = Library(), FtsSearch(kept=2)
    a, b, c = [skill("a")], [skill("b")], [skill("c")]

    for skills in (a, b, a, c, a, c, b):
        await searching.find(skills, "guide", library)

    assert library.read == {"a": 1, "b": 2, "c": 1}


async def test_four_sets_are_kept():
    library, searching = Library(), FtsSearch()
    sets = [[skill(f"s{number}")] for number in range(5)]

    for skills in [*sets, *sets[1:], sets[0]]:
        await searching.find(skills, "guide", library)

    assert library.read == {"s0": 2} | {f"s{number}": 1 for number in range(1, 5)}


async def test_of_a_set_that_is_not_kept_nothing_stays(monkeypatch: pytest.MonkeyPatch):
    class Skills(list[SkillText]):
        """A list that can be watched."""

    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def watched(*args: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*args, **options))
        return opened[-1]

    searching = FtsSearch(kept=1)
    monkeypatch.setattr(sqlite3, "connect", watched)
    skills = Skills([skill("a")])
    alive = weakref.ref(skills)
    await searching.find(skills, "a", NO_GUIDES)
    del skills
    assert alive() is not None

    await searching.find([skill("b")], "b", NO_GUIDES)

    assert alive() is None
    assert len(opened) == 2
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


# --- without FTS5 ----------------------------------------------------------------------------------------------------


async def test_without_fts5_skills_are_found_by_what_their_texts_contain(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search, "has_fts5", lambda: False)
    skills = (skill("a", "Zeit", "time"), skill("b", "", "Time zones", "clocks"), skill("time", "", "x"), skill("d"))
    with capture_logs() as log:
        searching = FtsSearch()
        for query, found in {
            "zone CLOCK": ["b"],
            "time zone": ["b", "a", "time"],
            "time": ["time", "a", "b"],
            "ZEIT": ["a"],
            "nowhere": [],
        }.items():
            assert await searching.find(skills, query, guides(d="nowhere")) == found

    assert [(entry["event"], entry["log_level"]) for entry in log] == [("search.plain", "warning")]


def test_a_python_without_fts5_is_told_from_one_with_it(monkeypatch: pytest.MonkeyPatch):
    class Without(sqlite3.Connection):
        def execute(self, *_: Any) -> sqlite3.Cursor:
            raise sqlite3.OperationalError("no such module: fts5")

    connect = sqlite3.connect
    assert has_fts5()

    monkeypatch.setattr(sqlite3, "connect", lambda place: connect(place, factory=Without))
    assert not has_fts5()
