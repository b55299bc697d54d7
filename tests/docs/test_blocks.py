"""The code blocks of the documentation run as the pages say."""

import os
import re
import subprocess
import tempfile
import tomllib
from pathlib import Path

import pytest
from page_blocks import ROOT, Block, BlockFailed, PageRun, blocks_of, check_output

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


def test_every_program_runs_or_says_why_not():
    unmarked = [block.place for page in PAGES for block in BLOCKS[page] if not block.marker]
    assert unmarked == []


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


STAYS, WITH_IT, STOPPED = "an agent that stays", "the agent of the block before", "stopped"
FIRST_PAGES = [ROOT / "README.md", ROOT / "docs/start/first-hour.md"]


def session_of(page: Path, directory: Path) -> tuple[Path, list[tuple[Block, Path]]]:
    """A script that does what the reader of a page does in two terminals, and the file that each block's output
    goes to."""
    blocks = [block for block in BLOCKS[page] if block.needs & {STAYS, WITH_IT}]
    (stays,) = (block for block in blocks if STAYS in block.needs)
    (agent,) = (line.split(" #")[0].strip() for line in stays.code.splitlines())
    script = [
        f"{agent} 2>agent.log &\nagent=$!\ntrap 'kill $agent' EXIT\nplace=${{XDG_RUNTIME_DIR:-/run}}/offpath",
        "for _ in $(seq 600); do [ -S $place/agent.sock ] && break; sleep 0.1; done",
    ]
    outputs = []
    stopped = False
    for block in (block for block in blocks if WITH_IT in block.needs):
        if block.language == "python":  # saved under the name in its first line
            (directory / block.code.splitlines()[0].removeprefix("# ")).write_text(block.code)
            continue
        if STOPPED in block.needs and not stopped:
            script.append("kill -INT $agent; wait $agent; trap - EXIT")
            stopped = True
        said = directory / f"said{block.line}"
        outputs.append((block, said))
        for line in block.code.splitlines():
            # The doctor exits with 1 where something should be changed on this machine.
            may_fail = stopped or "doctor" in line
            each = line.split(" #")[0].strip()
            script.append(
                f"{each} >>{said} 2>&1" + ("" if may_fail else f" || {{ cat {said}; echo FAILED {each!r}; }}")
            )
    file = directory / "reader.sh"
    file.write_text("\n".join(script) + "\n")
    return file, outputs


@pytest.mark.parametrize("page", FIRST_PAGES, ids=lambda page: page.name)
def test_the_first_commands_run_as_they_stand(page, tmp_path, monkeypatch):
    """An agent that is told nothing, and beside it the commands that follow on the page."""
    script, outputs = session_of(page, tmp_path)
    for name in ("OFFPATH_AGENT", "OFFPATH_AGENT_HTTP"):
        monkeypatch.delenv(name, raising=False)
    command = ["bash", script]
    if os.geteuid() == 0:  # root's agent listens in /run: in one of the test's own
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && exec bash "$0"', script]
    else:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with PageRun(tmp_path) as run:
        done = subprocess.run(
            command, cwd=tmp_path, env=run.environment(None), capture_output=True, text=True, timeout=300
        )
    assert "FAILED" not in done.stdout, done.stdout + done.stderr
    assert len(outputs) >= 1 and all(said.exists() for _, said in outputs), done.stdout + done.stderr
    for block, said in outputs:
        check_output(block, said.read_text())


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
