"""The whole environment of a server's process (design rule 22): chosen by name, never everything we have."""

import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

WINDOWS = sys.platform == "win32"

_SYSTEM = (
    (
        "APPDATA",
        "HOMEDRIVE",
        "HOMEPATH",
        "LOCALAPPDATA",
        "PATH",
        "PATHEXT",
        "PROCESSOR_ARCHITECTURE",
        "SYSTEMDRIVE",
        "SYSTEMROOT",
        "TEMP",
        "USERNAME",
        "USERPROFILE",
    )
    if WINDOWS
    else ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
)
_LOCALE = ("LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR", "XDG_*")
_NETWORK = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
)
INHERITED = (*_SYSTEM, *_LOCALE, *_NETWORK)
"""What a server's process inherits: names, and shell-style patterns of names."""


def child_environment(
    environ: Mapping[str, str],
    inherit: Iterable[str] = (),
    from_file: Mapping[str, str] | None = None,
    explicit: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of a server: what it inherits of `environ`, then its env_file, then its `env`.

    `inherit`: names or patterns to inherit beyond the usual. Shell functions (values that begin with `()`) never are.
    """
    wanted = (*INHERITED, *inherit)
    inherited = {
        name: value
        for name, value in environ.items()
        if not value.startswith("()") and any(_matches(name, pattern) for pattern in wanted)
    }
    return {**inherited, **(from_file or {}), **(explicit or {})}


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name.upper(), pattern.upper()) if WINDOWS else fnmatchcase(name, pattern)
