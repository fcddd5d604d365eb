"""Keeps secrets out of every text that the proxy words itself (design rule 24)."""

import json
import re
from collections.abc import Iterable
from functools import cached_property
from urllib.parse import quote, quote_plus

MASK = "***"
SHORTEST = 4
"""Shorter values are left alone: masking them would take text apart without hiding anything worth hiding."""

_TELLING = re.compile(r"token|key|secret|passw", re.IGNORECASE)


def tells_a_secret(name: str) -> bool:
    """Whether the name of a key or argument says that its value is a secret."""
    return _TELLING.search(name) is not None


class Masker:
    """Replaces known secret values by `***`, also where they stand URL-encoded, JSON-escaped or line by line."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms = {form for secret in secrets for form in _forms(secret)}

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        longest_first = sorted(self._forms, key=lambda form: (-len(form), form))
        return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def mask(self, text: str) -> str:
        """`text` without the secrets."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)


def _forms(secret: str) -> Iterable[str]:
    for part in {secret, *secret.splitlines(), *secret.split()}:
        if len(part) < SHORTEST or part.lower() in {"bearer", "basic", "token"}:
            continue
        yield part
        yield quote(part, safe="")
        yield quote_plus(part)
        yield json.dumps(part)[1:-1]
        yield repr(part)[1:-1]
