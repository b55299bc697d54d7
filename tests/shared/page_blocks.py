"""The code blocks of a page, with their markers. docs/internals/hacking.md explains the markers."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

from page_needs import KNOWN

ROOT = Path(__file__).resolve().parents[2]

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*).*$")
PRINTS = re.compile(r"^ *<!-- prints -->$")  # in front of a block of text: the output of the block above it
ELLIPSIS = "…"  # in such a block: anything
MARKER = re.compile(r"^ *<!-- needs: (?P<needs>.+) -->$")
SNIPPET = re.compile(r'^--8<-- "(?P<path>.+)"$')
LIKE_SNIPPET = re.compile(r"^ *-+ *8 *<")


class BlockFailed(AssertionError):
    """A block of a page whose effect was not as the page says."""


@dataclass(frozen=True)
class Block:
    page: Path
    line: int  # of the first line of its code
    language: str
    needs: frozenset[str]
    marker: str  # as written; may be empty
    code: str
    prints: str | None = None  # its output as shown by the page

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def reasons(self) -> set[str]:
        """Why it does not run here."""
        return set(self.needs - KNOWN)

    @property
    def name(self) -> str:
        """Of the file that its first line names, a comment."""
        return self.code.splitlines()[0].removeprefix("#").strip()


def blocks_of(page: Path) -> list[Block]:
    """Every fenced block of a page, except those that show another's output."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").split("\n")
    opened: re.Match[str] | None = None
    first = 0
    for number, line in enumerate(lines, 1):
        if opened is None:
            opened, first = FENCE.match(line), number + 1
            continue
        if line.strip() != "```":
            continue
        text = textwrap.dedent("\n".join(lines[first - 1 : number - 1])) + "\n"
        before = lines[first - 3] if first > 2 else ""
        if PRINTS.match(before):
            found[-1] = replace(found[-1], prints=text)
        else:
            marker = MARKER.match(before)
            needs = frozenset(re.split(r"[;,] ", marker["needs"])) if marker else frozenset()
            words = marker["needs"] if marker else ""
            found.append(Block(page, first, opened["language"], needs, words, with_snippets(text)))
        opened = None
    return found


def check_output(block: Block, said: str, so_far: bool = False) -> None:
    """Raises BlockFailed if the block printed something else than its page shows; ``so_far``: unless that is a part of
    it. Spaces are compared as one."""
    if block.prints is None:
        return
    shown = " ".join(block.prints.split())
    pattern = re.compile(".*".join(re.escape(part.strip()) for part in shown.split(ELLIPSIS)))
    compare = pattern.search if so_far else pattern.fullmatch
    if not compare(" ".join(said.split())):
        raise BlockFailed(f"{block.place}: the page shows\n{block.prints}\nbut it printed\n{said}")


def with_snippets(code: str) -> str:
    """The code with files in place of the lines that include them, as the site shows it."""
    lines = [SNIPPET.match(line) or line for line in code.split("\n")]
    return "\n".join(each if isinstance(each, str) else (ROOT / each["path"]).read_text("utf-8") for each in lines)
