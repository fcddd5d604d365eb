"""A skill's guide, read when it is needed."""

import structlog
from anyio import to_thread

from proxy.core.catalogue import Skill
from proxy.ports import SkillFiles

log = structlog.stdlib.get_logger("proxy.gateway")


async def guide_of(skill: Skill, files: SkillFiles) -> str:
    """The guide of `skill`; where it cannot be had any more, a word on why."""
    if skill.usage is not None:
        return skill.usage
    try:
        return await to_thread.run_sync(files.guide, skill, abandon_on_cancel=True)
    except OSError as error:
        reason = error.strerror or str(error)
        log.warning("skill.unreadable", skill=skill.id, reason=reason)
        return f"(The guide of this skill cannot be read: {reason}.)"
