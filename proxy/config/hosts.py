"""What `allowed_hosts` and `allowed_origins` may hold: patterns of the Host and Origin headers that browsers send."""

import re

from pydantic_core import PydanticCustomError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def a_host(value: str) -> str:
    """`value` where it may match a Host header: a name, perhaps with a port."""
    host = _SCHEME.sub("", value, count=1).partition("/")[0].rpartition("@")[2]
    if host != value:
        raise PydanticCustomError("host", 'a host has no scheme and no path: write "{host}"', {"host": host or "NAME"})
    return value


def an_origin(value: str) -> str:
    """`value` where it may match an Origin header: scheme, name, and perhaps a port; or `null`, or a pattern."""
    scheme = _SCHEME.match(value)
    name, slash, _ = value[scheme.end() if scheme else 0 :].partition("/")
    if scheme and not slash:
        return value
    if not scheme and (value == "null" or value[0] in "*?["):
        return value
    origin = (scheme[0] if scheme else "https://") + (name or "NAME")
    what = "an origin has no path" if scheme else "an origin begins with a scheme"
    raise PydanticCustomError("origin", '{what}: write "{origin}"', {"what": what, "origin": origin})
