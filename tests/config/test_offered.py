"""Which skills are offered: the file's over those of folders, without those that cannot be here or never be active."""

import shutil
import sys

import pytest

from proxy.config.load import Loaded
from proxy.core.catalogue import EVERYTHING, Allow, Skill
from proxy.core.scope import ScopeId

SERVERS = "servers: {git: {command: python}, time: {command: python}, off: {command: python, disabled: true}}\n"
TRUSTED = SERVERS + "skill_paths: [{path: s, trusted: true}]\n"
UNTRUSTED = SERVERS + "skill_paths: [s]\n"


def skill(loaded: Loaded, id_: str) -> Skill:
    return loaded.catalogue.by_id[id_]


def offered(loaded: Loaded) -> list[str]:
    return [skill.id for skill in loaded.catalogue.skills]


def left_out(loaded: Loaded) -> list[tuple[str, str]]:
    return [(left.id, left.why) for left in loaded.left_out]


def notes(room, text: str) -> list[str]:
    """The notes that are about skills."""
    return [note for note in room.notes(text) if "SKILL.md" in note or "skill_configs" in note]


# --- what the file says of a folder's skill ---------------------------------------------------------------------------


def test_an_entry_is_laid_over_the_skill_of_the_same_id_field_by_field(room):
    """What the entry does not say stays as the folder has it."""
    room.put("s/pdf", "pinned: true\nversion: '2'\ntool_list: {git: [git_log]}\nresource_list: {git: []}\n")
    loaded = room.load(f"{TRUSTED}skill_configs:\n  pdf: {{desc: Mine., tool_list: {{time: []}}, pinned: false}}\n")
    pdf = skill(loaded, "pdf")
    assert (pdf.desc, pdf.pinned, pdf.version, pdf.name) == ("Mine.", False, "2", "pdf")
    assert (pdf.tools, pdf.resources) == ({"time": EVERYTHING}, {"git": EVERYTHING})
    assert pdf.folder is not None
    assert (pdf.usage, pdf.folder.verbatim) == (None, False)


def test_that_an_entry_is_laid_over_another_is_said(room):
    room.put("s/pdf")
    room.put("s/ocr")
    config = f"{UNTRUSTED}skill_configs:\n  pdf: {{usage: u, active: true, desc: d}}\n  ocr: {{}}\n"
    assert notes(room, config) == [
        "4: skill_configs.pdf: laid over s/pdf/SKILL.md: desc, usage, active",
        "5: skill_configs.ocr: adds nothing to s/ocr/SKILL.md",
    ]


@pytest.mark.parametrize(("key", "verbatim"), [("name", False), ("desc", False), ("usage", False), ("tags", True)])
def test_a_document_is_served_as_it_is_unless_the_file_says_it_in_other_words(room, key, verbatim):
    room.put("s/pdf")
    pdf = skill(room.load(f"{UNTRUSTED}skill_configs: {{pdf: {{{key}: x}}}}"), "pdf")
    assert pdf.folder is not None
    assert pdf.folder.verbatim is verbatim
    assert pdf.usage == ("x" if key == "usage" else None)


def test_an_entry_stands_alone_where_its_folder_s_document_is_wrong(room):
    """So no folder can take a skill of the file away; that the document is not used is said."""
    room.put("s/pdf", "required_capabilities: {a: b}\n")
    loaded = room.load(f"{UNTRUSTED}skill_configs: {{pdf: {{desc: Mine.}}}}")
    assert (skill(loaded, "pdf").desc, skill(loaded, "pdf").folder, loaded.left_out) == ("Mine.", None, ())
    why = "s/pdf/SKILL.md cannot be used: line 4: required_capabilities: must"
    said = f"{room.file}:3: skill_configs.pdf: stands alone, as {why}"
    assert any(note.startswith(said) for note in loaded.notes)


def test_every_folder_that_cannot_be_used_is_told_whatever_it_is_called(room):
    """Also where two of them have the same name."""
    for root in ("s", "t"):
        room.put(f"{root}/{'x' * 129}")
    loaded = room.load("skill_paths: [s, t]\n")
    assert [left.file for left in loaded.left_out] == [f"{root}/{'x' * 129}/SKILL.md" for root in ("s", "t")]


