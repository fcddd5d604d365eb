"""Which clients have the tool `SKILL_CALL` in their list."""

from proxy.core.catalogue import Catalogue
from proxy.core.known_clients import Rereading
from proxy.core.scope import Evidence
from proxy.core.settings import Settings


def shows_call_route(catalogue: Catalogue, settings: Settings, evidence: Evidence, expected: Rereading) -> bool:
    """Whether a client has it in its list; once there, it stays, so that the list does not change to and fro.

    `catalogue`: what exists for the client. `evidence`: what it has shown. `expected`: what it will do when it is told
    that its list has changed.
    """
    if not catalogue.skills or settings.call_route == "off":
        return False
    if settings.call_route == "on" or settings.listing == "stable":
        return True
    return evidence.sees_call_route or expected not in ("while_held", "after_result")


def has_seen_call_route(evidence: Evidence, expected: Rereading) -> bool:
    """Whether the list that a client has got contains `SKILL_CALL` by now, where it is shown to that client.

    Only a client that used to read its list again in time may have to read it once more before.
    """
    return evidence.sees_call_route or expected != "late"


def call_route_digest(settings: Settings) -> str:
    """A text that changes exactly when the settings show `SKILL_CALL` to other clients."""
    if settings.call_route != "auto":
        return settings.call_route
    return "on" if settings.listing == "stable" else f"auto {' '.join(settings.call_route_clients)}"
