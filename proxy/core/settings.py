"""The settings of the `proxy:` block that the rest of the program works by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from proxy.core.skill_tool import DROPS_LIST_CHANGES


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings with their defaults; times in seconds.

    `list_wait`: how long a list waits for servers of active skills that are starting. `activation_wait`: how long an
    activation does. `call_route`: whether `SKILL_CALL` is shown; `auto` shows it to clients whose name begins with
    one of `call_route_clients`, and under `modern_listing: stable`. `max_scopes`: bound on live scopes.
    `scope_idle`: how long a scope lives without a request. `tokens`: principal -> bearer token.
    """

    list_wait: float = 3.0
    activation_wait: float = 10.0
    call_route: Literal["auto", "on", "off"] = "auto"
    call_route_clients: tuple[str, ...] = DROPS_LIST_CHANGES
    modern_listing: Literal["live", "stable"] = "live"
    max_scopes: int = 10_000
    scope_idle: float = 1800.0
    tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
