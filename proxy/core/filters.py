"""What expressions do with values: filters, tests and operators, each paid for before it is done.

All are pure, take JSON and give JSON. They have the names and the arguments of Jinja2's own, which are not used: what
those cost has no bound. Left out is what pads or formats (`center`, `indent`, `format`: a few characters make a giant),
what reaches for attributes (`attr`), what differs each time (`random`), and what is for HTML. Added are `split` and
`fromjson`, for tools that answer in text.
"""

import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import signature
from math import ceil, floor, isfinite
from typing import Any, Final, Literal, TypeAlias, cast
from urllib.parse import quote, quote_plus

from jinja2 import Environment, StrictUndefined, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment
from jinja2.utils import missing

from proxy.core.json_cost import MAX_JSON_VALUES, has_more_values
from proxy.core.wording import alike

BUDGET: Final = 500_000
"""What one evaluation may cost: about as many steps of Python, well below a second."""
OUTPUT_LIMIT: Final = 1024 * 1024
"""Bytes of JSON that one evaluation may come to."""
DEPTH_LIMIT: Final = 100
"""How deep values may be nested."""
_CALL: Final = 3
"""The cost of a filter, a test or an operator, besides what it does."""
_COMPARISONS: Final = 8
"""Comparisons by Python itself that cost as much as a step."""
_CHARACTERS: Final = 32
"""Characters of text that cost as much as one value."""
_BITS: Final = 4_096
"""Of a whole number, at most."""
_DIGITS: Final = 1_000
"""Characters of a text that is read as a number, at most."""
_PLACES: Final = 30
"""To which a number is rounded, at most."""
_COMPARED_KEYS: Final = 1_000
"""Keys among which one is sought that is like a missing one."""

Value: TypeAlias = Any
"""JSON, or what is missing."""
Function: TypeAlias = Callable[..., Value]
"""A filter or a test: takes the evaluation and a value, then its own arguments."""
Kind: TypeAlias = Literal["null", "a boolean", "a number", "a text", "a list", "a mapping"]

_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class Refused(Exception):
    """An expression cannot be evaluated; the text says why, in a few words."""


class Missing(StrictUndefined):
    """What is not there: it can be asked whether it is, and replaced by `default`; all else is an error."""

    __slots__ = ()

    @property
    def reason(self) -> str:
        """What is missing, in words."""
        name, where = self._undefined_name, self._undefined_obj
        if self._undefined_hint:
            return self._undefined_hint
        if where is missing:
            return f"there is no name {name!r}"
        keys = list(cast("Mapping[Any, Any]", where)) if isinstance(where, Mapping) else []
        close = alike(str(name), map(str, keys)) if len(keys) <= _COMPARED_KEYS else []
        return f"there is no {name!r} in {kind(where)}" + (f" (did you mean {close[0]!r}?)" if close else "")

    @property
    def _undefined_message(self) -> str:
        return self.reason


