"""What a client says of itself, bounded where it enters: it is kept for as long as the client is known.

An icon in `clientInfo` may be a picture, and nothing here uses it; the rest of an honest client has some hundred bytes.
"""

from typing import Any, TypeAlias, cast

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp_types import INVALID_PARAMS

from proxy.core.inventory import Json, is_json, json_size
from proxy.core.protocol import MAX_INTRODUCTION_BYTES, MAX_NAME_CHARACTERS

Context: TypeAlias = ServerRequestContext[Any, Any]


def bound_introduction(params: dict[str, Any]) -> None:
    """Cut the parameters of `initialize`, in place since the SDK keeps that object, to what a session may keep.

    Where they are too large, `_meta` goes, and all of `clientInfo` but name and version.

    Raises:
        MCPError: they are too large without that as well.
    """
    if json_size(params) <= MAX_INTRODUCTION_BYTES:
        return
    params.pop("_meta", None)
    if is_json(client := params.get("clientInfo")):
        params["clientInfo"] = {key: _cut(client[key]) for key in ("name", "version") if key in client}
    if json_size(params) > MAX_INTRODUCTION_BYTES:
        raise _too_large("initialize")


def check_capabilities(declared: Json) -> None:
    """Refuse capabilities of a modern request that are too large to be kept.

    Raises:
        MCPError: they are.
    """
    if declared and json_size(declared) > MAX_INTRODUCTION_BYTES:
        raise _too_large("clientCapabilities")


def name_of(ctx: Context) -> tuple[str, str]:
    """What the client of a request calls itself, and its version, both cut; empty where it does not say."""
    client = ctx.session.client_params
    return ("", "") if client is None else (_cut(client.client_info.name), _cut(client.client_info.version))


def without_request(session: ServerSession) -> ServerSession:
    """A session of the same connection, which keeps nothing of the request that `session` is of, such as its body."""
    connection = session._connection  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - nothing else leads there
    return ServerSession(cast("Any", connection.outbound), connection)  # which stands for the stream of no request


def _cut(value: Any) -> Any:  # noqa: ANN401 - what is not text is for the SDK to refuse
    return value[:MAX_NAME_CHARACTERS] if isinstance(value, str) else value


def _too_large(what: str) -> MCPError:
    return MCPError(INVALID_PARAMS, f"{what} is larger than {MAX_INTRODUCTION_BYTES // 1024} KiB")
