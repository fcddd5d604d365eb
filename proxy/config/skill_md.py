"""Stub."""

from typing import Any


def body(content: bytes, file: str) -> str:
    """Stub."""
    return content.decode().split("---\n", 2)[2].strip()


def front_matter(content: bytes, file: str) -> dict[str, Any]:
    """Stub."""
    import yaml

    return yaml.safe_load(content.decode().split("---\n", 2)[1])
