"""Reading a server's lists: all pages, within bounds of number and size, and what of them clients can be given."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from mcp_types import METHOD_NOT_FOUND

from proxy.core.definition_shape import sound
from proxy.core.errors import Rejection
from proxy.core.inventory import MAX_LIST_BYTES, MAX_LIST_ENTRIES, Json, items
from proxy.wire.codec import dumps

log = structlog.stdlib.get_logger("proxy.upstream")

PAGE_LIMIT: Final = 1000


class Lists:
    """The lists of the server `key`, read by `request`."""

    def __init__(self, key: str, request: Callable[[str, Json], Awaitable[dict[str, Any]]]) -> None:
        self.left_out: dict[str, int] = {}
        """By the name of a list that was cut, how many of the entries that came with its last page were left out."""
        self.faults: dict[str, tuple[str, ...]] = {}
        """By the name of a list, what of it was malformed, and is mended or left out."""
        self._key = key
        self._request = request

    async def read(self, method: str, name: str, most: int = MAX_LIST_ENTRIES) -> list[object]:
        """Every page of the list `name`; a cursor that comes twice, or too many pages, end it.

        Entries that clients could not be given are mended or left out (`faults`). What is beyond `most` entries or
        `MAX_LIST_BYTES` is left out, which is logged where it is news.

        Raises:
            ProxyError: a page could not be had.
        """
        found: list[object] = []
        faults: list[str] = []
        room, left_out = MAX_LIST_BYTES, 0
        cursors: set[str] = set()
        params: dict[str, Any] = {}
        while len(cursors) < PAGE_LIMIT:
            try:
                page = await self._request(method, params)
            except Rejection as error:
                if error.code == METHOD_NOT_FOUND:
                    break
                raise
            if not isinstance(page.get(name), list):
                faults.append(f"a page of the list of {name} holds no array of them")
            entries = items(page.get(name))
            for entry in entries[: most - len(found)]:
                if (size := len(dumps(entry))) <= room:
                    room -= size
                    found.append(entry)
                    left_out -= 1
            left_out += len(entries)
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str | None):
                faults.append(f"the list of {name} ends at a cursor that is not text")
            if left_out or not isinstance(cursor, str) or not cursor or cursor in cursors:
                break
            cursors.add(cursor)
            params = {"cursor": cursor}
        self._note(method, name, len(found), left_out)
        entries, malformed = sound(name, found)
        self.faults = {**self.faults, name: (*faults, *malformed)}
        return entries

    def _note(self, method: str, name: str, entries: int, left_out: int) -> None:
        if left_out and left_out != self.left_out.get(name):
            log.warning("server.list_cut", server=self._key, method=method, entries=entries, left_out=left_out)
        self.left_out = {**self.left_out, name: left_out}
        if not left_out:
            del self.left_out[name]
