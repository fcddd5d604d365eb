"""The answers to the first requests of a client on stdio, from the configuration alone: before the SDK is imported.

They equal those of the server, which handles the same messages again later, and alone answers anything unusual. Nothing
here depends on upstream servers, or changes any state but that of the connection.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias, cast

from proxy.core.call_route import shows_call_route
from proxy.core.inventory import Json, Listed, is_json
from proxy.core.known_clients import Rereading, rereading
from proxy.core.log_levels import LEVELS
from proxy.core.profiles import Policy
from proxy.core.protocol import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    LOG_LEVEL_KEY,
    MAX_INTRODUCTION_BYTES,
    MAX_NAME_CHARACTERS,
    MODERN_VERSIONS,
    SERVER_KEY,
    VERSION_KEY,
    Era,
    negotiated,
)
from proxy.core.relations import begin
from proxy.core.scope import Evidence, ScopeId
from proxy.core.self_description import SERVER_INFO, discover_result, initialize_result
from proxy.core.settings import Settings
from proxy.gateway.scope_view import ScopeView, scope_view, skill_lists
from proxy.wire.codec import loads, result_line

RequestKey: TypeAlias = str | int
"""The id of a request."""

_LISTS: Final[Mapping[str, tuple[str, str]]] = {
    "tools/list": ("tools", ""),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resourceTemplates", "templates"),
    "prompts/list": ("prompts", "prompts"),
}
"""By method, the key of its result and the list of `ScopeView` that stands there; the client decides on the tools."""
_PLAIN_CLIENT: Final = frozenset({"name", "version", "title", "description", "websiteUrl"})
"""The string members of `clientInfo`."""
_SURROGATE_ESCAPES: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""The JSON escapes of surrogates, which the server refuses in some places where they are not in pairs."""

MAX_LINE_BYTES: Final = MAX_INTRODUCTION_BYTES // 2
"""Of a message that is answered here; whether what a client says of itself is too large is for the server to decide."""


class EarlyAnswer(NamedTuple):
    """The answer to a message: a line for the client, and the id of the request; nothing for a notification."""

    line: bytes = b""
    request: RequestKey | None = None


