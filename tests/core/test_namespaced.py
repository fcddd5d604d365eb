"""The URIs of what servers serve under `skill://`: each under its server's name, and back."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.core.namespaced import (
    Source,
    exposed,
    exposed_at,
    exposed_entry,
    exposed_in,
    in_our_scheme,
    in_plain_scheme,
    is_file_of,
    is_folder_of,
    is_within,
    original,
    shown,
)
from proxy.core.published import address, uri_of
from tests.core.strategies import SERVER_KEYS, law

KEYS = ("git", *SERVER_KEYS, "", "a/b", "a%2Fb", "a%b", "..", "x~y", "\ud800", "server.a")
schemes = st.sampled_from(("skill", "SKILL", "Skill", "gh", "x+y.z-1", "file", "server.git", "1x", ""))
segments = st.sampled_from(("", "a", "skill:", ":", "gh:", "1x:", "server.git", "..", "SKILL.md", "{+x}", "ä", "\n"))
parts = st.lists(segments | st.text(max_size=4), max_size=4).map("/".join)
uris = st.text(max_size=12) | st.builds("{}{}{}".format, schemes, st.sampled_from(("://", ":/", ":", "")), parts)
keys = st.sampled_from(KEYS)


@pytest.mark.parametrize(
    ("server", "uri", "expected"),
    [
        ("git", "skill://echo/SKILL.md", "skill://server.git/echo/SKILL.md"),
        ("git", "skill://team/echo/SKILL.md", "skill://server.git/team/echo/SKILL.md"),
        ("git", "gh://o/r/SKILL.md", "skill://server.git/gh:/o/r/SKILL.md"),
        ("git", "file:///a/SKILL.md", "skill://server.git/file://a/SKILL.md"),
        ("git", "SKILL://echo/SKILL.md", "skill://server.git/SKILL:/echo/SKILL.md"),
        ("git", "skill://gh:/o/r", "skill://server.git/skill:/gh:/o/r"),
        ("git", "skill://gh:", "skill://server.git/skill:/gh:"),
        ("git", "urn:x", "skill://server.git/:/urn:x"),
        ("x.y~z", "skill://a", "skill://server.x.y~z/a"),
        ("my server/ä", "skill://a", "skill://server.my%20server%2F%C3%A4/a"),
    ],
)
def test_what_is_exposed_reads_as_what_it_is_and_whose(server: str, uri: str, expected: str):
    """The server's name, then what the server says itself."""
    assert exposed(server, uri) == expected
    assert original(expected, ["other", server]) == Source(server, uri)


@law
@given(server=keys, uri=uris)
def test_every_uri_comes_back_as_it_was(server: str, uri: str):
    """Whatever it holds."""
    assert original(exposed(server, uri), KEYS) == Source(server, uri)


@law
@given(server=keys, uri=uris)
def test_nothing_else_leads_there(server: str, uri: str):
    """One spelling for each; what is under a server's name in another is nothing."""
    spelled = f"skill://server.{server}/{uri}"
    found = original(spelled, KEYS)

    assert found is None or exposed(*found) == spelled


@law
@given(one=st.tuples(keys, uris), other=st.tuples(keys, uris))
def test_two_never_meet(one: tuple[str, str], other: tuple[str, str]):
    """Neither of two servers, nor of one."""
    assume(one != other)

    assert exposed(*one) != exposed(*other)


@law
@given(server=keys, uri=uris)
def test_none_is_ever_one_of_ours(server: str, uri: str):
    """No legal name of a skill holds a dot."""
    assert address(exposed(server, uri)) is None
    assert original(uri_of("echo", uri), KEYS) is None


@law
@given(server=keys, uri=uris)
def test_a_resource_that_is_shown_is_never_in_our_scheme_but_under_its_server(server: str, uri: str):
    """In whatever case it is written; any other is shown as it is."""
    if in_our_scheme(uri):
        assert uri.lower().startswith("skill://")
        assert original(shown(server, uri), [server]) == Source(server, uri)
    else:
        assert not uri.lower().startswith("skill://")
        assert shown(server, uri) == uri


@law
@given(server=keys, folder=st.builds("{}://{}{}".format, schemes, segments.filter(bool), parts), path=parts)
def test_what_is_below_a_folder_stays_below_it(server: str, folder: str, path: str):
    """So that clients can resolve what a document says of the files beside it."""
    assert exposed(server, f"{folder}/{path}") == f"{exposed(server, folder)}/{path}"


