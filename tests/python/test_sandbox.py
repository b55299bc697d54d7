"""The doctor's findings on the sandbox, from files as the kernel shows them and from this machine."""

from __future__ import annotations

import errno
from pathlib import Path

from machine_files import write
from offpath.doctor import sandbox

STATUS = {"proc/self/status": "Name:\tpython\nCapPrm:\t0000000000080000\nCapBnd:\t0000000000080000\n"}
ACTIONS = {"proc/sys/kernel/seccomp/actions_avail": "kill_process kill_thread trap errno user_notif trace log allow\n"}


def found(root: Path, files: dict[str, str], error: int = 0) -> dict[str, tuple[str, bool, str]]:
    write(root, {**STATUS, **files})
    return {name: (value, good, advice) for name, value, good, advice in sandbox.look(root, error)}


def test_a_machine_that_grants_all_of_it(tmp_path: Path) -> None:
    said = found(tmp_path, ACTIONS)
    assert all(good for _, good, _ in said.values()), said
    assert said["namespaces for workers"][0] == "user, net, ipc"
    assert said["capabilities here"][0].endswith("an agent could use CAP_SYS_PTRACE")


def test_a_kernel_without_lists_of_system_calls(tmp_path: Path) -> None:
    assert found(tmp_path, {})["seccomp"][:2] == ("none", False)


def test_a_setting_that_forbids_namespaces_is_named(tmp_path: Path) -> None:
    for key, bad, good in sandbox.FORBIDDING:
        path = "proc/sys/" + key.replace(".", "/")
        root = tmp_path / key
        value, is_good, advice = found(root, {**ACTIONS, path: f"{bad}\n"}, errno.EPERM)["namespaces for workers"]
        assert value == f"refused: Operation not permitted; {key} is {bad}"
        assert not is_good and advice == f"optional, workers run without: sysctl {key}={good}"


def test_a_container_that_forbids_them(tmp_path: Path) -> None:
    value, good, advice = found(tmp_path, ACTIONS, errno.EPERM)["namespaces for workers"]
    assert not good and value == "refused: Operation not permitted"
    assert "RestrictNamespaces" in advice


def test_this_machine_is_asked() -> None:
    said = {name: value for name, value, _, _ in sandbox.look()}
    assert said["namespaces for workers"] == "user, net, ipc" or said["namespaces for workers"].startswith("refused: ")
