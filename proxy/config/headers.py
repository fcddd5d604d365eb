"""What the names of HTTP headers may be, and which of clients' headers may go on to a server (`pass_headers`)."""

import re
from collections.abc import Mapping
from typing import Final

from proxy.config.document import Plain
from proxy.config.problems import Findings, Place

KEY: Final = "pass_headers"

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONNECTION: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade"),
    }
)
_REQUEST: Final = frozenset({"accept", "accept-encoding", "expect", "host", "last-event-id"})
_REQUEST_PREFIXES: Final = ("content-", "mcp-")


def is_header_name(name: str) -> bool:
    """Whether `name` can be that of an HTTP header."""
    return _NAME.fullmatch(name) is not None


def check_pass_headers(entry: Mapping[str, Plain], place: Place, tokens: Plain, findings: Findings) -> None:
    """Names what is wrong with the headers that the server at `place` is to get; `tokens`: those of `proxy`."""
    names = entry.get(KEY)
    if not isinstance(names, list) or not names:
        return
    if "command" in entry:
        findings.problem((*place, KEY), "goes with a url: a program gets no HTTP headers; take it out")
        return
    if entry.get("type") == "sse":
        findings.problem((*place, KEY), "goes with type http, not with sse: take it out")
        return
    headers = entry.get("headers")
    own = {name.lower() for name in headers} if isinstance(headers, dict) else set[str]()
    for index, name in enumerate(names):
        if isinstance(name, str) and (fault := _fault(name, own, tokens)):
            findings.problem((*place, KEY, index), fault)


def _fault(name: str, own: set[str], tokens: Plain) -> str | None:
    lower = name.lower()
    if "*" in name:
        return "is a pattern: write each name"
    if not is_header_name(name):
        return "cannot be the name of an HTTP header"
    if lower in _CONNECTION:
        return f"{name} is between two neighbours alone and never goes on: take it out"
    if lower in _REQUEST or lower.startswith(_REQUEST_PREFIXES):
        return f"{name} belongs to each request itself and never goes on: take it out"
    if lower == "authorization" and tokens:
        return (
            f"with proxy.tokens, {name} holds the proxy's own token, which must not go on: "
            "let clients send the server's in another header"
        )
    if lower in own:
        return f"{name} stands in headers too: keep one of them"
    return None
