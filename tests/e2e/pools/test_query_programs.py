"""Queries that a program in C makes from text: the bytes and the rows that Python gets for the same text."""

from __future__ import annotations

import io
import struct
import subprocess
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import offpath
import pyarrow as pa
import pytest
from agent_process import find_program
from built import needs_built
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offpath.expression import encode_query
from offpath.query_text import parse_query

PROGRAM = find_program().parents[1] / "tests" / "query_program"
pytestmark = needs_built(PROGRAM)

POOL = "local:/particles"
TABLE = pa.table(
    {
        "id": pa.array(range(1000), pa.int64()),
        "x": [None if i % 50 == 7 else float("nan") if i % 50 == 8 else i / 1000 for i in range(1000)],
        "type": pa.array([i % 4 for i in range(1000)], pa.int32()),
        "name": [None if i % 30 == 0 else f"particle {i % 7}" for i in range(1000)],
        "two words": [i * 0.5 for i in range(1000)],
    }
)


class Stored(NamedTuple):
    address: str  # of the agent
    pool: offpath.Pool


@pytest.fixture(scope="module")
def stored() -> Iterator[Stored]:
    with offpath.Agent.start(memory="64MiB") as agent, offpath.connect(agent.address) as session:
        pool = session.pool(POOL)
        for step in range(4):
            pool.put(TABLE.slice(step * 250, 250), f"step{step}")
        yield Stored(agent.address, pool)


def ask(stored: Stored, where: str, *parts: str) -> subprocess.CompletedProcess[bytes]:
    command = [PROGRAM, stored.address, POOL, where, *parts]
    return subprocess.run(command, capture_output=True, timeout=100, check=False)


def answered(stored: Stored, where: str, *parts: str) -> pa.Table:
    done = ask(stored, where, *parts)
    assert done.returncode == 0, done.stderr
    rest, tables = io.BytesIO(done.stdout), []
    while length := rest.read(8):
        tables.append(pa.ipc.open_stream(rest.read(struct.unpack("<Q", length)[0])).read_all())
    return pa.concat_tables(tables)


def made(lines: Sequence[str]) -> list[str]:
    """The bytes in hex, or the failure behind !, of the query in each line."""
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run([PROGRAM], input=text.encode(), capture_output=True, timeout=100, check=True)
    return done.stdout.decode().splitlines()


def made_here(line: str) -> str:
    """The same by Python."""
    where, *parts = line.split("\t")
    columns, aggregates = [p for p in parts if p[0] != "@"], [p[1:] for p in parts if p[0] == "@"]
    return encode_query(**parse_query(where, columns, aggregates)).hex()


@pytest.mark.parametrize(
    ("where", "columns"),
    [
        ("x > 0.5 and type == 3", []),
        ("0.25 <= x < 0.75 and type in (1, 3)", ["id", "energy=0.5 * x * x"]),
        ("not (name == 'particle 3' or is_null(name))", ["name", "id"]),
        ("is_nan(x) or is_null(x)", ["id"]),
        ('column("two words") / 2 >= 100 and name not in ("particle 1", "particle 2")', ["two words"]),
        ("if_else(is_valid(x), x, -1.0) < 0", ["id", "x"]),
        ("id < 0", []),
        ("", ["id"]),
    ],
)
def test_a_program_in_c_gets_the_rows_that_python_gets(stored: Stored, where: str, columns: list[str]) -> None:
    asked = parse_query(where, columns, [])
    expected = stored.pool.query(**asked)
    assert answered(stored, where, *columns).to_pydict().__repr__() == expected.to_pydict().__repr__()  # NaN is NaN
    assert (expected.num_rows == 0) == (where == "id < 0")


def test_a_program_in_c_gets_the_figures_that_python_gets(stored: Stored) -> None:
    aggregates = ["n=count", "with a name=count(name)", "largest=max(x * x)", "mean=mean(id)", "sum=sum(type)"]
    expected = stored.pool.query(**parse_query("id >= 10", [], aggregates)).to_pylist()
    assert answered(stored, "id >= 10", *(f"@{each}" for each in aggregates)).to_pylist() == expected
    assert expected[0]["n"] == 990


