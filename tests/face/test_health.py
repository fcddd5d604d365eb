"""What the health route tells, and whom: the state in one word everybody, more only to those whom it concerns."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Json, Launch, Raw, connected, write_config
from tests.relay.talk import Talk, skill

pytestmark = pytest.mark.anyio

TOKENS = {"alice": "the-token-of-alice", "bob": "the-token-of-bob-"}


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[name]}"}


async def health(raw: Raw, base: str, headers: dict[str, str] | None = None) -> Json:
    answer = await raw.send("GET", f"{base}/health", headers=headers or {})
    assert answer.status == 200
    return json.loads(answer.text)


def config(folder: Path, **more: Any) -> Path:
    """Servers of alice and of bob, one that both use and of which each has a process, and one that fails for bob."""
    servers = {
        "alices": Talk(folder / "alices.jsonl", "alices").entry(),
        "bobs": Talk(folder / "bobs.jsonl", "bobs").entry(),
        "each": Talk(folder / "each.jsonl", "each").entry(isolation="scope"),
        "fails": {
            "command": sys.executable,
            "args": ["-c", "raise SystemExit('bobs own words')"],
            "isolation": "scope",
        },
    }
    return write_config(folder / "skills.yaml", servers, {key: skill(key) for key in servers}, **more)


async def test_each_principal_is_told_of_what_its_skills_need_and_of_its_own_processes(
    tmp_path: Path, launch: Launch, raw: Raw
) -> None:
    """Whichever of its scopes has them; the servers of another's profile and another's processes are no part of it."""
    profiles = [
        {"principal": "alice", "denied_skills": ["bobs"]},
        {"principal": "bob", "denied_skills": ["alices"]},
    ]
    proxy = launch(config(tmp_path, proxy={"tokens": TOKENS, "activation_wait": 60}, profiles=profiles))
    assert await health(raw, proxy.base) == {"status": "ok"}
    async with connected(proxy.namespace("room"), "legacy", token=TOKENS["bob"]) as bob:
        await bob.skill("activate", "bobs")
        await bob.skill("activate", "each")
        await bob.skill("activate", "fails")
        for_bob = await health(raw, proxy.base, bearer("bob"))
        assert {key: status["state"] for key, status in for_bob["servers"].items()} == {
            "bobs": "ready",
            "each": "ready",
            "fails": "failed",
        }
        assert "exit code 1" in for_bob["servers"]["fails"]["reason"]
        for_alice = {key: {"state": "idle"} for key in ("alices", "each", "fails")}
        assert await health(raw, proxy.base, bearer("alice")) == {"status": "degraded", "servers": for_alice}
        assert await health(raw, proxy.base) == {"status": "degraded"}


async def test_without_tokens_a_process_of_one_client_is_told_of_by_its_state_alone(
    tmp_path: Path, launch: Launch, raw: Raw
) -> None:
    """Of a server that all share everybody is told why it failed; of one with a process for each client nobody."""
    fails = {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}
    servers = {"shared": fails, "each": {**fails, "isolation": "scope"}}
    proxy = launch(write_config(tmp_path / "skills.yaml", servers, {key: skill(key) for key in servers}))
    async with connected(proxy.url, "legacy") as peer:
        await peer.skill("activate", "shared")
        await peer.skill("activate", "each")
        told = await health(raw, proxy.base)
    assert "exit code 3" in told["servers"]["shared"]["reason"]
    assert told["servers"]["each"] == {"state": "failed"}
    assert told["status"] == "degraded"


@pytest.mark.parametrize("tokens", [{}, TOKENS], ids=["without tokens", "with tokens"])
async def test_no_page_can_read_what_the_health_route_says(
    tmp_path: Path, launch: Launch, raw: Raw, tokens: dict[str, str]
) -> None:
    """Of whatever origin: there is no CORS on it, and its preflight is refused."""
    proxy = launch(config(tmp_path, proxy={"tokens": tokens, "allowed_origins": ["https://app.example"]}))
    for origin in ("https://app.example", "http://localhost:3000"):
        sent = {"Origin": origin, **(bearer("alice") if tokens else {})}
        answer = await raw.send("GET", f"{proxy.base}/health", headers=sent)
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]
        asked = {"Origin": origin, "Access-Control-Request-Method": "GET"}
        answer = await raw.send("OPTIONS", f"{proxy.base}/health", headers=asked)
        assert answer.status == 405
        assert not [name for name in answer.headers if name.lower().startswith("access-control-")]
    assert (await raw.send("GET", f"{proxy.base}/health", headers={"Origin": "http://evil.example"})).status == 403
