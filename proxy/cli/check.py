"""`check`: hold the configuration against the servers as they are, and print what each skill grants."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import anyio

from proxy import logs
from proxy.cli.client_view import ClientView, shown_tools
from proxy.cli.exits import GOOD, LIVE_PROBLEM
from proxy.cli.layout import counted, indented, not_offered, say, short
from proxy.config.difference import in_force
from proxy.config.load import Loaded
from proxy.config.packages import installed
from proxy.config.records import changes_of
from proxy.config.skill_files import FolderFiles
from proxy.core.allowances import Allowances
from proxy.core.catalogue import Catalogue, Skill
from proxy.core.inventory import Inventory, Offer
from proxy.core.masking import Masker
from proxy.core.report import Report, SkillReport, acts, deeds, grants, in_order, report
from proxy.face.clients import ClientRegistry
from proxy.ports import Status
from proxy.upstream.pool import Pool

PINS_IN_MEMORY: Final = (
    "proxy.definitions: with keep_inventories: false, tools are pinned in memory alone: a definition that changes from "
    "one run to the next is not noticed"
)


def check(loaded: Loaded, client: ClientView | None, *, offline: bool) -> int:
    """Print the report on `loaded`; 0 when all is good, 1 when the file is sound but a SKILL.md or a server is not.

    `client`: whose skills alone are reported on, and what it sees; None for all skills.
    """
    masker = Masker(loaded.secrets)
    logs.configure("error", masker)
    catalogue = loaded.catalogue if client is None else client.catalogue
    _print_head(loaded, catalogue)
    if client is not None:
        _print_client(client)
    wrong = sum(bool(left.problems) for left in loaded.left_out)
    if offline:
        _print_offline(loaded, catalogue, wrong)
        return LIVE_PROBLEM if wrong else GOOD
    if client is not None and not catalogue.skills:
        return LIVE_PROBLEM if wrong else GOOD
    inventory, statuses = anyio.run(partial(start_all, loaded, catalogue.needed, masker))
    failed = {key: _why(statuses[key]) for key in catalogue.needed if statuses[key].state != "ready"}
    found = report(catalogue, inventory, failed, _guides(catalogue))
    if client is not None:  # what no skill reaches, and the like, is for a check of the whole configuration
        statuses = {key: statuses[key] for key in catalogue.needed}
        found = replace(
            found, notes=tuple(f"skill {one.skill.id}: {note}" for one in found.skills for note in one.notes)
        )
    print()
    for key, status in statuses.items():
        say(f"server {key}: {_standing(status, inventory.get(key))}")
        for note in status.notes:
            say(indented(note))
    if client is not None:
        tools = ", ".join(shown_tools(loaded, client, inventory))
        print()
        print(indented(f"Tools in its list now: {tools}").lstrip())
    good = found.good and not wrong
    _print(found, good=good)
    return GOOD if good else LIVE_PROBLEM


def _print_head(loaded: Loaded, catalogue: Catalogue) -> None:
    """Print what the configuration has, `catalogue` of it for the clients in question, and what is worth a look."""
    offered = f"{counted(len(loaded.catalogue.servers), 'server')}, {counted(len(loaded.catalogue.skills), 'skill')}"
    say(f"{short(loaded.path)}: {offered}" + (f", {len(loaded.left_out):,} not offered" if loaded.left_out else ""))
    if catalogue.on_start:
        print(indented(f"before a client's first call: {in_order(catalogue.on_start)}"))
    for line in Allowances(loaded.policy, loaded.settings, loaded.settings.max_scopes).described():
        print(indented(line))
    for note in _notes(loaded):
        say(f"note: {note}")
    if loaded.left_out:
        print(not_offered(loaded.left_out))


def _notes(loaded: Loaded) -> Iterator[str]:
    """What is not wrong, and worth a look."""
    yield from loaded.notes
    if loaded.settings.definitions != "ignore" and not loaded.settings.keep_inventories:
        yield PINS_IN_MEMORY
    for root in loaded.library.visited:
        for one in installed(root):
            for change in changes_of(one):
                yield f"{short(root / one.id)}: {change}"


async def start_all(loaded: Loaded, needed: Sequence[str], masker: Masker) -> tuple[Inventory, dict[str, Status]]:
    """Start the servers that are `needed`, side by side; what they offer, and where each of all stands."""
    longest = max((server.start_timeout for server in loaded.servers.values()), default=0.0)
    offered: Inventory = {}
    statuses: dict[str, Status] = {}
    async with anyio.create_task_group() as tasks:
        unstartable = in_force(loaded, loaded).unstartable
        pool = Pool(loaded.servers, unstartable, masker, ClientRegistry(tasks), loaded.settings)
        async with pool.running():
            pool.need(needed)
            await pool.settled(needed, None, longest + 1)
            offered = pool.inventory()
            statuses = {server: pool.status(server) for server in loaded.catalogue.servers}
    return offered, statuses


def _guides(catalogue: Catalogue) -> Mapping[str, str]:
    """By skill, the guides that stand in folders, as far as they can be read."""
    files = FolderFiles()
    found: dict[str, str] = {}
    for skill in catalogue.skills:
        if skill.usage is None:
            with suppress(OSError):
                found[skill.id] = files.guide(skill)
    return found


def _why(status: Status) -> str:
    return status.whole_reason or status.reason


def _standing(status: Status, offer: Offer | None) -> str:
    if status.state == "ready" and offer is not None:
        return f"ready, {counted(len(offer.tools), 'tool')}"
    return "failed" if status.state == "failed" else f"{status.state}, no skill names it"


def _print_client(client: ClientView) -> None:
    """Print what a client may use, and what is active for it."""
    print()
    if not client.catalogue.skills:
        say(f"{client.name}: it may use no skill, and sees no tool.")
        return
    since = "remembered" if client.remembered else "at its start"
    active = ", ".join(client.state.active) or "none"
    say(f"{client.name}: it may use {counted(len(client.catalogue.skills), 'skill')}")
    print(indented(f"active ({since}): {active}"))
    if client.note:
        print(indented(f"what is remembered of it cannot be read: {client.note}"))


def _print_offline(loaded: Loaded, catalogue: Catalogue, wrong: int) -> None:
    """`wrong`: how many skills in folders cannot be used as they are written."""
    for server, reason in loaded.unstartable.items():
        say(f"note: server {server} cannot be started: {reason}")
    for skill in catalogue.skills:
        print()
        say(f"skill {_title(skill)}" + ("" if skill.servers else f": {_without_servers(skill)}"))
        _print_deeds(skill)
    but = f", but {counted(wrong, 'skill')} cannot be used (see above)" if wrong else ""
    sound = f"The file is sound{but}; no server was started."
    print("\n" + (sound if loaded.catalogue.skills else "Nothing is offered: clients will see no tool."))


def _print(found: Report, *, good: bool) -> None:
    for skill in found.skills:
        print()
        _print_skill(skill)
    if found.problems:
        print("\nProblems:")
        for problem in found.problems:
            say(f"  {problem}")
    if found.notes:
        print("\nWorth knowing:")
        for note in found.notes:
            say(f"  {note}")
    print("\n" + ("All is good." if good else "Something is not as the configuration says; see above."))


def _print_skill(found: SkillReport) -> None:
    besides = [counted(n, what) for n, what in ((found.resources, "resource"), (found.prompts, "prompt")) if n]
    granted = ", ".join([counted(len(found.tools), "tool"), *besides])
    say(f"skill {_title(found.skill)}: {granted if found.skill.servers else _without_servers(found.skill)}")
    _print_deeds(found.skill)
    for tool in found.tools:
        say(f"  + {tool.exposed}")
    for problem in found.problems:
        say(f"  ! {problem}")


def _title(skill: Skill) -> str:
    return skill.id + (", pinned" if skill.pinned else ", active at once" if skill.active else "")


def _without_servers(skill: Skill) -> str:
    return "grants nothing" if acts(skill) else "instructions only"


def _print_deeds(skill: Skill) -> None:
    """Print what a skill grants, and what it does by itself."""
    for line in (*(f"grants {line}" for line in grants(skill)), *deeds(skill)):
        print(indented(line))
