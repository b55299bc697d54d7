#!/usr/bin/env python3
"""Checks for obstacles to reading: long files and functions, vague names, leftovers, stray whitespace.

Usage: tidy.py [ROOT]. Prints `file:line: problem`; exits 1 if a hard limit or rule is broken. Lines with
`warning` are hints to look again and do not fail.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

FILE_LINES_SIGN, FILE_LINES_MAX = 600, 800
FUNCTION_LINES_SIGN, FUNCTION_LINES_MAX = 70, 120

CODE = {".cc", ".h", ".hpp", ".c", ".py", ".sh", ".f90"}
TEXT = CODE | {".md", ".txt", ".toml", ".json", ".cmake", ".in", ".fbs", ".service", ".yml", ""}
SKIPPED = {"LICENSE"}

VAGUE = ("util", "utils", "utility", "utilities", "helper", "helpers", "manager", "common", "misc")
VAGUE_TYPE = re.compile(
    r"\b(?:class|struct|namespace)\s+(\w*(?:Util|Utils|Helper|Helpers|Manager)|" + "|".join(VAGUE) + r")\b"
)
LEFTOVER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")) + r")\b")
# "of" for every relation: say which one it is (lies_in_pool, concerns, is_multicast).
ANY_RELATION = re.compile(r"\w*is" + r"_of_\w*")
# Folders of developers' checkouts; nothing in the project may depend on them.
OWN_MACHINE = re.compile(r"(?<![\w./}-])/(?:work|home|root)/\w")

CELL_COLUMNS_MAX = 240
NOT_ENGLISH = re.compile(
    r"(?:^|[.:;] )Who (?:is|has|are|was|may) (?!.*\?)"
    r"|(?:^|[.:;] )What (?!must hold\b)[a-z](?!.*\?)"
    r"|(?:^|[.:;] )Who leads\."
    r"|(?:^|[.:;,] )[Ww]hat it says is\b"
    r"|(?<!there )\b(?:is|are|was) none(?= any more|[.;:]|$)"
    r"|\bis one no more\b|\bas it is meant\b|\beach other one\b"
)

Problem = tuple[int, str]
STRING_OR_COMMENT = re.compile(
    r"//[^\n]*"
    r"|/\*.*?\*/"
    r'|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",  # but not the ' of 1'000
    re.DOTALL,
)
NOT_A_FUNCTION = re.compile(r"^(?:extern \"\"$|namespace\b|(?:typedef\s+)?(?:class|struct|enum|union)\b)")

BEFORE_SIGNATURE = re.compile(r"^(?:\s|template\s*<[^{};]*?>\s*\n|(?:public|private|protected):)+")


def blank(match: re.Match[str]) -> str:
    """Replaces a string or comment by the newlines that it spans, so that line numbers stay."""
    return '""' + "\n" * match[0].count("\n")


def c_functions(text: str) -> Iterator[tuple[int, int, str]]:
    """(first line, last line, signature) of each function body of C or C++ text, by its braces."""
    text = STRING_OR_COMMENT.sub(blank, text)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m[0].count("\n"), text, flags=re.MULTILINE)
    depth = 0
    function_depth = None
    first_line, signature = 0, ""
    statement_start = 0
    for match in re.finditer(r"[{};]", text):
        at = match.start()
        if match[0] == "{":
            statement = BEFORE_SIGNATURE.sub("", text[statement_start:at])
            if function_depth is None and "(" in statement and not NOT_A_FUNCTION.match(statement):
                function_depth = depth
                signature = " ".join(statement.split())
                first_line = text.count("\n", 0, at - len(statement.rstrip("\n"))) + 1
            depth += 1
            statement_start = at + 1
        elif match[0] == "}":
            depth -= 1
            statement_start = at + 1
            if function_depth == depth:
                yield first_line, text.count("\n", 0, at) + 1, signature
                function_depth = None
        else:
            statement_start = at + 1


def python_functions(text: str) -> Iterator[tuple[int, int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.end_lineno or node.lineno, node.name


def check_lengths(path: Path, text: str) -> Iterator[Problem]:
    lines = text.count("\n")
    if lines > FILE_LINES_MAX:
        yield 1, f"{lines} lines, at most {FILE_LINES_MAX}"
    elif lines > FILE_LINES_SIGN:
        yield 1, f"warning: {lines} lines, more than {FILE_LINES_SIGN}"
    functions = python_functions if path.suffix == ".py" else c_functions
    if path.suffix not in {".py", ".cc", ".h", ".hpp", ".c"}:
        return
    for first, last, signature in functions(text):
        length = last - first + 1
        name = signature if len(signature) <= 60 else signature[:57] + "..."
        if length > FUNCTION_LINES_MAX:
            yield first, f"function of {length} lines, at most {FUNCTION_LINES_MAX}: {name}"
        elif length > FUNCTION_LINES_SIGN:
            yield first, f"warning: function of {length} lines, more than {FUNCTION_LINES_SIGN}: {name}"


def check_lines(path: Path, text: str) -> Iterator[Problem]:
    code = path.suffix in CODE
    for number, line in enumerate(text.split("\n"), start=1):
        if line != line.rstrip():
            yield number, "whitespace at the end of the line"
        if "\t" in line and path.name not in ("Makefile", "rules"):
            yield number, "tab"
        if code and (match := LEFTOVER.search(line)):
            yield number, f"{match[1]} left in the code"
        if code and path.suffix != ".py" and (match := VAGUE_TYPE.search(line)):
            yield number, f"vague name: {match[1]}"
        if code and (match := ANY_RELATION.search(line)):
            yield number, f"vague name: {match[0]}"
        if OWN_MACHINE.search(line):
            yield number, "path of a developer's machine"
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end of the file"


def check_names(path: Path) -> Iterator[Problem]:
    for part in path.parts:
        for word in re.split(r"[_.\-]", part.lower()):
            if word in VAGUE:
                yield 1, f"vague name: {part}"


def check_header(path: Path, text: str) -> Iterator[Problem]:
    """Headers guard themselves: #pragma once, or in the C interface an include guard."""
    if path.suffix not in {".h", ".hpp"} or "#pragma once" in text:
        return
    if path.parts[0] == "include" and re.search(r"#ifndef (\w+)\n#define \1\n", text):
        return
    yield 1, "#pragma once is missing"


