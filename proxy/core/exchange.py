"""What the ending of an exchange with a server over HTTP means: one table for every way to end."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["request", "post", "notification", "stream", "poll"]
"""A POST that wants a response; one of HTTP+SSE (2024-11-05), to which the response comes on another stream; one that
wants none; the GET for what the server says unasked; the GET (2025-11-25, resumability) for the rest of a response that
broke off."""
Arrival: TypeAlias = Literal["not sent", "broken", "answered"]
"""The server was not reached; the connection broke before an answer; an HTTP answer came."""
Body: TypeAlias = Literal["result", "error", "foreign error", "empty", "other", "past bounds", "broken off"]
"""What an answer holds: a JSON-RPC result or error under the id of the request; an error under none or another;
nothing; something that is not a response; more than is read; the beginning of something, or a stream that ended before
the response."""
Outcome: TypeAlias = Literal["result", "error", "no response", "not delivered", "lost", "nothing"]
"""What the client is told: the server's result or error; that there is no response; that nothing was sent (so that it
is sent once more on a new connection); that the answer was lost (sent once more where that does no harm); nothing."""

UNKNOWN_SESSION_STATUSES: Final = (400, 401)
"""With which some servers refuse a session that they do not know; the specification has 404 for that."""
_MAY_HAVE_RUN: Final = (408, 499)
"""Statuses of the 4xx range that intermediaries give when the server has taken too long."""
_NO_STREAM: Final = (204, 205, 400, 404, 405, 406, 410, 415, 501)
"""With which a server says that it has no stream of its own; any other refusal may pass."""
MIN_PAUSE_S: Final = 1.0
MAX_POLL_PAUSE_S: Final = 10.0
"""Seconds between two polls for one response, at most, unless the server asks for more."""
MAX_STREAM_PAUSE_S: Final = 60.0
"""Seconds between two attempts at the server's own stream, at most, unless the server asks for more."""
MAX_ASKED_PAUSE_S: Final = 300.0
"""Seconds that a server can have us wait, by `retry` or `Retry-After`."""
MAX_FAILED_POLLS: Final = 5
"""Polls in a row that fail before the response counts as lost."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How one exchange ended."""

    kind: Kind = "request"
    arrival: Arrival = "answered"
    status: int = 0
    """The HTTP status; 0 where none came."""
    body: Body = "empty"
    in_session: bool = False
    """It carried a session id that the server had issued (only the handshake era has sessions)."""
    names_session: bool = False
    """The text of the answer speaks of a session."""
    was_open: bool = False
    """The server's own stream had been open before on this connection."""

    @property
    def is_success(self) -> bool:
        """Whether the status is one of success."""
        return self.status in range(200, 300)


@dataclass(frozen=True)
class Verdict:
    """What an ending means."""

    outcome: Outcome
    may_have_run: bool = False
    ends_connection: bool = False
    """The connection is of no use any more: the next request opens another, with a session of its own."""
    again: bool = False
    """The same GET is sent again after a pause."""


RESULT: Final = Verdict("result", may_have_run=True)
ERROR: Final = Verdict("error", may_have_run=True)
UNREACHABLE: Final = Verdict("not delivered", ends_connection=True)
NOT_SENT: Final = Verdict("not delivered")
"""The connection is another one, which may be well."""
SESSION_LOST: Final = UNREACHABLE
LOST: Final = Verdict("lost", may_have_run=True)
NOT_RUN: Final = Verdict("no response")
UNCLEAR: Final = Verdict("no response", may_have_run=True)
NOTHING: Final = Verdict("nothing")
LATER: Final = Verdict("nothing", again=True)
GONE: Final = Verdict("nothing", ends_connection=True)


@dataclass(frozen=True)
class _Row:
    """Endings of one kind, whose members are all among these, and what they mean; None stands for any."""

    verdict: Verdict
    arrival: Arrival | None = None
    statuses: Container[int] | None = None
    bodies: Container[Body] | None = None
    in_session: bool | None = None
    names_session: bool | None = None
    was_open: bool | None = None

    def has(self, ending: Ending) -> bool:
        """Whether an ending is one of this row."""
        return (
            self.arrival in (None, ending.arrival)
            and (self.statuses is None or ending.status in self.statuses)
            and (self.bodies is None or ending.body in self.bodies)
            and self.in_session in (None, ending.in_session)
            and self.names_session in (None, ending.names_session)
            and self.was_open in (None, ending.was_open)
        )


