"""Which values of a server's entry are secrets (design rule 24)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import parse_qsl, unquote, urlsplit

from proxy.core.masking import tells_a_secret

_NAMED = re.compile(r"(?P<name>-{0,2}[A-Za-z][\w.-]*)(?:=|:\s+)(?P<value>.+)", re.DOTALL)


def of_url(url: str) -> Iterator[str]:
    """The userinfo and the values of the query of a URL, as written and decoded; nothing for what is no URL."""
    if "://" not in url:
        return
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    userinfo, at, _ = parts.netloc.rpartition("@")
    if at:
        user, colon, password = userinfo.partition(":")
        yield from (userinfo, unquote(userinfo))
        yield from (password, unquote(password)) if colon else (user, unquote(user))
    for pair in parts.query.split("&"):
        yield pair.partition("=")[2]
    for _, value in parse_qsl(parts.query):
        yield value


def of_environment(environment: Mapping[str, str]) -> Iterator[str]:
    """Values of variables whose name tells a secret, and what URLs in the others hold."""
    for name, value in environment.items():
        if tells_a_secret(name):
            yield value
        yield from of_url(value)


def of_headers(headers: Mapping[str, str]) -> Iterable[str]:
    """All values of headers."""
    return headers.values()


def of_arguments(args: Sequence[str]) -> Iterator[str]:
    """Values of arguments whose name tells a secret (`--key X`, `--key=X`, `Authorization: X`), and those in URLs."""
    for index, arg in enumerate(args):
        yield from of_url(arg)
        named = _NAMED.fullmatch(arg)
        if named and (tells_a_secret(named["name"]) or named["name"].casefold() == "authorization"):
            yield named["value"]
        following = args[index + 1] if index + 1 < len(args) else ""
        if arg.startswith("-") and not named and tells_a_secret(arg) and not following.startswith("--"):
            yield following
