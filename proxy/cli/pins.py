"""`pins`: the pinned definitions of tools, and the user's approval of those that have changed."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from proxy.cli.exits import GOOD, LIVE_PROBLEM, REFUSED
from proxy.cli.layout import counted, printable
from proxy.config.load import Loaded
from proxy.core.definitions import Pin, PinsLost, approved
from proxy.core.wording import alike
from proxy.store.cache_folder import cache_folder
from proxy.store.pins import PinFile, change_pins, pin_files


class _Entry(NamedTuple):
    """One pinned tool, and the file that it is in."""

    file: Path
    content: PinFile
    tool: str
    pin: Pin

    @property
    def name(self) -> str:
        return f"{self.content.server}/{self.tool}"

    @property
    def whose(self) -> str:
        return f" ({self.content.scope})" if self.content.scope else ""


def pins(loaded: Loaded | None, arguments: argparse.Namespace) -> int:
    """Run the command; 0 when it is done, 1 when a file cannot be used, 2 when it is refused.

    `loaded`: the configuration whose pins are meant; None for those of all.
    """
    if loaded is not None and not loaded.settings.keep_inventories:
        return _refused(
            f"{loaded.path} has keep_inventories: false, so that pins are only in the memory of the proxy that runs; "
            "start that anew to approve what its servers offer"
        )
    try:
        cache = cache_folder()
    except OSError as error:
        return _refused(f"{error.strerror}, so that no pins are kept: set HOME or XDG_CACHE_HOME")
    files = pin_files(cache, None if loaded is None else loaded.path)
    damaged = {file: content for file, content in files.items() if isinstance(content, PinsLost)}
    for file, why in damaged.items():
        print(f"mcp-skill-proxy: {printable(str(file))}: {printable(str(why))}", file=sys.stderr)
    entries = [
        _Entry(file, content, tool, pin)
        for file, content in files.items()
        if isinstance(content, PinFile)
        for tool, pin in content.pins.items()
    ]
    entries.sort(key=lambda entry: (entry.content.configuration, entry.content.server, entry.content.scope, entry.tool))
    if arguments.pins_command == "list":
        _list(entries)
        return LIVE_PROBLEM if damaged else GOOD
    return _approve(entries, arguments.name) or (LIVE_PROBLEM if damaged else GOOD)


def _list(entries: Sequence[_Entry]) -> None:
    if not entries:
        print("Nothing is pinned yet: no client was granted a tool.")
    configuration = None
    for entry in entries:
        if entry.content.configuration != configuration:
            configuration = entry.content.configuration
            print(f"{printable(configuration)}:")
        print(f"  {printable(entry.name + entry.whose)}: {_standing(entry.pin)}")
    if waiting := sum(entry.pin.held is not None for entry in entries):
        print(f"{counted(waiting, 'tool')} held; `pins approve` takes over the changed definition.")


def _approve(entries: Sequence[_Entry], names: Sequence[str]) -> int:
    """Approve what is held of these names, of everything where there are none."""
    chosen = [entry for entry in entries if not names or {entry.name, entry.content.server} & {*names}]
    for name in names:
        if not any(name in (entry.name, entry.content.server) for entry in chosen):
            return _refused(f"no pinned tool or server is called {name}{_instead(name, entries)}")
    held = [entry for entry in chosen if entry.pin.held is not None]
    for name in names:
        if not any(name in (entry.name, entry.content.server) for entry in held):
            return _refused(f"nothing is held of {name}: its definition is the one that clients were granted")
    if not held:
        return _refused("nothing is held: all definitions are those that clients were granted")
    configurations = {os.path.realpath(entry.content.configuration) for entry in held}
    if len(configurations) > 1:
        several = ", ".join(sorted(configurations))
        return _refused(f"several configurations have such tools: say which one by --config ({several})")
    by_file: dict[Path, dict[str, _Entry]] = {}
    for entry in held:
        by_file.setdefault(entry.file, {})[entry.tool] = entry
    return max(_approve_in(file, tools) for file, tools in by_file.items())


def _approve_in(file: Path, tools: Mapping[str, _Entry]) -> int:
    seen = {tool: entry.pin for tool, entry in tools.items()}
    done: list[str] = []

    def change(now: Mapping[str, Pin]) -> Mapping[str, Pin]:
        done[:] = [tool for tool, pin in seen.items() if now.get(tool) == pin]
        return approved(now, done)

    try:
        change_pins(file, change)
    except (PinsLost, OSError) as error:
        print(f"mcp-skill-proxy: {printable(str(file))}: {printable(str(error))}", file=sys.stderr)
        return LIVE_PROBLEM
    for tool, entry in tools.items():
        name = printable(entry.name + entry.whose)
        if tool in done:
            print(f"approved {name}: {', '.join(entry.pin.changed)}")
        else:
            print(f"mcp-skill-proxy: {name} has changed just now, and is not approved: look again", file=sys.stderr)
    return GOOD if len(done) == len(tools) else LIVE_PROBLEM


def _standing(pin: Pin) -> str:
    if pin.held is None:
        return "as it was granted"
    if pin.granted is None:
        return "held: what clients were granted is not known any more"
    return f"held: changed {', '.join(pin.changed)}"


def _instead(name: str, entries: Sequence[_Entry]) -> str:
    known = dict.fromkeys(entry.name if "/" in name else entry.content.server for entry in entries)
    close = alike(name, known)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _refused(why: str) -> int:
    print(f"mcp-skill-proxy: {printable(why)}", file=sys.stderr)
    return REFUSED
