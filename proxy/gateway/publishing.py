"""Skills for clients that know them (SEP-2640), as resources for those that do not, and as prompts for people.

Each is answered from the catalogue of the caller's scope; what is not ours goes on to the servers, whose own skills
stand behind ours.
"""

import mimetypes
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from proxy.core import run_answers
from proxy.core.catalogue import Skill
from proxy.core.decision import Route
from proxy.core.errors import Rejection, Unknown, Unreadable, unknown_cursor
from proxy.core.foreign_text import one_line
from proxy.core.inventory import is_json
from proxy.core.namespaced import exposed_entry
from proxy.core.published import DOCUMENT, MARKDOWN, TEMPLATE, described, has_file, paths, published, served, uri_of
from proxy.core.skill_answers import prompt
from proxy.gateway.forwarding import INVALID_PARAMS, METHOD_NOT_FOUND, Forwarding
from proxy.gateway.gate import Gate
from proxy.gateway.guides import guide_of
from proxy.gateway.listing import Listing
from proxy.ports import Caller, Manifest, RunRecords, SkillFiles

FOLDER: Final = "inode/directory"
PAGE: Final = 50
"""Skills, or files of a folder, in one answer."""
_CURSOR: Final = re.compile(r"[0-9]{1,9}")
COMPLETIONS: Final = 100
"""Values of one completion, at most (2025-11-25, server/utilities/completion)."""


