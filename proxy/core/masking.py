"""Keeps secrets out of every text that the proxy words itself (design rule 24)."""

import json
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Final

from proxy.core.plain_values import is_boolean, is_plain

MASK = "***"
SHORTEST = 4
"""Shorter values are left alone: masking them would take text apart without hiding anything worth hiding."""

BREAKABLE: Final = range(16, 257)
"""Lengths of secrets that are found where a line ends within them, too."""
_TELLING: Final = re.compile(r"token|key|secret|passw", re.IGNORECASE)
_WORDS: Final = re.compile(r"(?<=[a-z])(?=[A-Z0-9])|(?<=[A-Z])(?=[A-Z][a-z]|\d)|[^A-Za-z0-9]+")
"""Where the words of a name meet: `dbPass`, `DB-PASS`, `OAuth2`."""
_TELLING_WORDS: Final = re.compile(
    r"(?<!by)(?<!com)(?<!sur)(?<!tres)(?<!over)(?<!under)pass(?![a-z])(?!_thr)|pass(?:phrase|code)|passwd"
    r"|pwd(?![a-z])|(?<![a-z])pwd"
    r"|(?<!com)(?<!ex)pat(?![a-z])"
    r"|auth(?!or(?!i[sz]))"
    r"|(?<!sa)creds?(?![a-z])|credential"
    r"|cookie|dsn(?![a-z])|conn(?:ections?)?_?str(?:ings?)?(?![a-z])|conn(?![a-z])"
    r"|bearer|jwt"
)
"""In the words of a name, in small letters with `_` between them; the last of joined words counts (`dbpass`)."""
_ABOUT: Final = """
age algorithm count dir directory enabled expires expiry file folder host interval length len limit max method min mode
num path pool port provider pwd retries scheme size sock socket timeout ttl type
"""
"""Words of a name that may be about a secret and not have it (`TOKEN_FILE`, `MAX_TOKENS`)."""


def tells_a_secret(name: str) -> bool:
    """Whether the name of a key or argument says that its value is a secret."""
    return _TELLING.search(name) is not None or _TELLING_WORDS.search("_".join(_words_of(name))) is not None


def is_secret(name: str, value: str) -> bool:
    """Whether the value that is given under `name`, which may tell a secret, is one.

    A boolean is none, nor is a plain value under a name that may only be about a secret (`TOKEN_FILE: /run/token`).
    """
    if not tells_a_secret(name) or is_boolean(value):
        return False
    return not (is_plain(value) and not set(_ABOUT.split()).isdisjoint(_words_of(name)))


def _words_of(name: str) -> list[str]:
    return [word for word in _WORDS.sub("_", name).lower().split("_") if word]


class Masker:
    """Replaces known secret values by `***`, also where they stand URL-encoded, escaped, or line by line."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._parts: set[str] = set()
        self._breakable: set[str] = set()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """Replace these too from now on."""
        for secret in secrets:
            self._parts |= _parts(secret)
            if len(secret) in BREAKABLE:
                self._breakable.add(secret)
        vars(self).pop("_pattern", None)

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        longest_first = sorted(self._parts, key=lambda part: (-len(part), part))
        forms = (_in_any_form(part, breakable=part in self._breakable) for part in longest_first)
        return re.compile("|".join(forms)) if longest_first else None

    def mask(self, text: str) -> str:
        """`text` without the secrets."""
        return text if self._pattern is None else self._pattern.sub(_masked, text)


def _masked(found: re.Match[str]) -> str:
    """The mask, once on each line that the secret has taken."""
    return "\n".join([MASK] * (1 + found[0].count("\n")))


def _parts(secret: str) -> set[str]:
    """What of a secret is hidden wherever it stands: all of it, each line, and each word.

    The words of a phrase that are plain words are not hidden alone, nor is the scheme before a token.
    """
    words = secret.split()
    alone = words if len(words) == 1 else [word for word in words if not _PLAIN_WORD.fullmatch(word)]
    lines = secret.splitlines()
    parts = {secret, *lines, *(line.strip() for line in lines), *alone, *(words[-1:] if len(words) == 2 else ())}  # noqa: PLR2004 - a scheme and a token
    return {part for part in parts if len(part) >= SHORTEST and part.lower() not in {"bearer", "basic", "token"}}


_PLAIN_WORD: Final = re.compile(r"[A-Za-z]+[.,:;!?]?")


def _in_any_form(part: str, *, breakable: bool) -> str:
    return (r"[\r\n]*" if breakable else "").join(map(_forms, part))


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