@pytest.mark.parametrize(
    ("where", "parts", "said"),
    [
        ("speed > 1", [], 'not_found there is no column "speed"; there are id, x, type, name, two words'),
        ("name > 1", [], "unsupported Arrow, binding an expression: Function 'greater' has no kernel matching input"),
        ("x", [], "schema the filter is of type double, not bool"),
        ("id in ('a', 'b')", [], "schema "),
        ("", ["@s=sum(name)"], 'schema sum "s" is of type string, which does not support it'),
        ("x >", [], "invalid filter, character 4: a column or a value is expected, not the end"),
        ("(" * 49 + "x > 1" + ")" * 49, [], "too_large filter, character 50: an expression is nested deeper than 48"),
        (" and ".join(["x > 1"] * 60), [], "too_large filter, character "),
        ("", ["id", "@n=count"], "invalid a query has 1 columns and 1 aggregates; it may have one kind"),
    ],
)
def test_bad_queries_are_named(stored: Stored, where: str, parts: list[str], said: str) -> None:
    done = ask(stored, where, *parts)
    assert done.returncode == 1
    assert done.stderr.decode().lower().startswith(said.lower())


# Texts of the language, made from the bottom up: values, columns and functions, then operators around them.
numbers = st.one_of(
    st.integers(0, 2**63 - 1).map(str),
    st.integers(0, 2**40).map(hex),
    st.floats(0, allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["1.", ".5", "0", "0.0", "1e5", "2.5E-3"]),
)
letters = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\t\n")
texts = st.text(letters, max_size=6).map(lambda text: "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'")
bytes_ = st.binary(max_size=4).map(lambda data: 'b"' + "".join(f"\\x{byte:02x}" for byte in data) + '"')
names = st.sampled_from(["x", "id", "_v2", "größe", 'column("two words")', "column('it\\'s')"])
leaves = st.one_of(
    names, numbers, numbers.map(lambda text: f"-{text}"), texts, bytes_, st.sampled_from(["True", "None"])
)
signed = st.one_of(st.integers(-(2**63), 2**63 - 1).map(str), st.just("None"))
lists = st.one_of(
    st.lists(signed, max_size=4),
    st.lists(st.one_of(st.integers(-(2**53), 2**53).map(str), st.floats(-1e9, 1e9).map(repr)), max_size=4),
    st.lists(texts, max_size=4),
    st.lists(bytes_, max_size=4),
    st.lists(st.sampled_from(["True", "False", "None"]), max_size=3),
).map(lambda values: f"[{', '.join(values)}]")


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = ["+", "-", "*", "/", "&", "|", "==", "!=", "<", "<=", ">", ">=", "and", "or"]
    return st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(operators), inner),
        st.builds("({})".format, inner),
        st.builds("{}({})".format, st.sampled_from(["abs", "sqrt", "is_null", "is_valid", "is_nan"]), inner),
        st.builds("if_else({}, {}, {})".format, inner, inner, inner),
        st.builds("{}({})".format, st.sampled_from(["-", "~", "not "]), inner),
        st.builds("({}) {} {}".format, inner, st.sampled_from(["in", "not in"]), lists),
    )


expressions = st.recursive(leaves, grown, max_leaves=12)


@settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(expressions, expressions), min_size=1, max_size=40))
def test_c_and_python_make_the_same_bytes(pairs: list[tuple[str, str]]) -> None:
    lines, expected = [], []
    for where, column in pairs:
        line = f"{where}\tid\tnamed={column}"
        try:
            expected.append(made_here(line))
        except offpath.Invalid:
            continue  # `x == not y` is not of the language, and some doubles are too large for a list with them
        lines.append(line)
    found = made(lines)
    for line, mine, theirs in zip(lines, found, expected, strict=True):
        assert mine == theirs, line


def test_a_long_expression_is_refused_by_c_where_agents_refuse_it() -> None:
    assert made([" + ".join(["x"] * 48)])[0] == made_here(" + ".join(["x"] * 48))
    assert made([" + ".join(["x"] * 49)])[0].endswith("an expression is nested deeper than 48 calls")
