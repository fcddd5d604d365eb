"""What a peer may send: how large a line, how many values, how much noise, and how much of the time."""

import json
from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import strategies as st
from mcp import MCPError

from proxy.core.json_cost import MAX_JSON_VALUES
from proxy.wire import turns
from proxy.wire.dispatcher import MAX_NOISE_LINES, MAX_REQUESTS_IN_WORK
from proxy.wire.turns import Turns
from tests.wire.peer import Peer, ignore, running

pytestmark = pytest.mark.anyio

LIMIT = 1000
REFUSAL = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"too large"}}\n'
MANY = 3000
"""Notifications that are far more than what a peer may send at once."""


@pytest.mark.parametrize("pieces", [1, 7], ids=["at once", "in pieces"])
async def test_a_line_that_is_too_long_is_refused_and_the_next_ones_are_answered(pieces: int):
    """The rest of it is skipped, however it comes; one of just the size is a message."""
    just = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).ljust(LIMIT).encode()
    async with running(limit=LIMIT, refusal=REFUSAL) as peer:
        for _ in range(2):
            for _ in range(pieces):
                await peer.say(b"x" * LIMIT)
            await peer.say(b" \n")
            if pieces == 1:
                await peer.say(b"x" * (LIMIT + 1) + b"\n")
                assert (await peer.hear())["error"]["message"] == "too large"
            assert (await peer.hear())["id"] is None
        await peer.say(just + b"\n")
        assert (await peer.hear())["id"] == 1
        assert not peer.dispatcher.over.is_set()


async def test_a_line_without_an_end_ends_the_connection_with_that_reason():
    """Who waits for an answer hears it, and nothing more is read."""
    async with running(limit=LIMIT) as peer, anyio.create_task_group() as tasks:

        async def ask() -> None:
            with pytest.raises(MCPError, match="Connection closed"):
                await peer.dispatcher.send_raw_request("a", None)

        tasks.start_soon(ask)
        await peer.hear()
        await peer.say(b"\0" * (LIMIT + 1))
        await peer.dispatcher.over.wait()
    assert peer.dispatcher.fault == "it sent a message larger than 1000 bytes (proxy.max_message_size)"


async def test_lines_that_are_no_messages_end_the_connection_once_they_are_many_in_a_row():
    """A message in between begins the count anew; blank lines count."""
    async with running() as peer:
        for _ in range(3):
            await peer.say(b"no\n" * (MAX_NOISE_LINES - 1))
            assert await peer.quiet()
        await peer.say(b"\n" * MAX_NOISE_LINES)
        await peer.dispatcher.over.wait()
    assert peer.dispatcher.fault == "it wrote 1,000 lines in a row that are not JSON-RPC"


async def test_a_client_may_write_what_it_likes_as_long_as_it_is_short():
    """It harms nobody else."""
    async with running(limit=LIMIT, refusal=REFUSAL) as peer:
        await peer.say(b"no\n" * 2 * MAX_NOISE_LINES)
        assert await peer.quiet()


async def test_a_message_with_too_many_values_ends_the_connection_unparsed():
    """What it says in texts is not counted."""
    text = "[{,}]" * 2 * MAX_JSON_VALUES
    async with running() as peer, anyio.create_task_group() as tasks:
        answers: list[dict[str, Any]] = []

        async def ask() -> None:
            answers.append(await peer.dispatcher.send_raw_request("a", None))

        tasks.start_soon(ask)
        await peer.say({"id": (await peer.hear())["id"], "result": {"text": text}})
        assert await peer.quiet()
        assert answers == [{"text": text}]
        await peer.say({"method": "a", "params": {"values": [[]] * MAX_JSON_VALUES * 3}})
        await peer.dispatcher.over.wait()
    assert peer.dispatcher.fault == "it sent a message with more than 250,000 values"


