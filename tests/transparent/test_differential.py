"""The same requests at a server and through the proxy: both ends see the same, but for names and what is said here."""

import json
from collections.abc import Generator, Mapping
from itertools import count
from typing import Any
from urllib.parse import quote

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.conftest import Json, of_servers
from tests.servers.mirror import LISTS
from tests.transparent import strategies
from tests.transparent.wires import Pair, exposed, until_listed

EXAMPLES = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""The same examples in every run; how long they take says nothing."""
FEWER_EXAMPLES = settings(EXAMPLES, max_examples=8, phases=[Phase.generate])
"""For lists, which the proxy reads again only after a moment; each example holds many definitions, none is shrunk."""


OF_ONE_HOP = frozenset(
    {
        "progressToken",
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientInfo",
        "io.modelcontextprotocol/clientCapabilities",
        "io.modelcontextprotocol/logLevel",
    }
)
"""What may differ in the `_meta` of a request: it speaks of one hop. An object that is empty without it is as good as
none, here and below."""
ENVELOPE: Mapping[str, frozenset[str]] = {
    "handshake": frozenset(),
    "modern": frozenset({"resultType", "ttlMs", "cacheScope"}),
}
"""By the client's era: what may differ at the top of a result."""
STAMP: Mapping[str, frozenset[str]] = {
    "handshake": frozenset(),
    "modern": frozenset({"io.modelcontextprotocol/serverInfo"}),
}
"""By the client's era: what may differ in the `_meta` of a result."""
TRANSLATED_CODES: Mapping[tuple[str, str, int], int] = {("modern", "resources/read", -32002): -32602}
"""By era and method: codes that are those of the other era, and what the client gets for them."""


# --- what is compared ------------------------------------------------------------------------------------------------


def text(value: object) -> str:
    """`value` so that 1, 1.0 and true differ, and the order of keys does not count."""
    return json.dumps(value, sort_keys=True)


def without(keys: frozenset[str], value: Any) -> Any:
    """An object without these keys; None where nothing else is in it."""
    if isinstance(value, dict) and keys:
        return {key: inner for key, inner in value.items() if key not in keys} or None
    return value


def result_of(era: str, result: Json) -> str:
    """A result without what may differ."""
    kept = without(ENVELOPE[era], result) or {}
    if "_meta" in kept and (meta := without(STAMP[era], kept.pop("_meta"))) is not None:
        kept["_meta"] = meta
    return text(kept)


def received(said: str) -> str:
    """A request that the mirror has received, without what may differ."""
    request = json.loads(said)
    params = request["params"]
    if "_meta" in params and (meta := without(OF_ONE_HOP, params.pop("_meta"))) is not None:
        params["_meta"] = meta
    return text([request["method"], params])


def renamed(method: str, params: Json) -> Json:
    """The request for the proxy: with the exposed name."""
    if method == "completion/complete" and "name" in params["ref"]:
        return {**params, "ref": {**params["ref"], "name": exposed(params["ref"]["name"])}}
    return {**params, "name": exposed(params["name"])} if "name" in params else params


def same_received(both: Pair, method: str, params: Json) -> None:
    """Both mirrors receive the same request."""
    direct = _said(both.direct.result(method, params))
    proxied = _said(both.proxied.result(method, renamed(method, params)))
    assert received(proxied) == received(direct)


def _said(result: Json) -> str:
    """The text that an echo answers with, whatever it is in."""
    found = [value for value in _leaves(result) if isinstance(value, str) and value.startswith('{"jsonrpc"')]
    assert len(found) == 1, result
    return found[0]


