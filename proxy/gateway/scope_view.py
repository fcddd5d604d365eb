"""What a scope's clients see with one set of active skills: the decision's view, and the lists as they get them."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.core.catalogue import Catalogue
from proxy.core.decision import View, decide
from proxy.core.inventory import Inventory, Listed
from proxy.core.invoke_tool import hooks_harmless, invoke_tool, skill_as_tool
from proxy.core.published import skill_prompts, skill_resources, skill_templates
from proxy.core.settings import Publish, Settings
from proxy.core.skill_tool import skill_call_tool, skill_tool


@dataclass(frozen=True)
class SkillLists:
    """What the skills of a catalogue themselves are to clients, whatever is active."""

    catalogue: Catalogue
    resources: list[dict[str, Any]]
    templates: list[dict[str, Any]]
    prompts: list[dict[str, Any]]
    digests: Mapping[str, str]
    """Of these lists, by kind."""


@dataclass(frozen=True)
class ScopeView:
    """What is seen in one catalogue with one set of active skills."""

    catalogue: Catalogue
    inventory: Inventory
    view: View
    """What may be used, by the decision."""

    tools: Listed
    with_call: Listed
    """The tools with `SKILL_CALL` among them, which depends on the client."""

    own_tools: Mapping[str, str]
    """The active skills that are tools, by exposed name."""

    resources: Listed
    templates: Listed
    prompts: Listed
    digests: Mapping[str, str]
    """Of the lists, by kind."""


def skill_lists(catalogue: Catalogue, publish: Publish) -> SkillLists:
    """What the skills of a catalogue are as resources and prompts; of very many it takes a while."""
    resources = skill_resources(catalogue) if publish.resources else []
    templates = skill_templates(catalogue) if publish.resources else []
    prompts = skill_prompts(catalogue) if publish.prompts else []
    digests = {"resources": _digest([resources, templates]), "prompts": _digest(prompts)}
    return SkillLists(catalogue, resources, templates, prompts, digests)


def scope_view(ours: SkillLists, active: Collection[str], inventory: Inventory, settings: Settings) -> ScopeView:
    """What is seen while the skills `active` are active and servers offer what `inventory` has."""
    catalogue = ours.catalogue
    view = decide(catalogue, active, inventory)
    harmless = hooks_harmless(catalogue, inventory)
    own = [skill_tool(catalogue, active, settings.guidance, harmless=harmless)] if catalogue.skills else []
    as_tools = [skill for skill in catalogue.skills if skill.id in active and skill.id in catalogue.naming.tools]
    tools = [invoke_tool(catalogue, inventory)] if catalogue.invocable else []
    tools += [skill_as_tool(skill, catalogue, inventory) for skill in as_tools]
    tools += [{**route.definition, "name": route.exposed} for route in view.tools.values()]
    resources = [{**route.definition, "uri": route.exposed} for route in view.resources]
    templates = [{**route.definition, "uriTemplate": route.exposed} for route in view.templates]
    prompts = [{**route.definition, "name": route.exposed} for route in view.prompts.values()]
    skills = [[skill.exposed, skill.definition] for skill in view.skills]
    digests = {
        "tools": _digest([*own, *tools]),
        "resources": _digest([ours.digests["resources"], resources, templates, skills]),
        "prompts": _digest([ours.digests["prompts"], prompts]),
    }
    return ScopeView(
        catalogue=catalogue,
        inventory=inventory,
        view=view,
        tools=Listed([*own, *tools]),
        with_call=Listed([*own, skill_call_tool(), *tools]),
        own_tools={catalogue.naming.tool_of(skill.id): skill.id for skill in as_tools},
        resources=Listed([*ours.resources, *resources]),
        templates=Listed([*ours.templates, *templates]),
        prompts=Listed([*ours.prompts, *prompts]),
        digests=digests,
    )


def _digest(listed: object) -> str:
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()
