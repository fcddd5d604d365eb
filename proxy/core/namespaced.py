"""Skills that servers serve: their URIs under the server's name, which no other server and no skill of ours can have.

A server's `skill://REST` is shown as `skill://server.KEY/REST`, any other `foo://REST` as `skill://server.KEY/foo:/REST`.
No legal name of a skill holds a dot.
"""

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from proxy.core.inventory import Json, is_json
from proxy.core.published import DOCUMENT, SCHEME

_OF_SERVERS: Final = f"{SCHEME}server."
_SCHEME_NAME: Final = "[A-Za-z][A-Za-z0-9+.-]*"
_BEFORE_REST: Final = re.compile(rf"({_SCHEME_NAME})://")
_MARK: Final = re.compile(rf"({_SCHEME_NAME})?:(?:/|\Z)")
"""What stands behind the server's name for a URI that is not under `skill://`: its scheme, where it has one."""
_BETWEEN_FOLDERS: Final = re.compile(r"[/\\]")


class Source(NamedTuple):
    """Where a resource is: the server, and the URI that it has there."""

    server: str
    uri: str


def in_our_scheme(uri: str) -> bool:
    """Whether a URI is under `skill://`, in whatever case that is written."""
    return uri[: len(SCHEME)].lower() == SCHEME


def in_plain_scheme(uri: str) -> str:
    """The same URI with `skill://` as we write it, where it is that."""
    return SCHEME + uri[len(SCHEME) :] if in_our_scheme(uri) else uri


def exposed(server: str, uri: str) -> str:
    """The URI under which clients get what `server` has at `uri`."""
    found = _BEFORE_REST.match(uri)
    rest = uri[found.end() :] if found else uri
    if found and found[1] + "://" == SCHEME and not _MARK.match(rest):
        return _base(server) + rest
    return f"{_base(server)}{found[1] if found else ''}:/{rest}"


def original(uri: str, servers: Iterable[str]) -> Source | None:
    """What `exposed` gives `uri` for, at one of these servers; None where that is nothing."""
    if not uri.startswith(_OF_SERVERS):
        return None
    for server in servers:
        if uri.startswith(base := _base(server)):
            rest = uri.removeprefix(base)
            if mark := _MARK.match(rest):
                scheme, rest = mark[1], rest[mark.end() :]
                rest = f"{scheme}://{rest}" if scheme else rest
            else:
                rest = SCHEME + rest
            return Source(server, rest) if exposed(server, rest) == uri else None
    return None


def shown(server: str, uri: str) -> str:
    """The URI, or template of URIs, under which clients get an ordinary resource: its own, unless that is ours."""
    return exposed(server, uri) if in_our_scheme(uri) else uri


def exposed_at(server: str, value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """An object that holds a `uri` of `server`, with the exposed one; anything else as it is."""
    if is_json(value) and isinstance(uri := value.get("uri"), str):
        return {**value, "uri": exposed(server, uri)}
    return value


def exposed_in(server: str, holder: Json, key: str, below: str = "") -> dict[str, Any]:
    """`holder` with the list at `key`, if there is one, of objects exposed whose `uri` begins with `below`."""
    if not isinstance(holder.get(key), list):
        return dict(holder)
    return {**holder, key: [exposed_at(server, each) if _uri(each).startswith(below) else each for each in holder[key]]}


def exposed_entry(server: str, entry: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The entry of a skill with its own URI and those of its files exposed; anything else as it is."""
    return exposed_in(server, exposed_at(server, entry), "resources") if is_json(entry) else entry


def is_within(document: str, uri: str) -> bool:
    """Whether `uri` is below the folder of the skill whose SKILL.md is at `document`, and no step leads out again."""
    folder = document.removesuffix(DOCUMENT)
    if not uri.startswith(folder):
        return False
    return {".", ".."}.isdisjoint(_BETWEEN_FOLDERS.split(unquote(uri.removeprefix(folder))))


def is_folder_of(document: str, uri: str) -> bool:
    """Whether `uri` is the folder of the skill whose SKILL.md is at `document`, or may be one below it."""
    return uri == document.removesuffix(f"/{DOCUMENT}") or is_within(document, uri)


def is_file_of(entry: Json, uri: str) -> bool:
    """Whether `uri` is a file of the skill of this entry: of those it names, or any where they are `dynamic`."""
    if not is_within(entry["uri"], uri):
        return False
    files = entry["resources"]
    return files == "dynamic" or uri == entry["uri"] or any(is_json(each) and each.get("uri") == uri for each in files)


def _uri(value: object) -> str:
    return uri if is_json(value) and isinstance(uri := value.get("uri"), str) else ""


def _base(server: str) -> str:
    return f"{_OF_SERVERS}{quote(server, safe='', errors='surrogatepass')}/"
