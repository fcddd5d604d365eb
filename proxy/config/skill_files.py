"""Reads the files of skills when they are asked for, never one outside of a skill's own folder."""

import errno
import json
import os
import re
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from anyio import to_thread

from proxy.config.files import content_of, open_regular
from proxy.config.problems import Refused
from proxy.config.skill_md import body, front_matter
from proxy.config.tree import IGNORED, is_within
from proxy.core.catalogue import Folder, Skill
from proxy.core.errors import Unreadable
from proxy.core.published import DOCUMENT, described
from proxy.core.wording import UNTRUSTED_GUIDE
from proxy.ports import Manifest

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a file that is read: what a skill may hold in all (SEP-2640)."""
KEPT: Final = 100_000
"""Files whose digests are kept."""
SETTLED: Final = 2.0
"""Seconds after a change in which another one may leave all times as they are: file systems round them."""
_BREAKS: Final = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF)}
"""What YAML takes for line breaks, or not at all, and JSON leaves as it is."""
_PLAIN: Final = re.compile(r"(?!(?:null|true|false|yes|no|on|off|y|n)\Z)[a-z][a-z_-]*")
"""Keys that need no quotes: no reader of YAML takes them for anything but text."""

T = TypeVar("T")


class FolderFiles:
    """The `SkillFiles` of folders; digests are kept as long as a file's size, times and place stay the same."""

    def __init__(self) -> None:
        self._digests: dict[tuple[int, ...], tuple[int, str]] = {}

    def guide(self, skill: Skill) -> str:
        """The guide; may take as long as a file does.

        Raises:
            OSError: it cannot be read any more.
        """
        if skill.usage is not None or skill.folder is None:
            return skill.usage or ""
        content = _read(skill.folder, skill.folder.document)
        try:
            return body(content, skill.folder.document)
        except Refused as refused:
            raise OSError(errno.EINVAL, str(refused.problems[0])) from None

    async def read(self, skill: Skill, path: str) -> bytes:
        """The content of the file at `path`, one of the skill's; of `SKILL.md`, the document as it is served.

        Raises:
            Unreadable: it is none of the skill's files, or cannot be read any more.
        """
        return await _in_a_thread(lambda: self._content(skill, path), skill, path)

    async def manifest(self, skill: Skill) -> Manifest:
        """What the skills extension tells of it, as its files are now.

        Raises:
            Unreadable: one of them cannot be read.
        """
        return await _in_a_thread(lambda: self._manifest(skill), skill, DOCUMENT)

    def _manifest(self, skill: Skill) -> Manifest:
        document = self._content(skill, DOCUMENT)
        digests = {DOCUMENT: (len(document), sha256(document).hexdigest())}
        if skill.folder is not None:
            others = (file.path for file in skill.folder.files if file.path != skill.folder.document)
            digests |= {path: self._digest(skill.folder, path) for path in others}
        return Manifest(front_matter(document, DOCUMENT), dict(sorted(digests.items())))

    def _content(self, skill: Skill, path: str) -> bytes:
        folder = skill.folder
        file = None if folder is None else folder.file(path)
        if path != DOCUMENT and file is None:
            raise FileNotFoundError(errno.ENOENT, "it is no file of the skill")
        if folder is None:
            return _document({"name": skill.id, "description": described(skill)}, skill.usage or "")
        if path not in {DOCUMENT, folder.document}:
            return _read(folder, path if file is None else file.path)
        content = _read(folder, folder.document)
        if folder.verbatim:
            return content
        written = front_matter(content, folder.document)
        text = body(content, folder.document) if skill.usage is None else skill.usage
        if skill.has_foreign_guide:
            text = f"{UNTRUSTED_GUIDE}\n\n{text}"
        return _document({**written, "name": skill.id, "description": described(skill)}, text)

    def _digest(self, folder: Folder, path: str) -> tuple[int, str]:
        with _opened(folder, path) as file:
            version = _version(file)
            if kept := self._digests.get(version):
                return kept
            content = content_of(file, LARGEST)
            digest = len(content), sha256(content).hexdigest()
            if version == _version(file) and time.time() - os.fstat(file.fileno()).st_ctime > SETTLED:
                if len(self._digests) >= KEPT:
                    self._digests.clear()
                self._digests[version] = digest
            return digest


async def _in_a_thread(work: Callable[[], T], skill: Skill, path: str) -> T:
    try:
        return await to_thread.run_sync(work, abandon_on_cancel=True)
    except OSError as error:
        raise Unreadable(skill.id, path, error.strerror or str(error)) from None
    except Refused as refused:
        raise Unreadable(skill.id, path, refused.problems[0].what) from None


def _read(folder: Folder, path: str) -> bytes:
    with _opened(folder, path) as file:
        return content_of(file, LARGEST)


def _version(file: BinaryIO) -> tuple[int, ...]:
    """What differs after every change of an open file, but for those that follow each other closely."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _opened(folder: Folder, path: str) -> BinaryIO:
    """The file at `path`, which a link may lead to as long as that stays in the folder.

    Nothing that is put there after the skill was loaded, or between looking and opening, leads out.
    """
    real = os.path.realpath(os.path.join(folder.path, path))  # noqa: PTH118 - strings, as os.open takes them
    if not is_within(real, folder.path):
        raise PermissionError(errno.EPERM, "it leads out of the skill's folder")
    inside = Path(real).relative_to(folder.path).parts
    if any(part.startswith(".") or part in IGNORED for part in inside):
        raise PermissionError(errno.EPERM, "it leads to what is no part of the skill")
    return open_regular(Path(real))


def _document(fields: dict[str, Any], text: str) -> bytes:
    """A SKILL.md with this front matter, whose values are written as JSON, which is YAML."""
    lines = [f"{key if _PLAIN.fullmatch(key) else _quoted(key)}: {_quoted(value)}" for key, value in fields.items()]
    return "\n".join(["---", *lines, "---", "", text]).encode("utf-8", "replace")


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).translate(_BREAKS)
