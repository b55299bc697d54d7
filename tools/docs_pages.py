"""Makes the pages of the site that are generated from the sources: a hook of MkDocs (mkdocs.yml).

    reference/c.md         include/offpath/offpath.h, exchange.h, tasks.h
    reference/plugin.md    include/offpath/plugin.h
    reference/decision.md  include/offpath/decision.h
    reference/python.md    signatures and docstrings of the names in offpath.__all__
    reference/cli.md       the help texts of the command `offpath`
    reference/metrics.md   names and help texts in src/agent/status

It compiles nothing and does not need the package's native part.
"""

from __future__ import annotations

import ast
import html
import json
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from header_version import LIBRARY_HEADERS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "offpath"
METRICS = ROOT / "src" / "agent" / "status"
LIBRARY = [ROOT / "include" / "offpath" / name for name in LIBRARY_HEADERS]

C_INTRO = (
    "Made from `include/offpath/offpath.h` and the two headers that it includes. Begin with [C and C++](../start/c.md)."
)
DECISION_INTRO = "Made from `include/offpath/decision.h`. [Decisions](../guides/plugins.md#decisions) explains them."
PLUGIN_INTRO = "Made from `include/offpath/plugin.h`. [Plug-ins](../guides/plugins.md) explains how functions run."
PYTHON_INTRO = "Made from the docstrings of `python/offpath`. Begin with [Python](../start/python.md)."
CLI_INTRO = """\
The output of `offpath COMMAND --help`. `--json` prints the same for a script.

A command finds its agent by `--agent`, else by `OFFPATH_AGENT`, else at an agent's default address:
`$XDG_RUNTIME_DIR/offpath/agent.sock`, then `/run/offpath/agent.sock`. It finds the agent's pages by `--http`, else
at `http.sock` beside the socket that `--agent` names, else by `OFFPATH_AGENT_HTTP`, else beside the socket of the agent
that it finds, else at 127.0.0.1:9477. The options of the agent itself are in [The agent](../operate/agent.md).

`--out FILE` writes Parquet, CSV, an Arrow file or an Arrow stream, depending on the file's extension: `.parquet`,
`.csv`, `.arrow` (or `.feather`) or `.arrows`. Other extensions are refused, and an existing file is replaced only with
`--force`. An object of plain bytes is written as it is, under any name. `offpath --install-completion` lets the shell
complete commands."""
METRICS_INTRO = """\
The metrics of `/metrics`, in Prometheus's text format or in OpenMetrics. Names of counters end in `_total`; units are
seconds and bytes. Values that hosts and programs publish appear as `offpath_host_…` and `offpath_program_…`
([Monitoring](../guides/monitoring.md))."""

# ---- C headers ---------------------------------------------------------------------------------

