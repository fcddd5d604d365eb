"""Skills for clients that know them: `io.modelcontextprotocol/skills` in both eras, over HTTP and stdio."""

import os
import subprocess
from base64 import b64decode
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.answers import current_skills, guide_told
from tests.conftest import (
    ERAS,
    HttpProxy,
    Json,
    Peer,
    Raw,
    Record,
    connected,
    http_proxy,
    program,
    stdio_program,
    text_of,
    write_config,
    write_skill,
)

pytestmark = pytest.mark.anyio

EXTENSION = "io.modelcontextprotocol/skills"
INVALID_PARAMS = -32602
WAYS = [(transport, mode) for transport in ("http", "stdio") for mode in ERAS]
NOTES = 60
"""Skills of YAML alone: more than a page of 50."""
PIXEL = b"\x89PNG\r\n\x1a\n\x00\xff"
TYPED = """\
---
name: typed
description: 'Types: all of them'
license: MIT
whole: 3
big: 123456789012345678901234567890
fraction: 1.5
switch: true
word: yes
day: 2026-01-02
version: "1.10"
nothing: null
empty: {}
list: [1, "1", true, [], {deeper: {deepest: [null]}}]
metadata:
  author: someone
  io.modelcontextprotocol/reserved: 1
---

# Typed
"""
FRONT_MATTER: Json = {
    "name": "typed",
    "description": "Types: all of them",
    "license": "MIT",
    "whole": 3,
    "big": 123456789012345678901234567890,
    "fraction": 1.5,
    "switch": True,
    "word": "yes",
    "day": "2026-01-02",
    "version": "1.10",
    "nothing": None,
    "empty": {},
    "list": [1, "1", True, [], {"deeper": {"deepest": [None]}}],
    "metadata": {"author": "someone", "io.modelcontextprotocol/reserved": 1},
}
NOT_SERVED = {
    "Upper": "its name may only hold a-z, 0-9 and single hyphens between them",
    "other-name": "its name is not that of its folder",
    "nameless": "it has no name",
    "crowded": "it has more than 512 files",
    "heavy": "its files are larger than 16 MiB",
}
"""Skills that clients which know skills are not served, with the reason."""


@dataclass(frozen=True)
class World:
    """A proxy over HTTP with skills of all kinds; its configuration starts others over stdio."""

    proxy: HttpProxy
    config: Path
    folder: Path
    record: Record

    @asynccontextmanager
    async def client(self, way: tuple[str, str], namespace: str) -> AsyncGenerator[Peer]:
        """A client over this transport and in this mode."""
        transport, mode = way
        target = self.proxy.namespace(namespace) if transport == "http" else stdio_program(self.config)
        async with connected(target, mode) as peer:
            yield peer


def write_library(lib: Path) -> None:
    files: dict[str, str | bytes] = {
        "SKILL.md": TYPED,
        "assets/pin.png": PIXEL,
        "assets/blank.bin": b"",
        "assets/deep/er/a b%.md": "\ufeffnot quite\r\nplain ü\n",
    }
    write_skill(lib / "typed", files=files)
    write_skill(lib / "typed" / "nested", "Inside of another.")
    write_skill(lib / "lower", "lower-case file")
    (lib / "lower" / "SKILL.md").rename(lib / "lower" / "skill.md")
    write_skill(lib / "reworded", "The folder's guide.", {"a.txt": "a"}, extra=[1])
    write_skill(lib / "Upper", "U", name="Upper")
    write_skill(lib / "other-name", "O", name="another")
    write_skill(lib / "crowded", "C", {f"{number}.txt": "" for number in range(512)})
    write_skill(lib / "heavy", "H", {"heavy.bin": b"\0" * (16 * 1024**2)})
    nameless = "---\ndescription: No name.\n---\nN\n"
    write_skill(lib / "nameless", files={"SKILL.md": nameless})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Generator[World]:
    folder = tmp_path_factory.mktemp("extension")
    write_library(folder / "lib")
    record = Record(folder / "log.jsonl")
    skills: dict[str, Any] = {
        "reworded": {"desc": "The file's words."},
        "greet": {"name": "Greeting", "desc": "Say hello.", "usage": "Be warm.\n"},
        "all": {"desc": "Everything of the server", "usage": "U", "tool_list": {"up": []}},
        "Not Legal": {"desc": "No name of the standard", "usage": "Still a skill."},
        **{f"note-{number:02}": {"desc": f"Note {number}", "usage": f"N{number}"} for number in range(NOTES)},
    }
    servers = {"up": record.entry(prefix="")}
    config = write_config(folder / "skills.yaml", servers, skills, skill_paths=["lib"])
    with http_proxy(config) as proxy:
        yield World(proxy, config, folder, record)


