"""Reading an `env_file` in dotenv form; nothing in it is expanded."""

from collections.abc import Mapping
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

from proxy.config.files import Files


class UnreadableEnvFile(Exception):
    """An env_file that cannot be read; its text is the reason."""


def read_env_file(path: Path, files: Files) -> Mapping[str, str]:
    """The variables of a dotenv file; a name without `=` has no value and is left out.

    Raises `UnreadableEnvFile`.
    """
    from dotenv import dotenv_values  # noqa: PLC0415 - few configurations have such a file, and it takes a while
    from dotenv.parser import parse_stream  # noqa: PLC0415 - as above

    try:
        text = TextIOWrapper(BytesIO(files.read(path)), encoding="utf-8-sig").read()
    except UnicodeDecodeError:
        raise UnreadableEnvFile(f"{path} is not UTF-8 text") from None
    except FileNotFoundError:
        raise UnreadableEnvFile(f"{path} does not exist") from None
    except OSError as error:
        raise UnreadableEnvFile(f"{path} cannot be read: {error.strerror or error}") from None
    if "\0" in text:
        raise UnreadableEnvFile(f"{path} is not a text file")
    for binding in parse_stream(StringIO(text)):
        if binding.error:
            raise UnreadableEnvFile(f"{path}:{binding.original.line} is not of the form NAME=value")
    values = dotenv_values(stream=StringIO(text), interpolate=False)
    return {name: value for name, value in values.items() if value is not None}
