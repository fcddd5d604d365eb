"""One client on stdin and stdout, in the era that its first request opens."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp_types import INVALID_REQUEST, UNSUPPORTED_PROTOCOL_VERSION

SERVING = Path(__file__).with_name("serving.py")
ROOT = SERVING.parents[2]
MODERN = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
CLIENT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
INITIALIZE = {"id": "i", "method": "initialize", "params": CLIENT}
INITIALIZED = {"method": "notifications/initialized"}
DISCOVER = {"id": "d", "method": "server/discover", "params": {"_meta": ENVELOPE}}
TOLD = {"method": "x/told", "params": {}}


def call(name: str = "any", number: int = 1, **params: Any) -> dict[str, Any]:
    return {"id": number, "method": "tools/call", "params": {"name": name, "arguments": {}, **params}}


def conversation(*messages: dict[str, Any]) -> tuple[dict[Any, dict[str, Any]], str]:
    """The answers by id, and stderr, of a server that was sent `messages` and then the end of the input."""
    lines = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)
    done = subprocess.run(
        [sys.executable, SERVING], input=lines, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {answer["id"]: answer for answer in answers if "method" not in answer}, done.stderr


def text(answer: dict[str, Any]) -> str:
    return answer["result"]["content"][0]["text"]


@pytest.mark.parametrize("enveloped", [False, True])
def test_initialize_opens_the_handshake_era(enveloped: bool):
    """Whatever envelope it carries; a request of the modern era is refused then, and the connection goes on."""
    first = {**INITIALIZE, "params": {**CLIENT, "_meta": ENVELOPE}} if enveloped else INITIALIZE
    answers, _ = conversation(first, INITIALIZED, call(_meta=ENVELOPE), TOLD, call(number=2))
    assert answers["i"]["result"]["protocolVersion"] == "2025-11-25"
    assert answers[1]["error"]["code"] == INVALID_REQUEST
    assert text(answers[2]) == "x/told"


def test_the_envelope_opens_the_modern_era():
    """`initialize` is refused then with the revisions that are served, and the connection goes on."""
    answers, _ = conversation(call(_meta=ENVELOPE), INITIALIZE, call(number=2, _meta=ENVELOPE), call(number=3))
    assert answers[1]["result"]["resultType"] == answers[2]["result"]["resultType"] == "complete"
    assert answers["i"]["error"]["code"] == UNSUPPORTED_PROTOCOL_VERSION
    assert answers["i"]["error"]["data"] == {"supported": [MODERN], "requested": "2025-11-25"}
    assert "error" in answers[3]


def test_discovering_opens_no_era():
    """It is answered as a modern request is, and the client can still shake hands, or go on without."""
    handshake, _ = conversation(DISCOVER, INITIALIZE, INITIALIZED, TOLD, call())
    assert handshake["d"]["result"]["supportedVersions"] == [MODERN]
    assert handshake["i"]["result"]["protocolVersion"] == "2025-11-25"
    assert text(handshake[1]) == "x/told"
    assert "resultType" not in handshake[1]["result"]
    # What was told before waits for the request that opens the era.
    modern, _ = conversation(TOLD, DISCOVER, {**DISCOVER, "id": "again"}, call(_meta=ENVELOPE), INITIALIZE)
    assert modern["d"]["result"]["supportedVersions"] == modern["again"]["result"]["supportedVersions"] == [MODERN]
    assert (text(modern[1]), modern[1]["result"]["resultType"]) == ("x/told", "complete")
    assert modern["i"]["error"]["code"] == UNSUPPORTED_PROTOCOL_VERSION


def test_discovering_in_an_era_is_a_request_of_that_era():
    """Once there is one: a handshake's connection takes no envelope, a modern one still says what it is."""
    handshake, _ = conversation(INITIALIZE, INITIALIZED, DISCOVER, call())
    assert handshake["d"]["error"]["code"] == INVALID_REQUEST
    assert "result" in handshake[1]
    modern, _ = conversation(call(_meta=ENVELOPE), DISCOVER)
    assert modern["d"]["result"]["supportedVersions"] == [MODERN]


def test_discovering_without_an_envelope_is_refused_and_opens_no_era_either():
    """There is no such method before the handshake; that, or a modern request, can follow."""
    plain = {"id": "d", "method": "server/discover", "params": {}}
    handshake, _ = conversation(plain, INITIALIZE, INITIALIZED, call())
    assert "error" in handshake["d"]
    assert "result" in handshake[1]
    modern, _ = conversation(plain, call(_meta=ENVELOPE))
    assert "error" in modern["d"]
    assert modern[1]["result"]["resultType"] == "complete"


def test_the_end_of_the_input_is_told():
    """Those who wait for something more of the client wait in vain from then on."""
    _, log = conversation(INITIALIZE, INITIALIZED, call())
    assert log.count("the input has ended") == 1


def test_half_an_envelope_is_modern_too():
    """What is missing is named."""
    half = {"io.modelcontextprotocol/protocolVersion": MODERN}
    answers, _ = conversation(call(_meta=half))
    assert "clientCapabilities" in json.dumps(answers[1]["error"])


@pytest.mark.parametrize(
    ("count", "opening"),
    [(1, [call(_meta=ENVELOPE)]), (8, [call(_meta=ENVELOPE)]), (20, [call(_meta=ENVELOPE)])],
    ids=["one", "as many as are kept", "too many"],
)
def test_what_was_told_before_the_first_request_comes_before_it(count: int, opening: Sequence[dict[str, Any]]):
    """Up to eight notifications, which the opening request finds taken."""
    answers, _ = conversation(*[TOLD] * count, *opening)
    assert text(answers[1]).split() == ["x/told"] * min(count, 8)


def test_a_client_of_the_modern_era_is_asked_nothing():
    """Such a server may not ask."""
    answers, _ = conversation(call("ask", _meta=ENVELOPE))
    assert "back-channel" in answers[1]["error"]["message"]


def test_what_a_handler_raises_is_not_for_clients_of_the_modern_era():
    """They learn that it failed; those of the handshake get the words, as with the SDK's own streams."""
    modern, log = conversation(call("fail", _meta=ENVELOPE))
    handshake, _ = conversation(INITIALIZE, INITIALIZED, call("fail"))
    assert modern[1]["error"] == {"code": -32603, "message": "Internal server error"}
    assert "a secret" in log
    assert handshake[1]["error"] == {"code": 0, "message": "'a secret'"}


def test_what_is_printed_lands_on_stderr():
    """Nothing but messages is on stdout."""
    answers, log = conversation(INITIALIZE, INITIALIZED, call())
    assert set(answers) == {"i", 1}
    assert "a stray line" in log
