"""Values of the configuration that are worked out at run time: `{{ expression }}`, in Jinja2's sandbox.

A text that is one expression and nothing else becomes what the expression comes to; in any other text each expression
becomes a part of the text. Nothing can be called, and dots and brackets reach keys of mappings and places in lists and
texts alone, never attributes. What one evaluation costs is bounded (`filters`), so that it holds nobody up.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

from jinja2 import Template, TemplateSyntaxError, UndefinedError, nodes
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment
from jinja2.visitor import NodeTransformer

from proxy.core import filters
from proxy.core.filters import FILTERS, TESTS, Evaluation, Function, Missing, Refused, misused, unknown
from proxy.core.texts import flat

Names: TypeAlias = Mapping[str, Collection[str] | None]
"""The names that an expression can use, each with the members that it has; None where that is not known."""
Place: TypeAlias = tuple[str | int, ...]

LONGEST: Final = 8_000
"""Characters of a text with expressions."""
_SHOWN: Final = 200
"""Characters of an expression, or of a reason, in an error."""
_BRACKETS: Final = 20
"""How deep brackets may be nested in an expression, ..."""
_NESTED: Final = 50
"""... and operations."""
_REMEMBERED: Final = 1_024
"""Texts that are kept compiled."""

_TOKEN: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[(\[{]|[)\]}]""", re.DOTALL)
"""What counts for where an expression ends."""

_CONCATENATED, _COMPARED, _PART, _RESULT = " ~", " compare", " part", " result"
"""Filters that stand for operators; the space keeps expressions from naming them."""

_ALLOWED: Final = (
    nodes.And,
    nodes.BinExpr,
    nodes.Compare,
    nodes.Concat,
    nodes.CondExpr,
    nodes.Const,
    nodes.Dict,
    nodes.Filter,
    nodes.Getattr,
    nodes.Getitem,
    nodes.Keyword,
    nodes.List,
    nodes.Name,
    nodes.Operand,
    nodes.Pair,
    nodes.Slice,
    nodes.Test,
    nodes.Tuple,
    nodes.UnaryExpr,
)

_TOO_EARLY: Final = ("unexpected 'end of template'", "it ends too early")
"""What Jinja2 says of an expression that lacks something, and what is said here."""
_WHENCE: Final[Mapping[str, str]] = {
    "steps": "no step before this one saves it",
    "params": "parameters does not have it",
    "env": "proxy.expression_env does not have it",
}
"""Why a member is not there, by the name that does not have it."""

_USERS: Final[Mapping[str, tuple[str, Mapping[str, Function], int]]] = {
    "map": ("filter", FILTERS, 0),
    "select": ("test", TESTS, 0),
    "reject": ("test", TESTS, 0),
    "selectattr": ("test", TESTS, 1),
    "rejectattr": ("test", TESTS, 1),
}
"""Filters that use what an argument names: a filter or a test, and which argument that is."""


class ExpressionError(Exception):
    """An expression that could not be evaluated.

    `place`: where in the value it stands, such as `arguments.q[0]`; `expression`: the text that has it, shortened;
    `reason`: in words.
    """

    def __init__(self, place: str, expression: str, reason: str) -> None:
        self.place, self.expression, self.reason = place, flat(expression, _SHOWN), flat(reason, _SHOWN)
        super().__init__(": ".join(filter(None, (self.place, self.expression, self.reason))))


def holds_expressions(value: object) -> bool:
    """Whether any text in a value has an expression."""
    match value:
        case str():
            return "{{" in value
        case Mapping():
            return any(map(holds_expressions, cast("Mapping[Any, Any]", value).values()))
        case list() | tuple():
            return any(map(holds_expressions, cast("Collection[Any]", value)))
        case _:
            return False


def is_one_expression(value: object) -> bool:
    """Whether a value is a text that is one expression and nothing else, so that it keeps the type of what it gives."""
    try:
        parts = _parts(value) if isinstance(value, str) else []
    except Refused:
        return False
    return len(parts) == 1 and isinstance(parts[0], nodes.Expr)


def faults(value: object, known: Names) -> Iterator[tuple[Place, str]]:
    """What is wrong with the expressions in a value, in words, each with its place inside the value.

    `known`: the names that they can use. A member that a name is known not to have is a fault also where the expression
    is ready for that (`steps.x is defined`, `steps.x | default("")`): it can only be misspelled.
    """
    match value:
        case str():
            yield from (((), fault) for fault in _faults(value, known))
        case Mapping():
            for key, below in cast("Mapping[Any, Any]", value).items():
                yield from (((key, *place), fault) for place, fault in faults(below, known))
        case list() | tuple():
            for index, below in enumerate(cast("Collection[Any]", value)):
                yield from (((index, *place), fault) for place, fault in faults(below, known))
        case _:
            pass


def evaluate(value: Any, names: Mapping[str, Any], place: str = "") -> Any:  # noqa: ANN401 - any JSON value
    """`value` with its expressions evaluated: JSON, all of it new, at most 1 MiB.

    `names`: what the expressions can use, JSON below each name. `place`: where the value stands, for errors. Raises
    ExpressionError.
    """
    return _evaluated(Evaluation(_SANDBOX, names), value, place)