_SUCCESS: Final = range(200, 300)
_TABLE: Final[Mapping[Kind, tuple[_Row, ...]]] = {
    "request": (
        _Row(UNREACHABLE, arrival="not sent"),
        _Row(LOST, arrival="broken"),
        _Row(RESULT, statuses=_SUCCESS, bodies=("result",)),
        _Row(ERROR, bodies=("error",)),  # the server's own, whatever the status
        _Row(SESSION_LOST, statuses=(404,), in_session=True),
        _Row(SESSION_LOST, statuses=UNKNOWN_SESSION_STATUSES, in_session=True, names_session=True),
        _Row(ERROR, bodies=("foreign error",)),  # it could not tell the id of what it refuses
        _Row(UNCLEAR, statuses=_MAY_HAVE_RUN),
        _Row(NOT_RUN, statuses=range(300, 500)),
        _Row(LOST, bodies=("broken off",)),
        _Row(UNCLEAR),
    ),
    "post": (  # only those without a result; whoever is connected has a session
        _Row(NOT_SENT, arrival="not sent"),
        _Row(LOST, arrival="broken"),
        _Row(SESSION_LOST, statuses=(404, 410)),
        _Row(SESSION_LOST, statuses=UNKNOWN_SESSION_STATUSES, names_session=True),
        _Row(NOT_RUN, statuses=range(300, 500)),
        _Row(UNCLEAR),
    ),
    "poll": (
        _Row(LATER, arrival="not sent"),
        _Row(LATER, arrival="broken"),
        _Row(RESULT, statuses=_SUCCESS, bodies=("result",)),
        _Row(ERROR, bodies=("error",)),
        _Row(UNCLEAR, bodies=("past bounds",)),
        _Row(LATER, statuses=_SUCCESS, bodies=("broken off",)),
        _Row(LATER, statuses=(408, 409, 425, 429, *range(500, 600))),
        _Row(LOST),
    ),
    "stream": (
        _Row(GONE, arrival="not sent", was_open=True),
        _Row(LATER, arrival="not sent"),
        _Row(LATER, arrival="broken"),
        _Row(GONE, bodies=("past bounds",)),
        _Row(LATER, statuses=_SUCCESS, bodies=("broken off",)),
        _Row(GONE, statuses=(404,), in_session=True, was_open=True),
        _Row(GONE, statuses=UNKNOWN_SESSION_STATUSES, in_session=True, names_session=True, was_open=True),
        _Row(NOTHING, statuses=_NO_STREAM),
        _Row(NOTHING, statuses=range(200, 400)),
        _Row(LATER),
    ),
    "notification": (_Row(NOTHING),),
}


def judge(ending: Ending) -> Verdict:
    """What an ending means: by the first row that has it."""
    return next(row.verdict for row in _TABLE[ending.kind] if row.has(ending))


def poll_pause(asked: float | None, fruitless: int) -> float:
    """Seconds until the rest of a response is asked for.

    `asked`: seconds that the server asks for, None where it asks for none. `fruitless`: polls in a row that have
    brought nothing; as long as they bring something, the server's own pace is kept.
    """
    if asked and not fruitless:
        return min(asked, MAX_ASKED_PAUSE_S)
    return _growing(asked, fruitless, MAX_POLL_PAUSE_S)


def stream_pause(asked: float | None, fruitless: int) -> float:
    """Seconds until the server's own stream is opened again; the parameters are those of `poll_pause`."""
    return _growing(asked, fruitless, MAX_STREAM_PAUSE_S)


def _growing(asked: float | None, fruitless: int, most: float) -> float:
    """At least what the server asks for, within bounds, and a second, twice as long with each fruitless try."""
    grown = min(most, MIN_PAUSE_S * 2 ** min(max(0, fruitless - 1), 10))
    return max(grown, min(asked or 0.0, MAX_ASKED_PAUSE_S))