async def all_entries(peer: Peer) -> list[Json]:
    """The entries of all pages, none of which is larger than the others allow."""
    entries: list[Json] = []
    cursor: str | None = None
    while True:
        page = await peer.request("skills/list", {"cursor": cursor} if cursor else {})
        assert len(page["skills"]) <= 50
        entries += page["skills"]
        cursor = page.get("nextCursor")
        if cursor is None:
            return entries


async def entry(peer: Peer, skill: str) -> Json:
    """What `skills/get` gives of a skill."""
    return (await peer.request("skills/get", {"uri": f"skill://{skill}/SKILL.md"}))["skill"]


async def content(peer: Peer, uri: str) -> bytes:
    """What `resources/read` gives, as bytes."""
    (found,) = (await peer.request("resources/read", {"uri": uri}))["contents"]
    assert found["uri"] == uri
    return found["text"].encode() if "text" in found else b64decode(found["blob"])


# --- what it says ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
async def test_the_extension_is_declared(world: World, namespace: str, way: tuple[str, str]):
    """In the capabilities of each era, with reading of folders, beside the resources that it needs."""
    async with world.client(way, namespace) as peer:
        if not peer.handshake:
            await peer.request("server/discover")
        answers = [message["result"] for message in peer.wire.messages if "result" in message]
        capabilities = next(answer["capabilities"] for answer in answers if "capabilities" in answer)
        assert capabilities["extensions"] == {EXTENSION: {"directoryRead": True}}
        assert capabilities["resources"]["listChanged"] is True


@pytest.mark.parametrize("way", WAYS)
async def test_every_digest_is_that_of_what_is_read(world: World, namespace: str, way: tuple[str, str]):
    """Of every file of every skill, text or not, of folders and of YAML; `skills/get` says the same as the list."""
    async with world.client(way, namespace) as peer:
        entries = await all_entries(peer)
        names = [found["frontmatter"]["name"] for found in entries]
        assert names[:3] == ["reworded", "greet", "all"]
        assert {"lower", "typed", "nested", *(f"note-{number:02}" for number in range(NOTES))} < {*names}
        assert len(names) == len({*names}) == NOTES + 6
        assert not {*names} & {*NOT_SERVED, "Not Legal"}
        for found in entries:
            assert found["uri"] == f"skill://{found['frontmatter']['name']}/SKILL.md"
            assert found["frontmatter"]["description"]
            uris = [resource["uri"] for resource in found["resources"]]
            assert found["uri"] in uris
            assert uris == sorted({*uris})
            if found["uri"].startswith("skill://note-") and found["uri"] != "skill://note-00/SKILL.md":
                continue
            assert await entry(peer, found["frontmatter"]["name"]) == found
            for resource in found["resources"]:
                read = await content(peer, resource["uri"])
                assert resource["digest"] == f"sha256:{sha256(read).hexdigest()}", resource
                assert resource["size"] == len(read), resource


@pytest.mark.parametrize("mode", ERAS)
async def test_front_matter_keeps_its_types(world: World, namespace: str, mode: str):
    """Numbers, switches, lists and what is nested arrive as YAML's core schema has them, and so does the file."""
    async with world.client(("http", mode), namespace) as peer:
        assert (await entry(peer, "typed"))["frontmatter"] == FRONT_MATTER
        assert await content(peer, "skill://typed/SKILL.md") == TYPED.encode()
        assert (
            await content(peer, "skill://typed/assets/deep/er/a%20b%25.md") == "\ufeffnot quite\r\nplain ü\n".encode()
        )
        assert await content(peer, "skill://typed/assets/pin.png") == PIXEL
        assert await content(peer, "skill://typed/nested/SKILL.md") == await content(peer, "skill://nested/SKILL.md")