def check_includes(path: Path, text: str) -> Iterator[Problem]:
    """fmt from 11 on has join in ranges.h alone."""
    if path.suffix in {".cc", ".h", ".hpp"} and "#include <fmt/ranges.h>" not in text:
        if used := re.search(r"\bfmt::join\b", text):
            yield text.count("\n", 0, used.start()) + 1, "fmt::join needs #include <fmt/ranges.h>"


def comments(path: Path, text: str) -> Iterator[Problem]:
    """(line, text) of each line of prose: comments of code, docstrings of Python, Markdown outside of blocks."""
    lines = text.split("\n")
    if path.suffix == ".md":
        in_block = False
        for number, line in enumerate(lines, start=1):
            in_block ^= line.lstrip().startswith("```")
            if not in_block:
                yield number, line
    elif path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string.lstrip("# ")
            elif token.type == tokenize.STRING and token.string.startswith('"""'):
                for at, line in enumerate(token.string[3:].split("\n")):
                    yield token.start[0] + at, line.strip()
    elif path.suffix in {".cc", ".h", ".hpp", ".c"}:
        for match in STRING_OR_COMMENT.finditer(text):
            if match[0].startswith("//"):
                yield text.count("\n", 0, match.start()) + 1, match[0].lstrip("/ ")


def check_english(path: Path, text: str) -> Iterator[Problem]:
    """Sentences whose subject is missing, and table cells that nobody reads to their end."""
    if path.parts[0] == "bench" and path.suffix == ".md":
        return  # histories
    for number, line in comments(path, text):
        if match := NOT_ENGLISH.search(line):
            yield number, f"name the subject and what it does, not '{match[0].strip()}'"
        if path.suffix == ".md" and line.startswith("|"):
            longest = max(len(cell.strip()) for cell in re.split(r"(?<!\\)\|", line))
            if longest > CELL_COLUMNS_MAX:
                yield number, f"a table cell of {longest} columns, at most {CELL_COLUMNS_MAX}: two lines"


def check_file(root: Path, path: Path) -> list[tuple[int, str]]:
    """All problems of one file: (line, text), warnings included. `path` is relative to `root`."""
    problems = list(check_names(path))
    if path.suffix not in TEXT or path.name in SKIPPED:
        return problems
    try:
        text = (root / path).read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return problems
    problems += check_lines(path, text)
    problems += check_header(path, text)
    problems += check_includes(path, text)
    problems += check_english(path, text)
    if path.suffix in CODE:
        problems += check_lengths(path, text)
    return sorted(problems)


def files_of(root: Path) -> list[Path]:
    """The files of the project: those that git tracks, else all."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True)
    names = listed.stdout.split("\0") if listed.returncode == 0 else []
    paths = [Path(name) for name in names if name] or [file.relative_to(root) for file in root.rglob("*")]
    return sorted(path for path in paths if (root / path).is_file() and not (root / path).is_symlink())


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    failed = False
    for path in files_of(root):
        for line, text in check_file(root, path):
            print(f"{path}:{line}: {text}")
            failed = failed or not text.startswith("warning")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
