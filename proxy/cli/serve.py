"""`serve`: run the proxy until the client is gone or a signal comes."""

import argparse
import gc
import json
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from socket import socket
from typing import TypeAlias

import anyio
import structlog
from anyio.abc import TaskStatus

from proxy import logs
from proxy.app import Running, running
from proxy.cli.client_view import remembered
from proxy.cli.exits import GOOD, REFUSED
from proxy.cli.hangup import Hangup
from proxy.config.load import Loaded, Refused
from proxy.config.reload import Reload, Watcher
from proxy.core.masking import Masker
from proxy.core.scope import ScopeId
from proxy.core.texts import printable
from proxy.face.early_responder import EarlyResponder
from proxy.face.http import CannotListen, listen, serve_http
from proxy.face.stdio import serve_stdio
from proxy.store.trial import TrialStore
from proxy.upstream.spawn import Early
from proxy.wire.descriptors import raise_limit

log = structlog.stdlib.get_logger("proxy")

Face: TypeAlias = Callable[[Running], Awaitable[None]]
"""Serves the clients of a proxy that runs."""

DEFAULT_PORT = 8765
MOST_SHOWN = 30
"""Skills that are named when the proxy starts."""
WAITING = "Waiting for an MCP client on standard input; --transport http serves over HTTP."


def serve(
    loaded: Loaded, arguments: argparse.Namespace, own: ScopeId, early: Early, first: EarlyResponder | None
) -> int:
    """Serve clients by `loaded`; the exit code is 0 after a signal or the end of input.

    `own`: the scope of the one client over stdio. `early`: servers that were started while this was imported. `first`:
    who answers the client on stdio until then, None over HTTP.
    """
    raise_limit()
    masker = Masker(loaded.secrets)
    logs.configure(arguments.log_level or loaded.settings.log_level, masker)
    for note in loaded.notes:
        log.warning("config.note", note=note)
    for left in loaded.left_out:
        log.info("skill.not_offered", skill=left.id, file=left.file, why=left.why)
    if not loaded.catalogue.skills:
        log.error("config.nothing_offered", file=str(loaded.path), why="no enabled skill: clients will see no tool")
    if first is not None:
        face: Face = partial(_over_stdio, first)
    else:
        host: str = arguments.host or "127.0.0.1"
        try:
            bound = listen(host, DEFAULT_PORT if arguments.port is None else arguments.port, loaded.settings)
        except CannotListen as problem:
            print(f"mcp-skill-proxy: {printable(str(problem))}", file=sys.stderr)
            return REFUSED
        face = partial(_over_http, bound, host)
    trial = TrialStore(loaded.settings.max_scopes, remembered(loaded, own)[0]) if arguments.trial else None
    proxy = running(loaded, None if first is None else own, early, masker, trial)
    anyio.run(partial(_serve, proxy, Watcher(loaded, os.environ), face))
    return GOOD


async def _serve(proxy: AbstractAsyncContextManager[Running], watcher: Watcher, face: Face) -> None:
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as starting:
            work = [starting]
            # The receiver outlives the work: a second signal must not end the program before its servers have ended.
            await tasks.start(_obey_signals, work, watcher)
            tasks.start_soon(_tell_repeated)
            async with proxy as served:
                gc.freeze()  # what has been imported stays: no collection has to look at it again
                gc.enable()
                with anyio.CancelScope() as serving:
                    work.append(serving)  # what is ended from here on still has its servers
                    async with anyio.create_task_group() as reloading:
                        reloading.start_soon(watcher.run, partial(_reload, served))
                        await face(served)
                        reloading.cancel_scope.cancel()
        tasks.cancel_scope.cancel()


async def _tell_repeated() -> None:
    """Say now and then which lines of the log were left out."""
    while True:
        await anyio.sleep(logs.FOLD_WITHIN)
        logs.tell_repeated()


async def _over_stdio(first: EarlyResponder, served: Running) -> None:
    opened = first.stop()
    if os.isatty(opened.streams.stdin):
        print(WAITING, file=sys.stderr, flush=True)
    limit = served.loaded.settings.max_message_size
    await serve_stdio(served.server, opened, served.reads.give_up_all, limit)


async def _over_http(bound: socket, host: str, served: Running) -> None:
    await serve_http(served.http(host), bound, partial(_tell, served, bound), served.reads.give_up_all)


async def _reload(proxy: Running, reload: Reload) -> None:
    try:
        await proxy.reload(reload.loaded, full=reload.full)
    except Refused:
        raise
    except Exception:  # boundary: whatever is wrong with a change, the clients that are there go on
        log.exception("config.not_applied")


async def _obey_signals(work: Sequence[anyio.CancelScope], watcher: Watcher, *, task_status: TaskStatus[None]) -> None:
    """SIGINT and SIGTERM end the last of `work`, SIGHUP has the configuration read, where the terminal is not gone."""
    if sys.platform == "win32":
        task_status.started()
        return
    hangup = Hangup()
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            meaning = await hangup.meaning() if number == signal.SIGHUP else "end"
            if meaning == "read":
                watcher.hangup()
            elif meaning == "end":
                log.info("proxy.stopping", signal=number.name)
                work[-1].cancel()


def _tell(proxy: Running, bound: socket) -> None:
    """Say on stderr where the proxy is, what it offers, and how to point a client at it."""
    host, port = bound.getsockname()[:2]
    host = "localhost" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host  # noqa: S104 - compared
    url = f"http://{host}:{port}/mcp"
    skills = proxy.loaded.catalogue.skills
    token = ' --header "Authorization: Bearer TOKEN"' if proxy.loaded.settings.tokens else ""
    claude = f"claude mcp add --transport http skills {url}{token}"
    entry = json.dumps({"mcpServers": {"skills": {"type": "http", "url": url}}})
    if not sys.stderr.isatty():  # where nobody reads along, everything is one event
        ids = [skill.id for skill in skills[:MOST_SHOWN]]
        log.info("proxy.ready", url=url, count=len(skills), skills=ids, claude_code=claude, entry=entry)
        return
    width = shutil.get_terminal_size().columns - 2
    lines = [f"mcp-skill-proxy serves {printable(str(proxy.loaded.path))} at {url} (Ctrl-C ends it)", "", "Skills:"]
    for skill in skills[:MOST_SHOWN]:
        state = " (active at once)" if skill.active or skill.pinned else ""
        shown = printable(f"{skill.id}{state}: {skill.desc or skill.name}")
        lines.append("  " + textwrap.shorten(shown, width, placeholder="…"))
    if len(skills) > MOST_SHOWN:
        lines.append(f"  … and {len(skills) - MOST_SHOWN:,} more: skills list --config {proxy.loaded.path} shows all")
    lines += ["", "Point a client at it (the README has each client's own form):", f"  {claude}", f"  {entry}"]
    lines += [f"  an agent with skills of its own: {url}/NAME", ""]
    print("\n".join(lines), file=sys.stderr, flush=True)