class Publishing:
    """Answers what concerns skills as resources and prompts; `forwarding` answers the rest."""

    def __init__(
        self, gate: Gate, listing: Listing, forwarding: Forwarding, files: SkillFiles, records: RunRecords
    ) -> None:
        self._gate = gate
        self._listing = listing
        self._forwarding = forwarding
        self._files = files
        self._records = records

    async def read_resource(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `resources/read`; a file of a skill, and its runs in the caller's scope, are read as they are now.

        Raises:
            Unknown: no such resource exists for the caller.
            Rejection, ServerUnavailable, ServerLost, ServerSilent: as `Forwarding.read_resource`.
        """
        uri: str = params["uri"]
        found = published(self._gate.catalogue(caller.scope), uri)
        if found is None:
            return await self._forwarding.read_resource(caller, params)
        skill, path = found
        if self._gate.settings.publish.resources and run_answers.concerns_runs(skill, path):
            told = run_answers.runs_at(path, self._records.of(caller.scope, skill.id))
            if told is None:
                raise Unknown(f"Unknown resource: {uri}", uri)
            return {"contents": [{"uri": uri, "mimeType": "application/json", "text": told}]}
        if not has_file(skill, path) or not self._gate.settings.publish.files:
            raise Unknown(f"Unknown resource: {uri}", uri)
        try:
            content = await self._files.read(skill, path)
        except Unreadable as error:
            raise Unknown(f"Resource {uri} cannot be read: {one_line(error.reason)}", uri) from None
        return {"contents": [{"uri": uri, "mimeType": _mime_type(path), **_contents(content)}]}

    async def get_prompt(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `prompts/get`; a skill's prompt is its guide and how to activate it, and changes nothing.

        Raises:
            Unknown: no prompt of that name exists for the caller.
            Rejection, ServerUnavailable, ServerLost, ServerSilent: as `Forwarding.get_prompt`.
        """
        skill = self._gate.catalogue(caller.scope).by_prompt.get(params["name"])
        if skill is None or not self._gate.settings.publish.prompts:
            return await self._forwarding.get_prompt(caller, params)
        return prompt(skill, await guide_of(skill, self._files))

    async def complete(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `completion/complete`; of ours, the template of a skill's files has values.

        Raises:
            Unknown: no such prompt or resource exists for the caller.
            Rejection, ServerUnavailable, ServerLost, ServerSilent: as `Forwarding.complete`.
        """
        catalogue, ref = self._gate.catalogue(caller.scope), params["ref"]
        ours = catalogue.by_prompt if self._gate.settings.publish.prompts else ()
        if ref.get("type") == "ref/prompt" and ref.get("name") in ours:
            return {"completion": {"values": []}}
        if ref.get("uri") != TEMPLATE or not self._gate.settings.publish.resources:
            return await self._forwarding.complete(caller, params)
        argument, context = params["argument"], params.get("context")
        given = context.get("arguments") if is_json(context) else None
        named = catalogue.find(str(given.get("skill"))) if is_json(given) else None
        known: Sequence[str] = [skill.id for skill in catalogue.skills if served(skill)]
        if argument["name"] == "path":
            known = paths(named) if named is not None and served(named) else ()
        values = [value for value in known if value.startswith(argument["value"])]
        more = {"total": len(values), "hasMore": len(values) > COMPLETIONS}
        return {"completion": {"values": values[:COMPLETIONS], **more}}

    async def skills(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `skills/list`: the entries of a page of the skills that the caller may use, those of servers last.

        Raises:
            Rejection: the cursor is unknown, or the extension is turned off.
        """
        self._check_extension("skills/list")
        theirs = await self._listing.skills(caller)
        ours = [skill for skill in self._gate.catalogue(caller.scope).skills if served(skill)]
        page, more = _page([*ours, *theirs], params)
        entries: list[dict[str, Any]] = []
        for skill in page:
            if isinstance(skill, Route):
                entries.append(exposed_entry(skill.server, skill.definition))
                continue
            try:
                entries.append(_entry(skill, await self._files.manifest(skill)))
            except Unreadable:  # it has just gone, or been changed to what cannot be served
                continue
        return {"skills": entries, **more}

    async def skill(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `skills/get`: the entry of one skill, by the URI of its SKILL.md.

        Raises:
            Rejection: the caller may use no skill with that URI; or as `Forwarding.get_skill`.
            ServerUnavailable, ServerLost, ServerSilent: as `Forwarding.get_skill`.
        """
        self._check_extension("skills/get")
        uri = _uri(params)
        found = published(self._gate.catalogue(caller.scope), uri)
        if found is None or found[1] != DOCUMENT:
            return await self._forwarding.get_skill(caller, params)
        try:
            return {"skill": _entry(found[0], await self._files.manifest(found[0]))}
        except Unreadable as error:
            raise Rejection(INVALID_PARAMS, f"The skill at {uri} cannot be read: {one_line(error.reason)}") from None

    async def directory(self, caller: Caller, params: Mapping[str, Any]) -> dict[str, Any]:
        """Run `resources/directory/read`: what is directly in a folder of a skill.

        Raises:
            Rejection: the caller may use no skill with such a folder, or the cursor is unknown; or as
                `Forwarding.read_folder`.
            ServerUnavailable, ServerLost, ServerSilent: as `Forwarding.read_folder`.
        """
        self._check_extension("resources/directory/read")
        found = published(self._gate.catalogue(caller.scope), _uri(params))
        children = None if found is None else _children(*found)
        if children is None:
            return await self._forwarding.read_folder(caller, params)
        page, more = _page(children, params)
        return {"resources": page, **more}

    def _check_extension(self, method: str) -> None:
        """Refuse a method of the skills extension as one that does not exist, where that is turned off.

        Raises:
            Rejection: it is.
        """
        if not self._gate.settings.publish.extension:
            raise Rejection(METHOD_NOT_FOUND, "Method not found", method)


def _uri(params: Mapping[str, Any]) -> str:
    uri = params.get("uri")
    if not isinstance(uri, str):
        raise Rejection(INVALID_PARAMS, "uri must be text")
    return uri


def _page(listed: Sequence[Any], params: Mapping[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """The part of a list that `cursor` asks for, and where the next one begins."""
    cursor = params.get("cursor")
    if cursor is None:
        cursor = "0"
    if not isinstance(cursor, str) or not _CURSOR.fullmatch(cursor):
        raise unknown_cursor(cursor)
    start = int(cursor)  # beyond the end of a list that has become shorter there is nothing more
    end = start + PAGE
    return listed[start:end], {"nextCursor": str(end)} if end < len(listed) else {}


def _entry(skill: Skill, manifest: Manifest) -> dict[str, Any]:
    """A skill as SEP-2640 has it."""
    resources = [
        {"uri": uri_of(skill.id, path), "digest": f"sha256:{digest}", "size": size}
        for path, (size, digest) in manifest.digests.items()
    ]
    return {"uri": uri_of(skill.id, DOCUMENT), "frontmatter": manifest.front_matter, "resources": resources}


def _children(skill: Skill, folder: str) -> list[dict[str, Any]] | None:
    """What is directly in a folder; None where there is no such folder."""
    below = f"{folder}/" if folder else ""
    inside = [path.removeprefix(below) for path in paths(skill) if path.startswith(below)]
    if not inside:
        return None
    found: dict[str, dict[str, Any]] = {}
    for path in inside:
        name, _, deeper = path.partition("/")
        uri = uri_of(skill.id, below + name)
        found[name] = {"uri": uri, "name": name, "mimeType": FOLDER if deeper else _mime_type(name)}
    if not folder:
        found[DOCUMENT] |= {"name": skill.id, "description": described(skill)}
    return list(found.values())


def _mime_type(path: str) -> str:
    if path.lower().endswith((".md", ".markdown")):
        return MARKDOWN
    return mimetypes.guess_type(path, strict=False)[0] or "application/octet-stream"


def _contents(content: bytes) -> dict[str, str]:
    """The text of a file, or its base64 where it is none, whatever line ends or marks it has."""
    try:
        return {"text": content.decode()}
    except UnicodeDecodeError:
        return {"blob": b64encode(content).decode()}
