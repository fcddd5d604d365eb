"""What the endings of exchanges over HTTP mean: the table, walked as a whole."""

from itertools import product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.exchange import (
    MAX_ASKED_PAUSE_S,
    MAX_STREAM_PAUSE_S,
    MIN_PAUSE_S,
    Arrival,
    Body,
    Ending,
    Kind,
    judge,
    poll_pause,
    stream_pause,
)
from tests.core.strategies import law

STATUSES = range(200, 600)
ANSWERED = [
    Ending(
        kind=kind,
        status=status,
        body=body,
        in_session=in_session,
        names_session=names_session,
        was_open=was_open,
    )
    for kind, status, body, in_session, names_session, was_open in product(
        get_args(Kind), STATUSES, get_args(Body), (False, True), (False, True), (False, True)
    )
]
UNANSWERED = [
    Ending(kind=kind, arrival=arrival, in_session=in_session, was_open=was_open)
    for kind, arrival, in_session, was_open in product(
        get_args(Kind), get_args(Arrival)[:2], (False, True), (False, True)
    )
]
ALL = [*ANSWERED, *UNANSWERED]
REQUESTS = [ending for ending in ALL if ending.kind == "request"]
pauses = st.none() | st.floats(0, 1e12)


def test_a_request_that_may_have_run_is_never_called_undelivered():
    """What is not delivered is sent again whatever it does: that may only be what cannot have run."""
    for ending in ALL:
        verdict = judge(ending)
        assert not (verdict.outcome == "not delivered" and verdict.may_have_run)
        if verdict.outcome == "not delivered":
            refusals = (400, 401, 404, 410) if ending.kind == "post" else (400, 401, 404)
            assert ending.arrival == "not sent" or ending.status in refusals


def test_the_server_s_own_error_is_told_whatever_the_status_and_disturbs_nobody():
    """Under the request's own id it is the answer, with an issued session and without."""
    for ending in ANSWERED:
        if ending.kind in ("request", "poll") and ending.body == "error":
            assert judge(ending).outcome == "error"
            assert not judge(ending).ends_connection
            assert not judge(ending).again


def test_a_session_is_lost_only_where_one_was_issued_and_the_server_says_so():
    """404 says so by itself, 400 and 401 with a text that names the session."""
    for ending in REQUESTS:
        says_so = ending.status == 404 or (ending.status in (400, 401) and ending.names_session)
        lost = ending.arrival == "answered" and ending.in_session and says_so and ending.body != "error"
        assert judge(ending).ends_connection is (lost or ending.arrival == "not sent")


def test_a_result_counts_with_a_status_of_success_alone():
    """And whatever has a status of success may have run."""
    for ending in ANSWERED:
        if ending.kind == "request":
            assert (judge(ending).outcome == "result") is (ending.is_success and ending.body == "result")
            if ending.is_success or ending.status >= 500:
                assert judge(ending).may_have_run


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 409, 413, 429])
def test_a_refusal_without_a_response_has_not_run(status: int):
    """Redirects that are not followed included."""
    assert judge(Ending(status=status)).outcome == "no response"
    assert not judge(Ending(status=status)).may_have_run


@pytest.mark.parametrize("status", [408, 499, 500, 502, 503, 504])
def test_after_a_timeout_or_a_failure_it_is_unclear_whether_it_has_run(status: int):
    """These come from intermediaries too, which do not know what the server has done."""
    assert judge(Ending(status=status, body="other")).may_have_run


def test_a_message_over_http_sse_concerns_others_only_where_the_session_is_not_known():
    """404 and 410 say so by themselves, 400 and 401 with a text that names the session; a session is always there."""
    for ending in ALL:
        if ending.kind == "post":
            says_so = ending.status in (404, 410) or (ending.status in (400, 401) and ending.names_session)
            assert judge(ending).ends_connection is says_so
            if ending.status in range(300, 500) and not says_so:
                assert (judge(ending).outcome, judge(ending).may_have_run) == ("no response", False)
            elif ending.status >= 500:
                assert (judge(ending).outcome, judge(ending).may_have_run) == ("no response", True)
    assert judge(Ending(kind="post", arrival="not sent")).outcome == "not delivered"
    assert judge(Ending(kind="post", arrival="broken")).outcome == "lost"


def test_an_answer_that_breaks_off_is_lost():
    """It may have run, so that it is sent again only where that does no harm."""
    assert judge(Ending(status=200, body="broken off")).outcome == "lost"
    assert judge(Ending(arrival="broken")).outcome == "lost"


def test_a_notification_harms_nobody_however_it_ends():
    """Nothing is told, sent again or ended."""
    for ending in ALL:
        if ending.kind == "notification":
            verdict = judge(ending)
            assert (verdict.outcome, verdict.ends_connection, verdict.again) == ("nothing", False, False)


def test_the_server_s_own_stream_is_tried_again_unless_the_server_has_none():
    """A server that is gone, or does not know the session any more, ends the connection instead."""
    for status in (403, 408, 409, 425, 429, 500, 502, 503, 504):
        for was_open in (False, True):
            assert judge(Ending(kind="stream", status=status, in_session=True, was_open=was_open)).again
    for was_open in (False, True):
        assert judge(Ending(kind="stream", arrival="broken", was_open=was_open)).again
        assert not judge(Ending(kind="stream", status=405, was_open=was_open)).again
        assert not judge(Ending(kind="stream", status=200, body="other", was_open=was_open)).again
    assert judge(Ending(kind="stream", arrival="not sent")).again
    assert judge(Ending(kind="stream", arrival="not sent", was_open=True)).ends_connection
    assert judge(Ending(kind="stream", status=404, in_session=True, was_open=True)).ends_connection
    unknown = Ending(kind="stream", status=400, in_session=True, names_session=True, was_open=True)
    assert judge(unknown).ends_connection
    assert not judge(Ending(kind="stream", status=404, in_session=True)).ends_connection


def test_a_poll_never_ends_the_connection():
    """What it means for the request is told at its end."""
    for ending in ALL:
        if ending.kind == "poll":
            assert not judge(ending).ends_connection
            assert judge(ending).outcome in ("result", "error", "no response", "lost", "nothing")


@law
@given(asked=pauses, fruitless=st.integers(0, 10**6))
def test_pauses_are_bounded_and_grow_while_nothing_comes(asked: float | None, fruitless: int):
    """The server's wish counts, but not for less than a second where there is nothing to fetch."""
    for pause in (poll_pause, stream_pause):
        one, next_one = pause(asked, fruitless), pause(asked, fruitless + 1)
        assert 0 < one <= next_one or (fruitless == 0 and one <= MAX_ASKED_PAUSE_S)
        assert next_one >= MIN_PAUSE_S
        assert next_one <= MAX_ASKED_PAUSE_S
        assert next_one >= min(asked or 0, MAX_ASKED_PAUSE_S)
    assert stream_pause(asked, fruitless) >= MIN_PAUSE_S
    assert stream_pause(None, 10**6) == MAX_STREAM_PAUSE_S
    assert poll_pause(0, 0) >= MIN_PAUSE_S
