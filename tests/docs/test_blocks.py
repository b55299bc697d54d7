"""The code blocks of the documentation run as the pages say."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from page_blocks import ROOT, Block, BlockFailed, PageRun, blocks_of

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = {page: blocks_of(page) for page in PAGES}
COMMAND = re.compile(
    r"^    (?:\$ )?(?:offpath|offpath-\w+|\./dev|cmake|pip|mpirun|srun|systemctl|apt|export|openssl)\b"
)


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
    unmarked = [block.place for page in PAGES for block in BLOCKS[page] if not block.marked]
    assert unmarked == []


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


def test_the_first_commands_run_as_they_stand(tmp_path, monkeypatch):
    """An agent that is told nothing, and beside it the commands that follow in the README."""
    stays, following = (
        next(block for block in BLOCKS[ROOT / "README.md"] if needs in block.needs)
        for needs in ("an agent that stays", "the agent of the block before")
    )
    script = tmp_path / "first_commands.sh"
    # The doctor exits with 1 where something should be changed on this machine.
    (agent,), commands = (
        [line.split(" #")[0].strip() for line in block.code.splitlines()] for block in (stays, following)
    )
    asked = "\n".join(f"{each} >shown 2>&1 || {{ cat shown; echo FAILED {each}; }}" for each in commands)
    script.write_text(
        f"{agent} &\ntrap 'kill %1' EXIT\nplace=${{XDG_RUNTIME_DIR:-/run}}/offpath\n"
        f"for _ in $(seq 600); do [ -S $place/agent.sock ] && break; sleep 0.1; done\n{asked}\n"
    )
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
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED") and "doctor" not in line]
    assert len(commands) >= 5 and failed == [], done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr


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
