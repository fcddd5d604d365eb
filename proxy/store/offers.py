"""What servers offered when the proxy ran last, in the user's cache folder: one file a server, without secrets."""

import hashlib
import time
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Final

import structlog

from proxy.core.inventory import Offer, is_json, items
from proxy.core.masking import Masker
from proxy.core.server import HttpServer, Server
from proxy.store.private_file import write_private_file
from proxy.wire.codec import dumps, loads

log = structlog.stdlib.get_logger("proxy.store")

FORMAT: Final = 3
"""Of the files; older ones may hold malformed definitions, or what a server offered one scope alone."""
LARGEST: Final = 64 * 1024 * 1024
"""Bytes of a file that is still read: no server offers as much, and a client waits meanwhile."""
KEPT_FOR: Final = 90 * 24 * 3600.0
"""Seconds after which a file that was not written again is removed: each run of a server writes its own anew."""


class OfferFiles:
    """The `KeptOffers` of a configuration, as files in `folder`.

    A file goes by a hash of the configuration's path and of what makes the server what it is. Secrets are not part of
    that; neither are environments, which differ from one program that starts the proxy to the next.
    """

    def __init__(self, folder: Path, configuration: Path, masker: Masker) -> None:
        self._folder = folder
        self._configuration = configuration
        self._masker = masker
        self._failed = False

    def read(self, server: Server) -> Offer | None:
        """What `server` offered, if it was configured as it is now and that can be read."""
        file = self._file(server)
        try:
            kept = loads(file.read_bytes()) if file.stat().st_size <= LARGEST else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.debug("offers.not_read", server=server.key, reason=str(error))
            return None
        if not is_json(kept) or kept.get("format") != FORMAT:
            return None
        instructions, extension = kept.get("instructions"), kept.get("extension")
        return Offer.of(
            tools=items(kept.get("tools")),
            resources=items(kept.get("resources")),
            templates=items(kept.get("templates")),
            prompts=items(kept.get("prompts")),
            instructions=instructions if isinstance(instructions, str) else None,
            skills=items(kept.get("skills")),
            extension=extension if is_json(extension) else None,
        )

    def keep(self, server: Server, offer: Offer) -> None:
        """Remember what `server` offers; where that cannot be done, it is said once."""
        file = self._file(server)
        content = dumps({"format": FORMAT, **{part.name: getattr(offer, part.name) for part in fields(offer)}})
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._remove_old()
            write_private_file(file, content)
        except OSError as error:
            if not self._failed:
                self._failed = True
                log.warning("offers.not_kept", folder=str(self._folder), reason=error.strerror or str(error))

    def _file(self, server: Server) -> Path:
        if isinstance(server, HttpServer):
            reached = [server.transport, server.url, *sorted(server.headers)]
        else:
            reached = ["stdio", server.command, *server.args, str(server.cwd)]
        makes_it = [str(self._configuration), server.key, server.era, *map(self._masker.mask, reached)]
        return self._folder / f"{hashlib.sha256(dumps(makes_it)).hexdigest()[:32]}.json"

    def _remove_old(self) -> None:
        for file in self._folder.glob(f"{'[0-9a-f]' * 32}.*"):
            with suppress(OSError):
                if time.time() - file.stat().st_mtime > KEPT_FOR:
                    file.unlink()
