"""Runs real MCP clients against the proxy and prints what each does: `make clients`.

Each client is installed from npm or PyPI into a work folder, and runs in an empty home with a scripted model, over
stdio, /mcp and /mcp/{namespace}. Nothing leaves this machine but what the installation asks the registries.

Exit code: 0 when every client used an activated tool in the same turn, 1 when one did not, or none could be installed.
"""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from findings import Findings, find
from install import Installer, NotInstalled
from library_clients import LIBRARIES
from setups import COMMAND_LINE_CLIENTS, TRANSPORTS, Client
from table import conditions, offered, table, write
from timeline import timeline
from trial import Ending, NotStarted, Trial

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "clients.md"
CLIENTS = (*COMMAND_LINE_CLIENTS, *LIBRARIES)
PROGRAM = ROOT / ".venv" / "bin" / "mcp-skill-proxy"
VERSION_TIMEOUT_S = 60.0
SWITCH_INTERVAL_S = 0.0005
"""How long a thread here may keep others waiting: what passes between client and proxy passes through one."""


@dataclass
class Measured:
    """What there is of one client."""

    client: Client
    version: str
    results: dict[str, list[Findings]] = field(default_factory=dict)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    keys = [client.key for client in CLIENTS]
    grammar = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    grammar.add_argument("--only", type=_names(keys), default=keys, metavar="CLIENTS", help=f"of {', '.join(keys)}")
    grammar.add_argument(
        "--transport",
        type=_names(TRANSPORTS),
        default=list(TRANSPORTS),
        metavar="TRANSPORTS",
        help=f"of {', '.join(TRANSPORTS)}",
    )
    grammar.add_argument("--rounds", type=int, default=1, help="how often each plays the story (default: 1)")
    grammar.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="for one story (default: 120)")
    grammar.add_argument("--proxy", type=_command, metavar="COMMAND", help="another proxy than this repository's")
    grammar.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the proxy, such as call_route=on",
    )
    grammar.add_argument(
        "--work",
        type=lambda path: Path(path).resolve(),
        default=Path(os.environ.get("WORK") or ROOT / ".clients").resolve(),
        metavar="DIR",
        help="where clients are installed and runs are kept (default: $WORK, else .clients)",
    )
    grammar.add_argument("--write", action="store_true", help=f"write the table into {DOCUMENT.relative_to(ROOT)}")
    grammar.add_argument("--verbose", action="store_true", help="tell each run line by line")
    options = grammar.parse_args(given)
    if options.write and (options.set or options.only != keys or options.transport != list(TRANSPORTS)):
        grammar.error("--write is for the whole table: leave out --only, --transport and --set")
    return options


def _command(text: str) -> list[str]:
    """The words of a command; its program is found from anywhere, without following links, as a venv's needs it."""
    program, *rest = shlex.split(text)
    return [str(Path(program).absolute()) if os.sep in program else program, *rest]


def _setting(text: str) -> tuple[str, object]:
    key, _, value = text.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _names(known: Sequence[str]):
    def names(text: str) -> list[str]:
        if unknown := set(text.split(",")) - set(known):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
        return [name for name in known if name in text.split(",")]

    return names


def default_proxy() -> list[str]:
    """This repository's program."""
    return [str(PROGRAM)] if PROGRAM.exists() else [sys.executable, "-m", "proxy"]


def version_of(proxy: Sequence[str]) -> str:
    """The version that the proxy names."""
    try:
        command = [*proxy, "--version"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=True)
        return done.stdout.split()[-1]
    except (OSError, subprocess.SubprocessError, LookupError) as error:
        raise SystemExit(f"the proxy does not tell its version: {error}") from error


def measure(given: argparse.Namespace, proxy: Sequence[str]) -> list[Measured]:
    """Run what the command line names, one client after the other."""
    installer = Installer(given.work)
    measured: list[Measured] = []
    for client in (client for client in CLIENTS if client.key in given.only):
        try:
            found = Measured(client, installer.install(client.package))
        except NotInstalled as error:
            tell(f"{client.key}: left out, not installed: {error}")
            continue
        for transport in (transport for transport in client.transports if transport in given.transport):
            folder = given.work / "runs" / f"{client.key}-{transport}"
            trial = Trial(client, transport, folder, installer, proxy, dict(given.set))
            found.results[transport] = [play(trial, given) for _ in range(given.rounds)]
        measured.append(found)
    return measured


def play(trial: Trial, given: argparse.Namespace) -> Findings:
    """Play one story, with a line about it on stderr."""
    try:
        ending = trial.run(given.timeout)
    except NotStarted as error:
        findings, ending = Findings(problem=str(error)), Ending(None, 0.0)
    else:
        findings = find(trial.folder)
    if given.verbose:
        tell("\n".join(timeline(trial.folder)))
    ended = "stopped" if ending.exit_code is None else f"exit {ending.exit_code}"
    story = f"{offered([findings])}, called {findings.used or 'never'}"
    tell(f"{trial.client.key}, {trial.transport}: {story}; {ended} after {ending.seconds:.1f} s")
    if findings.problem:
        tell(f"  {last_words(trial.folder / 'client.log')}")
    return findings


def last_words(log: Path) -> str:
    """The error that a client ended with, which is the first that it names, or else its last line."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = [line.strip()[:300] for line in text.split("\n") if line.strip()]
    error = next((line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)), None)
    return error or (lines or ["It said nothing."])[-1]


def tell(text: str) -> None:
    """A line on stderr; the table alone goes to stdout."""
    print(text, file=sys.stderr, flush=True)


def differing(measured: Sequence[Measured]) -> list[str]:
    """The runs in which the tool was not used in the same turn, but should have been."""
    return [
        f"{found.client.key}, {transport}: {offered([findings])}, called {findings.used or 'never'}"
        for found in measured
        for transport, rounds in found.results.items()
        for findings in rounds
        if not findings.same_turn and (transport == "namespace" or not found.client.session_per_call)
    ]


def main() -> int:
    """Measure and report."""
    given = arguments()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends too
    proxy = given.proxy or default_proxy()
    used_with = conditions(version_of(proxy))  # a command that does not work is told at once
    measured = measure(given, proxy)
    rows = [(found.client, found.version, found.results) for found in measured]
    text = f"{table(rows)}\n\n{used_with}"
    if given.write:
        write(text, DOCUMENT)
    else:
        print(text)
    missing = differing(measured)
    for line in missing:
        tell(f"not in the same turn: {line}")
    return 1 if missing or not measured else 0


if __name__ == "__main__":
    sys.exit(main())