async def test_a_server_that_asks_without_an_end_is_refused_what_is_too_much():
    """Those in work are answered when they are done."""
    release = anyio.Event()

    async def slow(ctx: object, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        await release.wait()
        return {}

    async with running(slow) as peer:
        await peer.say(*({"id": number, "method": "a"} for number in range(MAX_REQUESTS_IN_WORK + 2)))
        refused = [await peer.hear() for _ in range(2)]
        assert [one["id"] for one in refused] == [MAX_REQUESTS_IN_WORK, MAX_REQUESTS_IN_WORK + 1]
        assert {one["error"]["message"] for one in refused} == {"Too many requests at a time"}
        release.set()
        assert {(await peer.hear())["id"] for _ in range(MAX_REQUESTS_IN_WORK)} == set(range(MAX_REQUESTS_IN_WORK))


json_values = st.recursive(
    st.none() | st.integers(0, 9) | st.sampled_from(["", "a,b", '"', "\\", '\\"[,', "{}", "é"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["", '"', "\\", "[,"]), inner),
    max_leaves=20,
)


# --- turns -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers wait for turns soon, however fast the machine is."""
    monkeypatch.setattr(turns, "BURST_S", 0.001)


class Listener:
    """Counts what it is told, and how often others have had a turn by then."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.turns = 0

    def hear(self, _method: str, params: Mapping[str, Any] | None) -> bool:
        self.told.append((params or {})["n"])
        return True

    async def others(self) -> None:
        while True:
            await checkpoint()
            self.turns += 1


def notifications(count: int) -> bytes:
    filler = {"a": list(range(300))}
    lines = ({"jsonrpc": "2.0", "method": "n", "params": {"n": n, **filler}} for n in range(count))
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@pytest.mark.usefixtures("little_at_once")
async def test_a_flood_leaves_turns_to_others_and_loses_nothing():
    """In its order, with an answer behind it, and the end of the input behind that."""
    listener, peer, before = Listener(), Peer(turns=Turns()), 0
    answers: list[dict[str, Any]] = []
    async with anyio.create_task_group() as tasks:
        running = anyio.CancelScope()

        async def others() -> None:
            with running:
                await listener.others()

        await tasks.start(peer.dispatcher.run, ignore, ignore, listener.hear)
        tasks.start_soon(others)

        async def ask() -> None:
            answers.append(await peer.dispatcher.send_raw_request("a", None))

        tasks.start_soon(ask)
        number = (await peer.hear())["id"]
        # Longer than the beginning of an answer may be: it is known as one only when it is parsed.
        answer = json.dumps({"result": {"done": True}, "id": number, "jsonrpc": "2.0"}).encode()
        before = listener.turns
        await peer.say(notifications(MANY) + answer + b"\n")
        peer.leave()
        await peer.dispatcher.over.wait()
        running.cancel()
    peer.close()
    peer.source.close()
    peer.sink.abort()
    await checkpoint()
    assert listener.told == list(range(MANY))
    assert answers == [{"done": True}]
    assert listener.turns - before > 500


@pytest.mark.usefixtures("little_at_once")
async def test_a_peer_that_floods_does_not_keep_another_waiting():
    """Each has an allowance of its own, and those that have spent it take turns."""
    shared, loud, quiet = Turns(), Listener(), Listener()
    async with (
        running(intercept=loud.hear, turns=shared) as noisy,
        running(intercept=quiet.hear, turns=shared) as other,
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(noisy.say, notifications(MANY))
            while len(loud.told) < 10:  # noqa: ASYNC110 - there is no event for it
                await anyio.sleep(0.001)
            await other.say(notifications(5))
            assert await other.quiet()
            assert quiet.told == list(range(5))
            assert len(loud.told) < MANY
        assert await noisy.quiet()
        assert loud.told == list(range(MANY))


@pytest.mark.usefixtures("little_at_once")
async def test_while_a_peer_floods_what_is_of_no_use_is_not_parsed():
    """Nothing is lost that is asked for, and nothing while it does not flood."""
    dropped: list[bytes] = []
    listener = Listener()

    def unwanted(line: bytes) -> bool:
        dropped.append(line)
        return True

    async with running(intercept=listener.hear, turns=Turns(), unwanted=unwanted) as peer:
        await peer.say(notifications(1))
        assert await peer.quiet()
        assert (listener.told, dropped) == ([0], [])
        await peer.say(notifications(MANY))
        while len(listener.told) + len(dropped) < MANY + 1:  # noqa: ASYNC110 - there is no event for it
            await anyio.sleep(0.001)
        assert dropped
