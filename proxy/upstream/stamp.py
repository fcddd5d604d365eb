"""What each hop adds to a request of its own: envelope, headers, progress token, and the caller's leave to ask it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp.shared.dispatcher import CallOptions
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from proxy import __version__
from proxy.core.capabilities import relayed
from proxy.core.inventory import Json, is_json, members_of
from proxy.core.published import EXTENSION
from proxy.ports import Caller

CLIENT_INFO: Mapping[str, str] = {"name": "mcp-skill-proxy", "version": __version__}

_OURS = frozenset(
    {
        "progressToken",
        PROTOCOL_VERSION_META_KEY,
        CLIENT_INFO_META_KEY,
        CLIENT_CAPABILITIES_META_KEY,
        LOG_LEVEL_META_KEY,
    }
)
"""`_meta` keys that speak of one hop alone: the client's must not reach the server, whose hop has its own."""
_MODERN_ONLY = frozenset({"inputResponses", "requestState"})
"""Parameters that the handshake era does not know."""


def envelope(version: str, capabilities: Json) -> dict[str, Any]:
    """The `_meta` that every request of the modern era carries (2026-07-28, basic/index).

    `capabilities`: those of the client. That skills are understood is said here alone: to the handshake era,
    `extensions` of a client are not known, and some servers refuse what they do not know.
    """
    extensions: dict[str, Any] = {EXTENSION: {}, **members_of(capabilities.get("extensions"))}
    return {
        PROTOCOL_VERSION_META_KEY: version,
        CLIENT_INFO_META_KEY: CLIENT_INFO,
        CLIENT_CAPABILITIES_META_KEY: {**capabilities, "extensions": extensions},
    }


def progress_token(params: Json) -> str | int | None:
    """The token by which a request's `_meta` asks for progress."""
    meta = params.get("_meta")
    token = meta.get("progressToken") if is_json(meta) else None
    return token if isinstance(token, str | int) else None


@dataclass
class Stamp:
    """Makes a request fit for a connection that speaks `version`, and that has headers where it is `http`.

    `header_maps`: by tool, the arguments that go into `Mcp-Param-*`. `pass_headers`: the headers of a client that go on
    with what it causes.
    """

    version: str
    http: bool = True
    pass_headers: tuple[str, ...] = ()
    header_maps: dict[str, dict[tuple[str, ...], str]] = field(default_factory=dict[str, dict[tuple[str, ...], str]])

    def __post_init__(self) -> None:
        self.handshake = self.version in HANDSHAKE_PROTOCOL_VERSIONS
        """Whether the connection is of the handshake era, up to 2025-11-25."""

    def learn(self, tools: tuple[Json, ...]) -> None:
        """Take note of the arguments that these tools want mirrored into headers (2026-07-28, `x-mcp-header`)."""
        maps = {tool["name"]: x_mcp_header_map(tool.get("inputSchema")) for tool in tools}
        self.header_maps = {name: found for name, found in maps.items() if found}

    def request(
        self, method: str, params: Json, caller: Caller | None, token: int | None
    ) -> tuple[dict[str, Any], CallOptions]:
        """The parameters and options to send `method` with; `params` is left as it is.

        `token`: asks the server for progress under it.
        """
        meta = params.get("_meta")
        kept = {key: value for key, value in members_of(meta).items() if key not in _OURS}
        if token is not None:
            kept["progressToken"] = token
        if self.handshake:
            out = {key: value for key, value in params.items() if key != "_meta" and key not in _MODERN_ONLY}
        else:
            out = {key: value for key, value in params.items() if key != "_meta"}
            kept |= envelope(self.version, {} if caller is None else relayed(caller.channel.capabilities))
            if caller is not None and caller.channel.log_level is not None:
                kept[LOG_LEVEL_META_KEY] = caller.channel.log_level
        if kept or meta == {}:
            out["_meta"] = kept
        return out, {"headers": self._headers(method, out, caller)} if self.http else {}

    def _headers(self, method: str, params: Json, caller: Caller | None) -> dict[str, str]:
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.version}
        if not self.handshake:
            headers |= self._modern_headers(method, params)
        if caller is not None and self.pass_headers:
            given = caller.channel.headers
            headers |= {name: given[name] for name in self.pass_headers if name in given}
        return headers

    def _modern_headers(self, method: str, params: Json) -> dict[str, str]:
        headers = {MCP_METHOD_HEADER: method}
        name = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            arguments = params.get("arguments")
            if method == "tools/call" and name in self.header_maps and is_json(arguments):
                headers |= mcp_param_headers(self.header_maps[name], arguments)
        return headers
