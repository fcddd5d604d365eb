"""A place for the file, and what the store logs."""

from pathlib import Path
from typing import Any, TypeAlias

import pytest
import structlog

from proxy.store import sqlite, state_file

Said: TypeAlias = list[dict[str, Any]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    """What the store has logged."""
    events: Said = []

    def note(_logger: object, level: str, event: Any) -> Any:
        events.append({**event, "level": level})
        raise structlog.DropEvent

    logger = structlog.wrap_logger(None, processors=[note])
    for module in (sqlite, state_file):
        monkeypatch.setattr(module, "log", logger)
    return events
