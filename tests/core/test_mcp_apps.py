"""What a tool says of the user interface that its server has for it (MCP Apps, SEP-1865)."""

from typing import Any

import pytest

from proxy.core.mcp_apps import EXTENSION, is_for_pages_only, page_of


@pytest.mark.parametrize(
    ("meta", "page"),
    [
        ({"ui": {"resourceUri": "ui://a/b"}}, "ui://a/b"),
        ({"ui/resourceUri": "ui://a/b"}, "ui://a/b"),  # as the first drafts have it
        ({"ui": {"resourceUri": "ui://a/b"}, "ui/resourceUri": "ui://older"}, "ui://a/b"),
        ({"ui": {}, "ui/resourceUri": "ui://older"}, "ui://older"),
        ({"ui": {"resourceUri": None}, "ui/resourceUri": "ui://older"}, "ui://older"),
        ({"ui": {"resourceUri": 7}, "ui/resourceUri": "ui://older"}, None),
        ({"ui": {"resourceUri": "https://a/b"}}, None),
        ({"ui": {"resourceUri": "file:///etc/passwd"}}, None),
        ({"ui": {"resourceUri": "UI://a/b"}}, None),
        ({"ui": {"resourceUri": ""}}, None),
        ({"ui": {"resourceUri": ["ui://a"]}}, None),
        ({"ui": "ui://a"}, None),
        ({"ui/resourceUri": {}}, None),
        ({}, None),
        ([], None),
        (None, None),
    ],
)
def test_a_page_is_what_a_tool_names_under_its_scheme(meta: Any, page: str | None):
    """Whatever servers write there: nothing else can be read by it."""
    assert page_of({"name": "t", "_meta": meta}) == page


def test_a_tool_that_says_nothing_has_no_page_and_is_for_models():
    """As tools were before there were pages."""
    assert page_of({"name": "t"}) is None
    assert not is_for_pages_only({"name": "t"})


@pytest.mark.parametrize(
    ("said", "pages_only"),
    [
        ({"visibility": ["app"]}, True),
        ({"visibility": ["app", "user"]}, True),
        ({"visibility": ["app", "model"]}, False),
        ({"visibility": ["model"]}, False),
        ({"visibility": []}, False),
        ({"visibility": "app"}, False),
        ({"visibility": None}, False),
        ({"visibility": {"app": True}}, False),
        ({"visibility": [["app"]]}, False),
        ({}, False),
        ("app", False),
        (None, False),
    ],
)
def test_a_tool_is_for_pages_alone_where_it_says_so(said: Any, pages_only: bool):
    """Anything else leaves it to models, as the standard's default has it."""
    assert is_for_pages_only({"name": "t", "_meta": {"ui": said}}) is pages_only


def test_the_extension_is_called_what_clients_call_it():
    """They declare it among their capabilities."""
    assert EXTENSION == "io.modelcontextprotocol/ui"
