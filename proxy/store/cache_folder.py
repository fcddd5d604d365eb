"""The folder of what is remembered from one run to the next, among the user's caches."""

from errno import ENOENT
from pathlib import Path

from platformdirs import user_cache_path

from proxy.core.self_description import NAME


def cache_folder() -> Path:
    """The folder, which need not be there yet.

    Raises:
        OSError: the user has no home directory that it could be in.
    """
    try:
        return user_cache_path(NAME)
    except RuntimeError:  # HOME is not set, and the user is not in the system's list of users
        raise OSError(ENOENT, "there is no home directory") from None
