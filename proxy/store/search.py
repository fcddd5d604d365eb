"""Ranked search over the texts of skills, by SQLite's FTS5 in memory."""

import re
import sqlite3
import threading
import unicodedata
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Final, TypeAlias

import structlog
from anyio import CapacityLimiter, to_thread

from proxy.ports import SkillText

log = structlog.stdlib.get_logger("proxy.store")

LONGEST_QUERY: Final = 500
"""Characters of a query that are looked at."""
MOST_WORDS: Final = 32
"""Words of a query that are looked for."""
LONGEST_GUIDE: Final = 20_000
"""Characters of a guide that are indexed: what it is about, it says at its beginning."""

GuideOf: TypeAlias = Callable[[str], str]
"""The guide of a skill by id; it is called in a worker thread, and may raise OSError."""


_TABLES: Final = """
CREATE VIRTUAL TABLE label USING fts5(id, name, tags, desc, {options});
CREATE VIRTUAL TABLE guide USING fts5(text, {options});
INSERT INTO label (label, rank) VALUES ('rank', 'bm25(8.0, 8.0, 6.0, 2.0)');
""".format(options="content='', detail=full, tokenize='porter unicode61 remove_diacritics 2'")
"""The texts themselves are not kept; ranking without them needs `detail=full`.

Guides are apart: in one table, a long guide would lower what the name beside it counts for.
"""
_FIND: Final = """
SELECT skill FROM (
    SELECT rowid AS skill, rank AS score FROM label WHERE label MATCH :words
    UNION ALL
    SELECT rowid, 0.2 * rank FROM label WHERE label MATCH :beginning
    UNION ALL
    SELECT rowid, 0.1 * rank FROM guide WHERE guide MATCH :words
    UNION ALL
    SELECT rowid, 0.02 * rank FROM guide WHERE guide MATCH :beginning
)
GROUP BY skill ORDER BY sum(score), skill
"""
"""Ranks are negative, the best one the lowest. A guide mentions much that its skill is not for, so it counts little."""
_CASE: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])")
"""Where a part of a name such as `getTime`, `PDFPage` or `oauth2` ends, and the next begins."""
_UNSPACED: Final = (
    r"\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Characters of Chinese, Japanese and Korean: FTS5 would take everything between two spaces for one word."""
_ONE_UNSPACED: Final = re.compile(f"[{_UNSPACED}]")
_RUN: Final = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")


class FtsSearch:
    """Finds skills by their texts; `kept`: for how many sets of skills an index is kept, the last used ones.

    Each set has an index of its own, so that what somebody may not use has no part in how theirs are ranked. Without
    FTS5 in this Python, skills are found by plain comparison, which is said once in the log.
    """

    def __init__(self, *, kept: int = 4) -> None:
        self._kept = kept
        self._indexes: OrderedDict[int, _Index] = OrderedDict()
        self._ranks = has_fts5()
        if not self._ranks:
            log.warning("search.plain", why="the SQLite of this Python has no FTS5: skills are found without ranking")

    async def find(self, skills: Sequence[SkillText], query: str, guide_of: GuideOf) -> list[str]:
        """The ids of those that match `query`, best first; an id or name that is the query itself comes first.

        One word that matches is enough, of the last one its beginning. `skills` is known again by being the same
        object, so it must not change; `guide_of` is asked when it is new, and what it raises but OSError comes out.
        """
        text = unicodedata.normalize("NFKC", query[:LONGEST_QUERY]).strip()
        if not text:
            return []
        index = self._index(skills)
        # The limiter has those who wait do so here, and not in threads; a search that is given up goes on alone.
        return await to_thread.run_sync(index.find, text, guide_of, abandon_on_cancel=True, limiter=index.one_at_a_time)

    def _index(self, skills: Sequence[SkillText]) -> "_Index":
        key = id(skills)  # no other object has it while the index holds this one
        index = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = _Index(skills, ranks=self._ranks)
            if len(self._indexes) > self._kept:
                self._indexes.popitem(last=False)
        self._indexes.move_to_end(key)
        return index


def has_fts5() -> bool:
    """Whether the SQLite of this Python has FTS5."""
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute("CREATE VIRTUAL TABLE trial USING fts5(text)")
        except sqlite3.OperationalError:
            return False
    return True


class _Index:
    """One set of skills, which it keeps alive, and what FTS5 knows of it from the first search on."""

    def __init__(self, skills: Sequence[SkillText], *, ranks: bool) -> None:
        self.one_at_a_time = CapacityLimiter(1)
        self._skills = skills
        self._ranks = ranks
        self._database: sqlite3.Connection | None = None
        self._lock = threading.Lock()  # a search that was given up may still run

    def find(self, text: str, guide_of: GuideOf) -> list[str]:
        """The ids of the skills that match, best first; blocks."""
        found = self._ranked(text, guide_of) if self._ranks else []
        numbers = [*_exact(self._skills, text), *(found or _containing(self._skills, text))]
        return list(dict.fromkeys(self._skills[number].id for number in numbers))

    def _ranked(self, text: str, guide_of: GuideOf) -> list[int]:
        """The numbers of the skills that FTS5 finds."""
        words = _words(text)
        if not words:
            return []
        with self._lock:
            if self._database is None:
                self._database = _built(self._skills, guide_of)
                # At exit it stays open: a search that was given up may still use it.
                weakref.finalize(self, self._database.close).atexit = False
            quoted = [f'"{_indexed(word)}"' for word in words]
            parameters = {"words": " OR ".join(quoted), "beginning": f"{quoted[-1]} *"}
            return [number for (number,) in self._database.execute(_FIND, parameters)]


def _built(skills: Sequence[SkillText], guide_of: GuideOf) -> sqlite3.Connection:
    """A database in memory that has the texts of `skills` by their numbers."""
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        database.executescript(f"PRAGMA journal_mode = OFF; {_TABLES} BEGIN")
        database.executemany("INSERT INTO label (rowid, id, name, tags, desc) VALUES (?, ?, ?, ?, ?)", _labels(skills))
        database.executemany("INSERT INTO guide (rowid, text) VALUES (?, ?)", _guides(skills, guide_of))
        # To bm25, a word that more than half of the rows hold says nothing, and in a small set many do. With as many
        # empty rows again, there is no such word.
        empty = [(-1 - number,) for number in range(len(skills))]
        database.executemany("INSERT INTO label (rowid) VALUES (?)", empty)
        database.executemany("INSERT INTO guide (rowid) VALUES (?)", empty)
        database.execute("COMMIT")
    except BaseException:
        database.close()
        raise
    return database


def _labels(skills: Sequence[SkillText]) -> Iterator[tuple[int | str, ...]]:
    for number, skill in enumerate(skills):
        named = (f"{text} {' '.join(_parts(text))}" for text in (skill.id, skill.name, " ".join(skill.tags)))
        yield (number, *map(_indexed, (*named, skill.desc)))


def _guides(skills: Sequence[SkillText], guide_of: GuideOf) -> Iterator[tuple[int, str]]:
    for number, skill in enumerate(skills):
        try:
            guide = guide_of(skill.id)
        except OSError:
            continue
        yield number, _indexed(guide[:LONGEST_GUIDE])


def _indexed(text: str) -> str:
    """`text` as FTS5 gets it: a form of each character, none that SQLite refuses, and unspaced ones as words."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text).encode("utf-8", "replace").decode("utf-8")
    return _ONE_UNSPACED.sub(r" \g<0> ", text)


def _parts(text: str) -> list[str]:
    """The parts of those words that are made of several, as `getTime` is; a single letter or a number is none."""
    parts = (_CASE.split(word) for word in re.findall(r"[^\W_]+", text))
    return [part for several in parts if len(several) > 1 for part in several if len(part) > 1 and not part.isdigit()]


def _words(text: str) -> list[str]:
    """What to look for: words, their parts, and pairs of characters where no spaces part words.

    They consist of letters, digits and marks, so nothing in them is syntax to FTS5.
    """
    plain = "".join(character if unicodedata.category(character)[0] in "LMN" else " " for character in text)
    words: list[str] = []
    for run in (run for word in plain.split() for run in _RUN.findall(word)):
        if _ONE_UNSPACED.match(run):
            words += map("".join, pairwise(run)) if len(run) > 1 else [run]
        else:
            words += [*_parts(run), run]
    return list(dict.fromkeys(words))[:MOST_WORDS]


def _exact(skills: Sequence[SkillText], text: str) -> list[int]:
    """The numbers of the skills whose id, or else name, `text` is; that whose id it is to the letter comes first."""
    folded = _folded(text)
    ranks = [(skill.id != text, _folded(skill.id) != folded, _folded(skill.name) != folded) for skill in skills]
    return sorted((number for number, rank in enumerate(ranks) if not all(rank)), key=lambda number: ranks[number])


def _containing(skills: Sequence[SkillText], text: str) -> list[int]:
    """The numbers of the skills whose texts, guides apart, contain a word of `text`; those with most words first."""
    words = _folded(text).split()[:MOST_WORDS]
    texts = (_folded("\n".join((skill.id, skill.name, skill.desc, *skill.tags))) for skill in skills)
    counts = [sum(word in within for word in words) for within in texts]
    return sorted((number for number, count in enumerate(counts) if count), key=lambda number: -counts[number])


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
