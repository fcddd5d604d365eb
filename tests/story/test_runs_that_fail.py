"""What people and models are told when a run goes wrong, and what the record of it says, on a real server."""

import json
import sys
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest

from tests.conftest import ROOT, HttpProxy, Json, connected, http_proxy, program, text_of, write_config

pytestmark = pytest.mark.anyio

ORDERS = {"desk": ["list_orders"]}
SKILLS: Json = {
    "each": {
        "desc": "Looks at the orders of many customers, whatever becomes of one.",
        "internal_tools": ORDERS,
        "max_iterations": 2,
        "steps": [
            {
                "tool": "desk/list_orders",
                "for_each": [1, 1, 1],
                "arguments": {"customer_id": "{{ item }}"},
                "on_error": "continue",
            }
        ],
    },
    "login": {
        "desc": "Finds a customer by a password.",
        "internal_tools": {"desk": ["find_customer"]},
        "parameters": {"password": {"type": "string"}},
        "steps": [{"tool": "desk/find_customer", "arguments": {"email": "{{ params.password }}"}}],
    },
    "orders": {
        "desc": "The orders of a customer.",
        "internal_tools": ORDERS,
        "parameters": {"customer": {"type": "integer", "required": True}},
        "steps": [{"tool": "desk/list_orders", "arguments": {"customer_id": "{{ params.customer }}"}}],
        "activation": "required",
        "expose_as_tool": True,
    },
    "patient": {
        "desc": "Waits for what never comes.",
        "internal_tools": {"desk": ["track_order", "recent_notes"]},
        "on_activate": [{"tool": "desk/recent_notes", "arguments": {"customer_id": 1}}],
        "hook_timeout": 0.2,
        "steps": [{"tool": "desk/track_order", "arguments": {"order_id": 11}}],
        "max_execution_time_seconds": 0.2,
    },
}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[HttpProxy, Path]]:
    """A proxy whose desk hangs when it tracks an order or reads notes, and its configuration."""
    folder = tmp_path_factory.mktemp("desk")
    for tool in ("track_order", "recent_notes"):
        (folder / f"{tool}.hangs").touch()
    script = str(ROOT / "tests" / "servers" / "desk.py")
    desk = {"command": sys.executable, "args": [script, "--seed", "--moods", str(folder), str(folder / "desk.db")]}
    state = {"backend": "sqlite", "path": "state.db"}
    config = write_config(folder / "c.yaml", {"desk": desk}, SKILLS, proxy={"state": state})
    with http_proxy(config) as running:
        yield running, config


@pytest.fixture
def url(proxy: tuple[HttpProxy, Path], namespace: str) -> str:
    return proxy[0].namespace(namespace)


async def invoked(url: str, skill: str, **arguments: object) -> str:
    """The text of a run that fails."""
    async with connected(url, "legacy") as peer:
        answer = await peer.call("SKILL_INVOKE", {"skill_name": skill, "arguments": arguments})
    assert answer["isError"] is True, answer
    return text_of(answer)


async def test_no_more_calls_end_a_run_also_where_steps_may_fail(url: str):
    """`on_error: continue` is about what a tool does, not about what a run may cost; the setting is named."""
    told = await invoked(url, "each")

    assert "value 2: no more calls may be made in one run (its max_iterations)" in told


async def test_what_is_wrong_with_arguments_names_the_argument_that_was_meant(url: str):
    async with connected(url, "legacy") as peer:
        await peer.skill("activate", "orders")
        answer = await peer.call("orders", {"custmer": 1})

    assert answer["structuredContent"]["errors"] == [
        "'custmer' is not expected (did you mean 'customer'?)",
        "customer: is required",
    ]


async def test_a_call_without_the_name_of_a_skill_is_told_so(url: str):
    """Not where to put what stands in its place."""
    async with connected(url, "legacy") as peer:
        answer = await peer.call("SKILL_INVOKE", {"skill": "orders"})

    assert answer["isError"] is True
    assert text_of(answer).startswith("The skill_name is missing. SKILL_INVOKE takes ")


async def test_a_skill_that_is_a_tool_while_it_is_active_says_what_to_call_while_it_is_not(url: str):
    """As every tool of a skill does."""
    async with connected(url, "legacy") as peer:
        before = await peer.call("orders", {"customer": 1})
        await peer.skill("activate", "orders")
        while_active = await peer.call("orders", {"customer": 1})
        await peer.skill("offload", "orders")
        after = await peer.call("orders", {"customer": 1})

    call = 'SKILL({"action": "activate", "skill_name": "orders"})'
    assert f"Tool orders is not active: it comes with skill orders. Call {call} first" in text_of(before)
    assert while_active["structuredContent"]["success"] is True
    assert text_of(after).startswith("Tool orders was offloaded: ")


async def test_what_took_too_long_names_the_setting(url: str):
    """That of a run, and that of hooks."""
    async with connected(url, "legacy") as peer:
        hook = await peer.skill("activate", "patient")

    assert "all steps together have 0.2 s, and that is over (its hook_timeout)" in text_of(hook)
    assert "(its max_execution_time_seconds)" in await invoked(url, "patient")


async def test_the_record_of_a_run_has_no_secret_that_a_server_repeats(proxy: tuple[HttpProxy, Path], url: str):
    """Not even in what a tool says of why it has failed; the client, who gave it, is told in full."""
    told = await invoked(url, "login", password="opensesame")

    command = program("runs", "list", "--config", proxy[1], "--skill", "login", "--json")
    listed = (await anyio.run_process(command)).stdout.decode()
    record = json.loads(listed)
    assert "no customer has the address opensesame" in told
    assert "opensesame" not in listed
    assert "no customer has the address ***" in record["error"]
    assert "no customer has the address ***" in record["steps"][0]["error"]
