"""What a folder, a zip or a gzipped tar holds, member by member: nothing is written, and no link is followed."""

import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from gzip import GzipFile
from io import BytesIO
from pathlib import Path
from typing import IO, Final, NoReturn, cast

LARGEST_ARCHIVE: Final = 64 * 1024 * 1024
"""Bytes of an archive that is read, which is done as a whole."""
LARGEST_TAR: Final = 2 * LARGEST_ARCHIVE
"""Bytes that an archive may unzip to, with headers and with what is left out."""
MOST_MEMBERS: Final = 10_000
"""Files and folders of a source that are looked at, with those that are left out."""
LONGEST_HEADER: Final = 8 * 1024
"""Bytes of a tar header that extends another: `tarfile` reads it as a whole, with patterns that take long."""

_LEFT_OUT: Final = frozenset({"__pycache__", "__MACOSX", "node_modules"})
_ACCEPTED: Final = "a skill is a folder, a .zip or a .tar.gz"
_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
_GZIP: Final = b"\x1f\x8b"
_OTHERS: Final = {b"BZh": "a bzip2 file", b"\xfd7zXZ\x00": "an xz file", b"\x28\xb5\x2f\xfd": "a zstd file"}
_USTAR: Final = slice(257, 262)
_ZIP_ENTRY: Final = b"PK\x01\x02"
_GZIP_MEMBER: Final = b"\x1f\x8b\x08"
_UTF_8: Final = 0x800
_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000  # a flag each for the content, for a stronger kind, and for the names too
_EXTENDING: Final = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_READ_SIZE: Final = 64 * 1024

DAMAGE: Final = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    struct.error,
    EOFError,
    ArithmeticError,
    LookupError,
    RuntimeError,
    ValueError,
    OSError,
)
"""What reading the members of an archive may raise where it is damaged, or made to do harm."""


class BadPackage(Exception):
    """A skill cannot be placed, removed or told of; the text says in one line what, where and what to do."""


@dataclass(frozen=True)
class Member:
    """A file or a folder of a source.

    `name`: as the source spells it, with "/" between its parts. `flaw`: why it cannot be part of a skill, empty for
    nothing. `size`: the bytes that it is said to hold. `open`: gives them, until the next member is asked for.
    """

    name: str
    folder: bool
    flaw: str = ""
    size: int = 0
    open: Callable[[], IO[bytes]] = BytesIO


def left_out(part: str) -> bool:
    """Whether what bears this name, file or folder, is no part of a skill wherever it lies.

    Names that begin with a dot belong to tools (`.git`, `.venv`, `.DS_Store`) or hold secrets (`.env`). The others are
    made again where they are needed: `node_modules`, `__pycache__`, and what the Finder adds to a zip (`__MACOSX`).
    """
    return part.startswith(".") or part in _LEFT_OUT


def shown(text: str) -> str:
    """`text` of a source for people: quoted, not too long, with nothing in it that a terminal would obey."""
    return repr(text if len(text) <= 80 else f"{text[:79]}…")  # noqa: PLR2004 - a line's worth


def plain(path: str) -> str:
    """`text` as it is where that is safe, else as `shown` has it."""
    return path if path.isprintable() else shown(path)


def in_folder(folder: Path) -> Generator[Member]:
    """What lies in `folder`, which is no link: by name, without what is left out.

    Raises:
        OSError: something cannot be read.
    """
    for at, folders, files, descriptor in os.fwalk(folder, onerror=_fail):
        folders[:] = sorted(name for name in folders if not left_out(name))
        inside = Path(at).relative_to(folder)
        for name in [*folders, *sorted(name for name in files if not left_out(name))]:
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            yield Member(
                name=(inside / name).as_posix(),
                folder=stat.S_ISDIR(found.st_mode),
                flaw=_flaw(found.st_mode),
                size=found.st_size,
                open=partial(_open_without_links, name, descriptor),
            )


def in_archive(content: bytes) -> Generator[Member]:
    """What an archive holds; it is known by its first bytes, not by its name.

    Raises:
        BadPackage: it is of no kind that is accepted, or too large; or, as members are asked for, damaged.
    """
    if len(content) > LARGEST_ARCHIVE:
        raise BadPackage(f"it is larger than {LARGEST_ARCHIVE // 1024**2} MiB: take out what is not needed")
    if content.startswith(_ZIP):
        _bound(content.count(_ZIP_ENTRY))
        return _in_zip(content)
    if content.startswith(_GZIP):
        _bound(content.count(_GZIP_MEMBER))
        return _in_tar_gz(content)
    if content[_USTAR] == b"ustar":
        raise BadPackage(f"it is a tar that is not compressed, and {_ACCEPTED}: compress it with gzip")
    kind = next(
        (kind for magic, kind in _OTHERS.items() if content.startswith(magic)), "neither a zip nor a gzipped tar"
    )
    raise BadPackage(f"it is {kind}, and {_ACCEPTED}: pack it anew")