@pytest.mark.parametrize(("ours", "theirs"), [("PDF", "pdf"), ("straße", "STRASSE"), ("e\u0301", "é")])
def test_a_folder_s_skill_that_is_spelled_like_one_of_the_file_is_not_used(room, ours, theirs):
    """A model could not tell them apart; the file's counts."""
    room.put(f"s/{theirs}", "tool_list: {git: []}\n")
    loaded = room.load(f'{TRUSTED}skill_configs:\n  "{ours}": {{desc: Mine.}}\n')
    assert [(one.id, one.desc, one.tools) for one in loaded.catalogue.skills] == [(ours, "Mine.", {})]
    assert any(
        f"s/{theirs}/SKILL.md is not used: {theirs} is the same id but for its spelling" in note
        for note in loaded.notes
    )


def test_two_skills_of_the_file_may_differ_in_case_and_a_folder_s_belongs_to_the_one_with_its_id(room):
    room.put("s/pdf")
    for both in ("{PDF: {}, pdf: {}}", "{pdf: {}, PDF: {}}"):
        loaded = room.load(f"{UNTRUSTED}skill_configs: {both}")
        assert sorted(offered(loaded)) == ["PDF", "pdf"]
        assert not any("spelling" in note for note in loaded.notes)
        assert (skill(loaded, "pdf").folder is None, skill(loaded, "PDF").folder is None) == (False, True)


def test_skills_of_the_file_come_first_then_those_of_folders_by_root_and_path(room):
    for path in ("s/b", "s/a", "t/d", "t/c/x"):
        room.put(path)
    loaded = room.load("skill_paths: [t, s]\nskill_configs: {z: {}, a: {}, y: {}}\n")
    assert offered(loaded) == ["z", "a", "y", "x", "d", "b"]


# --- trust ------------------------------------------------------------------------------------------------------------

GRANTING = (
    "active: true\npinned: true\ntool_list: {git: []}\nexclusive: true\nrequires_skills: ocr\nconflicts_with: b\n"
)


def test_a_trusted_folder_s_skill_grants_what_it_says(room):
    room.put("s/pdf", f"{GRANTING}max_active_minutes: 2\n")
    room.put("s/ocr")
    pdf = skill(room.load(TRUSTED), "pdf")
    assert (pdf.active, pdf.pinned, pdf.exclusive, pdf.tools) == (True, True, True, {"git": EVERYTHING})
    assert (pdf.requires, pdf.conflicts, pdf.idle_limit) == (("ocr",), ("b",), 120.0)


def test_an_untrusted_folder_s_skill_is_a_guide_alone(room):
    """And says so, with what to do."""
    room.put("s/pdf", f"{GRANTING}allowed-tools: mcp__time__convert\n")
    loaded = room.load(UNTRUSTED)
    pdf = skill(loaded, "pdf")
    assert (pdf.active, pdf.pinned, pdf.exclusive, pdf.servers) == (False, False, False, frozenset())
    assert (pdf.requires, pdf.conflicts) == ((), ())
    assert any("are not in force, as s is not trusted: write trusted: true" in note for note in loaded.notes)


def test_what_the_file_grants_to_an_untrusted_folder_s_skill_holds_and_nothing_else(room):
    room.put("s/pdf", "tool_list: {git: []}\nprompt_list: {git: []}\nactive: true\n")
    pdf = skill(room.load(f"{UNTRUSTED}skill_configs: {{pdf: {{tool_list: {{time: [convert]}}}}}}"), "pdf")
    assert (pdf.tools, pdf.prompts, pdf.active) == ({"time": Allow(entries=("convert",))}, {}, False)


# --- whether it can be here -------------------------------------------------------------------------------------------


def why_not(room, more: str, config: str = TRUSTED, **environ: str) -> str:
    """Why the skill `x` is not offered; empty where it is."""
    room.put("s/x", more)
    loaded = room.load(config, environ)
    assert (offered(loaded) == ["x"]) != bool(loaded.left_out)
    assert all(left.file == "s/x/SKILL.md" for left in loaded.left_out)
    return "".join(left.why for left in loaded.left_out)


@pytest.mark.parametrize("config", [TRUSTED, UNTRUSTED])
def test_a_skill_that_is_switched_off_is_not_offered(room, config):
    assert why_not(room, "enabled: false\n", config) == "it is switched off: enabled: false"
    assert why_not(room, "enabled: false\n", f"{config}skill_configs: {{x: {{enabled: true}}}}") == ""


@pytest.mark.parametrize("config", [TRUSTED, UNTRUSTED])
def test_a_skill_needs_the_programs_that_it_requires(room, config, no_interpreter):
    """On PATH, or beside the running interpreter."""
    path = str(room.program("bin/there").parent)
    more = "requires: {bins: [there, missing]}\n"
    assert why_not(room, more, config, PATH=path) == "the program missing is not on PATH"
    (no_interpreter / "missing").write_text("")
    (no_interpreter / "missing").chmod(0o755)
    assert why_not(room, more, config, PATH=path) == ""
    assert why_not(room, more, config, PATH="") == "the program there is not on PATH"


