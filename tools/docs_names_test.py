"""The pages for those who work on Offpath name files and names that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
OWN = "tools/docs_names_test.py"  # whose examples do not exist
PAGES = sorted((ROOT / "docs" / "internals").glob("*.md"))
SOURCES = (".c", ".cc", ".cmake", ".h", ".in", ".inc", ".json", ".map", ".py", ".pyi", ".toml", ".txt")
# of the kernel, of libraries, and of styles
FOREIGN = {"ignore_noninstrumented_modules", "libc_single_threaded", "overcommit_memory", "sched_setattr", "snake_case"}


def tracked() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [file for file in listed.stdout.splitlines() if (ROOT / file).is_file()]


def words_of(files: list[str]) -> set[str]:
    texts = [
        (ROOT / file).read_text(encoding="utf-8", errors="replace")
        for file in files
        if (file == "dev" or file.endswith(SOURCES)) and not file.startswith("bench/results/") and file != OWN
    ]
    return {word for text in texts for word in re.findall(r"\w+", text)}


FILES = tracked()
WORDS = words_of(FILES) | {PurePosixPath(file).stem for file in FILES}


def quoted(page: str) -> list[str]:
    """The words in backticks outside of blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", page, flags=re.S | re.M))


def missing_paths(page: str) -> list[str]:
    """Paths of sources; those that do not begin at the root are the ends of some file's."""
    paths = [text for text in quoted(page) if re.fullmatch(r"[\w./-]+\.(?:h|cc|c|py)", text)]
    return [path for path in paths if not any(f"/{file}".endswith(f"/{path}") for file in FILES)]


def missing_names(page: str) -> list[str]:
    """Names with an underscore, apart from metrics, whose names are made of parts."""
    name = re.compile(r"(?<![\w-])[A-Za-z]\w*_\w*[A-Za-z0-9](?![\w*])")
    words = [word for text in quoted(page) for word in name.findall(text)]
    return [word for word in words if word not in WORDS | FOREIGN and not word.startswith("offpath_")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert missing_paths(text) == []
    assert missing_names(text) == []


def test_what_does_not_exist_is_found() -> None:
    page = "`src/link/link.h`, `link.h`, `local/local_link.h` and `write_fails(at)`, `never_there(now)`"
    assert missing_paths(page) == ["local/local_link.h"]
    assert missing_names(page) == ["never_there"]
