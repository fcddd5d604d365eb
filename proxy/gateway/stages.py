"""What a client hears of steps while they run: stages as progress, and what servers send and ask meanwhile."""

from collections.abc import Mapping
from typing import Any, Final, Literal, NoReturn, TypeAlias

import anyio

from proxy.core.capabilities import lacking, refusal
from proxy.core.foreign_text import one_line
from proxy.core.inventory import Json, is_json, json_size
from proxy.core.scope import ScopeId
from proxy.ports import Caller, Channel, ListKind

Stage: TypeAlias = Literal["running", "completed", "failed", "cancelled"]

CLOSE_WAIT_S: Final = 1.0
"""Seconds that telling the end of a stage may take once its request is cancelled."""
MAX_STAGE_OUTPUT_BYTES: Final = 16 * 1024
"""Bytes of the JSON of an output that a stage tells; of a larger one it tells the size."""


class Stages:
    """Tells the client of a request how its steps get on, where it wants progress.

    Each event is a progress notification: `message` says it in words, `_meta.stage` as `{"name", "status"}`; a further
    attempt of a step has `attempt` there, and a skill that has gone through its `output`, or `outputSize`. Progress
    of a step's server counts as well, so that the number always grows and the client knows that something happens.
    """

    def __init__(self, channel: Channel, params: Mapping[str, Any]) -> None:
        meta = params.get("_meta")
        token = meta.get("progressToken") if is_json(meta) else None
        self._token = token if isinstance(token, str | int) else None
        self._channel = channel
        self._events = 0
        self._signs = 0
        self._gone = False

    async def tell(self, name: str, status: Stage, **more: object) -> None:
        """A step or skill has come to a stage; `more` is told of it."""
        self._events += 1
        self._signs = 0
        said = f"{status} (attempt {more['attempt']})" if "attempt" in more else status
        await self._send({"message": f"{name}: {said}", "_meta": {"stage": {"name": name, "status": status, **more}}})

    async def close(self, name: str, status: Stage, **more: object) -> None:
        """A step or skill has come to its last stage, which is told also where the request is cancelled."""
        with anyio.move_on_after(CLOSE_WAIT_S, shield=True) as limit:
            await self.tell(name, status, **more)
        self._gone = self._gone or limit.cancelled_caught

    async def sign_of_life(self, name: str, told: Json) -> None:
        """The server of a step has told how far it is."""
        self._signs += 1
        words = told.get("message")
        said = one_line(words) if isinstance(words, str) else ""
        await self._send({"message": f"{name}: {said or 'running'}"})

    async def _send(self, told: dict[str, Any]) -> None:
        if self._token is not None and not self._gone:
            progress = self._events + self._signs / (self._signs + 1)  # between two events it never reaches the next
            await self._channel.progress({"progressToken": self._token, "progress": progress, **told})


def output_told(output: object) -> Json:
    """What a stage tells of the output of a skill."""
    size = json_size(output)
    return {"output": output} if size <= MAX_STAGE_OUTPUT_BYTES else {"outputSize": size}


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
