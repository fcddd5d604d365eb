"""Passes HTTP on to another port of this machine, byte by byte, and records the messages that it carries."""

import http.client
import io
import socket
import socketserver
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from email.message import Message

from wire_log import CLIENT, PROXY, WireLog

RECORDED_HEADERS = ("mcp-", "user-agent", "accept", "content-type", "last-event-id")
"""How the headers begin that are recorded."""
CHUNK = 65536


class _Tee(io.RawIOBase):
    """What one socket sends, passed on to another as it is read."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self._source, self._target = source, target
        self.received = 0.0
        """When the latest bytes came, on the machine's monotonic clock."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        size = self._source.recv_into(buffer)
        self.received = time.monotonic()
        self._target.sendall(buffer[:size])
        return size


class _ChunkedBody(io.RawIOBase):
    """The body in a chunked message."""

    def __init__(self, source: io.BufferedIOBase) -> None:
        self._source, self._left, self._ended = source, 0, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        if self._left == 0 and not self._ended:
            self._next_chunk()
        data = self._source.read1(min(self._left, len(buffer))) if self._left else b""
        buffer[: len(data)] = data
        self._left -= len(data)
        if data and self._left == 0:
            self._source.readline()
        return len(data)

    def _next_chunk(self) -> None:
        self._left = int(self._source.readline().partition(b";")[0] or b"0", 16)
        if self._left == 0:
            self._ended = True
            while self._source.readline().strip():
                pass  # trailers


def _record(tee: _Tee, reader: io.BufferedIOBase, side: str, log: WireLog) -> None:
    """Record what comes, message by message, until the end."""
    while start := reader.readline():
        if not start.strip():
            continue
        headers = http.client.parse_headers(reader)
        kept = {name: value for name, value in headers.items() if name.lower().startswith(RECORDED_HEADERS)}
        log.note(side, tee.received, http=start.decode(errors="replace").strip(), headers=kept)
        body = _body(reader, start, headers)
        if headers.get_content_type() == "text/event-stream":
            for event in _events(body):
                log.note_message(side, tee.received, event)
        elif text := body.read():
            log.note_message(side, tee.received, text)


def _body(reader: io.BufferedIOBase, start: bytes, headers: Message) -> io.BufferedIOBase:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return io.BufferedReader(_ChunkedBody(reader))
    if (length := headers.get("content-length")) is not None:
        return io.BytesIO(reader.read(int(length)))
    is_response = start.startswith(b"HTTP/")
    return reader if is_response and start.split()[1] not in {b"100", b"204", b"304"} else io.BytesIO()


def _events(body: io.BufferedIOBase) -> Iterator[bytes]:
    """The data of each event that has some."""
    data = b""
    for line in body:
        if line.startswith(b"data:"):
            data += line[5:].strip()
        elif not line.strip() and data:
            yield data
            data = b""


def _pass_on(source: socket.socket, target: socket.socket, side: str, log: WireLog) -> None:
    tee = _Tee(source, target)
    reader = io.BufferedReader(tee, CHUNK)
    try:
        _record(tee, reader, side, log)
    except (ValueError, http.client.HTTPException) as error:
        log.note(side, tee.received, unreadable=f"{type(error).__name__}: {error}")
        with suppress(OSError):
            while reader.read1(CHUNK):
                pass
    except OSError:
        pass  # one side closed the connection
    finally:
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RD if end is source else socket.SHUT_WR)


@contextmanager
def relay(port: int, log: WireLog) -> Generator[int]:
    """A port that leads to `port` inside the block."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            client: socket.socket = self.request
            with socket.create_connection(("127.0.0.1", port)) as proxy:
                for end in (client, proxy):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                answers = threading.Thread(target=_pass_on, args=(proxy, client, PROXY, log), daemon=True)
                answers.start()
                _pass_on(client, proxy, CLIENT, log)
                answers.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(5)
