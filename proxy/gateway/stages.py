"""What a client hears of steps while they run: stages as progress, and what servers send and ask meanwhile."""

from collections.abc import Mapping
from typing import Any, Literal, NoReturn, TypeAlias

from proxy.core.capabilities import lacking, refusal
from proxy.core.foreign_text import one_line
from proxy.core.inventory import Json, is_json
from proxy.core.scope import ScopeId
from proxy.ports import Caller, Channel, ListKind

Stage: TypeAlias = Literal["running", "completed", "failed"]


class Stages:
    """Tells the client of a request how its steps get on, where it wants progress.

    Each event is a progress notification: `message` says it in words, `_meta.stage` as `{"name", "status"}`. Progress
    of a step's server counts as well, so that the number always grows and the client knows that something happens.
    """

    def __init__(self, channel: Channel, params: Mapping[str, Any]) -> None:
        meta = params.get("_meta")
        token = meta.get("progressToken") if is_json(meta) else None
        self._token = token if isinstance(token, str | int) else None
        self._channel = channel
        self._events = 0
        self._signs = 0

    async def tell(self, name: str, status: Stage) -> None:
        """A step has come to a stage."""
        self._events += 1
        self._signs = 0
        await self._send({"message": f"{name}: {status}", "_meta": {"stage": {"name": name, "status": status}}})

    async def sign_of_life(self, name: str, told: Json) -> None:
        """The server of a step has told how far it is."""
        self._signs += 1
        words = told.get("message")
        said = one_line(words) if isinstance(words, str) else ""
        await self._send({"message": f"{name}: {said or 'running'}"})

    async def _send(self, told: dict[str, Any]) -> None:
        if self._token is not None:
            progress = self._events + self._signs / (self._signs + 1)  # between two events it never reaches the next
            await self._channel.progress({"progressToken": self._token, "progress": progress, **told})


class StepChannel:
    """The `Channel` of a step's request to its server: that of the client's request, whose result it is not.

    Questions and log messages go to the client as they come; progress is told as that of the step.
    """

    def __init__(self, channel: Channel, stages: Stages, name: str) -> None:
        self._channel = channel
        self._stages = stages
        self._name = name

    @property
    def capabilities(self) -> Json:
        """What the client can be asked."""
        return self._channel.capabilities

    @property
    def log_level(self) -> str | None:
        """What the client wants to hear."""
        return self._channel.log_level

    @property
    def headers(self) -> Mapping[str, str]:
        """Those of the client's request."""
        return self._channel.headers

    def check(self, schema: object, arguments: Json) -> None:
        """Nothing: the headers of the client's request are not about a step's arguments."""

    async def list_changed(self, kind: ListKind) -> None:
        """Nothing: a step changes no list."""

    async def progress(self, params: Json) -> None:
        """Tell the client that the step goes on."""
        await self._stages.sign_of_life(self._name, params)

    async def log(self, params: Json) -> None:
        """Send a log message of the server."""
        await self._channel.log(params)

    async def poll(self) -> None:
        """Nothing: the client waits for more than this step."""

    async def ask(self, method: str, params: Json) -> dict[str, Any]:
        """Put a question of the server to the client.

        Raises:
            Rejection: it cannot answer.
        """
        return await self._channel.ask(method, params)


class Nobody:
    """The `Channel` of what no request has caused: whatever is sent on it is lost, and it answers no question."""

    def __init__(self) -> None:
        self.capabilities: Json = {}
        self.log_level: str | None = None
        self.headers: Mapping[str, str] = {}

    def check(self, schema: object, arguments: Json) -> None:
        """Nothing."""

    async def list_changed(self, kind: ListKind) -> None:
        """Nothing."""

    async def progress(self, params: Json) -> None:
        """Nothing."""

    async def log(self, params: Json) -> None:
        """Nothing."""

    async def poll(self) -> None:
        """Nothing."""

    async def ask(self, method: str, params: Json) -> NoReturn:
        """Refuse.

        Raises:
            Rejection: always.
        """
        raise refusal(lacking({}, method, params) or {})


def nobody(scope: ScopeId) -> Caller:
    """Who makes a request of `scope` that no client has caused."""
    return Caller(scope, "handshake", None, "", Nobody())
