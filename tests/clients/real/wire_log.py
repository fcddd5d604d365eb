"""Records the messages between a client and the proxy, and takes the proxy's place on stdio to do so.

    python -I -S wire_log.py WIRE.jsonl PROXY.log COMMAND...

runs COMMAND and passes each line on. An entry has the time (of the machine's monotonic clock), the side that spoke,
and the message, the head of an HTTP request or response, or that the proxy was started.
It imports little, since clients wait for it.
"""

import json
import signal
import subprocess
import sys
import threading
import time
from typing import IO

CLIENT, PROXY = "client", "proxy"


class WireLog:
    """The file that entries are appended to, from any thread."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "a", buffering=1, encoding="utf-8")  # noqa: PTH123, SIM115 - kept open; no pathlib
        self._lock = threading.Lock()

    def note(self, side: str, received: float, **entry: object) -> None:
        """Append what was received from a side, and when."""
        with self._lock:
            self._file.write(json.dumps({"time": received, "side": side, **entry}) + "\n")

    def note_message(self, side: str, received: float, text: bytes) -> None:
        """Append a message that was received from a side."""
        try:
            self.note(side, received, message=json.loads(text))
        except ValueError:
            self.note(side, received, unreadable=text[:500].decode(errors="replace"))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def stand_in(command: list[str], log: WireLog, errors: IO[bytes]) -> int:
    """Run the proxy with this process's own input and output; its exit code."""
    proxy = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
    assert proxy.stdin is not None
    assert proxy.stdout is not None
    log.note(PROXY, time.monotonic(), started=proxy.pid)
    signal.signal(signal.SIGTERM, lambda *_: proxy.terminate())
    inwards = (sys.stdin.buffer, proxy.stdin, CLIENT, log)
    threading.Thread(target=_pass_lines, args=inwards, daemon=True).start()
    _pass_lines(proxy.stdout, sys.stdout.buffer, PROXY, log)
    return proxy.wait()


def _pass_lines(source: IO[bytes], target: IO[bytes], side: str, log: WireLog) -> None:
    try:
        while line := source.readline():
            received = time.monotonic()
            target.write(line)
            target.flush()
            log.note_message(side, received, line)
        target.close()
    except (OSError, ValueError):
        return  # the other side is gone


def main() -> int:
    """Stand in for the proxy that the command line names."""
    path, errors, *command = sys.argv[1:]
    with open(errors, "ab") as file:  # noqa: PTH123 - no pathlib
        return stand_in(command, WireLog(path), file)


if __name__ == "__main__":
    sys.exit(main())
