"""Skills as resources, prompts and by the skills extension, each from the catalogue of the caller's scope."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from proxy.core.catalogue import EVERYTHING, Allow, Catalogue, Folder, Skill, SkillFile
from proxy.core.errors import Rejection, Unknown
from proxy.core.inventory import Offer
from proxy.core.names import Naming
from proxy.core.profiles import Policy, Profile
from proxy.core.published import TEMPLATE
from proxy.core.scope import ScopeId
from proxy.core.settings import Publish, Settings, every_kind
from proxy.gateway.forwarding import METHOD_NOT_FOUND, Forwarding
from proxy.gateway.gate import Gate
from proxy.gateway.idling import Idling
from proxy.gateway.publishing import COMPLETIONS, INVALID_PARAMS, PAGE, Publishing
from proxy.gateway.rounds import Rounds
from proxy.store.memory import MemoryStore
from proxy.store.runs import MemoryRuns
from tests.gateway.acting import OTHER, acting, call, client, skill
from tests.gateway.wired import wired
from tests.gateway.world import SCOPE, Files, Server, Servers, caller

pytestmark = pytest.mark.anyio

STRANGER = caller()._replace(scope=ScopeId("namespace", "b"))
"""The client of a scope whose profile may use no more than `plain`."""

PATHS = ("skill.md", "data/a b.csv", "data/deep/x.bin", "readme.MD")
FILED = Skill(
    "filed", "Filed", "Has files", None, folder=Folder("/filed", "skill.md", tuple(SkillFile(p, 1) for p in PATHS))
)
PLAIN = Skill("plain", "Plain", "", "Do this.", tools={"s": EVERYTHING}, active=True)
ODD = Skill("my skill", "Mine", "", "Do that.")
CONTENTS = {
    ("filed", "SKILL.md"): b"# Filed",
    ("filed", "data/a b.csv"): "größe\r\n".encode(),
    ("filed", "data/deep/x.bin"): b"\xff\x00",
    ("plain", "SKILL.md"): b"# Plain",
}
OFFER = Offer.of(
    prompts=[{"name": "theirs"}, {"name": "plain"}],
    resources=[{"uri": "x:1"}, {"uri": "skill://filed/theirs"}],
    templates=[{"uriTemplate": "{+any}"}],
)


@dataclass
class World:
    publishing: Publishing
    gate: Gate
    files: Files
    server: Server

    @property
    def asked(self) -> list[str]:
        """What the server was asked."""
        return [method for method, _ in self.server.asked]


async def serving(*skills: Skill, publish: Publish | None = None) -> AsyncGenerator[World]:
    naming = Naming({"s": ""}, skills=frozenset(skill.id for skill in skills))
    catalogue = Catalogue(("s",), naming, skills)
    policy = Policy(catalogue, (Profile(namespace="b", allowed=Allow.of(["plain"])), Profile(namespace="*")))
    server = Server({"theirs": True})
    settings = Settings(publish=publish or Publish())
    gate = Gate(policy, Servers({"s": OFFER}, {"s": server}), MemoryStore(every_kind(10)), settings)
    files = Files(dict(CONTENTS))
    async with anyio.create_task_group() as tasks:
        forwarding = Forwarding(gate, Rounds(Settings(), tasks), Idling(gate, anyio.current_time))
        listing = wired(gate, tasks).listing
        yield World(Publishing(gate, listing, forwarding, files, MemoryRuns()), gate, files, server)
        tasks.cancel_scope.cancel()


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    async for one in serving(FILED, PLAIN, ODD):
        yield one


# --- resources -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "contents"),
    [
        ("skill://filed/SKILL.md", {"mimeType": "text/markdown", "text": "# Filed"}),
        ("skill://filed/data/a%20b.csv", {"mimeType": "text/csv", "text": "größe\r\n"}),
        ("skill://filed/data/deep/x.bin", {"mimeType": "application/octet-stream", "blob": "/wA="}),
        ("skill://plain/SKILL.md", {"mimeType": "text/markdown", "text": "# Plain"}),
    ],
)
async def test_a_file_of_a_skill_is_read_as_it_is(world: World, uri: str, contents: dict[str, str]):
    """Without activating anything; no server is asked."""
    before = await world.gate.state(SCOPE)

    assert await world.publishing.read_resource(caller(), {"uri": uri}) == {"contents": [{"uri": uri, **contents}]}

    assert world.asked == []
    assert await world.gate.state(SCOPE) is before


async def test_what_skills_are_to_clients_is_made_once_whatever_is_active(world: World):
    """Of very many skills it takes a while, in which everybody waits."""
    one, other = world.gate.sight(SCOPE, []), world.gate.sight(SCOPE, ["plain"])

    assert other.resources[0] is one.resources[0]
    assert other.prompts[0] is one.prompts[0]


@pytest.mark.parametrize(
    "uri", ["skill://filed/nothing", "skill://filed", "skill://filed/data", "skill://filed/theirs", "skill://plain/x"]
)
async def test_what_is_no_file_of_a_skill_is_unknown_whatever_a_server_says(world: World, uri: str):
    """An address of a skill is the skill's alone."""
    with pytest.raises(Unknown, match="Unknown resource: "):
        await world.publishing.read_resource(caller(), {"uri": uri})

    assert world.asked == []


