"""Pins of definitions from one run to the next: files beside the inventories, one a server or a scope's server.

Several proxies and the command `pins` may use them at a time: each change is read, made and written under a lock.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from proxy.core.definitions import OTHER_FIELDS, PARTS, Digests, Pin, Pins, PinsLost
from proxy.core.inventory import is_json, members_of
from proxy.core.scope import ScopeId
from proxy.store.private_file import write_private_file
from proxy.wire.codec import dumps, loads

log = structlog.stdlib.get_logger("proxy.store")

FOLDER: Final = "pins"
"""Below the folder of the inventories, whose old files are removed: pins are not."""
FORMAT: Final = 1
MAX_PIN_FILE_BYTES: Final = 16 * 1024 * 1024
"""Bytes of a file that is read; twice what the most pins take."""


@dataclass(frozen=True)
class PinFile:
    """What one file has: the pins of a server, for all scopes or as one scope has it to itself."""

    configuration: str
    server: str
    scope: str
    """As logs name it; empty for all scopes."""

    pins: Pins


class PinFiles:
    """The `KeptPins` of a configuration, below `folder`; a file goes by a hash of whose pins it has.

    `outlives`: whether a scope outlives the program; the pins of others are not kept.
    """

    def __init__(self, folder: Path, configuration: Path, outlives: Callable[[ScopeId], bool]) -> None:
        self._outlives = outlives
        self._folder = folder / FOLDER
        self._configuration = str(configuration)
        self._failed = False

    def keeps(self, scope: ScopeId | None) -> bool:
        """Whether the pins of `scope` are kept; None for those of all."""
        return scope is None or self._outlives(scope)

    def read(self, server: str, scope: ScopeId | None) -> Pins:
        """The pins; empty where there is no file.

        Raises:
            PinsLost: they cannot be read.
        """
        return _read(self._file(server, scope)).pins

    def stamp(self, server: str, scope: ScopeId | None) -> tuple[int, int] | None:
        """What differs after every change of the file."""
        try:
            found = self._file(server, scope).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def update(self, server: str, scope: ScopeId | None, change: Callable[[Pins | None], Pins]) -> Pins | None:
        """Write what `change` makes of the pins in the file, of None where they cannot be read; what was written.

        None where that cannot be done, which is said once.
        """
        file = self._file(server, scope)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _alone(self._folder):
                try:
                    before = _read(file)
                except PinsLost:
                    before = None
                pins = change(None if before is None else before.pins)
                if before is None or pins != before.pins:
                    _write(file, PinFile(self._configuration, server, "" if scope is None else str(scope), pins))
        except OSError as error:
            if not self._failed:
                self._failed = True
                log.warning("pins.not_kept", folder=str(self._folder), reason=error.strerror or str(error))
            return None
        return pins

    def remove(self, server: str, scope: ScopeId) -> None:
        """Forget the pins of a scope that is over."""
        with suppress(OSError):
            self._file(server, scope).unlink(missing_ok=True)

    def _file(self, server: str, scope: ScopeId | None) -> Path:
        whose = dumps([self._configuration, server, None if scope is None else [*scope]])
        return self._folder / f"{hashlib.sha256(whose).hexdigest()[:32]}.json"


def pin_files(folder: Path, configuration: Path | None = None) -> dict[Path, PinFile | PinsLost]:
    """The files below `folder`, of all configurations or of one; those that cannot be read are of unknown ones."""
    found: dict[Path, PinFile | PinsLost] = {}
    for file in sorted((folder / FOLDER).glob("*.json")):
        try:
            content = _read(file)
        except PinsLost as lost:
            found[file] = lost
            continue
        if configuration is None or os.path.realpath(content.configuration) == os.path.realpath(configuration):
            found[file] = content
    return found


def change_pins(file: Path, change: Callable[[Pins], Pins]) -> None:
    """Change the pins in one of the `pin_files`.

    Raises:
        PinsLost: it cannot be read any more.
        OSError: it cannot be written.
    """
    with _alone(file.parent):
        before = _read(file)
        _write(file, PinFile(before.configuration, before.server, before.scope, change(before.pins)))


def _read(file: Path) -> PinFile:
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_PIN_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return PinFile("", "", "", {})
    except OSError as error:
        raise PinsLost(error.strerror or str(error)) from None
    if len(content) > MAX_PIN_FILE_BYTES:
        raise PinsLost(f"it has more than {MAX_PIN_FILE_BYTES:,} bytes")
    try:
        return _parsed(loads(content))
    except ValueError as error:
        raise PinsLost(str(error)) from None


def _parsed(value: object) -> PinFile:
    """What a file says; a part that is not as it was written makes the whole of it worth nothing."""
    content = members_of(value)
    names = [content.get(key) for key in ("configuration", "server", "scope")]
    tools = content.get("tools")
    if content.get("format") != FORMAT or not is_json(tools):
        raise ValueError("it does not have the form of a file of pins")
    configuration, server, scope = (name if isinstance(name, str) else "" for name in names)
    return PinFile(configuration, server, scope, {tool: _pin(pin) for tool, pin in tools.items()})


def _pin(value: Any) -> Pin:  # noqa: ANN401 - any JSON value
    if not is_json(value) or not {*value} <= {"granted", "held"} or value.get("granted") is value.get("held") is None:
        raise ValueError("a pin in it does not have the form of one")
    return Pin(_digests(value.get("granted")), _digests(value.get("held")))


def _digests(value: object) -> Digests | None:
    if value is None:
        return None
    if not is_json(value) or not all(part in _KNOWN and isinstance(digest, str) for part, digest in value.items()):
        raise ValueError("a digest in it does not have the form of one")
    return value


_KNOWN: Final = frozenset({*PARTS, OTHER_FIELDS})


def _write(file: Path, content: PinFile) -> None:
    tools: dict[str, Mapping[str, Digests]] = {
        tool: {
            **({} if pin.granted is None else {"granted": pin.granted}),
            **({} if pin.held is None else {"held": pin.held}),
        }
        for tool, pin in content.pins.items()
    }
    told = {"configuration": content.configuration, "server": content.server, "scope": content.scope}
    write_private_file(file, dumps({"format": FORMAT, **told, "tools": tools}))


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """No other program changes pins in `folder` meanwhile."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)