SECTION = re.compile(r"^/\* ---- (.+?) -{2,}(?: \*/)?$|^/\* ---- (.+?) -{2,}$", re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
FUNCTION = re.compile(r"\b(ofp_\w+)\(")
TYPE = re.compile(r"^(?:typedef )?(?:struct|enum) (\w+) \{|^\} (\w+);", re.MULTILINE)
FUNCTION_POINTER = re.compile(r"typedef [^;]*\(\*(\w+)\)")


def prose(comment: str) -> str:
    """The text of a C comment as Markdown: indented code stays code."""
    lines = comment.removeprefix("/*").removesuffix("*/").split("\n")
    text = [re.sub(r"^ \* ?", "", line).rstrip() for line in lines]
    made: list[str] = []
    in_list = False
    for line in (text[0].strip(), *text[1:]):
        is_item = line.lstrip().startswith("- ")
        in_list = is_item or (in_list and line != "")
        is_code = line.startswith("    ") and not in_list
        begins = (is_code and not made[-1].startswith("    ")) or (is_item and not made[-1].lstrip().startswith("- "))
        if made and made[-1] and begins and not (is_item and made[-1].startswith("    ")):
            made.append("")
        plain = html.escape(line.strip(), quote=False)
        made.append(line if is_code else f"    {plain}" if in_list and not is_item else plain)
    return "\n".join(made).strip("\n")


def pieces_of(text: str) -> Iterator[tuple[str, str]]:
    """(comment, declarations) of a part of a header: a comment at the start of a line and the declarations below it."""
    comment, code = "", ""
    at = 0
    for match in COMMENT.finditer(text):
        if match.start() != 0 and text[match.start() - 1] != "\n":
            continue  # beside a declaration: stays with it
        code += text[at : match.start()]
        if code.strip() or comment:
            yield comment, code.strip("\n")
        comment, code, at = match[0], "", match.end()
    code += text[at:]
    if code.strip() or comment:
        yield comment, code.strip("\n")


def names_in(code: str) -> list[str]:
    """The names that a piece declares: functions, types."""
    plain = COMMENT.sub("", code)
    types_ = [name for pair in TYPE.findall(plain) for name in pair if name]
    functions = [
        found[1]
        for line in re.split(r";\n?", plain)
        if "typedef" not in line and (found := FUNCTION.search(line)) and "{" not in line[: found.start()]
    ]
    return list(dict.fromkeys([*types_, *FUNCTION_POINTER.findall(plain), *functions]))


def header_page(path: Path, title: str, intro: str, *others: Path) -> str:
    """A C header, and others that it includes, as a page: sections, each declaration below the comment that explains
    it."""
    text = path.read_text(encoding="utf-8")
    opening = prose(text[: text.index("*/")]).replace("SPDX-License-Identifier: Apache-2.0", "").rstrip()
    made = [f"# {title}", intro, opening]
    texts = [text, *(each.read_text(encoding="utf-8") for each in others)]
    body = "".join(each[each.index("*/") + 2 :] for each in texts)
    parts = re.split(r"^(?=/\* ---- )", body, flags=re.MULTILINE)
    for part in parts:
        section = SECTION.match(part)
        if section:
            name = (section[1] or section[2]).strip()
            made.append(f"## {name[0].upper()}{name[1:]}")
            part = part[section.end() :]
            if not section[0].endswith("*/"):  # the section's own text continues in the same comment
                part = "/*" + part
        for comment, code in pieces_of(without_guards(part)):
            names = names_in(code)
            if names:
                made.append("### " + ", ".join(f"`{name}`" for name in names))
            if comment:
                made.append(prose(comment))
            if code.strip():
                made.append(f"```c\n{code.strip()}\n```")
    return "\n\n".join(made) + "\n"


def without_guards(text: str) -> str:
    """The text without parts that only the compiler needs: include guards, extern "C", visibility."""
    text = re.sub(r'^#ifdef __cplusplus\n(?:extern "C" \{|\})\n#endif\n', "", text, flags=re.MULTILINE)
    text = re.sub(r"^#(?:ifndef \w+_H|define \w+_H|include .*|endif.*)\n?", "", text, flags=re.MULTILINE)
    return re.sub(r"^(?:#define OFP_API .*\n)|\bOFP_API ", "", text, flags=re.MULTILINE)


# ---- the Python package ------------------------------------------------------------------------


def signature_of(node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str = "") -> str:
    """A function's signature as callers see it, without self and cls."""
    arguments = node.args
    parts = []
    positional = [*arguments.posonlyargs, *arguments.args]
    first_default = len(positional) - len(arguments.defaults)
    for place, each in enumerate(positional):
        if not (owner and place == 0 and each.arg in ("self", "cls")):
            default = arguments.defaults[place - first_default] if place >= first_default else None
            parts.append(argument_text(each, default))
    if arguments.vararg:
        parts.append("*" + argument_text(arguments.vararg, None))
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [argument_text(*each) for each in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        parts.append("**" + argument_text(arguments.kwarg, None))
    name = f"{owner}.{node.name}" if owner else node.name
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    one = f"{name}({', '.join(parts)}){returns}"
    return one if len(one) <= 100 else f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def argument_text(argument: ast.arg, default: ast.expr | None) -> str:
    text = f"{argument.arg}: {ast.unparse(argument.annotation)}" if argument.annotation else argument.arg
    if default is None:
        return text
    return f"{text} = {ast.unparse(default)}" if argument.annotation else f"{text}={ast.unparse(default)}"


def docstring_page(text: str | None) -> str:
    """A docstring as Markdown: double backquotes to single ones, examples to code."""
    made: list[str] = []
    for block in re.split(r"\n\s*\n", text or ""):
        if block.lstrip().startswith(">>>"):
            made.append(f"```pycon\n{block}\n```")
        else:
            pieces = block.replace("``", "`").split("`")  # every other one is code, which Markdown escapes itself
            pieces[::2] = [html.escape(piece, quote=False) for piece in pieces[::2]]
            made.append("`".join(pieces))
    return "\n\n".join(made)


def decorators_of(node: ast.AST) -> set[str]:
    return {ast.unparse(each).split("(")[0].split(".")[-1] for each in getattr(node, "decorator_list", [])}


def fields_of(node: ast.ClassDef, source: list[str]) -> str:
    """Fields of a dataclass or named tuple, with the comments beside them."""
    lines = []
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            comment = source[each.lineno - 1].partition("  # ")[2]
            default = f" = {ast.unparse(each.value)}" if each.value else ""
            lines.append(
                f"{each.target.id}: {ast.unparse(each.annotation)}{default}" + (f"  # {comment}" if comment else "")
            )
    return "```python\n" + "\n".join(lines) + "\n```" if lines else ""


def class_page(node: ast.ClassDef, source: list[str]) -> str:
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    made = [f"## `{node.name}`", docstring_page(ast.get_docstring(node))]
    if bases and bases != "Exception" and not bases.startswith("_"):
        made.insert(1, f"A kind of `{bases}`.")
    made.append(fields_of(node, source))
    for each in node.body:
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) or each.name.startswith("_"):
            continue
        text = docstring_page(ast.get_docstring(each))
        if "property" in decorators_of(each):
            returns = f": {ast.unparse(each.returns)}" if each.returns else ""
            made += [f"### `{node.name}.{each.name}`", f"```python\n{node.name}.{each.name}{returns}\n```", text]
        elif text or not each.name.startswith("numpy"):
            made += [f"### `{node.name}.{each.name}`", f"```python\n{signature_of(each, node.name)}\n```", text]
    return "\n\n".join(part for part in made if part)


def exported(package: Path) -> list[tuple[str, str]]:
    """(module, name) of each name for `from offpath import …`, in the order of the package's own imports."""
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    listed: list[tuple[str, str]] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module not in (None, "_native", "errors"):
            listed += [(node.module or "", alias.name) for alias in node.names]
    return listed


# Names that programs import from modules of their own, because these need more packages.
OF_MODULES = {
    "dask": ("read_pool",),
    "ray": ("read_pool", "PoolDatasource"),
    "spark": ("read_pool", "PoolDataSource"),
    "integrations.fbpic": ("ParticleDiagnostic",),
    "integrations.openpmd": ("put_iteration",),
    "flight_sql": ("FlightSqlServer",),
    "telemetry": ("start", "stop"),
    "flight_tracing": ("ClientTracing", "ServerTracing"),
    "exchange_store": ("ExchangeStore",),
}


def definition_page(node: ast.stmt, source: list[str]) -> str:
    """The page's part about a class or a function; empty for anything else."""
    if isinstance(node, ast.ClassDef):
        return class_page(node, source)
    if not isinstance(node, ast.FunctionDef):
        return ""
    return f"## `{node.name}`\n\n```python\n{signature_of(node)}\n```\n\n{docstring_page(ast.get_docstring(node))}"


def module_page(package: Path, module: str, names: tuple[str, ...]) -> str:
    """The named functions and classes of a module, below a heading of the module's own."""
    path = package / module.replace(".", "/")
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    tree = ast.parse(text)
    defined = {getattr(node, "name", ""): definition_page(node, text.split("\n")) for node in tree.body}
    below = [re.sub(r"^(##+ )", r"#\1", defined[name], flags=re.MULTILINE) for name in names]
    return "\n\n".join([f"## `offpath.{module}`", docstring_page(ast.get_docstring(tree)), *below])


def python_page(package: Path) -> str:
    """Functions and classes of the package, those of its modules, then its errors."""
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    made = ["# Python package", PYTHON_INTRO, docstring_page(ast.get_docstring(tree))]
    found = exported(package)
    order = {name: place for place, name in enumerate(("connect", "Session", "Stream", "Ticket", "Pool", "Frame"))}
    for module, name in sorted(found, key=lambda each: order.get(each[1], len(order))):
        text = (package / f"{module}.py").read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if getattr(node, "name", "") == name:
                made.append(definition_page(node, text.split("\n")))
    made += [module_page(package, *each) for each in OF_MODULES.items()]
    made.append(errors_table(package / "errors.py"))
    return "\n\n".join(made) + "\n"


def errors_table(path: Path) -> str:
    rows = ["## Errors", "Each has its place in one family, `offpath.Error`, and the code of the C interface.", ""]
    rows += ["| class | also a | code | meaning |", "|---|---|---|---|"]
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef):
            continue
        bases = [ast.unparse(base) for base in node.bases if ast.unparse(base) not in ("Error", "Exception")]
        codes = [each.value for each in node.body if isinstance(each, ast.Assign)]
        code = ast.unparse(codes[0]) if codes else ""
        text = docstring_page(ast.get_docstring(node)).replace("\n", " ")
        rows.append(f"| `{node.name}` | {', '.join(f'`{base}`' for base in bases)} | {code} | {text} |")
    return "\n".join([rows[0], "", rows[1], *rows[2:]])


