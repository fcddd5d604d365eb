"""Headers of clients' requests, in whatever form HTTP allows, brought into the one that the SDK compares with.

The SDK wants media types in lower case, takes no notice of weights, and refuses a request of 2026-07-28 without a word.
"""

from http import HTTPStatus
from typing import Final

from mcp_types import INVALID_REQUEST
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.face.error_response import error_response

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_UTF_8: Final = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})
"""Names of the encoding that JSON has, and of one that is a part of it."""


class RequestHeaders:
    """An ASGI app around another, for which `Content-Type` and `Accept` are written in one way.

    A POST whose body is not JSON in UTF-8 is refused with 415, one whose client does not take both JSON and event
    streams with 406 (2025-11-25, basic/transports). A client that names nothing takes everything (RFC 9110, 12.5.1).
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        headers = MutableHeaders(raw=list(scope["headers"]))
        taken = [kind for kind in (JSON, EVENTS) if accepts(",".join(headers.getlist("accept")), kind)]
        refusal = _refusal(headers.getlist("content-type"), taken) if scope["method"] == "POST" else None
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if taken:
            headers["accept"] = ", ".join(taken)
        if scope["method"] == "POST":
            headers["content-type"] = JSON
        await self._app({**scope, "headers": headers.raw}, receive, send)


def accepts(accept: str, kind: str) -> bool:
    """Whether an `Accept` header takes a media type, by the most specific range for it; an empty one takes all."""
    if not accept.strip():
        return True
    weights: dict[str, bool] = {}
    for part in accept.lower().split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        weight = next((p.partition("=")[2].strip() for p in parameters if p.partition("=")[0].strip() == "q"), "1")
        weights[media] = weight.strip("0.") != "" or weight == ""
    ranges = (kind, f"{kind.partition('/')[0]}/*", "*/*")
    return next((weights[one] for one in ranges if one in weights), False)


def _refusal(content_types: list[str], taken: list[str]) -> Response | None:
    """The answer to a POST that cannot be served; None where it can."""
    fault = _content_fault(",".join(content_types))
    if fault:
        return error_response(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, INVALID_REQUEST, fault)
    if len(taken) < len((JSON, EVENTS)):
        text = f"Not Acceptable: the client has to accept both {JSON} and {EVENTS}"
        return error_response(HTTPStatus.NOT_ACCEPTABLE, INVALID_REQUEST, text)
    return None


def _content_fault(content_type: str) -> str:
    """Why a body is not JSON in UTF-8 by its `Content-Type`; empty where it is."""
    for part in content_type.lower().split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        if media != JSON:
            return f"Unsupported Media Type: Content-Type must be {JSON}"
        named = {name.strip(): value for name, _, value in (piece.partition("=") for piece in parameters)}
        charset = named.get("charset", "utf-8").strip().strip("\"'")
        if charset not in _UTF_8:
            return f"Unsupported Media Type: the charset of {JSON} must be utf-8"
    return ""