def _evaluated(work: Evaluation, value: Any, place: str) -> Any:  # noqa: ANN401 - any JSON value
    match value:
        case str() if "{{" in value:
            try:
                return work.output(_worked_out(work, _compiled(value)))
            except (Refused, UndefinedError) as error:
                raise ExpressionError(place, value, str(error)) from None
            except ArithmeticError:
                raise ExpressionError(place, value, "a number is too large, or divided by 0") from None
            except Exception as error:  # noqa: BLE001 - boundary: whatever an expression does, its own step fails
                raise ExpressionError(place, value, f"it cannot be evaluated ({type(error).__name__})") from None
        case Mapping():
            members = cast("Mapping[Any, Any]", value)
            return {
                key: _evaluated(work, below, f"{place}.{key}" if place else str(key)) for key, below in members.items()
            }
        case list() | tuple():
            items = cast("Collection[Any]", value)
            return [_evaluated(work, below, f"{place}[{index}]") for index, below in enumerate(items)]
        case _:
            try:
                return work.output(value)
            except Refused as error:
                raise ExpressionError(place, "", str(error)) from None


def _worked_out(work: Evaluation, parts: tuple[str | Template, ...]) -> Any:  # noqa: ANN401 - any JSON value
    if len(parts) == 1 and isinstance(parts[0], Template):
        return _run(work, parts[0])
    return work.joined([part if isinstance(part, str) else work.text(_run(work, part)) for part in parts])


def _run(work: Evaluation, template: Template) -> Any:  # noqa: ANN401 - any JSON value, or what is missing
    list(template.root_render_func(work))  # it writes nothing, but keeps the result
    return work.result


# --- from text to what can be run ------------------------------------------------------------------------------------


class _Sandbox(SandboxedEnvironment):
    """Jinja2's sandbox without anything to call, in which values are JSON and every operation is paid for."""

    intercepted_binops = frozenset(SandboxedEnvironment.default_binop_table)
    intercepted_unops = frozenset(SandboxedEnvironment.default_unop_table)

    def __init__(self) -> None:
        super().__init__(undefined=Missing, optimized=False, cache_size=0)
        self.globals = {}
        self.tests = dict(TESTS)
        self.filters = {
            **FILTERS,
            _CONCATENATED: filters.concatenated,
            _COMPARED: filters.compare,
            _PART: filters.part,
            _RESULT: filters.keep,
        }

    def getitem(self, obj: Any, argument: Any) -> Any:  # noqa: ANN401 - any JSON value, or what is missing
        return filters.member(obj, argument)

    def getattr(self, obj: Any, attribute: str) -> Any:  # noqa: ANN401 - as above
        return filters.member(obj, attribute)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401 - as above
        return filters.binary(cast("Evaluation", context), operator, left, right)

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:  # noqa: ANN401 - as above
        return filters.unary(cast("Evaluation", context), operator, arg)


_SANDBOX: Final = _Sandbox()