@pytest.mark.parametrize(
    ("uri", "plain"),
    [
        ("SKILL://a/B", "skill://a/B"),
        ("skill://a", "skill://a"),
        ("SKILL:/a", "SKILL:/a"),
        ("GH://a", "GH://a"),
        ("", ""),
    ],
)
def test_our_scheme_is_ours_in_any_case(uri: str, plain: str):
    """As schemes are; nothing else of a URI is written otherwise."""
    assert in_plain_scheme(uri) == plain


@pytest.mark.parametrize(
    "uri", ["skill://server.git", "skill://server.git/", "skill://server.git/gh:", "SKILL://server.git/a"]
)
def test_a_spelling_that_nobody_was_given_leads_to_nothing(uri: str):
    """But for the bare scheme, which is a URI as any other."""
    assert original(uri, ["git"]) == (Source("git", "skill://") if uri.endswith("git/") else None)


@pytest.mark.parametrize("spelling", ["skill://server.g%69t/a", "skill://server.my server/a", "skill://server.other/a"])
def test_a_server_has_one_name(spelling: str):
    """And one that is not there has none."""
    assert original(spelling, ["git", "my server"]) is None


ENTRY = {
    "uri": "skill://a/SKILL.md",
    "frontmatter": {"name": "a", "description": "skill://a/SKILL.md"},
    "resources": [
        {"uri": "skill://a/SKILL.md", "digest": "sha256:0", "size": 1.0, "x": {"uri": "skill://a"}},
        {"uri": "skill://a/b.md"},
        *({"uri": 7}, None, "skill://a/c.md", {}),
    ],
    "x": [{"uri": "skill://a"}],
}


def test_of_an_entry_nothing_but_uris_changes():
    """Its own, and those of its files; what is no such object stays."""
    assert exposed_entry("s", ENTRY) == {
        **ENTRY,
        "uri": "skill://server.s/a/SKILL.md",
        "resources": [
            {**ENTRY["resources"][0], "uri": "skill://server.s/a/SKILL.md"},
            {"uri": "skill://server.s/a/b.md"},
            *({"uri": 7}, None, "skill://a/c.md", {}),
        ],
    }
    assert list(exposed_entry("s", ENTRY)) == list(ENTRY)
    assert exposed_entry("s", {"uri": "x://a", "resources": "dynamic"}) == {
        "uri": "skill://server.s/x:/a",
        "resources": "dynamic",
    }
    assert [exposed_entry("s", value) for value in (None, [], "skill://a", {})] == [None, [], "skill://a", {}]


def test_of_a_list_those_are_exposed_that_begin_so():
    """The others are somebody else's."""
    listed = [{"uri": "skill://a/b"}, {"uri": "memo://1"}, {"text": "x"}]

    assert exposed_in("s", {"contents": listed, "x": 1}, "contents", "skill://a/") == {
        "contents": [{"uri": "skill://server.s/a/b"}, *listed[1:]],
        "x": 1,
    }
    assert exposed_in("s", {"contents": {"uri": "skill://a"}}, "contents") == {"contents": {"uri": "skill://a"}}
    assert exposed_at("s", listed[1]) == {"uri": "skill://server.s/memo:/1"}


@pytest.mark.parametrize(
    ("uri", "within"),
    [
        *((f"skill://a/{path}", True) for path in ("SKILL.md", "b.md", "b/c.md", "", "..a", "a..b/c", "b%20c", "...")),
        *(
            (f"skill://a/{path}", False)
            for path in ("..", "../b/SKILL.md", "b/../../c", ".", "./b", "b/..", "b\\..\\c")
        ),
        *((f"skill://a/{path}", False) for path in ("%2e%2e/b", ".%2E/b", "b%2F..%2Fc", "b%5c..%5cc", "%2e")),
        *((uri, False) for uri in ("skill://a", "skill://ab/c", "skill://b", "SKILL://a/b", "")),
    ],
)
def test_a_file_is_below_its_skills_folder_and_no_step_leads_out(uri: str, within: bool):
    """Not under any spelling that a server may read as one."""
    assert is_within("skill://a/SKILL.md", uri) is within
    assert is_file_of({"uri": "skill://a/SKILL.md", "resources": "dynamic"}, uri) is within
    assert is_folder_of("skill://a/SKILL.md", uri) is (within or uri == "skill://a")


def test_of_a_skill_with_a_manifest_those_are_files_that_it_names():
    """And its document; what it names outside its folder is none of its own."""
    entry = {
        "uri": "skill://a/SKILL.md",
        "resources": [None, {"uri": "skill://a/b.md"}, {"uri": "skill://c/d.md"}, {"uri": "skill://a/../c/d.md"}],
    }

    asked = ("a/SKILL.md", "a/b.md", "a/c.md", "c/d.md", "a/../c/d.md")
    assert [is_file_of(entry, f"skill://{path}") for path in asked] == [True, True, False, False, False]
