"""pyarrow's expressions as an agent reads them (``src/wire/query/expression.h``), and queries around them.

An expression of pyarrow names columns and says nothing of their types: the agent binds it to the schema of the frames
it reads. The expression is read from the form in which pyarrow pickles it, which needs no schema, in contrast to
Substrait.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from .errors import Invalid, Unsupported

FUNCTIONS = {
    "equal": 1, "not_equal": 2, "less": 3, "less_equal": 4, "greater": 5, "greater_equal": 6, "add": 7, "subtract": 8,
    "multiply": 9, "divide": 10, "negate": 11, "abs": 12, "sqrt": 13, "and_kleene": 14, "or_kleene": 15, "invert": 16,
    "is_null": 17, "is_valid": 18, "is_nan": 19, "is_in": 20, "cast": 21, "if_else": 22, "and": 14, "or": 15,
}  # fmt: skip
AGGREGATES = {"sum": 0, "min": 1, "max": 2, "mean": 3, "count": 4}
HISTOGRAM = 5
VALUE_TYPES = {
    pa.null(): 0, pa.bool_(): 1, pa.int8(): 2, pa.int16(): 3, pa.int32(): 4, pa.int64(): 5, pa.uint8(): 6,
    pa.uint16(): 7, pa.uint32(): 8, pa.uint64(): 9, pa.float32(): 10, pa.float64(): 11, pa.string(): 12,
    pa.binary(): 13, pa.date32(): 15,
}  # fmt: skip
TIMESTAMP = 14
UNITS = ("s", "ms", "us", "ns")
FIELD, LITERAL, CALL = 1, 2, 3
NULLS_MATCH, NULLS_SKIPPED = 0, 1  # of is_in: a null matches if the values contain one, or never
HAS_FILTER, PARTIAL, WITHOUT_LOST, ARROW_ONLY, OF_MEMBER = 1, 2, 4, 8, 16


class Part(NamedTuple):
    """A part of an expression: ``field_ref`` with the column's name as ``value``, ``literal`` with a scalar, ``call``
    with the function's name, ``parts`` and ``options`` (a StructScalar, or None). Other kinds, such as
    ``nested_field_ref``, mean nothing to agents."""

    kind: str
    value: Any
    parts: tuple[Part, ...] = ()
    options: Any = None


class Axis(NamedTuple):
    """One axis of a histogram: ``bins`` of equal width from ``low`` to ``high``, which the last one includes."""

    of: pc.Expression | Part | str
    low: float
    high: float
    bins: int


class Histogram(NamedTuple):
    """An aggregate: counts of rows by one axis or two. Its column is a list of all counts, row by row of the first."""

    axes: tuple[Axis, ...]


# The forms of a column and of an aggregate in a query: (function, argument).
Columns = Sequence[str] | Mapping[str, "pc.Expression | str"]
Aggregates = Mapping[str, "tuple[str, pc.Expression | str] | str | Histogram"]


def encode_query(
    filter: pc.Expression | Part | None = None,
    columns: Columns | None = None,
    aggregates: Aggregates | None = None,
    partial: bool = False,
    without_lost: bool = False,
    arrow_only: bool = False,
    part: tuple[int, str] | None = None,
) -> bytes:
    """The bytes of a query: ``partial`` of aggregates that are to be combined, ``without_lost`` where rows may be
    missing that members took with them, ``arrow_only`` where objects that are not Arrow are left out, ``part`` (the
    view of a listing, and a member) where that member's rows alone are asked for. Raises Invalid or Unsupported where
    an agent would not understand it."""
    if columns is not None and aggregates is not None:
        raise Invalid("a query has columns or aggregates, not both")
    flags = HAS_FILTER * (filter is not None) | PARTIAL * partial
    flags |= WITHOUT_LOST * without_lost | ARROW_ONLY * arrow_only | OF_MEMBER * (part is not None)
    made = bytearray((1, flags))
    if part is not None:
        made += struct.pack("<Q", part[0]) + text(part[1])
    if filter is not None:
        made += encode(filter)
    named = columns.items() if isinstance(columns, Mapping) else [(name, name) for name in columns or ()]
    made += struct.pack("<H", len(named))
    for name, what in named:
        made += text(name) + encode(what)
    made += struct.pack("<H", len(aggregates or ()))
    for name, what in (aggregates or {}).items():
        made += encode_aggregate(name, what)
    return bytes(made)


def flight_command(pool: str, rows: str = "*", columns: str = "*", query: bytes = b"") -> bytes:
    """A command, or the body of an action, for an agent's Flight endpoint; ``query`` is from ``encode_query``."""
    return text(pool) + text(rows) + text(columns) + query


def encode_aggregate(name: str, what: tuple[str, pc.Expression | str] | str | Histogram) -> bytes:
    if isinstance(what, Histogram):
        made = bytes((HISTOGRAM, len(what.axes))) + text(name)
        for axis in what.axes:
            made += struct.pack("<ddI", axis.low, axis.high, axis.bins) + encode(axis.of)
        return made
    function, of = (what, None) if isinstance(what, str) else what
    if function not in AGGREGATES:
        raise Invalid(f"aggregate {name!r}: {function!r} is not one of {', '.join(AGGREGATES)}")
    if of is None and function != "count":
        raise Invalid(f"aggregate {name!r}: {function} of what? Write ({function!r}, column or expression)")
    made = bytes((AGGREGATES[function], of is not None)) + text(name)
    return made if of is None else made + encode(of)


