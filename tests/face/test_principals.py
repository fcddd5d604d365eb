"""Whom tokens stand for as they change, and how wrong ones are counted."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.face.addresses import network_of
from proxy.face.principals import MAX_ADDRESSES, WRONG_TOKENS, WRONG_WITHIN, Principals, WrongTokens

pytestmark = pytest.mark.anyio

TOKENS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["one", "two", "three"]), max_size=4)


@given(before=TOKENS, after=TOKENS)
def test_only_what_counts_now_is_let_in_and_only_what_does_not_is_over(
    before: dict[str, str], after: dict[str, str]
) -> None:
    """A user whose token is the same goes on; without tokens everybody is one and the same nobody."""
    principals = Principals(before)
    gone = principals.adopt(after)
    assert principals.required is bool(after)
    assert {principals.of(token) for token in after.values()} <= set(after)
    assert all(principals.of(token) is None for token in set(before.values()) - set(after.values()))
    held = before.items() if before else [(None, "")]
    kept = after.items() if after else [(None, "")]
    assert set(gone) == {name for name, token in held if (name, token) not in kept}


async def test_only_the_requests_of_those_named_end() -> None:
    """Those of others, and later ones, go on; one that takes its time is not waited for beyond the bound."""
    principals = Principals({"a": "1", "b": "2"})
    ended: list[str | None] = []

    async def work(principal: str | None, until: anyio.Event) -> None:
        with principals.admitted(principal) as scope:
            await until.wait()
        if scope.cancelled_caught:
            ended.append(principal)

    done = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for principal in ("a", "a", "b", None):
            tasks.start_soon(work, principal, done)
        await anyio.wait_all_tasks_blocked()
        await principals.end(["a", "nobody"])
        assert ended == ["a", "a"]
        await principals.end(["a"])
        done.set()
    assert ended == ["a", "a"]


@pytest.mark.parametrize(
    ("addresses", "network"),
    [
        (["192.0.2.1", "::ffff:192.0.2.1"], "192.0.2.1"),
        (["2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff"], "2001:db8:1:2::/64"),
        (["2001:db8:1:3::1"], "2001:db8:1:3::/64"),
        (["", ""], ""),
    ],
)
def test_addresses_that_one_client_can_have_count_as_one(addresses: list[str], network: str) -> None:
    assert {network_of(address) for address in addresses} == {network}


def test_wrong_tokens_are_told_to_wait_until_the_time_is_over() -> None:
    """Each address by itself."""
    now = 1000.0
    wrong = WrongTokens(lambda: now)
    assert [wrong.retry_after("192.0.2.1") for _ in range(WRONG_TOKENS)] == [0] * WRONG_TOKENS
    now += 20.5
    assert wrong.retry_after("192.0.2.1") == WRONG_WITHIN - 20
    assert wrong.retry_after("192.0.2.2") == 0
    now += WRONG_WITHIN - 20.5
    assert wrong.retry_after("192.0.2.1") == 0


def test_what_is_known_of_addresses_is_bounded() -> None:
    """The newest are known."""
    wrong = WrongTokens(lambda: 0.0)
    for number in range(MAX_ADDRESSES + 100):
        wrong.retry_after(str(number))
    assert len(wrong._seen) == MAX_ADDRESSES
    assert all(not wrong.retry_after(str(MAX_ADDRESSES + 99)) for _ in range(WRONG_TOKENS - 1))
    assert wrong.retry_after(str(MAX_ADDRESSES + 99))
