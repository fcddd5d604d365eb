"""What a server wants to know before it answers, from the use case's side: states, rounds and held calls (rule 31)."""

import string
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.core.byte_budget import ByteBudget
from proxy.core.errors import Rejection, ServerLost
from proxy.core.inventory import Json
from proxy.core.scope import ScopeId
from proxy.core.settings import Settings
from proxy.gateway import parked_calls, rounds
from proxy.gateway.parked_calls import PARKED_BYTES
from proxy.gateway.rounds import ROUNDS, Rounds, wants_input
from proxy.gateway.sealing import INVALID_PARAMS, Seal
from proxy.ports import Caller
from tests.core.strategies import law
from tests.gateway import world
from tests.gateway.world import SCOPE

DEADLINE = 10.0
ALPHABET = string.ascii_letters + string.digits + "-_"
CALL = {"name": "ask", "arguments": {"a": 1}}
DONE = {"content": [], "done": True}
ABLE = {"elicitation": {"form": {}}, "sampling": {}}


def form(message: str) -> dict[str, Any]:
    """A question to the user."""
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message}}


def wanting(questions: Json | None = None, **more: Any) -> dict[str, Any]:
    """A modern server's result that wants more."""
    return {"resultType": "input_required", **({"inputRequests": questions} if questions else {}), **more}


# --- sealing ---------------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3), max_leaves=5
)
purposes = st.lists(st.none() | st.text(max_size=4), max_size=4)


def refused(seal: Seal, purpose: object, text: object) -> bool:
    try:
        seal.open(purpose, text)
    except Rejection as error:
        return error.code == INVALID_PARAMS
    return False


@law
@given(purpose=purposes, other=purposes, value=json_values)
@example(purpose=["a", "bc"], other=["ab", "c"], value=None)
@example(purpose=["a", None], other=["a"], value=None)
@example(purpose=[None], other=["null"], value=None)
def test_a_state_opens_for_the_purpose_that_it_was_sealed_for_alone(
    purpose: list[str | None], other: list[str | None], value: object
):
    """As what it was; under another process's key it is nothing."""
    seal = Seal()
    sealed = seal.close(purpose, value)
    assert seal.open(purpose, sealed) == value
    assert refused(seal, other, sealed) == (other != purpose)
    assert refused(Seal(), purpose, sealed)


@law
@given(value=json_values, place=st.integers(0), put=st.sampled_from(ALPHABET) | st.characters())
def test_a_state_in_which_a_character_was_changed_means_nothing_else(value: object, place: int, put: str):
    """It is refused, wherever and whatever the change; the most that one can reach is another spelling of the same."""
    seal = Seal()
    sealed = seal.close("purpose", value)
    place %= len(sealed)
    changed = sealed[:place] + put + sealed[place + 1 :]
    if not refused(seal, "purpose", changed):
        assert seal.open("purpose", changed) == value


@law
@given(value=json_values, place=st.integers(0), put=st.sampled_from(ALPHABET) | st.characters())
@example(value="", place=-1, put="!")
def test_a_state_in_which_a_character_was_changed_is_refused(value: object, place: int, put: str):
    """It has one spelling."""
    seal = Seal()
    sealed = seal.close("purpose", value)
    place %= len(sealed)
    for changed in (sealed[:place] + put + sealed[place + 1 :], sealed + put, sealed + "="):
        assert refused(seal, "purpose", changed) == (changed != sealed)


@pytest.mark.parametrize("text", ["", "x", "AAAA", "ü", "\ud800", "=" * 50, None, 7, {}, "A" * 100_000])
def test_what_is_no_state_is_refused(text: object):
    """Whatever it is."""
    assert refused(Seal(), "purpose", text)


# --- doubles ---------------------------------------------------------------------------------------------------------

Act = Callable[[Json, Caller], Awaitable[dict[str, Any]]]


@dataclass
class Server(world.Server):
    """A link that does what `act` says with each request; `cancelled`: how many of those were."""

    result: dict[str, Any] = field(default_factory=dict[str, Any])
    act: Act | None = None
    callers: list[Caller] = field(default_factory=list[Caller])
    cancelled: int = 0

    async def request(self, method: str, params: Json, caller: Caller | None = None) -> dict[str, Any]:
        assert caller is not None
        self.callers.append(caller)
        result = await super().request(method, params, caller)
        try:
            return result if self.act is None else await self.act(params, caller)
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise


