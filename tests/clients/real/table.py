"""The table of docs/clients.md: one row for each client, with what differs between its transports."""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from findings import Findings
from setups import TRANSPORTS, Client

BEGIN, END = "<!-- make clients: begin -->", "<!-- make clients: end -->"
HEADINGS = (
    "client",
    "version",
    "`clientInfo.name`",
    "protocol",
    "on the notice",
    "ms",
    "the tool is offered",
    "called",
    "model sees",
)
NONE = "\N{EN DASH}"

Results = Mapping[str, Sequence[Findings]]
"""Transport to what each round found."""


def table(measured: Sequence[tuple[Client, str, Results]]) -> str:
    """The Markdown table of clients with their versions and results."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---" * len(HEADINGS) + "|"]
    lines += ["| " + " | ".join(_cells(*row)) + " |" for row in measured]
    return "\n".join(lines)


def conditions(proxy_version: str) -> str:
    """What it was measured with, in one line."""
    day = datetime.now(UTC).date().isoformat()
    return f"mcp-skill-proxy {proxy_version}; {day}; {platform.system()}, {os.cpu_count()} cores"


def write(text: str, file: Path) -> None:
    """Put the text between the markers of a file."""
    before, _, rest = file.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    file.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def _cells(client: Client, version: str, results: Results) -> list[str]:
    def merged(cell: Callable[[Sequence[Findings]], str]) -> str:
        return _merged({transport: cell(rounds) for transport, rounds in results.items()})

    return [
        client.title,
        version,
        merged(lambda rounds: _common(rounds, lambda found: found.name and f"`{found.name}`")),
        merged(lambda rounds: _common(rounds, lambda found: found.revision)),
        merged(lambda rounds: _common(rounds, lambda found: found.on_notice)),
        merged(_milliseconds),
        merged(offered),
        merged(_called),
        merged(lambda rounds: _common(rounds, lambda found: found.seen)),
    ]


def _merged(by_transport: Mapping[str, str]) -> str:
    """One text where all transports agree, else theirs in the order of the transports."""
    texts = [by_transport.get(transport, "") or NONE for transport in TRANSPORTS]
    tried = [text for transport, text in zip(TRANSPORTS, texts, strict=True) if transport in by_transport]
    return tried[0] if len(set(tried)) == 1 else " / ".join(texts)


def _common(rounds: Sequence[Findings], of: Callable[[Findings], str]) -> str:
    """What the rounds found, each answer once."""
    return ", ".join(dict.fromkeys(of(found) for found in rounds if of(found)))


def _milliseconds(rounds: Sequence[Findings]) -> str:
    times = [found.reread_ms for found in rounds if found.reread_ms is not None]
    return f"{median(times):.0f}" if times else ""


def offered(rounds: Sequence[Findings]) -> str:
    """When the tool is offered, with the number of rounds where there are several."""
    if problem := _common(rounds, lambda found: found.problem):
        return f"**{problem}**"
    if len(rounds) == 1:
        return rounds[0].offered
    in_time = sum(found.offered == "in time" for found in rounds)
    others = _common([found for found in rounds if found.offered != "in time"], lambda found: found.offered)
    return f"{in_time} of {len(rounds)} in time" + (f" (else {others})" if others else "")


def _called(rounds: Sequence[Findings]) -> str:
    called = _common(rounds, lambda found: found.used)
    later = any(found.used != "never" and not found.same_turn for found in rounds if found.used)
    return f"{called}, next user turn" if later else called
