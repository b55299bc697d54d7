"""Differences of the C interfaces are classified: additions, and breaks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import c_abi
import pytest
from header_version import library_headers

ROOT = Path(__file__).resolve().parent.parent
HEADER = """
#ifdef __cplusplus
extern "C" {
#endif
#define OFP_LIMIT 7u
typedef enum ofp_kind { OFP_A, OFP_B = 4, /* four */ OFP_C } ofp_kind;
typedef struct ofp_thing ofp_thing;
typedef struct ofp_options {
  uint32_t struct_bytes;
  const char* name; /* or NULL */
} ofp_options;
typedef struct ofp_pair {
  int32_t a[2];
} ofp_pair;
typedef int (*ofp_call)(void* user);
OFP_API int ofp_open(const char* name, const ofp_options* options,
                     ofp_thing** thing);
static inline void ofp_set(uint64_t* slot) { *slot = 1; }
#ifdef __cplusplus
}
#endif
"""


def test_every_declaration_has_a_line() -> None:
    assert c_abi.lines_of(HEADER) == [
        "macro OFP_LIMIT 7u",
        "enum ofp_kind: OFP_A = 0", "enum ofp_kind: OFP_B = 4", "enum ofp_kind: OFP_C = 5",
        "type struct ofp_thing ofp_thing",
        "struct ofp_options 0: uint32_t struct_bytes", "struct ofp_options 1: const char *name",
        "struct ofp_pair 0: int32_t a[2]",
        "type int (*ofp_call)(void *user)",
        "function ofp_open: int (const char *, const ofp_options *, ofp_thing **)",
        "inline void ofp_set(uint64_t *slot)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        ("ofp_thing** thing", "ofp_thing** opened", set()),  # a name only
        ("/* four */", "", set()),
        ("OFP_C }", "OFP_C, OFP_D }", {"addition"}),
        ("OFP_API int", "OFP_API void ofp_shut(ofp_thing* thing);\nOFP_API int", {"addition"}),
        ("} ofp_options", "uint32_t more;\n} ofp_options", {"addition"}),
        ("typedef int (", "typedef struct ofp_new { int x; } ofp_new;\ntypedef int (", {"addition"}),
        ("  const char* name;", "  uint32_t more;\n  const char* name;", {"break", "addition"}),
        ("} ofp_pair", "int b;\n} ofp_pair", {"break"}),  # of unknown size to the library
        ("OFP_B = 4", "OFP_B = 5", {"break", "addition"}),
        ("const char* name, const", "const", {"break", "addition"}),
        ("7u", "8u", {"break", "addition"}),
    ],
)
def test_a_change_is_an_addition_or_a_break(old: str, new: str, kinds: set[str]) -> None:
    assert HEADER.count(old) == 1
    before, now = (c_abi.lines_of(text) for text in (HEADER, HEADER.replace(old, new)))
    assert {kind for kind, _ in c_abi.differences(before, now)} == kinds


def test_what_cannot_be_read_is_an_error() -> None:
    for wrong in ("int x = {1};", "typedef enum e { A = sizeof(int) } e;", "int unfinished"):
        with pytest.raises(c_abi.AbiError):
            c_abi.lines_of(wrong)


def test_a_break_needs_a_version_that_permits_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def outcome(version: str, *lines: str) -> int:
        monkeypatch.setattr(c_abi, "interface", lambda _: [f"version {version}", *lines])
        return c_abi.main()

    monkeypatch.setattr(c_abi, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["c_abi.py"])
    (tmp_path / "packaging").mkdir()
    (tmp_path / c_abi.TEXT).write_text("# a comment\nversion 0.3.1\nmacro A 1\n")
    assert outcome("0.3.1", "macro A 1") == 0
    assert outcome("0.3.2", "macro A 1", "macro B 1") == 0
    assert [outcome(version) for version in ("0.3.1", "0.3.2", "0.4.0", "1.0.0")] == [1, 1, 0, 0]
    (tmp_path / c_abi.TEXT).write_text("version 1.3.0\nmacro A 1\n")
    assert [outcome(version) for version in ("1.4.0", "2.0.0")] == [1, 0]


def test_every_function_and_struct_of_the_headers_is_found() -> None:
    lines = c_abi.interface(ROOT)
    header = c_abi.without_comments(library_headers())
    exported = re.findall(r"^OFP_API [^;(]*?(\w+)\(", header, re.MULTILINE)
    assert len(exported) > 90 and [name for name in exported if not any(f"function {name}: " in e for e in lines)] == []
    structs = re.findall(r"^\} (\w+);", header, re.MULTILINE)
    assert len(structs) > 20 and [name for name in structs if not any(f" {name}" in line for line in lines)] == []


def test_the_command_compares_this_tree() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools/c_abi.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
