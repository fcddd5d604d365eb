"""A talker of the handshake era that does not let itself be subscribed to everything.

Subscriptions to `memo://refused/...` are refused, those to `memo://ignored/...` never answered. With
`--unsubscribable` the server declares no subscriptions, and knows no method for them.
"""

import argparse
from pathlib import Path
from typing import Any

import anyio
from mcp import MCPError
from mcp.server.lowlevel import NotificationOptions
from mcp_types import INVALID_PARAMS, ResourcesCapability, ServerCapabilities

from tests.servers.talker import Context, Json, Talker, serve_stdio

REFUSAL = "Nobody may watch this"


class Picky(Talker):
    """The server. `subscribable`: whether it declares subscriptions."""

    def __init__(self, name: str, log: Path, *, subscribable: bool) -> None:
        super().__init__(name, log, frozenset(), quiet=False)
        self._subscribable = subscribable
        self._answers["resources/subscribe"] = self._subscribe if subscribable else self._refuse

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> ServerCapabilities:
        every = super().get_capabilities(
            notification_options, experimental_capabilities, extensions, protocol_version=protocol_version
        )
        resources = ResourcesCapability(list_changed=True, subscribe=self._subscribable)
        return every.model_copy(update={"resources": resources})

    async def _subscribe(self, ctx: Context, params: Json) -> Json:
        if params["uri"].startswith("memo://refused/"):
            raise MCPError(INVALID_PARAMS, REFUSAL)
        if params["uri"].startswith("memo://ignored/"):
            await anyio.sleep_forever()
        return {}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path, required=True, help="where every message is written down")
    parser.add_argument("--name", default="picky")
    parser.add_argument("--unsubscribable", action="store_true", help="declare no subscriptions")
    options = parser.parse_args()
    anyio.run(serve_stdio, Picky(options.name, options.log, subscribable=not options.unsubscribable))


if __name__ == "__main__":
    main()
