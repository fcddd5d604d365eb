"""What is said of tools whose definitions have changed."""

import pytest

from proxy.core.definition_answers import CHANGED_HEADING, CHANGES_LIMIT, changed, held
from proxy.core.definitions import Change
from proxy.core.names import Naming

NAMING = Naming({"a": "a", "a b": "ab"})


def test_nothing_is_said_where_nothing_has_changed():
    """Not even a heading."""
    assert changed(NAMING, []) == ""


def test_many_changes_are_told_as_far_as_they_go():
    """And how many there are besides."""
    changes = [Change("a", f"tool_{number}", ("title", "description")) for number in range(100)]

    heading, *lines, more = changed(NAMING, changes).splitlines()

    assert heading == CHANGED_HEADING
    assert lines[0] == (
        "- a__tool_0: its definition has changed (title, description). Read it before you call it again."
    )
    assert more == f"- … and {100 - len(lines)} more"
    assert sum(map(len, lines)) <= CHANGES_LIMIT


@pytest.mark.parametrize(
    ("change", "command"),
    [
        (Change("a", "x.y-z:1", (), held=True, kept=True), "pins approve a/x.y-z:1`"),
        (Change("a b", "x", (), held=True, kept=True), "pins approve 'a b/x'`"),
        (Change("a", "x; rm -rf ~", (), held=True, kept=True), "pins approve a`"),
        (Change("a", "x`\n", (), held=True, kept=True), "pins approve a`"),
        (Change("a", "-x" * 100, (), held=True, kept=True), "pins approve a`"),
    ],
)
def test_the_command_that_helps_is_one(change: Change, command: str):
    """Names of tools come from servers: what a shell could take for more is not in it."""
    assert f"`mcp-skill-proxy {command}" in held("name", change)["content"][0]["text"]
    assert f"`mcp-skill-proxy {command}" in changed(NAMING, [change])
