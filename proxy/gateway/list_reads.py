"""The reads of tool lists that results wait for: each client's own, after a change that it was told of."""

from collections.abc import Generator
from contextlib import contextmanager

import anyio

from proxy.core.scope import ScopeId
from proxy.ports import Caller


class ExpectedRead:
    """A read of the list of tools by one client, from the moment on at which it is expected."""

    def __init__(self) -> None:
        self.version = -1
        """The newest version of the list that the client has been given; -1 for none."""
        self._gone = False
        self._news = anyio.Event()

    def note(self, version: int) -> None:
        """The client has been given the list as it was at this version."""
        self.version = max(self.version, version)
        self._news.set()

    def give_up(self) -> None:
        """The client cannot read a list any more."""
        self._gone = True
        self._news.set()

    async def reached(self, version: int, within: float) -> bool | None:
        """Wait at most `within` seconds; whether the client has read its list at `version` or later.

        None where it is gone.
        """
        with anyio.move_on_after(within):
            while self.version < version and not self._gone:
                self._news = anyio.Event()
                await self._news.wait()
        return True if self.version >= version else None if self._gone else False


class ListReads:
    """Tells those who wait for a client to read its list of tools when it has."""

    def __init__(self) -> None:
        self._expected: dict[tuple[ScopeId, str], list[ExpectedRead]] = {}
        self._over = False

    @contextmanager
    def expected(self, caller: Caller) -> Generator[ExpectedRead]:
        """A read by `caller` is expected inside, beside others of the same client."""
        key, read = (caller.scope, caller.key), ExpectedRead()
        if self._over:
            read.give_up()
        self._expected.setdefault(key, []).append(read)
        try:
            yield read
        finally:
            self._expected[key].remove(read)
            if not self._expected[key]:
                del self._expected[key]

    def note(self, caller: Caller, version: int) -> None:
        """`caller` is given its list of tools as it is at this version (`ScopeState.tools_version`)."""
        for read in self._expected.get((caller.scope, caller.key), ()):
            read.note(version)

    def give_up(self, scope: ScopeId, client: str) -> None:
        """A client (`Caller.key`) of `scope` is gone."""
        for read in self._expected.get((scope, client), ()):
            read.give_up()

    def give_up_all(self) -> None:
        """No client can read a list any more, from now on: the input has ended, or the proxy does."""
        self._over = True
        for reads in self._expected.values():
            for read in reads:
                read.give_up()