@dataclass
class Modern(Server):
    """A modern server that gives these results in turn, the last one again and again."""

    results: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    async def request(self, method: str, params: Json, caller: Caller | None = None) -> dict[str, Any]:
        await super().request(method, params, caller)
        return self.results.pop(0) if len(self.results) > 1 else self.results[0]


@dataclass
class Channel(world.Channel):
    """A client that answers by the message of a question; `None` makes it refuse, and what is not there keep it open.

    `left`: the questions that were given up.
    """

    capabilities: Json = field(default_factory=lambda: ABLE)
    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    shown: list[str] = field(default_factory=list[str])
    left: list[str] = field(default_factory=list[str])

    async def ask(self, method: str, params: Json) -> dict[str, Any]:
        message = params["message"]
        self.shown.append(message)
        self.asked.set()
        try:
            await checkpoint()
            if message not in self.answers:
                await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.left.append(message)
            raise
        if self.answers[message] is None:
            raise Rejection(-1, f"no answer to {message}")
        return self.answers[message]


def handshake(channel: world.Channel) -> Caller:
    return Caller(SCOPE, "handshake", "own", "", channel)


def modern(channel: world.Channel | None = None, scope: ScopeId = SCOPE) -> Caller:
    return Caller(scope, "modern", None, "", channel or Channel())


@asynccontextmanager
async def rounds_of(
    settings: Settings | None = None, budget: ByteBudget | None = None
) -> AsyncGenerator[tuple[Rounds, TaskGroup]]:
    """Rounds, and the group whose tasks outlive requests; nothing in the block may take for ever."""
    with anyio.fail_after(DEADLINE):
        async with anyio.create_task_group() as tasks:
            yield Rounds(settings or Settings(), tasks, budget), tasks
            tasks.cancel_scope.cancel()


async def holds() -> bool:
    return True


async def exchange(asked: Rounds, link: Server, caller: Caller, **brought: Any) -> dict[str, Any]:
    return await asked.exchange(link, caller, "server", "tools/call", {**CALL, **brought}, holds)


def messages(result: Json) -> list[str]:
    """What a result asks, in order."""
    assert wants_input(result), result
    return [asked["params"]["message"] for asked in result["inputRequests"].values()]


