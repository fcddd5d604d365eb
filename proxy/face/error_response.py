"""HTTP answers that are a JSON-RPC error of no request, as transports have them (2025-11-25, basic/transports)."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse


def error_response(
    status: HTTPStatus, code: int, message: str, *, data: object = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """An answer with this HTTP status and a JSON-RPC error with the id null; `data`: of the error, if it has any."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status, headers)
