"""What servers may ask of a client, and which log messages it wants (2025-11-25 and 2026-07-28)."""

from typing import Any

import pytest

from proxy.core.capabilities import ANYTHING, askable, lacking, refusal, relayed
from proxy.core.log_levels import LEVELS, least_severe, severe_enough

FORM, URL = {"message": "m", "requestedSchema": {}}, {"mode": "url", "message": "m", "url": "https://x.example"}


@pytest.mark.parametrize(
    ("capabilities", "method", "params", "needed"),
    [
        ({"roots": {}}, "roots/list", {}, None),
        ({}, "roots/list", {}, {"roots": {}}),
        ({"sampling": {}}, "sampling/createMessage", {"messages": []}, None),
        ({}, "sampling/createMessage", {"messages": []}, {"sampling": {}}),
        ({"sampling": {"tools": {}}}, "sampling/createMessage", {"tools": []}, None),
        ({"sampling": {}}, "sampling/createMessage", {"tools": []}, {"sampling": {"tools": {}}}),
        ({"sampling": {}}, "sampling/createMessage", {"toolChoice": {}}, {"sampling": {"tools": {}}}),
        ({"elicitation": {}}, "elicitation/create", FORM, None),
        ({"elicitation": {"form": {}}}, "elicitation/create", FORM, None),
        ({"elicitation": {"form": {}, "url": {}}}, "elicitation/create", URL, None),
        ({"elicitation": {}}, "elicitation/create", URL, {"elicitation": {"url": {}}}),
        ({"elicitation": {"url": {}}}, "elicitation/create", FORM, {"elicitation": {"form": {}}}),
        ({}, "elicitation/create", FORM, {"elicitation": {"form": {}}}),
        ({"elicitation": True}, "elicitation/create", FORM, {"elicitation": {"form": {}}}),
    ],
)
def test_a_question_needs_the_capability_that_answers_it(
    capabilities: dict[str, Any], method: str, params: dict[str, Any], needed: dict[str, Any] | None
) -> None:
    assert lacking(capabilities, method, params) == needed
    assert lacking(ANYTHING, method, params) is None


def test_a_refusal_names_what_is_missing_for_people_and_programs() -> None:
    error = refusal({"elicitation": {"url": {}}})
    assert (error.code, error.message) == (-32021, "The client does not support elicitation.url")
    assert error.data == {"requiredCapabilities": {"elicitation": {"url": {}}}}
    assert refusal({"roots": {}}).message == "The client does not support roots"


def test_servers_are_offered_what_can_be_relayed_and_nothing_else() -> None:
    declared = {"sampling": {"tools": {}}, "experimental": {"x": {}}, "roots": {"listChanged": True}, "tasks": {}}
    assert relayed(declared) == {"sampling": {"tools": {}}, "roots": {"listChanged": True}}
    assert askable(declared) == relayed(declared)


def test_servers_are_told_that_a_client_shows_pages() -> None:
    """As it declared it (MCP Apps), which is nothing that it can be asked; its other extensions are for us alone."""
    shows = {"mimeTypes": ["text/html;profile=mcp-app"]}
    extensions = {"io.modelcontextprotocol/ui": shows, "io.modelcontextprotocol/skills": {}}
    declared = {"roots": {}, "extensions": extensions}

    assert relayed(declared) == {"roots": {}, "extensions": {"io.modelcontextprotocol/ui": shows}}
    assert askable(declared) == {"roots": {}}


@pytest.mark.parametrize("extensions", [None, [], "io.modelcontextprotocol/ui", {}, {"other": {}}])
def test_extensions_that_say_nothing_of_pages_are_not_passed_on(extensions: object) -> None:
    """Whatever a client writes there."""
    assert relayed({"roots": {}, "extensions": extensions}) == {"roots": {}}


def test_a_log_message_has_to_be_as_severe_as_wanted() -> None:
    assert [level for level in LEVELS if severe_enough(level, "warning")] == list(LEVELS[3:])
    assert severe_enough("vendor", "emergency")


def test_a_server_sends_what_the_least_demanding_client_wants() -> None:
    assert least_severe(frozenset({"error", "info", "warning"})) == "info"
    assert least_severe(frozenset()) is None