def answering(result: Json, **answers: Any) -> dict[str, Any]:
    """What a client brings that answers the questions of a result by their messages, those that it has answers to."""
    asked = {key: one["params"]["message"] for key, one in result["inputRequests"].items()}
    return {
        "requestState": result["requestState"],
        "inputResponses": {key: answers[message] for key, message in asked.items() if message in answers},
    }


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each pause was to be; here none takes any time."""
    taken: list[float] = []

    async def sleep(delay: float) -> None:
        taken.append(delay)
        await checkpoint()

    monkeypatch.setattr(rounds.anyio, "sleep", sleep)
    return taken


# --- a handshake-era client and a modern server ----------------------------------------------------------------------


@pytest.mark.anyio
async def test_answers_and_state_go_back_with_the_same_request(pauses: list[float]):
    """Those of the last round alone, and what the client itself had put there never."""
    first = wanting({"k": form("one"), "l": form("two"), "x": {"method": "not/known"}, "y": 7}, requestState="s1")
    link = Modern(results=[first, wanting({"k": form("three")}), DONE])
    channel = Channel(answers={"one": {"a": 1}, "two": {"a": 2}, "three": {"a": 3}})
    async with rounds_of() as (asked, _):
        result = await exchange(asked, link, handshake(channel), requestState="own", inputResponses={"own": {}})
    assert result == DONE
    assert [params for _, params in link.asked[1:]] == [
        {**CALL, "requestState": "s1", "inputResponses": {"k": {"a": 1}, "l": {"a": 2}}},
        {**CALL, "inputResponses": {"k": {"a": 3}}},
    ]
    assert channel.shown == ["one", "two", "three"]
    assert not pauses


@pytest.mark.anyio
@pytest.mark.parametrize("questions", [{"k": form("again")}, None])
async def test_a_server_that_wants_more_without_end_is_ended(pauses: list[float], questions: Json | None):
    """After as many rounds as the SDKs allow, whether it asks or only has state."""
    link = Modern(results=[wanting(questions, requestState="s")])
    channel = Channel(answers={"again": {}})
    async with rounds_of() as (asked, _):
        with pytest.raises(Rejection, match=str(ROUNDS)) as raised:
            await exchange(asked, link, handshake(channel))
    assert raised.value.code == INVALID_PARAMS
    assert len(link.asked) == ROUNDS
    assert len(channel.shown) == (ROUNDS if questions else 0)


@pytest.mark.anyio
async def test_the_last_round_that_is_allowed_may_bring_the_result(pauses: list[float]):
    """The limit counts requests."""
    link = Modern(results=[*[wanting(requestState="s")] * (ROUNDS - 1), DONE])
    async with rounds_of() as (asked, _):
        assert await exchange(asked, link, handshake(Channel())) == DONE


@pytest.mark.anyio
async def test_a_server_that_answers_with_state_alone_is_asked_again_after_a_pause(pauses: list[float]):
    """The client is asked nothing; the pauses grow to a bound."""
    link = Modern(results=[*(wanting(requestState=f"s{number}") for number in range(5)), DONE])
    channel = Channel()
    async with rounds_of() as (asked, _):
        assert await exchange(asked, link, handshake(channel)) == DONE
    assert not channel.shown
    assert [params for _, params in link.asked[1:]] == [{**CALL, "requestState": f"s{number}"} for number in range(5)]
    shortest, longest = rounds.PATIENCE
    assert pauses[0] == shortest
    assert pauses == sorted(pauses)
    assert len(pauses) == 5
    assert pauses[-1] == longest


@pytest.mark.anyio
async def test_an_answer_that_the_client_refuses_ends_the_others(pauses: list[float]):
    """Its error is the caller's, and the server hears no more of it."""
    link = Modern(results=[wanting({"a": form("open"), "b": form("refused"), "c": form("open too")})])
    channel = Channel(answers={"refused": None})
    async with rounds_of() as (asked, _):
        with pytest.raises(Rejection, match="no answer to refused"):
            await exchange(asked, link, handshake(channel))
    assert sorted(channel.left) == ["open", "open too"]
    assert len(link.asked) == 1


@pytest.mark.anyio
async def test_a_client_that_does_not_answer_in_time_has_not_answered():
    """Its limit is the setting's."""
    link = Modern(results=[wanting({"a": form("open")})])
    channel = Channel()
    async with rounds_of(Settings(input_wait=0.01)) as (asked, _):
        with pytest.raises(Rejection, match=r"did not answer within 0\.01 s"):
            await exchange(asked, link, handshake(channel))
    assert channel.left == ["open"]
    assert len(link.asked) == 1


# --- a modern client and a modern server -----------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_modern_server_s_state_is_sealed_on_its_way_and_open_at_its_server():
    """Everything else goes through as it is, both ways; where there is no state, none is made."""
    wanted = wanting({"k": form("one")}, requestState="state 1", other=1)
    link = Modern(results=[wanted, wanting({"k": form("two")}), DONE])
    async with rounds_of() as (asked, _):
        first = await exchange(asked, link, modern())
        assert "state 1" not in first["requestState"]
        assert {**first, "requestState": "state 1"} == wanted
        second = await exchange(
            asked, link, modern(), requestState=first["requestState"], inputResponses={"k": {"a": 1}}
        )
        assert second == wanting({"k": form("two")})
        assert await exchange(asked, link, modern(), inputResponses={"k": {"a": 2}}) == DONE
    assert [params for _, params in link.asked[1:]] == [
        {**CALL, "requestState": "state 1", "inputResponses": {"k": {"a": 1}}},
        {**CALL, "inputResponses": {"k": {"a": 2}}},
    ]


OTHERS: dict[str, tuple[str, str, Json, ScopeId]] = {
    "server": ("other", "tools/call", CALL, SCOPE),
    "method": ("server", "prompts/get", CALL, SCOPE),
    "tool": ("server", "tools/call", {**CALL, "name": "other"}, SCOPE),
    "namespace": ("server", "tools/call", CALL, ScopeId("namespace", "b")),
    "kind of scope": ("server", "tools/call", CALL, ScopeId("session", "a")),
    "principal": ("server", "tools/call", CALL, ScopeId("namespace", "a", "alice")),
}


