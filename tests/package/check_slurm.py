"""Debian's Slurm with two nodes in one container: a job gets an agent on each, finds it, and leaves nothing.

Run by `./dev test --long`, after `./dev package`. One node's agent runs on the node, the other's on its "DPU": the same
container, reached by a shell that takes ssh's place.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from container import ROOT, Container, make_base, why_not

DEBIAN = ROOT / "build" / "package" / "debian"
PACKAGES = "slurmctld slurmd slurm-client munge openmpi-bin openssl"
SCRIPTS = "/usr/share/offpath/slurm"

SLURM_CONF = f"""
ClusterName=test
SlurmctldHost=machine(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/state
SlurmdSpoolDir=/var/lib/slurm/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
PrologFlags=Alloc
Prolog={SCRIPTS}/prolog.sh
Epilog={SCRIPTS}/epilog.sh
TaskProlog={SCRIPTS}/task_prolog.sh
NodeName=n1 NodeHostname=machine NodeAddr=127.0.0.1 Port=17001 CPUs=2 RealMemory=500
NodeName=n2 NodeHostname=machine NodeAddr=127.0.0.1 Port=17002 CPUs=2 RealMemory=500
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=10 State=UP OverSubscribe=YES
"""

SETTINGS = """
dpus=/etc/offpath/dpus
memory=64MiB
dpu_shell=/usr/local/bin/shell-of-dpu
dpu_certificate=/etc/offpath/agent.pem
dpu_certificate_key=/etc/offpath/agent.key
authority=/etc/offpath/agent.pem
"""

ALL_IDLE = '[ "$(sinfo -h -t idle -o %D)" = 2 ]'

# As ssh does: the words joined, for the other side's shell to part again.
SHELL_OF_DPU = """#!/bin/sh
[ "$1" = 127.0.0.1 ] || exit 255
shift
exec sh -c "$*"
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    if reason := why_not() or make_base():
        pytest.skip(reason)
    container = Container(tmp_path_factory.mktemp("slurm"))
    for place in ("first", "programs"):
        (container.root / place).mkdir()
    for package in DEBIAN.glob("*.deb"):
        shutil.copy(package, container.root / "first")
    (container.root / "etc/hostname").write_text("machine\n")
    (container.root / "etc/hosts").write_text("127.0.0.1 localhost machine n1 n2\n")
    shutil.copy(ROOT / "examples/01_c/particles.c", container.root / "programs")
    try:
        container.fetch(PACKAGES)
    except AssertionError as error:
        pytest.skip(f"Slurm cannot be had from Debian here: {str(error)[-300:]}")
    try:
        container.fetch(f"{PACKAGES} /first/*.deb")
        container.boot()
        set_up(container)
        yield container
    finally:
        container.stop()
        shutil.rmtree(container.root, ignore_errors=True)


def set_up(machine: Container) -> None:
    machine.install(f"{PACKAGES} /first/*.deb")
    compile_c = "cc -std=c11 -O1 /programs/particles.c -o /usr/bin/particles $(pkg-config --cflags --libs offpath)"
    machine.run("sh", "-c", compile_c)
    machine.run("useradd", "--create-home", "alice")
    files = {"etc/slurm/slurm.conf": SLURM_CONF, "etc/offpath/offpath-slurm.conf": SETTINGS,
             "etc/offpath/dpus": "n2 127.0.0.1\n", "usr/local/bin/shell-of-dpu": SHELL_OF_DPU}  # fmt: skip
    for name, text in files.items():
        (machine.root / name).write_text(text)
    (machine.root / "usr/local/bin/shell-of-dpu").chmod(0o755)
    machine.run(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
        "-subj", "/CN=dpu", "-addext", "subjectAltName=IP:127.0.0.1",
        "-keyout", "/etc/offpath/agent.key", "-out", "/etc/offpath/agent.pem",
    )  # fmt: skip
    machine.run("mkdir", "-p", "/var/lib/slurm/state", "/var/lib/slurm/n1", "/var/lib/slurm/n2")
    # Slurm asks the resolver for addresses of a kind the machine has, and loopback alone counts for none.
    for words in ("link add net0 type veth peer name net1", "address add 10.77.7.1/24 dev net0", "link set net0 up"):
        subprocess.run(["nsenter", f"--target={machine.leader}", "--net", "ip", *words.split()], check=True)
    machine.run("systemctl", "restart", "munge")
    for daemon in ("slurmctld -D", "slurmd -D -N n1", "slurmd -D -N n2"):
        unit = "test-" + daemon.replace(" -D", "").replace(" -N ", "-")
        machine.run("systemd-run", "--quiet", f"--unit={unit}", "/usr/sbin/" + daemon.split()[0], *daemon.split()[1:])
    machine.until(ALL_IDLE, "sinfo; tail /var/log/slurm*")


def submit(machine: Container, *command: str) -> str:
    return machine.run("env", "HOME=/tmp", *command, user="alice")


def test_srun_gives_each_node_an_agent_and_each_task_its_address(machine: Container) -> None:
    script = 'echo "$SLURMD_NODENAME $OFFPATH_AGENT"; particles'
    said = submit(machine, "srun", "--nodes=2", "--ntasks=2", "--chdir=/tmp", "sh", "-c", script)
    assert said.count("step4: 10000 rows") == 2, said
    addresses = dict(line.split() for line in said.splitlines() if line.startswith(("n1 ", "n2 ")))
    assert addresses["n1"].startswith("unix:/run/offpath-jobs/") and addresses["n2"].startswith("tls:127.0.0.1:")
    # Each agent knows the program's job: here from its own labels, because there are no cgroups.
    log = machine.run("sh", "-c", "journalctl --no-pager -u 'offpath-job-*'")
    assert len(re.findall(r"channel 1: .*, job \d+\.0\) over", log)) == 2, log


@pytest.mark.parametrize("mpi", ["pmi2", "pmix"])
def test_agents_that_srun_starts_exchange_their_addresses(machine: Container, mpi: str) -> None:
    """Each listens at a port that the system chooses, so the others can know it from PMI or PMIx only."""
    agent = "offpath-agent --mpi --name dpu$SLURM_PROCID --listen tcp:127.0.0.1:0 --key-file $HOME/group-key"
    script = f"timeout --signal=TERM 10 {agent} 2>&1; true"
    submit(machine, "sh", "-c", "umask 077; openssl rand -hex 32 > $HOME/group-key")
    said = submit(machine, "srun", f"--mpi={mpi}", "--nodes=2", "--ntasks=2", "--chdir=/tmp", "sh", "-c", script)
    assert said.count("the launcher started 2 agents") == 2, said
    for name in ("dpu0", "dpu1"):
        assert any(f"member {name}" in line and "alive" in line for line in said.splitlines()), said


def test_mpirun_in_a_batch_script_finds_them_too(machine: Container) -> None:
    said = "/var/tmp/mpirun.out"
    submit(machine, "sbatch", "--quiet", "--nodes=2", "--ntasks=2", "--chdir=/tmp", f"--output={said}",
           "--wrap=mpirun --map-by node -np 2 particles")  # fmt: skip
    machine.until(f'[ "$(grep -c "step4: 10000 rows" {said})" = 2 ]', f"cat {said}; tail /var/log/slurm*")


def test_the_job_of_another_user_has_another_agent(machine: Container) -> None:
    machine.run("useradd", "--create-home", "bob")
    submit(machine, "sh", "-c", "sbatch --quiet --nodes=1 --nodelist=n1 --chdir=/tmp --wrap 'sleep 60'")
    machine.until("test -s /run/offpath-jobs/*.n1/address", "tail /var/log/slurmd-n1.log")
    address = machine.run("sh", "-c", "cat /run/offpath-jobs/*.n1/address")
    refused = machine.attempt("env", f"OFFPATH_AGENT={address}", "particles", user="bob")
    assert refused.returncode == 1 and "connect:" in refused.stderr
    machine.run("scancel", "--user=alice")


def test_nothing_is_left_when_the_jobs_are_over(machine: Container) -> None:
    machine.until(f'[ -z "$(squeue -h)" ] && {ALL_IDLE}', "squeue; sinfo")
    assert machine.run("sh", "-c", "ls /run/offpath-jobs") == ""
    assert machine.run("systemctl", "list-units", "--no-legend", "--plain", "offpath-job-*") == ""


def test_a_prolog_that_fails_says_why_and_the_job_does_not_start(machine: Container) -> None:
    machine.run("sed", "-i", "s/^memory=.*/memory=plenty/", "/etc/offpath/offpath-slurm.conf")
    job = ("srun", "--nodes=1", "--immediate=5", "--chdir=/tmp", "true")
    started = machine.attempt("timeout", "20", *job, user="alice")
    assert started.returncode != 0
    said = machine.run("sh", "-c", "journalctl --no-pager -u 'offpath-job-*' | tail -20")
    assert "memory.bytes_max" in said and "plenty" in said
