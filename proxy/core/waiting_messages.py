"""Notifications that wait for a client to take them: so many, and so many bytes; what is too much is dropped."""

from typing import Any, Final

from proxy.core.byte_budget import Share, message_size
from proxy.core.inventory import Json
from proxy.core.self_description import NAME

LOG_MESSAGE: Final = "notifications/message"


class WaitingMessages:
    """A queue of notifications, each under a key, by which a newer one takes its place.

    At most `most` of them. What is too much goes, the oldest first: of the log messages, then of the others. A log
    message in the place of those that went says how many they were.
    """

    def __init__(self, share: Share, most: int) -> None:
        self._share = share
        self._most = most
        self._waiting: dict[object, tuple[str, Json, int]] = {}
        self._dropped_logs = 0

    def __bool__(self) -> bool:
        """Whether something waits."""
        return bool(self._waiting or self._dropped_logs)

    def put(self, key: object, method: str, params: Json) -> None:
        """Have a notification wait, in the place of one under the same key if there is one."""
        before = self._waiting.get(key)
        size = message_size(params)
        self._share.add(size - (0 if before is None else before[2]))
        self._waiting[key] = (method, params, size)
        while self._waiting and (len(self._waiting) > self._most or self._share.exceeded):
            self._drop()

    def put_first(self, key: object, method: str, params: Json) -> None:
        """Have a notification wait before all others, unless one under the same key waits already."""
        if key not in self._waiting:
            size = message_size(params)
            self._share.add(size)
            self._waiting = {key: (method, params, size), **self._waiting}

    def take(self) -> tuple[str, Json]:
        """The next one, method and parameters, which waits no more; there must be one."""
        if self._dropped_logs:
            count, self._dropped_logs = self._dropped_logs, 0
            return LOG_MESSAGE, _dropped(count)
        method, params, size = self._waiting.pop(next(iter(self._waiting)))
        self._share.add(-size)
        return method, params

    def clear(self) -> None:
        """Nothing waits any more."""
        self._waiting.clear()
        self._share.clear()
        self._dropped_logs = 0

    def _drop(self) -> None:
        oldest = next(iter(self._waiting))
        key = next((key for key, (method, _, _) in self._waiting.items() if method == LOG_MESSAGE), oldest)
        method, _, size = self._waiting.pop(key)
        self._share.add(-size)
        self._dropped_logs += method == LOG_MESSAGE


def _dropped(count: int) -> dict[str, Any]:
    what = "1 log message was" if count == 1 else f"{count} log messages were"
    return {"level": "warning", "logger": NAME, "data": f"{what} dropped here, which were not taken in time"}