@pytest.mark.anyio
@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("held", [True, False])
async def test_a_state_counts_nowhere_but_where_it_was_given(what: str, held: bool):
    """Nothing is sent for it, and a held call goes on waiting for its own client."""

    async def act(params: Json, caller: Caller) -> dict[str, Any]:
        return await caller.channel.ask("elicitation/create", form("one")["params"])

    link = Server(asks=True, act=act) if held else Modern(results=[wanting({"k": form("one")}, requestState="s"), DONE])
    server, method, params, scope = OTHERS[what]
    async with rounds_of() as (asked, _):
        first = await exchange(asked, link, modern())
        brought = answering(first, one={"a": 1})
        with pytest.raises(Rejection, match="requestState"):
            await asked.exchange(link, modern(scope=scope), server, method, {**params, **brought}, holds)
        assert len(link.asked) == 1
        assert await exchange(asked, link, modern(), **brought) == ({"a": 1} if held else DONE)


@pytest.mark.anyio
@pytest.mark.parametrize("held", [True, False])
async def test_a_client_is_not_asked_what_it_cannot_answer(held: bool):
    """A modern server's call fails with what the client would need; a held call's server hears the same."""
    heard: list[Rejection] = []

    async def act(params: Json, caller: Caller) -> dict[str, Any]:
        with pytest.raises(Rejection) as raised:
            await caller.channel.ask("elicitation/create", form("one")["params"])
        heard.append(raised.value)
        raise raised.value

    link = Server(asks=True, act=act) if held else Modern(results=[wanting({"k": form("one")}, requestState="s")])
    async with rounds_of() as (asked, _):
        with pytest.raises(Rejection) as raised:
            await exchange(asked, link, modern(Channel(capabilities={"sampling": {}})))
    assert raised.value.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}
    assert heard == ([raised.value] if held else [])


# --- a modern client and a handshake-era server: held calls ----------------------------------------------------------


@pytest.mark.anyio
async def test_a_held_call_shows_its_question_and_gets_the_answer():
    """With the repeated request, which reaches the server no second time."""

    async def act(params: Json, caller: Caller) -> dict[str, Any]:
        return {"got": await caller.channel.ask("elicitation/create", form("one")["params"])}

    link = Server(asks=True, act=act)
    async with rounds_of() as (asked, _):
        first = await exchange(asked, link, modern())
        assert messages(first) == ["one"]
        brought = answering(first, one={"action": "accept"})
        assert await exchange(asked, link, modern(), **brought) == {"got": {"action": "accept"}}
        with pytest.raises(Rejection, match="expired"):
            await exchange(asked, link, modern(), **brought)
    assert link.asked == [("tools/call", CALL)]


@pytest.mark.anyio
async def test_a_question_that_came_while_the_client_was_away_is_shown_with_its_next_request():
    """The answers that the client brings are for what it was shown: the new question stays open."""
    answers: dict[str, Any] = {}
    go = anyio.Event()

    async def act(params: Json, caller: Caller) -> dict[str, Any]:
        async def ask(message: str) -> None:
            answers[message] = await caller.channel.ask("elicitation/create", form(message)["params"])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, "one")
            await go.wait()
            tasks.start_soon(ask, "two")
        return DONE

    link = Server(asks=True, act=act)
    async with rounds_of() as (asked, _):
        first = await exchange(asked, link, modern())
        assert messages(first) == ["one"]
        go.set()
        await settled()
        # A client that would answer anything: the key of the second question as well.
        brought = answering(first, one={"a": 1})
        guessed = {str(number): {"guessed": number} for number in range(10)}
        brought["inputResponses"] = {**guessed, **brought["inputResponses"]}
        second = await exchange(asked, link, modern(), **brought)
        assert messages(second) == ["two"]
        await settled()
        assert answers == {"one": {"a": 1}}
        assert await exchange(asked, link, modern(), **answering(second, two={"a": 2})) == DONE
    assert answers == {"one": {"a": 1}, "two": {"a": 2}}
    assert len(link.asked) == 1


async def settled() -> None:
    """Let every task go as far as it can; none of them waits for anything outside."""
    for _ in range(50):
        await checkpoint()


