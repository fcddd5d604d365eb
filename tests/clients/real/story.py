"""The story that the scripted model plays: activate a skill, use its tool, offload the skill."""

import re
from dataclasses import dataclass
from typing import Literal

from conversation import Event, Json, Reply, Request, Tool

Turn = Literal["story", "again"]

PROMPTS: dict[Turn, str] = {"story": "What is the weather in Oslo? [[story]]", "again": "And now? [[again]]"}
"""What the user says: the story itself, and a second turn that uses the tool if the first could not."""
SKILL_ID = "weather"
TOOL_NAME = "desk__get_weather"
"""The skill's tool as the proxy names it; clients put a prefix of their own before it."""
TOOL_ARGUMENTS: Json = {"city": "Oslo"}

SKILL = re.compile(r"(^|[^A-Za-z])SKILL$")
SKILL_CALL = re.compile(r"(^|[^A-Za-z])SKILL_CALL$")
TOOL = re.compile(r"get_weather$")
SEARCH = re.compile(r"^(ToolSearch|tool_search)$")
"""How clients name their own search for tools that they have deferred."""
BRIDGE = re.compile(r"^tool_call$")
"""How a client names its own tool that calls a deferred one."""
DEFERRED_PREFIX = "mcp__"
"""How names of deferred tools begin, where a client only mentions them."""

MAX_REQUESTS = 40
MAX_LISTS = 2
MAX_SEARCHES = 4


@dataclass(frozen=True)
class Conversation:
    """A request with the user's turn that it belongs to."""

    request: Request
    turn: Turn
    events: list[Event]
    """What happened since the turn's prompt."""

    @property
    def calls(self) -> list[str]:
        """The names of the tools called in this turn."""
        return [_standard_name(event.text) for event in self.events if event.kind == "call"]

    @property
    def results(self) -> list[str]:
        """What these calls gave."""
        return [event.text for event in self.events if event.kind == "result"]

    def count(self, *patterns: re.Pattern[str]) -> int:
        """How many calls of such tools the turn has."""
        return sum(any(pattern.search(name) for pattern in patterns) for name in self.calls)

    def tool(self, pattern: re.Pattern[str]) -> Tool | None:
        """The offered tool of such a name."""
        return next((tool for tool in self.request.tools if pattern.search(_offered_name(tool))), None)

    def deferred_name(self, pattern: re.Pattern[str]) -> str | None:
        """The name of such a tool that the client mentions without offering it."""
        if self.tool(SEARCH) is None:
            return None
        names = re.findall(rf"\b{DEFERRED_PREFIX}[\w-]+", self.request.text.replace("\\n", "\n"))
        return next((name for name in names if pattern.search(name)), None)

    def knows(self, pattern: re.Pattern[str]) -> bool:
        """Whether the model could call such a tool now, at once or after the client's own search for it."""
        return self.tool(pattern) is not None or self.deferred_name(pattern) is not None


def _standard_name(name: str) -> str:
    """A called tool's name; CrewAI writes names in small letters."""
    return {"skill": "SKILL", "skill_call": "SKILL_CALL"}.get(name, name)


def _offered_name(tool: Tool) -> str:
    """An offered tool's name, but of a client's own tool `skill` as it is."""
    own = tool.name == "skill" and "offload" not in str(tool.definition)
    return tool.name if own else _standard_name(tool.name)


def conversation(request: Request) -> Conversation | None:
    """The user's latest turn of the story in a request, None where the client asks for something else.

    A request without tools is one for a title or a summary.
    """
    found: Conversation | None = None
    for number, event in enumerate(request.events):
        marks = re.findall(r"\[\[(story|again)\]\]", event.text) if event.kind == "user" else []
        if marks:
            found = Conversation(request, marks[-1], request.events[number:])
    if found is None or not request.tools or len(found.calls) > len(found.results):
        return None
    return found


class Story:
    """The state of one run's story."""

    def __init__(self) -> None:
        self.requests = 0
        self.used = False
        """Whether the model has called the skill's tool."""

    def reply(self, talk: Conversation | None) -> Reply:
        """The model's reply to one request."""
        self.requests += 1
        if talk is None:
            return Reply("aside", "ok")
        if self.requests > MAX_REQUESTS:
            return Reply("limit", "Too many requests.")
        reply = self._again(talk) if talk.turn == "again" else self._story(talk)
        self.used = self.used or reply.step in {"direct", "bridge", "SKILL_CALL"}
        return _as_smolagents_wants(reply, talk.request)

    def _story(self, talk: Conversation) -> Reply:
        if not talk.count(SKILL):
            return _skill(talk, "activate") or Reply("no SKILL", "There is no tool SKILL.")
        if not talk.count(TOOL, SKILL_CALL):
            return _use(talk)
        if re.search(f"{TOOL.pattern}|{SKILL_CALL.pattern}|{SEARCH.pattern}", talk.calls[-1]):
            return _skill(talk, "offload") or _final(talk)
        return _final(talk)

    def _again(self, talk: Conversation) -> Reply:
        if self.used or talk.count(TOOL, SKILL_CALL):
            return _final(talk)
        return _use(talk)


def _final(talk: Conversation) -> Reply:
    last = talk.results[-1] if talk.results else "none"
    return Reply("final", f"Done. The last result was: {last[:200]}")


def _skill(talk: Conversation, action: str) -> Reply | None:
    name = {} if action == "list" else {"skill_name": SKILL_ID}
    return _reach(talk, SKILL, {"action": action, **name}, action)


def _use(talk: Conversation) -> Reply:
    """A call of the skill's tool, or SKILL's list to give the client time, or the end of the turn."""
    through = {"tool": TOOL_NAME, "arguments": TOOL_ARGUMENTS}
    return (
        _reach(talk, TOOL, TOOL_ARGUMENTS, "direct")
        or _reach(talk, SKILL_CALL, through, "SKILL_CALL")
        or (_skill(talk, "list") if talk.count(SKILL) <= MAX_LISTS else None)
        or Reply("stuck", "The tool is not in my list.")
    )


def _reach(talk: Conversation, pattern: re.Pattern[str], arguments: Json, step: str) -> Reply | None:
    """A call of the tool of such a name, or of the client's own search for it where that is deferred."""
    if tool := talk.tool(pattern):
        return Reply(step, tool=tool, arguments=arguments)
    name, search, bridge = talk.deferred_name(pattern), talk.tool(SEARCH), talk.tool(BRIDGE)
    if name is None or search is None:
        return None
    if bridge and any("<function>" in result and name in result for result in talk.results):
        through = {"name": name, "arguments": arguments}
        return Reply("bridge" if step == "direct" else step, tool=bridge, arguments=through)
    if talk.calls.count(search.name) < MAX_SEARCHES:
        return Reply(f"search for {name}", tool=search, arguments={"query": f"select:{name}"})
    return None


def _as_smolagents_wants(reply: Reply, request: Request) -> Reply:
    """The reply with every optional argument, and a text as a call of `final_answer`, where that is offered."""
    end = next((tool for tool in request.tools if tool.name == "final_answer"), None)
    if end is None:
        return reply
    if reply.tool is None:
        return Reply(reply.step, tool=end, arguments={"answer": reply.text})
    properties: Json = reply.tool.definition["parameters"]["properties"]
    empty = {name: {} if schema.get("type") == "object" else "" for name, schema in properties.items()}
    return Reply(reply.step, tool=reply.tool, arguments={**empty, **reply.arguments})