@pytest.mark.parametrize("config", [TRUSTED, UNTRUSTED])
def test_a_skill_needs_the_variables_that_it_requires(room, config):
    more = "requires: {env: [ONE, TWO]}\n"
    assert why_not(room, more, config, ONE="1", TWO="") == "the variable TWO is not set"
    assert why_not(room, more, config) == "the variable ONE is not set; the variable TWO is not set"
    assert why_not(room, more, config, ONE="1", TWO="2") == ""


@pytest.mark.parametrize(
    ("platform", "here", "fits"),
    [("linux", "linux", "Linux"), ("darwin", "macos", "[windows, osx]"), ("win32", "windows", "[macos, win32]")],
)
def test_a_skill_needs_one_of_the_systems_that_it_is_for(room, monkeypatch, platform, here, fits):
    monkeypatch.setattr(sys, "platform", platform)
    assert why_not(room, "requires: {os: [beos, amiga]}\n") == f"it is for beos, amiga, and this is {here}"
    assert why_not(room, f"requires: {{os: {fits}}}\n") == ""


@pytest.mark.parametrize("config", [TRUSTED, UNTRUSTED])
def test_a_skill_needs_the_servers_that_it_requires(room, config):
    assert why_not(room, "requires: {servers: [git, off]}\n", config) == "the server off is switched off"
    assert why_not(room, "requires: {servers: gti}\n", config) == "there is no server gti in the configuration"
    assert why_not(room, "requires: {servers: git}\n", config) == ""


@pytest.mark.parametrize("where", ["tool_list: {gti: []}\n", "metadata: {tool_list: 'gti: []'}\n"])
def test_a_trusted_skill_that_grants_at_a_server_that_there_is_not_is_left_out(room, where):
    """Unless the file says otherwise."""
    why = why_not(room, where)
    assert why.endswith("tool_list.gti: unknown server 'gti': did you mean 'git'?")
    assert why_not(room, where, f"{TRUSTED}skill_configs: {{x: {{tool_list: {{git: []}}}}}}") == ""
    assert why_not(room, where, f"{TRUSTED}skill_configs: {{x: {{resource_list: {{git: []}}}}}}") == why
    assert why_not(room, where, UNTRUSTED) == ""


def test_all_reasons_are_said_in_one_line_whatever_is_in_them(room):
    why = why_not(room, 'requires: {bins: "no\\e[31m\\nwhere", env: NOT, os: x}\n', UNTRUSTED, PATH="")
    assert why.startswith(r"the program no\x1b[31m\nwhere is not on PATH; the variable NOT is not set; it is for x, ")
    assert why.isprintable()


def test_a_skill_of_the_file_may_be_for_somewhere_else_too(room):
    """It is no problem with the file; what is here is offered."""
    loaded = room.load(f"{SERVERS}skill_configs: {{a: {{requires: {{env: NOT}}}}, b: {{enabled: false}}, c: {{}}}}")
    assert offered(loaded) == ["c"]
    assert [(left.id, left.file, left.why) for left in loaded.left_out] == [
        ("a", "", "the variable NOT is not set"),
        ("b", "", "it is switched off: enabled: false"),
    ]


def test_the_file_may_say_what_a_folder_s_skill_requires(room):
    assert why_not(room, "requires: {env: NOT}\n", f"{UNTRUSTED}skill_configs: {{x: {{requires: {{}}}}}}") == ""


# --- relations --------------------------------------------------------------------------------------------------------


def test_the_file_may_only_speak_of_skills_that_there_are(room):
    """Where skills come from folders, too, they may come later; what a folder speaks of may be elsewhere."""
    written = "skill_configs:\n  a: {conflicts_with: [b, oc, ocr]}\n  b: {requires_skills: zzz}\n"
    assert room.problems(f"{written}  ocr: {{enabled: false}}\n") == [
        "2: skill_configs.a.conflicts_with[1]: unknown skill 'oc': did you mean 'ocr'?",
        "3: skill_configs.b.requires_skills[0]: unknown skill 'zzz': known here: a, b, ocr",
    ]
    room.put("s/ocr", "enabled: false\n")
    loaded = room.load(f"{TRUSTED}{written}")
    assert offered(loaded) == ["a"]
    assert [note.split(": ", 1)[1] for note in loaded.notes if "unknown" in note] == [
        "skill_configs.a.conflicts_with[1]: unknown skill 'oc': did you mean 'ocr'?",
        "skill_configs.b.requires_skills[0]: unknown skill 'zzz': known here: a, b, ocr",
    ]
    room.put("s/x", "conflicts_with: nowhere\n")
    assert skill(room.load(TRUSTED), "x").conflicts == ("nowhere",)