class _Intercepted(NodeTransformer):
    """Puts filters in the place of operators that the sandbox does not ask about."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - as Jinja2 calls it
        first, *others = [self.visit(one) for one in node.nodes]
        return _filter(_CONCATENATED, first, *others)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802 - as above
        compared = [each for one in node.ops for each in (nodes.Const(one.op), self.visit(one.expr))]
        return _filter(_COMPARED, self.visit(node.expr), *compared)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802 - as above
        if not isinstance(node.arg, nodes.Slice):
            return self.generic_visit(node)
        places = (node.arg.start, node.arg.stop, node.arg.step)
        none = nodes.Const(None)
        return _filter(_PART, self.visit(node.node), *(self.visit(none if one is None else one) for one in places))


def _filter(name: str, of: nodes.Expr, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(of, name, list(args), [], None, None, lineno=1)


@lru_cache(_REMEMBERED)
def _compiled(text: str) -> tuple[str | Template, ...]:
    """The parts of a text, its expressions ready to run. Raises Refused."""
    return tuple(part if isinstance(part, str) else _template(part) for part in _parts(text))


def _template(expression: nodes.Expr) -> Template:
    kept = _filter(_RESULT, _Intercepted().visit(expression))
    body = nodes.Template([nodes.ExprStmt(kept, lineno=1)], lineno=1)
    body.set_environment(_SANDBOX)
    return _SANDBOX.from_string(body)


def _parts(text: str) -> list[str | nodes.Expr]:
    """A text taken apart: what stands between expressions, and the expressions. Raises Refused."""
    if len(text) > LONGEST:
        raise Refused(f"a text with expressions is longer than {LONGEST:,} characters")
    parts: list[str | nodes.Expr] = []
    done = 0
    while (start := text.find("{{", done)) >= 0:
        parts.append(text[done:start])
        end = _end(text, start + 2)
        parts.append(_parsed(text[start + 2 : end]))
        done = end + 2
    parts.append(text[done:])
    if any(isinstance(part, str) and "{%" in part for part in parts):
        raise Refused("{% has no meaning here, only {{ has; as a mere text it is {{ '{%' }}")
    return [part for part in parts if part != ""]


def _end(text: str, start: int) -> int:
    """Where the expression that begins at `start` has its `}}`. Raises Refused where it has none."""
    depth, place = 0, start
    while token := _TOKEN.search(text, place):
        place = token.end()
        if token[0] in "([{":
            depth += 1
        elif token[0] in ")]}":
            if depth == 0 and text.startswith("}}", token.start()):
                return token.start()
            depth -= 1
        if depth > _BRACKETS:
            raise Refused("brackets are nested too deeply")
    raise Refused("{{ has no }} that ends it; as a mere text it is {{ '{{' }}")


def _parsed(source: str) -> nodes.Expr:
    """An expression, which has nothing in it but what is allowed. Raises Refused."""
    if source[:1] in {"-", "+"} or source[-1:] in {"-", "+"}:
        raise Refused("{{- and -}} have no meaning here; put a space before a sign")
    try:
        parser = Parser(_SANDBOX, source, state="variable")
        expression = parser.parse_expression()
    except TemplateSyntaxError as error:
        raise Refused(str(error.message).replace(*_TOO_EARLY).replace("end of template", "the end")) from error
    except RecursionError as error:
        raise Refused("it is nested too deeply") from error
    except ValueError as error:
        raise Refused("a number is too long") from error
    if not parser.stream.eos:
        raise Refused(f"{parser.stream.current.value} cannot stand after the expression")
    _check(expression)
    return expression


def _check(expression: nodes.Expr) -> None:
    for node in _all(expression):
        if fault := _forbidden(node):
            raise Refused(fault)


def _all(expression: nodes.Expr) -> Iterator[nodes.Node]:
    """An expression and all that it consists of, from the outside inwards. Raises Refused below a certain depth."""
    level: list[nodes.Node] = [expression]
    for _ in range(_NESTED):
        yield from level
        level = [below for node in level for below in node.iter_child_nodes()]
    if level:
        raise Refused("it is nested too deeply")


def _forbidden(node: nodes.Node) -> str:
    """What is wrong with a part of an expression as such; empty where nothing is."""
    match node:
        case nodes.Call():
            return "nothing can be called: write x | length, not length(x) or x.length()"
        case nodes.Tuple() if any(isinstance(one, nodes.Slice) for one in node.items):
            return "a part is not one of several keys"
        case nodes.CondExpr(expr2=None):
            return "an if without an else comes to nothing: write x if y else z"
        case nodes.Filter() | nodes.Test() if node.dyn_args or node.dyn_kwargs:
            return "arguments cannot be unpacked with * or **"
        case nodes.Filter():
            return _misapplied("filter", FILTERS, node.name, node.args, node.kwargs) or _within(node)
        case nodes.Test():
            return _misapplied("test", TESTS, node.name, node.args, node.kwargs)
        case _:
            return "" if isinstance(node, _ALLOWED) else f"{type(node).__name__.lower()} has no meaning here"


def _within(node: nodes.Filter) -> str:
    """What is wrong with the filter or the test that a filter is to use."""
    if node.name not in _USERS:
        return ""
    what, known, place = _USERS[node.name]
    match node.args[place:]:
        case [nodes.Const() as name, *args]:
            return _misapplied(what, known, name.value, args, node.kwargs)
        case _:
            return ""


def _misapplied(
    what: str, known: Mapping[str, Function], name: object, args: Sequence[nodes.Expr], kwargs: Sequence[nodes.Node]
) -> str:
    """What is wrong with the use of a filter or a test; empty where nothing is."""
    if not isinstance(name, str) or name not in known:
        return unknown(what, name, known)
    fault = misused(known[name], args, {cast("nodes.Keyword", one).key: one for one in kwargs})
    return f"{what} {name}: {fault}" if fault else ""


# --- what can be seen before anything runs ---------------------------------------------------------------------------


def _faults(text: str, known: Names) -> Iterator[str]:
    if "{{" not in text and "{%" not in text:
        return
    try:
        parts = _parts(text)
    except Refused as error:
        yield str(error)
        return
    for part in parts:
        if isinstance(part, nodes.Expr):
            yield from _misspelled(part, known)


def _misspelled(expression: nodes.Expr, known: Names) -> Iterator[str]:
    """Names that are not known, and members that names are known not to have."""
    for node in _all(expression):
        match node:
            case nodes.Name() if node.name not in known:
                yield f"{unknown('name', node.name, known)}; there are {', '.join(sorted(known))}"
            case nodes.Getattr(node=nodes.Name() as root):
                yield from _no_member(root.name, node.attr, known)
            case nodes.Getitem(node=nodes.Name() as root, arg=nodes.Const() as key):
                yield from _no_member(root.name, key.value, known)
            case _:
                pass


def _no_member(root: str, member: object, known: Names) -> Iterator[str]:
    members = known.get(root)
    if members is not None and member not in members:
        fault = f"{root}: {unknown('member', member, members)}"
        yield f"{fault}; {_WHENCE[root]}" if root in _WHENCE else fault