async def test_the_runs_of_a_skill_are_resources_of_the_scope_that_has_run_it():
    """All of them as a list, and each; to others they are unknown."""
    flow = skill("flow", call("one"))
    async with acting(flow, skill("other", call("one"))) as here:
        publishing = Publishing(here.gate, here.wired.listing, here.wired.calling._forwarding, Files(), here.wired.runs)
        await here.invoke("flow")

        async def read(uri: str, by: Any) -> Any:
            (content,) = (await publishing.read_resource(by, {"uri": uri}))["contents"]
            assert (content["uri"], content["mimeType"]) == (uri, "application/json")
            return json.loads(content["text"])

        (run,) = (await read("skill://flow/.runs", client()))["runs"]
        assert (run["status"], run["told"]) == ("completed", "Completed, and not undone: one.")
        assert (await read(f"skill://flow/.runs/{run['id']}", client()))["steps"][0]["status"] == "completed"
        assert (await read("skill://other/.runs", client()))["runs"] == []
        assert (await read("skill://flow/.runs", client(scope=OTHER)))["runs"] == []
        with pytest.raises(Unknown):
            await read(f"skill://flow/.runs/{run['id']}", client(scope=OTHER))


async def test_a_file_that_cannot_be_read_any_more_is_said_to_be(world: World):
    """With the reason, and the address."""
    world.files.broken.add("filed")

    with pytest.raises(Unknown, match="it is gone") as failed:
        await world.publishing.read_resource(caller(), {"uri": "skill://filed/SKILL.md"})

    assert failed.value.uri == "skill://filed/SKILL.md"


async def test_what_is_none_of_ours_goes_to_the_servers(world: World):
    """But for what only looks like ours: that scheme is no server's."""
    assert await world.publishing.read_resource(caller(), {"uri": "x:1"}) == {"theirs": True}
    with pytest.raises(Unknown):
        await world.publishing.read_resource(caller(), {"uri": "skill://my%20skill/SKILL.md"})

    assert world.asked == ["resources/read"]


async def test_a_skill_of_another_profile_is_none_of_ours(world: World):
    """It is as unknown as one that does not exist."""
    for uri in ("skill://filed/SKILL.md", "skill://unknown/SKILL.md"):
        with pytest.raises(Unknown, match=f"Unknown resource: {uri}"):
            await world.publishing.read_resource(STRANGER, {"uri": uri})
    for method in (world.publishing.skill, world.publishing.directory):
        refusals: list[str] = []
        for name in ("filed", "other"):
            with pytest.raises(Rejection) as refused:
                await method(STRANGER, {"uri": f"skill://{name}/SKILL.md"})
            refusals.append(str(refused.value).replace(name, "NAME"))
        assert refusals[0] == refusals[1]
    assert [one["uri"] for one in (await world.publishing.skills(STRANGER, {}))["skills"]] == ["skill://plain/SKILL.md"]


