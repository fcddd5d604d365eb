"""What a tool says of the user interface that its server has for it (MCP Apps, SEP-1865)."""

from typing import Final

from proxy.core.inventory import Json, items, members_of

EXTENSION: Final = "io.modelcontextprotocol/ui"
"""The extension by which a client says that it shows such pages."""
SCHEME: Final = "ui://"


def page_of(definition: Json) -> str | None:
    """The URI of the page that a tool is shown with; None where it has none, or it is not a `ui://` URI."""
    uri = declared_page(definition)
    return uri if uri is not None and uri.startswith(SCHEME) else None


def declared_page(definition: Json) -> str | None:
    """The URI that a tool names for its page, of whatever scheme; None where it names none."""
    uri = _ui(definition).get("resourceUri")
    if uri is None:
        uri = members_of(definition.get("_meta")).get("ui/resourceUri")  # as first drafts of the extension have it
    return uri if isinstance(uri, str) else None


def is_for_pages_only(definition: Json) -> bool:
    """Whether a tool is for the pages of its server alone, and not for models."""
    visible = items(_ui(definition).get("visibility"))
    return "app" in visible and "model" not in visible


def _ui(definition: Json) -> Json:
    return members_of(members_of(definition.get("_meta")).get("ui"))
