#!/usr/bin/env python3
"""Builds the documentation into build/docs, strictly, and checks that no page loads anything from elsewhere.

Usage: ./dev docs, which installs MkDocs first (packages/docs.txt); or tools/docs_site.py [DIRECTORY]. Prints one line
for each problem and exits 1 if there is any. Needs no network.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOADED = {
    **dict.fromkeys(("script", "img", "iframe", "source", "audio", "video", "embed"), "src"),
    **dict.fromkeys(("link", "use", "base"), "href"),
    "object": "data",
}
ELSEWHERE = re.compile(r"\s*(?:[a-z]+:)?//", re.IGNORECASE)
IN_STYLE = re.compile(r"""(?:@import\s*(?:url\()?|url\()\s*["']?((?:https?:)?//[^"')\s]+)""", re.IGNORECASE)
PAGES_ONLY = {"canonical", "next", "prev", "alternate", "license"}  # links that a browser does not load


class Loads(HTMLParser):
    """The addresses that a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "link" and set(given.get("rel", "").split()) & PAGES_ONLY:
            return
        if tag in LOADED:
            self.addresses.append(given.get(LOADED[tag], ""))
        self.addresses += [part.split()[0] for part in given.get("srcset", "").split(",") if part.split()]
        self.addresses += IN_STYLE.findall(given.get("style", ""))
        self.in_style = tag == "style"

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.addresses += IN_STYLE.findall(data)


def foreign_assets(site: Path) -> Iterator[str]:
    """`file: address` of everything that a page or style sheet loads from elsewhere."""
    for file in sorted(site.rglob("*")):
        addresses: list[str] = []
        if file.suffix == ".html":
            loads = Loads()
            loads.feed(file.read_text(encoding="utf-8"))
            addresses = [address for address in loads.addresses if ELSEWHERE.match(address)]
        elif file.suffix == ".css":
            addresses = IN_STYLE.findall(file.read_text(encoding="utf-8"))
        yield from (f"{file.relative_to(site)}: {address}" for address in addresses)


def main(arguments: list[str]) -> int:
    site = Path(arguments[0]).resolve() if arguments else ROOT / "build" / "docs"
    # Not --quiet: warnings that are not logged are not counted.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    if built.returncode != 0:
        lines = built.stderr.splitlines(keepends=True)
        sys.stderr.writelines(line for line in lines if not line.startswith("INFO"))
        return 1
    problems = list(foreign_assets(site))
    print("\n".join(problems) if problems else f"{site / 'index.html'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
