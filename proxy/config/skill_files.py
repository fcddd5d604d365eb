"""Reads the files of skills when they are asked for, never one outside of a skill's own folder."""

import errno
import json
import os
import re
import stat
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from anyio import to_thread

from proxy.config.problems import Refused
from proxy.config.skill_md import body, front_matter
from proxy.core.catalogue import Folder, Skill
from proxy.core.errors import Unreadable
from proxy.core.published import DOCUMENT, described
from proxy.ports import Manifest

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a file that is read: what a skill may hold in all (SEP-2640)."""
KEPT: Final = 100_000
"""Files whose digests are kept."""
_BREAKS: Final = {ord(c): f"\\u{ord(c):04x}" for c in "\x7f\x85\u2028\u2029\ufeff"}
"""What YAML takes for line breaks, or not at all, and JSON leaves as it is."""

_PLAIN: Final = re.compile(r"[a-z][a-z_-]*")

T = TypeVar("T")


class FolderFiles:
    """The `SkillFiles` of folders; digests are kept as long as a file's size, time and place stay the same."""

    def __init__(self) -> None:
        self._digests: dict[tuple[int, int, int, int], str] = {}

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
        known = {DOCUMENT} if folder is None else {DOCUMENT, *(file.path for file in folder.files)}
        if path not in known:
            raise FileNotFoundError(errno.ENOENT, "it is no file of the skill")
        if folder is None:
            return _document({"name": skill.id, "description": described(skill)}, skill.usage or "")
        if path not in {DOCUMENT, folder.document}:
            return _read(folder, path)
        content = _read(folder, folder.document)
        if folder.verbatim:
            return content
        written = front_matter(content, folder.document)
        text = body(content, folder.document) if skill.usage is None else skill.usage
        return _document({**written, "name": skill.id, "description": described(skill)}, text)

    def _digest(self, folder: Folder, path: str) -> tuple[int, str]:
        with _opened(folder, path) as file:
            status = os.fstat(file.fileno())
            key = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
            if key not in self._digests:
                if len(self._digests) >= KEPT:
                    self._digests.clear()
                self._digests[key] = sha256(_all(file)).hexdigest()
            return status.st_size, self._digests[key]


async def _in_a_thread(work: Callable[[], T], skill: Skill, path: str) -> T:
    try:
        return await to_thread.run_sync(work, abandon_on_cancel=True)
    except OSError as error:
        raise Unreadable(skill.id, path, error.strerror or str(error)) from None
    except Refused as refused:
        raise Unreadable(skill.id, path, refused.problems[0].what) from None


def _read(folder: Folder, path: str) -> bytes:
    with _opened(folder, path) as file:
        return _all(file)


def _all(file: BinaryIO) -> bytes:
    content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(errno.EFBIG, f"it holds more than {LARGEST // 1024**2} MiB")
    return content


def _opened(folder: Folder, path: str) -> BinaryIO:
    """The file at `path`, which a link may lead to as long as that stays in the folder.

    It is opened step by step from the folder, and no step follows a link: nothing that is put there between looking
    and opening leads out.
    """
    top = os.path.realpath(folder.path)
    real = os.path.realpath(os.path.join(top, path))  # noqa: PTH118 - strings from here on, as os.open takes them
    if os.path.commonpath([top, real]) != top:
        raise PermissionError(errno.EPERM, "it leads out of the skill's folder")
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    *folders, name = Path(os.path.relpath(real, top)).parts
    try:
        for part in folders:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is no regular file")
    return os.fdopen(file, "rb")


def _document(fields: dict[str, Any], text: str) -> bytes:
    """A SKILL.md with this front matter, whose values are written as JSON, which is YAML."""
    lines = [f"{key if _PLAIN.fullmatch(key) else _quoted(key)}: {_quoted(value)}" for key, value in fields.items()]
    return "\n".join(["---", *lines, "---", "", text]).encode("utf-8", "replace")


def _quoted(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).translate(_BREAKS)
