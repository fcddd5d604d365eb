"""Names in the lists of skills that servers do not offer: told in the log once a server has been read."""

import structlog

from proxy.core.inventory import Offer
from proxy.core.report import unmatched, unmatched_denials
from proxy.gateway.gate import Gate

log = structlog.stdlib.get_logger("proxy.gateway")


class UnmatchedNames:
    """Holds each offer of a server against the lists that name it; what is wrong is told when it is news."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._offers: dict[str, Offer] = {}
        self._told: dict[tuple[str | None, str], list[str]] = {}

    def note(self, server: str, offer: Offer) -> None:
        """A server's lists have been read."""
        self._offers[server] = offer
        catalogue = self._gate.policy.catalogue
        for skill in catalogue.skills:
            if server in skill.servers:
                self._tell(skill.id, server, unmatched(skill, server, offer))
        self._tell(None, server, unmatched_denials(catalogue, server, offer))

    def check_again(self) -> None:
        """The configuration has changed."""
        for server, offer in self._offers.items():
            self.note(server, offer)

    def _tell(self, skill: str | None, server: str, problems: list[str]) -> None:
        if problems and self._told.get((skill, server)) != problems:
            of = {} if skill is None else {"skill": skill}
            log.warning("names.not_offered", **of, server=server, problems=problems)
        self._told[skill, server] = problems
