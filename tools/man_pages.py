#!/usr/bin/env python3
"""Writes manual pages from the help texts of the programs themselves.

Usage: tools/man_pages.py OUTPUT NAME [COMMAND…]. NAME is the page's, such as offpath-agent; COMMAND runs the program
(a path, an emulator before it), whose --help becomes the page. Without a COMMAND the page is that of the command
`offpath` of the Python package, with a section for each of its commands.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from header_version import header_version

ROOT = Path(__file__).resolve().parent.parent
SEE_ALSO = ("offpath", "offpath-agent", "offpath-sampler", "offpath-region-sampler", "offpath-slow-path",
            "offpath-supervisor", "offpath-topology")  # fmt: skip
ENVIRONMENT = {
    "OFFPATH_AGENT": "The agent's address where no option names it; without it, the agent that listens by default.",
    "OFFPATH_AGENT_HTTP": "The address of the agent's pages, such as 127.0.0.1:9477.",
    "OFFPATH_KEY_FILE": "The key that is shared with agents on other machines.",
}
HEADING = re.compile(r"^([A-Z][A-Za-z ]*):$")
USAGE = re.compile(r"^usage: *", re.IGNORECASE)
ENTRY = re.compile(r"^ {2}(\S.*?)(?: {2,}(\S.*))?$")


def roff(text: str) -> str:
    """Text that roff shows unchanged."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return re.sub(r"(?m)^(?=[.'])", r"\\&", plain)


def entries_of(lines: list[str]) -> Iterator[tuple[str, str]]:
    """(name, description) of an indented list; a description may continue on lines that are indented further."""
    name, told = "", [""]
    for line in lines:
        match = ENTRY.match(line)
        if match:
            if name:
                yield name, " ".join(told).strip()
            name, told = match[1], [match[2] or ""]
        elif line.strip():
            told.append(line.strip())
    if name:
        yield name, " ".join(told).strip()


class Help:
    """A help text taken apart: usage, description, and lists such as Options."""

    def __init__(self, text: str) -> None:
        self.usage, self.description = "", []
        self.lists: dict[str, list[str]] = {}
        heading = None
        for line in text.strip("\n").split("\n"):
            if USAGE.match(line) and not self.usage:
                self.usage = USAGE.sub("", line)
            elif match := HEADING.match(line):
                heading = match[1]
                self.lists[heading] = []
            elif heading is not None:
                self.lists[heading].append(line)
            else:
                self.description.append(line.strip())

    @property
    def paragraphs(self) -> list[str]:
        whole = "\n".join(self.description).strip()
        return [" ".join(part.split("\n")) for part in re.split(r"\n\s*\n", whole) if part.strip()]

    @property
    def summary(self) -> str:
        """The first sentence, in the form of a name section."""
        first = re.split(r"(?<=\.)\s", self.paragraphs[0])[0].rstrip(".") if self.paragraphs else ""
        return first[:1].lower() + first[1:] if not first[1:2].isupper() else first


def usage_of(text: str, name: str) -> str:
    """The usage line, with the program's name instead of the path that was run."""
    return f"{name} {text.split(' ', 1)[1] if ' ' in text else ''}".rstrip()


def list_section(heading: str, lines: list[str], macro: str) -> Iterator[str]:
    yield f"{macro} {heading.upper() if macro == '.SH' else heading}"
    for term, told in entries_of(lines):
        yield f".TP\n.B {roff(term)}\n{roff(told) or chr(92) + '&'}"


def page(name: str, parts: list[str], version: str) -> str:
    title = f'.TH {name.upper()} 1 "" "Offpath {version}" "User Commands"'
    others = [f".BR {roff(other)} (1)" for other in SEE_ALSO if other != name]
    return "\n".join([title, *parts, ".SH SEE ALSO", " ,\n".join(others)]) + "\n"


def program_page(name: str, text: str, version: str) -> str:
    told = Help(text)
    parts = [f".SH NAME\n{roff(name)} \\- {roff(told.summary)}", f".SH SYNOPSIS\n.B {roff(usage_of(told.usage, name))}"]
    parts += [".SH DESCRIPTION", "\n.PP\n".join(map(roff, told.paragraphs))]
    for heading, lines in told.lists.items():
        parts += list_section(heading, lines, ".SH")
    return page(name, parts, version)


def offpath_page(texts: dict[str, str], version: str) -> str:
    """The page of the command, with a section for each command of ``texts`` (docs_pages.help_texts)."""
    whole = Help(texts[""])
    parts = [f".SH NAME\noffpath \\- {roff(whole.summary)}", f".SH SYNOPSIS\n.B {roff(whole.usage)}"]
    parts += [".SH DESCRIPTION", "\n.PP\n".join(map(roff, whole.paragraphs))]
    parts += list_section("Options", whole.lists.get("Options", []), ".SH")
    parts.append(".SH COMMANDS")
    for words, text in texts.items():
        if not words:
            continue
        told = Help(text)
        parts.append(f".SS offpath {roff(words)}")
        parts.append("\n.PP\n".join(map(roff, [told.usage, *told.paragraphs])))
        for heading, lines in told.lists.items():
            if heading != "Commands":
                parts += [f".PP\n{roff(heading)}:", *list(list_section("", lines, ".PP"))[1:]]
    parts.append(".SH ENVIRONMENT")
    parts += [f".TP\n.B {variable}\n{roff(told)}" for variable, told in ENVIRONMENT.items()]
    return page("offpath", parts, version)


def help_of(command: list[str]) -> str:
    """The help text of a program. A program without the option prints its usage as an error."""
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=60)
    text = done.stdout or done.stderr
    if not re.search(r"(?im)^usage:", text):
        raise RuntimeError(f"{' '.join(command)} --help gives no usage: {text.strip()}")
    return text


def made_page(name: str, command: list[str]) -> str:
    if command:
        return program_page(name, help_of(command), header_version())
    os.environ |= {
        "TYPER_USE_RICH": "0",
        "NO_COLOR": "1",
        "COLUMNS": "100",
        "TERM": "dumb",
    }  # read as typer is imported
    sys.path.insert(0, str(ROOT / "tools"))
    from docs_pages import help_texts

    return offpath_page(help_texts(), header_version())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(made_page(sys.argv[2], sys.argv[3:]), encoding="utf-8")
