"""The reads of lists that results wait for: each client's own, of a version that is new enough."""

import anyio
import anyio.lowlevel
import pytest

from proxy.core.scope import ScopeId
from proxy.gateway.list_reads import ExpectedRead, ListReads
from tests.conftest import PATIENCE
from tests.gateway.acting import Doing, settle
from tests.gateway.world import caller

pytestmark = pytest.mark.anyio

LONG = 3600.0
ONE = caller()
OTHER = caller()._replace(connection="other")
STRANGER = caller()._replace(scope=ScopeId("namespace", "b"))


async def test_a_read_of_that_version_or_a_newer_one_is_what_is_waited_for():
    """Those of older ones are not, however many there are."""
    read = ExpectedRead()
    async with anyio.create_task_group() as tasks:
        waiting = Doing(tasks, lambda: read.reached(3, LONG))
        for version in (0, 2, 1, 2):
            read.note(version)
            await settle()
            assert not waiting.done
        read.note(4)
        assert await waiting.outcome() is True
    assert read.version == 4


async def test_a_read_that_came_before_is_not_waited_for():
    """Not even for a moment."""
    read = ExpectedRead()
    read.note(3)

    assert await read.reached(3, 0.0) is True
    assert await read.reached(2, 0.0) is True
    assert await read.reached(4, 0.0) is False


async def test_an_older_version_takes_nothing_back():
    """Two requests for the list may be answered in either order."""
    read = ExpectedRead()
    read.note(3)
    read.note(1)

    assert await read.reached(3, 0.0) is True


async def test_a_read_that_does_not_come_is_waited_for_so_long():
    """And then it has not come."""
    with anyio.fail_after(PATIENCE):
        assert await ExpectedRead().reached(1, 0.01) is False


async def test_a_client_that_is_gone_is_waited_for_no_more():
    """What it has read before it went still counts."""
    read, has_read = ExpectedRead(), ExpectedRead()
    async with anyio.create_task_group() as tasks:
        waiting = Doing(tasks, lambda: read.reached(1, LONG))
        await settle()
        read.give_up()
        assert await waiting.outcome() is None
    assert await read.reached(1, LONG) is None
    has_read.note(1)
    has_read.give_up()
    assert await has_read.reached(1, LONG) is True


async def test_several_can_wait_for_reads_of_one_client():
    """One read may be new enough for some of them alone."""
    reads = ListReads()
    async with anyio.create_task_group() as tasks:
        with reads.expected(ONE) as first, reads.expected(ONE) as second:
            waiting = [Doing(tasks, lambda: first.reached(1, LONG)), Doing(tasks, lambda: second.reached(2, LONG))]
            await settle()
            reads.note(ONE, 1)
            assert await waiting[0].outcome() is True
            assert not waiting[1].done
            reads.note(ONE, 2)
            assert await waiting[1].outcome() is True


async def test_what_others_read_is_not_waited_for():
    """Neither another client of the scope, nor the like of it in another scope."""
    reads = ListReads()
    with reads.expected(ONE) as read:
        for by in (OTHER, STRANGER, ONE._replace(era="modern", connection=None)):
            reads.note(by, 5)
            reads.give_up(by.scope, by.key)
        assert read.version == -1
        assert await read.reached(0, 0.0) is False


async def test_reads_count_from_when_they_are_expected_to_when_they_are_not():
    """Nothing is kept of what nobody waits for."""
    reads = ListReads()
    reads.note(ONE, 7)
    with reads.expected(ONE) as early:
        with reads.expected(ONE) as late:
            reads.note(ONE, 8)
        reads.note(ONE, 9)
    reads.note(ONE, 10)

    assert (early.version, late.version) == (9, 8)
    assert reads._expected == {}


async def test_at_the_end_all_are_given_up():
    """Whoever waits for whom."""
    reads = ListReads()
    async with anyio.create_task_group() as tasks:
        with reads.expected(ONE) as one, reads.expected(STRANGER) as other:
            waiting = [Doing(tasks, lambda: one.reached(1, LONG)), Doing(tasks, lambda: other.reached(1, LONG))]
            await settle()
            reads.give_up_all()
            assert [await each.outcome() for each in waiting] == [None, None]
    assert reads._expected == {}


async def test_whoever_waits_can_be_given_up_itself():
    """It leaves nothing behind."""
    reads = ListReads()

    async def wait() -> bool | None:
        with reads.expected(ONE) as read:
            return await read.reached(1, LONG)

    async with anyio.create_task_group() as tasks:
        waiting = Doing(tasks, wait)
        await settle()
        await waiting.give_up()
    assert reads._expected == {}
