"""Answers the first requests of a client on stdio in a thread, while the rest of the program is imported.

Some clients wait one second for their servers. With the standard library alone, besides what the configuration needs.
"""

import os
import select
import sys
import threading
from dataclasses import dataclass
from typing import Final

from proxy.face.early_answers import EarlyAnswers, RequestKey
from proxy.wire.lines import LineBuffer
from proxy.wire.standard_streams import StandardStreams, can_be_polled

CHUNK: Final = 64 * 1024
READ_LIMIT: Final = 1024 * 1024
"""Approximate limit of the input that is read here, in bytes; the server reads the rest."""
UNWRITTEN_LIMIT: Final = 256 * 1024
"""Approximate limit of the answers that the client has not read yet, in bytes; the server gives the rest."""
SWITCH_INTERVAL_S: Final = 0.001
"""Seconds after which the thread that imports lets the one that answers run (Python's default: 0.005)."""


@dataclass(frozen=True)
class Handover:
    """What the server takes over: the streams, the input that was read, and how far it was answered."""

    streams: StandardStreams
    read: bytes = b""
    """All that the client has sent so far, from the first byte on."""

    answered: tuple[RequestKey, ...] = ()
    """The requests in it that were answered."""

    unwritten: bytes = b""
    """The part of the answers that the client has not read yet."""


class EarlyResponder:
    """Reads the first requests of a client, and writes their answers, until the server takes over."""

    def __init__(self, streams: StandardStreams, answers: EarlyAnswers) -> None:
        self._streams = streams
        self._answers = answers
        self._buffer = LineBuffer()
        self._read = bytearray()
        self._answered: list[RequestKey] = []
        self._unwritten = bytearray()
        self._reads = streams.polled and all(map(can_be_polled, (streams.stdin, streams.stdout)))
        self._thread: threading.Thread | None = None
        self._wake: tuple[int, int] | None = None
        self._interval = sys.getswitchinterval()
        if self._reads:
            os.set_blocking(streams.stdout, False)

    def answer_pending_input(self) -> None:
        """Answer what the client has sent by now, without waiting for more."""
        while self._turn(wait=False):
            pass

    def start(self) -> None:
        """Answer what comes from now on, in a thread that does not keep the process alive."""
        if self._reads or self._unwritten:
            self._wake = os.pipe()
            self._thread = threading.Thread(target=self._run, name="early responder", daemon=True)
            sys.setswitchinterval(SWITCH_INTERVAL_S)
            self._thread.start()

    def stop(self) -> Handover:
        """Stop reading, and return what the server has to take over."""
        if self._thread is not None and self._wake is not None:
            os.write(self._wake[1], b"\0")
            self._thread.join()
            for end in self._wake:
                os.close(end)
            sys.setswitchinterval(self._interval)
        return Handover(self._streams, bytes(self._read), tuple(self._answered), bytes(self._unwritten))

    def _run(self) -> None:
        while self._turn(wait=True):
            pass

    def _turn(self, *, wait: bool) -> bool:
        """Read or write once, whatever is possible; False when there is nothing to do, or `stop` was called."""
        poll = select.poll()
        if self._reads:
            poll.register(self._streams.stdin, select.POLLIN)
        if self._unwritten:
            poll.register(self._streams.stdout, select.POLLOUT)
        if not self._reads and not self._unwritten:
            return False
        if self._wake is not None:
            poll.register(self._wake[0], select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if wait else 0)}
        if self._wake is not None and self._wake[0] in ready:
            return False
        if self._streams.stdout in ready:
            self._write()
        if self._streams.stdin in ready:
            self._take(self._input())
        return bool(ready)

    def _input(self) -> bytes:
        """What can be read now; empty at the end, which a failing stream has come to as well."""
        try:
            return os.read(self._streams.stdin, CHUNK)
        except OSError:
            return b""

    def _take(self, chunk: bytes) -> None:
        self._read += chunk
        if not chunk or len(self._read) > READ_LIMIT:
            self._reads = False
        for line in self._buffer.feed(chunk):
            answer = None if len(self._unwritten) > UNWRITTEN_LIMIT else self._answers.answer(line)
            if answer is None:
                self._reads = False
                break
            if answer.request is not None:
                self._answered.append(answer.request)
                self._unwritten += answer.line
                self._write()

    def _write(self) -> None:
        """Write what the client takes without waiting; whether the output is closed is for the server to find out."""
        try:
            written = os.write(self._streams.stdout, self._unwritten)
        except BlockingIOError:
            return
        except OSError:
            self._reads, written = False, len(self._unwritten)
        del self._unwritten[:written]