# --- prompts ---------------------------------------------------------------------------------------------------------


async def test_the_prompt_of_a_skill_is_its_guide(world: World):
    """From its file where it is there; nothing is activated, and no server asked."""
    for name, guide in (("filed", "The guide of filed."), ("plain", "Do this.")):
        answer = await world.publishing.get_prompt(caller(), {"name": name})
        assert f"<skill_guide>{guide}</skill_guide>" in answer["messages"][0]["content"]["text"]

    assert world.asked == []
    assert (await world.gate.state(SCOPE)).active == ("plain",)


async def test_a_guide_that_cannot_be_read_is_replaced_by_the_reason(world: World):
    """In the same place."""
    world.files.broken.add("filed")

    answer = await world.publishing.get_prompt(caller(), {"name": "filed"})

    assert "(The guide of this skill cannot be read: it is gone.)" in answer["messages"][0]["content"]["text"]


async def test_a_prompt_of_a_server_goes_there_under_its_own_name(world: World):
    """Also one that is called as a skill is: it has another name here."""
    name = world.gate.policy.catalogue.naming.expose_prompt("s", "plain")

    assert name != "plain"
    assert await world.publishing.get_prompt(caller(), {"name": name}) == {"theirs": True}
    assert world.server.asked == [("prompts/get", {"name": "plain"})]


async def test_the_prompt_of_a_skill_of_another_profile_is_unknown(world: World):
    """In the wording of what does not exist."""
    for name in ("filed", "unheard-of"):
        with pytest.raises(Unknown, match=f"^Unknown prompt: {name}$"):
            await world.publishing.get_prompt(STRANGER, {"name": name})


# --- completions -----------------------------------------------------------------------------------------------------


def completing(name: str, value: str, **context: str) -> dict[str, Any]:
    return {
        "ref": {"type": "ref/resource", "uri": TEMPLATE},
        "argument": {"name": name, "value": value},
        **({"context": {"arguments": context}} if context else {}),
    }


@pytest.mark.parametrize(
    ("params", "values"),
    [
        (completing("skill", ""), ["filed", "plain"]),
        (completing("skill", "p"), ["plain"]),
        (completing("path", "", skill="filed"), ["SKILL.md", "data/a b.csv", "data/deep/x.bin", "readme.MD"]),
        (completing("path", "data/", skill="filed"), ["data/a b.csv", "data/deep/x.bin"]),
        (completing("path", "", skill="plain"), ["SKILL.md"]),
        (completing("path", "", skill="my skill"), []),
        (completing("path", "", skill="unknown"), []),
        (completing("path", ""), []),
        ({"ref": {"type": "ref/prompt", "name": "filed"}, "argument": {"name": "x", "value": ""}}, []),
    ],
)
async def test_the_template_of_files_is_completed(world: World, params: dict[str, Any], values: list[str]):
    """By the skills that are served, and the files of the one that was chosen; no server is asked."""
    answer = await world.publishing.complete(caller(), params)

    assert answer["completion"]["values"] == values
    assert world.asked == []


async def test_what_is_completed_is_of_the_profile(world: World):
    """Neither skills nor files of others."""
    for params, values in ((completing("skill", ""), ["plain"]), (completing("path", "", skill="filed"), [])):
        assert (await world.publishing.complete(STRANGER, params))["completion"]["values"] == values


async def test_completions_of_servers_are_asked_for_there(world: World):
    """Of their prompts and templates."""
    params = {"ref": {"type": "ref/prompt", "name": "theirs"}, "argument": {"name": "x", "value": ""}}

    assert await world.publishing.complete(caller(), params) == {"theirs": True}


