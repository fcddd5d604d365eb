"""Runs the official MCP conformance suite against the upstream alone and against the proxy in front of it.

The suite's scenarios for skills run against a proxy that serves skills of its own.

Each run prints one line: the suite's version, the URL, the checks passed of those counted, and what was measured.
Exit code: 0 when every run has full marks, 1 when one has not or could not be measured. Without npm, or when npm cannot
install the suite, nothing is measured: exit code 1, or 0 with `--if-possible`.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
UPSTREAM = Path(__file__).with_name("upstream.py")
CACHE = ROOT / ".conformance"
PACKAGES = {"node": "24", "@modelcontextprotocol/conformance": "0.2.0-alpha.12"}
"""What npm installs: a Node that is new enough, and the suite."""
SUITE = CACHE / "node_modules" / "@modelcontextprotocol" / "conformance"
NODE = CACHE / "node_modules" / ".bin" / "node"

INSTALLING = 600.0
"""Seconds for npm."""
MEASURING = 600.0
"""Seconds for one run of the suite, which takes five when all is well."""
STARTING = 30.0
"""Seconds for a server until it is ready."""
ENDING = 10.0
"""Seconds for a server to end after SIGTERM."""

HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"
FULL_MARKS = {HANDSHAKE: 84, MODERN: 152}
"""The checks that this suite makes at each revision: a server that offers less fails none of those it escapes."""
SKILLS = "skills"
SKILL_SCENARIOS = ("sep-2640-skills-enumeration", "sep-2640-skills-manifest", "sep-2640-skills-directory")
"""Those of the skills extension, which the suite runs at no revision unless they are asked for."""
SKILL_MARKS = 45
"""The checks that these make, the same at each revision."""


@dataclass(frozen=True)
class Run:
    """What is measured: `kind` is what `--only` names, transport and era are those of the upstream, if there is one."""

    kind: str
    revision: str
    transport: str = ""
    era: str = ""

    @property
    def full_marks(self) -> int:
        """The checks that there are."""
        return SKILL_MARKS if self.kind == SKILLS else FULL_MARKS[self.revision]

    def __str__(self) -> str:
        if self.kind == SKILLS:
            return f"{self.kind} {self.revision}: skills of the proxy itself"
        which = "the upstream alone" if self.kind == "direct" else "the proxy, upstream"
        return f"{self.kind} {self.revision}: {which} over {self.transport}, era {self.era}"


RUNS = (
    Run("direct", HANDSHAKE, "http", "both"),
    Run("direct", MODERN, "http", "both"),
    Run("proxy", HANDSHAKE, "http", "handshake"),
    Run("proxy", MODERN, "http", "modern"),
    Run("stdio", HANDSHAKE, "stdio", "handshake"),
    Run("stdio", MODERN, "stdio", "modern"),
    Run("proxy", HANDSHAKE, "http", "both"),
    Run("proxy", MODERN, "http", "both"),
    Run("stdio", HANDSHAKE, "stdio", "both"),
    Run("stdio", MODERN, "stdio", "both"),
    Run("crossed", HANDSHAKE, "http", "modern"),
    Run("crossed", MODERN, "http", "handshake"),
    Run("crossed", HANDSHAKE, "stdio", "modern"),
    Run("crossed", MODERN, "stdio", "handshake"),
    Run(SKILLS, HANDSHAKE),
    Run(SKILLS, MODERN),
)
"""Every run: upstreams of `proxy` and `stdio` speak the client's own era, or both; those of `crossed` the other one."""


@dataclass(frozen=True)
class Excuse:
    """Why checks cannot exist, and how many go: a scenario that stops early makes fewer."""

    checks: int
    reason: str


CACHING = "ttlMs and cacheScope are defined from 2026-07-28 on"
RESUMED = "server-sse-polling:server-sse-disconnect-resume"
CANNOT_EXIST: Mapping[tuple[str, str], Mapping[str, Excuse]] = {
    ("stdio", HANDSHAKE): {
        RESUMED: Excuse(1, "a server cannot end the stream of one call on a pipe that all calls share")
    },
    ("crossed", HANDSHAKE): {RESUMED: Excuse(1, "a server of 2026-07-28 cannot end a stream before its result")},
    ("crossed", MODERN): {
        "input-required-result-basic-elicitation": Excuse(
            2, "the key of the question must be the server's own, and questions of the handshake era have none"
        ),
        "input-required-result-multiple-input-requests": Excuse(
            2, "three questions must come at once, and a handshake-era server asks the next when one is answered"
        ),
        "input-required-result-ignore-extra-params": Excuse(
            1, "the first request brings the answer, and a handshake-era server takes one after it has asked"
        ),
    },
    (SKILLS, HANDSHAKE): {
        f"{SKILL_SCENARIOS[0]}:sep-2640-skills-{method}-cache-attributes": Excuse(1, CACHING)
        for method in ("list", "get")
    },
}
"""By kind and revision, what no proxy could pass, named `scenario` or `scenario:check`."""


