"""Queries as people type them mean the same as pyarrow's expressions, and errors name the part without meaning."""

import offpath
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest
from offpath.query_text import parse_aggregate, parse_expression, parse_query

TABLE = pa.table(
    {
        "x": [0.0, 0.25, 0.5, None, 1.0, float("nan")],
        "type": pa.array([0, 1, 2, 3, 4, None], pa.int32()),
        "name": ["a", "b", "c", "d", "e", None],
        "two words": [6, 5, 4, 3, 2, 1],
        "number": range(6),
    }
)
x, kind = pc.field("x"), pc.field("type")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("x < 0.5", x < 0.5),
        ("0.25 <= x < 1", (pc.scalar(0.25) <= x) & (x < 1)),
        ("x < 0.5 or not type == 4", (x < 0.5) | ~(kind == 4)),
        ("(x > 0.1) & (x < 0.9) | (type != 2)", (x > 0.1) & (x < 0.9) | (kind != 2)),
        ("type in (1, 2, 3)", kind.isin([1, 2, 3])),
        ("name not in ['a', 'b']", ~pc.field("name").isin(["a", "b"])),
        ("-x + 2 * x / 4 - 1 < -1.1", pc.negate(x) + pc.scalar(2) * x / 4 - 1 < -1.1),
        ("is_null(x) or is_nan(x)", pc.is_null(x) | pc.is_nan(x)),
        ("sqrt(abs(x)) > 0.6 and is_valid(type)", (pc.sqrt(pc.abs(x)) > 0.6) & pc.is_valid(kind)),
        ("if_else(x < 0.5, 1, 0) == 1", pc.if_else(x < 0.5, 1, 0) == 1),
        ('column("two words") > 3 and name >= "b"', (pc.field("two words") > 3) & (pc.field("name") >= "b")),
    ],
)
def test_an_expression_means_what_it_says(text, meant):
    rows = pa.dataset.dataset(TABLE)
    chosen = rows.to_table(filter=parse_expression(text))["number"].to_pylist()
    assert chosen == rows.to_table(filter=meant)["number"].to_pylist()
    assert 0 < len(chosen) < TABLE.num_rows


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x <", "invalid syntax"),
        ("", "invalid syntax"),
        ("__import__('os')", "means nothing"),
        ("x.real", "'x.real' means nothing"),
        ("[x for x in y]", "means nothing"),
        ("x ** 2", "means nothing"),
        ("abs(x, x)", "abs"),
        ("type in x", "values in brackets"),
        ("type in (1, 2) < 3", "nothing is compared with the values"),
        ("x is None", "compare by"),
        ("x < 1j", "means nothing"),
        ("-" * 100_000 + "x", "too deeply"),
    ],
)
def test_what_means_nothing_is_named(text, complaint):
    with pytest.raises(offpath.Error, match=complaint):
        parse_expression(text)


def test_a_chain_in_a_chain_is_counted_before_it_is_made():
    """Each level doubles its middle: if it were built first, it would not fit any memory."""
    text = "x"
    for _ in range(60):
        text = f"(0 < {text} < 1)"
    with pytest.raises(offpath.Invalid, match="more than 8192 parts"):
        parse_expression(text)
    assert parse_expression("0 < (0 < x < 1) < 1") is not None


def test_parts_of_a_query():
    asked = parse_query("x < 1", ["id", "double=2*x", "a==b"], ["n=count", "fastest=max(x * x)"])
    assert asked["filter"].equals(x < 1)
    assert list(asked["columns"]) == ["id", "double", "a==b"]
    assert asked["columns"]["double"].equals(pc.scalar(2) * x)
    assert asked["aggregates"]["n"] == "count"
    assert asked["aggregates"]["fastest"][0] == "max"
    assert parse_query("", [], []) == {"filter": None, "columns": None, "aggregates": None}
    for wrong in ("n", "n=median(x)", "n=sum(x", "=sum(x)"):
        with pytest.raises(offpath.Invalid, match="write NAME=FUNCTION"):
            parse_aggregate(wrong)
