"""Profiles: who may use which skills, and what is said of those that cannot be meant."""

import pytest

from proxy.config.load import Loaded
from proxy.core.limits import UNLIMITED, Limits
from proxy.core.scope import ScopeId

SKILLS = "skill_configs: {git-log: {}, git-push: {}, pdf: {active: true}, ocr: {}}\n"
TOKENS = "proxy: {tokens: {alice: a, bob: b}}\n"


def usable(loaded: Loaded, scope: ScopeId) -> list[str]:
    return [skill.id for skill in loaded.policy.of(scope).skills]


def namespace(name: str, principal: str | None = None) -> ScopeId:
    return ScopeId("namespace", name, principal)


def profiles(room, text: str, skills: str = SKILLS) -> Loaded:
    return room.load(f"{skills}{TOKENS}profiles:\n{text}")


def said(room, text: str, skills: str = SKILLS) -> list[str]:
    """What is said of profiles in a file that loads."""
    return [note for note in room.notes(f"{skills}{TOKENS}profiles:\n{text}") if "profiles" in note]


# --- who may use what -------------------------------------------------------------------------------------------------


def test_without_profiles_everybody_may_use_every_skill(room):
    loaded = room.load(SKILLS)
    for scope in (ScopeId("process"), ScopeId("session", "x"), namespace("n"), ScopeId("principal", "p")):
        assert usable(loaded, scope) == ["git-log", "git-push", "pdf", "ocr"]


def test_the_first_profile_that_matches_holds(room):
    loaded = profiles(
        room,
        """\
  - {namespace: "team-*", principal: alice, allowed_skills: pdf}
  - {namespace: "team-*", allowed_skills: ["git-*", pdf], denied_skills: ["*-push"]}
  - {principal: bob}
""",
    )
    assert usable(loaded, namespace("team-a", "alice")) == ["pdf"]
    assert usable(loaded, namespace("team-a")) == ["git-log", "pdf"]
    assert usable(loaded, namespace("team-a", "bob")) == ["git-log", "pdf"]
    assert usable(loaded, ScopeId("principal", "bob")) == ["git-log", "git-push", "pdf", "ocr"]
    assert usable(loaded, namespace("other")) == []
    assert usable(loaded, ScopeId("process")) == []


def test_a_profile_says_what_is_active_at_the_start_and_how_much_may_be(room):
    loaded = profiles(room, '  - {namespace: a, active: [ocr], max_active_skills: 2}\n  - {namespace: "*"}\n')
    of_a, of_all = (loaded.policy.of(namespace(name)) for name in ("a", "b"))
    assert ([skill.id for skill in of_a.skills if skill.active], of_a.max_active) == (["ocr"], 2)
    assert ([skill.id for skill in of_all.skills if skill.active], of_all.max_active) == (["pdf"], None)


def test_a_skill_that_requires_a_capability_is_for_profiles_that_have_it(room):
    skills = "skill_configs: {a: {required_capabilities: [net, write]}, b: {required_capabilities: net}, c: {}}\n"
    loaded = profiles(
        room,
        '  - {namespace: n, capabilities: net}\n  - {namespace: w, capabilities: "*"}\n  - {namespace: "*"}\n',
        skills,
    )
    assert [usable(loaded, namespace(name)) for name in ("n", "w", "x")] == [["b", "c"], ["a", "b", "c"], ["c"]]


def test_a_skill_goes_where_one_goes_that_it_requires(room):
    skills = "skill_configs: {a: {requires_skills: b}, b: {requires_skills: c}, c: {}, d: {}}\n"
    assert usable(profiles(room, "  - {namespace: n, denied_skills: c}\n", skills), namespace("n")) == ["d"]


def test_the_skills_of_folders_are_known_to_profiles_too(room):
    room.put("s/extra")
    loaded = room.load("skill_paths: [s]\nskill_configs: {a: {}}\nprofiles: [{namespace: n, allowed_skills: extra}]\n")
    assert usable(loaded, namespace("n")) == ["extra"]


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_a_skill_that_there_is_not_is_a_problem_with_the_nearest(room):
    assert room.problems(
        f"{SKILLS}profiles:\n  - namespace: n\n    allowed_skills: [pdf, orc]\n    denied_skills: x\n    active: Pdf\n"
    ) == [
        "4: profiles[0].allowed_skills[1]: unknown skill 'orc': did you mean 'ocr'?",
        "5: profiles[0].denied_skills[0]: unknown skill 'x': known here: git-log, git-push, pdf, ocr",
        "6: profiles[0].active[0]: unknown skill 'Pdf': did you mean 'pdf'?",
    ]


