"""Keeps secrets out of every text that the proxy words itself (design rule 24)."""

import json
import re
from collections.abc import Iterable
from functools import cached_property

MASK = "***"
SHORTEST = 4
"""Shorter values are left alone: masking them would take text apart without hiding anything worth hiding."""

_TELLING = re.compile(r"token|key|secret|passw", re.IGNORECASE)


def tells_a_secret(name: str) -> bool:
    """Whether the name of a key or argument says that its value is a secret."""
    return _TELLING.search(name) is not None


class Masker:
    """Replaces known secret values by `***`, also where they stand URL-encoded, escaped, or line by line."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._parts: set[str] = set()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Replace these too from now on."""
        self._parts |= {part for secret in secrets for part in _parts(secret)}
        vars(self).pop("_pattern", None)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        longest_first = sorted(self._parts, key=lambda part: (-len(part), part))
        return re.compile("|".join(map(_in_any_form, longest_first))) if longest_first else None

    def mask(self, text: str) -> str:
        """`text` without the secrets."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)


def _parts(secret: str) -> set[str]:
    parts = {secret, *secret.splitlines(), *secret.split()}
    return {part for part in parts if len(part) >= SHORTEST and part.lower() not in {"bearer", "basic", "token"}}


def _in_any_form(part: str) -> str:
    return "".join(map(_forms, part))


def _forms(character: str) -> str:
    """A pattern for one character as it is, URL-encoded, or escaped as JSON, Python and JavaScript do."""
    if character.isalnum() and character.isascii():
        return character
    forms = {re.escape(character), re.escape(f"\\{character}")}
    forms |= {re.escape(text[1:-1]) for text in (json.dumps(character), repr(character))}
    encoded = character.encode("utf-8", "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass")
    forms |= {"".join(f"%{byte:02X}" for byte in encoded), "".join(f"%{byte:02x}" for byte in encoded)}
    if character == " ":
        forms.add(r"\+")
    return f"(?:{'|'.join(sorted(forms, key=lambda form: (-len(form), form)))})"
