"""Runs the code blocks of a page."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any
from unittest.mock import patch

import offpath
import page_needs as needs
import yaml
from offpath.bench.report import Report
from offpath.sockets_policy import read_policy
from page_blocks import ROOT, Block, BlockFailed, check_output
from page_machine import Machine
from page_terminal import Terminal
from unpacked_programs import PLACES

CHART = ROOT / "packaging/helm/offpath-agent"
BUILD = Path(os.environ.get("OFFPATH_BUILD_DIR", ROOT / "build" / "release"))
SECONDS_MAX = 300
REPEATED_SECONDS_MAX = 100  # until a block prints the output that its page promises after a moment

# Around a fragment, a block in C or C++ without main: names that the text around it has introduced.
FRAGMENTS = {
    "c": (
        "#include <offpath/offpath.h>\n#include <stdio.h>\nint main(void) {\n"
        "  ofp_channel *channel = NULL;\n  ofp_error error;\n"
        '  if (ofp_connect(NULL, NULL, &channel, &error) != OFP_OK) return fprintf(stderr, "%s", error.message), 1;\n',
        "  ofp_close(channel);\n  return 0;\n}\n",
    ),
    "cpp": (
        "#include <offpath/offpath.hpp>\n"
        "void compute();\n"
        "void fragment(offpath::Channel& channel, unsigned rank, unsigned ranks, std::size_t n, double* x) {\n",
        "}\n",
    ),
    needs.IN_PLUGIN: (
        "#include <offpath/plugin.h>\nenum { STEP = 1 };\n"
        "void function(ofp_context *context, unsigned left, unsigned right, double edge[4], double halo[4]) {\n",
        "}\n",
    ),
    needs.IN_TEST: (
        '#include "testing/link/loopback_link.h"\n'
        "namespace offpath::link {\n"
        "struct Agents { TimeNs step(TimeNs now); };\n"
        "Status test(std::uint64_t seed, const wire::ChannelLayout& layout, Agents& agents) {\n",
        "return {};\n}\n}\n",
    ),
}
COMPILERS = {
    "c": ["cc", "-std=c11"],
    "cpp": ["c++", "-std=c++20"],
    "fortran": ["gfortran", *(str(ROOT / "include/offpath" / f"offpath{name}.f90") for name in ("", "_tasks"))],
}
ENDINGS = {"c": ".c", "cpp": ".cc", "fortran": ".f90"}
# `offpath doctor` ends with 1 where something should be changed on a machine, which no page can know.
SHELL = 'offpath() { command offpath "$@" || [ "$1" = doctor ]; }\n'


class PageRun:
    """One page's blocks, run in order in ``directory`` with an agent of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.names: dict[str, Any] = {}
        self.settings = ""  # the last block of settings
        self.resources = contextlib.ExitStack()
        self.agents: dict[str, offpath.Agent] = {}
        self.terminals: list[Terminal] = []
        self.machine: Machine | None = None
        self.user = f"reader-{os.getpid()}-{id(self)}"  # whose directories in /tmp belong to it alone
        self.resources.callback(shutil.rmtree, f"/tmp/{self.user}-offpath", ignore_errors=True)
        self.programs = directory / "bin"
        self.add_program("offpath", f'{sys.executable} -m offpath "$@"')
        self.add_program("python3", f'{Path(sys.executable).with_name("python3")} "$@"')
        self.add_program("mpirun", 'mpirun.openmpi "$@"', needs.OPEN_MPI)
        self.add_program("mpirun", f'{sys.prefix}/bin/mpiexec "$@"', needs.MPICH)

    def add_program(self, name: str, command: str, need: str = "") -> None:
        """A command that all blocks find, or those that need this."""
        program = self.programs / need.replace(" ", "") / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\nexec {command}\n")
        program.chmod(0o755)

    def __enter__(self) -> PageRun:
        return self

    def __exit__(self, *why: object) -> None:
        self.interrupt()
        self.names.clear()  # sessions, before their agents
        self.resources.close()

    @staticmethod
    def can_run(block: Block) -> bool:
        """False: it needs a program of packages/programs.txt, which could not be had."""
        places = os.pathsep.join([*PLACES, os.environ["PATH"]])
        return needs.PROMETHEUS not in block.needs or shutil.which("prometheus", path=places) is not None

    def run(self, block: Block) -> None:
        """Raises BlockFailed, or the block's own exception."""
        if needs.INTERRUPTED in block.needs:
            self.interrupt()
        if needs.SAVED in block.needs:
            self.save(block)
        if block.language == "toml":
            self.check_settings(block)
        elif needs.CHART in block.needs:
            self.check_service(block)
        elif needs.REPORT in block.needs:
            Report.parse(block.code)
        elif block.language == "sh":
            self.run_shell(block)
        elif block.language == "python" and needs.SAVED not in block.needs:
            self.run_python(block)
        elif block.language in COMPILERS:
            self.run_compiled(block)
        elif needs.SAVED not in block.needs:
            raise BlockFailed(f"{block.place}: no way to run {block.language or 'a block without a language'}")

    def save(self, block: Block) -> None:
        """Under the name in its first line; an absolute one is of the page's own machine."""
        name = Path(block.name)
        file = self.own_machine().root / name.relative_to("/") if name.is_absolute() else self.directory / name
        file.write_text(block.code)

    def interrupt(self) -> None:
        """Ctrl-C in every terminal; raises the last terminal's failure."""
        with contextlib.ExitStack() as ends:
            for terminal in self.terminals:
                ends.callback(terminal.interrupt)
            self.terminals.clear()

    def own_machine(self) -> Machine:
        if self.machine is None:
            self.machine = Machine()
            self.resources.callback(self.machine.close)
        return self.machine

    def agent_for(self, block: Block) -> offpath.Agent | None:
        wanted = block.needs & needs.AGENTS
        if not wanted:
            return None
        kind = next(iter(wanted))
        if kind not in self.agents:
            config = self.settings if kind == needs.SETTINGS_ABOVE else self.plugin_for(block, kind)
            started = offpath.Agent.start(memory="512MiB", config=config)
            self.agents[kind] = self.resources.enter_context(started)
        return self.agents[kind]

    def plugin_for(self, block: Block, kind: str) -> str | None:
        """Settings with the requested plug-in, in a folder that no other user can write to."""
        if kind == needs.MD:
            name, plugin = "md", Path(shutil.copy(BUILD / "lib" / "md_plugin.so", self.directory))
        elif kind in needs.EXAMPLES:
            name, source = needs.EXAMPLES[kind]
            plugin = self.directory / f"{name}.so"
            make = ["cc", "-shared", "-fPIC", f"-I{ROOT / 'include'}", ROOT / "examples" / source, "-o", plugin, "-lm"]
            self.finish(block, make)
        else:
            return None
        return f'[[plugin]]\nname = "{name}"\npath = "{plugin}"\n'

    def finish(self, block: Block, command: list[Any]) -> None:
        """Runs the preparations that a block needs."""
        place = {"XDG_RUNTIME_DIR": str(self.directory)}  # of an agent's socket, for a user who has no other
        done = subprocess.run(
            command,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            env={**place, **os.environ},
        )
        if done.returncode != 0:
            raise BlockFailed(f"{block.place}: {command[0]} ended with {done.returncode}\n{done.stdout}{done.stderr}")

    def environment(self, block: Block) -> dict[str, str]:
        package = os.pathsep.join(path for path in sys.path if path)
        launchers = [f"{self.programs}/{need.replace(' ', '')}" for need in block.needs & {needs.OPEN_MPI, needs.MPICH}]
        paths = [*launchers, str(self.programs), str(BUILD / "bin"), os.environ["PATH"], f"{sys.prefix}/bin", *PLACES]
        made = {
            **{name: value for name, value in os.environ.items() if needs.MACHINE not in block.needs
               or name not in ("OFFPATH_AGENT", "OFFPATH_AGENT_HTTP", "OFFPATH_KEY_FILE", "XDG_RUNTIME_DIR")},
            "PATH": os.pathsep.join(paths),
            "PYTHONPATH": package,
            "PKG_CONFIG_PATH": f"{sys.prefix}/lib/pkgconfig",  # of the library that ./dev build installs
            "CMAKE_PREFIX_PATH": sys.prefix,
            "USER": self.user,
            # Open MPI refuses root, and more ranks than the machine has cores, without these.
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
        }  # fmt: skip
        return made | self.places(block)

    def places(self, block: Block) -> dict[str, str]:
        """Variables by which programs of a block find its agent, as a reader's find the one that listens by default."""
        agent = self.agent_for(block)
        if agent is None:
            return {}
        return {"OFFPATH_AGENT": agent.address, "OFFPATH_AGENT_HTTP": agent.http_address or ""}

    def command(self, block: Block, command: list[Any]) -> None:
        """Runs a program of a block to its end, and kills the processes that it started; or runs it in a terminal where
        it stays."""
        environment = self.environment(block)
        if needs.MACHINE in block.needs:
            command = self.own_machine().command(self.directory, command)
        if needs.STAYS in block.needs:
            self.terminals.append(Terminal(block, command, self.directory, environment))
            self.terminals[-1].wait_until_ready()
            return
        end = time.monotonic() + (REPEATED_SECONDS_MAX if needs.REPEATED in block.needs else 0)
        while True:
            try:
                return self.run_to_end(block, command, environment)
            except BlockFailed:
                if time.monotonic() > end:
                    raise

    def run_to_end(self, block: Block, command: list[Any], environment: dict[str, str]) -> None:
        with subprocess.Popen(
            list(map(str, command)), cwd=self.directory, env=environment, start_new_session=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        ) as running:  # fmt: skip
            assert running.stdout is not None
            try:
                code = running.wait(SECONDS_MAX)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
            said = running.stdout.read()
        if (code != 0) != (needs.FAILS in block.needs):
            raise BlockFailed(f"{block.place}: exit status {code}\n{said}")
        check_output(block, said)

    def run_python(self, block: Block) -> None:
        if needs.CONTINUES not in block.needs:
            self.names = {"__name__": "__main__"}
        # Lines of a traceback are the page's.
        with patch.dict(os.environ, self.places(block)), contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile("\n" * (block.line - 1) + block.code, str(block.page), "exec"), self.names)
        check_output(block, said.getvalue())

    def run_shell(self, block: Block) -> None:
        if needs.SOURCES in block.needs:
            for name in ("include", "examples", "packaging"):
                with contextlib.suppress(FileExistsError):
                    (self.directory / name).symlink_to(ROOT / name)
        if needs.SIMULATION in block.needs and not (self.directory / "simulation").exists():
            source = Path(__file__).parent / "simulation.c"
            self.finish(block, [*COMPILERS["c"], source, "-o", self.directory / "simulation", *self.linked()])
        script = self.directory / f"block{block.line}.sh"
        script.write_text(SHELL + block.code)
        self.command(block, ["bash", "-eu", "-o", "pipefail", script])

    @staticmethod
    def linked() -> list[str]:
        libraries = BUILD / "lib"
        return [f"-I{ROOT / 'include'}", f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-loffpath"]

    def run_compiled(self, block: Block) -> None:
        around = next(iter(block.needs & FRAGMENTS.keys()), block.language)
        before, after = FRAGMENTS.get(around, ("", ""))
        is_program = block.language not in FRAGMENTS or re.search(r"\bmain\s*\(", block.code)
        source = self.directory / f"block{block.line}{ENDINGS[block.language]}"
        source.write_text(block.code if is_program else before + block.code + after)
        program = source.with_suffix("")
        compiler = COMPILERS[block.language]
        if not shutil.which(compiler[0]):
            raise BlockFailed(f"{block.place}: there is no {compiler[0]}")
        compile_it = [*compiler, source, "-o", program, f"-I{ROOT / 'include'}"]
        if needs.COMPILED_ONLY in block.needs:
            own = [f"-I{ROOT / 'src'}"] if needs.IN_TEST in block.needs else []
            self.finish(block, [*compile_it, *own, "-c"])
            return
        self.finish(block, [*compile_it, *self.linked()])
        self.command(block, [program])

    def check_settings(self, block: Block) -> None:
        """Settings are TOML; with `agent` in the marker, they are an agent's and right on this machine."""
        tomllib.loads(block.code)
        self.settings = block.code
        file = self.directory / f"block{block.line}.toml"
        file.write_text(block.code)
        if needs.POLICY in block.needs:
            read_policy(file)
        elif wanted := block.needs & needs.AGENTS:
            file.write_text((self.plugin_for(block, next(iter(wanted))) or "") + block.code)
            self.finish(block, [BUILD / "bin/offpath-agent", "--config", file, "--check-config"])

    @staticmethod
    def check_service(block: Block) -> None:
        """A DPUService sets values that the chart has."""
        service = yaml.safe_load(block.code)
        known = yaml.safe_load((CHART / "values.yaml").read_text())
        spec = service["spec"]
        given = {**spec["helmChart"]["values"], "serviceDaemonSet": spec["serviceDaemonSet"]}
        for name, value in given.items():
            unknown = value.keys() - known.get(name, {}).keys()
            if unknown:
                raise BlockFailed(f"{block.place}: the chart has no {name}: {', '.join(sorted(unknown))}")