@pytest.mark.anyio
@pytest.mark.parametrize("brought", [{}, {"inputResponses": {}}, {"inputResponses": {"1": 7}}, {"inputResponses": []}])
async def test_a_question_that_the_client_was_shown_and_did_not_answer_is_refused(brought: Json):
    """The server hears it, and the call ends as the server likes."""

    async def act(params: Json, caller: Caller) -> dict[str, Any]:
        with pytest.raises(Rejection, match="brought no answer"):
            await caller.channel.ask("elicitation/create", form("one")["params"])
        return DONE

    link = Server(asks=True, act=act)
    async with rounds_of() as (asked, _):
        first = await exchange(asked, link, modern())
        assert await exchange(asked, link, modern(), requestState=first["requestState"], **brought) == DONE


@pytest.mark.anyio
async def test_a_question_that_nobody_answers_in_time_is_refused_and_the_call_is_forgotten_when_it_ends():
    """The client that comes back too late is told so."""
    over = anyio.Event()

    async def act(params: Json, caller: Caller) -> dict[str, Any]:
        with pytest.raises(Rejection, match=r"within 0\.01 s"):
            await caller.channel.ask("elicitation/create", form("one")["params"])
        over.set()
        return DONE

    link = Server(asks=True, act=act)
    async with rounds_of(Settings(input_wait=0.01)) as (asked, _):
        first = await exchange(asked, link, modern())
        await over.wait()
        with anyio.fail_after(20):
            while asked._parked:  # noqa: ASYNC110 - the outcome is kept a while for a client that is late
                await anyio.sleep(0.001)
        with pytest.raises(Rejection, match="expired"):
            await exchange(asked, link, modern(), **answering(first, one={}))


