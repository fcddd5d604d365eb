"""How many calls each account has made in the last minute: the sliding windows of the package `limits`.

Importing it takes some 25 ms, so it is imported with the first call.
"""

import time

from limits.storage import MemoryStorage

from proxy.core.allowances import Account
from proxy.core.limits import WINDOW_S, seconds_until_room


class CallRate(MemoryStorage):
    """Counters by account and minute, of which those of this minute and the one before are kept.

    The package's own counters begin a thread for each call that comes more than 10 ms after the one before, to forget
    what is over, which costs as much as the call. Here that is forgotten when a new minute begins for an account.
    """

    def take(self, account: Account, most: int) -> float | None:
        """Count one call; or the seconds until there is room for one, where that would be more than `most`."""
        key = str(account)
        if self.acquire_sliding_window_entry(key, most, WINDOW_S):
            return None
        previous, _, current, ends = self.get_sliding_window(key, WINDOW_S)
        return seconds_until_room(previous, ends - WINDOW_S, current, most)

    def add(self, account: Account) -> None:
        """Count one call, however many there were."""
        self.incr(self.sliding_window_keys(str(account), WINDOW_S, time.time())[1], 2 * WINDOW_S)

    def get(self, key: str) -> int:
        """The count of one account and minute, which is asked for only as long as it is kept."""
        return self.storage.get(key, 0)

    def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Count `amount` more, kept for `expiry` seconds from the first one on."""
        if key not in self.storage:
            self._forget(now := time.time())
            self.expirations[key] = now + expiry
        self.storage[key] += amount
        return self.storage[key]

    def _forget(self, now: float) -> None:
        for key in [key for key, end in self.expirations.items() if end <= now]:
            del self.storage[key], self.expirations[key]