@pytest.mark.parametrize("mode", ERAS)
async def test_a_skill_that_yaml_has_is_given_a_document(world: World, namespace: str, mode: str):
    """Alone, or over a folder, whose other fields stay; a document that is called otherwise has the standard's name."""
    async with world.client(("http", mode), namespace) as peer:
        assert (await entry(peer, "greet"))["frontmatter"] == {"name": "greet", "description": "Say hello."}
        assert (await content(peer, "skill://greet/SKILL.md")).decode().endswith("---\n\nBe warm.\n")
        reworded = await entry(peer, "reworded")
        assert reworded["frontmatter"] == {"name": "reworded", "description": "The file's words.", "extra": [1]}
        assert [found["uri"] for found in reworded["resources"]] == [
            "skill://reworded/SKILL.md",
            "skill://reworded/a.txt",
        ]
        assert (await content(peer, "skill://reworded/SKILL.md")).decode().endswith("\n\nThe folder's guide.")
        assert (await content(peer, "skill://lower/SKILL.md")).decode().endswith("lower-case file")
        assert (await peer.refusal("skills/get", {"uri": "skill://lower/skill.md"}))[0] == INVALID_PARAMS


@pytest.mark.parametrize("mode", ERAS)
async def test_folders_are_read_level_by_level(world: World, namespace: str, mode: str):
    """Each child once, folders as such; a long one in pages; what is no folder is refused."""
    async with world.client(("http", mode), namespace) as peer:

        async def children(uri: str) -> list[tuple[str, str, str]]:
            found = (await peer.request("resources/directory/read", {"uri": uri}))["resources"]
            return [(child["uri"], child["name"], child["mimeType"]) for child in found]

        assert sorted(await children("skill://typed")) == [
            ("skill://typed/SKILL.md", "typed", "text/markdown"),
            ("skill://typed/assets", "assets", "inode/directory"),
            ("skill://typed/nested", "nested", "inode/directory"),
        ]
        assert sorted(await children("skill://typed/assets")) == [
            ("skill://typed/assets/blank.bin", "blank.bin", "application/octet-stream"),
            ("skill://typed/assets/deep", "deep", "inode/directory"),
            ("skill://typed/assets/pin.png", "pin.png", "image/png"),
        ]
        assert await children("skill://greet") == [("skill://greet/SKILL.md", "greet", "text/markdown")]
        for uri in ("skill://typed/SKILL.md", "skill://typed/assets/", "skill://typed/", "skill://crowded", "skill://"):
            assert (await peer.refusal("resources/directory/read", {"uri": uri}))[0] == INVALID_PARAMS, uri


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_no_skills_uri_is_refused(world: World, namespace: str, way: tuple[str, str]):
    """In both eras as invalid parameters, however near it is; so are cursors that were not given here."""
    near = [
        *("skill://nobody/SKILL.md", "skill://typed", "skill://typed/", "skill://typed/assets/pin.png", "", "typed"),
        *("SKILL://typed/SKILL.md", "skill://TYPED/SKILL.md", "skill://typed/skill.md", "skill://typed//SKILL.md"),
        *(
            "skill://typed/./SKILL.md",
            "skill://typed/SKILL%2Emd",
            "skill://typed/SKILL.md?a",
            "skill://typed/SKILL.md#a",
        ),
        *(
            "skill://typed/nested/SKILL.md",
            "skill://Not%20Legal/SKILL.md",
            "skill://crowded/SKILL.md",
            "file:///SKILL.md",
        ),
        *("skill://typed/SKILL.md\0", "skill://typed/../typed/SKILL.md", "x" * 10_000),
    ]
    async with world.client(way, namespace) as peer:
        for uri in near:
            assert (await peer.refusal("skills/get", {"uri": uri}))[0] == INVALID_PARAMS, uri
        for bad in ({}, {"uri": None}, {"uri": 1}, {"uri": ["skill://typed/SKILL.md"]}):
            assert (await peer.refusal("skills/get", bad))[0] == INVALID_PARAMS
            assert (await peer.refusal("resources/directory/read", bad))[0] == INVALID_PARAMS
        for cursor in ("x", "", "-1", " 1", "1e3", 50, True, "9" * 10_000):
            assert (await peer.refusal("skills/list", {"cursor": cursor}))[0] == INVALID_PARAMS, cursor
        assert (await peer.request("skills/list", {"cursor": "999999999"}))["skills"] == []