def encode(expression: pc.Expression | Part | str) -> bytes:
    """One expression; a text names a column. Raises Unsupported for expressions that agents do not compute."""
    if isinstance(expression, str):
        return field(expression)
    part = expression if isinstance(expression, Part) else parts_of(expression)
    if part.kind == "field_ref":
        return field(part.value)
    if part.kind == "literal":
        return literal(part.value)
    if part.kind != "call":
        raise Unsupported(
            f"an expression has a part of kind {part.kind!r}; agents know columns by name, values and functions"
        )
    return call(part.value, [encode(each) for each in part.parts], part.options)


def parts_of(expression: pc.Expression) -> Part:
    """The parts of an expression, at any depth. Raises Invalid for anything but an expression."""
    if not isinstance(expression, pc.Expression):
        raise Invalid(
            f"an expression is expected, not {type(expression).__name__}: write pyarrow.compute.field(name) …"
        )
    _, (pickled,) = expression.__reduce__()
    batch = pa.ipc.open_file(pickled).get_batch(0)
    done: list[Part] = []
    opened: list[tuple[str, list[Part], Any]] = []  # open calls, with the parsed part of each
    for kind, value in metadata_pairs(batch.schema):
        if kind == "call":
            opened.append((value, [], None))
            continue
        if kind == "options":
            name, parts, _ = opened.pop()
            opened.append((name, parts, batch.column(int(value))[0]))
            continue
        if kind == "end":
            name, parts, options = opened.pop()
            part = Part("call", name, tuple(parts), options)
        else:
            part = Part(kind, batch.column(int(value))[0] if kind == "literal" else value)
        (opened[-1][1] if opened else done).append(part)
    return done[0]


def call(name: str, arguments: list[bytes], options: Any) -> bytes:
    """``options``: a pyarrow.StructScalar, or None for functions that take none."""
    number = FUNCTIONS.get(name.removesuffix("_checked"))
    if number is None:
        raise Unsupported(f"agents have no function {name!r}; they have {', '.join(FUNCTIONS)}")
    target = 0
    if name == "cast":
        target = value_type(options["to_type"].type)
    elif name == "is_in":
        nulls = options["null_matching_behavior"].as_py()
        if nulls not in (NULLS_MATCH, NULLS_SKIPPED):
            raise Unsupported("is_in that is null for nulls: write if_else(is_valid(…), is_in(…), null)")
        values = options["value_set"].values
        arguments += [literal(value) for value in (values if nulls == NULLS_MATCH else values.drop_null())]
    elif name == "is_null" and options is not None and options["nan_is_null"].as_py():
        raise Unsupported("is_null(nan_is_null=True): write is_null(…) | is_nan(…)")
    return struct.pack("<BBBH", CALL, number, target, len(arguments)) + b"".join(arguments)


def field(name: str) -> bytes:
    return bytes((FIELD,)) + text(name)


def text(value: str) -> bytes:
    encoded = value.encode()
    if len(encoded) > 1024:
        raise Invalid(f"a column's name of {len(encoded)} bytes, at most 1024 are allowed")
    return struct.pack("<H", len(encoded)) + encoded


def value_type(type_: pa.DataType) -> int:
    if type_ in VALUE_TYPES:
        return VALUE_TYPES[type_]
    if type_ == pa.timestamp("ns"):
        return TIMESTAMP
    raise Unsupported(f"a cast to {type_}; agents cast to {', '.join(map(str, VALUE_TYPES))}, timestamp[ns]")


def literal(value: pa.Scalar) -> bytes:
    """Whole numbers travel as the widest of their kind."""
    type_, known = value.type, VALUE_TYPES
    if not value.is_valid:
        return bytes((LITERAL, 0))
    if pa.types.is_boolean(type_):
        return bytes((LITERAL, known[type_], value.as_py()))
    if pa.types.is_signed_integer(type_):
        return struct.pack("<BBq", LITERAL, known[pa.int64()], value.as_py())
    if pa.types.is_unsigned_integer(type_):
        return struct.pack("<BBQ", LITERAL, known[pa.uint64()], value.as_py())
    if type_ in (pa.float32(), pa.float64()):
        return struct.pack("<BBf" if type_ == pa.float32() else "<BBd", LITERAL, known[type_], value.as_py())
    if pa.types.is_date32(type_):
        return struct.pack("<BBi", LITERAL, known[type_], value.cast(pa.int32()).as_py())
    if pa.types.is_timestamp(type_) and type_.tz is None:
        return struct.pack("<BBBq", LITERAL, TIMESTAMP, UNITS.index(type_.unit), value.cast(pa.int64()).as_py())
    is_text = pa.types.is_string(type_) or pa.types.is_large_string(type_)
    if is_text or pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        data = value.as_buffer().to_pybytes()
        return struct.pack("<BBI", LITERAL, known[pa.string() if is_text else pa.binary()], len(data)) + data
    raise Unsupported(f"an expression has a value of type {type_}, which does not travel to agents")


class _ArrowSchema(ctypes.Structure):
    """The first members of the C data interface's struct."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def metadata_pairs(schema: pa.Schema) -> Iterable[tuple[str, str]]:
    """All of the metadata in its order. ``Schema.metadata`` is a dict, and here the same key stands many times."""
    capsule = schema.__arrow_c_schema__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    at = _ArrowSchema.from_address(pointer_of(capsule, b"arrow_schema")).metadata

    def take_number() -> int:
        nonlocal at
        number = ctypes.c_int32.from_address(at).value
        at += 4
        return number

    def take_text() -> str:
        nonlocal at
        length = take_number()
        taken = ctypes.string_at(at, length).decode()
        at += length
        return taken

    return [(take_text(), take_text()) for _ in range(take_number())] if at else []