class Unmeasured(Exception):
    """A run that gave no result, or a suite that cannot be had; the message is one line."""


# --- the suite -------------------------------------------------------------------------------------------------------


def install(npm: str | None) -> str:
    """Install the suite where that has not been done; its version."""
    wanted = json.dumps({"private": True, "dependencies": PACKAGES})
    installed = CACHE / "installed.json"
    if not installed.is_file() or installed.read_text(encoding="utf-8") != wanted:
        if npm is None:
            raise Unmeasured("npm is not on PATH")
        CACHE.mkdir(exist_ok=True)
        (CACHE / "package.json").write_text(wanted, encoding="utf-8")
        _install(npm)
        installed.write_text(wanted, encoding="utf-8")
    return json.loads((SUITE / "package.json").read_text(encoding="utf-8"))["version"]


def _install(npm: str) -> None:
    command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    try:
        done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, timeout=INSTALLING, check=False)
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if line.strip()]
            raise Unmeasured(f"npm install failed: {said[0] if said else f'exit code {done.returncode}'}")
        subprocess.run([NODE, "--version"], capture_output=True, timeout=STARTING, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unmeasured(f"npm install failed: {error}") from error


@dataclass(frozen=True)
class Marks:
    """What the suite said of one run: its own total, and all checks by `scenario:check`."""

    passed: int
    failed: int
    checks: Sequence[tuple[str, Json]]


def measure(url: str, run: Run, *, verbose: bool) -> Marks:
    """Run the whole suite, or its scenarios for skills, against a URL."""
    if run.kind != SKILLS:
        return _measure(url, run.revision, "--suite", "all", verbose=verbose)
    parts = [
        _measure(url, run.revision, "--scenario", scenario, "--force", verbose=verbose) for scenario in SKILL_SCENARIOS
    ]
    return Marks(
        sum(part.passed for part in parts),
        sum(part.failed for part in parts),
        [check for part in parts for check in part.checks],
    )


def _measure(url: str, revision: str, *what: str, verbose: bool) -> Marks:
    with tempfile.TemporaryDirectory() as results:
        command = [NODE, SUITE / "dist" / "index.js", "server", "--url", url, *what]
        command += ["--spec-version", revision, "--output-dir", results]
        try:
            done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, timeout=MEASURING, check=False)
        except subprocess.TimeoutExpired as error:
            raise Unmeasured(f"the suite was not done after {MEASURING:.0f} s") from error
        if verbose:
            print(done.stdout, done.stderr, sep="")
        total = re.search(r"^(?:Total: (\d+) passed|Passed: (\d+)/\d+), (\d+) failed", done.stdout, re.MULTILINE)
        if total is None:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise Unmeasured(f"the suite's output has no total: {''.join(last)}")
        return Marks(int(total[1] or total[2]), int(total[3]), list(_checks(Path(results), done.stderr)))


def _checks(results: Path, output: str) -> Generator[tuple[str, Json]]:
    """The checks that the suite wrote down, and a failed one for each scenario that it could not run."""
    for scenario in re.findall(r"^Failed to run scenario (\S+):", output, re.MULTILINE):
        yield f"{scenario}:{scenario}", {"status": "FAILURE", "description": "the suite could not run it"}
    for file in sorted(results.glob("server-*/checks.json")):
        scenario = re.sub(r"^server-(.*)-\d{4}-\d\d-\d\dT.*$", r"\1", file.parent.name)
        for check in json.loads(file.read_text(encoding="utf-8")):
            yield f"{scenario}:{check['id']}", check


# --- what is measured ------------------------------------------------------------------------------------------------


