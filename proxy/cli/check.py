"""`check`: hold the configuration against the servers as they are, and print what each skill grants."""

from functools import partial

import anyio

from proxy import logs
from proxy.config.load import Loaded
from proxy.core.inventory import Inventory
from proxy.core.masking import Masker
from proxy.core.report import Report, SkillReport, grants, report
from proxy.upstream.pool import Pool

GOOD, LIVE_PROBLEM = 0, 1


def check(loaded: Loaded, *, offline: bool) -> int:
    """Print the report on `loaded`; 0 when all is good, 1 when the file is sound but something live is not."""
    masker = Masker(loaded.secrets)
    logs.configure("error", masker)
    catalogue = loaded.catalogue
    print(f"{loaded.path}: {_count(len(catalogue.servers), 'server')}, {_count(len(catalogue.skills), 'skill')}")
    for note in loaded.notes:
        print(f"note: {note}")
    if offline:
        for skill in catalogue.skills:
            print(f"skill {skill.id}: {grants(skill) or 'instructions only'}")
        print("The file is sound; no server was started.")
        return GOOD
    inventory, failed = anyio.run(partial(_start_all, loaded, masker))
    found = report(catalogue, inventory, failed)
    _print(found)
    return GOOD if found.good else LIVE_PROBLEM


async def _start_all(loaded: Loaded, masker: Masker) -> tuple[Inventory, dict[str, str]]:
    """Start every server that a skill names, side by side; what they offer, and why some did not start."""
    pool = Pool(loaded.servers, loaded.unstartable, masker)
    needed = [server for server in loaded.catalogue.servers if server in loaded.catalogue.needed]
    longest = max((server.start_timeout for server in loaded.servers.values()), default=0.0)
    async with pool.running():
        pool.need(needed)
        await pool.settled(needed, longest + 1)
        statuses = {server: pool.status(server) for server in needed}
        return pool.inventory(), {s: status.reason for s, status in statuses.items() if status.state != "ready"}


def _print(found: Report) -> None:
    for skill in found.skills:
        print()
        _print_skill(skill)
    if found.problems:
        print("\nProblems:")
        for problem in found.problems:
            print(f"  {problem}")
    if found.notes:
        print("\nWorth knowing:")
        for note in found.notes:
            print(f"  {note}")
    print("\n" + ("All is good." if found.good else "Something is not as the configuration says; see above."))


def _print_skill(found: SkillReport) -> None:
    skill = found.skill
    state = ", pinned" if skill.pinned else ", active at once" if skill.active else ""
    besides = [_count(n, what) for n, what in ((found.resources, "resource"), (found.prompts, "prompt")) if n]
    print(f"skill {skill.id}{state}: {', '.join([_count(len(found.tools), 'tool'), *besides])}")
    if skill.tools:
        print(f"  grants {grants(skill)}")
    for tool in found.tools:
        print(f"  + {tool.exposed}")
    for problem in found.problems:
        print(f"  ! {problem}")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
