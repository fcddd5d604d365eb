"""Which values of a server's entry are secrets (design rule 24)."""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from proxy.core.inventory import is_json, items
from proxy.core.masking import SHORTEST, is_secret
from proxy.core.plain_values import is_plain, looks_random

MIN_UNNAMED_LENGTH: Final = 8
"""Characters from which a value is a secret whose name says nothing, unless its shape says otherwise."""
_NAMED = re.compile(
    r"(?P<name>-{0,2}[A-Za-z][\w.-]*)(?:=|:\s+)(?P<value>.+)|(?P<words>[A-Za-z][\w. -]{0,40}?) ?= ?(?P<pair>.+)",
    re.DOTALL,
)
"""`--key=X`, `Authorization: X`, and `User Id = X` of a connection string."""
_HEADER = re.compile(r"(?P<name>[\w-]+):\s*(?P<value>.+)", re.DOTALL)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]{0,40}://[^\s\"'<>`]+")
_BEFORE_AT = re.compile(r"(?<![^\s/=\"'])([^\s:@/=\"']+):(?!//)(\S+)@(?!sha256:)")
_SCHEME = re.compile(r"\b(?:basic|bearer)\s+(?P<credentials>[^\s\"',;]+)", re.IGNORECASE)
_USER_AND_PASSWORD = re.compile(r"(?P<user>[^\s:/@]*):(?P<password>(?!//)\S+)")
_JOINED_USER = re.compile(r"-[uU](?P<value>[^\s:/@=]+:\S+)")
_SHORT_WORD = re.compile(r"[A-Za-z]{1,7}")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_USER_FLAGS: Final = frozenset({"-u", "-U", "--user", "--proxy-user", "--userpwd"})
_HEADER_FLAGS: Final = frozenset({"-H", "--header", "--headers"})
_VARIABLE_FLAGS: Final = frozenset({"-e", "--env"})
_DEEPEST: Final = 20
"""Levels of JSON within a value that are looked at."""


def of_url(url: str) -> Iterator[str]:
    """The userinfo and the values of the query of a URL, as written and decoded, and what looks random in its path.

    Nothing for what is no URL.
    """
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
        if password:
            yield _base64(unquote(userinfo))
    for part in (parts.query, parts.fragment):
        for pair in part.split("&"):
            yield pair.partition("=")[2]
        for _, value in parse_qsl(part):
            yield value
    yield from filter(looks_random, parts.path.split("/"))


def of_environment(
    environment: Mapping[str, str], unnamed: Collection[str] = (), ordinary: Collection[str] = ()
) -> Iterator[str]:
    """Values of variables whose name tells a secret, and what URLs, JSON and connection strings in the others hold.

    `unnamed`: the variables whose value is a secret also where the name says nothing, if it has 8 characters or more
    and its shape does not say otherwise. `ordinary`: names that the proxy's texts are full of, which are none.
    """
    for name, value in environment.items():
        yield from _of_value(name, value, ordinary if name in unnamed else None)


def of_headers(headers: Mapping[str, str]) -> Iterator[str]:
    """All values of headers, and what they hold."""
    for name, value in headers.items():
        yield value
        yield from _in_text(value)
        if "cookie" in name.casefold():
            yield from (pair.partition("=")[2].strip() for pair in value.split(";"))


def of_arguments(args: Sequence[str]) -> Iterator[str]:
    """Values of arguments whose name tells a secret (`--key X`, `--key=X`, `Authorization: X`), and what URLs hold.

    So are passwords after `-u user:`, and values of headers (`--header`, `-H`) and variables (`--env`, `-e`).
    """
    for index, arg in enumerate(args):
        yield from _in_text(arg)
        named = _named(arg)
        if named is not None:
            name, value = named
            yield from of_arguments([name, value]) if name.startswith("-") else ()
            if is_secret(name, value):
                yield value
        elif joined := _JOINED_USER.fullmatch(arg):
            yield from _of_userinfo(joined["value"])
        if index + 1 < len(args):
            yield from _after(arg, args[index + 1])


