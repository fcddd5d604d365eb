"""Clients that speak JSON-RPC with the proxy's server in this process, as if their messages came over HTTP."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest
from starlette.requests import Request

from proxy.app import Running
from proxy.core.scope import ScopeId

Json: TypeAlias = dict[str, Any]

LIST_CHANGES = frozenset(f"notifications/{kind}/list_changed" for kind in ("tools", "resources", "prompts"))
"""What a client is told when skills change: they are resources and prompts, too."""


@dataclass
class Call:
    """A call of a tool: what came of it, and whether it was cancelled."""

    tool: str
    arguments: Json
    answers: list[Json] = field(default_factory=list[Json])
    cancelled: bool = False

    @property
    def over(self) -> bool:
        """Whether nothing more may come."""
        return self.cancelled or bool(self.answers)


class Client:
    """A handshake-era connection with a session id, on `/mcp` or in a namespace."""

    def __init__(self, session: str, namespace: str | None) -> None:
        self.scope = ScopeId("session", session) if namespace is None else ScopeId("namespace", namespace)
        self.session = session
        self.calls: dict[int, Call] = {}
        self.others: dict[int, list[Json]] = {}
        self.progress: list[Json] = []
        self.notices = 0
        self._path = {} if namespace is None else {"namespace": namespace}
        self._ids = 0
        self._into, self._input = anyio.create_memory_object_stream[SessionMessage | Exception](1000)
        self._output, self._from = anyio.create_memory_object_stream[SessionMessage](1000)

    async def run(self, proxy: Running, ended: Callable[[ScopeId, str], Awaitable[None]]) -> None:
        """Be connected until the client leaves, or is cut off."""
        async with self._from, self._into:
            await proxy.server.run(self._input, self._output, proxy.server.create_initialization_options())  # pyright: ignore[reportArgumentType] - the SDK's own streams carry a context besides
        await ended(self.scope, self.session)

    def leave(self) -> None:
        """Say nothing more: the session is over."""
        self._into.close()

    def request(self, method: str, params: Json) -> int:
        """Send a request; its id."""
        self._ids += 1
        self.others[self._ids] = []
        self._send(JSONRPCRequest(jsonrpc="2.0", id=self._ids, method=method, params=params))
        return self._ids

    def call(self, tool: str, arguments: Json) -> Call:
        """Call a tool, with a progress token."""
        token = f"{self.session} {self._ids + 1}"
        number = self.request("tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": token}})
        del self.others[number]
        self.calls[number] = Call(tool, arguments)
        return self.calls[number]

    def cancel(self, number: int) -> None:
        """Cancel a call."""
        self.calls[number].cancelled = True
        self.tell("notifications/cancelled", {"requestId": number})

    def tell(self, method: str, params: Json) -> None:
        """Send a notification."""
        self._send(JSONRPCNotification(jsonrpc="2.0", method=method, params=params))

    def hear(self) -> None:
        """Take what has come."""
        while True:
            try:
                item = self._from.receive_nowait()
            except (anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
                return
            message = json.loads(item.message.model_dump_json(by_alias=True, exclude_none=True))
            if (number := message.get("id")) in self.calls:
                call = self.calls[number]
                assert not call.answers, ("it was answered twice", message)
                call.answers.append(message)
            elif "id" in message:
                self.others[number].append(message)
            elif message["method"] == "notifications/progress":
                self.progress.append(message["params"])
            else:
                assert message["method"] in LIST_CHANGES, message
                self.notices += 1

    def _send(self, message: JSONRPCRequest | JSONRPCNotification) -> None:
        headers = [(b"mcp-session-id", self.session.encode())]
        request = Request({"type": "http", "method": "POST", "headers": headers, "path_params": self._path})
        self._into.send_nowait(SessionMessage(message, ServerMessageMetadata(request_context=request)))
