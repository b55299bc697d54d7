"""The code blocks of the documentation run as the pages say."""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest
from page_blocks import LIKE_SNIPPET, ROOT, Block, BlockFailed, blocks_of
from page_run import BUILD, PageRun

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = {page: blocks_of(page) for page in PAGES}
COMMAND = re.compile(
    r"^    (?:\$ )?(?:offpath|offpath-\w+|\./dev|cmake|pip|mpirun|srun|systemctl|apt|export|openssl|ninja|python)\b"
)


def made(parent: Path) -> Path:
    """A directory that was not there before."""
    return Path(tempfile.mkdtemp(dir=parent))


def runs(page: Path) -> list[Block]:
    return [block for block in BLOCKS[page] if not block.reasons]


def run_page(blocks: list[Block], directory: Path) -> None:
    with PageRun(directory) as run:
        for block in blocks:
            if run.can_run(block):
                run.run(block)


@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(runs(page), tmp_path)


def test_every_block_runs_or_says_why_not():
    unmarked = [block.place for page in PAGES for block in BLOCKS[page] if not block.marker]
    assert unmarked == []


def test_no_file_is_included_in_a_way_that_the_site_does_not_know():
    """A formatter makes an expression of the line that includes a file, and the site shows that."""
    lines = [f"{block.place}: {line}" for page in PAGES for block in BLOCKS[page] for line in block.code.splitlines()
             if LIKE_SNIPPET.match(line)]  # fmt: skip
    assert lines == []


LISTED = tomllib.loads((Path(__file__).parent / "not_run.toml").read_text())


def test_blocks_that_do_not_run_are_listed_with_their_reason():
    found: dict[str, dict[str, int]] = {}
    for page in PAGES:
        for block in (block for block in BLOCKS[page] if block.reasons):
            pages = found.setdefault(block.marker, {})
            pages[str(page.relative_to(ROOT))] = pages.get(str(page.relative_to(ROOT)), 0) + 1
    listed = {
        marker: {page: count for page, count in entry.items() if page != "why"} for marker, entry in LISTED.items()
    }
    assert listed == found


@pytest.mark.parametrize("marker", LISTED)
def test_what_is_tested_in_place_of_a_block_exists(marker):
    named = re.findall(r"(?<![\w.])(?:tests|tools|\.ci|src)/[\w/.-]*\w", LISTED[marker]["why"])
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


@cache
def help_of(command: str) -> str:
    words = {
        "./dev": [str(ROOT / "dev"), "help"],
        "offpath-agent": [str(BUILD / "bin/offpath-agent"), "--help"],
    }.get(command) or [sys.executable, "-m", *command.split(), "--help"]
    asked = subprocess.run(words, capture_output=True, text=True, timeout=120, env={**os.environ, "COLUMNS": "200"})
    assert asked.returncode == 0, asked
    return asked.stdout


OURS = re.compile(
    r"(?:^|[\s'])(?P<command>offpath-agent|offpath [a-z]+(?=\s|$)|\./dev)(?P<rest>[^;&|#'\n]*)", re.MULTILINE
)


def unknown(command: str, words: list[str]) -> list[str]:
    """Steps and options that the command does not have."""
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    steps = list(takewhile(re.compile(r"[a-z][a-z-]*").fullmatch, words)) if command == "./dev" else []
    if steps[:1] == ["run"]:
        command, steps = "offpath run", []
    elif steps[:1] == ["bench"]:
        command, steps, options = "offpath bench", steps[1:2], []
    elif steps[:1] == ["sim"]:
        steps, options = ["sim"], []
    asked = [*steps, *options]
    return [f"{command} {word}" for word in asked if not re.search(rf"(?<![\w-]){word}\b", help_of(command))]


def mistakes(block: Block) -> list[str]:
    """Mistakes that any machine would show in a block that does not run: its language, our commands and options."""
    if block.language == "python":
        compile(block.code, block.place, "exec")
    if block.language != "sh":
        return []
    parsed = subprocess.run(["bash", "-n"], input=block.code, capture_output=True, text=True)
    found = [parsed.stderr] if parsed.returncode else []
    for match in OURS.finditer(block.code.replace("\\\n", " ")):
        found += unknown(match["command"], match["rest"].partition(" -- ")[0].split())
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if len(runs(page)) < len(BLOCKS[page])],
                         ids=lambda page: str(page.relative_to(ROOT)))  # fmt: skip
def test_blocks_that_do_not_run_have_no_mistake_that_can_be_seen(page):
    found = [f"{block.place}: {mistake}" for block in BLOCKS[page] if block.reasons for mistake in mistakes(block)]
    assert found == []


def test_the_readme_links_the_glossary_at_its_first_special_word():
    glossary = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
    words = [word.lower() for word in re.findall(r"^\| ([A-Za-z ]+?) \|", glossary, re.MULTILINE)]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "agent" in words
    first = re.search(rf"\b(?:{'|'.join(words)})\b", readme, re.IGNORECASE)
    assert readme[first.start() - 1 :].startswith(f"[{first[0]}](docs/reference/glossary.md")


