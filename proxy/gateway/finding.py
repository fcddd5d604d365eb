"""The `list` action of `SKILL`: skills by category, tags and search, a page at a time."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.inventory import items
from proxy.core.skill_answers import listing, words
from proxy.core.wording import refusal
from proxy.ports import SkillFiles, SkillSearch, SkillText

KEPT: Final = 8
"""Catalogues whose texts are kept, so that they are read once."""
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class Finding:
    """Lists the skills of a catalogue; what is not in it is not found and counts for nothing.

    `search`: gives what searches, the same each time, when it is needed.
    """

    def __init__(self, search: Callable[[], SkillSearch], files: SkillFiles) -> None:
        self._search = search
        self._files = files
        self._texts: dict[int, tuple[Catalogue, Sequence[SkillText]]] = {}

    async def list(self, catalogue: Catalogue, current: Sequence[str], arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The page that is asked for; `arguments` are those of `SKILL`, as the client sent them."""
        if fault := _fault(arguments):
            return refusal(fault)
        category, query = arguments.get("category") or "", arguments.get("query") or ""
        page, tags = int(arguments.get("page") or 1), tuple(dict.fromkeys(words(arguments.get("tags"))))
        found: Sequence[Skill] = catalogue.skills
        asked: dict[str, Any] = {}
        if query.strip():
            asked["query"] = query
            ids = await self._search().find(self._texts_of(catalogue), query, partial(self._guide, catalogue))
            found = [catalogue.by_id[id_] for id_ in ids]
        if category.strip():
            asked["category"] = category
            found = [skill for skill in found if skill.category.casefold() == category.strip().casefold()]
        if tags:
            asked["tags"] = list(tags)
            wanted = {tag.casefold() for tag in tags}
            found = [skill for skill in found if wanted <= {tag.casefold() for tag in skill.tags}]
        return listing(catalogue, current, found, page=page, asked=asked)

    def _guide(self, catalogue: Catalogue, skill: str) -> str:
        usage = catalogue.by_id[skill].usage
        return self._files.guide(catalogue.by_id[skill]) if usage is None else usage

    def _texts_of(self, catalogue: Catalogue) -> Sequence[SkillText]:
        """The texts of a catalogue's skills; the same object as long as it is the same catalogue."""
        if id(catalogue) not in self._texts:
            while len(self._texts) >= KEPT:
                del self._texts[next(iter(self._texts))]
            texts = tuple(SkillText(skill.id, skill.name, skill.desc, skill.tags) for skill in catalogue.skills)
            self._texts[id(catalogue)] = catalogue, texts
        return self._texts[id(catalogue)][1]


def _fault(arguments: Mapping[str, Any]) -> str:
    """What an argument should have been, empty where all are; null says the same as leaving it out."""
    page, tags = arguments.get("page"), arguments.get("tags")
    for key in ("query", "category"):
        if not isinstance(arguments.get(key), str | None):
            return f"{key} must be text."
    if not all(isinstance(tag, str) for tag in items(tags)) or not isinstance(tags, str | list | None):
        return "tags must be a list of texts."
    number = _NUMBER.fullmatch(page) if isinstance(page, str) else isinstance(page, int) and page is not True
    if page is not None and not (number and int(page) > 0):
        return "page must be a whole number from 1 on."
    return ""
