"""Which resources each subscriber wishes to hear of, also by resource: an update costs by those who hear of it."""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from proxy.core.errors import Rejection
from proxy.core.scope import ScopeId
from proxy.gateway.sealing import INVALID_PARAMS
from proxy.ports import Subscriber

MAX_WISHES: Final = 1000
"""Resources that one subscriber can hear of: a connection, or the listen streams of a scope together."""
MAX_WISH_CHARACTERS: Final = 2048
"""Of the URI of one of them."""


class Wishes:
    """The URIs that each subscriber wishes to hear of: of each itself, and of what is below it."""

    def __init__(self) -> None:
        self._uris: dict[Subscriber, set[str]] = {}
        self._by_stem: dict[str, set[tuple[Subscriber, str]]] = {}
        self._in_scope: dict[ScopeId, set[Subscriber]] = {}

    def __bool__(self) -> bool:
        """Whether somebody wishes to hear of something."""
        return bool(self._uris)

    def items(self) -> Iterable[tuple[Subscriber, set[str]]]:
        """Each subscriber and its URIs."""
        return self._uris.items()

    def of(self, scope: ScopeId) -> frozenset[str]:
        """What the subscribers of a scope wish to hear of."""
        return frozenset(uri for subscriber in self._in_scope.get(scope, ()) for uri in self._uris[subscriber])

    def scopes(self) -> list[ScopeId]:
        """The scopes that have subscribers."""
        return [*self._in_scope]

    def add(self, subscriber: Subscriber, uri: str) -> None:
        """One more.

        Raises:
            Rejection: it is one too many, or too long.
        """
        uris = self._uris.get(subscriber, set[str]())
        _check(uris | {uri})
        self._link(subscriber, uri)

    def _link(self, subscriber: Subscriber, uri: str) -> None:
        self._uris.setdefault(subscriber, set()).add(uri)
        self._in_scope.setdefault(subscriber.scope, set()).add(subscriber)
        self._by_stem.setdefault(_stem(uri), set()).add((subscriber, uri))

    def set(self, subscriber: Subscriber, uris: Iterable[str]) -> None:
        """Exactly these.

        Raises:
            Rejection: they are too many, or one is too long; then all is as it was.
        """
        wanted = frozenset(uris)
        _check(wanted)
        self.forget(subscriber)
        for uri in wanted:
            self._link(subscriber, uri)

    def discard(self, subscriber: Subscriber, uri: str) -> None:
        """One less, if it was wished."""
        uris = self._uris.get(subscriber, set[str]())
        if uri in uris:
            uris.discard(uri)
            self._unlink(subscriber, uri)
            if not uris:
                self.forget(subscriber)

    def forget(self, subscriber: Subscriber) -> bool:
        """The subscriber wishes nothing any more; whether it did."""
        uris = self._uris.pop(subscriber, None)
        if uris is None:
            return False
        for uri in uris:
            self._unlink(subscriber, uri)
        others = self._in_scope[subscriber.scope]
        others.discard(subscriber)
        if not others:
            del self._in_scope[subscriber.scope]
        return True

    def hearing_of(self, uri: str) -> Iterator[tuple[Subscriber, str]]:
        """Who hears of an update of `uri`, and by which wish: for that, or for a resource of which it is a part."""
        beginning = uri[: MAX_WISH_CHARACTERS + 1]
        stems = {_stem(uri), *(uri[:end] for end, character in enumerate(beginning) if character == "/")}
        for stem in stems:
            for subscriber, wished in self._by_stem.get(stem, ()):
                if _is_of(uri, wished):
                    yield subscriber, wished

    def _unlink(self, subscriber: Subscriber, uri: str) -> None:
        linked = self._by_stem[_stem(uri)]
        linked.discard((subscriber, uri))
        if not linked:
            del self._by_stem[_stem(uri)]


def _check(uris: AbstractSet[str]) -> None:
    if len(uris) > MAX_WISHES:
        raise Rejection(INVALID_PARAMS, f"No more than {MAX_WISHES} resources can be subscribed to at a time")
    if any(len(uri) > MAX_WISH_CHARACTERS for uri in uris):
        raise Rejection(INVALID_PARAMS, f"A URI of more than {MAX_WISH_CHARACTERS} characters cannot be subscribed to")


def _stem(uri: str) -> str:
    return uri.rstrip("/")


def _is_of(uri: str, subscribed: str) -> bool:
    """Whether an update of `uri` is for those who subscribed: "the URI subscribed to, or a sub-resource of it"."""
    return uri == subscribed or uri.startswith(_stem(subscribed) + "/")