def _leaves(value: Any) -> Generator[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if inner is None:
        yield value
    else:
        for each in inner:
            yield from _leaves(each)


def same_answer(both: Pair, method: str, params: Json) -> Json:
    """Both clients get the same response; the one at the proxy."""
    direct = both.direct.request(method, params)
    proxied = both.proxied.request(method, renamed(method, params))
    if "error" in direct:
        error = dict(direct["error"])
        error["code"] = TRANSLATED_CODES.get((both.era, method, error["code"]), error["code"])
        assert text(proxied.get("error", proxied)) == text(error)
    else:
        assert result_of(both.era, proxied.get("result", proxied)) == result_of(both.era, direct["result"])
    return proxied


def said_by(body: Json) -> Json:
    """The arguments that have the mirror answer with `body`."""
    return {"body": json.dumps(body)}


# --- requests, on their way to the server ----------------------------------------------------------------------------


@EXAMPLES
@given(params=strategies.call_params, token=st.none() | st.integers() | st.text(max_size=5))
def test_calls_arrive_as_sent(both: Pair, params: Json, token: str | int | None) -> None:
    if token is not None:
        params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": token}}
    same_received(both, "tools/call", {**params, "name": "echo"})


@EXAMPLES
@given(arguments=strategies.string_arguments, meta=strategies.meta, extras=strategies.extras)
def test_prompts_are_asked_for_as_sent(both: Pair, arguments: Json, meta: Json, extras: Json) -> None:
    same_received(both, "prompts/get", {**extras, "name": "echo", "arguments": arguments, "_meta": meta})


@EXAMPLES
@given(path=strategies.plain_text, meta=strategies.meta, extras=strategies.extras)
def test_reads_arrive_as_sent(both: Pair, path: str, meta: Json, extras: Json) -> None:
    same_received(both, "resources/read", {**extras, "uri": f"mirror://echo/x{quote(path, safe='')}", "_meta": meta})


@EXAMPLES
@given(value=strategies.texts, context=strategies.string_arguments, extras=strategies.extras, by_uri=st.booleans())
def test_completions_are_asked_for_as_sent(both: Pair, value: str, context: Json, extras: Json, by_uri: bool) -> None:
    ref = (
        {"type": "ref/resource", "uri": "mirror://{what}/{body}"} if by_uri else {"type": "ref/prompt", "name": "echo"}
    )
    argument = {"name": "a", "value": value}
    params = {**extras, "ref": ref, "argument": argument, "context": {"arguments": context}}
    same_received(both, "completion/complete", params)


# --- answers, on their way to the client -----------------------------------------------------------------------------


@EXAMPLES
@given(body=strategies.bodies)
def test_answers_to_calls_come_as_sent(both: Pair, body: Json) -> None:
    same_answer(both, "tools/call", {"name": "say", "arguments": said_by(body)})


@EXAMPLES
@given(result=strategies.prompts_got)
def test_prompts_come_as_sent(both: Pair, result: Json) -> None:
    same_answer(both, "prompts/get", {"name": "say", "arguments": said_by({"result": result})})


@EXAMPLES
@given(result=strategies.reads)
def test_contents_of_resources_come_as_sent(both: Pair, result: Json) -> None:
    same_answer(both, "resources/read", {"uri": f"mirror://say/{quote(json.dumps({'result': result}), safe='')}"})


@EXAMPLES
@given(result=strategies.completions)
def test_completions_come_as_sent(both: Pair, result: Json) -> None:
    argument = {"name": "a", "value": json.dumps({"result": result})}
    same_answer(both, "completion/complete", {"ref": {"type": "ref/prompt", "name": "say"}, "argument": argument})


@EXAMPLES
@given(error=strategies.errors)
def test_errors_to_other_requests_come_as_sent(both: Pair, error: Json) -> None:
    body = {"error": error}
    same_answer(both, "prompts/get", {"name": "say", "arguments": said_by(body)})
    same_answer(both, "resources/read", {"uri": f"mirror://say/{quote(json.dumps(body), safe='')}"})


# --- definitions -----------------------------------------------------------------------------------------------------

_rounds = count(1)


@FEWER_EXAMPLES
@given(
    tools=strategies.listed(strategies.tools, "name"),
    prompts=strategies.listed(strategies.prompts, "name"),
    resources=strategies.listed(strategies.resources, "uri"),
    templates=strategies.listed(strategies.templates, "uriTemplate"),
)
def test_definitions_come_as_sent(
    both: Pair, tools: list[Json], prompts: list[Json], resources: list[Json], templates: list[Json]
) -> None:
    more = {"tools": tools, "prompts": prompts, "resources": resources, "resourceTemplates": templates}
    mark = f"round-{next(_rounds)}"
    pages = {
        method: {"": json.dumps({"result": {key: [*always, marked(key, mark), *more[key]]}})}
        for method, (key, always) in LISTS.items()
    }
    both.direct.call("lists", pages)
    both.proxied.call(exposed("lists"), pages)
    for method, (key, _) in LISTS.items():
        direct = both.direct.result(method, {})
        proxied = until_listed(both.proxied, method, key, mark)
        if key == "tools":
            assert [proxied[key].pop(0)["name"] for _ in range(2)] == ["SKILL", "SKILL_CALL"]
            direct[key].sort(key=lambda tool: tool["name"])
        else:
            proxied[key] = of_servers(proxied[key])
        if key in {"tools", "prompts"}:
            direct[key] = [{**definition, "name": exposed(definition["name"])} for definition in direct[key]]
        assert result_of(both.era, proxied) == result_of(both.era, direct)


def marked(key: str, mark: str) -> Json:
    """A definition by which a list is known."""
    by = {"resources": "uri", "resourceTemplates": "uriTemplate"}.get(key, "name")
    named = {"name": mark, "title": mark, **({"inputSchema": {"type": "object"}} if key == "tools" else {})}
    return named if by == "name" else {**named, by: f"mirror://{mark}/x"}
