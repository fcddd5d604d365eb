"""Messages to clients that go out as they came: the SDK sends models, and its own would drop what they do not know."""

from collections.abc import Mapping
from typing import Any, cast

from mcp import MCPError
from mcp.server.session import ServerSession
from mcp.shared.message import ServerMessageMetadata
from mcp_types import INVALID_PARAMS, RequestId, ServerNotification, ServerRequest
from pydantic import BaseModel, Field, RootModel, ValidationError

from proxy.core.errors import Rejection
from proxy.core.inventory import Json


class _Message(BaseModel):
    name: str = Field(serialization_alias="method")
    params: dict[str, Any] | None = None

    @property
    def method(self) -> str:
        """None that the SDK has a model for, by which it would check the answer."""
        return ""


class _Answer(RootModel[dict[str, Any]]):
    """Any JSON object."""


async def notify(session: ServerSession, method: str, params: Json, request_id: RequestId | None = None) -> None:
    """Send a notification: on the stream of the request `request_id`, or on the connection's own."""
    message = _Message(name=method, params=dict(params) or None)
    await session.send_notification(cast("ServerNotification", message), related_request_id=request_id)


async def ask(
    session: ServerSession, method: str, params: Mapping[str, Any], request_id: RequestId | None = None
) -> dict[str, Any]:
    """Send a request and return its result: on the stream of the request `request_id`, or on the connection's own.

    Raises:
        Rejection: the client's error, or what it answered is no object.
    """
    message = cast("ServerRequest", _Message(name=method, params=dict(params) or None))
    where = ServerMessageMetadata(related_request_id=request_id)
    try:
        answer = await session.send_request(message, _Answer, metadata=where)
    except MCPError as error:
        raise Rejection(error.code, error.message, error.data) from None
    except ValidationError:
        raise Rejection(INVALID_PARAMS, "The client's answer is no JSON object") from None
    return answer.root
