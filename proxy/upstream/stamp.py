"""What the SDK's session adds to its own requests and raw ones must add themselves: envelope, headers, era."""

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
    Implementation,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from proxy.core.inventory import Json, is_json

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


def wants_progress(params: Mapping[str, Any]) -> bool:
    """Whether a request's `_meta` asks for progress."""
    meta = params.get("_meta")
    return is_json(meta) and isinstance(meta.get("progressToken"), str | int)


@dataclass
class Stamp:
    """Makes a request fit for a connection that speaks `version`; `tools` are the server's own, for `Mcp-Param-*`."""

    version: str
    client_info: Implementation
    header_maps: dict[str, dict[tuple[str, ...], str]] = field(default_factory=dict[str, dict[tuple[str, ...], str]])

    @property
    def handshake(self) -> bool:
        """Whether the connection is of the handshake era, up to 2025-11-25."""
        return self.version in HANDSHAKE_PROTOCOL_VERSIONS

    def learn(self, tools: tuple[Json, ...]) -> None:
        """Take note of the arguments that these tools want mirrored into headers (2026-07-28, `x-mcp-header`)."""
        maps = {tool["name"]: x_mcp_header_map(tool.get("inputSchema")) for tool in tools}
        self.header_maps = {name: found for name, found in maps.items() if found}

    def request(self, method: str, params: Mapping[str, Any]) -> tuple[dict[str, Any], CallOptions]:
        """The parameters and options to send `method` with; `params` is left as it is."""
        out = dict(params)
        meta = out.pop("_meta", None)
        kept: dict[str, Any] = {key: value for key, value in meta.items() if key not in _OURS} if is_json(meta) else {}
        headers = {MCP_PROTOCOL_VERSION_HEADER: self.version}
        if not self.handshake:
            kept |= {
                PROTOCOL_VERSION_META_KEY: self.version,
                CLIENT_INFO_META_KEY: self.client_info.model_dump(by_alias=True, mode="json", exclude_none=True),
                CLIENT_CAPABILITIES_META_KEY: {},
            }
            headers |= self._modern_headers(method, out)
        if kept:
            out["_meta"] = kept
        return out, {"headers": headers}

    def _modern_headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        headers = {MCP_METHOD_HEADER: method}
        name = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            arguments = params.get("arguments")
            if method == "tools/call" and name in self.header_maps and is_json(arguments):
                headers |= mcp_param_headers(self.header_maps[name], arguments)
        return headers