def test_what_a_skill_cannot_do_without_takes_it_along(room):
    """Through any number of others; it is the nearest that is named."""
    room.put("s/a", "requires_skills: b\n")
    room.put("s/b", "requires_skills: c\n")
    room.put("s/c", "requires_skills: [d, e]\n")
    room.put("s/d")
    room.put("s/e", "requires: {env: NOT}\n")
    loaded = room.load(f"{TRUSTED}skill_configs: {{f: {{requires_skills: [d, a]}}}}")
    assert offered(loaded) == ["d"]
    assert left_out(loaded) == [
        ("e", "the variable NOT is not set"),
        ("f", "it requires the skill a, which is not offered"),
        ("a", "it requires the skill b, which is not offered"),
        ("b", "it requires the skill c, which is not offered"),
        ("c", "it requires the skill e, which is not offered"),
    ]


def test_a_circle_in_the_file_is_refused_with_the_way_round(room):
    """Said of each that has part in it, and of none that only leads there."""
    assert room.problems("""\
skill_configs:
  lead: {requires_skills: a}
  a: {requires_skills: [x, b]}
  b:
    desc: B
    requires_skills: [c]
  c: {requires_skills: a}
  self: {requires_skills: self}
  x: {}
""") == [
        "3: skill_configs.a.requires_skills: it requires itself: a -> b -> c -> a",
        "6: skill_configs.b.requires_skills: it requires itself: b -> c -> a -> b",
        "7: skill_configs.c.requires_skills: it requires itself: c -> a -> b -> c",
        "8: skill_configs.self.requires_skills: it requires itself: self -> self",
    ]


def test_the_way_round_a_large_circle_is_shortened(room):
    entries = "".join(f"  s{n}: {{requires_skills: s{(n + 1) % 20}}}\n" for n in range(20))
    first, *_ = room.problems(f"skill_configs:\n{entries}")
    assert first.endswith("it requires itself: s0 -> s1 -> s2 -> s3 -> s4 -> s5 -> s6 -> … -> s0")


def test_a_circle_in_folders_costs_those_that_have_part_in_it(room):
    """And those that require them; the others are offered."""
    room.put("s/a", "requires_skills: b\n")
    room.put("s/b", "requires_skills: a\n")
    room.put("s/c", "requires_skills: a\n")
    room.put("s/d")
    loaded = room.load(TRUSTED)
    assert offered(loaded) == ["d"]
    assert left_out(loaded) == [
        ("a", "it requires itself: a -> b -> a"),
        ("b", "it requires itself: b -> a -> b"),
        ("c", "it requires the skill a, which is not offered"),
    ]


def test_a_circle_that_a_folder_closes_costs_the_folder_s_skill_and_what_requires_it(room):
    """A file that loads does not cease to for what is put into a folder."""
    room.put("s/b", "requires_skills: a\n")
    loaded = room.load(f"{TRUSTED}skill_configs: {{a: {{requires_skills: b}}, z: {{}}}}")
    assert offered(loaded) == ["z"]
    assert left_out(loaded) == [
        ("b", "it requires itself: b -> a -> b"),
        ("a", "it requires the skill b, which is not offered"),
    ]


@pytest.mark.parametrize("config", [TRUSTED, UNTRUSTED])
def test_a_circle_that_the_file_makes_of_a_folder_s_skills_is_refused(room, config):
    room.put("s/a")
    room.put("s/b", "requires_skills: a\n")
    assert room.problems(f"{config}skill_configs:\n  a: {{requires_skills: b}}\n  b: {{requires_skills: a}}\n") == [
        "4: skill_configs.a.requires_skills: it requires itself: a -> b -> a",
        "5: skill_configs.b.requires_skills: it requires itself: b -> a -> b",
    ]


def test_what_the_file_lays_over_a_folder_s_circle_opens_it(room):
    room.put("s/a", "requires_skills: b\n")
    room.put("s/b", "requires_skills: a\n")
    assert offered(room.load(f"{TRUSTED}skill_configs: {{a: {{requires_skills: []}}}}")) == ["a", "b"]


