"""What a changed configuration puts into effect, what of it waits, and what is called different."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from proxy.config.difference import AT_ONCE, IN_FULL, WAITS, InForce, abridged, difference, in_force, late
from proxy.config.load import Loaded
from proxy.core.catalogue import Allow, Catalogue, Skill
from proxy.core.names import Naming
from proxy.core.server import HttpServer, Server, StdioServer
from proxy.core.settings import Settings
from proxy.core.steps import Call, Workflow
from proxy.ports import Status

GIT = StdioServer(key="git", command="/bin/git")
TRACKER = HttpServer(key="tracker", url="https://tracker.example/mcp")
UNSET = "variable TOKEN is not set"


def loaded(
    *servers: Server | str,
    skills: tuple[Skill, ...] = (),
    denied: dict[str, Allow] | None = None,
    naming: Naming | None = None,
    settings: Settings | None = None,
) -> Loaded:
    """A configuration with these servers; one that is only a key cannot be started."""
    keys = tuple(server if isinstance(server, str) else server.key for server in servers)
    return Loaded(
        path=Path("/skills.yaml"),
        catalogue=Catalogue(keys, naming or Naming({key: key for key in keys}), skills, denied or {}),
        servers={server.key: server for server in servers if not isinstance(server, str)},
        unstartable={server: UNSET for server in servers if isinstance(server, str)},
        settings=settings or Settings(),
    )


def skill(key: str, desc: str = "") -> Skill:
    return Skill(key, key, desc, "")


# --- in force --------------------------------------------------------------------------------------------------------


def test_what_is_as_it_was_approved_is_in_force():
    """Also one that cannot be started, which fails with its reason; nothing waits."""
    now = loaded(GIT, "broken", TRACKER)

    assert in_force(now, now) == InForce({"git": GIT, "tracker": TRACKER}, {"broken": Status("failed", UNSET)}, {})


def test_a_new_server_waits():
    """It is not started, and says what it waits for."""
    now = in_force(loaded(GIT), loaded(GIT, TRACKER))

    assert now == InForce({"git": GIT}, {"tracker": Status("idle", WAITS)}, {"tracker": TRACKER})
    assert "SIGHUP" in WAITS


@pytest.mark.parametrize(
    "wanted",
    [
        replace(GIT, command="/bin/sh"),
        replace(GIT, args=("-x",)),
        replace(GIT, env={"A": "b"}),
        replace(GIT, cwd="/tmp"),
        replace(GIT, timeout=1.0),
        replace(GIT, isolation="scope"),
        replace(GIT, eager=True),
        HttpServer(key="git", url="http://127.0.0.1/mcp"),
    ],
)
def test_a_server_in_another_way_waits_and_goes_on_as_it_was(wanted: Server):
    """Whatever is different of it."""
    now = in_force(loaded(GIT), loaded(wanted))

    assert now == InForce({"git": GIT}, {}, {"git": wanted})


def test_a_server_that_is_gone_ends():
    """Removed or switched off, it is nowhere; that needs no approval."""
    assert in_force(loaded(GIT, TRACKER), loaded(TRACKER)) == InForce({"tracker": TRACKER}, {}, {})
    assert in_force(loaded(GIT, "broken"), loaded()) == InForce({}, {}, {})


def test_a_server_that_comes_back_as_it_was_approved_needs_no_approval():
    """What was approved stays approved while the file has it not."""
    assert in_force(loaded(GIT, TRACKER), loaded(GIT, TRACKER)).waiting == {}
    assert in_force(loaded(GIT, TRACKER), loaded(TRACKER, GIT)).servers == {"git": GIT, "tracker": TRACKER}


def test_the_servers_are_in_the_order_of_the_new_file():
    """By which tools are listed."""
    now = in_force(loaded(GIT, TRACKER), loaded(TRACKER, GIT))

    assert list(now.servers) == ["tracker", "git"]


def test_a_server_that_can_no_longer_be_started_goes_on_and_what_it_became_waits():
    """As with any other change of it; it is to be None."""
    assert in_force(loaded(GIT), loaded("git")) == InForce({"git": GIT}, {}, {"git": None})


def test_a_server_that_could_not_be_started_and_now_could_waits():
    """Its variable was not set when the user approved: what it starts now, nobody has seen."""
    now = in_force(loaded("git"), loaded(GIT))

    assert now == InForce({}, {"git": Status("idle", WAITS)}, {"git": GIT})


def test_a_new_server_that_cannot_be_started_does_not_wait():
    """No word of the user could start it: it fails with its reason."""
    assert in_force(loaded(), loaded("git")) == InForce({}, {"git": Status("failed", UNSET)}, {})


def test_what_was_loaded_between_does_not_count():
    """Only what was approved does: a change that is taken back does not wait, however long it has stood there."""
    approved, between = loaded(GIT), loaded(replace(GIT, args=("-x",)), TRACKER)
    assert set(in_force(approved, between).waiting) == {"git", "tracker"}
    assert in_force(approved, loaded(GIT)) == in_force(approved, approved)


# --- difference ------------------------------------------------------------------------------------------------------


def test_nothing_is_different_of_the_same():
    """Nor of an equal one at another place, or with other notes or secrets: that is nothing to put into effect."""
    one, other = (loaded(GIT, "broken", skills=(skill("a"),), denied={"git": Allow.of(["x"])}) for _ in "12")

    assert difference(one, one) == {}
    assert difference(one, replace(other, path=Path("/x"), notes=("n",), secrets=frozenset({"s"}))) == {}


def test_skills_are_told_by_what_became_of_them():
    """In the order of the files; the removed ones in the order that they had."""
    before = loaded(skills=(skill("stays"), skill("z"), skill("changes"), skill("a")))
    after = loaded(skills=(skill("new"), skill("stays"), skill("changes", "differently"), skill("also")))

    assert difference(before, after) == {
        "skills_added": ["new", "also"],
        "skills_removed": ["z", "a"],
        "skills_changed": ["changes"],
    }


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "x"},
        {"usage": "x"},
        {"active": True},
        {"pinned": True},
        {"tools": {"git": Allow.of(["x"])}},
        {"resources": {"git": Allow.of(["x"])}},
        {"prompts": {"git": Allow.of(["x"])}},
        {"on_activate": (Call("on_activate[0]", "x", "git", "x"),)},
        {"hook_timeout": 1.0},
        {"workflow": Workflow((), {})},
    ],
)
def test_whatever_is_different_of_a_skill_it_has_changed(changed: dict[str, object]):
    before = loaded(skills=(skill("a"),))
    after = loaded(skills=(replace(skill("a"), **changed),))

    assert difference(before, after) == {"skills_changed": ["a"]}


def test_of_very_many_the_log_has_the_first_and_how_many():
    """A line of a log is read by people."""
    many = [f"s{number}" for number in range(10_000)]

    told = abridged({"skills_added": many, "skills_removed": many[:30]})
    assert told == {"skills_added": [*many[:30], "… (10,000 in all)"], "skills_removed": many[:30]}


def test_what_is_denied_is_told_by_server():
    """Whether it is more, less or something else."""
    some, others = {"git": Allow.of(["x"]), "up": Allow.of(["y"])}, {"up": Allow.of(["z"]), "to": Allow.of(["y"])}

    assert difference(loaded(denied=some), loaded(denied=others)) == {"denied_changed": ["git", "up", "to"]}
    assert difference(loaded(denied=some), loaded(denied=some)) == {}


def test_settings_are_told_by_name():
    """As they are written in the file, also the limit on names, which is none of the settings of the program."""
    before = loaded(settings=Settings(), naming=Naming({}, limit=48))
    after = loaded(settings=Settings(list_wait=1.0, reload="off"), naming=Naming({}, limit=32))

    assert difference(before, after) == {"settings_changed": ["list_wait", "reload", "name_limit"]}


def test_what_is_done_when_a_scope_starts_is_told_as_a_setting_and_applies_at_once():
    """With the time that it may take, and the variables that expressions read."""
    before, after = loaded(), loaded(settings=Settings(expression_env={"A": "1"}))
    start = replace(after.catalogue, on_start=(Call("on_scope_start[0]", "x", "a", "x"),), start_timeout=1.0)
    changes = difference(before, replace(after, catalogue=start))

    assert changes == {"settings_changed": ["expression_env", "on_scope_start", "hook_timeout"]}
    assert late(changes["settings_changed"]) == []


def test_prefixes_are_told_of_servers_that_stay():
    """Of a server that comes or goes it is said already."""
    before, after = loaded(GIT, TRACKER), loaded(GIT, StdioServer(key="new", command="x"))
    after = replace(after, catalogue=replace(after.catalogue, naming=Naming({"git": "g", "new": "n"})))

    assert difference(before, after) == {
        "servers_added": ["new"],
        "servers_removed": ["tracker"],
        "prefixes_changed": ["git"],
    }


def test_the_order_of_the_file_is_no_difference():
    """To anybody who reads the log; what clients see in another order, they are told."""
    assert difference(loaded(GIT, TRACKER), loaded(TRACKER, GIT)) == {}
    assert difference(loaded(skills=(skill("a"), skill("b"))), loaded(skills=(skill("b"), skill("a")))) == {}


# --- settings that count later ---------------------------------------------------------------------------------------


def test_tokens_wait_as_servers_do():
    """Those of the users whose token is new, gone or another one."""

    def of(**tokens: str) -> Loaded:
        return replace(loaded(GIT), settings=Settings(tokens=tokens))

    assert in_force(of(a="x", b="y", c="z"), of(b="y", c="u", d="v")).users == ("a", "c", "d")
    assert in_force(of(a="x"), of(a="x")).users == ()


def test_settings_that_count_from_the_next_start_on_are_told_apart():
    """In the order in which they were given; how names are made, `reload` and `tokens` have rules of their own."""
    changed = ["keep_alive", "tokens", "list_wait", "name_limit", "reload", "max_message_size"]
    assert late(changed) == ["keep_alive", "max_message_size"]
    assert late([]) == []


def test_every_setting_is_either_at_once_or_late():
    """None is forgotten, and none that is said to apply at once has gone."""
    names = {field.name for field in fields(Settings)}

    assert names >= AT_ONCE
    assert set(late(sorted(names))) == names - AT_ONCE - IN_FULL
