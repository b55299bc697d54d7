"""The code blocks of the documentation run as the pages say."""

import re
import tempfile
import tomllib
from pathlib import Path

import pytest
from page_blocks import LIKE_SNIPPET, ROOT, Block, BlockFailed, blocks_of
from page_run import PageRun

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = {page: blocks_of(page) for page in PAGES}
COMMAND = re.compile(
    r"^    (?:\$ )?(?:offpath|offpath-\w+|\./dev|cmake|pip|mpirun|srun|systemctl|apt|export|openssl)\b"
)


def made(parent: Path) -> Path:
    """A directory that was not there before."""
    return Path(tempfile.mkdtemp(dir=parent))


def runs(page: Path) -> list[Block]:
    return [block for block in BLOCKS[page] if not block.reasons]


def run_page(blocks: list[Block], directory: Path) -> None:
    with PageRun(directory) as run:
        for block in blocks:
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


def test_blocks_that_do_not_run_are_listed_with_their_reason():
    found: dict[str, dict[str, int]] = {}
    for page in PAGES:
        for block in (block for block in BLOCKS[page] if block.reasons):
            pages = found.setdefault(block.marker, {})
            pages[str(page.relative_to(ROOT))] = pages.get(str(page.relative_to(ROOT)), 0) + 1
    listed = tomllib.loads((Path(__file__).parent / "not_run.toml").read_text())
    assert all(entry.pop("why") for entry in listed.values())
    assert listed == found


def test_the_readme_links_the_glossary_at_its_first_special_word():
    glossary = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
    words = [word.lower() for word in re.findall(r"^\| ([A-Za-z ]+?) \|", glossary, re.MULTILINE)]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "agent" in words
    first = re.search(rf"\b(?:{'|'.join(words)})\b", readme, re.IGNORECASE)
    assert readme[first.start() - 1 :].startswith(f"[{first[0]}](docs/reference/glossary.md")


def test_commands_are_in_blocks_that_run_or_say_why_not():
    """Users' pages have commands in fenced blocks only; an indented one would not run."""
    users = [page for page in PAGES if page.parent.name in ("start", "guides", "operate") or page.name == "README.md"]
    indented = []
    for page in users:
        fenced = False
        for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
            fenced ^= line.lstrip().startswith("```")
            if not fenced and COMMAND.match(line):
                indented.append(f"{page}:{number}: {line.strip()}")
    assert indented == []


BROKEN = {
    "python": ("agent", "assert session.pool is None, 'something else'"),
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


def test_a_block_says_why_it_does_not_run(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("text\n\n<!-- needs: agent; a card -->\n```sh\nmst start\n```\n\n```text\nno program\n```\n")
    (block,) = blocks_of(page)
    assert block.reasons == {"a card"}


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