@contextmanager
def started(command: Sequence[str | Path], ready: Callable[[str], str | None]) -> Generator[str]:
    """A server as a process that ends with the block; its URL, which `ready` finds in a line of its log."""
    with tempfile.TemporaryDirectory() as scratch, (Path(scratch) / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
        try:
            yield _url(process, Path(log.name), ready)
        finally:
            process.terminate()
            try:
                process.wait(ENDING)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(ENDING)


def _url(process: subprocess.Popen[bytes], log: Path, ready: Callable[[str], str | None]) -> str:
    deadline = time.monotonic() + STARTING
    ended, said = False, list[str]()
    while time.monotonic() < deadline and not ended:
        ended = process.poll() is not None  # asked before the log is read, so that its last line is seen
        said = log.read_text(encoding="utf-8", errors="replace").splitlines()
        for line in said:
            if url := ready(line):
                return url
        time.sleep(0.05)
    raise Unmeasured(f"a server did not start: {' | '.join(line.strip() for line in said[-3:])}")


def upstream_ready(line: str) -> str | None:
    """The URL in the line that the upstream prints."""
    return line.removeprefix("ready ") if line.startswith("ready ") else None


def proxy_ready(line: str) -> str | None:
    """The URL in the event that the proxy logs."""
    return json.loads(line)["url"] if '"proxy.ready"' in line else None


def upstream(*options: str) -> list[str | Path]:
    """The command line of the upstream."""
    return [sys.executable, UPSTREAM, *options]


@contextmanager
def address(run: Run) -> Generator[str]:
    """The URL to measure, served inside."""
    with ExitStack() as servers:
        url = ""
        if run.transport == "http":
            command = upstream("--transport", "http", "--era", run.era)
            url = servers.enter_context(started(command, upstream_ready))
        if run.kind != "direct":
            folder = Path(servers.enter_context(tempfile.TemporaryDirectory()))
            file = folder / "skills.yaml"
            written = library(folder / "library") if run.kind == SKILLS else config(run, url)
            file.write_text(json.dumps(written), encoding="utf-8")
            command = [sys.executable, "-m", "proxy", "serve", "--config", file, "--transport", "http", "--port", "0"]
            url = servers.enter_context(started(command, proxy_ready))
            if run.revision == MODERN:
                url += "/conformance"  # a namespace: the scope of clients that have no session
        yield url


def config(run: Run, url: str) -> Json:
    """The proxy's configuration: all tools of the upstream, from the start and under their own names."""
    server: Json = {"url": url}
    if run.transport == "stdio":
        python, *arguments = map(str, upstream("--transport", "stdio", "--era", run.era))
        server = {"command": python, "args": arguments}
    skill = {"name": "Conformance", "desc": "Everything.", "active": True, "tool_list": {"upstream": []}}
    return {
        "servers": {"upstream": {**server, "isolation": "scope", "prefix": ""}},
        "skill_configs": {"conformance": skill},
    }


ATLAS: Mapping[str, bytes] = {
    "SKILL.md": b"---\nname: atlas\ndescription: Read maps.\nmetadata: {edition: 3}\n---\n\nNorth is up.\n",
    "maps/world.txt": "Größer als erwartet.\n".encode(),
    "maps/blank.txt": b"",
    "maps/icons/pin.png": b"\x89PNG\r\n\x1a\n\x00\xff",
}
"""A skill with what files can be: nested, empty, no text."""


def library(folder: Path) -> Json:
    """A configuration with the skills that come with the proxy, one in `folder` that is made here, and one of YAML.

    The suite looks into the folder of the first skill; what the file names comes first.
    """
    for path, content in ATLAS.items():
        file = folder / "atlas" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    servers = {key: {"command": f"mcp-server-{key}"} for key in ("time", "git", "fetch")}
    return {
        "servers": servers,
        "skill_paths": [{"path": str(ROOT / "config" / "skills"), "trusted": True}, str(folder)],
        "skill_configs": {
            "atlas": {"category": "maps"},
            "clock": {"desc": "The time.", "usage": "Ask for it.", "tool_list": {"time": []}},
        },
    }


# --- the report ------------------------------------------------------------------------------------------------------


def report(run: Run, version: str, *, verbose: bool) -> bool:
    """Measure one run and print what came of it; whether it has full marks."""
    try:
        with address(run) as url:
            marks = measure(url, run, verbose=verbose)
    except Unmeasured as error:
        print(f"conformance {version}  not measured: {run}: {error}", flush=True)
        return False
    excused = CANNOT_EXIST.get((run.kind, run.revision), {})
    lost = [(name, check) for name, check in marks.checks if check["status"] not in {"SUCCESS", "INFO"}]
    bad = [(name, check) for name, check in lost if not {name, name.partition(":")[0]} & excused.keys()]
    gone = sum(check["status"] == "FAILURE" for name, check in lost if (name, check) not in bad)
    counted = marks.passed + marks.failed - gone
    print(f"conformance {version}  {url}  {marks.passed}/{counted}  {run}", flush=True)
    for name, check in bad:
        said = " ".join((check.get("errorMessage") or check["description"]).split())
        print(f"  {check['status'].lower()} {name}: {said[:300]}")
    for name, excuse in excused.items():
        print(f"  cannot exist: {name} ({excuse.checks}): {excuse.reason}")
    accounted = marks.passed + len(bad) + sum(excuse.checks for excuse in excused.values())
    if accounted != run.full_marks:
        print(f"  checks accounted for: {accounted} of {run.full_marks}")
    return not bad and accounted == run.full_marks


def main() -> int:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted({run.kind for run in RUNS}), help="these kinds of runs")
    parser.add_argument("--spec", choices=[HANDSHAKE, MODERN], help="this revision alone")
    parser.add_argument("--verbose", action="store_true", help="show the suite's own output")
    parser.add_argument("--if-possible", action="store_true", help="without npm exit with 0")
    options = parser.parse_args()
    try:
        version = install(shutil.which("npm"))
    except Unmeasured as error:
        print(f"conformance not measured: {error}")
        return 0 if options.if_possible else 1
    chosen = [
        run
        for run in RUNS
        if (options.only is None or run.kind in options.only) and options.spec in {None, run.revision}
    ]
    marks = [report(run, version, verbose=options.verbose) for run in chosen]
    return 0 if all(marks) else 1


if __name__ == "__main__":
    sys.exit(main())