# ---- the command line --------------------------------------------------------------------------


def stand_in() -> types.ModuleType:
    """Replaces the native module in a Python without a build: every name is a class, or returns one."""
    module = types.ModuleType("offpath._native")

    def of_any_name(name: str) -> Any:
        return (lambda: "0") if name == "version" else type(name, (), {})

    module.__getattr__ = of_any_name  # type: ignore[method-assign]
    return module


def help_texts() -> dict[str, str]:
    """The help of each command by its words, such as `pool ls`. Needs typer and the package's imports."""
    sys.path.insert(0, str(PACKAGE.parent))
    sys.modules["offpath._native"] = stand_in()
    sys.argv = ["offpath", "--help"]
    from offpath import cli  # type: ignore[import-not-found]
    from typer.main import get_command

    cli.mount_others()
    found: dict[str, str] = {}

    def walk(command: Any, parent: Any, words: list[str]) -> None:
        context = command.make_context(words[-1], [], parent=parent, resilient_parsing=True)
        found[" ".join(words[1:])] = command.get_help(context)
        for name, each in getattr(command, "commands", {}).items():
            walk(each, context, [*words, name])

    walk(get_command(cli.app), None, ["offpath"])
    return found


def cli_page() -> str:
    environment = {**os.environ, "TYPER_USE_RICH": "0", "NO_COLOR": "1", "COLUMNS": "100", "TERM": "dumb"}
    asked = subprocess.run([sys.executable, __file__, "--help-texts"], env=environment, capture_output=True, text=True)
    if asked.returncode != 0:
        raise RuntimeError(f"the help of `offpath` cannot be read: {asked.stderr.strip()}")
    made = ["# Command line", CLI_INTRO]
    for words, text in json.loads(asked.stdout).items():
        depth = "##" if len(words.split()) < 2 else "###"
        name = f"offpath {words}".rstrip()
        made.append(f"{depth} `{name}`\n\n```text\n{clean_help(text)}\n```")
    return "\n\n".join(made) + "\n"


