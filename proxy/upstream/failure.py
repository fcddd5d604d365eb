"""Why a server is not there, in two texts: one for everybody, and one for the log and the user's own terminal."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Failure:
    """Why a connection could not be made, or was lost."""

    reason: str = ""
    """One line in the proxy's own words."""
    detail: str = ""
    """One line of what the server wrote or a library said, which may be anything; empty for nothing."""

    @property
    def public(self) -> str:
        """What models, clients and /health are told: nothing that somebody else has written."""
        return f"{self.reason}; see the proxy's log" if self.detail else self.reason

    @property
    def whole(self) -> str:
        """All of it, for the user's own terminal."""
        return f"{self.reason}; {self.detail}" if self.detail else self.reason


NO_FAILURE: Final = Failure()
