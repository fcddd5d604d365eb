"""What a changed configuration puts into effect, what of it waits, and what is different."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from proxy.config.load import Loaded
from proxy.config.models import ON_START
from proxy.core.server import Server
from proxy.core.settings import Settings
from proxy.ports import Status

WAITS: Final = "it is new in the configuration: it can start once the proxy has got SIGHUP, or was restarted"
AT_ONCE: Final = frozenset(
    {
        *("list_wait", "activation_wait", "call_route", "call_route_clients", "listing", "publish", "guidance"),
        *("expression_env", "limits", "definitions"),
    }
)
"""The settings that apply as soon as they are changed."""
IN_FULL: Final = frozenset({"reload", "tokens"})
"""Those that apply with a full reload."""
_OF_CATALOGUE: Final = ("name_limit", ON_START, "hook_timeout")
"""What stands beside them in the file and is a part of the catalogue, with which it applies at once."""


MOST_TOLD: Final = 30
"""Names of each kind that the log has."""


@dataclass(frozen=True)
class InForce:
    """The servers that can be started, where others stand, and what waits for the user's word.

    `waiting`: by the key of the server, what it is to become; None where it is not to be started any more. `users`:
    those whose tokens wait.
    """

    servers: Mapping[str, Server]
    unstartable: Mapping[str, Status]
    waiting: Mapping[str, Server | None]
    users: tuple[str, ...] = ()


def in_force(approved: Loaded, loaded: Loaded) -> InForce:
    """What `loaded` puts into effect where the user has `approved` servers as they were.

    A server starts a program, and whoever can write files could write one: no server is started in a way that the user
    has not approved. Those that are gone are ended.
    """
    servers: dict[str, Server] = {}
    unstartable: dict[str, Status] = {}
    waiting: dict[str, Server | None] = {}
    for key in loaded.catalogue.servers:
        known, wanted = approved.servers.get(key), loaded.servers.get(key)
        if known is not None:
            servers[key] = known
        else:
            failed = Status("failed", loaded.unstartable.get(key, ""))
            unstartable[key] = failed if wanted is None else Status("idle", WAITS)
        if wanted != known:
            waiting[key] = wanted
    users = tuple(_differing(approved.settings.tokens, loaded.settings.tokens))
    return InForce(servers, unstartable, waiting, users)


def difference(before: Loaded, after: Loaded) -> dict[str, list[str]]:
    """The names of what is different, by kind and how: `skills_added`, `servers_changed` and so on."""
    found = {
        **_compared("skills", before.catalogue.by_id, after.catalogue.by_id),
        **_compared("servers", _servers(before), _servers(after)),
        **_compared("profiles", _profiles(before), _profiles(after)),
        "denied_changed": _differing(before.catalogue.denied, after.catalogue.denied),
        "settings_changed": _differing(_settings(before), _settings(after)),
    }
    here, there = before.catalogue.naming, after.catalogue.naming
    found["prefixes_changed"] = _compared("prefixes", here.prefixes, there.prefixes)["prefixes_changed"]
    return {kind: names for kind, names in found.items() if names}


def abridged(changes: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The same for a line of the log, however many names there are."""
    return {
        kind: [*names[:MOST_TOLD], *([f"… ({len(names):,} in all)"] if len(names) > MOST_TOLD else [])]
        for kind, names in changes.items()
    }


def late(changed: Sequence[str]) -> list[str]:
    """Those of the changed settings that count from the next start on."""
    return [name for name in changed if name not in AT_ONCE | {*_OF_CATALOGUE, *IN_FULL}]


def _compared(kind: str, before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, list[str]]:
    return {
        f"{kind}_added": [key for key in after if key not in before],
        f"{kind}_removed": [key for key in before if key not in after],
        f"{kind}_changed": [key for key in _differing(before, after) if key in before and key in after],
    }


def _differing(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    return [key for key in {**before, **after} if before.get(key) != after.get(key)]


def _servers(loaded: Loaded) -> Mapping[str, object]:
    return {key: loaded.servers.get(key, loaded.unstartable.get(key)) for key in loaded.catalogue.servers}


def _profiles(loaded: Loaded) -> Mapping[str, object]:
    """The profiles by their place in the file, from 0 on, as messages about them name it."""
    return {str(index): profile for index, profile in enumerate(loaded.profiles)}


def _settings(loaded: Loaded) -> Mapping[str, object]:
    catalogue = loaded.catalogue
    held = (catalogue.naming.limit, catalogue.on_start, catalogue.start_timeout)
    settings = {field.name: getattr(loaded.settings, field.name) for field in fields(Settings)}
    settings["max_message_size"] = (settings.pop("max_request_size"), settings["max_message_size"])  # one in the file
    return settings | dict(zip(_OF_CATALOGUE, held, strict=True))