def indented_commands(page: Path) -> list[tuple[int, str]]:
    """Number and text of lines that begin with a command, outside fenced blocks."""
    found = []
    fenced = False
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
        fenced ^= line.lstrip().startswith("```")
        if not fenced and COMMAND.match(line):
            found.append((number, line.strip()))
    return found


def test_commands_are_in_blocks_that_run_or_say_why_not():
    """In fenced blocks only, as an indented one would not run. Lists of what ./dev does are indented."""
    wrong = []
    for page in (*PAGES, ROOT / "CONTRIBUTING.md"):
        for number, line in indented_commands(page):
            command, *words = line.split("  ")[0].split()
            if command != "./dev" or unknown(command, words):
                wrong.append(f"{page}:{number}: {line}")
    assert wrong == []


BROKEN = {
    "python": ("agent", "import offpath\nassert offpath.connect().pool is None, 'something else'"),
    "sh": ("agent", "offpath pool get local:/nothing row column"),
    "c": ("agent, compiler", "ofp_no_such_function(channel);"),
    "cpp": ("compiler; compiled only", "offpath::NoSuchType it(channel);"),
    "fortran": ("compiler", "program broken\n  use offpath\n  error stop 3\nend program"),
    "toml": ("agent", "[memory]\nbytes_maximum = '1GiB'"),
}


@pytest.mark.parametrize("language", sorted(BROKEN))
def test_a_broken_block_fails(language, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    needs, code = BROKEN[language]
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n<!-- needs: {needs} -->\n```{language}\n{code}\n```\n")
    (block,) = blocks_of(page)
    assert (block.language, block.line, block.reasons) == (language, 5, set())
    with pytest.raises((BlockFailed, AssertionError), match=r"page.md:5|something else"):
        run_page([block], tmp_path)


WRONG = {
    "a command that ends and should stay": ("stays", "echo it ends"),
    "one that does not end by Ctrl-C": ("stays", "trap '' INT; echo waits; while :; do sleep 0.1; done"),
    "one that should fail": ("fails", "true"),
    "an agent that the machine does not have": ("a machine of its own", "offpath status"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_block_that_does_not_do_what_its_marker_says_fails(what, tmp_path, monkeypatch):
    monkeypatch.setattr("page_terminal.SECONDS_MAX", 1)
    needs, code = WRONG[what]
    page = tmp_path / "page.md"
    page.write_text(f"<!-- needs: {needs} -->\n```sh\n{code}\n```\n")
    with pytest.raises(BlockFailed, match=r"page.md:3"):
        run_page(blocks_of(page), made(tmp_path))


def test_blocks_after_one_that_stays_find_it_until_ctrl_c(tmp_path):
    page = tmp_path / "page.md"
    asks = "```sh\ncurl --silent --fail http://127.0.0.1:8000/\n```\n"
    page.write_text(
        "<!-- needs: a machine of its own; stays -->\n```sh\npython3 -m http.server 8000 --bind 127.0.0.1\n```\n\n"
        "<!-- prints -->\n```text\nServing HTTP on …\n```\n\n"
        f"<!-- needs: a machine of its own -->\n{asks}\n"
        f"<!-- needs: a machine of its own; after Ctrl-C; fails -->\n{asks}"
    )
    run_page(blocks_of(page), made(tmp_path))


@pytest.mark.parametrize("code", ["offpath doctor --no-such-option", "./dev no-such-step", "if true"])
def test_a_mistake_in_a_block_that_does_not_run_is_seen(code, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"<!-- needs: a card -->\n```sh\n{code}\n```\n")
    (block,) = blocks_of(page)
    assert len(mistakes(block)) == 1


def test_a_block_says_why_it_does_not_run(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("text\n\n<!-- needs: agent; a card -->\n```sh\nmst start\n```\n\n```text\nno program\n```\n")
    card, text = blocks_of(page)
    assert card.reasons == {"a card"}
    assert not text.marker  # which test_every_block_runs_or_says_why_not reports


def test_a_block_that_prints_something_else_than_its_page_shows_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    shown = "```\n\n<!-- prints -->\n```text\n{}\n```\n"
    for code in ("sh\necho 12  ms", "python\nprint('12  ms')"):
        for text in ("12 ms", "… ms", "12 …"):
            page.write_text(f"<!-- needs: offpath -->\n```{code}\n{shown.format(text)}")
            run_page(blocks_of(page), made(tmp_path))
        page.write_text(f"<!-- needs: offpath -->\n```{code}\n{shown.format('13 ms')}")
        with pytest.raises(BlockFailed, match="shows\n13 ms"):
            run_page(blocks_of(page), made(tmp_path))