def test_a_skill_that_requires_what_conflicts_is_refused(room):
    """It could never be active; whether it is one of both or above them."""
    assert room.problems("""\
skill_configs:
  a: {requires_skills: [b]}
  b: {requires_skills: [c, d]}
  c: {}
  d: {conflicts_with: [c]}
  e: {requires_skills: f}
  f: {conflicts_with: e}
""") == [
        "2: skill_configs.a.requires_skills: it requires c and d, which conflict",
        "3: skill_configs.b.requires_skills: it requires c and d, which conflict",
        "6: skill_configs.e.requires_skills: it requires f, which conflicts with it",
    ]


def test_a_skill_that_requires_what_conflicts_in_folders_is_left_out(room):
    room.put("s/a", "requires_skills: [b, c]\n")
    room.put("s/b")
    room.put("s/c", "conflicts_with: b\n")
    room.put("s/d", "requires_skills: e\nconflicts_with: e\n")
    room.put("s/e")
    loaded = room.load(f"{TRUSTED}skill_configs: {{f: {{requires_skills: [b, c]}}}}")
    assert offered(loaded) == ["b", "c", "e"]
    assert left_out(loaded) == [
        ("f", "it requires b and c, which conflict"),
        ("a", "it requires b and c, which conflict"),
        ("d", "it requires e, which conflicts with it"),
    ]


def test_skills_that_conflict_cannot_both_be_active_from_the_start(room):
    """The later one is wrong; also where it is something that they require that conflicts."""
    assert room.problems("""\
skill_configs:
  a: {active: true}
  b: {requires_skills: c, pinned: true}
  c: {conflicts_with: a}
  d:
    conflicts_with: a
    active: true
  e: {conflicts_with: a}
""") == [
        "3: skill_configs.b.pinned: it is active from the start, and so is a: that takes a and c, which conflict",
        "7: skill_configs.d.active: it is active from the start, and so is a, with which it conflicts",
    ]


def test_one_that_is_wrong_itself_takes_no_other_with_it(room):
    """Of a row in which each conflicts with the next, every second one can be active from the start."""
    row = "".join(f"  s{n}: {{active: true, conflicts_with: s{n + 1}}}\n" for n in range(4))
    problems = room.problems(f"skill_configs:\n{row}  s4: {{active: true}}\n")
    assert [problem.split(":")[1].strip() for problem in problems] == [
        "skill_configs.s1.active",
        "skill_configs.s3.active",
    ]


def test_a_folder_s_skill_that_is_in_the_way_at_the_start_is_left_out(room):
    """The file's stays, wherever it stands."""
    room.put("s/a", "active: true\nconflicts_with: z\n")
    room.put("s/z")
    config = f"{TRUSTED}skill_configs: {{a: {{desc: x}}, z: {{active: true}}}}"
    assert offered(room.load(config)) == ["z"]
    assert left_out(room.load(config)) == [
        ("a", "it is active from the start, and so is z, with which it conflicts"),
    ]


def test_long_rows_of_skills_that_require_each_other_load(room):
    """Deeper than a program may call itself."""
    count = 3_000
    row = "".join(f"  s{n}: {{requires_skills: s{n + 1}}}\n" for n in range(count))
    config = f"skill_configs:\n{row}  s{count}: {{}}\nprofiles: [{{namespace: '*', denied_skills: s7, active: s1}}]\n"
    loaded = room.load(config)
    assert len(loaded.catalogue.skills) == count + 1
    assert len(loaded.policy.catalogues[0].skills) == count - 7


def test_a_program_is_looked_for_once_however_many_skills_require_it(room, monkeypatch):
    asked: list[str] = []
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, path: asked.append(name) or which(name, path=path))
    entries = "".join(f"  s{n}: {{requires: {{bins: missing}}}}\n" for n in range(100))
    loaded = room.load(f"skill_configs:\n{entries}", {"PATH": str(room.folder)})
    assert len(loaded.left_out) == 100
    assert asked == ["missing", "missing"]


@pytest.mark.parametrize("hiding", ["enabled: false", "requires: {env: NOT}", "required_capabilities: [none]"])
def test_an_untrusted_folder_cannot_hide_what_the_file_offers(room, hiding):
    """A trusted one can, where the file says nothing else."""
    room.put("s/mine", f"{hiding}\n")
    mine = "skill_configs: {mine: {tool_list: {git: [git_log]}}}"
    loaded = room.load(f"{UNTRUSTED}{mine}")
    assert [one.id for one in loaded.policy.of(ScopeId("process")).skills] == ["mine"]
    assert room.load(f"{TRUSTED}{mine}").policy.of(ScopeId("process")).skills == ()
