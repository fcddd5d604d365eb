"""`why`: the chain that leads to a client's seeing a tool or not, and what would change it."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import anyio

from proxy import logs
from proxy.cli.check import start_all
from proxy.cli.client_view import ClientView
from proxy.cli.exits import GOOD, LIVE_PROBLEM, REFUSED
from proxy.cli.layout import indented, say
from proxy.config.load import Loaded
from proxy.core.catalogue import Catalogue
from proxy.core.definitions import Pins, digests_of, withheld
from proxy.core.explanation import Explanation, Surroundings, ToolId, Verdict, explain, matching
from proxy.core.inventory import Inventory
from proxy.core.masking import Masker
from proxy.core.profiles import Policy
from proxy.core.relations import begin
from proxy.core.scope import ScopeId
from proxy.core.texts import printable
from proxy.store.cache_folder import cache_folder
from proxy.store.offers import OfferFiles
from proxy.store.pins import PinFile, pin_files


def why(loaded: Loaded, client: ClientView | None, wanted: str, *, offline: bool) -> int:
    """Explain every tool that `wanted` means to `client`, or to any client.

    0 where each of them is visible or can be, 1 where one never is, 2 where there is none of that name.
    """
    masker = Masker(loaded.secrets)
    logs.configure("error", masker)
    scope = None if client is None else client.scope
    catalogue = _of_anybody(loaded.policy) if client is None else client.catalogue
    offered, not_ready = _kept(loaded, masker) if offline else anyio.run(partial(_asked, loaded, masker))
    held = _held(loaded, offered, scope)
    inventory = {
        server: replace(offer, tools=tuple(tool for tool in offer.tools if ToolId(server, tool["name"]) not in held))
        for server, offer in offered.items()
    }
    match = matching(loaded.catalogue, inventory, wanted, held)
    if not match.tools:
        close = f"; did you mean {' or '.join(match.nearest)}?" if match.nearest else ""
        for server, reason in not_ready.items():
            close += f"\nserver {server}: {reason}"
        return _refused(f"no server offers a tool {wanted}, and no list names it{close}")
    around = Surroundings(loaded.policy, not_ready, held, loaded.settings)
    state = begin(catalogue) if client is None else client.state
    explanations = [explain(catalogue, state, inventory, tool, around) for tool in match.tools]
    for number, explanation in enumerate(explanations):
        _print(explanation, first=number == 0)
    never = any(explanation.verdict is Verdict.NEVER for explanation in explanations)
    return LIVE_PROBLEM if never else GOOD


def _of_anybody(policy: Policy) -> Catalogue:
    """The catalogue where no client is named: that of the only profile, or the skills that any profile may use."""
    if len(policy.profiles) == 1:
        return policy.catalogues[0]
    usable = {skill for catalogue in policy.catalogues for skill in catalogue.by_id}
    return replace(policy.catalogue, skills=tuple(skill for skill in policy.catalogue.skills if skill.id in usable))


async def _asked(loaded: Loaded, masker: Masker) -> tuple[Inventory, dict[str, str]]:
    """What the servers offer, and why some offer nothing."""
    inventory, statuses = await start_all(loaded, loaded.catalogue.needed, masker)
    reasons = {
        server: f"{status.state}: {status.whole_reason or status.reason}" if status.reason else "no skill names it"
        for server, status in statuses.items()
        if status.state != "ready"
    }
    return inventory, reasons


def _kept(loaded: Loaded, masker: Masker) -> tuple[Inventory, dict[str, str]]:
    """What the servers offered last, as far as a proxy with this configuration has kept it."""
    reasons: dict[str, str] = {}
    inventory: Inventory = {}
    try:
        files = OfferFiles(cache_folder(), loaded.path, masker)
    except OSError as error:
        return {}, dict.fromkeys(loaded.catalogue.servers, f"nothing is kept: {error.strerror}")
    for key in loaded.catalogue.servers:
        server = loaded.servers.get(key)
        offer = None if server is None else files.read(server)
        if offer is not None:
            inventory = {**inventory, key: offer}
        else:
            reasons[key] = loaded.unstartable.get(key, "what it offers is not kept; leave --offline out to ask it")
    return inventory, reasons


def _held(loaded: Loaded, offered: Inventory, scope: ScopeId | None) -> Mapping[ToolId, tuple[str, ...]]:
    """The tools that a proxy withholds since they are not offered as clients were granted them, and what differs."""
    if loaded.settings.definitions != "hold" or not loaded.settings.keep_inventories:
        return {}
    return {
        ToolId(server, tool): parts
        for server, pins in _pins(loaded, scope).items()
        if server in offered
        for tool, parts in withheld(pins, {tool["name"]: digests_of(tool) for tool in offered[server].tools}).items()
    }


def _pins(loaded: Loaded, scope: ScopeId | None) -> dict[str, Pins]:
    """By server, the pins that count for a scope."""
    try:
        files = pin_files(cache_folder(), loaded.path)
    except OSError:
        return {}
    whose = ("",) if scope is None else ("", str(scope))
    return {c.server: c.pins for c in files.values() if isinstance(c, PinFile) and c.scope in whose}


def _print(explanation: Explanation, *, first: bool) -> None:
    if not first:
        print()
    say(f"tool {explanation.tool}")
    for line in explanation.chain:
        print(indented(line))
    for line in explanation.outcome:
        say(line)


def _refused(reason: str) -> int:
    print(f"mcp-skill-proxy: {printable(reason, lines=True)}", file=sys.stderr)
    return REFUSED
