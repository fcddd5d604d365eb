"""What is wrong or worth saying about a configuration file, each with its place in the file."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from proxy.core.wording import alike

Place: TypeAlias = tuple[str | int, ...]
"""Where in the file: keys and list indices (from 0) from the top."""

_PLAIN_KEY = re.compile(r"[\w@/$*-]+")
_SHOWN_NAMES = 12
_GLUED = re.compile(r"[\w$-]{2,}:(?!//)\S")

MAYBE_A_SPACE = " (a space is missing after the colon?)"


@dataclass(frozen=True)
class Problem:
    """One thing to say: the file as named, the line (from 1; 0: none), the path of keys (empty: none) and the words."""

    file: str
    line: int
    path: str
    what: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.path}: {self.what}" if self.path else f"{where}: {self.what}"


class Refused(Exception):
    """The configuration cannot be used. `problems`: everything that is wrong with it, by line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        once = {(problem.line, problem.path, problem.what): problem for problem in problems}
        self.problems = tuple(sorted(once.values(), key=lambda problem: problem.line))
        super().__init__("\n".join(map(str, self.problems)))


def _as_it_is(place: Place) -> Place:
    return place


class Findings:
    """Collects the problems and notes about one file; `line_of` gives the line of a place.

    `folders`: whether skills may come from other files. `written`: where in the file a place stands for which another
    name is used here.
    """

    def __init__(
        self,
        file: str,
        line_of: Callable[[Place], int],
        problems: Iterable[Problem] = (),
        written: Callable[[Place], Place] = _as_it_is,
    ) -> None:
        self._file = file
        self._line_of = line_of
        self._written = written
        self._problems = list(problems)
        self._notes: list[Problem] = []
        self.folders = False

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong so far, in the order of finding."""
        return tuple(self._problems)

    @property
    def noted(self) -> tuple[Problem, ...]:
        """What is worth saying so far, by line."""
        return tuple(dict.fromkeys(sorted(self._notes, key=lambda note: note.line)))

    @property
    def notes(self) -> tuple[str, ...]:
        """The same as lines of text."""
        return tuple(map(str, self.noted))

    def line(self, place: Place) -> int:
        """The line of a place."""
        return self._line_of(self._written(place))

    def problem(self, place: Place, what: str) -> None:
        """Something is wrong at `place`."""
        self._problems.append(self._at(place, what))

    def note(self, place: Place, what: str) -> None:
        """Something is worth saying about `place`."""
        self._notes.append(self._at(place, what))

    def unknown_skill(self, place: Place, name: str, known: Iterable[str]) -> None:
        """A skill is named at `place` that is none of `known`; what comes from folders may come and go."""
        tell = self.note if self.folders else self.problem
        tell(place, f"unknown skill {name!r}: {did_you_mean(name, known)}")

    def _at(self, place: Place, what: str) -> Problem:
        at = self._written(place)
        return Problem(self._file, self._line_of(at), shown(at), what)


def lacks_a_space(text: str) -> bool:
    """Whether `text` looks like a key and a value with no space between them, as `command:npx`."""
    return _GLUED.match(text) is not None


def shown(place: Place) -> str:
    """A place for people: `servers.time.args[0]`; keys that would be misread are quoted."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = part if _PLAIN_KEY.fullmatch(part) else json.dumps(part, ensure_ascii=False)
            text += f".{key}" if text else key
    return text


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?` where one of `known` is like `wanted`, else what there is (the first dozen)."""
    names = list(known)
    if not names:
        return "there are none"
    if close := alike(wanted, names):
        return f"did you mean {close[0]!r}?"
    return "known here: " + ", ".join(names[:_SHOWN_NAMES]) + (", …" if len(names) > _SHOWN_NAMES else "")
