"""The program: arguments, and which command they name."""

import argparse
import gc
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from proxy import __version__
from proxy.cli.exits import GOOD, INTERRUPTED, REFUSED
from proxy.cli.light_imports import import_pydantic, import_structlog
from proxy.core.masking import Masker
from proxy.core.scope import NAMESPACE, ScopeId, client_scope
from proxy.core.server import Server
from proxy.core.texts import printable

if TYPE_CHECKING:
    from proxy.cli.client_view import ClientView
    from proxy.config.load import Loaded

LAST_PORT: Final = 65535


def _port(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) <= LAST_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is no port: a number from 0 to {LAST_PORT}")


def _limit(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is no number of runs: write 1 or more")


def _namespace(text: str) -> str:
    if re.fullmatch(NAMESPACE, text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is no name: 1 to 128 of A-Z a-z 0-9 . _ ~ -, not dots alone")


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
    serve.add_argument("--host", help="with http: address to bind to (default: 127.0.0.1)")
    serve.add_argument("--port", type=_port, metavar="PORT", help="with http: port, 0 for a free one (default: 8765)")
    serve.add_argument("--namespace", type=_namespace, metavar="NAME", help="with stdio: the scope of the client")
    serve.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help="instead of proxy.log_level")

    # For the program that `try` starts, which says what is wrong with them:
    serve.add_argument("--principal", help=argparse.SUPPRESS)
    serve.add_argument("--trial", action="store_true", help=argparse.SUPPRESS)

    client = argparse.ArgumentParser(add_help=False)
    client.add_argument("--namespace", type=_namespace, metavar="NAME", help="as the client in this namespace")
    client.add_argument("--principal", metavar="NAME", help="as this user of proxy.tokens")

    check = commands.add_parser(
        "check", parents=[config, client], help="validate the configuration and try its servers"
    )
    check.add_argument("--offline", action="store_true", help="validate alone, start no server")

    init = commands.add_parser(
        "init",
        help="write a configuration with one skill per server",
        description="Write a configuration with one skill per server, ready to edit.",
        epilog="example:\n  mcp-skill-proxy init --from claude_desktop_config.json --output my-skills.yaml",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    init.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="a client's config (.json, .toml) or a .yaml of servers (default: begin with one server, time)",
    )
    init.add_argument(
        "--output",
        type=Path,
        default=Path("skills.yaml"),
        metavar="FILE",
        help="where to write it (default: skills.yaml; - prints it)",
    )

    attempt = commands.add_parser(
        "try",
        parents=[config, client],
        help="act as a client and show what one sees",
        description="Act as a client and show what one sees: lists of tools, a skill activated, a tool called.\n"
        "For the estimate at the end it starts the servers of all skills.",
        epilog="example:\n  mcp-skill-proxy try --config skills.yaml --skill repository --call git__git_log \\\n"
        """      --arguments '{"repo_path": "/path/to/repository", "max_count": 3}'""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    attempt.add_argument(
        "--skill", metavar="ID", help="the skill to activate (default: the first that has tools and is not active yet)"
    )
    attempt.add_argument(
        "--call", metavar="TOOL", help="the tool to call (default: one of the skill's that needs no thought)"
    )
    attempt.add_argument(
        "--arguments", metavar="JSON", help="with --call: its arguments (default: made from its schema, where it says)"
    )
    _complete_why(
        commands.add_parser(
            "why",
            parents=[config, client],
            help="explain why clients see a tool or do not",
            description="Explain why a client sees a tool or does not, and what would change it.\n"
            "It starts the servers of all skills, as check does.",
            epilog="example:\n  mcp-skill-proxy why git_log --config skills.yaml",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    _complete_runs(commands.add_parser("runs", help="show what became of runs of skills"), config)
    _complete_pins(commands.add_parser("pins", help="show pinned definitions of tools, and approve changed ones"))
    _complete(commands.add_parser("skills", help="install, remove, list and validate skill packages"))
    return top


def _complete(skills: argparse.ArgumentParser) -> None:
    """The grammar of `skills`."""
    actions = skills.add_subparsers(dest="skills_command", required=True, metavar="ACTION")

    add = actions.add_parser("add", help="install a skill from a folder, a .zip or a .tar.gz")
    add.add_argument("source", type=Path, metavar="SOURCE", help="the folder or archive")
    add.add_argument("--to", type=Path, metavar="DIR", help="where to (default: the user's data folder)")
    add.add_argument("--as", dest="as_id", metavar="ID", help="the id (default: its folder's name, or its own)")
    add.add_argument("--sha256", metavar="HEX", help="refuse what has another SHA-256")

    remove = actions.add_parser("remove", help="remove a skill that was installed")
    remove.add_argument("id", metavar="ID", help="the skill's id")
    remove.add_argument("--from", dest="source", type=Path, metavar="DIR", help="where from (default: as add)")

    listing = actions.add_parser("list", help="list skills, why some are not offered, and what has changed in them")
    listed = listing.add_mutually_exclusive_group()
    listed.add_argument("--config", type=Path, metavar="FILE", help="all that this configuration has")
    listed.add_argument("--from", dest="source", type=Path, metavar="DIR", help="what is installed here (as add)")

    validate = actions.add_parser("validate", help="say what is wrong with skills")
    validate.add_argument("path", type=Path, nargs="+", metavar="DIR", help="a skill, or a folder with skills")
    validate.add_argument("--config", type=Path, metavar="FILE", help="the configuration whose servers they may name")


def _complete_why(why: argparse.ArgumentParser) -> None:
    """The grammar of `why`."""
    why.add_argument("tool", metavar="TOOL", help="as clients see it, SERVER/TOOL, SERVER.TOOL or its own name")
    why.add_argument(
        "--offline", action="store_true", help="by what servers offered last, as a proxy kept it; start none"
    )


def _complete_pins(pins: argparse.ArgumentParser) -> None:
    """The grammar of `pins`."""
    actions = pins.add_subparsers(dest="pins_command", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list the tools that clients were granted, and which are held")
    approve = actions.add_parser("approve", help="grant the changed definitions of tools that are held")
    approve.add_argument("name", nargs="*", metavar="SERVER[/TOOL]", help="which of them (default: all)")
    for action in (listing, approve):
        action.add_argument("--config", type=Path, metavar="FILE", help="those of this configuration (default: of all)")


def _complete_runs(runs: argparse.ArgumentParser, config: argparse.ArgumentParser) -> None:
    """The grammar of `runs`."""
    actions = runs.add_subparsers(dest="runs_command", required=True, metavar="ACTION")

    listing = actions.add_parser("list", parents=[config], help="list runs, the newest first")
    listing.add_argument("--skill", metavar="ID", help="those of this skill alone")
    listing.add_argument("--limit", type=_limit, default=20, metavar="N", help="at most so many (default: 20)")

    show = actions.add_parser("show", parents=[config], help="show all that is known of a run")
    show.add_argument("id", metavar="ID", help="the run's id, or a beginning of it that no other has")

    for action, printed in ((listing, "one object a line"), (show, "one object")):
        action.add_argument("--json", action="store_true", help=f"print JSON, {printed}")


def _check_serve(grammar: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Refuse what the chosen transport would ignore."""
    http = arguments.transport == "http"
    if not http and (arguments.host is not None or arguments.port is not None):
        grammar.error("--host and --port are for --transport http")
    if http and (arguments.trial or arguments.principal is not None):
        grammar.error("--trial and --principal are for --transport stdio")
    if http and arguments.namespace is not None:
        grammar.error("--namespace is for --transport stdio; over HTTP the namespace is in the URL: /mcp/NAME")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    grammar = parser()
    arguments = grammar.parse_args(argv)
    if arguments.command == "serve":
        _check_serve(grammar, arguments)
    gc.disable()  # until all is there: looking for garbage among what is imported takes a tenth of the start
    import_pydantic()
    from proxy.config.load import Refused, load  # noqa: PLC0415 - with the collector off

    try:
        if arguments.command == "init":
            from proxy.cli.init import init  # noqa: PLC0415 - each command pays for its own imports alone

            code = init(arguments.source, arguments.output)
        elif arguments.command == "pins":
            from proxy.cli.pins import pins  # noqa: PLC0415 - as above

            code = pins(None if arguments.config is None else load(arguments.config, os.environ), arguments)
        elif arguments.command == "skills":
            from proxy.cli.skills import skills  # noqa: PLC0415 - as above

            code = skills(arguments)
        else:
            code = _run(arguments, load(arguments.config, os.environ))
        print(end="", flush=True)  # that nobody reads is told here, not once the program is over
    except Refused as refused:
        for problem in refused.problems:
            print(printable(str(problem)), file=sys.stderr)
        return REFUSED
    except BrokenPipeError:  # who reads has read enough (`| head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return GOOD
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        gc.enable()
    return code


def _run(arguments: argparse.Namespace, loaded: "Loaded") -> int:
    if arguments.command == "serve":
        return _serve(arguments, loaded)
    if arguments.command == "check":
        from proxy.cli.check import check  # noqa: PLC0415 - as above

        return check(loaded, _named_client(arguments, loaded), offline=arguments.offline)
    if arguments.command == "why":
        from proxy.cli.why import why  # noqa: PLC0415 - as above

        return why(loaded, _named_client(arguments, loaded), arguments.tool, offline=arguments.offline)
    if arguments.command == "runs":
        from proxy.cli.runs import runs  # noqa: PLC0415 - as above

        return runs(loaded, arguments)
    from proxy.cli.attempt import attempt  # noqa: PLC0415 - as above

    return attempt(loaded, _client(arguments, loaded), arguments.skill, arguments.call, arguments.arguments)


def _named_client(arguments: argparse.Namespace, loaded: "Loaded") -> "ClientView | None":
    """The client that is named, if one is."""
    named = arguments.namespace is not None or arguments.principal is not None
    return _client(arguments, loaded) if named else None


def _client(arguments: argparse.Namespace, loaded: "Loaded") -> "ClientView":
    """The client that `--namespace` and `--principal` name."""
    from proxy import logs  # noqa: PLC0415 - as above
    from proxy.cli.client_view import client_view  # noqa: PLC0415 - as above

    logs.configure("error", Masker(loaded.secrets))
    return client_view(loaded, arguments.namespace, arguments.principal)


def _serve(arguments: argparse.Namespace, loaded: "Loaded") -> int:
    """Answer a client on stdio and start what is needed at once; then import what is heavy, and serve."""
    _open_standard_streams()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)  # until the program can end in order
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _go_on)  # the configuration has just been read
    own = client_scope(arguments.namespace, arguments.principal)
    first = None
    if arguments.transport == "stdio":
        from proxy.face.early_answers import EarlyAnswers  # noqa: PLC0415 - for clients on stdio alone
        from proxy.face.early_responder import EarlyResponder  # noqa: PLC0415 - as above
        from proxy.wire.standard_streams import claim  # noqa: PLC0415 - as above

        first = EarlyResponder(claim(), EarlyAnswers(loaded.policy, loaded.settings, own))
        first.answer_pending_input()
    from proxy.upstream.spawn import Early  # noqa: PLC0415 - a client that waits comes first

    with Early(() if first is None else _at_once(loaded, own)) as early:
        if first is not None:
            first.start()
        import_structlog()
        from proxy.cli.serve import serve  # noqa: PLC0415 - as above, and while it is imported, servers start

        return serve(loaded, arguments, own, early, first)


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(GOOD)


def _go_on(_number: int, _frame: FrameType | None) -> None:
    pass


def _at_once(loaded: "Loaded", own: ScopeId) -> Iterator[Server]:
    """The servers that are needed from the start."""
    active = loaded.policy.at_once(own)
    for key in loaded.policy.of(own).needed:
        server = loaded.servers.get(key)
        if server is not None and (key in active or server.eager):
            yield server


def _open_standard_streams() -> None:
    """Lead closed standard descriptors to nowhere, or whatever opens next would get their numbers."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
    if sys.__stderr__ is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - open as long as the program
