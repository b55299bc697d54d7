"""Plug-ins of programs' own, run by workers under the program's user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from agent_process import AgentProcess, agent, find_program, until
from built import needs_built

BUILT = find_program().parents[1] / "tests" / "task_plugin.so"
USERS = 54321, 54322  # of no account

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="takes on two unprivileged users, which needs root"),
    needs_built(BUILT),
]

# argv: the address, the plug-in. Prints whom its function ran as, or why it did not.
PROGRAM = """
import numpy as np, offpath, sys
with offpath.connect(sys.argv[1]) as session:
    out = session.alloc(8).numpy(np.uint64)
    with session.tasks(plugins={"mine": sys.argv[2]}) as tasks:
        try:
            tasks.submit("mine/whoami", {}, {"user": out}).wait(60)
            print("user", out[0])
        except offpath.Error as error:
            print(type(error).__name__, error)
"""


def owned(open_path: Path, user: int, mode: int = 0o755) -> Path:
    folder = open_path / f"of-{user}-{mode:o}"
    folder.mkdir()
    copy = Path(shutil.copy(BUILT, folder))
    for each in (copy, folder):
        os.chown(each, user, user)
    copy.chmod(mode)
    return copy


def run_as(user: int, running: AgentProcess, plugin: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, running.ready["address"], str(plugin)],
        user=user, group=user, extra_groups=[], capture_output=True, text=True, timeout=200, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def started(open_path: Path, who: str) -> list[str]:
    (open_path / "agent.toml").write_text(
        f'[security]\nallow_uids = ["{USERS[0]}", "{USERS[1]}"]\n[task]\nuser_plugins = "{who}"\nuser_plugins_max = 1\n'
    )
    return ["--config", str(open_path / "agent.toml")]


def workers_of(running: AgentProcess) -> list[str]:
    pid = running.process.pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_functions_run_as_the_user_whose_program_names_them(open_path: Path) -> None:
    with agent(open_path, *started(open_path, "own")) as running:
        for user in USERS:
            assert run_as(user, running, owned(open_path, user)) == f"user {user}"
        assert until(lambda: not workers_of(running))  # with the last session that has named it


def test_they_are_opened_with_their_users_rights(open_path: Path) -> None:
    with agent(open_path, *started(open_path, "own")) as running:
        own = owned(open_path, USERS[0])
        own.parent.chmod(0o700)
        own.chmod(0o500)
        assert run_as(USERS[0], running, own) == f"user {USERS[0]}"
        secret = open_path / "secret"
        secret.mkdir(mode=0o700)
        for name in (shutil.copy(BUILT, secret), secret / "nothing.so"):  # files that only the agent's user could see
            assert "Permission denied" in run_as(USERS[0], running, Path(name))


def test_what_is_not_permitted_is_said(open_path: Path) -> None:
    with agent(open_path, *started(open_path, "own")) as running:
        others = run_as(USERS[0], running, owned(open_path, USERS[1]))
        open_to_all = run_as(USERS[0], running, owned(open_path, USERS[0], 0o777))
        missing = run_as(USERS[0], running, open_path / "missing.so")
        assert "belongs to user 54322: only files of root and of user 54321 are loaded" in others
        assert "has the mode 0777: others may write to it" in open_to_all
        assert "missing.so: No such file" in missing
    with agent(open_path, *started(open_path, "off")) as running:
        assert "task.user_plugins is off" in run_as(USERS[0], running, owned(open_path, USERS[0]))
