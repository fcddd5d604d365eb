"""What waits to be sent to a connection, and what becomes of it when the connection is over."""

from typing import Any, cast

import anyio
import pytest
from mcp.server.session import ServerSession

from proxy.core.inventory import Json
from proxy.core.scope import ScopeId
from proxy.face import raw
from proxy.face.clients import ClientRegistry
from tests.conftest import PATIENCE

pytestmark = pytest.mark.anyio

SCOPE = ScopeId("namespace", "a")


async def test_what_waits_for_a_connection_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that did not read before it left costs no time any more, and what it was to be told is forgotten."""
    sent: list[str] = []
    begun, taken, over = anyio.Event(), anyio.Event(), anyio.Event()

    async def notify(session: Any, method: str, params: Json) -> None:
        sent.append(params["data"])
        begun.set()
        await taken.wait()
        over.set()

    monkeypatch.setattr(raw, "notify", notify)
    async with anyio.create_task_group() as tasks:
        clients = ClientRegistry(tasks)
        with anyio.fail_after(PATIENCE):
            clients.meet(SCOPE, "c", cast("ServerSession", None), {}, stream=True)
            for data in ("one", "two", "three"):
                clients.log(SCOPE, {"level": "error", "data": data})
            await begun.wait()
            clients.part(SCOPE, "c")
            taken.set()
            await over.wait()
        assert not clients.reaches(SCOPE)
    assert sent == ["one"]
