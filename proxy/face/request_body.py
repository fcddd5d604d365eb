"""The bodies of HTTP requests, bounded before the SDK parses them: how long they are, and how many values they hold.

The SDK parses on the event loop, and a thread would not help: parsers hold the interpreter for as long as they take.
Thus what a body may cost is bounded instead.
"""

from http import HTTPStatus

import structlog
from mcp_types import INVALID_REQUEST
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.core.json_cost import has_more_values, most_values
from proxy.face.error_response import error_response
from proxy.face.single_message import NotSingle, single_message

log = structlog.stdlib.get_logger("proxy.face")

SETTING = "proxy.max_message_size"


class RequestBodies:
    """An ASGI app around another, which gets the body of each request in one message.

    `limit`: the longest body in bytes. A longer one is refused with status 413, one of too many values with 400, each
    with a JSON-RPC error that names the limit; so is, with 400, one that is not a single message.
    """

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit
        self._most_values = most_values(limit)
        self._too_large = error_response(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            INVALID_REQUEST,
            f"The request is larger than {limit} bytes: {SETTING} in the proxy's configuration",
        )
        self._too_many_values = error_response(
            HTTPStatus.BAD_REQUEST,
            INVALID_REQUEST,
            f"The request holds more than {self._most_values} values (commas and brackets outside of strings)",
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > self._limit:
            await self._refuse(self._too_large, scope, receive, send)
            return
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return  # the client has left
            body += message.get("body", b"")
            if len(body) > self._limit:
                await self._refuse(self._too_large, scope, receive, send)
                return
            if not message.get("more_body", False):
                break
        whole: Message | None = {"type": "http.request", "body": bytes(body), "more_body": False}
        if has_more_values(whole["body"], self._most_values):
            await self._refuse(self._too_many_values, scope, receive, send)
            return
        try:
            whole["body"] = single_message(whole["body"])
        except NotSingle as fault:
            log.warning("http.refused", problem=str(fault))
            await error_response(HTTPStatus.BAD_REQUEST, INVALID_REQUEST, str(fault))(scope, receive, send)
            return

        async def replay() -> Message:
            nonlocal whole
            message, whole = whole, None
            return await receive() if message is None else message

        del body
        await self._app(scope, replay, send)

    async def _refuse(self, refusal: JSONResponse, scope: Scope, receive: Receive, send: Send) -> None:
        if refusal is self._too_large:
            log.warning("http.refused", limit=self._limit, setting=SETTING)
        else:
            log.warning("http.refused", values=self._most_values)
        await refusal(scope, receive, send)
