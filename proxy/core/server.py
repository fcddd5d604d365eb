"""How a server is reached, with everything resolved: variables expanded, paths absolute, the command looked up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

EraChoice: TypeAlias = Literal["auto", "handshake", "modern"]
"""Which protocol era to speak with a server: probe for it, up to 2025-11-25, or 2026-07-28."""

Isolation: TypeAlias = Literal["shared", "scope"]
"""Who shares a connection to a server: one for all scopes, or one per scope."""

MAX_MESSAGE_SIZE: Final = 64 * 1024 * 1024
"""Bytes of one message of a server, where the configuration does not say."""


@dataclass(frozen=True, kw_only=True)
class StdioServer:
    """A server that runs as a child process.

    `env` is the child's whole environment. `timeout`: seconds a call may go without a result or progress.
    `start_timeout`: seconds from spawning to its first list. `stop_timeout`: seconds that it has to end by itself once
    its input has ended, and again once it was asked by SIGTERM. `idle_stop`: seconds after which it is ended when no
    scope needs it, None for never. `max_concurrency`: most calls in work at it, None for any number. `max_connections`:
    most connections at a time, where each scope has its own. `max_message_size`: most bytes of one message of it.
    """

    key: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None
    timeout: float = 300.0
    start_timeout: float = 30.0
    stop_timeout: float = 1.2
    idle_stop: float | None = None
    eager: bool = False
    era: EraChoice = "auto"
    isolation: Isolation = "shared"
    max_concurrency: int | None = None
    max_connections: int = 100
    max_message_size: int = MAX_MESSAGE_SIZE


@dataclass(frozen=True, kw_only=True)
class HttpServer:
    """A server behind a URL, over Streamable HTTP (`http`) or the older HTTP+SSE (`sse`); times in seconds.

    `pass_headers`: lower-case names of headers of a client's request that go on to this server with what the request
    causes there. `idle_stop`, `max_concurrency`, `max_connections`: as of `StdioServer`. `max_message_size`: most bytes
    of the body of an answer, decompressed, or of one event of a stream.
    """

    key: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    transport: Literal["http", "sse"] = "http"
    timeout: float = 300.0
    start_timeout: float = 30.0
    idle_stop: float | None = None
    eager: bool = False
    era: EraChoice = "auto"
    isolation: Isolation = "shared"
    pass_headers: tuple[str, ...] = ()
    max_concurrency: int | None = None
    max_connections: int = 100
    max_message_size: int = MAX_MESSAGE_SIZE


Server: TypeAlias = StdioServer | HttpServer
