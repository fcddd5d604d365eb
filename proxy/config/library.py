"""The skills in folders: which there are below the roots, which of those with the same id counts, what each says."""

import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from proxy.config import skill_md
from proxy.config.document import line_in
from proxy.config.files import Files, read_regular
from proxy.config.models import SKILL_PATHS, SKILLS, SkillEntry
from proxy.config.problems import Findings, Place, Problem, Refused
from proxy.config.skill_md import GRANTING, METADATA, SkillMd
from proxy.config.tree import DOCUMENTS, IGNORED, Entry, Tree, is_within, joined, reason, tellable
from proxy.core.catalogue import Folder, SkillFile
from proxy.core.foreign_text import without_our_tags
from proxy.core.lookalikes import skeleton, stray_character, told
from proxy.core.texts import shortened

MOST_SKILLS: Final = 20_000
"""Skills below one root."""
MOST_LISTED: Final = 2_000
"""Files of a skill that are listed."""
MOST_NOTES: Final = 100
"""Notes about what was not looked at below one root."""
LONGEST_NOTE: Final = 500
LONGEST_ID: Final = 128
_SAYS_NOTHING: Final = SkillEntry()
SERVED_FILES: Final = 512
SERVED_BYTES: Final = 16 * 1024**2
"""The largest skill that clients which know skills are served, as the standard for that has it."""


@dataclass(frozen=True)
class Root:
    """A folder with skills. `path`: absolute. `shown`: as the configuration has it, for messages."""

    path: Path
    trusted: bool
    shown: str


@dataclass(frozen=True)
class FolderSkill:
    """A skill of a folder.

    `entry`: what its SKILL.md says, as in `skill_configs`, of which `usage` is unset: the guide stays on the disk. Of
    an untrusted one nothing that grants tools or changes what is active. `name`: empty where the SKILL.md has none.
    `shown`: its SKILL.md, for messages. `unknown`: what it grants at servers that there are not. `lines`: those of what
    it does by itself, by place in its front matter.
    """

    id: str
    entry: SkillEntry
    name: str
    folder: Folder
    trusted: bool
    shown: str
    unknown: tuple[Problem, ...] = ()
    lines: Mapping[Place, int] = field(default_factory=dict[Place, int])

    @property
    def file(self) -> Path:
        """Its SKILL.md, where that really is."""
        return Path(self.folder.path, self.folder.document)

    def findings(self) -> Findings:
        """For what is found about what it does by itself, by place in its entry; other skills may come and go."""
        findings = Findings(self.shown, lambda place: line_in(self.lines, place), (), self._written)
        findings.folders = True
        return findings

    def _written(self, place: Place) -> Place:
        return (METADATA, *place) if (METADATA, *place[:1]) in self.lines else place


@dataclass(frozen=True)
class LeftOut:
    """A skill that cannot be used. `file`: as shown. `why`: one line; `problems`: everything that is wrong."""

    id: str
    file: str
    why: str
    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, id_: str, problems: Iterable[Problem]) -> "LeftOut":
        """A skill whose SKILL.md has these problems, at least one."""
        first, *others = problems
        why = str(first).removeprefix(f"{first.file}: ").removeprefix(f"{first.file}:")
        why = f"line {why}" if first.line else why
        more = f" (and {len(others)} more)" if others else ""
        return cls(visible(id_), first.file, why + more, (first, *others))