async def test_a_uri_that_is_no_text_is_refused_like_any_other(world: World, namespace: str, raw: Raw):
    """Half of a surrogate pair is no character: JSON can spell it, UTF-8 and so no URI can."""
    for method in ("skills/get", "resources/directory/read"):
        answer = await raw.modern(world.proxy.namespace(namespace), method, {"uri": "skill://typed/\ud800"})
        assert answer.reply["error"]["code"] == INVALID_PARAMS


# --- what is not served ----------------------------------------------------------------------------------------------


def test_what_is_not_served_is_named_with_the_reason(world: World):
    """By `skills validate`; such a skill is good all the same."""
    done = subprocess.run(
        program("skills", "validate", world.folder / "lib"), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for skill, reason in NOT_SERVED.items():
        assert f"{skill}: good; clients that know skills are not served it: {reason}" in done.stdout
    assert "typed: good\n" in done.stdout


@pytest.mark.parametrize("mode", ERAS)
async def test_what_is_not_served_can_be_used_all_the_same(world: World, namespace: str, mode: str):
    """By `SKILL` and as a prompt, but neither listed nor read as a resource."""
    async with world.client(("http", mode), namespace) as peer:
        resources = (await peer.request("resources/list"))["resources"]
        for skill in NOT_SERVED:
            assert (guide_told(await peer.skill("read", skill)) or "").strip()
            assert f"skill://{skill}/SKILL.md" not in [resource["uri"] for resource in resources]
            _, refused = await peer.refusal("resources/read", {"uri": f"skill://{skill}/SKILL.md"})
            assert refused.startswith("Unknown resource")
            assert (await peer.refusal("skills/get", {"uri": f"skill://{skill}/SKILL.md"}))[0] == INVALID_PARAMS
        prompts = [prompt["name"] for prompt in (await peer.request("prompts/list"))["prompts"]]
        assert set(NOT_SERVED) < set(prompts)


# --- changes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_a_file_that_has_changed_has_a_new_digest_at_once(tmp_path: Path, mode: str):
    """And so has the document with its front matter; what is not readable any more is refused in words."""
    skill = write_skill(tmp_path / "lib" / "moving", "Old.", {"a.txt": "old", "b.txt": "b"}, edition=1)
    config = write_config(tmp_path / "skills.yaml", {}, {}, skill_paths=["lib"], proxy={"reload": "off"})
    with http_proxy(config) as proxy:
        async with connected(proxy.namespace("n"), mode) as peer:
            before = await entry(peer, "moving")
            write_skill(skill, "New guide.", {"a.txt": "new words"}, edition=2)
            after = await entry(peer, "moving")
            assert (before["frontmatter"]["edition"], after["frontmatter"]["edition"]) == (1, 2)
            changed = [
                new["uri"] for old, new in zip(before["resources"], after["resources"], strict=True) if old != new
            ]
            assert changed == ["skill://moving/SKILL.md", "skill://moving/a.txt"]
            for resource in after["resources"]:
                read = await content(peer, resource["uri"])
                assert (resource["digest"], resource["size"]) == (f"sha256:{sha256(read).hexdigest()}", len(read))
            times = (skill / "b.txt").stat()
            (skill / "b.txt").write_text("c", encoding="utf-8")
            os.utime(skill / "b.txt", ns=(times.st_atime_ns, times.st_mtime_ns))  # as copies that keep times do
            *_, of_b = (await entry(peer, "moving"))["resources"]
            assert of_b["digest"] == f"sha256:{sha256(b'c').hexdigest()}"
            (skill / "a.txt").unlink()
            code, message = await peer.refusal("skills/get", {"uri": "skill://moving/SKILL.md"})
            assert code == INVALID_PARAMS
            assert message.startswith("The skill at skill://moving/SKILL.md cannot be read: ")
            assert str(tmp_path) not in message
            assert (await peer.request("skills/list"))["skills"] == []
    assert "Traceback" not in proxy.log.read_text(encoding="utf-8")


# --- prompts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_getting_a_skill_as_a_prompt_changes_nothing(world: World, namespace: str, mode: str):
    """It gives the guide and spells the call that activates; neither that nor reading activates anything."""
    async with world.client(("http", mode), namespace) as peer, peer.hearing():
        before = await peer.tools()
        got = await peer.request("prompts/get", {"name": "greet"})
        assert got["description"] == "Say hello."
        (message,) = got["messages"]
        assert "<skill_guide>Be warm.\n</skill_guide>" in message["content"]["text"]
        assert 'SKILL({"action": "activate", "skill_name": "greet"})' in message["content"]["text"]
        await all_entries(peer)
        await content(peer, "skill://all/SKILL.md")
        assert await peer.tools() == before
        listed = await peer.skill("list")
        assert current_skills(listed) == []
        assert [peer.wire.notices(kind) for kind in ("tools", "resources", "prompts")] == [0, 0, 0]


@pytest.mark.parametrize("mode", ERAS)
async def test_no_server_takes_the_name_of_a_skills_prompt(world: World, namespace: str, mode: str):
    """A server's prompt of that name is shown under another one, and each leads to its own."""
    async with world.client(("http", mode), namespace) as peer:
        assert "skill all activated" in text_of(await peer.skill("activate", "all"))
        listed = {prompt["name"]: prompt for prompt in (await peer.request("prompts/list"))["prompts"]}
        assert listed["greet"] == {"name": "greet", "title": "Greeting", "description": "Say hello."}
        (theirs,) = [name for name in listed if name.startswith("greet_")]
        (own,) = (await peer.request("prompts/get", {"name": "greet"}))["messages"]
        assert "Be warm." in own["content"]["text"]
        (other,) = (await peer.request("prompts/get", {"name": theirs, "arguments": {"who": "x"}}))["messages"]
        assert other["content"]["text"] == "recorder greet {'who': 'x'}"


# --- what is not published -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("switched_off", ["prompts", "resources", "extension", "all of them"])
async def test_skills_are_shown_beside_the_tool_as_far_as_that_is_wanted(
    tmp_path: Path, mode: str, switched_off: str
) -> None:
    """What servers have stays, and the tool `SKILL` shows and reads what it always does."""
    off = ["prompts", "resources", "extension"] if switched_off == "all of them" else [switched_off]
    record = Record(tmp_path / "log.jsonl")
    write_skill(tmp_path / "lib" / "filed", "Filed.", {"a.txt": "a"}, tool_list={"up": []})
    paths = [{"path": "lib", "trusted": True}]
    publish = {"publish": dict.fromkeys(off, False)}
    config = write_config(tmp_path / "skills.yaml", {"up": record.entry()}, {}, skill_paths=paths, proxy=publish)
    async with connected(stdio_program(config), mode) as peer:
        declared = peer.client.server_capabilities.model_dump(mode="json", by_alias=True, exclude_none=True)
        assert (EXTENSION in declared.get("extensions", {})) is ("extension" not in off)
        assert {"prompts", "resources", "completions"} <= declared.keys()
        activated = await peer.skill("activate", "filed")
        assert guide_told(activated) == "Filed."
        read = await peer.skill("read", "filed", path="a.txt")
        assert "<skill_file>a</skill_file>" in text_of(read)

        prompts = [prompt["name"] for prompt in (await peer.request("prompts/list"))["prompts"]]
        assert prompts == (["up__greet"] if "prompts" in off else ["filed", "up__greet"])
        if "prompts" in off:
            assert await peer.refusal("prompts/get", {"name": "filed"}) == (-32602, "Unknown prompt: filed")
        resources = [resource["uri"] for resource in (await peer.request("resources/list"))["resources"]]
        assert resources == ([] if "resources" in off else ["skill://filed/SKILL.md"]) + ["memo://one", "memo://two"]
        templates = (await peer.request("resources/templates/list"))["resourceTemplates"]
        assert len(templates) == (1 if "resources" in off else 2)
        files = {"uri": "skill://filed/a.txt"}
        if {"resources", "extension"} <= {*off}:
            assert (await peer.refusal("resources/read", files))[1] == "Unknown resource: skill://filed/a.txt"
        else:
            assert (await peer.request("resources/read", files))["contents"][0]["text"] == "a"
        for method, params in (
            ("skills/list", {}),
            ("skills/get", {"uri": "skill://filed/SKILL.md"}),
            ("resources/directory/read", {"uri": "skill://filed"}),
        ):
            if "extension" in off:
                assert await peer.refusal(method, params) == (-32601, "Method not found")
            else:
                assert await peer.request(method, params)
