"""subjects.py finds subjects that are too long, of new commits alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import subjects


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "core.hooksPath=/dev/null")
    command = ["git", "-C", root, *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit(root: Path, subject: str) -> str:
    git(root, "commit", "--quiet", "--allow-empty", "--message", f"{subject}\n\n{'b' * 100}")
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    return tmp_path


def test_a_long_subject_after_the_first_checked_commit_is_found(repository: Path) -> None:
    first = commit(repository, "a" * 100)
    commit(repository, "é" * 72)
    assert subjects.problems_of(repository, first) == []
    commit(repository, "é" * 73)
    commit(repository, "area: what and why")
    found = subjects.problems_of(repository, first)
    assert len(found) == 1
    assert "a subject of 73 characters, at most 72: éé" in found[0]


def test_without_history_nothing_is_checked(repository: Path, tmp_path: Path) -> None:
    assert subjects.problems_of(repository) == []  # no commit at all
    commit(repository, "a" * 73)
    assert subjects.problems_of(repository) == []  # a history that lacks the first checked commit
    assert subjects.main([str(tmp_path / "nothing")]) == 0


def test_this_project() -> None:
    assert subjects.problems_of(Path(subjects.__file__).resolve().parent.parent) == []
