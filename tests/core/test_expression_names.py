"""What expressions can read of a scope."""

import json
import re

import pytest

from proxy.core.expression_names import names_for
from proxy.core.scope import ScopeId

SESSION = ScopeId("session", "0123456789abcdef", "alice")


def scope(of: ScopeId) -> dict[str, object]:
    return names_for(of, "a client", "1.2", {}, {})["scope"]


def test_expressions_read_the_heap_the_scope_and_the_environment():
    """The heap and the variables as they are given."""
    heap, env = {"customer": {"id": 7}}, {"REGION": "eu"}

    names = names_for(ScopeId("namespace", "desk", "alice"), "a client", "1.2", heap, env)

    assert names.keys() == {"heap", "scope", "env"}
    assert (names["heap"], names["env"]) == (heap, env)
    told = {key: value for key, value in names["scope"].items() if key != "id"}
    assert told == {"namespace": "desk", "principal": "alice", "client": {"name": "a client", "version": "1.2"}}


def test_the_id_of_a_session_is_not_what_its_client_holds():
    """Who knows the session's own id could take its place."""
    told = scope(SESSION)

    assert "0123456789" not in json.dumps(told)
    assert re.fullmatch(r"[0-9a-f]{32}", str(told["id"]))
    assert told["id"] == scope(SESSION)["id"]
    assert (told["namespace"], told["principal"]) == (None, "alice")


@pytest.mark.parametrize(
    "other",
    [
        ScopeId("session", "0123456789abcdef"),
        ScopeId("session", "0123456789abcdee", "alice"),
        ScopeId("namespace", "0123456789abcdef", "alice"),
    ],
)
def test_every_scope_has_an_id_of_its_own(other: ScopeId):
    """By kind, name and principal."""
    assert scope(other)["id"] != scope(SESSION)["id"]


def test_the_id_of_a_scope_survives_restarts_and_releases():
    """Written out: what steps have kept elsewhere is found by it again."""
    assert scope(ScopeId("process"))["id"] == "914a1d38f5c48328bdecfd6201d824f7"
