"""What the servers offer right now, or offered last: definitions as the servers sent them."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, TypeAlias, TypeGuard, cast

from proxy.core.json_cost import MAX_JSON_VALUES, has_more_values
from proxy.core.texts import size

Json: TypeAlias = Mapping[str, Any]
"""A JSON object as it came."""

DEEPEST: Final = 100
"""How deep a value may be nested that is worked with; it is no deeper than what everybody can read and write."""
MAX_LIST_ENTRIES: Final = 5000
"""Entries of one list of a server that are read; of skills, `SKILLS_LIMIT`."""
MAX_LIST_BYTES: Final = 16 * 1024 * 1024
"""Bytes of JSON of one list of a server that are read."""
SKILLS_LIMIT: Final = 10_000
"""Skills of one server, at most; it may list more, and they can still be asked for by URI."""
MAX_EXPANDED_CHARACTERS: Final = 8 * 1024
"""Of a URI that is compared with templates."""
_DOCUMENT_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.*[^/]/SKILL\.md", re.DOTALL)
"""The URI of a skill's SKILL.md, which is in a folder with a name (SEP-2640)."""


def is_json(value: object) -> TypeGuard[Json]:
    """Whether a parsed JSON value is an object."""
    return isinstance(value, dict)


def object_of(value: object) -> Json | None:
    """The object that a value is, or is a JSON text of, where an empty text is an empty object; None for all else.

    A text of more than `MAX_JSON_VALUES` is not parsed.
    """
    if isinstance(value, str):
        if has_more_values(value.encode("utf-8", "surrogatepass"), MAX_JSON_VALUES):
            return None
        try:
            value = json.loads(value or "{}")
        except (ValueError, RecursionError):
            return None
    return value if is_json(value) else None


def members_of(value: object) -> Json:
    """The members of a parsed JSON value; none where it is not an object."""
    return value if is_json(value) else {}


def items(value: object) -> Sequence[Any]:
    """The items of a parsed JSON value; none where it is no array."""
    return cast("list[Any]", value) if isinstance(value, list) else ()


