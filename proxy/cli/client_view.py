"""What one client is offered, as `check` and `try` show it: its profile's skills, and which of them are active."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proxy.cli.layout import short
from proxy.config.load import Loaded, Problem, Refused
from proxy.config.problems import did_you_mean
from proxy.core.call_route import shows_call_route
from proxy.core.catalogue import Catalogue
from proxy.core.inventory import Inventory
from proxy.core.relations import begin, refitted
from proxy.core.scope import Evidence, ScopeId, ScopeState, client_scope
from proxy.gateway.scope_view import scope_view, skill_lists


@dataclass(frozen=True)
class ClientView:
    """What exists for the client whose scope is `scope`, and the state that it would come to."""

    scope: ScopeId
    catalogue: Catalogue
    """What its profile lets it use."""

    state: ScopeState
    remembered: bool = False
    """Whether the state is from the state file, and not as every such scope begins."""

    note: str = ""
    """Why the state file could not be asked; empty where it could, or there is none."""

    @property
    def name(self) -> str:
        """How a person says which client it is."""
        if self.scope.kind == "process":
            return "a client without a namespace"
        user = "" if self.scope.principal is None else f" of principal {self.scope.principal}"
        return f"namespace {self.scope.name}{user}" if self.scope.kind == "namespace" else user.removeprefix(" of ")


def client_view(loaded: Loaded, namespace: str | None, principal: str | None) -> ClientView:
    """The view of the client with this namespace and principal; without both, of one that has a process to itself.

    Raises:
        Refused: `proxy.tokens` has no such principal.
    """
    tokens = loaded.settings.tokens
    if principal is not None and principal not in tokens:
        hint = did_you_mean(principal, tokens) if tokens else "there are no principals: no tokens are configured"
        raise Refused([Problem(str(short(loaded.path)), 0, "proxy.tokens", f"no principal {principal}; {hint}")])
    scope = client_scope(namespace, principal)
    catalogue = loaded.policy.of(scope)
    states, note = remembered(loaded, scope)
    if scope in states:
        return ClientView(scope, catalogue, refitted(states[scope], catalogue), remembered=True)
    return ClientView(scope, catalogue, begin(catalogue), note=note)


def remembered(loaded: Loaded, scope: ScopeId) -> tuple[Mapping[ScopeId, ScopeState], str]:
    """The state of `scope` in the state file, which stays as it is; and why that cannot be read, or nothing."""
    if loaded.settings.state_file is None or scope.kind == "process":
        return {}, ""
    from proxy.store.state_file import CannotUse, StateFile  # noqa: PLC0415 - with SQLite, only who keeps state in it

    try:
        states = StateFile(Path(loaded.settings.state_file)).snapshot(loaded.settings.max_scopes)
    except CannotUse as error:
        return {}, f"{loaded.settings.state_file}: {error}"
    return {scope: states[scope]} if scope in states else {}, ""


def shown_tools(loaded: Loaded, client: ClientView, inventory: Inventory) -> list[str]:
    """The names in the list of tools of a client that reads it again when told, while servers offer `inventory`."""
    settings, catalogue = loaded.settings, client.catalogue
    shown = catalogue.pinned if settings.listing == "stable" else client.state.active
    view = scope_view(skill_lists(catalogue, settings.publish), shown, inventory, settings)
    with_call = shows_call_route(catalogue, settings, Evidence(), "while_held")
    return [tool["name"] for tool in (view.with_call if with_call else view.tools)]