async def test_of_very_many_values_the_first_are_given():
    """As many as the protocol allows, and how many there are."""
    async for world in serving(*(Skill(f"s{number}", "", "", "") for number in range(COMPLETIONS + 1))):
        answer = (await world.publishing.complete(caller(), completing("skill", "")))["completion"]

        assert len(answer["values"]) == COMPLETIONS
        assert (answer["total"], answer["hasMore"]) == (COMPLETIONS + 1, True)


# --- the skills extension --------------------------------------------------------------------------------------------


async def test_skills_are_listed_that_can_be_served(world: World):
    """Each with its front matter, and every file with size and digest."""
    listed = await world.publishing.skills(caller(), {})

    assert [entry["uri"] for entry in listed["skills"]] == ["skill://filed/SKILL.md", "skill://plain/SKILL.md"]
    assert listed["skills"][0]["frontmatter"] == {"name": "filed"}
    assert listed["skills"][0]["resources"][1] == {
        "uri": "skill://filed/data/a%20b.csv",
        "digest": "sha256:00ff",
        "size": 9,
    }
    assert "nextCursor" not in listed


async def test_a_skill_whose_files_have_gone_is_not_listed(world: World):
    """And refused by itself, with the reason."""
    world.files.broken.add("filed")

    listed = await world.publishing.skills(caller(), {})
    assert [entry["uri"] for entry in listed["skills"]] == ["skill://plain/SKILL.md"]
    with pytest.raises(Rejection, match="it is gone") as refused:
        await world.publishing.skill(caller(), {"uri": "skill://filed/SKILL.md"})
    assert refused.value.code == INVALID_PARAMS


async def test_many_skills_are_listed_in_pages():
    """Each once; a cursor that was not given is refused."""
    ids = [f"s{number}" for number in range(2 * PAGE + 1)]
    async for world in serving(*(Skill(id_, "", "", "") for id_ in ids)):
        found: list[str] = []
        params: dict[str, Any] = {}
        for size in (PAGE, PAGE, 1):
            page = await world.publishing.skills(caller(), params)
            assert len(page["skills"]) == size
            found += [entry["uri"] for entry in page["skills"]]
            params = {"cursor": page.get("nextCursor")}
        assert params == {"cursor": None}
        assert found == [f"skill://{id_}/SKILL.md" for id_ in ids]
        for cursor in ("x", "-1", 5, "", "1" * 20):
            with pytest.raises(Rejection, match="cursor"):
                await world.publishing.skills(caller(), {"cursor": cursor})


async def test_one_skill_is_had_by_the_address_of_its_guide(world: World):
    """The same entry; no other address is one."""
    answer = await world.publishing.skill(caller(), {"uri": "skill://filed/SKILL.md"})

    assert answer == {"skill": (await world.publishing.skills(caller(), {}))["skills"][0]}
    for uri in ("skill://filed", "skill://filed/skill.md", "skill://filed/data/a%20b.csv", "x:1", 5, None):
        with pytest.raises(Rejection) as refused:
            await world.publishing.skill(caller(), {"uri": uri})
        assert refused.value.code == INVALID_PARAMS


@pytest.mark.parametrize(
    ("uri", "names"),
    [
        ("skill://filed", ["filed", "data", "readme.MD"]),
        ("skill://filed/data", ["a b.csv", "deep"]),
        ("skill://filed/data/deep", ["x.bin"]),
        ("skill://plain", ["plain"]),
    ],
)
async def test_a_folder_of_a_skill_shows_what_is_directly_in_it(world: World, uri: str, names: list[str]):
    """The guide under the name of the skill; each with an address that can be read, as a file or a folder."""
    children = (await world.publishing.directory(caller(), {"uri": uri}))["resources"]

    assert [child["name"] for child in children] == names
    for child in children:
        if child["mimeType"] == "inode/directory":
            assert (await world.publishing.directory(caller(), {"uri": child["uri"]}))["resources"]
        elif child["name"] != "readme.MD":  # the one file that the world has no content of
            assert (await world.publishing.read_resource(caller(), {"uri": child["uri"]}))["contents"]


