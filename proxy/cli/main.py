"""The program: arguments, and which command they name."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from proxy import __version__
from proxy.config.load import Loaded, Refused, load

GOOD: Final = 0
LIVE_PROBLEM: Final = 1
"""The configuration is sound, but something live is not."""
REFUSED: Final = 2


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    top = argparse.ArgumentParser(
        prog="mcp-skill-proxy", description="A Model Context Protocol proxy: skills decide which tools a client sees."
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    config = argparse.ArgumentParser(add_help=False)
    config.add_argument("--config", type=Path, required=True, metavar="FILE", help="the YAML configuration")

    serve = commands.add_parser("serve", parents=[config], help="serve clients")
    serve.add_argument("--transport", choices=("stdio", "http"), default="stdio", help="default: stdio")
    serve.add_argument("--host", default="127.0.0.1", help="address to bind to, with http (default: 127.0.0.1)")
    serve.add_argument(
        "--port",
        type=int,
        choices=range(0x10000),
        default=8765,
        metavar="PORT",
        help="port to bind to, with http; 0 takes a free one",
    )
    serve.add_argument("--namespace", metavar="NAME", help="the scope of the client on stdio")
    serve.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help="instead of proxy.log_level")

    check = commands.add_parser("check", parents=[config], help="validate the configuration and try its servers")
    check.add_argument("--offline", action="store_true", help="validate alone, start no server")

    init = commands.add_parser("init", help="write a configuration with one skill per server")
    init.add_argument(
        "--from", dest="source", type=Path, metavar="FILE", help="a client's config, or a YAML of servers"
    )
    init.add_argument("--output", type=Path, metavar="FILE", help="where to write it (default: print it)")

    attempt = commands.add_parser("try", parents=[config], help="act as a client and show what one sees")
    attempt.add_argument("--skill", metavar="ID", help="the skill to activate (default: the first that has tools)")
    attempt.add_argument("--call", metavar="TOOL", help="the tool to call (default: one that needs no thought)")
    attempt.add_argument("--arguments", metavar="JSON", help="its arguments")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    arguments = parser().parse_args(argv)
    try:
        if arguments.command == "init":
            from proxy.cli.init import init  # noqa: PLC0415 - each command pays for its own imports alone

            return init(arguments.source, arguments.output)
        loaded = load(arguments.config, os.environ)
        return _run(arguments, loaded)
    except Refused as refused:
        for problem in refused.problems:
            print(problem, file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return GOOD


def _run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    if arguments.command == "serve":
        from proxy.cli.serve import serve  # noqa: PLC0415 - as above

        return serve(loaded, arguments)
    if arguments.command == "check":
        from proxy.cli.check import check  # noqa: PLC0415 - as above

        return check(loaded, offline=arguments.offline)
    from proxy.cli.attempt import attempt  # noqa: PLC0415 - as above

    return attempt(loaded, arguments.skill, arguments.call, arguments.arguments)
