"""The tools that the benchmark's servers offer, about 150 to 400 tokens each, and what they answer."""

from typing import Any

VOCABULARY = (
    "account archive branch bucket calendar channel column comment commit content cursor customer database document "
    "endpoint event export field filter folder format group header identifier index invoice issue label language limit "
    "location message metadata milestone object offset order owner page parameter path payload permission pipeline "
    "priority project query range record region release report repository resource result role schedule schema scope "
    "section segment service session setting snapshot source stage status stream subject summary table target task"
)
WORDS = VOCABULARY.split()
LINE = 'The quick brown fox jumps over the lazy dog \\ "quoted" 0123456789.\n'
MIB = 1024 * 1024


def tools(count: int, server: str) -> list[dict[str, Any]]:
    """`echo`, `big` and `sleep` of `server`, and as many others as make `count` tools."""
    own = [
        _tool(f"echo_{server}", "Give the text back.", {"text": {"type": "string"}}),
        _tool(f"big_{server}", "Give 1 MiB of text.", {}),
        _tool(f"sleep_{server}", "Wait before answering.", {"seconds": {"type": "number"}}),
    ]
    return [*own, *(_filler(number, server) for number in range(len(own), count))][: max(count, len(own))]


def text_of(tool: str, arguments: dict[str, Any]) -> str:
    """What a call of `echo` or `big` answers."""
    return (LINE * (MIB // len(LINE) + 1))[:MIB] if tool.startswith("big_") else str(arguments.get("text", tool))


def _tool(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": description, "inputSchema": schema}


def _filler(number: int, server: str) -> dict[str, Any]:
    properties = {}
    for place in range(3 + number % 6):
        seed = number * 13 + place * 7
        kind = ("string", "integer", "boolean", "string")[seed % 4]
        properties[f"{_word(seed)}_{_word(seed + 5)}"] = {"type": kind, "description": _sentence(seed, 6 + seed % 9)}
    name = f"{_word(number)}_{_word(number * 3 + 1)}_{number:04d}_{server}"
    return _tool(name, " ".join(_sentence(number + line, 12) for line in range(1 + number % 4)), properties)


def _sentence(seed: int, length: int) -> str:
    return " ".join(_word(seed * 17 + place * (3 + seed % 11)) for place in range(length)).capitalize() + "."


def _word(seed: int) -> str:
    return WORDS[seed % len(WORDS)]
