"""Ids of requests however peers write them, and batches, which are read from servers and refused aloud to clients."""

import json
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import INVALID_REQUEST

from proxy.wire.ids import id_fault, id_of, with_integer_ids
from tests.wire.peer import Peer, running

pytestmark = pytest.mark.anyio

REFUSAL = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"too large"}}\n'
"""What tells a dispatcher that its peer is a client."""


@given(st.integers(min_value=-(2**53), max_value=2**53))
def test_an_integer_is_the_same_id_however_it_is_written(number: int):
    assert id_of(number) == id_of(float(number)) == number
    assert isinstance(id_of(float(number)), int)


@given(
    st.one_of(st.booleans(), st.none(), st.floats().filter(lambda value: not value.is_integer()), st.lists(st.none()))
)
def test_what_mcp_does_not_allow_is_not_an_id(value: object):
    assert id_of(value) is None
    assert id_fault({"id": value, "method": "tools/call"})
    assert not id_fault({"id": value, "result": {}})


@given(
    st.recursive(st.none() | st.text() | st.integers() | st.booleans(), lambda inner: st.dictionaries(st.text(), inner))
)
def test_nothing_else_of_a_message_is_changed(params: object):
    message = {"jsonrpc": "2.0", "id": 1, "method": "a", "params": params}
    assert with_integer_ids(message) is message
    written = {**message, "id": 1.0}
    assert json.dumps(with_integer_ids(written)) == json.dumps(message)


async def answered(peer: Peer, written: str) -> dict[str, Any]:
    """What comes of a request whose answer has its id `written` so, with N for the number."""
    outcome: list[dict[str, Any]] = []

    async def ask() -> None:
        outcome.append(await peer.dispatcher.send_raw_request("a", None))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        number = (await peer.hear())["id"]
        await peer.say(written.replace("N", str(number)).encode() + b"\n")
    return outcome[0]


@pytest.mark.parametrize("written", ["N", "N.0", "N.000", "Ne0", '"N"'])
@pytest.mark.parametrize("batch", [False, True])
async def test_a_server_s_answer_finds_its_request_however_its_id_is_written(written: str, batch: bool):
    """Alone or in a batch, in which other things cost themselves alone."""
    answer = f'{{"jsonrpc": "2.0", "id": {written}, "result": {{"n": 1}}}}'
    async with running() as peer:
        assert await answered(peer, f"[7, [{answer}], {{}}, {answer}]" if batch else answer) == {"n": 1}
        assert await peer.quiet()


@pytest.mark.parametrize("line", [b"[]", b"[[]]", b"[1]", b"[null, {}]", b"[" + b"{}," * 1000 + b"{}]"])
async def test_a_batch_of_a_server_without_messages_is_noise(line: bytes):
    async with running() as peer:
        await peer.say(line + b"\n")
        assert await peer.quiet()
        assert [noise for noise, _ in peer.noise] == [line]


@pytest.mark.parametrize("written", ["7.0", "7", "7e0"])
async def test_a_client_s_request_is_answered_and_cancelled_by_its_number(written: str):
    """A cancelled request is not answered."""
    hangs = anyio.Event()

    async def on_request(_ctx: object, method: str, params: object) -> dict[str, Any]:
        if method == "hang":
            hangs.set()
            await anyio.sleep_forever()
        return {}

    async with running(on_request, refusal=REFUSAL) as peer:
        await peer.say(f'{{"jsonrpc": "2.0", "id": {written}, "method": "a"}}\n'.encode())
        assert await peer.hear() == {"jsonrpc": "2.0", "id": 7, "result": {}}
        await peer.say({"id": 7, "method": "hang"})
        await hangs.wait()
        cancel = f'{{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {{"requestId": {written}}}}}\n'
        await peer.say(cancel.encode())
        assert await peer.quiet()
        await peer.say({"id": 7, "method": "a"})
        assert (await peer.hear())["id"] == 7


@pytest.mark.parametrize(
    ("message", "request_id"),
    [
        ('{"jsonrpc": "2.0", "id": null, "method": "a"}', None),
        ('{"jsonrpc": "2.0", "id": 1.5, "method": "a"}', None),
        ('{"jsonrpc": "2.0", "id": true, "method": "a"}', None),
        ('{"jsonrpc": "2.0", "id": [1], "method": "a"}', None),
        ('{"jsonrpc": "2.0", "id": 1e999, "method": "a"}', None),
        ('{"jsonrpc": "2.0", "id": 3, "method": 5}', 3),
        ('{"jsonrpc": "2.0", "id": "x", "method": "a", "params": [1]}', "x"),
        ('{"id": 4.0, "method": "a"}', 4),
        ("[]", None),
        ("[[]]", None),
        ("[1, 2]", None),
        ('[{"jsonrpc": "2.0", "method": "notifications/x"}]', None),
    ],
)
async def test_a_client_is_told_what_is_not_a_request(message: str, request_id: object):
    """Under the id where there is one; the next request is answered."""
    async with running(refusal=REFUSAL) as peer:
        await peer.say(message.encode() + b"\n")
        answer = await peer.hear()
        assert (answer["id"], answer["error"]["code"]) == (request_id, INVALID_REQUEST)
        assert answer["error"]["message"]
        assert len(peer.noise) == 1
        assert await peer.quiet()


async def test_every_request_of_a_client_s_batch_is_refused_under_its_id():
    """So that nobody waits; of a huge one as a whole."""
    requests = [{"jsonrpc": "2.0", "id": number, "method": "a"} for number in (1, "b", 3.0)]
    async with running(refusal=REFUSAL) as peer:
        await peer.say(json.dumps([*requests, {"jsonrpc": "2.0", "method": "n"}, 7, [requests[0]]]).encode() + b"\n")
        answers = [await peer.hear() for _ in requests]
        assert [answer["id"] for answer in answers] == [1, "b", 3]
        assert all("one message at a time" in answer["error"]["message"] for answer in answers)
        await peer.say(json.dumps([requests[0]] * 1001).encode() + b"\n")
        assert (await peer.hear())["id"] is None
        assert await peer.quiet()


async def test_a_notification_with_the_id_null_is_one():
    """As some libraries write them."""
    told: list[str] = []

    async def on_notify(_ctx: object, method: str, _params: object) -> None:
        told.append(method)

    async with running(on_notify=on_notify, refusal=REFUSAL) as peer:
        await peer.say({"id": None, "method": "notifications/initialized"})
        assert await peer.quiet()
    assert told == ["notifications/initialized"]
