"""`init`: write a configuration with one skill per server, ready to edit."""

import io
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, cast

from proxy.cli.exits import GOOD, REFUSED
from proxy.cli.layout import counted, say
from proxy.cli.source import Source, dumped, read
from proxy.config.load import Refused, load
from proxy.core.texts import printable

HEAD: Final = """\
# One skill for each server, to be edited: the model chooses a skill by its desc and works by its usage. A tool_list
# gives it all tools of a server ([]), or those named: [search_issues, "get_*"].
# Check it with: mcp-skill-proxy check --config FILE
"""
HEAD_OF_SKILLS: Final = """\
# Skills as they were taken over, to be edited. Check them with: mcp-skill-proxy check --config FILE
"""
STARTER: Final = Source(("time",), "servers:\n  time: {command: mcp-server-time} # pip install mcp-server-time\n")
SKILL: Final = """\
  {id}:
    name: {id}
    desc: {desc} # edit: what they are for
    usage: {usage} # edit: what the model should know
    tool_list:
      {id}: []
"""


def init(source: Path | None, target: Path) -> int:
    """Write a configuration to `target` (`-` for stdout) from the servers of `source`; 2 when that cannot be done.

    Raises `Refused` where `source` is no good.
    """
    cast("io.TextIOWrapper", sys.stdout).reconfigure(encoding="utf-8", errors="backslashreplace")
    found = read(source, target) if source is not None else STARTER
    skills = "" if found.skills else f"\nskill_configs:\n{''.join(map(_skill, found.servers))}"
    written = f"{HEAD_OF_SKILLS if found.skills else HEAD}{found.text.rstrip()}\n{skills}"
    if str(target) == "-":
        print(written, end="")
        _print_notes(found)
        return GOOD
    try:
        # Secrets may have come along: for nobody else to read.
        with open(target, "x", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(written)
    except FileExistsError:
        print(printable(f"{target} exists already; name another file with --output"), file=sys.stderr)
        return REFUSED
    except OSError as error:
        print(printable(f"mcp-skill-proxy: {target}: {error.strerror}"), file=sys.stderr)
        return REFUSED
    count = f"{counted(found.skills, 'skill')} taken over"
    if not found.skills:
        count = f"{counted(len(found.servers), 'server')} with a skill{' each' if len(found.servers) > 1 else ''}"
    say(f"{target}: {count}; edit it, then: mcp-skill-proxy check --config {shlex.quote(str(target))}")
    _print_notes(found)
    if left := list(_left_to_do(target)):
        print("To do before it can serve:", *(printable(str(one)) for one in left), sep="\n  ")
    return GOOD


def _print_notes(found: Source) -> None:
    for note in found.notes:
        print(printable(f"note: {note}"), file=sys.stderr)


def _left_to_do(target: Path) -> Iterable[object]:
    """What loading says about the file that was written."""
    try:
        loaded = load(target, os.environ)
    except Refused as refused:
        return refused.problems
    return (*loaded.notes, *(f"server {key}: {reason}" for key, reason in loaded.unstartable.items()))


def _skill(server: str) -> str:
    texts = {
        "id": server,
        "desc": f"The tools of {server}.",
        "usage": f"Use the tools of {server} as their descriptions say.",
    }
    return SKILL.format_map({name: _scalar(text) for name, text in texts.items()})


def _scalar(text: str) -> str:
    """A text as YAML on one line."""
    return dumped([text], flow=True, style=None if text.isprintable() else '"').strip()[1:-1]