class Evaluation(Context):
    """One evaluation of a value: the names it can use, and what it may still cost.

    `result`: what the expression that was evaluated last has come to.
    """

    def __init__(self, environment: Environment, names: Mapping[str, Any]) -> None:
        super().__init__(environment, dict(names), None, {})
        self.result: Value = None
        self._left = BUDGET
        self._copied = 0
        self._output = 0

    def spend(self, steps: int) -> None:
        """Pay for what comes next. Raises Refused where nothing is left."""
        self._left -= steps
        if self._left < 0:
            raise Refused("it takes too much work")

    def spend_on(self, characters: int) -> None:
        """Pay for a text of so many characters."""
        self.spend(1 + characters // _CHARACTERS)

    def output(self, value: Value) -> Any:  # noqa: ANN401 - any JSON value
        """`value` as `plain` has it, as a part of what the evaluation comes to. Raises Refused where that is a lot."""
        before = self._copied
        copy = self.plain(value)
        self._output += self._copied - before
        if self._output > OUTPUT_LIMIT:
            raise Refused(f"what it comes to is larger than {OUTPUT_LIMIT // 1024:,} KiB")
        return copy

    def plain(self, value: Value, depth: int = 0) -> Any:  # noqa: ANN401 - any JSON value
        """A copy of `value` that is JSON all through. Raises Refused where it cannot be."""
        self.spend(1)
        match kind(value):
            case "a text":
                self.spend_on(len(value))
                copy = str.__str__(value)
                self._copied += len(_encode(copy).encode("utf-8", "surrogatepass"))
                return copy
            case "a number":
                self._copied += len(repr(_sound(value)))
                return value
            case "a boolean" | "null":
                self._copied += 5
                return value
            case "a list":
                self._copied += 2 + len(value)
                deeper = _deeper(depth)
                return [self.plain(item, deeper) for item in value]
            case _:
                self._copied += 2 + 2 * len(value)
                deeper = _deeper(depth)
                return {self._key(key): self.plain(item, deeper) for key, item in value.items()}

    def _key(self, key: object) -> str:
        if not isinstance(key, str):
            raise Refused("a key of a mapping is not a text")
        return self.plain(key)

    def text(self, value: Value) -> str:
        """`value` as it stands in a text: a text as it is, all else as JSON. Raises Refused where it cannot be."""
        if kind(value) == "a text":
            self.spend_on(len(value))
            return str.__str__(value)
        written = _encode(self.plain(value))
        self.spend_on(len(written))
        return written

    def joined(self, texts: Sequence[str], between: str = "") -> str:
        """`texts` in one, with `between` between them."""
        self.spend_on(sum(map(len, texts)) + len(between) * len(texts))
        return between.join(texts)

    def listed(self, value: Value) -> Sequence[Value]:
        """The items of a list, the keys of a mapping or the characters of a text. Raises Refused for all else."""
        if kind(value) not in {"a list", "a mapping", "a text"}:
            raise Refused(f"{kind(value)} has no items")
        self.spend(len(value))
        return list(value)

    def members(self, items: Iterable[Value], path: Value) -> list[Value]:
        """What each of `items` has below `path`, keys and places with dots between; the items where it is None.

        Where something on the way is missing, that.
        """
        if path is None:
            return list(items)
        keys = [int(key) if key.isdecimal() else key for key in self.text(path).split(".")]
        found: list[Value] = []
        for item in items:
            self.spend(len(keys))
            below = item
            for key in keys:
                below = below if isinstance(below, Missing) else member(below, key)
            found.append(below)
        return found

    def equal(self, one: Value, other: Value) -> bool:
        """Whether two values are equal, as Python has it for JSON."""
        kinds = {kind(one), kind(other)}
        if kinds == {"a text"}:
            self.spend_on(min(len(one), len(other)))
        elif kinds in ({"a list"}, {"a mapping"}):
            return self.plain(one) == self.plain(other)
        self.spend(2)
        return one == other

    def holds(self, container: Value, item: Value) -> bool:
        """Whether a list has an item, a mapping a key, a text another text in it."""
        match kind(container):
            case "a list":
                return any(self.equal(one, item) for one in container)
            case "a mapping":
                return kind(item) == "a text" and item in container
            case "a text" if kind(item) == "a text":
                self.spend_on(len(container) + len(item))
                return item in container
            case other:
                raise Refused(f"{other} cannot have {kind(item)} in it")


_KINDS: Final[Mapping[type, Kind]] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a text",
    list: "a list",
    tuple: "a list",
    dict: "a mapping",
}


def kind(value: Value) -> Kind:
    """What kind of JSON a value is. Raises Refused for what is missing, and for what is none."""
    if known := _KINDS.get(cast("object", value).__class__):
        return known
    match value:
        case Missing():
            raise Refused(value.reason)
        case str():
            return "a text"
        case Mapping():
            return "a mapping"
        case _:
            raise Refused("it is no JSON value")


def member(value: Value, key: Value) -> Value:
    """What a mapping has under a key, or a list or a text at a place; Missing where it has nothing there."""
    of = kind(value)
    if of == "a mapping":
        if isinstance(key, str) and key in value:
            return value[key]
    elif of in {"a list", "a text"} and type(key) is int and -len(value) <= key < len(value):
        return value[key]
    if kind(key) not in {"a text", "a number"}:
        raise Refused(f"{kind(key)} is neither key nor place")
    return Missing(obj=value, name=str(key))


