"""How fast the proxy is, beside no proxy and beside a plain proxy on the SDK: `make bench`.

    python tests/benchmarks/speed.py [--only MEASURES] [--rounds N] [--long] [--fastmcp PYTHON]

Within a round every contestant runs once, in a shuffled order, so that the machine's noise spreads over all. The table
has medians over the rounds, and ratios to the floor in the same round: to no proxy, or where there is no such thing to
the plain proxy.
"""

import argparse
import random
import subprocess
import sys
import time
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

from contestants import contestants
from measures import MEASURES, How, Numbers
from table import Results, machine, table


def arguments() -> argparse.Namespace:
    """The command line."""
    grammar = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    grammar.add_argument("--only", default=",".join(MEASURES), metavar="MEASURES", help=f"of {', '.join(MEASURES)}")
    grammar.add_argument("--contestants", metavar="NAMES", help="of direct, product, sdk, fastmcp (default: all)")
    grammar.add_argument("--rounds", type=int, default=3, help="default: 3; memory is measured once in the short set")
    grammar.add_argument("--long", action="store_true", help="more calls, sessions and seconds")
    grammar.add_argument("--fastmcp", metavar="PYTHON", help="a Python with FastMCP, to measure its proxy too")
    grammar.add_argument("--errors", type=Path, metavar="FILE", help="append what contestants say on stderr")
    given = grammar.parse_args()
    if unknown := set(given.only.split(",")) - set(MEASURES):
        grammar.error(f"no such measure: {', '.join(unknown)}")
    return given


def run(measure: Numbers) -> tuple[dict[str, float], str]:
    """The numbers of one measure, and what went wrong on the way."""
    numbers: dict[str, float] = {}
    try:
        numbers.update(measure)
    except (OSError, EOFError, ValueError, LookupError, StopIteration, RuntimeError) as error:
        return numbers, f", failed: {type(error).__name__}: {error}"[:300]
    return numbers, ""


def main() -> None:
    """Measure, with progress on stderr, and print the table."""
    given = arguments()
    fastmcp = given.fastmcp or (sys.executable if find_spec("fastmcp") else None)
    everyone = contestants(fastmcp)
    if given.contestants:
        everyone = [contestant for contestant in everyone if contestant.name in given.contestants.split(",")]
    results: Results = defaultdict(lambda: defaultdict(list))
    how = How(given.long, given.errors.open("ab") if given.errors else subprocess.DEVNULL)
    for turn in range(given.rounds):
        for name in given.only.split(","):
            if name == "memory" and turn and not given.long:
                continue
            for contestant in random.sample(everyone, len(everyone)):
                begun = time.monotonic()
                numbers, said = run(MEASURES[name](contestant, how))
                results[name][contestant.name].append(numbers)
                took = time.monotonic() - begun
                print(f"round {turn + 1}: {name}, {contestant.name}: {took:.1f} s{said}", file=sys.stderr, flush=True)
    print(table(results, [contestant.name for contestant in everyone]))
    print(f"\n{machine(fastmcp)}")


if __name__ == "__main__":
    main()