def has_secrets(named: Mapping[str, str], args: Sequence[str] = (), url: str = "") -> bool:
    """Whether somebody who reads these variables and headers, arguments and URL learns what is certainly a secret.

    That is what a name tells, userinfo, and what looks random: of other values only their shape does not deny it.
    """
    if any(is_secret(name, value) and _is_more_than_a_scheme(value) for name, value in named.items()):
        return True
    inside = (*of_environment(named), *of_arguments(args), *of_url(url), *filter(looks_random, named.values()))
    return any(_is_more_than_a_scheme(one) and not is_plain(one) and not _SHORT_WORD.fullmatch(one) for one in inside)


def _is_more_than_a_scheme(value: str) -> bool:
    return len(value) >= SHORTEST and value.strip().casefold() not in {"bearer", "basic", "token"}


def _after(flag: str, value: str) -> Iterator[str]:
    """What of an argument is a secret because of the one before it."""
    if flag in _USER_FLAGS:
        yield from _of_userinfo(value)
    elif flag in _HEADER_FLAGS and (header := _HEADER.fullmatch(value)):
        yield from _of_value(header["name"], header["value"], ())
    elif flag in _VARIABLE_FLAGS and (named := _named(value)) is not None:
        yield from _of_value(*named, ())
    elif flag.startswith("-") and _named(flag) is None and not value.startswith("--") and is_secret(flag, value):
        yield value


def _of_value(name: str, value: str, ordinary: Collection[str] | None) -> Iterator[str]:
    """What is secret in the value of a variable or a header; `ordinary` is None where only its name counts."""
    yield from _in_text(value, ordinary)
    if is_secret(name, value) or (ordinary is not None and _is_unnamed_secret(value, ordinary)):
        yield value


def _is_unnamed_secret(value: str, ordinary: Collection[str]) -> bool:
    if len(value) < MIN_UNNAMED_LENGTH or is_plain(value) or _is_json_text(value):
        return False
    return not any(value in one for one in ordinary)


def _in_text(text: str, ordinary: Collection[str] | None = None) -> Iterator[str]:
    """What is secret within a text: in URLs, before an `@`, after the name of a scheme, in JSON, in `name=value`."""
    for url in _URL.findall(text):
        yield from of_url(url)
    for user, password in _BEFORE_AT.findall(text):
        yield from (password, f"{user}:{password}")
    for found in _SCHEME.finditer(text):
        yield found["credentials"]
        yield from _decoded(found["credentials"])
    if _is_json_text(text):
        yield from _in_json("", json.loads(text), ordinary, 0)
        return
    for piece in {*re.split(r"[?#;&\n]", text), *text.split()}:
        named = _named(piece.strip())
        if named is not None and is_secret(*named):
            yield from (named[1], named[1].strip("\"'"))


def _in_json(name: str, value: object, ordinary: Collection[str] | None, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    if is_json(value):
        for key, below in value.items():
            yield from _in_json(key, below, ordinary, depth + 1)
    elif isinstance(value, str | int | float):
        yield from _of_value(name, str(value), ordinary)
    for below in items(value):
        yield from _in_json(name, below, ordinary, depth + 1)


def _is_json_text(text: str) -> bool:
    """Whether a text is an object or an array of JSON."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _named(text: str) -> tuple[str, str] | None:
    found = _NAMED.fullmatch(text)
    return None if found is None else (found["name"] or found["words"], found["value"] or found["pair"])


def _of_userinfo(text: str) -> Iterator[str]:
    """`user:password` as it is given, in Base64, and the password; numbers are those of a user and a group."""
    found = _USER_AND_PASSWORD.fullmatch(text)
    if found is None or _DRIVE.match(text) or text.replace(":", "").isdigit():
        return
    yield from (text, _base64(text))
    if found["password"] != found["user"]:
        yield found["password"]


def _decoded(credentials: str) -> Iterator[str]:
    """The password that credentials of the scheme Basic hold, if they are such."""
    try:
        userinfo = b64decode(credentials, validate=True).decode()
    except ValueError:
        return
    yield from _of_userinfo(userinfo)


def _base64(text: str) -> str:
    return b64encode(text.encode("utf-8", "surrogateescape")).decode()
