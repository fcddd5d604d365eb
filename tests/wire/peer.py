"""A dispatcher on real pipes, and its peer by hand at their other ends."""

import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.lowlevel
from mcp.shared.dispatcher import OnNotify, OnNotifyIntercept, OnRequest

from proxy.wire.dispatcher import LineDispatcher
from proxy.wire.lines import LineBuffer
from proxy.wire.pipes import Sink, Source

DEADLINE = 20.0
"""Seconds after which a wait has failed; nothing that works comes near."""


class Peer:
    """Writes lines to a dispatcher and reads what it answers, whenever the test says so and not before."""

    def __init__(self, **options: Any) -> None:
        its_input, self.into = os.pipe()
        self.out, its_output = os.pipe()
        os.set_blocking(self.into, False)
        self.noise: list[tuple[bytes, str]] = []
        self.source, self.sink = Source(its_input), Sink(its_output)
        self.dispatcher = LineDispatcher(self.source, self.sink, lambda *noise: self.noise.append(noise), **options)
        self._buffer = LineBuffer()
        self._lines: list[bytes] = []

    async def say(self, *messages: Mapping[str, Any] | bytes) -> None:
        """Write messages, and bytes as they are."""
        data = b"".join(
            message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
            for message in messages
        )
        with anyio.fail_after(DEADLINE):
            while data:
                await anyio.wait_writable(self.into)
                with suppress(BlockingIOError):
                    data = data[os.write(self.into, data) :]

    async def hear(self) -> dict[str, Any]:
        """The next message; the end of the output fails."""
        with anyio.fail_after(DEADLINE):
            while not self._lines:
                await anyio.wait_readable(self.out)
                chunk = os.read(self.out, 1 << 16)
                assert chunk, "the output has ended"
                self._lines += self._buffer.feed(chunk)
        return json.loads(self._lines.pop(0))

    async def quiet(self) -> bool:
        """Whether the dispatcher, which has worked off all that came before this, has said nothing."""
        await self.say({"id": "quiet", "method": "ping"})
        return (await self.hear())["id"] == "quiet"

    def leave(self) -> None:
        """Write no more."""
        if self.into >= 0:
            os.close(self.into)
            self.into = -1

    def close(self) -> None:
        """Read no more."""
        if self.out >= 0:
            os.close(self.out)
            self.out = -1


async def answer(ctx: object, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """A handler that gives back what it got."""
    return {"method": method, "params": params}


async def ignore(ctx: object, method: str, params: Mapping[str, Any] | None) -> None:
    """A handler of notifications that does nothing."""


@asynccontextmanager
async def running(
    on_request: OnRequest = answer,
    on_notify: OnNotify = ignore,
    intercept: OnNotifyIntercept | None = None,
    **options: Any,
) -> AsyncGenerator[Peer]:
    """A dispatcher that runs inside the block, as the peer sees it."""
    peer = Peer(**options)
    try:
        with anyio.fail_after(DEADLINE):
            async with anyio.create_task_group() as tasks:
                await tasks.start(peer.dispatcher.run, on_request, on_notify, intercept)
                yield peer
                tasks.cancel_scope.cancel()
    finally:
        peer.leave()
        peer.close()
        peer.source.close()
        peer.sink.abort()
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()  # the transports close a turn of the loop later