@pytest.mark.anyio
@pytest.mark.parametrize("bound", ["number", "bytes"])
async def test_calls_that_wait_for_their_client_are_bounded_and_the_oldest_go_first(
    monkeypatch: pytest.MonkeyPatch, bound: str
):
    """Those of each scope: by number, and by the bytes of what they ask; who comes back for one that went is told."""
    message = "one" if bound == "number" else "q" * (PARKED_BYTES // 3)
    monkeypatch.setattr(parked_calls, "PARKED_CALLS", 2)
    budget, other = ByteBudget(), ScopeId("namespace", "other")

    async def act(params: Json, caller: Caller) -> dict[str, Any]:
        await caller.channel.ask("elicitation/create", form(message)["params"])
        return DONE

    link = Server(asks=True, act=act)
    async with rounds_of(budget=budget) as (asked, _):
        gone, *kept = [await exchange(asked, link, modern()) for _ in range(3)]
        elsewhere = await exchange(asked, link, modern(scope=other))
        assert len(asked._parked) == 3
        assert budget.used <= 2 * PARKED_BYTES
        await settled()
        assert link.cancelled == 1
        with pytest.raises(Rejection, match="expired"):
            await exchange(asked, link, modern(), **answering(gone, **{message: {}}))
        for first in kept:
            assert await exchange(asked, link, modern(), **answering(first, **{message: {}})) == DONE
        assert await exchange(asked, link, modern(scope=other), **answering(elsewhere, **{message: {}})) == DONE
        assert not asked._parked
        assert budget.used == 0


@pytest.mark.anyio
async def test_a_result_that_nobody_fetches_counts_once_it_is_there():
    """The server did not wait for the answer; the call is forgotten where its result is too large to be kept."""
    budget, size = ByteBudget(), PARKED_BYTES

    async def act(params: Json, caller: Caller) -> dict[str, Any]:
        with anyio.move_on_after(0.01):
            await caller.channel.ask("elicitation/create", form("one")["params"])
        return {"text": "r" * size}

    link = Server(asks=True, act=act)
    async with rounds_of(budget=budget) as (asked, _):
        first = await exchange(asked, link, modern())
        with anyio.fail_after(DEADLINE):
            while asked._parked:  # noqa: ASYNC110 - the server takes its time
                await anyio.sleep(0.001)
        assert budget.used == 0
        with pytest.raises(Rejection, match="expired"):
            await exchange(asked, link, modern(), **answering(first, one={}))
        size = PARKED_BYTES // 2
        first = await exchange(asked, link, modern())
        with anyio.fail_after(DEADLINE):
            while budget.used < size:  # noqa: ASYNC110 - as above
                await anyio.sleep(0.001)
        assert await exchange(asked, link, modern(), **answering(first, one={})) == {"text": "r" * size}
        assert budget.used == 0


@pytest.mark.anyio
@pytest.mark.parametrize("resumed", [False, True])
async def test_the_caller_s_cancellation_cancels_the_call(resumed: bool):
    """Its first request as well as any later one; a client that is only away cancels nothing."""
    begun = anyio.Event()

    async def act(params: Json, caller: Caller) -> dict[str, Any]:
        if resumed:
            await caller.channel.ask("elicitation/create", form("one")["params"])
        begun.set()
        await anyio.sleep_forever()
        return DONE

    link = Server(asks=True, act=act)
    async with rounds_of() as (asked, _):
        brought: dict[str, Any] = {}
        if resumed:
            brought = answering(await exchange(asked, link, modern()), one={})
            await settled()
            assert link.cancelled == 0
        async with anyio.create_task_group() as caller:

            async def call() -> None:
                await exchange(asked, link, modern(), **brought)

            caller.start_soon(call)
            await begun.wait()
            caller.cancel_scope.cancel()
        await settled()
        assert link.cancelled == 1
        assert not asked._parked


@pytest.mark.anyio
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("error", [ServerLost("server", "gone"), Rejection(-7, "no", {"d": 1}), ValueError("odd")])
async def test_what_the_request_raises_reaches_whoever_waits(error: Exception, resumed: bool):
    """The very same; other calls go on."""

    async def act(params: Json, caller: Caller) -> dict[str, Any]:
        if resumed:
            await caller.channel.ask("elicitation/create", form("one")["params"])
        raise error

    link = Server(asks=True, act=act)
    async with rounds_of() as (asked, _):
        brought = answering(await exchange(asked, link, modern()), one={}) if resumed else {}
        with pytest.raises(type(error)) as raised:
            await exchange(asked, link, modern(), **brought)
        assert raised.value is error
        assert not asked._parked


@pytest.mark.anyio
async def test_what_a_held_call_has_to_say_goes_out_on_the_newest_request():
    """And nowhere while the client is away; what the client declares counts as of its newest request too."""
    said: list[tuple[str, Json]] = []

    @dataclass
    class Listening(Channel):
        name: str = ""

        async def progress(self, params: Json) -> None:
            said.append((self.name, params))

        async def log(self, params: Json) -> None:
            said.append((self.name, params))

    away = anyio.Event()

    async def act(params: Json, caller: Caller) -> dict[str, Any]:
        channel = caller.channel
        await channel.progress({"n": 1})
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                await channel.ask("elicitation/create", form("one")["params"])
                tasks.cancel_scope.cancel()

            async def say() -> None:
                await away.wait()
                await channel.progress({"n": 2})
                await channel.log({"n": 2})
                await anyio.sleep_forever()

            tasks.start_soon(ask)
            tasks.start_soon(say)
        await channel.log({"n": 3})
        await channel.poll()
        await channel.list_changed("tools")
        return {"level": channel.log_level, "headers": channel.headers, "capabilities": channel.capabilities}

    link = Server(asks=True, act=act)
    async with rounds_of() as (asked, _):
        first = await exchange(asked, link, modern(Listening(name="first", log_level="debug")))
        away.set()
        await settled()
        newest = Listening(name="second", log_level="error", headers={"h": "2"}, capabilities={"sampling": {}})
        result = await exchange(asked, link, modern(newest), **answering(first, one={}))
    assert result == {"level": "error", "headers": {"h": "2"}, "capabilities": {"sampling": {}}}
    assert said == [("first", {"n": 1}), ("second", {"n": 3})]


@pytest.mark.anyio
async def test_a_call_is_held_only_where_its_server_may_ask_a_client_that_can_answer():
    """Otherwise the server has the client's own request."""
    for asks, capabilities in ((False, ABLE), (True, {})):
        link, caller = Server(DONE, asks=asks), modern(Channel(capabilities=capabilities))
        async with rounds_of() as (asked, _):
            assert await exchange(asked, link, caller) == DONE
        assert link.callers == [caller]