def _in_zip(content: bytes) -> Generator[Member]:
    with zipfile.ZipFile(BytesIO(content)) as archive:
        for entry in archive.infolist():
            name, mode = _name(entry), entry.external_attr >> 16
            yield Member(
                name=name,
                folder=name.endswith("/") or stat.S_ISDIR(mode),
                flaw=_flaw(mode) or _zip_flaw(entry),
                size=entry.file_size,
                open=partial(archive.open, entry),
            )


def _in_tar_gz(content: bytes) -> Generator[Member]:
    """Read as a stream, so that no header can send the reader back to where it was."""
    with _Bounded(fileobj=BytesIO(content)) as stream:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive:
            for entry in archive:
                yield Member(
                    name=entry.name,
                    folder=entry.isdir(),
                    flaw=_tar_flaw(entry),
                    size=entry.size,
                    open=partial(_extract, archive, entry),
                )
        while stream.read(_READ_SIZE):  # to the checksum at the end
            pass


class _Bounded(GzipFile):
    """A gzip file that ends with an error where it holds more than `LARGEST_TAR`."""

    _given = 0

    def read(self, size: int | None = -1) -> bytes:
        """At most `size` bytes; none at the end."""
        content = super().read(size)
        self._given += len(content)
        if self._given > LARGEST_TAR:
            raise BadPackage(f"it unzips to more than {LARGEST_TAR // 1024**2} MiB: take out what is not needed")
        return content


class _Header(tarfile.TarInfo):
    """A header of a tar: a damaged one is an error, where `tarfile` would take it for the end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Header":
        """The header in a block of an archive."""
        if len(buf) != tarfile.BLOCKSIZE:
            raise tarfile.ReadError("it is cut off")
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError:
            if any(buf):
                raise tarfile.ReadError("a header is damaged") from None
            raise  # the end
        if header.type in _EXTENDING and not 0 <= header.size <= LONGEST_HEADER:
            raise BadPackage(f"it has a header of {header.size} bytes: pack it anew, without extended attributes")
        return header


def _bound(pieces: int) -> None:
    """Refuse an archive of very many pieces before they are looked at: each costs more than its bytes."""
    if pieces > MOST_MEMBERS:
        raise BadPackage(f"it consists of more than {MOST_MEMBERS:,} pieces: take out what is not needed")


def _name(entry: zipfile.ZipInfo) -> str:
    """The name of a zip's entry with all that `zipfile` would cut off; what is no UTF-8 in it, as lone surrogates.

    Some programs write UTF-8 without the flag that says so.
    """
    if entry.flag_bits & _UTF_8:
        return entry.orig_filename
    return entry.orig_filename.encode("cp437").decode(errors="surrogateescape")


def _flaw(mode: int) -> str:
    """What is wrong with a file of this mode; 0 is that of an archive which says nothing."""
    kind = stat.S_IFMT(mode)
    if kind in (0, stat.S_IFREG, stat.S_IFDIR):
        return ""
    return "is a link" if kind == stat.S_IFLNK else "is a device, a pipe or a socket"


def _zip_flaw(entry: zipfile.ZipInfo) -> str:
    if entry.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is compressed in an unusual way"
    return ""


def _tar_flaw(entry: tarfile.TarInfo) -> str:
    if entry.issym() or entry.islnk():
        return "is a link"
    if entry.issparse():
        return "is a sparse file"
    if entry.isdir() or entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
        return ""
    return "is a device, a pipe or something unusual"


def _extract(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    return cast("IO[bytes]", archive.extractfile(entry))  # None is for what is no file


def _open_without_links(name: str, folder: int) -> IO[bytes]:
    """The file `name` in the open `folder`, also where it has become something else meanwhile."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    file = open(name, "rb", opener=lambda path, _: os.open(path, flags, dir_fd=folder))  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise BadPackage(f"{shown(name)} was a file and is none any more: leave the folder alone, and try again")
    return file


def _fail(error: OSError) -> NoReturn:
    raise error