class EarlyAnswers:
    """The early answers for one connection, of the client whose scope is `scope`."""

    def __init__(self, policy: Policy, settings: Settings, scope: ScopeId) -> None:
        self._catalogue = policy.of(scope)
        self._whole = policy.catalogue
        self._settings = settings
        self._remembered = scope.kind != "process" and settings.state_file is not None
        self._era: Era | None = None
        self._client = ""

    def answer(self, line: bytes) -> EarlyAnswer | None:
        """The answer to a line of input; None where the server has to answer it, and everything after it."""
        if not line.strip():
            return EarlyAnswer()
        if len(line) > MAX_LINE_BYTES or _SURROGATE_ESCAPES.search(line):
            return None
        try:
            message: object = loads(line)
        except ValueError:
            return None
        if not is_json(message) or message.get("jsonrpc") != "2.0":
            return None
        method, request = message.get("method"), message.get("id")
        if isinstance(method, str) and method.startswith("notifications/") and "id" not in message:
            return EarlyAnswer()
        if not isinstance(method, str) or not _is_id(request):
            return None
        params = message.get("params", {})
        result = self._result(method, params) if is_json(params) else None
        return None if result is None else EarlyAnswer(result_line(request, result), request)

    def _result(self, method: str, params: Json) -> dict[str, Any] | None:
        meta = params.get("_meta", {})
        if not is_json(meta) or not _is_plain_meta(meta):
            return None
        if method == "initialize":
            return self._initialize(params) if self._era is None and VERSION_KEY not in meta else None
        if not params.keys() <= {"_meta"}:  # a cursor, or an unknown parameter
            return None
        if VERSION_KEY in meta:
            return self._modern(method, meta)
        if self._era != "handshake":
            return None
        return {} if method == "ping" else self._list(method, "handshake", self._client)

    def _initialize(self, params: Json) -> dict[str, Any] | None:
        requested, client = params.get("protocolVersion"), params.get("clientInfo")
        if not isinstance(requested, str) or not _is_plain_client(client):
            return None
        if not params.keys() <= {"protocolVersion", "clientInfo", "capabilities", "_meta"}:
            return None
        if not _are_plain_capabilities(params.get("capabilities")):
            return None
        self._era, self._client = "handshake", cast("Json", client)["name"]
        return initialize_result(negotiated(requested), self._catalogue, self._whole, self._settings.publish)

    def _modern(self, method: str, meta: Json) -> dict[str, Any] | None:
        """The answer to a request that carries its own envelope; `server/discover` decides no era."""
        client = meta.get(CLIENT_KEY)
        if self._era == "handshake" or meta[VERSION_KEY] not in MODERN_VERSIONS:
            return None
        if not _are_plain_capabilities(meta.get(CAPABILITIES_KEY)):
            return None
        if CLIENT_KEY in meta and not _is_plain_client(client):
            return None
        if method == "server/discover":
            return _complete(discover_result(self._catalogue, self._whole, self._settings.publish))
        result = self._list(method, "modern", client["name"] if is_json(client) else "")
        if result is None:
            return None
        self._era = "modern"
        return _complete(result)

    def _list(self, method: str, era: Era, client: str) -> dict[str, Any] | None:
        """A list, where nothing of it depends on what servers offer or what the client did earlier."""
        if method not in _LISTS or not self._starts_without_active_skills:
            return None
        key, name = _LISTS[method]
        listed: Listed = getattr(self._view, name) if name else self._tools(era, client)
        return {key: listed}

    def _tools(self, era: Era, client: str) -> Listed:
        """The tools; a modern client has no listen stream yet, so that nothing tells it of changes."""
        evidence = Evidence()
        known = rereading(client, evidence, self._settings.call_route_clients)
        expected: Rereading = known if era == "handshake" else "none"
        shown = shows_call_route(self._catalogue, self._settings, evidence, expected)
        return self._view.with_call if shown else self._view.tools

    @cached_property
    def _view(self) -> ScopeView:
        """What is seen while no skill is active and nothing is known of any server."""
        return scope_view(skill_lists(self._catalogue, self._settings.publish), (), {}, self._settings)

    @cached_property
    def _starts_without_active_skills(self) -> bool:
        """Whether no skill is active at the start, and what `SKILL` says of itself follows from the file alone."""
        catalogue = self._catalogue
        acts = catalogue.on_start or catalogue.invocable or any(skill.hooked for skill in catalogue.skills)
        return not (self._remembered or acts or begin(catalogue).active)


def _complete(result: dict[str, Any]) -> dict[str, Any]:
    """A result as the modern era has it (2026-07-28, basic/index and server/utilities/caching)."""
    return {
        **result,
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {SERVER_KEY: dict(SERVER_INFO)},
    }


def _is_id(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool))


def _is_plain_meta(meta: Json) -> bool:
    """Whether the reserved members of `_meta` are valid; the others may have any value."""
    token, level = meta.get("progressToken", 0), meta.get(LOG_LEVEL_KEY, LEVELS[0])
    return _is_id(token) and level in LEVELS


def _is_plain_client(client: object) -> bool:
    """Whether what a client says of itself is a name and a version, and perhaps more texts."""
    if not is_json(client) or not client.keys() <= _PLAIN_CLIENT or not {"name", "version"} <= client.keys():
        return False
    named = (client["name"], client["version"])
    return all(isinstance(value, str) for value in client.values()) and all(
        len(text) <= MAX_NAME_CHARACTERS for text in named
    )


def _are_plain_capabilities(declared: object) -> bool:
    """Whether capabilities are objects of objects, but for the flag `roots.listChanged`."""
    return is_json(declared) and all(is_json(one) and _is_plain(name, one) for name, one in declared.items())


def _is_plain(capability: str, settings: Json) -> bool:
    return all(
        isinstance(value, bool)
        if (capability, name) == ("roots", "listChanged")
        else (_is_nested if capability == "tasks" else is_json)(value)
        for name, value in settings.items()
    )


def _is_nested(value: object) -> bool:
    """Whether a value is an object of such objects, as the capabilities on tasks are (2025-11-25, basic/lifecycle)."""
    return is_json(value) and all(map(_is_nested, value.values()))