def test_what_is_active_is_named_one_by_one(room):
    (problem,) = room.problems(f"{SKILLS}profiles: [{{namespace: n, active: 'git-*'}}]\n")
    assert "profiles[0].active[0]: unknown skill 'git-*'" in problem


@pytest.mark.parametrize("profile", ["{}", "{active: [pdf]}"])
def test_a_profile_for_nobody_is_a_problem(room, profile):
    assert room.problems(f"{SKILLS}profiles: [{profile}]\n") == [
        '2: profiles[0]: names nobody: write namespace: or principal: with a name or pattern ("*" for everybody)'
    ]


def test_no_profile_at_all_is_a_problem_as_nobody_would_get_anything(room):
    (problem,) = room.problems(f"{SKILLS}profiles: []\n")
    assert "profiles: is empty: nobody would get anything" in problem


@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        ("[]", "2: profiles[0]: must be a mapping (key: value), not a list"),
        ("{namespace: n, allowed: x}", "2: profiles[0].allowed: unknown key: did you mean 'allowed_skills'?"),
        ("{namespace: n, active: ~}", "2: profiles[0].active: is empty: write [] for an empty list, or leave it out"),
        ("{namespace: n, max_active_skills: 0}", "2: profiles[0].max_active_skills: must be a whole number greater"),
        ("{namespace: ''}", "2: profiles[0].namespace: is empty text and no name"),
    ],
)
def test_what_is_wrong_with_the_shape_of_a_profile_is_said_with_its_place(room, profile, problem):
    (said,) = room.problems(f"{SKILLS}profiles: [{profile}]\n")
    assert said.startswith(problem)


@pytest.mark.parametrize(
    ("skills", "profile", "why"),
    [
        ("a: {conflicts_with: b}, b: {}", "active: [a, b]", "b cannot be active from the start: it conflicts with an"),
        ("a: {}, b: {}", "active: [a, b], max_active_skills: 1", "b cannot be active from the start: as many skills"),
        (
            "b: {}, a: {exclusive: true, conflicts_with: b}",
            "active: [b, a]",
            "a cannot be active from the start: it conflicts with an active skill",
        ),
        (
            "b: {exclusive: true}, a: {exclusive: true, conflicts_with: b}",
            "active: [b, a]",
            "a cannot be active from the start: it conflicts with an active skill",
        ),
    ],
)
def test_what_a_profile_starts_with_must_be_possible(room, skills, profile, why):
    """Where it says itself what that is."""
    (problem,) = room.problems(f"skill_configs: {{{skills}}}\nprofiles: [{{namespace: n, {profile}}}]\n")
    assert f"the skill {why}" in problem
    assert "2: profiles[0].active[" in problem


# --- what is worth saying ---------------------------------------------------------------------------------------------


def test_a_profile_that_an_earlier_one_covers_never_holds(room):
    text = """\
  - {namespace: "team-*"}
  - {namespace: team-a}
  - {namespace: "team-b*"}
  - {principal: alice}
  - {principal: alice, namespace: x}
  - {principal: "*"}
  - {namespace: y, principal: bob}
"""
    never = "never holds: an earlier profile matches all that this one does"
    assert [note for note in said(room, text) if "never" in note] == [
        f"5: profiles[1]: {never}",
        f"8: profiles[4]: {never}",
        f"10: profiles[6]: {never}",
    ]


def test_a_user_without_a_token_is_named_with_the_nearest(room):
    assert said(room, "  - {principal: alcie}\n  - {principal: 'b*'}\n") == [
        "4: profiles[0].principal: no user 'alcie' has a token in proxy.tokens: did you mean 'alice'?"
    ]


def test_a_pattern_that_matches_no_skill_is_said(room):
    assert said(room, "  - {namespace: n, allowed_skills: ['git*', 'gti*', '*'], denied_skills: 'x?'}\n") == [
        "4: profiles[0].allowed_skills[1]: the pattern gti* matches no skill",
        "4: profiles[0].denied_skills[0]: the pattern x? matches no skill",
    ]


