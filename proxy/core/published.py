"""Skills as clients find them beside `SKILL`: each a prompt, and a folder of resources under `skill://` (SEP-2640)."""

import re
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from proxy.core.catalogue import Catalogue, Skill
from proxy.core.texts import flat

EXTENSION: Final = "io.modelcontextprotocol/skills"
SCHEME: Final = "skill://"
DOCUMENT: Final = "SKILL.md"
"""What a skill's guide is called for clients, however its file is spelled."""
MARKDOWN: Final = "text/markdown"
TEMPLATE: Final = SCHEME + "{skill}/{+path}"
"""Every file of a skill, for clients that know no skills."""
DESCRIPTION_LIMIT: Final = 1024
"""Characters of a description (Agent Skills standard)."""

_LEGAL_NAME: Final = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")


class Address(NamedTuple):
    """What a URI of ours leads to: a skill, and a path in its folder; empty for the folder itself."""

    skill: str
    path: str


def is_legal_name(name: str) -> bool:
    """Whether the Agent Skills standard takes it for the name of a skill: a-z, 0-9 and single hyphens inside."""
    return _LEGAL_NAME.fullmatch(name) is not None


def served(skill: Skill) -> bool:
    """Whether clients that know skills can be served it: its id is a legal name, and its files are as they must be."""
    return is_legal_name(skill.id) and not (skill.folder is not None and skill.folder.unserved)


def uri_of(skill: str, path: str = "") -> str:
    """The URI of a file or folder of a skill that is served, or of its own folder."""
    # Of a client's own making, `path` may be no text that UTF-8 has; that is no reason to fail.
    return f"{SCHEME}{skill}/{quote(path, errors='surrogatepass')}" if path else f"{SCHEME}{skill}"


def address(uri: str) -> Address | None:
    """What `uri` leads to if it is one that `uri_of` gives; None for any other spelling."""
    skill, _, rest = uri.removeprefix(SCHEME).partition("/")
    found = Address(skill, unquote(rest))
    return found if is_legal_name(skill) and uri_of(*found) == uri else None


def skill_resources(catalogue: Catalogue) -> list[dict[str, Any]]:
    """The guides of the skills that are served, as `resources/list` shows them."""
    return [
        {
            "uri": uri_of(skill.id, DOCUMENT),
            "name": skill.id,
            **_titled(skill),
            "description": described(skill),
            "mimeType": MARKDOWN,
        }
        for skill in catalogue.skills
        if served(skill)
    ]


def skill_templates(catalogue: Catalogue) -> list[dict[str, Any]]:
    """The template of their other files, where there are any."""
    if not any(
        served(skill) and skill.folder is not None and len(skill.folder.files) > 1 for skill in catalogue.skills
    ):
        return []
    what = "A file of a skill, by the skill's id and the file's path in its folder."
    return [{"uriTemplate": TEMPLATE, "name": "skill-file", "title": "File of a skill", "description": what}]


def skill_prompts(catalogue: Catalogue) -> list[dict[str, Any]]:
    """Each skill as a prompt that a person can choose."""
    return [
        {"name": name, **_titled(skill), "description": described(skill)} for name, skill in catalogue.by_prompt.items()
    ]


def _titled(skill: Skill) -> dict[str, str]:
    title = flat(skill.name)
    return {} if title in {"", skill.id} else {"title": title}


def described(skill: Skill) -> str:
    """A skill's description, which is never empty, within the standard's limit."""
    return flat(skill.desc, DESCRIPTION_LIMIT) or flat(skill.name) or skill.id


def paths(skill: Skill) -> list[str]:
    """The files of a skill as they are served."""
    if skill.folder is None:
        return [DOCUMENT]
    return [DOCUMENT if file.path == skill.folder.document else file.path for file in skill.folder.files]


def has_file(skill: Skill, path: str) -> bool:
    """Whether it is served a file at `path`."""
    if path == DOCUMENT or skill.folder is None:
        return path == DOCUMENT
    return path != skill.folder.document and skill.folder.file(path) is not None


def published(catalogue: Catalogue, uri: str) -> tuple[Skill, str] | None:
    """The skill, and the path in its folder, that `uri` is of; None where it is of none that is served here.

    No file has to be there. What this gives cannot be taken by a server.
    """
    found = address(uri)
    skill = catalogue.find(found.skill) if found is not None else None
    return (skill, found.path) if found is not None and skill is not None and served(skill) else None
