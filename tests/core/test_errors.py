"""What failures say of themselves, and the defaults that the design promises."""

import pytest

from proxy.core.errors import (
    AlreadySet,
    NotDelivered,
    ProxyError,
    Rejection,
    ServerLost,
    ServerSilent,
    ServerUnavailable,
    TooManyScopes,
    Unanswered,
    Unfilled,
    Unknown,
    Unreadable,
)
from proxy.core.server import HttpServer, StdioServer
from proxy.core.settings import Publish, Settings


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ServerUnavailable("gh", "no such file"), "server gh is not available: no such file"),
        (ServerLost("gh", "exit code 1"), "server gh was lost during the request: exit code 1"),
        (NotDelivered("gh", "exit code 1"), "server gh did not get the request: exit code 1"),
        (ServerSilent("gh", 300.0), "server gh sent neither a result nor progress for 300 s"),
        (ServerSilent("gh", 0.5), "server gh sent neither a result nor progress for 0.5 s"),
        (Rejection(-32000, "their words", {"a": 1}), "their words"),
        (Unanswered(-32603, "ours", server="gh", reason="it answered HTTP 503", ran=True), "ours"),
        (Unknown("Unknown tool: x"), "Unknown tool: x"),
        (AlreadySet({"a": "one", "b": "two"}), "skills set these arguments: a, b"),
        (Unfilled("one", "a", "heap.x is not there"), "skill one cannot fill in argument a: heap.x is not there"),
        (Unreadable("pdf", "a.py", "it is gone"), "file a.py of skill pdf cannot be read: it is gone"),
    ],
)
def test_a_failure_says_what_happened(error: ProxyError, said: str):
    """Each is a `ProxyError`, names its server and gives the reason."""
    assert isinstance(error, ProxyError)
    assert str(error) == said


def test_the_bound_on_scopes_names_its_setting():
    """Who meets it must know what to turn (rule 13)."""
    assert str(TooManyScopes("principal")) == (
        "the proxy serves as many users as it is configured for; try again later (proxy.max_scopes.principal)"
    )


def test_failures_are_told_apart_by_identity():
    """Two failures with equal data are two failures; they can be kept in sets."""
    assert len({ServerLost("gh", "x"), ServerLost("gh", "x")}) == 2


def test_settings_begin_as_the_design_says():
    """Rules 12, 16, 17 and 26."""
    settings = Settings()

    assert (settings.list_wait, settings.activation_wait) == (3.0, 10.0)
    assert (settings.call_route, settings.listing) == ("auto", "live")
    assert settings.publish == Publish(prompts=True, resources=True, extension=True)
    assert settings.tokens == {}


@pytest.mark.parametrize(
    ("publish", "files"),
    [
        (Publish(), True),
        (Publish(resources=False), True),
        (Publish(extension=False), True),
        (Publish(resources=False, extension=False), False),
        (Publish(prompts=False), True),
    ],
)
def test_files_of_skills_can_be_read_where_something_names_them(publish: Publish, files: bool):
    """They are listed as resources, or the extension names them; prompts name none."""
    assert publish.files is files


def test_servers_begin_as_the_design_says():
    """Rules 25 and 33: lazy, 300 s without a sign of life, era by probing."""
    for server in (StdioServer(key="a", command="b"), HttpServer(key="a", url="http://b")):
        assert (server.timeout, server.eager, server.era) == (300.0, False, "auto")
