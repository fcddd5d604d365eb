"""Skills as resources and prompts: what is listed, and what each URI leads to."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.catalogue import Catalogue, Folder, Skill, SkillFile
from proxy.core.names import Naming
from proxy.core.published import (
    DESCRIPTION_LIMIT,
    TEMPLATE,
    address,
    described,
    has_file,
    is_legal_name,
    paths,
    published,
    served,
    skill_prompts,
    skill_resources,
    skill_templates,
    uri_of,
)
from tests.core.strategies import law

PLAIN = Skill("pdf-forms", "PDF forms", "Fills forms.", "Do this.")
FILES = (SkillFile("skill.md", 10), SkillFile("scripts/fill.py", 20))
WITH_FILES = Skill("git-log", "Git", "  ", "", folder=Folder("/skills/git-log", "skill.md", FILES))
ODD = Skill("Größe", "", "Sizes", "")
BROKEN = replace(WITH_FILES, id="broken", folder=Folder("/skills/broken", "SKILL.md", FILES, unserved="it has a link"))


def catalogue(*skills: Skill) -> Catalogue:
    return Catalogue((), Naming({}, skills=frozenset(skill.id for skill in skills)), skills)


ALL = catalogue(PLAIN, WITH_FILES, ODD, BROKEN)


@pytest.mark.parametrize("name", ["a", "a-b", "0", "a1-2-b", "a" * 64])
def test_a_legal_name_is_what_the_standard_says(name: str):
    """Small letters, digits and single hyphens inside, at most 64 characters."""
    assert is_legal_name(name)


@pytest.mark.parametrize("name", ["", "-a", "a-", "a--b", "A", "a_b", "a.b", "a b", "é", "a" * 65, "a\n", "a/b", "٣"])
def test_any_other_name_is_not(name: str):
    """Whatever it looks like."""
    assert not is_legal_name(name)


@pytest.mark.parametrize("skill", [PLAIN, WITH_FILES])
def test_a_skill_is_served_the_files_that_are_listed_of_it(skill: Skill):
    """And under no other path, as that of a document that is spelled otherwise."""
    tried = ("SKILL.md", "skill.md", "scripts/fill.py", "scripts", "x", "")

    assert [path for path in tried if has_file(skill, path)] == [path for path in tried if path in paths(skill)]


def test_skills_are_served_that_clients_can_be_served():
    """By their names, and by their files."""
    assert [skill.id for skill in ALL.skills if served(skill)] == ["pdf-forms", "git-log"]


def test_the_guide_of_each_skill_that_is_served_is_a_resource():
    """Called SKILL.md however its file is spelled; its description is never empty."""
    assert skill_resources(ALL) == [
        {
            "uri": "skill://pdf-forms/SKILL.md",
            "name": "pdf-forms",
            "title": "PDF forms",
            "description": "Fills forms.",
            "mimeType": "text/markdown",
        },
        {
            "uri": "skill://git-log/SKILL.md",
            "name": "git-log",
            "title": "Git",
            "description": "Git",
            "mimeType": "text/markdown",
        },
    ]


def test_there_is_a_template_where_there_are_more_files():
    """Of a skill that is served."""
    (template,) = skill_templates(ALL)
    assert template["uriTemplate"] == TEMPLATE == "skill://{skill}/{+path}"
    only_document = replace(WITH_FILES, folder=Folder("/s", "SKILL.md", FILES[:1]))

    assert skill_templates(catalogue(PLAIN, only_document, BROKEN)) == []


def test_every_skill_is_a_prompt():
    """Also those that are not served as resources: a person chooses it by its name."""
    prompts = skill_prompts(ALL)

    assert [prompt.get("title") for prompt in prompts] == ["PDF forms", "Git", None, "Git"]
    assert [prompt["name"] for prompt in prompts] == [ALL.naming.prompt_of(skill.id) for skill in ALL.skills]
    assert prompts[0] == {"name": "pdf-forms", "title": "PDF forms", "description": "Fills forms."}


@pytest.mark.parametrize(("length", "shown"), [(1024, 1024), (1025, 1024)])
def test_a_description_keeps_within_the_limit_of_the_standard(length: int, shown: int):
    """One that is cut says so."""
    text = described(replace(PLAIN, desc="x" * length))

    assert len(text) == shown <= DESCRIPTION_LIMIT
    assert text.endswith("…") is (length > shown)


@pytest.mark.parametrize(
    ("skill", "path", "uri"),
    [
        ("a", "", "skill://a"),
        ("a", "SKILL.md", "skill://a/SKILL.md"),
        ("a", "docs/read me.md", "skill://a/docs/read%20me.md"),
        ("a", "größe?#%.txt", "skill://a/gr%C3%B6%C3%9Fe%3F%23%25.txt"),
    ],
)
def test_a_uri_leads_back_to_what_it_was_made_of(skill: str, path: str, uri: str):
    """In one spelling."""
    assert uri_of(skill, path) == uri
    assert address(uri) == (skill, path)


@law
@given(path=st.text(st.characters(codec="utf-8"), min_size=1))
def test_any_path_can_be_told_in_a_uri(path: str):
    """And read back."""
    assert address(uri_of("a", path)) == ("a", path)


@law
@given(uri=st.text() | st.text().map("skill://a/{}".format) | st.text().map("skill://{}".format))
def test_no_uri_leads_to_what_another_one_does(uri: str):
    """Whatever is asked for: it is exactly one of ours, or none."""
    found = address(uri)

    assert found is None or uri_of(*found) == uri


@pytest.mark.parametrize(
    "uri",
    [
        "skill://a/",
        "skill:///SKILL.md",
        "skill://A/SKILL.md",
        "SKILL://a/SKILL.md",
        "skill://a/%53KILL.md",
        "skill://a/read me.md",
        "skill://a/%c3%b6",
        "skill://a/%FF",
        "skill://a/SKILL.md?x",
        "skill://a/SKILL.md#x",
        "skill://a/\ud800",
        "file:///a/SKILL.md",
        "a/SKILL.md",
        "",
    ],
)
def test_any_other_spelling_leads_nowhere(uri: str):
    """So that what is refused under one is not had under another."""
    assert address(uri) is None
    assert published(catalogue(replace(PLAIN, id="a")), uri) is None


def test_a_file_whose_name_is_no_text_does_no_harm():
    """It has a URI, though one that leads nowhere."""
    assert address(uri_of("a", "\udcff")) is None


def test_what_a_uri_is_of_is_a_skill_that_is_served_here():
    """Also where there is no such file: no server is asked for what is ours."""
    assert published(ALL, "skill://pdf-forms/SKILL.md") == (PLAIN, "SKILL.md")
    assert published(ALL, "skill://pdf-forms/nothing/here") == (PLAIN, "nothing/here")
    assert published(ALL, "skill://git-log") == (WITH_FILES, "")
    assert published(ALL, "skill://broken/SKILL.md") is None
    assert published(ALL, "skill://unknown/SKILL.md") is None
    assert published(ALL, "file:///etc/passwd") is None
