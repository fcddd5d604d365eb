"""A request to the scripted model and its reply, in a form that no single API dictates."""

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Tool:
    """A tool that a client offers to the model."""

    name: str
    definition: Json = field(default_factory=dict)
    namespace: str = ""
    """Where the API groups tools, as the responses API does: the group that the tool stands in."""


@dataclass(frozen=True)
class Event:
    """One thing that happened in the conversation: a user's text, a call (its tool's name), or a call's result."""

    kind: Literal["user", "call", "result"]
    text: str


@dataclass(frozen=True)
class Request:
    """What a client sends to the model."""

    tools: list[Tool]
    events: list[Event]
    text: str
    """The whole body, to look for what is mentioned outside the events."""


@dataclass(frozen=True)
class Reply:
    """What the model answers: one call, or a text."""

    step: str
    """The step of the story, for the log."""
    text: str = ""
    tool: Tool | None = None
    arguments: Json = field(default_factory=dict)


@dataclass(frozen=True)
class ServerSentEvent:
    """One event of a streamed answer."""

    data: Json | str
    name: str = ""

    def encode(self) -> bytes:
        """The event's bytes."""
        head = f"event: {self.name}\n" if self.name else ""
        body = self.data if isinstance(self.data, str) else json.dumps(self.data)
        return f"{head}data: {body}\n\n".encode()


def text_of(content: object) -> str:
    """The text in a message's content: a text, a block or a list of blocks."""
    if isinstance(content, str):
        return content
    blocks = [content] if isinstance(content, dict) else content if isinstance(content, list) else []
    return "\n".join(str(block.get("text") or block.get("output") or "") for block in blocks if isinstance(block, dict))


def flat_tools(tools: Iterable[Json], namespace: str = "") -> Iterator[Tool]:
    """The tools of any API, taken out of their groups."""
    for tool in tools:
        if "functionDeclarations" in tool:
            yield from flat_tools(tool["functionDeclarations"])
        elif tool.get("type") == "namespace":
            yield from flat_tools(tool["tools"], tool["name"])
        else:
            function = tool.get("function", tool)
            yield Tool(function.get("name") or tool.get("type", ""), function, namespace)


def new_id(prefix: str) -> str:
    """An id as model APIs give them."""
    return f"{prefix}_{uuid.uuid4().hex[:20]}"
