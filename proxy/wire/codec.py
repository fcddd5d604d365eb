"""One message to one line of JSON and back, without losing what JSON can say."""

import json
from typing import Any

import orjson
from pydantic_core import from_json, to_json

from proxy.core.inventory import Listed


def loads(line: bytes) -> Any:  # noqa: ANN401 - whatever JSON says
    """The value that `line` holds: integers of any size, floats as doubles, the last of equal keys.

    What is no UTF-8 is replaced and a byte order mark dropped: one bad byte costs one character.

    Raises:
        ValueError: it is no JSON, or nested too deeply.
    """
    try:
        return from_json(line)
    except ValueError as problem:
        if "recursion limit" in str(problem):  # what is read has to be written again, also by what is less patient
            raise ValueError("it is nested too deeply") from None
        # One of the few things that only the standard library reads: lone surrogates, bytes that are no UTF-8.
        try:
            return json.loads(line.decode("utf-8", "replace").removeprefix("\ufeff"))
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


def dumps(message: object) -> bytes:
    """`message` as one line of JSON without its end; numbers that JSON cannot say become null.

    Raises:
        ValueError: it holds something else than JSON values, or is nested too deeply.
    """
    try:
        return orjson.dumps(message)
    except TypeError:  # integers beyond 64 bits, or lone surrogates
        pass
    try:
        return to_json(message, inf_nan_mode="null")
    except ValueError:  # lone surrogates
        pass
    try:
        return json.dumps(message, separators=(",", ":"), allow_nan=False).encode()
    except (RecursionError, TypeError) as error:
        raise ValueError(str(error)) from None


def result_line(request_id: object, result: dict[str, Any]) -> bytes:
    """A JSON-RPC response as one line with its end; a `Listed` in it is encoded once for all.

    Raises:
        ValueError: as `dumps`.
    """
    parts = [b'{"jsonrpc":"2.0","id":', dumps(request_id), b',"result":']
    if any(isinstance(value, Listed) for value in result.values()):
        before = b"{"
        for key, value in result.items():
            parts += [before, dumps(key), b":", _member(value)]
            before = b","
        parts.append(b"}}\n")
    else:
        parts += [dumps(result), b"}\n"]
    return b"".join(parts)


def _member(value: object) -> bytes:
    if not isinstance(value, Listed):
        return dumps(value)
    if value.encoded is None:
        value.encoded = dumps(value)
    return value.encoded