def json_size(value: object) -> float:
    """Bytes of the JSON of a parsed JSON value; infinite where that is nested more than `DEEPEST` deep."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [below for one in level for below in _below(one)]
        if not level:
            return size(json.dumps(value, ensure_ascii=False))
    return inf


def _below(value: object) -> Iterable[object]:
    return value.values() if is_json(value) else items(value)


def without_lone_surrogates(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """`value` with the halves of characters in its texts replaced; the same object where there are none.

    JSON can hold them, UTF-8 cannot.
    """
    if isinstance(value, str):
        told = value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value if told == value else told
    if isinstance(value, dict):
        members = cast("Json", value)
        changed = {without_lone_surrogates(key): without_lone_surrogates(member) for key, member in members.items()}
        return changed if changed != members else members
    if isinstance(value, list):
        entries = cast("list[Any]", value)
        replaced = [without_lone_surrogates(entry) for entry in entries]
        return replaced if replaced != entries else entries
    return value


class Listed(list[dict[str, Any]]):
    """A list that is sent again and again as it is; `encoded` is its JSON, once somebody has made it."""

    encoded: bytes | None = None


def _with_key(key: str, listed: Iterable[object]) -> tuple[Json, ...]:
    """The objects that have a non-empty text at `key`, by which they can be asked for; the first of equal ones."""
    found: dict[str, Json] = {}
    for entry in listed:
        if is_json(entry) and isinstance(value := entry.get(key), str) and value:
            found.setdefault(value, entry)
    return tuple(found.values())


def _skills(listed: Iterable[object]) -> Iterable[Json]:
    """The entries of skills that have what the skills extension wants of them."""
    for entry in listed:
        if is_json(entry) and isinstance(uri := entry.get("uri"), str) and _DOCUMENT_URI.fullmatch(uri):
            front, files = entry.get("frontmatter"), entry.get("resources")
            described = is_json(front) and all(isinstance(front.get(key), str) for key in ("name", "description"))
            if described and (files == "dynamic" or isinstance(files, list)):
                yield entry


@dataclass(frozen=True)
class Offer:
    """One server's offer; `instructions` are the server's own, as it sent them.

    `skills`: the entries of the skills that it lists itself. `extension`: its settings of the skills extension, None
    where it has not declared that. `left_out`: by list, at least how many entries were not read; not compared.
    """

    tools: tuple[Json, ...] = ()
    resources: tuple[Json, ...] = ()
    templates: tuple[Json, ...] = ()
    prompts: tuple[Json, ...] = ()
    instructions: str | None = None
    skills: tuple[Json, ...] = ()
    extension: Json | None = None
    left_out: Mapping[str, int] = field(default_factory=dict[str, int], compare=False, repr=False)
    faults: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]], compare=False, repr=False)
    """By list, what of its entries was malformed, and is mended or left out; not compared."""

    @classmethod
    def of(
        cls,
        *,
        tools: Iterable[object] = (),
        resources: Iterable[object] = (),
        templates: Iterable[object] = (),
        prompts: Iterable[object] = (),
        instructions: str | None = None,
        skills: Iterable[object] = (),
        extension: Json | None = None,
    ) -> "Offer":
        """An offer of the entries that can be asked for; the rest (no name, not an object) is left out.

        So are skills of a server that has not declared the extension.
        """
        return cls(
            tools=_with_key("name", tools),
            resources=_with_key("uri", resources),
            templates=_with_key("uriTemplate", templates),
            prompts=_with_key("name", prompts),
            instructions=instructions,
            skills=() if extension is None else _with_key("uri", _skills(skills))[:SKILLS_LIMIT],
            extension=extension,
        )

    @property
    def digest(self) -> bytes:
        """Equal where two offers are the same JSON; to Python's `==`, 1, 1.0 and true would be equal."""
        return hashlib.sha256(repr(self).encode()).digest()


Inventory: TypeAlias = Mapping[str, Offer]
"""Offers by server key. A new object is made on every change, so identity tells whether anything changed."""

_EXPRESSION = re.compile(r"\{([^{}]*)\}")


def template_matches(template: str, uri: str) -> bool:
    """Whether `uri` is an expansion of an RFC 6570 `template`.

    Simple expressions do not cross a `/`; `+`, `#`, `/` and exploded (`*`) ones may; `?` and `&` make a query that
    may be missing, `.` and `;` a label or parameters that may be. Takes time in proportion to the product of both
    lengths at most, whatever they hold. A URI of more than `MAX_EXPANDED_CHARACTERS` is none.
    """
    if len(uri) > MAX_EXPANDED_CHARACTERS:
        return False
    literal, *rest = _EXPRESSION.split(template)
    ends = {len(literal)} if uri.startswith(literal) else set[int]()
    for expression, literal in zip(rest[::2], rest[1::2], strict=True):
        ends = {end + len(literal) for end in _expanded(expression, uri, ends) if uri.startswith(literal, end)}
    return len(uri) in ends


def _expanded(expression: str, uri: str, starts: set[int]) -> set[int]:
    """Where `expression` may end when it begins at one of `starts`."""
    first, stop, optional = _shape(expression)
    ends = set(starts) if optional else set[int]()
    inside = False
    for place, character in enumerate(uri):
        begins = place in starts and (first is None or character in first)
        inside = (inside or begins) and character not in stop
        if inside:
            ends.add(place + 1)
    return ends


def _shape(expression: str) -> tuple[str | None, str, bool]:
    """The characters that an expansion begins with (None: any), those that it never holds, whether it may be empty."""
    match expression[:1]:
        case "?" | "&":
            return "?&", "#", True
        case "." | ";" as mark:
            return mark, "/?#", True
        case "+" | "#" | "/":
            return None, "", True
        case _:
            return (None, "", True) if expression.endswith("*") else (None, "/?#", False)