@pytest.mark.parametrize("uri", ["skill://filed/SKILL.md", "skill://filed/dat", "skill://unknown", "x:1", None])
async def test_what_is_no_folder_is_refused(world: World, uri: str | None):
    """Neither a file nor the beginning of a name is one."""
    with pytest.raises(Rejection) as refused:
        await world.publishing.directory(caller(), {"uri": uri})

    assert refused.value.code == INVALID_PARAMS


# --- what is not published -------------------------------------------------------------------------------------------

NOTHING = Publish(prompts=False, resources=False, extension=False)


def listed(world: World) -> tuple[list[str], list[str], list[str]]:
    """The prompts, resources and templates that clients see."""
    sight = world.gate.sight(SCOPE, ["plain"])
    return (
        [prompt["name"] for prompt in sight.prompts],
        [resource["uri"] for resource in sight.resources],
        [template["uriTemplate"] for template in sight.templates],
    )


async def all_listed() -> tuple[list[str], list[str], list[str]]:
    """The same where all is published."""
    (lists,) = [listed(world) async for world in serving(FILED, PLAIN, ODD)]
    return lists


@pytest.mark.parametrize("publish", [Publish(prompts=False), NOTHING])
async def test_skills_can_be_no_prompts(publish: Publish):
    """Those of servers are there as ever, under the same names; a skill's is unknown, and has no completions."""
    prompts = (await all_listed())[0]
    async for world in serving(FILED, PLAIN, ODD, publish=publish):
        assert listed(world)[0] == prompts[3:]
        assert prompts[3:]
        for name in ("filed", "plain", "unheard-of"):
            with pytest.raises(Unknown, match=f"^Unknown prompt: {name}$"):
                await world.publishing.get_prompt(caller(), {"name": name})
            ref = {"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "x", "value": ""}}
            with pytest.raises(Unknown, match=f"^Unknown prompt: {name}$"):
                await world.publishing.complete(caller(), ref)
        assert world.asked == []
        assert await world.publishing.get_prompt(caller(), {"name": "theirs"}) == {"theirs": True}


@pytest.mark.parametrize("publish", [Publish(resources=False), NOTHING])
async def test_skills_can_be_no_resources(publish: Publish):
    """Neither listed nor completed; their files can still be read where the extension names them, and only there."""
    _, resources, templates = await all_listed()
    async for world in serving(FILED, PLAIN, ODD, publish=publish):
        assert listed(world)[1:] == ([uri for uri in resources if uri == "x:1" or "server.s" in uri], templates[1:])
        with pytest.raises(Unknown):
            await world.publishing.complete(caller(), completing("skill", ""))
        uri = "skill://filed/SKILL.md"
        if publish.extension:
            assert (await world.publishing.read_resource(caller(), {"uri": uri}))["contents"][0]["text"] == "# Filed"
        else:
            with pytest.raises(Unknown, match=f"Unknown resource: {uri}"):
                await world.publishing.read_resource(caller(), {"uri": uri})
        assert world.asked == []
        assert await world.publishing.read_resource(caller(), {"uri": "x:1"}) == {"theirs": True}


@pytest.mark.parametrize("publish", [Publish(extension=False), NOTHING])
async def test_the_extension_can_be_switched_off(publish: Publish):
    """Then there is no such method, whatever it is asked about."""
    async for world in serving(FILED, PLAIN, ODD, publish=publish):
        for method, params in (
            (world.publishing.skills, {}),
            (world.publishing.skill, {"uri": "skill://filed/SKILL.md"}),
            (world.publishing.directory, {"uri": "skill://filed"}),
            (world.publishing.skill, {"uri": 5}),
            (world.publishing.skills, {"cursor": "x"}),
        ):
            with pytest.raises(Rejection) as refused:
                await method(caller(), params)
            assert (refused.value.code, refused.value.message) == (METHOD_NOT_FOUND, "Method not found")
        assert world.asked == []