def _deeper(depth: int) -> int:
    if depth == DEPTH_LIMIT:
        raise Refused("values are nested too deeply")
    return depth + 1


def _sound(number: Value) -> Value:
    """A number that JSON has, and that is quickly dealt with."""
    if isinstance(number, int):
        if number.bit_length() > _BITS:
            raise Refused("a number is too long")
    elif isinstance(number, complex) or not isfinite(number):
        raise Refused("a result is not a number")
    return number


def _whole(value: Value, what: str) -> int:
    if kind(value) != "a number" or not isinstance(value, int):
        raise Refused(f"{what} is not a whole number")
    return _sound(value)


def _number(value: Value) -> Value:
    if kind(value) != "a number":
        raise Refused(f"{kind(value)} is not a number")
    return _sound(value)


# --- operators -------------------------------------------------------------------------------------------------------


def binary(work: Evaluation, sign: str, left: Value, right: Value) -> Value:
    """`left` and `right` with an arithmetic operator between them; `+` also joins texts and lists, `*` repeats them.

    Raises Refused where they do not go together.
    """
    work.spend(_CALL)
    match kind(left), sign, kind(right):
        case "a number", _, "a number":
            return _calculated(sign, _sound(left), _sound(right))
        case "a text", "+", "a text":
            return work.joined([left, right])
        case "a list", "+", "a list":
            work.spend(len(left) + len(right))
            return [*left, *right]
        case "a text" | "a list", "*", "a number":
            return _repeated(work, left, right)
        case "a number", "*", "a text" | "a list":
            return _repeated(work, right, left)
        case _:
            raise Refused(f"{kind(left)} {sign} {kind(right)} means nothing")


def _calculated(sign: str, left: Value, right: Value) -> Value:
    if sign == "**" and isinstance(left, int) and isinstance(right, int) and (left.bit_length() - 1) * right > _BITS:
        raise Refused("a number is too long")
    return _sound(SandboxedEnvironment.default_binop_table[sign](left, right))


def _repeated(work: Evaluation, value: Value, times: Value) -> Value:
    length = len(value) * max(_whole(times, "how often it is repeated"), 0)
    if isinstance(value, str):
        work.spend_on(length)
    else:
        work.spend(length)
    return value * times


def unary(work: Evaluation, sign: str, value: Value) -> Value:
    """A number with a sign before it. Raises Refused for all else."""
    work.spend(_CALL)
    return -_number(value) if sign == "-" else _number(value)


_ORDER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
}


@pass_context
def compare(work: Evaluation, left: Value, *compared: Value) -> bool:
    """Whether comparisons in a row hold. `compared`: by turns, what Jinja2 calls the comparison, and with what."""
    work.spend(_CALL * len(compared))
    for sign, right in zip(compared[::2], compared[1::2], strict=True):
        if not _holds(work, sign, left, right):
            return False
        left = right
    return True


def _holds(work: Evaluation, sign: str, left: Value, right: Value) -> bool:
    match sign:
        case "eq":
            return work.equal(left, right)
        case "ne":
            return not work.equal(left, right)
        case "in":
            return work.holds(right, left)
        case "notin":
            return not work.holds(right, left)
        case _:
            pair = kind(left), kind(right)
            if pair == ("a text", "a text"):
                work.spend_on(min(len(left), len(right)))
            elif pair != ("a number", "a number"):
                raise Refused(f"{pair[0]} and {pair[1]} have no order")
            return _ORDER[sign](left, right)


@pass_context
def concatenated(work: Evaluation, *values: Value) -> str:
    """What `~` makes of values: one text."""
    work.spend(_CALL)
    return work.joined([work.text(value) for value in values])


@pass_context
def part(work: Evaluation, value: Value, start: Value, stop: Value, step: Value) -> Value:
    """A part of a list or a text, as `[start:stop:step]` has it."""
    work.spend(_CALL)
    if kind(value) not in {"a list", "a text"}:
        raise Refused(f"{kind(value)} has no parts")
    which = slice(*(None if place is None else _whole(place, "a place") for place in (start, stop, step)))
    if step == 0:
        raise Refused("the step of a part is 0")
    length = len(range(*which.indices(len(value))))
    work.spend(length)
    return value[which]


