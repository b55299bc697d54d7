"""Manual pages contain the programs' help, and roff reports no problems."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import man_pages
import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = Path(os.environ.get("OFFPATH_BUILD_DIR", ROOT / "build" / "release")) / "bin"
NAMES = ["offpath", "offpath-agent", "offpath-region-sampler", "offpath-sampler", "offpath-slow-path",
         "offpath-supervisor", "offpath-topology"]  # fmt: skip

HELP = """Keeps what it is given.
Usage: /somewhere/build/keeper [OPTIONS] THING

Arguments:
  THING                       What to keep

Options:
  -h,--help                   Print this help
  --how-long-it-is-kept TEXT
                              A duration, such as "5s" or
                              .5s
"""


def shown(page: Path) -> str:
    """The page as a reader sees it; the test fails if roff warns."""
    done = subprocess.run(["groff", "-k", "-man", "-ww", "-Tutf8", "-rLL=300n", "-P-cbou", page],
                          capture_output=True, text=True)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return re.sub(r"\s+", " ", done.stdout.replace("\N{HYPHEN}", "-").replace("\N{MINUS SIGN}", "-"))


def made(name: str, directory: Path) -> Path:
    page = directory / f"{name}.1"
    command = [] if name == "offpath" else [PROGRAMS / name]
    subprocess.run([sys.executable, ROOT / "tools/man_pages.py", page, name, *command], check=True)
    return page


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_every_word_of_the_help(name: str, tmp_path: Path) -> None:
    page = shown(made(name, tmp_path))
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"):
        assert section in page
    assert re.search(rf"NAME {name} - \w", page)
    if name != "offpath":
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", man_pages.help_of([str(PROGRAMS / name)])))
        assert {option for option in options if option not in page} == set()


def test_the_page_of_offpath_has_every_command(tmp_path: Path) -> None:
    page = shown(made("offpath", tmp_path))
    ask = [sys.executable, ROOT / "tools/docs_pages.py", "--help-texts"]
    asked = subprocess.run(
        ask, env={**os.environ, "TYPER_USE_RICH": "0", "TERM": "dumb"}, capture_output=True, text=True, check=True
    )
    commands = re.findall(r'"([a-z][a-z -]*)": "', asked.stdout)
    assert len(commands) > 20 and [words for words in commands if f"offpath {words} " not in page] == []


def test_a_help_text_becomes_a_page(tmp_path: Path) -> None:
    page = tmp_path / "keeper.1"
    page.write_text(man_pages.program_page("keeper", HELP, "1.2.3"))
    text = shown(page)
    assert "keeper - keeps what it is given" in text
    assert "SYNOPSIS keeper [OPTIONS] THING" in text
    assert "ARGUMENTS THING What to keep" in text
    assert '--how-long-it-is-kept TEXT A duration, such as "5s" or .5s' in text
    assert "Offpath 1.2.3" in text


def test_a_program_without_help_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="gives no usage"):
        man_pages.help_of([sys.executable, "-c", "print(1)"])
