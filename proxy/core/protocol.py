"""Protocol revisions and reserved `_meta` keys, without importing the SDK, which takes long."""

from typing import Final, Literal, TypeAlias

Era: TypeAlias = Literal["handshake", "modern"]
"""Protocol revisions up to 2025-11-25, or 2026-07-28."""

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The revisions that begin with `initialize`, the newest last."""
MODERN_VERSIONS: Final = ("2026-07-28",)
"""The revisions without a handshake, in which each request carries its own envelope."""

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY: Final = "io.modelcontextprotocol/clientInfo"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"
"""Keys of `_meta` (2026-07-28, basic/index)."""


def negotiated(requested: str) -> str:
    """The revision that a handshake agrees on where the client has `requested` one (2025-11-25, basic/lifecycle)."""
    return requested if requested in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]


MAX_INTRODUCTION_BYTES: Final = 16 * 1024
"""Of the JSON of what is kept of a client: its `initialize` parameters, or the capabilities of a modern request."""
MAX_NAME_CHARACTERS: Final = 256
"""Of a client's name, and of its version; what is longer is cut."""