@dataclass(frozen=True)
class Library:
    """The skills of all roots, in their order, then in that of their paths.

    `left_out`: those that cannot be used; they keep another one with their id from taking their place. `notes`: lines
    `file: what`. `visited`: by root, the folders below it that were looked at. `documents`: what was read, by path, and
    `servers`, the keys that it was read with: what did not change need not be read again.
    """

    skills: tuple[FolderSkill, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    visited: Mapping[Path, tuple[str, ...]] = field(default_factory=dict[Path, tuple[str, ...]], repr=False)
    documents: Mapping[str, "Document"] = field(default_factory=dict[str, "Document"], repr=False)
    servers: tuple[str, ...] = ()

    @property
    def folders(self) -> tuple[Path, ...]:
        """Every folder that was looked at, for watching."""
        return tuple(root / folder for root, folders in self.visited.items() for folder in folders)


class Document(NamedTuple):
    """A SKILL.md that was read.

    `seen`: the version of its file, what it was called, and whether it was trusted. `skill`: what it says, as far as
    that holds; None where it is refused for `problems`.
    """

    seen: tuple[tuple[int, ...], str, bool]
    skill: SkillMd | None
    problems: tuple[Problem, ...] = ()


def find(
    roots: Sequence[Root],
    servers: Collection[str],
    reader: Files,
    last: Library | None = None,
    decided: Mapping[str, Collection[str]] | None = None,
) -> Library:
    """The skills below `roots`, which `reader` walks; `servers`: the keys of those in the configuration.

    `decided`: by id, the keys that the configuration gives itself, for which it does not matter what an untrusted
    folder says.

    An untrusted root in a trusted one stays untrusted. A skill in it is left out where its id mixes scripts, or looks
    like that of another skill without being the same. Of skills with the same id one counts: that of a trusted root
    before others, then that of the later root, then the one whose path comes later. With `last`, what was found before,
    only documents that have changed are read. Whatever is wrong with one skill, the others are found.
    """
    known = tuple(servers)
    search = _Search(known, last.documents if last and last.servers == known else {}, decided or {})
    return search.run(roots, reader)


def alike(id_: str) -> str:
    """What all spellings of an id have in common that people, or file systems, take for the same."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", id_).casefold())


class _Found(NamedTuple):
    """A folder with a document. `rank`: the greater counts. `folder`: below its root. `at`: its document, as shown.

    `path`: the folder by the way that led there; `real`: without links, as it was then.
    """

    id: str
    rank: tuple[bool, int, list[str]]
    root: Root
    tree: Tree
    folder: str
    document: Entry

    @property
    def at(self) -> str:
        return _shown(self.root, joined(self.folder, self.document.name))

    @property
    def path(self) -> str:
        return joined(str(self.root.path), self.folder) if self.folder else str(self.root.path)

    @property
    def real(self) -> str:
        return self.tree.real(self.folder)


class _Search:
    """One search, and what it has found so far."""

    def __init__(
        self, servers: tuple[str, ...], before: Mapping[str, Document], decided: Mapping[str, Collection[str]]
    ) -> None:
        self._servers = servers
        self._before = before
        self._decided = decided
        self._documents: dict[str, Document] = {}
        self._skills: list[FolderSkill] = []
        self._left_out: list[LeftOut] = []
        self._notes: list[str] = []

    def run(self, roots: Sequence[Root], reader: Files) -> Library:
        """Look through all of them."""
        winners: dict[str, _Found] = {}
        trees = [(root, reader.tree(root.path)) for root in roots]
        visited = {root.path: tuple(tree.below) for root, tree in trees}
        untrusted = [tree.top for root, tree in trees if not root.trusted]
        for index, (root, tree) in enumerate(trees):
            self._note_all(root, tree.notes)
            for found in self._found(root, index, tree):
                if not root.trusted or not any(_is_of(found, top) for top in untrusted):
                    self._contest(found, winners)
        known = self._by_look(winners.values())
        for found in sorted(winners.values(), key=lambda found: found.rank[1:]):
            if not found.root.trusted and (fault := self._fault_of_look(found, known)):
                self._leave_out(found, [Problem(found.at, 0, "", fault)])
            else:
                self._take(found)
        return Library(
            tuple(self._skills),
            tuple(self._left_out),
            tuple(self._notes),
            visited,
            self._documents,
            self._servers,
        )

    def _note_all(self, root: Root, notes: Sequence[tuple[str, str]]) -> None:
        self._notes += [f"{_shown(root, path)}: {what}" for path, what in notes[:MOST_NOTES]]
        if len(notes) > MOST_NOTES:
            self._notes.append(f"{root.shown}: {len(notes) - MOST_NOTES:,} more such notes")

    def _found(self, root: Root, index: int, tree: Tree) -> Iterator[_Found]:
        """The skills below a root by path; those whose folder's name can be no id are left out."""
        skills = sorted((folder.split("/"), folder, document) for folder, document in _documents(tree))
        for parts, folder, document in skills[:MOST_SKILLS]:
            id_ = unicodedata.normalize("NFC", parts[-1] or _name_of(root))  # some file systems give NFD
            found = _Found(id_, (root.trusted, index, parts), root, tree, folder, document)
            if fault := _fault_of_id(id_):
                self._leave_out(found, [Problem(found.at, 0, "", fault)])
            else:
                yield found
        if len(skills) > MOST_SKILLS:
            rest = _shown(root, skills[MOST_SKILLS][1])
            self._notes.append(
                f"{rest}: not looked at, nor what comes after it: there are more than {MOST_SKILLS:,} skills"
            )

    def _contest(self, found: _Found, winners: dict[str, _Found]) -> None:
        """Put a skill in the place of its id, unless one that is there counts more."""
        key = alike(found.id)
        other = winners.setdefault(key, found)
        if other is found:
            return
        winner, loser = (found, other) if found.rank > other.rank else (other, found)
        winners[key] = winner
        if winner.root.trusted != loser.root.trusted:
            why = f"is in a trusted folder ({winner.root.shown})"
        elif winner.rank[1] != loser.rank[1]:
            why = f"is in a later folder of {SKILL_PATHS} ({winner.root.shown})"
        else:
            why = "comes later in the same folder"
        same = f"the same id {winner.id}" if winner.id == loser.id else f"{winner.id}, the same id but for its spelling"
        self._notes.append(f"{loser.at}: not used: {winner.at} has {same}, and counts because it {why}")

    def _by_look(self, winners: Iterable[_Found]) -> Mapping[str, str]:
        """By what they look like, the ids that others must not look like: those of the configuration before all.

        Then those of trusted folders, then those of ASCII alone; of equal ones that of the skill that counts more.
        """
        by_weight = sorted(winners, key=lambda found: (found.root.trusted, found.id.isascii(), found.rank))
        return {skeleton(id_): id_ for id_ in (*(found.id for found in by_weight), *self._decided)}

    def _fault_of_look(self, found: _Found, known: Mapping[str, str]) -> str:
        """Why an id cannot be taken for what it looks like; empty where it can, or the configuration names it."""
        other = known[skeleton(found.id)]
        if stray := stray_character(found.id):
            why = f"{visible(stray)} ({told(stray)}) does not belong there"
        elif alike(other) != alike(found.id) and found.id not in self._decided:
            why = f"it looks like {visible(other)}, which is another"
        else:
            return ""
        what = "the name of its folder is the id of the skill"
        return f"{what}, and {why}: rename the folder, or trust {found.root.shown}"

    def _take(self, found: _Found) -> None:
        """Read the document of a skill that counts."""
        document = self._document(found)
        self._notes += map(str, document.skill.notes if document.skill else ())
        if document.skill is None:
            self._leave_out(found, document.problems)
            return
        name, entry, unserved = document.skill.name, document.skill.entry, document.skill.unserved
        if name and name != found.id:
            what = f"the name is {one_line(name)}, the folder's is {found.id}: they should be the same"
            self._notes.append(str(Problem(found.at, 0, skill_md.NAME, what)))
            unserved = unserved or "its name is not that of its folder"
        decided = self._decided.get(found.id, ())
        still = [key for key in document.skill.trusting if skill_md.key_of(key) not in decided]
        if still and not found.root.trusted:
            self._notes.append(f"{found.at}: {_not_in_force(found, still)}")
        self._skills.append(
            FolderSkill(
                id=found.id,
                entry=entry,
                name=name,
                folder=self._folder(found, unserved),
                trusted=found.root.trusted,
                shown=found.at,
                unknown=document.skill.unknown if found.root.trusted else (),
                lines=document.skill.lines if found.root.trusted else {},
            )
        )

    def _document(self, found: _Found) -> Document:
        path = joined(found.path, found.document.name)
        before = self._before.get(path)
        seen = (found.document.version, found.at, found.root.trusted)
        if before is None or before.seen != seen:
            skill, problems = self._read(found)
            before = Document(seen, skill, problems)
        self._documents[path] = before
        return before

    def _read(self, found: _Found) -> tuple[SkillMd | None, tuple[Problem, ...]]:
        if fault := _fault_of_document(found):
            return None, (Problem(found.at, 0, "", fault),)
        try:
            path = Path(found.document.target or Path(found.real, found.document.name))
            content = read_regular(path, skill_md.LARGEST)
            skill = skill_md.read(content, found.at, self._servers, trusted=found.root.trusted)
        except OSError as error:
            return None, (Problem(found.at, 0, "", f"the file cannot be read: {reason(error)}"),)
        except Refused as refused:
            return None, printable(refused.problems)
        entry = skill.entry if found.root.trusted else _narrowed(skill.entry)
        return replace(skill, entry=entry, notes=printable(skill.notes), unknown=printable(skill.unknown)), ()

    def _folder(self, found: _Found, unserved: str) -> Folder:
        """The files of a skill; a hidden file may hold secrets, and belongs to none."""
        files: list[SkillFile] = []
        size = 0
        for file in _files(found):
            size += file.size
            files.append(file)
            if len(files) > MOST_LISTED:
                files.pop()
                self._notes.append(f"{_shown(found.root, found.folder)}: only {MOST_LISTED:,} of its files are listed")
                break
        if len(files) > SERVED_FILES:
            unserved = unserved or f"it has more than {SERVED_FILES} files"
        elif size > SERVED_BYTES:
            unserved = unserved or f"its files are larger than {SERVED_BYTES // 1024**2} MiB"
        return Folder(
            found.real,
            found.document.name,
            tuple(sorted(files)),
            unserved=unserved,
            trusted=found.root.trusted,
        )

    def _leave_out(self, found: _Found, problems: Iterable[Problem]) -> None:
        self._left_out.append(LeftOut.of(found.id, problems))


def _is_of(found: _Found, untrusted: str) -> bool:
    """Whether a skill below a trusted root really is in an untrusted one, which does not hold the trusted one."""
    if found.real != untrusted and not is_within(found.real, untrusted):
        return False
    top = found.tree.top
    return not (top == untrusted or is_within(top, untrusted)) or not (found.real == top or is_within(found.real, top))


def _documents(tree: Tree) -> Iterator[tuple[str, Entry]]:
    """The folders that are skills, each with its document."""
    for folder, entries in tree.below.items():
        named = {entry.name: entry for entry in entries if entry.name in DOCUMENTS}
        if document := next((named[name] for name in DOCUMENTS if name in named), None):
            yield folder, document


def _name_of(root: Root) -> str:
    """What the folder of a root is called, whatever way leads there."""
    name = root.path.name
    return name if name not in {"", ".."} else root.path.resolve().name


def _fault_of_id(id_: str) -> str:
    if len(id_) > LONGEST_ID:
        return f"the name of its folder is the id of the skill, and is longer than {LONGEST_ID} characters"
    if not id_.strip() or not id_.isprintable():
        return "the name of its folder is the id of the skill, and must be printable text: rename the folder"
    if without_our_tags(id_) != id_:
        return "the name of its folder is the id of the skill, and holds a tag of the proxy's own: rename the folder"
    return ""


def _fault_of_document(found: _Found) -> str:
    match found.document.kind:
        case "folder":
            return "is a folder, not a file"
        case "other":
            return "is a pipe, a socket or a device, not a file"
        case "outside":
            return "is a link out of its folder, which is not followed: put the file itself here"
        case "dangling":
            return "is a link to nothing"
        case _:
            target, folder = found.document.target, found.real
            if target is None or _is_part(target, folder):
                return ""
            where = "to what is hidden in" if is_within(target, folder) else "out of"
            return f"is a link {where} its folder, which is not followed: put the file itself here"


def _files(found: _Found) -> Iterator[SkillFile]:
    """The files below a skill's folder, those of skills in it too.

    What is hidden (its name begins with a dot) is left out, as it may hold secrets, and so are links out of the folder
    and names that cannot be told.
    """
    waiting, real = [""], found.real
    while waiting:
        folder = waiting.pop()
        for entry in found.tree.below.get(joined(found.folder, folder).rstrip("/"), ()):
            if entry.name.startswith(".") or not tellable(entry.name):
                continue
            if entry.target is not None and not _is_part(entry.target, real):
                continue
            path = joined(folder, entry.name)
            if entry.kind == "folder":
                waiting.append(path)
            elif entry.kind == "file":
                yield SkillFile(path, entry.size, entry.version)


def _is_part(target: str, folder: str) -> bool:
    """Whether a link leads to what is part of the skill in `folder`; both are real paths."""
    names = target.removeprefix(folder).split("/")
    return is_within(target, folder) and not any(name.startswith(".") or name in IGNORED for name in names)


def _narrowed(entry: SkillEntry) -> SkillEntry:
    """What holds of an untrusted skill: what it says to people and models, and what makes it be offered less."""
    kept = {name: getattr(entry, name) for name in entry.model_fields_set.difference(GRANTING)}
    return _SAYS_NOTHING.model_copy(update=kept)


def _not_in_force(found: _Found, keys: Sequence[str]) -> str:
    named, verb = (keys[0], "is") if len(keys) == 1 else (f"{', '.join(keys[:-1])} and {keys[-1]}", "are")
    return (
        f"{named} {verb} not in force, as {found.root.shown} is not trusted: write trusted: true beside its path, or "
        f"what is to hold into {SKILLS}.{found.id}"
    )


def _shown(root: Root, path: str) -> str:
    """A path below a root, as it is shown."""
    return visible(f"{root.shown.rstrip('/')}/{path}" if path else root.shown)


def one_line(text: str) -> str:
    """`text` as one line that can be read, whatever is in it."""
    return visible(shortened(text, LONGEST_NOTE))


def printable(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """The same, as one line each that can be read, whatever the file holds that they show."""
    return tuple(replace(each, path=one_line(each.path), what=one_line(each.what)) for each in problems)


def visible(text: str) -> str:
    """Text with what cannot be printed written out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
