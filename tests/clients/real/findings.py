"""What a trial's logs say: who the client is, when it reads its list again, and how it came to use the tool."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from conversation import Json
from story import TOOL_ARGUMENTS
from trial import GUIDE_LINES
from wire_log import CLIENT, PROXY

META = "io.modelcontextprotocol/"
MOST_HANDSHAKES = 3
"""More of them belong to sessions of single calls; Claude Code asks twice for what the proxy supports."""
USES = {"direct": "directly", "bridge": "directly", "SKILL_CALL": "`SKILL_CALL`"}
"""The step of the story to how the tool was called."""


@dataclass(frozen=True)
class Findings:
    """What is told of one trial; a text that is empty was not seen."""

    name: str = ""
    """`clientInfo.name`."""
    revision: str = ""
    """The protocol's, as negotiated."""
    on_notice: str = ""
    """What the client does on `notifications/tools/list_changed`."""
    reread_ms: float | None = None
    """From the notice to the request for the list."""
    offered: str = ""
    """When the activated tool was among the model's tools: "in time" is in its next request."""
    used: str = ""
    """How the tool was called, "never" where it was not."""
    same_turn: bool = False
    """Whether the call arrived as sent at the server behind the proxy in the user's first turn."""
    seen: str = ""
    """What the model saw of the activation's result."""
    problem: str = ""
    """Why there was no story to tell."""


def read_log(path: Path) -> list[Json]:
    """The entries of a log, in the order of their times."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    entries = [json.loads(line) for line in lines if line.endswith("}")]  # the last one may have been cut off
    return sorted(entries, key=lambda entry: entry["time"])


def find(folder: Path) -> Findings:
    """The findings of the trial in a folder."""
    wire = [entry for entry in read_log(folder / "wire.jsonl") if isinstance(entry.get("message"), dict)]
    requests = [entry for entry in read_log(folder / "model.jsonl") if entry["turn"]]
    calls = read_log(folder / "calls.jsonl")
    name, revision = _client(wire)
    activation = next((at for at, request in enumerate(requests) if request["step"] == "activate"), None)
    if activation is None:
        return Findings(name, revision, problem=_no_activation(wire, requests))
    later = requests[activation + 1 :]
    on_notice, reread_ms = _on_notice(wire, requests)
    return Findings(
        name,
        revision,
        on_notice,
        reread_ms,
        offered=_offered(later),
        used=_used(later, calls),
        same_turn=_in_first_turn(calls, requests),
        seen=_seen(later[0]["result"]) if later else "",
        problem="" if later else "the model was not asked again after the activation",
    )


def _no_activation(wire: list[Json], requests: list[Json]) -> str:
    if not wire:
        return "the client did not reach the proxy"
    return "SKILL was not offered to the model" if requests else "the model was not asked"


# --- who it is -------------------------------------------------------------------------------------------------------


def _client(wire: list[Json]) -> tuple[str, str]:
    """The client's name and the negotiated revision, each as the last to be said."""
    name = revision = ""
    for entry in wire:
        message, result = entry["message"], entry["message"].get("result")
        params = message.get("params") or {}
        meta = params.get("_meta") or {}
        info = params.get("clientInfo") or meta.get(f"{META}clientInfo")
        if entry["side"] == CLIENT and info:
            name = info["name"]
        if entry["side"] == CLIENT and message.get("method") == "tools/list":
            revision = meta.get(f"{META}protocolVersion", revision)
        if entry["side"] == PROXY and isinstance(result, dict) and "protocolVersion" in result:
            revision = result["protocolVersion"]
    return name, revision


# --- what it does on the notice --------------------------------------------------------------------------------------


def _times(wire: Iterable[Json], method: str) -> list[float]:
    return [entry["time"] for entry in wire if entry["message"].get("method") == method]


def _activation_span(wire: list[Json]) -> tuple[float, float] | None:
    """When the activation was asked for and when its result left, None where it was not."""
    for entry in wire:
        message = entry["message"]
        arguments = (message.get("params") or {}).get("arguments") or {}
        if message.get("method") == "tools/call" and arguments.get("action") == "activate":
            answers = (later["time"] for later in wire if later["side"] == PROXY and _answers(later, message["id"]))
            return entry["time"], next((time for time in answers if time > entry["time"]), float("inf"))
    return None


def _answers(entry: Json, number: object) -> bool:
    return "method" not in entry["message"] and entry["message"].get("id") == number


def _on_notice(wire: list[Json], requests: list[Json]) -> tuple[str, float | None]:
    """What the client did on the notice of the activation, and after how many milliseconds."""
    if len(_times(wire, "initialize") + _times(wire, "server/discover")) > MOST_HANDSHAKES:
        return "a session for each call", None
    span = _activation_span(wire)
    if span is None:
        return "", None
    asked, answered = span
    offload = next((request["time"] for request in requests if request["step"] == "offload"), float("inf"))
    notices = _times(wire, "notifications/tools/list_changed")
    notice = next((time for time in notices if asked < time < offload), None)
    lists = [time for time in _times(wire, "tools/list") if time > (notice or asked)]
    if lists and _reads_before_each_request(wire, requests):
        return "reads before each request", None
    if lists and lists[0] > max(request["time"] for request in requests if request["turn"] == "story"):
        return "reads at each user turn", None
    if notice is None:
        return "gets none", None
    if not lists:
        return "never", None
    when = "re-reads before the result" if lists[0] < answered else "re-reads later"
    return when, (lists[0] - notice) * 1000


def _reads_before_each_request(wire: list[Json], requests: list[Json]) -> bool:
    """Whether the list was read before each request of the turn, and after a use of the tool, which changes nothing."""
    lists = _times(wire, "tools/list")
    pairs = [(before, after) for before, after in pairwise(requests) if before["turn"] == after["turn"] == "story"]
    used = any(before["step"] in USES for before, _ in pairs)
    return used and all(any(before["time"] < time < after["time"] for time in lists) for before, after in pairs)


# --- the story -------------------------------------------------------------------------------------------------------


def _offered(later: list[Json]) -> str:
    """When the tool was first among the model's tools, counted in requests after the activation."""
    at = next((number for number, request in enumerate(later) if request["tool"]), None)
    if at is None:
        return "never"
    if later[at]["turn"] == "again":
        return "next user turn"
    return "in time" if at == 0 else f"{at} late"


def _used(later: list[Json], calls: list[Json]) -> str:
    use = next((request for request in later if request["step"] in USES), None)
    if use is None or not calls:
        return "never"
    return USES[use["step"]] + ("" if any(map(_as_sent, calls)) else ", arguments lost")


def _as_sent(call: Json) -> bool:
    """Whether a call arrived with the arguments that the model gave."""
    return call["arguments"] == TOOL_ARGUMENTS


def _in_first_turn(calls: list[Json], requests: list[Json]) -> bool:
    second = next((request["time"] for request in requests if request["turn"] == "again"), float("inf"))
    return any(call["time"] < second for call in calls if _as_sent(call))


def _seen(result: str) -> str:
    """The form of the activation's result, and how much of its guide there is."""
    lines = sum(line in result for line in GUIDE_LINES)
    json_seen = "current_skills" in result
    text_seen = "<skill_guide>" in result or (lines > 0 and not json_seen)
    forms = " and ".join(form for form, seen in (("text", text_seen), ("JSON", json_seen)) if seen)
    if result.startswith('{"content"'):
        forms = "the whole result as JSON"
    cut = "" if lines == len(GUIDE_LINES) else f", {lines} of {len(GUIDE_LINES)} lines"
    return (forms or "neither") + cut
