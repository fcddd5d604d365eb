"""Values that are no secret by their shape alone: paths, numbers, levels, hosts and other plain settings."""

import re
from typing import Final

_REGIONS: Final = "Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Etc|Europe|Indian|Pacific"
_LEVEL: Final = "trace|debug|verbose|info|notice|warn|warning|error|critical|fatal|silent|off"
_LABEL: Final = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_PORT: Final = r"(?::\d{1,5})?"
_SUFFIXES: Final = (
    "cfg|conf|crt|csv|db|env|html|ini|js|json|jsonc|jsonl|key|lock|log|md|mjs|pem|pid|py|sh|sock|sqlite|sqlite3|toml|ts"
    "|txt|xml|yaml|yml"
)
_SHAPES: Final = tuple(
    re.compile(shape)
    for shape in (
        r"[+-]?\d[\d_.,]{0,14}(?:[eE][+-]?\d{1,3})?(?:%|ms|[smhd]|[kKMGTP]i?[bB]?|B)?",  # a number, with its unit
        r"v?\d{1,4}(?:\.\d{1,6}){1,3}(?:[-+.]?(?:a|alpha|b|beta|rc|dev|post|preview)\.?\d{0,4})?",  # a version
        r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?|-preview)?",  # a date
        r"\d\d:\d\d:\d\d",
        r"(?:[a-z]{2,3}(?:[_-][A-Z]{2})?|C|POSIX)(?:\.[A-Za-z]{2,8}-?\d{0,6})?",  # a locale
        rf"(?:{_REGIONS})(?:/[A-Z][A-Za-z_-]{{1,30}}){{1,2}}",  # a time zone
        r"(?:application|audio|image|multipart|text|video)/[a-z0-9.+*-]{1,60}",  # a media type
        rf"(?:[\w.:-]{{1,60}}=)?(?i:{_LEVEL})",
        rf"(?:(?:{_LABEL}\.){{1,8}}[a-z]{{2,24}}|localhost|\d{{1,3}}(?:\.\d{{1,3}}){{3}}|\[[0-9a-f:.]{{2,45}}\]){_PORT}",
        r"[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}",  # IPv6
        rf"{_LABEL}:\d{{2,5}}",  # the name of a host in a network of containers, with a port
        rf"(?:[\w.-]+/)*[\w.-]+\.(?:{_SUFFIXES})",  # a file, by the end of its name
    )
)
_PATH: Final = re.compile(r"(?:/|~/|\.{1,2}/|[A-Za-z]:[\\/]|\\\\)[\w.@%+,~ ()\[\]{}$#&!^*/\\-]+")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]{0,40}://[\w.:,\[\]-]*(?:/[\w.%+,~()!*:/-]*)?")
_RANDOM: Final = re.compile(
    r"(?<![A-Za-z0-9])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{16,}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
)
_SHORT_WORD: Final = re.compile(r"[A-Za-z]{1,7}")
_BOOLEANS: Final = frozenset(
    {"true", "false", "yes", "no", "on", "off", "enabled", "disabled", "none", "null", "always", "never"}
)
_AUTHENTICATION: Final = "basic bearer digest oauth oauth2"
_OF_SETTINGS: Final = """
acceptance anonymous automatic background browsers chromium community complete container continue database
demonstration detailed development directory distributed document documents embedded enterprise everything examples
experimental external filesystem foreground headless information integration interactive internal kubernetes
language localhost markdown multiple optional personal postgres postgresql preproduction production qualification
read-only read-write readonly readwrite relative required sandboxed sequential simulation standalone standard
streamable streamable-http structured terminal unlimited unsupported workspace
"""
"""What people write as the value of a setting."""
_OF_MESSAGES: Final = """
activate activated activation answered arguments available beginning cancelled capabilities character characters
configuration configured connected connection connections contents description different discovered elicitation
evidence exclusive expected extension forbidden handshake happened identity inactive initialize instructions
inventory isolated isolation listening messages metadata namespace namespaces necessary notification notifications
offloaded operation otherwise parameter parameters permission possible principal problems progress properties
protocol received replaced requests resource resources response restarted revision sampling services sessions
settings signature something starting statuses stopping subscribe subscription subscriptions supported template
templates timestamp together transport unavailable unchanged understood upstream upstreams variable variables
versions warnings workflow workflows
"""
"""What the proxy's own messages are made of."""
ORDINARY_WORDS: Final = frozenset(f"{_AUTHENTICATION} {_OF_SETTINGS} {_OF_MESSAGES}".split())
"""Words that are masked only under a name that tells a secret: texts without them could not be read any more."""


def is_boolean(value: str) -> bool:
    """Whether a value only switches something on or off."""
    return value.casefold() in _BOOLEANS


def is_plain(value: str) -> bool:
    """Whether the shape of a value says that it is not a secret, whatever the name it is given under.

    Plain are booleans, numbers of at most 15 digits with or without a unit, versions, dates, locales, time zones, media
    types, log levels, hosts with or without a port, absolute paths and lists of them, files by the end of their names,
    URLs without userinfo, query and fragment, ordinary words, and lists of these with commas. What holds 16 letters and
    digits in a row, or a UUID, is never plain.
    """
    if looks_random(value):
        return False
    if _is_plain(value) or _URL.fullmatch(value):
        return True
    for separator in (":", ";"):
        paths = [path for path in value.split(separator) if path]
        if separator in value and paths and all(map(_PATH.fullmatch, paths)):
            return True
    parts = value.split(",")
    return len(parts) > 1 and all(_is_plain(part.strip()) or _SHORT_WORD.fullmatch(part.strip()) for part in parts)


def looks_random(value: str) -> bool:
    """Whether a value holds 16 or more letters and digits in a row, both of them, or a UUID, as tokens do."""
    return _RANDOM.search(value) is not None


def _is_plain(value: str) -> bool:
    word = value.casefold()
    if word in _BOOLEANS or word in ORDINARY_WORDS:
        return True
    return _PATH.fullmatch(value) is not None or any(shape.fullmatch(value) for shape in _SHAPES)
