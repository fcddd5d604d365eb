"""What the environment says of the way to servers over HTTP: by which certificates, and through which HTTP proxy."""

import os
import re
import ssl
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

import httpx2

from proxy.upstream.failure import Failure

CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""The variables that name certificates; the first that is set counts."""
_HASHED: Final = re.compile(r"[0-9a-f]{8}\.\d+")
"""The name of a certificate in a folder of them, by which OpenSSL finds it."""


class NoCertificates(Exception):
    """There is nothing to check a server by; `failure` says why."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason)
        self.failure = Failure(reason, detail)


def trust(url: str) -> ssl.SSLContext:
    """What the server at `url` is checked by; one without TLS needs nothing, and gets what trusts nobody.

    Raises:
        NoCertificates: it is to be checked, and cannot be.
    """
    try:
        return _certificates(*(os.environ.get(name) for name in CERTIFICATES))
    except NoCertificates:
        if urlsplit(url).scheme == "http":
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        raise


@cache
def _certificates(file: str | None, folder: str | None) -> ssl.SSLContext:
    """The certificates of the environment, else of the system; read once, as that holds everything up for some 25 ms.

    Raises:
        NoCertificates: there are none where the environment says.
    """
    try:
        context = httpx2.create_ssl_context()
        if file or not folder or any(map(_holds_certificates, folder.split(os.pathsep))):
            return context
        what, detail = "holds no certificate", "its files need the names that `openssl rehash` gives them"
    except ssl.SSLError as error:
        what, detail = "holds no certificate", str(error)
    except OSError as error:
        what, detail = "does not exist" if isinstance(error, FileNotFoundError) else "cannot be read", str(error)
    name = named_by_environment()
    source = "the system's list of certificates" if name is None else f"what {name} names"
    raise NoCertificates(f"no secure connection can be made: {source} {what}", f"{file or folder or ''}: {detail}")


def _holds_certificates(folder: str) -> bool:
    return any(_HASHED.fullmatch(file.name) for file in Path(folder).iterdir())


def named_by_environment() -> str | None:
    """The variable that says which certificates count, if any."""
    return next((name for name in CERTIFICATES if os.environ.get(name)), None)


def is_loopback(url: str) -> bool:
    """Whether a URL is one of this machine, which no HTTP proxy can reach: `localhost`, or a loopback address."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def proxy_variable(url: str) -> str | None:
    """The variable that names the HTTP proxy through which `url` is reached, if any."""
    parts = urlsplit(url)
    if is_loopback(url) or proxy_bypass(parts.hostname or ""):
        return None
    names = (name for scheme in (parts.scheme, "all") for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper()))
    return next((name for name in names if os.environ.get(name)), None)