@pass_context
def keep(work: Evaluation, value: Value) -> None:
    """Keep `value` as what the expression has come to."""
    work.result = value


# --- filters: of anything --------------------------------------------------------------------------------------------


def _default(_: Evaluation, value: Value, default_value: Value = "", boolean: Value = None) -> Value:
    return default_value if isinstance(value, Missing) or (boolean and not value) else value


def _string(work: Evaluation, value: Value) -> str:
    return work.text(value)


def _tojson(work: Evaluation, value: Value) -> str:
    written = _encode(work.plain(value))
    work.spend_on(len(written))
    return written


def _fromjson(work: Evaluation, value: Value) -> Value:
    text = work.text(value)
    work.spend(len(text) // 4)
    if has_more_values(text.encode("utf-8", "surrogatepass"), MAX_JSON_VALUES):
        raise Refused(f"the text holds more than {MAX_JSON_VALUES} values")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused("the text is no JSON, or nested too deeply") from error


# --- filters: of texts -----------------------------------------------------------------------------------------------


def _of_text(change: Callable[[str], str]) -> Function:
    """A filter that changes a text; no change here makes a text longer than three times what it was."""

    def changed(work: Evaluation, value: Value) -> str:
        text = work.text(value)
        work.spend_on(3 * len(text))
        return change(text)

    return changed


def _title(work: Evaluation, value: Value) -> str:
    text = work.text(value)
    work.spend(2 * text.count(" "))
    return work.joined([word[:1].upper() + word[1:].lower() for word in text.split(" ")], " ")


def _trim(work: Evaluation, value: Value, chars: Value = None) -> str:
    text = work.text(value)
    if chars is None:
        return text.strip()
    sought = "".join({*work.text(chars)})
    work.spend_on(len(text) * len(sought))
    return text.strip(sought)


def _replace(work: Evaluation, value: Value, old: Value, new: Value, count: Value = None) -> str:
    text, sought, instead = work.text(value), work.text(old), work.text(new)
    most = -1 if count is None else _whole(count, "the count")
    times = text.count(sought) if most < 0 else min(text.count(sought), most)
    work.spend_on(len(text) + times * max(len(instead) - len(sought), 1))
    return text.replace(sought, instead, most)


def _truncate(
    work: Evaluation, value: Value, length: Value = 255, killwords: Value = None, end: Value = "...", leeway: Value = 5
) -> str:
    text, ending = work.text(value), work.text(end)
    most = _whole(length, "the length")
    if len(text) <= most + max(_whole(leeway, "the leeway"), 0):
        return text
    kept = text[: max(most - len(ending), 0)]
    return work.joined([kept if killwords else kept.rsplit(" ", 1)[0], ending])


def _split(work: Evaluation, value: Value, separator: Value = None, count: Value = -1) -> list[str]:
    text = work.text(value)
    between = None if separator is None else work.text(separator)
    if between == "":
        raise Refused("the separator is empty")
    work.spend(len(text) // 2 if between is None else text.count(between))
    return text.split(between, _whole(count, "the count"))


def _urlencode(work: Evaluation, value: Value) -> str:
    if kind(value) != "a mapping":
        return _quoted(work, value, quote)
    pairs = [[_quoted(work, one, quote_plus) for one in pair] for pair in _items(work, value)]
    return work.joined(["=".join(pair) for pair in pairs], "&")


def _quoted(work: Evaluation, value: Value, by: Callable[[str], str]) -> str:
    text = work.text(value)
    work.spend_on(12 * len(text))
    try:
        return by(text)
    except UnicodeEncodeError as error:
        raise Refused("the text holds half a character") from error


# --- filters: of numbers ---------------------------------------------------------------------------------------------


def _int(work: Evaluation, value: Value, default: Value = 0, base: Value = 10) -> Value:
    if kind(value) not in {"a number", "a text", "a boolean"}:
        return default
    if isinstance(value, str):
        read = _read(work, value, lambda text: int(text, _whole(base, "the base")))
        value = _read(work, value, float) if read is None else read
    try:
        return default if value is None else _sound(int(value))
    except OverflowError:
        return default


def _float(work: Evaluation, value: Value, default: Value = 0.0) -> Value:
    if kind(value) not in {"a number", "a text", "a boolean"}:
        return default
    read = _read(work, value, float) if isinstance(value, str) else float(value)
    return default if read is None else read


def _read(work: Evaluation, text: str, by: Callable[[str], Value]) -> Value:
    """A text as a number; None where it is none."""
    work.spend_on(min(len(text), _DIGITS))
    try:
        return by(text) if len(text) <= _DIGITS else None
    except ValueError:
        return None


_ROUNDING: Final[Mapping[str, Callable[[float], int]]] = {"ceil": ceil, "floor": floor}


def _round(_: Evaluation, value: Value, precision: Value = 0, method: Value = "common") -> Value:
    number, places = _number(value), _whole(precision, "the precision")
    if abs(places) > _PLACES:
        raise Refused(f"the precision is beyond {_PLACES}")
    if method == "common":
        return round(number, places)
    if method not in tuple(_ROUNDING):
        raise Refused("the method is none of common, ceil and floor")
    return _sound(_ROUNDING[method](number * 10**places) / 10**places)


def _abs(_: Evaluation, value: Value) -> Value:
    return abs(_number(value))


# --- filters: of lists and mappings ----------------------------------------------------------------------------------


def _length(_: Evaluation, value: Value) -> int:
    if kind(value) not in {"a list", "a mapping", "a text"}:
        raise Refused(f"{kind(value)} has no length")
    return len(value)


def _first(work: Evaluation, value: Value) -> Value:
    items = work.listed(value)
    return items[0] if items else Missing("there is no first item")


def _last(work: Evaluation, value: Value) -> Value:
    items = work.listed(value)
    return items[-1] if items else Missing("there is no last item")


def _list(work: Evaluation, value: Value) -> Value:
    return work.listed(value)


def _reverse(work: Evaluation, value: Value) -> Value:
    items = work.listed(value)
    return work.joined(items[::-1]) if kind(value) == "a text" else items[::-1]


def _items(work: Evaluation, value: Value) -> list[list[Value]]:
    if kind(value) != "a mapping":
        raise Refused(f"{kind(value)} is not a mapping")
    work.spend(3 * len(value))
    return [[key, below] for key, below in value.items()]


def _dictsort(
    work: Evaluation, value: Value, case_sensitive: Value = None, by: Value = "key", reverse: Value = None
) -> list[list[Value]]:
    if by not in ("key", "value"):
        raise Refused("dictsort goes by key or by value")
    return _sort(work, _items(work, value), reverse, case_sensitive, "0" if by == "key" else "1")


def _join(work: Evaluation, value: Value, d: Value = "", attribute: Value = None) -> str:
    return work.joined([work.text(one) for one in work.members(work.listed(value), attribute)], work.text(d))


def _sum(work: Evaluation, value: Value, attribute: Value = None, start: Value = 0) -> Value:
    total = _number(start)
    for one in work.members(work.listed(value), attribute):
        work.spend(1)
        total = _sound(total + _number(one))
    return total


def _sort(
    work: Evaluation,
    value: Value,
    reverse: Value = None,
    case_sensitive: Value = None,
    attribute: Value = None,
) -> list[Value]:
    items = work.listed(value)
    keys = _ordered(work, items, case_sensitive, attribute)
    steps = len(items).bit_length()
    work.spend(steps * len(items) // _COMPARISONS)
    work.spend_on(steps * sum(len(key) for key in keys if isinstance(key, str)))
    return [items[place] for place in sorted(range(len(items)), key=keys.__getitem__, reverse=bool(reverse))]


def _min(work: Evaluation, value: Value, case_sensitive: Value = None, attribute: Value = None) -> Value:
    items = work.listed(value)
    keys = _ordered(work, items, case_sensitive, attribute)
    return items[keys.index(min(keys))] if items else Missing("there is no least item")


def _max(work: Evaluation, value: Value, case_sensitive: Value = None, attribute: Value = None) -> Value:
    items = work.listed(value)
    keys = _ordered(work, items, case_sensitive, attribute)
    return items[keys.index(max(keys))] if items else Missing("there is no greatest item")


def _unique(work: Evaluation, value: Value, case_sensitive: Value = None, attribute: Value = None) -> list[Value]:
    items = work.listed(value)
    found: dict[tuple[str, Value], Value] = {}
    for item, key in zip(items, _keys(work, items, case_sensitive, attribute), strict=True):
        if kind(key) in {"a list", "a mapping"}:
            raise Refused(f"{kind(key)} is not compared; name an attribute")
        found.setdefault((kind(key), key), item)
    return list(found.values())


def _ordered(work: Evaluation, items: Sequence[Value], case_sensitive: Value, attribute: Value) -> list[Value]:
    """By what items are put in order: numbers alone or texts alone."""
    keys = _keys(work, items, case_sensitive, attribute)
    if (kinds := {kind(key) for key in keys}) and kinds not in ({"a number"}, {"a text"}):
        raise Refused(f"{' and '.join(sorted(kinds))} have no order")
    return keys


def _keys(work: Evaluation, items: Sequence[Value], case_sensitive: Value, attribute: Value) -> list[Value]:
    keys = work.members(items, attribute)
    work.spend(len(keys))
    work.spend_on(3 * sum(len(key) for key in keys if isinstance(key, str)))
    return [key.lower() if isinstance(key, str) and not case_sensitive else key for key in keys]


# --- filters that take the name of another, or of a test -------------------------------------------------------------


def _map(work: Evaluation, value: Value, *args: Value, **kwargs: Value) -> list[Value]:
    items = work.listed(value)
    if args:
        change = _chosen(FILTERS, "filter", args, kwargs)
        return [change(work, item, *args[1:], **kwargs) for item in items]
    if not {"attribute"} <= kwargs.keys() <= {"attribute", "default"}:
        raise Refused("map takes a filter, or an attribute and a default")
    found = work.members(items, kwargs["attribute"])
    return [kwargs["default"] if isinstance(one, Missing) and "default" in kwargs else one for one in found]


def _select(work: Evaluation, value: Value, *args: Value, **kwargs: Value) -> list[Value]:
    items = work.listed(value)
    return _kept(items, _tested(work, items, args, kwargs), wanted=True)


def _reject(work: Evaluation, value: Value, *args: Value, **kwargs: Value) -> list[Value]:
    items = work.listed(value)
    return _kept(items, _tested(work, items, args, kwargs), wanted=False)


def _selectattr(work: Evaluation, value: Value, attribute: Value, *args: Value, **kwargs: Value) -> list[Value]:
    items = work.listed(value)
    return _kept(items, _tested(work, work.members(items, attribute), args, kwargs), wanted=True)


def _rejectattr(work: Evaluation, value: Value, attribute: Value, *args: Value, **kwargs: Value) -> list[Value]:
    items = work.listed(value)
    return _kept(items, _tested(work, work.members(items, attribute), args, kwargs), wanted=False)


def _kept(items: Iterable[Value], held: Iterable[bool], *, wanted: bool) -> list[Value]:
    return [item for item, holds in zip(items, held, strict=True) if holds == wanted]


def _tested(work: Evaluation, items: Iterable[Value], args: Sequence[Value], kwargs: Mapping[str, Value]) -> list[bool]:
    """Of each item whether a test holds; where none is named, whether it is there and counts as true."""
    if not args:
        return [not isinstance(item, Missing) and bool(item) for item in items]
    holds = _chosen(TESTS, "test", args, kwargs)
    return [holds(work, item, *args[1:], **kwargs) for item in items]


def _chosen(among: Mapping[str, Function], what: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Function:
    """The filter or the test that the first argument names, for which the others are. Raises Refused without one."""
    name = args[0]
    if kind(name) != "a text" or name not in among:
        raise Refused(unknown(what, name, among))
    if fault := misused(among[name], args[1:], kwargs):
        raise Refused(f"{what} {name}: {fault}")
    return among[name]


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """That there is no such thing, and what is like it."""
    close = alike(str(name), known)
    return f"there is no {what} {name!r}" + (f" (did you mean {close[0]!r}?)" if close else "")


def misused(function: Function, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """What is wrong with the arguments of a filter or a test, in words; empty where they fit."""
    try:
        signature(function).bind(None, None, *args, **kwargs)
    except TypeError as error:
        return str(error)
    return ""


# --- tests -----------------------------------------------------------------------------------------------------------


def _is(*kinds: Kind) -> Function:
    """The test whether a value is of one of these kinds."""

    def holds(_: Evaluation, value: Value) -> bool:
        return kind(value) in kinds

    return holds


def _is_not_there(_: Evaluation, value: Value) -> bool:
    return isinstance(value, Missing)


def _is_there(_: Evaluation, value: Value) -> bool:
    return not isinstance(value, Missing)


def _is_true(_: Evaluation, value: Value) -> bool:
    return kind(value) == "a boolean" and value


def _is_false(_: Evaluation, value: Value) -> bool:
    return kind(value) == "a boolean" and not value


def _is_integer(_: Evaluation, value: Value) -> bool:
    return kind(value) == "a number" and isinstance(value, int)


def _is_float(_: Evaluation, value: Value) -> bool:
    return kind(value) == "a number" and isinstance(value, float)


def _is_even(_: Evaluation, value: Value) -> bool:
    return _number(value) % 2 == 0


def _is_odd(_: Evaluation, value: Value) -> bool:
    return _number(value) % 2 == 1


def _is_divisible(_: Evaluation, value: Value, num: Value) -> bool:
    return _number(value) % _number(num) == 0


def _compares(sign: str) -> Function:
    """The test whether a comparison, by Jinja2's name for it, holds."""

    def holds(work: Evaluation, value: Value, other: Value) -> bool:
        return _holds(work, sign, value, other)

    return holds


# --- what there is ---------------------------------------------------------------------------------------------------


def _paid(function: Function) -> Function:
    """`function` as Jinja2 calls it, paid for each time."""

    @pass_context
    @wraps(function)
    def paid(work: Evaluation, *args: Value, **kwargs: Value) -> Value:
        work.spend(_CALL)
        return function(work, *args, **kwargs)

    return paid


FILTERS: Final[Mapping[str, Function]] = {
    name: _paid(function)
    for name, function in {
        "abs": _abs,
        "capitalize": _of_text(str.capitalize),
        "count": _length,
        "d": _default,
        "default": _default,
        "dictsort": _dictsort,
        "first": _first,
        "float": _float,
        "fromjson": _fromjson,
        "int": _int,
        "items": _items,
        "join": _join,
        "last": _last,
        "length": _length,
        "list": _list,
        "lower": _of_text(str.lower),
        "map": _map,
        "max": _max,
        "min": _min,
        "reject": _reject,
        "rejectattr": _rejectattr,
        "replace": _replace,
        "reverse": _reverse,
        "round": _round,
        "select": _select,
        "selectattr": _selectattr,
        "sort": _sort,
        "split": _split,
        "string": _string,
        "sum": _sum,
        "title": _title,
        "tojson": _tojson,
        "trim": _trim,
        "truncate": _truncate,
        "unique": _unique,
        "upper": _of_text(str.upper),
        "urlencode": _urlencode,
    }.items()
}

TESTS: Final[Mapping[str, Function]] = {
    name: _paid(function)
    for name, function in {
        "boolean": _is("a boolean"),
        "defined": _is_there,
        "divisibleby": _is_divisible,
        "even": _is_even,
        "false": _is_false,
        "float": _is_float,
        "in": _compares("in"),
        "integer": _is_integer,
        "mapping": _is("a mapping"),
        "none": _is("null"),
        "number": _is("a number"),
        "odd": _is_odd,
        "string": _is("a text"),
        "true": _is_true,
        "undefined": _is_not_there,
        **dict.fromkeys(("==", "eq", "equalto"), _compares("eq")),
        **dict.fromkeys(("!=", "ne"), _compares("ne")),
        **dict.fromkeys(("<", "lt", "lessthan"), _compares("lt")),
        **dict.fromkeys(("<=", "le"), _compares("lteq")),
        **dict.fromkeys((">", "gt", "greaterthan"), _compares("gt")),
        **dict.fromkeys((">=", "ge"), _compares("gteq")),
    }.items()
}
