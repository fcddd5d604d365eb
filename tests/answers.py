"""What stands in the answers of `SKILL`, which are text alone."""

import ast
import json
import re
from typing import Any, Final, TypeAlias

Answer: TypeAlias = "dict[str, Any] | str"
"""The result of a call, or its text."""

TOOLS: Final = "Tools you can use now:"
NOT_READY: Final = "Not ready:"
_CURRENT: Final = re.compile(r"current skills: (\[[^\]\n]*\])")
_GUIDE: Final = re.compile(r"<skill_guide>(.*?)</skill_guide>", re.DOTALL)
_SCHEMA: Final = re.compile(r"^- (\S+)\n(?:\|[^\n]*\n)*  input schema: (\{[^\n]*\})$", re.MULTILINE)
_PROBLEM: Final = re.compile(r"- server (\S+) ((?:is )?[^:]+): (.*)")
_FILE: Final = re.compile(r"^- (.+) \(([\d,]+) bytes?\)$", re.MULTILINE)
_LISTED: Final = re.compile(r"^- (\S+?)(?: \((?:active|pinned)\))?(?::| \[|$)", re.MULTILINE)


def text_of(result: Answer) -> str:
    """The one text of a result that is text and nothing else."""
    if isinstance(result, str):
        return result
    assert "structuredContent" not in result, result
    (block,) = result["content"]
    assert block["type"] == "text"
    return block["text"]


def current_skills(result: Answer) -> list[str]:
    """The active skills, as an answer says them in its first paragraph."""
    found = _CURRENT.search(text_of(result))
    assert found, result
    return ast.literal_eval(found[1])


def guide_told(result: Answer) -> str | None:
    """The guide in an answer, without the quotes of one that is not trusted; None where there is none."""
    found = _GUIDE.search(text_of(result))
    if found is None:
        return None
    quoted = found[1].startswith("\n|")
    return re.sub(r"^\| ?", "", found[1].strip("\n"), flags=re.MULTILINE) if quoted else found[1]


def own_lines(result: Answer) -> list[str]:
    """The lines of an answer that are not quoted from others, whatever Unicode takes for the end of a line."""
    return [line for line in text_of(result).splitlines() if not line.startswith("|")]


def tools_told(result: Answer) -> list[str]:
    """The tools that an activation names: in one line, or each in a line of its own."""
    told = _below(result, TOOLS)
    if not told.startswith("\n"):
        return [name for name in told.partition(", …")[0].strip().split(", ") if name]
    return [line.removeprefix("- ").partition(":")[0] for line in told.splitlines() if line.startswith("- ")]


def schemas_told(result: Answer) -> dict[str, Any]:
    """The input schemas in an answer, by tool."""
    return {name: json.loads(schema) for name, schema in _SCHEMA.findall(text_of(result))}


def not_ready(result: Answer) -> dict[str, str]:
    """The servers that an activation says are not ready, each with how it stands: `failed: why`."""
    found = [_PROBLEM.fullmatch(line) for line in _below(result, NOT_READY).splitlines() if line]
    assert all(found), result
    return {one[1]: f"{one[2]}: {one[3]}" for one in found if one}


def required_skills(result: Answer) -> list[str]:
    """The skills that an activation says are active with it."""
    return _in_sentence(result, r"It requires, and they are active with it: (.*?)\. Their guides:")


def replaced_skills(result: Answer) -> list[str]:
    """The skills that an activation says had to go."""
    return _in_sentence(result, r"Offloaded, since they cannot be active beside it: (.*)\.")


def also_offloaded(result: Answer) -> list[str]:
    """The skills that an offload says went with it."""
    return _in_sentence(result, r"Offloaded with it, since no other skill requires them: (.*)\.")


def available_skills(result: Answer) -> list[str]:
    """The skills that are named instead of one that does not exist."""
    found = re.search(r"Available skills: (\[[^\]\n]*\])", text_of(result))
    assert found, result
    return ast.literal_eval(found[1])


def files_told(result: Answer) -> list[tuple[str, int]]:
    """The files that an answer names, with their sizes."""
    return [(path, int(size.replace(",", ""))) for path, size in _FILE.findall(text_of(result))]


def file_told(result: Answer) -> tuple[str, str]:
    """A file that was read: its encoding, and what it holds."""
    found = re.fullmatch(
        r"skill \S+, file .+ \([\d,]+ bytes?, (utf-8|base64)\):(?:\n[^\n]+)?\n\n<skill_file>(.*)</skill_file>",
        text_of(result),
        re.DOTALL,
    )
    assert found, result
    return found[1], found[2]


def listed_skills(result: Answer) -> list[str]:
    """The ids on a page of the `list` action."""
    return _LISTED.findall(text_of(result))


def total_listed(result: Answer) -> int:
    """How many skills a list says that there are on all pages."""
    found = re.match(r"(\d+) skills?", text_of(result))
    assert found, result
    return int(found[1])


def _below(result: Answer, heading: str) -> str:
    """The rest of the paragraph that begins with a heading; empty where there is none."""
    return next((one.removeprefix(heading) for one in text_of(result).split("\n\n") if one.startswith(heading)), "")


def _in_sentence(result: Answer, pattern: str) -> list[str]:
    found = re.search(pattern, text_of(result))
    return [] if found is None else found[1].split(", ")