def clean_help(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


# ---- metrics -----------------------------------------------------------------------------------

STRING = r'"(?:[^"\\]|\\.)*"'
# Each metric is a row of a table in *figures*.h, after the row's key and value, or is added by a call.
ROW = re.compile(rf',\s*({STRING}),\s*((?:{STRING}\s*)+|\w+_help)(?:,\s*"\w+",\s*{STRING})?\s*\}}')
CALL = re.compile(rf"\badd\(\s*({STRING})\s*,\s*((?:{STRING}\s*)+)")
TABLE = r"inline constexpr (?:Figure<[\w:]+>|LatencyFigure) (\w+)_figures\[\]"
GROUP = re.compile(rf"^(?:{TABLE}|void add_(\w+)\(Families&)", re.MULTILINE)
GROUPS = {
    "The agent": (
        "process",
        "limit",
        "acceptor",
        "loop",
        "job",
        "memory",
        "buffer",
        "cache",
        "channels",
        "jobs",
        "look_out",
        "full_rings",
    ),
    "Requests, frames and pools": ("mover", "table", "remote", "disk", "disk_status", "query", "waits"),
    "Latencies": ("latency",),
    "Members": ("group", "reach", "card"),
    "Sift": ("stage", "sifts", "track_file"),
    "Functions": ("compute", "trigger", "computes", "plugin", "plugin_call"),
    "Tasks": ("task", "message"),
    "TCP": ("tcp", "stack", "port", "tcp_service", "slow_path", "linked", "core"),
    "Exchanges": ("exchange", "exchange_status", "decision", "grant", "exchanges"),
    "Samples": ("sample", "datagram", "host", "sampled", "cost"),
    "Alarms": ("alarms",),
}
NAMED = re.compile(rf"\b(\w+_help) =\s*((?:{STRING}\s*)+)[,;]")


def joined(literals: str) -> str:
    return "".join(json.loads(each) for each in re.findall(STRING, literals))


def metrics_of(text: str) -> Iterator[tuple[str, str, str]]:
    """(group, name, help) of each metric of C++ text, in order. A group is a table, or the metrics of one function; a
    named help text is looked up above."""
    groups = [(match.start(), match[1] or match[2]) for match in GROUP.finditer(text)]
    named = {match[1]: joined(match[2]) for match in NAMED.finditer(text)}
    for match in sorted([*ROW.finditer(text), *CALL.finditer(text)], key=lambda each: each.start()):
        group = next((name for at, name in reversed(groups) if at < match.start()), "")
        yield group, joined(match[1]), joined(match[2]) if match[2].startswith('"') else named[match[2]]


def metrics_page(folder: Path) -> str:
    titles = {group: title for title, groups in GROUPS.items() for group in groups}
    sections: dict[str, dict[str, str]] = {title: {} for title in GROUPS}
    for source in [*sorted(folder.glob("*figures*.h")), *sorted(folder.glob("*metrics*.cc"))]:
        for group, name, told in metrics_of(source.read_text(encoding="utf-8")):
            plain = html.escape(told, quote=False).replace("|", "&#124;")
            kind = "histogram" if group == "latency" else "counter" if name.endswith("_total") else "gauge"
            sections[titles[group]].setdefault(name, f"| `offpath_{name}` | {kind} | {plain} |")
    made = ["# Metrics", METRICS_INTRO]
    for title, rows in sections.items():
        made.append(f"## {title}")
        made.append("\n".join(["| metric | kind | meaning |", "|---|---|---|", *rows.values()]))
    return "\n\n".join(made) + "\n"


# ---- MkDocs ------------------------------------------------------------------------------------

PAGES: dict[str, Callable[[], str]] = {
    "reference/c.md": lambda: header_page(LIBRARY[0], "C interface", C_INTRO, *LIBRARY[1:]),
    "reference/plugin.md": lambda: header_page(ROOT / "include/offpath/plugin.h", "Plug-in interface", PLUGIN_INTRO),
    "reference/decision.md": lambda: header_page(ROOT / "include/offpath/decision.h", "Decisions", DECISION_INTRO),
    "reference/python.md": lambda: python_page(PACKAGE),
    "reference/cli.md": cli_page,
    "reference/metrics.md": lambda: metrics_page(METRICS),
}


def on_files(files: Any, config: Any) -> Any:
    """Called by MkDocs: adds the pages to those of docs/."""
    from mkdocs.structure.files import File

    for path, make in PAGES.items():
        files.append(File.generated(config, path, content=make()))
    return files


if __name__ == "__main__" and sys.argv[1:] == ["--help-texts"]:
    print(json.dumps(help_texts()))
