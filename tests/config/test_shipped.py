"""The files in config/: they load, and the schema that editors use fits them and the program."""

from pathlib import Path

import jsonschema
import pytest
import yaml

from proxy.config import schema
from proxy.config.load import load
from proxy.config.models import (
    CLIENT_KEYS,
    File,
    LimitsBlock,
    ProxyBlock,
    PublishBlock,
    ServerEntry,
    SkillEntry,
    StepEntry,
)

CONFIG = Path(__file__).parents[2] / "config"
SCHEMA = schema.schema()


def fits(data):
    return jsonschema.Draft7Validator(SCHEMA).is_valid(data)


def test_the_schema_file_is_what_the_program_prints(capsys):
    """`python -m proxy.config.schema > config/skills.schema.json` keeps it so."""
    assert (CONFIG / "skills.schema.json").read_text(encoding="utf-8") == schema.text()


def test_the_schema_is_draft_07():
    """And holds nothing of a later draft."""
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert "$defs" not in schema.text()
    assert "prefixItems" not in schema.text()


@pytest.mark.parametrize("name", ["skills.yaml", "example.yaml", "help-desk.yaml"])
def test_the_shipped_files_load_without_problems_and_fit_the_schema(name):
    """Also as an editor reads them, and without any variable set."""
    loaded = load(CONFIG / name, {"PATH": "/usr/bin:/bin", "HOME": "/"})
    text = (CONFIG / name).read_text(encoding="utf-8")
    assert loaded.catalogue.skills
    assert all("is not set" not in reason for reason in loaded.unstartable.values())
    assert text.startswith("# yaml-language-server: $schema=./skills.schema.json\n")
    jsonschema.Draft7Validator(SCHEMA).validate(yaml.safe_load(text))


def test_the_default_file_has_no_notes_and_no_secrets():
    """Nothing to explain to somebody who has just begun."""
    loaded = load(CONFIG / "skills.yaml", {"PATH": "/usr/bin:/bin", "HOME": "/"})
    assert loaded.notes == ()
    assert loaded.secrets == frozenset()
    assert not [skill.id for skill in loaded.catalogue.skills if skill.active or skill.pinned]
    assert loaded.catalogue.needed == ("time", "git", "fetch")
    assert loaded.settings.allowed_origins == ()  # no page of this machine reaches `fetch`, `git` and what comes to it
    assert all(skill.desc and len(skill.usage or "") > 100 for skill in loaded.catalogue.skills)


def test_the_example_shows_every_setting():
    """With the defaults of the program, where it does not say otherwise."""
    text = (CONFIG / "example.yaml").read_text(encoding="utf-8")
    models = (File, LimitsBlock, ProxyBlock, PublishBlock, ServerEntry, SkillEntry, StepEntry)
    keys = {field.alias or name for model in models for name, field in model.model_fields.items()}
    older = {"modern_listing", "max_request_size", "max_event_size"}
    assert {key for key in keys if key not in text} == older
    defaults = load(CONFIG / "example.yaml", {}).settings
    assert defaults == load(CONFIG / "skills.yaml", {}).settings


def test_every_field_has_a_description():
    """Editors show it on hover."""
    for part in (SCHEMA, *SCHEMA["definitions"].values()):
        for name, field in part["properties"].items():
            described = field if "description" in field else SCHEMA["definitions"][field["$ref"].split("/")[-1]]
            assert described["description"], name


@pytest.mark.parametrize(
    "data",
    [
        {"servers": {"a": {"command": "x", "env": {"PORT": 8080, "FLAG": True}, "args": ["-p", 80], "timeout": 60}}},
        {"mcpServers": {"a": {"url": "http://h", **{key: [None, {"a": 1}] for key in CLIENT_KEYS}}}},
        {
            "mcp_servers": {},
            "skill_configs": {"a": {"active": True, "tool_list": {"x": [], "y": "*", "z": ["a", 1.1]}}},
        },
        {"black_tool_actions": {"a": "*", "b": ["x"]}, "$schema": "./skills.schema.json", "proxy": {"name_limit": 64}},
        {"servers": {"a": {"url": "http://h", "isolation": "scope", "max_concurrency": 1, "pass_headers": ["X-User"]}}},
        *({"proxy": {"max_message_size": size}} for size in (1, "1024", "500KiB", "1 GiB")),
        *({"proxy": {"max_scopes": most}} for most in (1, {"session": 1}, {})),
        *({"proxy": {"limits": limits}} for limits in ({}, {"sessions": 1}, {"calls_per_minute": "unlimited"})),
        {"profiles": [{"namespace": "*", "limits": {"held_questions": 5, "processes": "unlimited"}}]},
        {"proxy": {"scope_idle": {"session": 0.5, "namespace": 1, "principal": 2}}},
        {"proxy": {"state": {"backend": "sqlite", "path": "state.db"}}},
        {"proxy": {"listing": "stable", "publish": {"prompts": False, "extension": True}, "call_route_clients": []}},
        {"proxy": {"modern_listing": "live", "publish": {}}},
        {"on_scope_start": [{"parallel": [{"tool": "a/b", "arguments": {"n": None, "m": [1, {"k": True}]}}]}]},
        {"skill_configs": {"a": {"steps": [{"skill": "b", "for_each": [1, "x"], "when": False}], "output": 1.5}}},
        {"skill_configs": {"a": {"bind": {"a/b": {"c": None}}, "internal_tools": {"a": "*"}, "parameters": {"p": {}}}}},
    ],
)
def test_the_schema_takes_what_the_program_takes(data):
    """With the types that editors see."""
    assert fits(data)


@pytest.mark.parametrize(
    "data",
    [
        {"skils": {}},
        {"servers": {"a": {"comand": "x"}}},
        {"servers": {"a": {"command": None}}},
        {"servers": {"a": {"command": "x", "disabled": "maybe"}}},
        {"servers": {"a": {"command": "x", "timeout": 0}}},
        {"skill_configs": {"a": {"tool_list": {"x": None}}}},
        {"skill_configs": {"a": {"tool_list": {"x": {}}}}},
        {"black_tool_actions": {"a": []}},
        {"proxy": {"name_limit": 8}},
        {"servers": {"a": {"command": "x", "isolation": "session"}}},
        {"servers": {"a": {"command": "x", "max_concurrency": 0}}},
        *({"proxy": {"max_message_size": size}} for size in (0, 1.5, "0KiB", "32MB")),
        *({"proxy": {"max_scopes": most}} for most in (0, 1.5, {"session": 0}, {"process": 1}, [1])),
        *({"proxy": {"limits": {"sessions": most}}} for most in (0, 1.5, "many", None, [1])),
        {"profiles": [{"namespace": "*", "limits": {"session": 1}}]},
        {"proxy": {"scope_idle": {"namespace": "long"}}},
        {"proxy": {"state": {"backend": "redis"}}},
        {"proxy": {"listing": "fixed"}},
        *({"proxy": {"publish": publish}} for publish in (False, {"prompt": True}, {"prompts": "maybe"})),
        {"on_scope_start": [{"parallel": [{"tol": "a/b"}]}]},
        {"skill_configs": {"a": {"steps": {"tool": "a/b"}}}},
        {"skill_configs": {"a": {"on_activate": [{"tool": "a/b", "on_error": "stop"}]}}},
        {"skill_configs": {"a": {"bind": {"a/b": ["c"]}}}},
        {"skill_configs": {"a": {"activation": "sometimes"}}},
    ],
)
def test_the_schema_marks_what_the_program_refuses(data):
    """So that the editor says it first."""
    assert not fits(data)
