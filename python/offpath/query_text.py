"""Queries as people type them: expressions such as ``0.5 <= x < 1 and not is_nan(v)``, made into pyarrow's.

Names are columns; a name that is not a Python name is written ``column("…")``. The grammar is a subset of Python's
expressions, listed below; nothing is evaluated as Python.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .errors import Invalid
from .expression import AGGREGATES, Aggregates, Columns

COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], pc.Expression]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], pc.Expression]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
}  # fmt: skip
FUNCTIONS = {
    "abs": pc.abs, "sqrt": pc.sqrt, "is_null": pc.is_null, "is_valid": pc.is_valid, "is_nan": pc.is_nan,
    "if_else": pc.if_else,
}  # fmt: skip
PARTS_MAX = 8192  # expression_nodes_max of src/wire/query/expression.h


def parse_query(where: str, select: Sequence[str], aggregate: Sequence[str]) -> dict[str, Any]:
    """Arguments of ``Pool.query``. ``where`` is empty or an expression; ``select`` has names of columns and
    ``NAME=EXPRESSION``, ``aggregate`` has ``NAME=FUNCTION(EXPRESSION)`` and ``NAME=count``."""
    columns: dict[str, pc.Expression | str] = {}
    for text in select:
        name, equals, expression = text.partition("=")
        is_named = bool(equals) and not expression.startswith("=") and name.strip().isidentifier()
        columns[name.strip() if is_named else text] = parse_expression(expression) if is_named else text
    return {
        "filter": parse_expression(where) if where.strip() else None,
        "columns": columns or None,
        "aggregates": dict(map(parse_aggregate, aggregate)) or None,
    }


def with_texts(
    filter: pc.Expression | str | None, columns: Columns | None, aggregates: Aggregates | str | None
) -> tuple[pc.Expression | None, Columns | None, Aggregates | None]:
    """Arguments of ``Pool.query`` of which some are the texts of the command line: a filter, ``max(x)`` in its place,
    and ``top=max(x)`` or ``max(x)`` as aggregates, which is then their column's name."""
    if isinstance(filter, str) and aggregates is None and columns is None and is_aggregate(filter):
        filter, aggregates = None, filter
    if isinstance(aggregates, str):
        aggregates = dict([parse_aggregate(f"{aggregates}={aggregates}" if is_aggregate(aggregates) else aggregates)])
    return parse_expression(filter) if isinstance(filter, str) else filter, columns, aggregates


def is_aggregate(text: str) -> bool:
    """``count``, or one call of an aggregate and nothing around it."""
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    is_call = isinstance(body, ast.Call) and isinstance(body.func, ast.Name) and body.func.id in AGGREGATES
    return is_call or text.strip() == "count"


def parse_aggregate(text: str) -> tuple[str, tuple[str, pc.Expression] | str]:
    name, _, call = text.partition("=")
    function, bracket, rest = call.strip().partition("(")
    if not name.strip() or function not in AGGREGATES or (bracket and not rest.endswith(")")):
        raise Invalid(f"aggregate {text!r}: write NAME=FUNCTION(EXPRESSION) with one of {', '.join(AGGREGATES)}")
    return name.strip(), (function, parse_expression(rest[:-1])) if bracket else function


def parse_expression(text: str) -> pc.Expression:
    """Raises Invalid, which names the part that means nothing here."""
    try:
        body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise Invalid(f"expression {text!r}: {getattr(error, 'msg', error)}") from None
    except (MemoryError, RecursionError):  # Python's parser raises either for too deep nesting
        raise Invalid("an expression is nested too deeply") from None
    try:
        if parts_of(body) > PARTS_MAX:
            raise Invalid(f"an expression has more than {PARTS_MAX} parts")
        return read(body)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise Invalid(f"expression {text!r}: {error}") from None
    except RecursionError:
        raise Invalid("an expression is nested too deeply") from None


def parts_of(node: ast.expr) -> int:
    """Parts of the expression that is made of it. One in the middle of a chain of comparisons is there twice."""
    parts = [parts_of(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    twice = parts[1:-1] if isinstance(node, ast.Compare) else []
    return 1 + sum(parts) + sum(twice)


def read(node: ast.expr) -> pc.Expression:
    match node:
        case ast.Name(name):
            return pc.field(name)
        case ast.Constant(value) if value is None or isinstance(value, bool | int | float | str | bytes):
            return pc.scalar(value)
        case ast.BoolOp(ast.And(), values):
            return combine(operator.and_, values)
        case ast.BoolOp(ast.Or(), values):
            return combine(operator.or_, values)
        case ast.UnaryOp(ast.Not() | ast.Invert(), operand):
            return ~read(operand)
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)) if not isinstance(value, bool):
            return pc.scalar(-value)
        case ast.UnaryOp(ast.USub(), operand):
            return pc.negate(read(operand))
        case ast.BinOp(left, sign, right) if type(sign) in ARITHMETIC:
            return ARITHMETIC[type(sign)](read(left), read(right))
        case ast.Compare():
            return compare(node)
        case ast.Call(ast.Name("column"), [ast.Constant(str() as name)], []):
            return pc.field(name)
        case ast.Call(ast.Name(name), arguments, []) if name in FUNCTIONS:
            return FUNCTIONS[name](*map(read, arguments))
    raise Invalid(
        f"{ast.unparse(node)!r} means nothing in an expression: there are columns, values, comparisons, in (…), and, "
        f"or, not, + - * /, column(…), {', '.join(f'{name}(…)' for name in FUNCTIONS)}"
    )


def combine(join: Callable[[Any, Any], pc.Expression], values: list[ast.expr]) -> pc.Expression:
    made = read(values[0])
    for value in values[1:]:
        made = join(made, read(value))
    return made


def compare(node: ast.Compare) -> pc.Expression:
    """``a < b < c`` is ``a < b and b < c``."""
    parts, left = [], read(node.left)
    for sign, right in zip(node.ops, node.comparators, strict=True):
        if isinstance(sign, ast.In | ast.NotIn):
            inside = left.isin(values_of(right))
            parts.append(~inside if isinstance(sign, ast.NotIn) else inside)
            if right is not node.comparators[-1]:
                raise Invalid(f"{ast.unparse(node)!r}: nothing is compared with the values after 'in'")
        elif type(sign) in COMPARISONS:
            right_read = read(right)
            parts.append(COMPARISONS[type(sign)](left, right_read))
            left = right_read
        else:
            raise Invalid(f"{ast.unparse(node)!r}: compare by == != < <= > >= in")
    made = parts[0]
    for part in parts[1:]:
        made = made & part
    return made


def values_of(node: ast.expr) -> list[Any]:
    try:
        values = ast.literal_eval(node)
    except ValueError:
        values = None
    if not isinstance(values, tuple | list | set):
        raise Invalid(f"{ast.unparse(node)!r}: after 'in' come values in brackets, such as (1, 2)")
    return list(values)
