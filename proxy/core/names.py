"""The names under which tools and prompts of servers are shown to clients (design rules 19 and 20).

A name is a pure function of the configuration, the server and the original name. Routing is by table; nothing
ever splits an exposed name.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

SEPARATOR = "__"
RESERVED = frozenset({"skill", "skill_call", "skill_invoke"})
"""Names of our own tools, compared without regard to case so that none can be imitated either."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_HASH_LENGTH = 8
_SEVERAL = re.compile("__+")
_MARKED = re.compile(rf"_[0-9a-f]{{{_HASH_LENGTH}}}\Z")
"""How a name ends that was altered."""


def sanitised(text: str) -> str:
    """`text` with every character outside `[A-Za-z0-9_-]` as `_`."""
    return _UNSAFE.sub("_", text)


@dataclass(frozen=True)
class Naming:
    """How names are made.

    `prefixes`: server key -> what its names begin with, as written in the configuration (`""` for none); `limit`: the
    longest name allowed, in characters. `skills`: the ids of all skills; each has a prompt of its own, whose name no
    server's prompt can have. `tools`: the ids of those that are tools of their own while active, whose names no
    server's tool can have.
    """

    prefixes: Mapping[str, str]
    limit: int = 48
    skills: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()

    def expose(self, server: str, original: str) -> str:
        """The exposed name of the tool `original` at `server`: at most `limit` characters of `[A-Za-z0-9_-]`."""
        name = self._exposed(server, original)
        return self._marked(name, f"{server}\0{original}") if name.casefold() in self._of_tools else name

    def _exposed(self, server: str, original: str) -> str:
        prefix = self.prefixes[server]
        plain = f"{prefix}{SEPARATOR}{original}" if prefix else original
        safe = sanitised(plain)
        altered = safe != plain or len(safe) > self.limit or (not prefix and self._could_be_taken_for_another(safe))
        if not altered:
            return safe
        return self._marked(safe, f"{server}\0{original}")

    def expose_prompt(self, server: str, original: str) -> str:
        """The exposed name of the prompt `original` at `server`: as a tool's, but never that of a skill's prompt."""
        name = self._exposed(server, original)
        return self._marked(name, f"{server}\0{original}") if name.casefold() in self._of_skills else name

    def prompt_of(self, skill: str) -> str:
        """The name of the prompt that a skill is, by the same rules; none can be called what another one's is."""
        safe = sanitised(skill)
        plain = safe == skill and len(safe) <= self.limit and not _MARKED.search(safe)
        return safe if plain else self._marked(safe, skill)

    def tool_of(self, skill: str) -> str:
        """The name of the tool that a skill is: as that of its prompt, but neither ours nor like one of a server's."""
        name = self.prompt_of(skill)
        if name.casefold() not in RESERVED and not any(map(name.casefold().startswith, self._beginnings)):
            return name
        plain = _SEVERAL.sub("_", name)[: self.limit - _HASH_LENGTH - 1]
        return self._marked(plain.rstrip("_"), skill)  # nowhere in it is what stands behind every prefix

    def altered(self, server: str, original: str) -> bool:
        """Whether the exposed name is more than prefix, separator and original name."""
        prefix = self.prefixes[server]
        return self.expose(server, original) != (f"{prefix}{SEPARATOR}{original}" if prefix else original)

    @cached_property
    def _of_skills(self) -> frozenset[str]:
        return frozenset(self.prompt_of(skill).casefold() for skill in self.skills)

    @cached_property
    def _of_tools(self) -> frozenset[str]:
        return frozenset(self.tool_of(skill).casefold() for skill in self.tools)

    @cached_property
    def _beginnings(self) -> tuple[str, ...]:
        """How the names of servers that have a prefix begin, in lower case."""
        return tuple(sanitised(prefix).casefold() + SEPARATOR for prefix in self.prefixes.values() if prefix)

    def _marked(self, name: str, original: str) -> str:
        """`name` cut so that a stable hash of `original` fits behind it."""
        digest = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
        return f"{name[: self.limit - _HASH_LENGTH - 1]}_{digest}"

    def _could_be_taken_for_another(self, name: str) -> bool:
        if name.casefold() in RESERVED:
            return True
        return any(prefix and name.startswith(sanitised(prefix) + SEPARATOR) for prefix in self.prefixes.values())
