"""Imports of pydantic and structlog without their optional plugins, so that the program starts faster."""

import importlib
import sys
from types import ModuleType
from typing import cast


def import_pydantic() -> None:
    """Import pydantic without its plugins: to find them, it reads the metadata of all installed packages (20 ms).

    Where pydantic uses its private loader of plugins in other ways than expected here, it finds them as usual.
    """
    name = "pydantic.plugin._loader"
    loader = ModuleType(name)
    loader.__dict__["get_plugins"] = tuple
    sys.modules.setdefault(name, loader)
    pydantic = importlib.import_module("pydantic")
    try:
        pydantic.create_model("Trial")
    except (ImportError, TypeError):
        del sys.modules[name]


def import_structlog() -> None:
    """Import structlog without rich, which it imports for tracebacks where that is installed (30 ms and 4 MiB)."""
    if "rich" not in sys.modules and "structlog" not in sys.modules:
        sys.modules["rich"] = cast("ModuleType", None)  # Python treats this as a module that does not exist
        try:
            importlib.import_module("structlog")
        finally:
            del sys.modules["rich"]
