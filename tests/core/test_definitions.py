"""Pinned definitions: what a change is, and what it leads to."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import definitions
from proxy.core.catalogue import Allow, Catalogue, Skill
from proxy.core.decision import clashes, decide
from proxy.core.definitions import (
    OTHER_FIELDS,
    PARTS,
    Change,
    Digests,
    Grant,
    Mode,
    Pin,
    Pins,
    approved,
    changed_parts,
    digests_of,
    grants,
    of_skills,
    settle,
    unknown_before,
    withheld,
)
from proxy.core.inventory import Offer
from proxy.core.names import Naming
from tests.core.strategies import World, law, worlds

A, B, C = ({"description": letter * 32} for letter in "abc")


def all_of(_tool: str) -> bool:
    return True


def none_of(_tool: str) -> bool:
    return False


@pytest.mark.parametrize("part", PARTS)
def test_each_part_has_a_digest_of_its_own(part: str):
    """So that a change is told by its name."""
    before = digests_of({"name": "a", part: {"x": 1}})

    assert changed_parts(before, digests_of({"name": "a", part: {"x": True}})) == (part,)
    assert changed_parts(before, digests_of({"name": "a"})) == (part,)
    assert changed_parts({}, before) == (part,)


def test_fields_that_nobody_knows_are_one_part():
    """Whose name is ours: theirs are words of the server."""
    before = digests_of({"name": "a", "description": "d"})
    after = digests_of({"name": "a", "description": "d", "ignore all else": 1, "and call me": 2})

    assert changed_parts(before, after) == (OTHER_FIELDS,)


def test_the_name_and_the_order_of_keys_do_not_count():
    """The name is what it is pinned by; some servers write the keys of a schema in another order each time."""
    one = {"name": "a", "inputSchema": {"type": "object", "properties": {"x": {"type": "string", "title": "X"}}}}
    two = {"inputSchema": {"properties": {"x": {"title": "X", "type": "string"}}, "type": "object"}, "name": "b"}

    assert digests_of(one) == digests_of(two)
    assert digests_of({"name": "a", "_meta": {"x": [1, 2]}}) != digests_of({"name": "a", "_meta": {"x": [2, 1]}})


def test_a_tool_is_pinned_when_it_is_first_granted():
    """Not when it is only offered."""
    assert settle({}, {"a": A}, none_of, "hold") == ({}, {})
    assert settle({}, {"a": A}, all_of, "warn") == ({"a": Pin(A)}, {})


@pytest.mark.parametrize("mode", ["warn", "hold"])
def test_what_is_as_it_was_changes_nothing(mode: Mode):
    """The pins are the very same object, so that nothing is written."""
    pins = {"a": Pin(A)}

    assert settle(pins, {"a": A}, all_of, mode)[0] is pins


def test_a_change_that_is_told_is_the_new_pin_once_it_is_granted():
    """Until then it stays to be told."""
    assert settle({"a": Pin(A)}, {"a": B}, none_of, "warn") == ({"a": Pin(A)}, {})
    assert settle({"a": Pin(A)}, {"a": B}, all_of, "warn") == ({"a": Pin(B)}, {"a": ("description",)})
    assert settle({"a": Pin(A, B)}, {"a": C}, all_of, "warn") == ({"a": Pin(C)}, {"a": ("description",)})
    assert settle(unknown_before({"a": A}), {"a": A}, all_of, "warn") == ({"a": Pin(A)}, {"a": ("description",)})


def test_a_change_is_held_until_it_is_approved():
    """Only what was seen last is."""
    held, changes = settle({"a": Pin(A)}, {"a": B}, none_of, "hold")
    assert (held, changes) == ({"a": Pin(A, B)}, {"a": ("description",)})
    assert held["a"].changed == ("description",)
    assert withheld(held, {"a": B, "b": B}) == {"a": ("description",)}
    assert settle(held, {"a": B}, all_of, "hold") == (held, {})
    later, changes = settle(held, {"a": C}, all_of, "hold")
    assert (later, changes) == ({"a": Pin(A, C)}, {"a": ("description",)})
    now = approved(later, ["a", "b"])
    assert now == {"a": Pin(C)}
    assert now["a"].changed == ()
    assert withheld(now, {"a": C}) == {}
    assert withheld(now, {"a": B}) == {"a": ("description",)}


def test_what_is_as_it_was_again_is_not_held():
    """And cannot be approved."""
    assert settle({"a": Pin(A, B)}, {"a": A}, none_of, "hold") == ({"a": Pin(A)}, {})
    assert approved({"a": Pin(A)}, ["a"]) == {"a": Pin(A)}


def test_lost_pins_approve_nothing():
    """Whatever is offered is held, also a tool without any field."""
    lost = unknown_before({"a": A, "b": {}})

    assert withheld(lost, {"a": A, "b": {}}) == {"a": ("description",), "b": ()}
    assert approved(lost, ["a", "b"]) == {"a": Pin(A), "b": Pin({})}


def test_pins_are_bounded(monkeypatch: pytest.MonkeyPatch):
    """Those of tools that are gone make room, the oldest first; what is offered keeps its own as long as it can."""
    monkeypatch.setattr(definitions, "PINS_LIMIT", 3)
    pins = {"gone": Pin(A), "here": Pin(A), "away": Pin(A)}

    assert [*settle(pins, {"here": A, "new": A}, all_of, "hold")[0]] == ["here", "away", "new"]
    many = dict.fromkeys(["here", "new", "newer", "newest"], A)
    assert [*settle(pins, many, all_of, "hold")[0]] == ["here", "new", "newer"]


digests = st.sampled_from([A, B, C])


@law
@given(
    steps=st.lists(
        st.tuples(st.dictionaries(st.sampled_from("ab"), digests), st.sets(st.sampled_from("ab")), st.booleans())
    )
)
def test_whatever_happens_only_what_was_granted_first_or_approved_is_shown(
    steps: list[tuple[dict[str, Digests], set[str], bool]],
):
    """A client never has a tool in another form than the first that any had, or one that was held and approved."""
    pins: Pins = {}
    good: dict[str, Digests] = {}
    for offered, granted, approves in steps:
        pins, _ = settle(pins, offered, granted.__contains__, "hold")
        shown = offered.keys() - withheld(pins, offered).keys()
        for tool in granted & shown:
            assert good.setdefault(tool, offered[tool]) == offered[tool]
        if approves:
            good |= {tool: pin.held for tool, pin in pins.items() if pin.held is not None}
            pins = approved(pins, [*pins])


@law
@given(world=worlds())
def test_what_is_exposed_is_granted(world: World):
    """By the decision, for any set of active skills; what is granted and not exposed is not offered, or has no name."""
    catalogue, active, inventory = world.catalogue, world.active, world.inventory
    granted = grants(catalogue, active)
    view = decide(catalogue, active, inventory)
    seen = {(route.server, route.original) for route in view.tools.values()}
    may = {
        (server, tool["name"])
        for server in catalogue.servers
        for tool in inventory.get(server, Offer()).tools
        if server in granted and granted[server].allows(tool["name"])
    }

    assert seen <= may
    names = clashes(catalogue, inventory)
    assert {catalogue.naming.expose(*one) for one in may - seen} <= names


def test_changes_are_those_of_what_skills_grant():
    """Denied ones are nobody's, and skills that there are not grant nothing."""
    skill: Any = {"name": "", "desc": "", "usage": ""}
    catalogue = Catalogue(
        ("a", "b"),
        Naming({"a": "a", "b": "b"}),
        (Skill("s", **skill, tools={"a": Allow.of(["x*"])}), Skill("t", **skill, tools={"b": Allow.of(["*"])})),
        denied={"a": Allow.of(["xx"])},
    )
    x, xx, y = (Change("a", tool, ()) for tool in ("x", "xx", "y"))

    assert of_skills(catalogue, ["s", "gone"], [x, xx, y, Change("b", "x", ())]) == [x]
    assert grants(catalogue, ["s"]) == {"a": Grant(Allow.of(["x*"]), Allow.of(["xx"]))}
