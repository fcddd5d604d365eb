"""What the servers offer right now, or offered last: definitions as the servers sent them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeGuard, cast

Json: TypeAlias = Mapping[str, Any]
"""A JSON object as it came."""


def is_json(value: object) -> TypeGuard[Json]:
    """Whether a parsed JSON value is an object."""
    return isinstance(value, dict)


def items(value: object) -> Sequence[Any]:
    """The items of a parsed JSON value; none where it is no array."""
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _with_key(key: str, listed: Iterable[object]) -> tuple[Json, ...]:
    """The objects that have a non-empty text at `key`, by which they can be asked for; the first of equal ones."""
    found: dict[str, Json] = {}
    for entry in listed:
        if is_json(entry) and isinstance(value := entry.get(key), str) and value:
            found.setdefault(value, entry)
    return tuple(found.values())


@dataclass(frozen=True)
class Offer:
    """One server's offer; `instructions` are the server's own, as it sent them."""

    tools: tuple[Json, ...] = ()
    resources: tuple[Json, ...] = ()
    templates: tuple[Json, ...] = ()
    prompts: tuple[Json, ...] = ()
    instructions: str | None = None

    @classmethod
    def of(
        cls,
        *,
        tools: Iterable[object] = (),
        resources: Iterable[object] = (),
        templates: Iterable[object] = (),
        prompts: Iterable[object] = (),
        instructions: str | None = None,
    ) -> "Offer":
        """An offer of the entries that can be asked for; the rest (no name, not an object) is left out."""
        return cls(
            tools=_with_key("name", tools),
            resources=_with_key("uri", resources),
            templates=_with_key("uriTemplate", templates),
            prompts=_with_key("name", prompts),
            instructions=instructions,
        )

    def tool(self, name: str) -> Json | None:
        """The definition of the tool of that original name."""
        return next((tool for tool in self.tools if tool["name"] == name), None)


Inventory: TypeAlias = Mapping[str, Offer]
"""Offers by server key. A new object is made on every change, so identity tells whether anything changed."""

_EXPRESSION = re.compile(r"\{([^{}]*)\}")


def template_matches(template: str, uri: str) -> bool:
    """Whether `uri` is an expansion of an RFC 6570 `template`.

    Simple expressions do not cross a `/`; `+`, `#`, `/` and exploded (`*`) ones may; `?` and `&` make a query that
    may be missing.
    """
    pattern: list[str] = []
    last = 0
    for match in _EXPRESSION.finditer(template):
        pattern.append(re.escape(template[last : match.start()]))
        expression = match.group(1)
        if expression.startswith(("?", "&")):
            pattern.append(r"(?:[?&][^#]*)?")
        elif expression.startswith(("+", "#", "/", ".", ";")) or expression.endswith("*"):
            pattern.append(r".*")
        else:
            pattern.append(r"[^/?#]+")
        last = match.end()
    pattern.append(re.escape(template[last:]))
    return re.fullmatch("".join(pattern), uri) is not None
