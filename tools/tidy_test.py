"""tidy.py finds each kind of problem, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import tidy


def problems_of(root: Path, path: str, text: str) -> list[str]:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(text.encode())
    return [f"{line}: {message}" for line, message in tidy.check_file(root, Path(path))]


HEADER = "#pragma once\n"
SUBJECT_MISSING = "Who " + "is killed under the lock leaves counts.\n"
NAME_IT = "name the subject and what it does, not "


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("src/base/x.cc", "int a;  \n", "1: whitespace at the end of the line"),
        ("docs/x.md", "one\ntwo \n", "2: whitespace at the end of the line"),
        ("src/base/x.cc", "\tint a;\n", "1: tab"),
        ("src/base/x.cc", "int a;", "1: no newline at the end of the file"),
        ("src/base/x.cc", "int a;\n// TO" + "DO: b\n", "2: TO" + "DO left in the code"),
        ("python/x.py", "a = 1  # FIX" + "ME\n", "1: FIX" + "ME left in the code"),
        ("src/base/x.h", "int a;\n", "1: #pragma once is missing"),
        ("src/base/string_utils.h", HEADER, "1: vague name: string_utils.h"),
        ("src/common/x.h", HEADER, "1: vague name: common"),
        ("src/base/x.h", HEADER + "class BufferManager {\n};\n", "2: vague name: BufferManager"),
        ("src/base/x.h", HEADER + "namespace util {\n}\n", "2: vague name: util"),
        ("src/base/x.cc", "bool is" + "_of_pool();\n", "1: vague name: is" + "_of_pool"),
        ("docs/x.md", "see /ho" + "me/me/notes\n", "1: path of a developer's machine"),
        ("src/base/x.cc", "int a;\nauto b = fmt::join(c, d);\n", "2: fmt::join needs #include <fmt/ranges.h>"),
        ("docs/x.md", f"| a |\n|---|\n| {'b' * 241} |\n", "3: a table cell of 241 columns, at most 240: two lines"),
        ("src/base/x.cc", "int a;  // " + SUBJECT_MISSING, f"1: {NAME_IT}'Who is'"),
        ("python/x.py", f'"""A module.\n\n{SUBJECT_MISSING}"""\n', f"3: {NAME_IT}'Who is'"),
        ("src/base/x.cc", "int a;  // Wh" + "at the ports share.\n", f"1: {NAME_IT}'Wh" + "at t'"),
        ("docs/x.md", "They are fast. Wh" + "at may run elsewhere is it.\n", f"1: {NAME_IT}'. Wh" + "at m'"),
        ("docs/x.md", "A late piece is no" + "ne.\n", f"1: {NAME_IT}'is no" + "ne'"),
        ("src/base/x.cc", "int a;\n" * 801, "1: 801 lines, at most 800"),
        ("src/base/x.cc", "int a;\n" * 601, "1: warning: 601 lines, more than 600"),
    ],
)
def test_finds(tmp_path: Path, path: str, text: str, expected: str) -> None:
    assert problems_of(tmp_path, path, text) == [expected]
    assert tidy.main([str(tmp_path)]) == (0 if "warning" in expected else 1)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/base/x.h", HEADER + "using T = std::common_type_t<int, long>;\n"),
        ("include/offpath/x.h", "#ifndef X_H\n#define X_H\n#endif\n"),
        ("docs/x.md", "runs as root; ${HOME}/home/x is fine, and so is https://example.org/home/x\n"),
        ("src/base/x.cc", "#include <fmt/ranges.h>\nauto a = fmt::join(b, c);\n"),
        ("src/base/x.cc", "int a;\n" * 600),
        ("docs/x.md", f"Who is asked first? Where there is none, {'b' * 241}.\n```\n| {'b' * 241} |\n```\n"),
        ("src/base/x.cc", "// Worlds by seed. What must hold:\n// What is it? And what else?\n"),
        ("docs/x.md", "## What travels\n"),
        ("docs/x.md", f"| a | b |\n|---|---|\n| {'b' * 240} | `c\\|{'d' * 200}` |\n"),
        ("src/base/x.cc", 'auto a = "Who is there";  // known values are none, lz4 and zstd\n'),
        ("bench/results/x.md", f"| {'b' * 241} |\n"),
    ],
)
def test_allows(tmp_path: Path, path: str, text: str) -> None:
    assert problems_of(tmp_path, path, text) == []


def test_length_of_c_functions() -> None:
    body = '  do_something({1, 2}, "}");  // }\n' * 10
    text = (
        "namespace offpath {\n"
        "int table[] = {\n1,\n2};\n"
        "struct S {\n  int f() const noexcept {\n    if (a) {\n      return 1;\n    }\n    return '}';\n  }\n};\n"
        "template <class T>\nint g(int a,\n      int b) {\n" + body + "}\n"
        "TEST(Suite, Name) {\n" + body + "}\n"
        "}\n"
    )
    assert [(last - first + 1, signature) for first, last, signature in tidy.c_functions(text)] == [
        (6, "int f() const noexcept"),
        (13, "int g(int a, int b)"),
        (12, "TEST(Suite, Name)"),
    ]


@pytest.mark.parametrize(("lines", "verdict"), [(60, ""), (80, "warning: function of 82"), (130, "function of 132")])
def test_limits_of_functions(tmp_path: Path, lines: int, verdict: str) -> None:
    in_c = problems_of(tmp_path, "src/base/x.cc", "void f() {\n" + "  g();\n" * lines + "}\n")
    in_python = problems_of(tmp_path, "python/x.py", "def f():\n    g()\n" + "    g()\n" * lines)
    for found in (in_c, in_python):
        assert len(found) == (1 if verdict else 0)
        assert all(verdict in text for text in found)
