"""Sealing the state that a client brings back: it counts only where it was given (2026-07-28, `requestState`)."""

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from typing import Any, Final

from proxy.core.errors import Rejection

INVALID_PARAMS: Final = -32602
_MAC_BYTES: Final = 32


class Seal:
    """Binds values to a purpose under a key of this process's own; the specification has clients hold the state."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def close(self, purpose: object, value: Any) -> str:  # noqa: ANN401 - any JSON value
        """`value`, as a text that `open` takes for the same `purpose` alone; both are JSON values."""
        body = json.dumps(value).encode()
        return base64.urlsafe_b64encode(self._mac(purpose, body) + body).decode().rstrip("=")

    def open(self, purpose: object, sealed: object) -> Any:  # noqa: ANN401 - any JSON value
        """The value in a text that `close` has made for this `purpose`.

        Raises:
            Rejection: it has not.
        """
        try:
            text = sealed if isinstance(sealed, str) else ""
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except (binascii.Error, ValueError):
            text, raw = "", b""
        if base64.urlsafe_b64encode(raw).decode().rstrip("=") != text:  # it has one spelling
            raw = b""
        given, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(given, self._mac(purpose, body)):
            raise Rejection(INVALID_PARAMS, "Invalid or expired requestState")
        return json.loads(body)

    def _mac(self, purpose: object, body: bytes) -> bytes:
        bound = hashlib.sha256(json.dumps(purpose, sort_keys=True).encode()).digest()
        return hmac.digest(self._key, bound + body, "sha256")
