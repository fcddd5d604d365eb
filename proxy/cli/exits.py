"""The exit codes of the program."""

from typing import Final

GOOD: Final = 0
LIVE_PROBLEM: Final = 1
"""The configuration is sound, but something else is not: a server, a skill in a folder."""
REFUSED: Final = 2
"""The configuration or the command line is refused; nothing was done."""
INTERRUPTED: Final = 130
"""Ended by SIGINT before it was done, as a shell would say."""
