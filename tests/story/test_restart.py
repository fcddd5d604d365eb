"""What is there again when the proxy was started anew: the skills of namespaces and users, with `state` in a file."""

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import anyio
import pytest

from tests.answers import current_skills
from tests.conftest import (
    ERAS,
    PATIENCE,
    HttpProxy,
    Raw,
    Record,
    connected,
    http_proxy,
    names,
    stdio_program,
    text_of,
    write_config,
)

pytestmark = pytest.mark.anyio

ALICE, BOB = {"Authorization": "Bearer alice-secret"}, {"Authorization": "Bearer bob-secret"}
ECHO, BOTH = ["SKILL", "SKILL_CALL", "up__echo"], ["SKILL", "SKILL_CALL", "up__echo", "up__list_issues"]
SKILLS = {
    "echoing": {"usage": "e", "tool_list": {"up": ["echo"]}},
    "issues": {"usage": "i", "tool_list": {"up": ["list_issues"]}},
}
TOKENS = {"alice": "alice-secret", "bob": "bob-secret"}


class Killed(Exception):
    """The program was killed, so that it has no exit code to speak of."""


def config(folder: Path, **proxy: object) -> Path:
    record = Record(folder / "log.jsonl")
    state = {"backend": "sqlite", "path": "state/skills.db"}
    return write_config(folder / "skills.yaml", {"up": record.entry()}, SKILLS, proxy={"state": state, **proxy})


def sigterm(_proxy: HttpProxy) -> None:
    """The end of `http_proxy`."""


def kill(proxy: HttpProxy) -> None:
    """kill -9."""
    proxy.process.kill()
    proxy.process.wait(PATIENCE)
    raise Killed


async def until_remembered(folder: Path, *active: str) -> None:
    """Wait until the file has these, in whatever order."""

    def found() -> list[str]:
        with closing(sqlite3.connect(folder / "state" / "skills.db")) as file:
            return sorted(skills for (skills,) in file.execute("SELECT active FROM scope"))

    with anyio.fail_after(PATIENCE):
        while found() != sorted(active):  # noqa: ASYNC110 - another process writes
            await anyio.sleep(0.01)


async def activate(raw: Raw, url: str, skill: str, headers: dict[str, str]) -> None:
    params = {"name": "SKILL", "arguments": {"action": "activate", "skill_name": skill}}
    answer = await raw.modern(url, "tools/call", params, headers)
    assert f"skill {skill} activated" in text_of(answer.reply["result"])


async def tools(raw: Raw, url: str, headers: dict[str, str]) -> list[str]:
    return names((await raw.modern(url, "tools/list", {}, headers)).reply)


@pytest.mark.parametrize("end", [sigterm, kill])
async def test_namespaces_and_users_go_on_where_they_were(
    tmp_path: Path, raw: Raw, end: Callable[[HttpProxy], None]
) -> None:
    """Their tools are listed at once and can be called, whether the proxy was ended or killed; sessions are over."""
    file = config(tmp_path, tokens=TOKENS)
    session: dict[str, str] = {}
    with suppress(Killed), http_proxy(file) as proxy:
        session = await raw.open(proxy.url, "alice-secret")
        await raw.skill(proxy.url, session, "activate", "echoing")
        await activate(raw, proxy.url, "echoing", ALICE)
        for skill in ("issues", "echoing"):
            await activate(raw, proxy.namespace("work"), skill, ALICE)
        await until_remembered(tmp_path, '["echoing"]', '["issues", "echoing"]')
        end(proxy)
    with http_proxy(file) as proxy:
        work = proxy.namespace("work")
        assert await tools(raw, proxy.url, ALICE) == ECHO
        assert await tools(raw, work, ALICE) == BOTH
        assert await tools(raw, proxy.url, BOB) == await tools(raw, work, BOB) == ["SKILL", "SKILL_CALL"]
        for url in (proxy.url, work):
            params = {"name": "up__echo", "arguments": {"text": "again"}}
            assert "again" in text_of((await raw.modern(url, "tools/call", params, ALICE)).reply["result"])
        listed = await raw.modern(work, "tools/call", {"name": "SKILL", "arguments": {"action": "list"}}, ALICE)
        assert current_skills(listed.reply["result"]) == ["issues", "echoing"]
        assert await raw.tools(proxy.url, await raw.open(proxy.url, "alice-secret")) == ["SKILL", "SKILL_CALL"]
        gone = await raw.send("POST", proxy.url, headers=session, body={"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert gone.status == 404


async def test_what_was_offloaded_stays_so_and_what_is_gone_from_the_file_is_dropped(tmp_path: Path, raw: Raw) -> None:
    """A skill that is active from the start is not activated again; one that became pinned is there."""
    file = config(tmp_path)
    with http_proxy(file) as proxy:
        url = proxy.namespace("a")
        for skill in ("issues", "echoing"):
            await activate(raw, url, skill, {})
        await raw.modern(
            url, "tools/call", {"name": "SKILL", "arguments": {"action": "offload", "skill_name": "echoing"}}
        )
    record = Record(tmp_path / "log.jsonl")
    skills = {
        "echoing": {**SKILLS["echoing"], "active": True},
        "waiting": {"usage": "w", "pinned": True, "tool_list": {"up": ["wait"]}},
    }
    state = {"backend": "sqlite", "path": "state/skills.db"}
    write_config(file, {"up": record.entry()}, skills, proxy={"state": state})
    with http_proxy(file) as proxy:
        url = proxy.namespace("a")
        answer = await raw.modern(url, "tools/call", {"name": "SKILL", "arguments": {"action": "list"}})
        assert current_skills(answer.reply["result"]) == ["waiting"]
        assert await tools(raw, url, {}) == ["SKILL", "SKILL_CALL", "up__wait"]
        assert await tools(raw, proxy.namespace("new"), {}) == ["SKILL", "SKILL_CALL", "up__echo", "up__wait"]


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_on_stdio_goes_on_under_its_name(tmp_path: Path, mode: str) -> None:
    """With `--namespace`; without, it is a new client each time, and nothing of it is remembered."""
    file = config(tmp_path)
    for _ in range(2):
        async with connected(stdio_program(file), mode) as peer:
            assert await peer.tools() == ["SKILL", "SKILL_CALL"]
            await peer.skill("activate", "echoing")
    await until_remembered(tmp_path)
    async with connected(stdio_program(file, "--namespace", "me"), mode) as peer:
        await peer.skill("activate", "echoing")
    async with connected(stdio_program(file, "--namespace", "me"), mode) as peer:
        assert await peer.tools() == ECHO
        assert "again" in text_of(await peer.call("up__echo", {"text": "again"}))
    async with connected(stdio_program(file, "--namespace", "you"), mode) as peer:
        assert await peer.tools() == ["SKILL", "SKILL_CALL"]


async def test_a_namespace_that_has_ended_is_not_there_again(tmp_path: Path, raw: Raw) -> None:
    """Nobody has used it for its idle time."""
    file = config(tmp_path, scope_idle={"namespace": 1})
    with http_proxy(file) as proxy:
        await activate(raw, proxy.namespace("a"), "echoing", {})
        await until_remembered(tmp_path, '["echoing"]')
        await until_remembered(tmp_path)
    with http_proxy(file) as proxy:
        assert await tools(raw, proxy.namespace("a"), {}) == ["SKILL", "SKILL_CALL"]
