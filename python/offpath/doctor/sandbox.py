"""The parts of the agent's sandbox (``security.sandbox``) that this machine's kernel grants to the calling user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

Found = tuple[str, str, bool, str]

# As src/plugin/system_calls.h has them: CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWIPC.
WORKER_NAMESPACES = 0x10000000 | 0x40000000 | 0x08000000
TRY_NAMESPACES = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(0 if libc.unshare({WORKER_NAMESPACES}) == 0 else ctypes.get_errno())
"""
# Settings that can forbid namespaces to users, the forbidding value, and the remedy.
FORBIDDING = (
    ("user.max_user_namespaces", "0", "15000"),
    ("user.max_net_namespaces", "0", "15000"),
    ("user.max_ipc_namespaces", "0", "15000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)
CAPABILITIES_KEPT = {6: "CAP_SETGID", 7: "CAP_SETUID", 19: "CAP_SYS_PTRACE"}


def setting(root: Path, name: str) -> str | None:
    """A sysctl; None if the kernel does not have it."""
    try:
        return (root / "proc/sys" / name.replace(".", "/")).read_text().strip()
    except OSError:
        return None


def try_namespaces() -> int:
    """Makes a worker's namespaces in a process of its own. Returns 0, or the kernel's error."""
    tried = subprocess.run([sys.executable, "-c", TRY_NAMESPACES], capture_output=True, text=True, check=False)
    return int(tried.stdout or -1)


def look_at_seccomp(root: Path) -> Found:
    actions = setting(root, "kernel.seccomp.actions_avail")
    has = actions is not None and {"errno", "allow"} <= set(actions.split())
    value = "lists of system calls" if has else "none"
    return ("seccomp", value, has, "this kernel has no CONFIG_SECCOMP_FILTER: agents run without lists of system calls")


def look_at_namespaces(root: Path, error: int) -> Found:
    name = "namespaces for workers"
    if error == 0:
        return (name, "user, net, ipc", True, "")
    why = [(key, found, good) for key, bad, good in FORBIDDING if (found := setting(root, key)) == bad]
    value = f"refused: {os.strerror(error)}" if error > 0 else "could not be tried"
    if why:
        value += "; " + ", ".join(f"{key} is {found}" for key, found, _ in why)
        advice = " ".join(f"sysctl {key}={good}" for key, _, good in why)
    else:
        advice = "a container or a service's RestrictNamespaces= refuses it"
    return (name, value, False, f"optional, workers run without: {advice}")


def look_at_capabilities(root: Path) -> Found:
    lines = (root / "proc/self/status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    permitted = int(fields.get("CapPrm", "0"), 16)
    kept = [text for bit, text in CAPABILITIES_KEPT.items() if permitted >> bit & 1]
    value = f"{permitted:016x}, bounding set {fields.get('CapBnd', 'unknown').strip()}"
    return ("capabilities here", f"{value}; an agent could use {', '.join(kept)}" if kept else value, True, "")


def look(root: Path = Path("/"), error: int | None = None) -> list[Found]:
    """``error``: of the namespaces, where they are not to be tried."""
    return [
        look_at_seccomp(root),
        look_at_namespaces(root, try_namespaces() if error is None else error),
        look_at_capabilities(root),
    ]
