#!/usr/bin/env python3
"""Compares the C interfaces with those of the last release: packaging/c_abi.txt.

Usage: tools/c_abi.py          prints every difference, as an addition or as a break. Exits 1 if there is a break that
                               the version in offpath.h does not permit (docs/reference/stability.md).
       tools/c_abi.py --write  records the present headers, for each release.

The text has one line for each thing that programs are compiled with: a function with the types of its parameters, an
enumerator with its number, a member of a struct with its place in the order, a type, a macro. It is read from the
headers, which are plain declarations; text that this program cannot read is an error.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from header_version import LIBRARY_HEADERS, header_version

ROOT = Path(__file__).resolve().parent.parent
HEADERS = (*LIBRARY_HEADERS, "plugin.h", "decision.h")
TEXT = Path("packaging/c_abi.txt")
HEAD = "# The C interfaces of the last release, made by tools/c_abi.py --write. ./dev lint compares include/offpath.\n"
NOT_THE_INTERFACE = re.compile(r"^OFP_VERSION_|_H$|^OFP_(?:API|PLUGIN_EXPORT)$")


class AbiError(ValueError):
    """A declaration that cannot be read."""


def spaced(text: str) -> str:
    """One way of writing a declaration."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"\s*\*\s*", " *", text)
    return re.sub(r"\(\s+|\s+(?=[,)])", lambda found: found[0].strip(), text).replace("* *", "**")


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)


def declarations(text: str) -> list[str]:
    """Declarations that end with a semicolon outside of braces and brackets, or with the brace of an inline
    function."""
    found, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "{(") - (letter in "})")
        if letter == ";" and depth == 0:
            found.append(text[start:place])
            start = place + 1
        elif letter == "}" and depth == 0 and re.match(r"\s*static inline\b", text[start:place]):
            found.append(text[start : place + 1])
            start = place + 1
    if text[start:].strip():
        raise AbiError(f"not a declaration: {spaced(text[start:])[:100]}")
    return [each for each in (spaced(each) for each in found) if each]


def lines_of(header: str) -> list[str]:
    """The interface of one header's text."""
    text = without_comments(header).replace("\\\n", " ")
    lines = []
    for name, parameters, value in re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)]*\))?[ \t]*(.*)$", text, re.M):
        if not NOT_THE_INTERFACE.search(name):
            lines.append(f"macro {name}{spaced(parameters)} {spaced(value)}".rstrip())
    text = re.sub(r"#[ \t]*ifdef[ \t]+__cplusplus.*?#[ \t]*endif", " ", text, flags=re.DOTALL)
    text = re.sub(r"^[ \t]*#.*$", " ", text, flags=re.MULTILINE)
    text = re.sub(r"\b(?:OFP_API|OFP_PLUGIN_EXPORT)\b", " ", text)
    for declaration in declarations(text):
        lines += of_declaration(declaration)
    return lines


def of_declaration(text: str) -> list[str]:
    if text.startswith("static inline"):
        return [f"inline {spaced(text.removeprefix('static inline').partition('{')[0])}"]
    if kind := re.match(r"(?:typedef )?(enum|struct|union) ?(\w*) ?\{(.*)\} ?(\w*)$", text):
        name = kind[4] or kind[2]
        if kind[1] == "enum":
            return enumerators(name, kind[3])
        members = [spaced(member) for member in kind[3].split(";") if member.strip()]
        return [f"{kind[1]} {name} {place}: {member}" for place, member in enumerate(members)]
    if "{" in text:
        raise AbiError(f"neither a type nor a function: {text[:100]}")
    if text.startswith("typedef "):
        return [f"type {text.removeprefix('typedef ')}"]
    if named := re.match(r"((?:const )?[\w ]+?[ *]+)(\w+)\((.*)\)$", text):
        types = ", ".join(map(without_name, named[3].split(", ")))
        return [f"function {named[2]}: {named[1].strip()} ({types})"]
    if re.fullmatch(r"(?:struct|enum) \w+", text):
        return []
    raise AbiError(f"not a declaration: {text[:100]}")


def without_name(parameter: str) -> str:
    """`const char *` of `const char *address`: a parameter may be renamed."""
    named = re.fullmatch(r"(.*[ *])\w+((?:\[\w*\])*)", parameter)
    return parameter if named is None else named[1].strip() + named[2]


def enumerators(name: str, body: str) -> list[str]:
    lines, following = [], 0
    for each in filter(None, (part.strip() for part in body.split(","))):
        label, _, value = (part.strip() for part in each.partition("="))
        if value:
            if not re.fullmatch(r"[\dxXa-fA-FuUlL() <|-]+", value):
                raise AbiError(f"{name}: the number of {label} is not written as one: {value}")
            following = int(eval(re.sub(r"(?<=[\da-fA-F])[uUlL]+", "", value), {"__builtins__": {}}))
        lines.append(f"enum {name}: {label} = {following}")
        following += 1
    return lines


def interface(root: Path) -> list[str]:
    texts = [(root / "include" / "offpath" / header).read_text(encoding="utf-8") for header in HEADERS]
    return [f"version {header_version(root)}", *(line for text in texts for line in lines_of(text))]


def differences(before: list[str], now: list[str]) -> list[tuple[str, str]]:
    """(addition or break, what). A member at the end of a struct is an addition if `struct_bytes` tells its size."""
    old, new = set(before), set(now)
    found = [("break", f"gone or changed: {line}") for line in before if line not in new]
    for line in (line for line in now if line not in old):
        member = re.match(r"(?:struct|union) (\w+) \d+:", line)
        of_struct = [each for each in before if member and re.match(rf"(?:struct|union) {member[1]} \d", each)]
        breaks = of_struct and not any(each.endswith(" struct_bytes") for each in of_struct)
        found.append(("break" if breaks else "addition", line))
    return found


def series(version: str) -> tuple[int, ...]:
    """The part of a version within which nothing breaks: 0.y before 1.0, then the major number."""
    major, minor = map(int, version.removeprefix("version ").split(".")[:2])
    return (major, minor) if major == 0 else (major,)


def main() -> int:
    now = interface(ROOT)
    path = ROOT / TEXT
    if sys.argv[1:] == ["--write"]:
        path.write_text(HEAD + "".join(f"{line}\n" for line in now), encoding="utf-8")
        return 0
    before = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    found = differences(before[1:], now[1:])
    for kind, what in found:
        print(f"{TEXT}: {kind}: {what}")
    if not any(kind == "break" for kind, _ in found) or series(now[0]) > series(before[0]):
        return 0
    print(f"programs of {before[0]} break, and this is {now[0]}: see docs/reference/stability.md. Before the first "
          "release, tools/c_abi.py --write takes the change")  # fmt: skip
    return 1


if __name__ == "__main__":
    sys.exit(main())