def test_a_skill_that_is_not_offered_is_no_problem_in_a_profile(room):
    """It may be elsewhere."""
    skills = "skill_configs: {a: {}, b: {requires: {env: NOT}}}\n"
    assert said(room, "  - {namespace: n, allowed_skills: [a, b], active: [b]}\n", skills) == [
        "4: profiles[0].allowed_skills[1]: the skill b is not offered",
        "4: profiles[0].active[0]: the skill b is not offered",
    ]


def test_what_a_profile_starts_with_and_may_not_use_is_said(room):
    assert said(room, "  - {namespace: n, allowed_skills: ocr, active: [pdf]}\n") == [
        "4: profiles[0].active[0]: the skill pdf is not among those that this profile may use"
    ]


def test_a_profile_that_leaves_nothing_is_said(room):
    assert said(room, "  - {namespace: n, denied_skills: '*'}\n") == [
        "4: profiles[0]: nobody with this profile may use any skill"
    ]


def test_skills_that_cannot_be_active_at_the_start_of_a_profile_are_said_together(room):
    """Where it is they that say so, not the profile."""
    skills = f"skill_configs: {{{', '.join(f's{n}: {{active: true}}' for n in range(7))}}}\n"
    assert said(room, "  - {namespace: n, max_active_skills: 1}\n", skills) == [
        (
            "4: profiles[0]: the skills s1, s2, s3, s4, s5, … (6 in all) cannot be active from the start: as many "
            "skills are active as may be"
        )
    ]
    assert said(room, "  - {namespace: n, max_active_skills: 6}\n", skills) == [
        "4: profiles[0]: the skill s6 cannot be active from the start: as many skills are active as may be"
    ]


def test_skills_for_which_no_profile_has_the_capability_are_said_together(room):
    skills = "skill_configs: {a: {required_capabilities: w}, b: {required_capabilities: w}, c: {}}\n"
    note = "nobody may use the skills a, b: no profile has the capability w"
    assert said(room, "  - {namespace: n}\n", skills) == [f"3: profiles: {note}"]
    assert any(note in each for each in room.notes(skills))


def test_capabilities_that_no_profile_has_together_are_said(room):
    skills = "skill_configs: {a: {required_capabilities: [net, write]}}\n"
    text = "  - {namespace: n, capabilities: net}\n  - {namespace: w, capabilities: write}\n"
    assert "3: profiles: nobody may use the skill a: no profile has the capabilities net and write" in said(
        room, text, skills
    )


def test_a_capability_that_no_skill_requires_is_said_with_the_nearest(room):
    skills = "skill_configs: {a: {required_capabilities: network}}\n"
    text = "  - {namespace: n, capabilities: [netwrk, 'net*', 'x*']}\n"
    assert said(room, text, skills) == [
        "4: profiles[0].capabilities[0]: no skill requires the capability netwrk: did you mean 'network'?",
        "4: profiles[0].capabilities[2]: no skill requires the capability x*",
    ]
    assert said(room, "  - {namespace: n, capabilities: x}\n") == [
        "4: profiles[0].capabilities[0]: no skill requires the capability x"
    ]


# --- limits ----------------------------------------------------------------------------------------------------------


def test_limits_of_a_profile_are_its_own(room):
    """What it does not say is said nowhere in it."""
    loaded = profiles(
        room, "  - {namespace: a, limits: {calls_per_minute: 60, processes: unlimited}}\n  - {principal: bob}\n"
    )
    assert [profile.limits for profile in loaded.profiles] == [
        Limits(calls_per_minute=60, processes=UNLIMITED),
        Limits(),
    ]


@pytest.mark.parametrize("most", ["5001", "unlimited"])
def test_limits_that_let_one_user_take_all_are_noted(room, most):
    """Nobody else would have a part of its own; where there is nobody else, it does not matter."""
    what = "users can take all that others may have: 2 share 10,000 (proxy.max_scopes.session)"
    assert said(room, f"  - {{namespace: n, limits: {{sessions: {most}}}}}\n") == [
        f"4: profiles[0].limits.sessions: {what}",
    ]
    both, one = "tokens: {alice: a, bob: b}", "tokens: {alice: a}"
    limits = f"limits: {{sessions: {most}, namespaces: 5000, calls_in_flight: unlimited}}"
    assert [note for note in room.notes(f"{SKILLS}proxy: {{{both}, {limits}}}\n") if "proxy.limits" in note] == [
        f"2: proxy.limits.sessions: {what}",
    ]
    assert not [note for note in room.notes(f"{SKILLS}proxy: {{{one}, {limits}}}\n") if "proxy.limits" in note]
