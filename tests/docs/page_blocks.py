"""The code blocks of a page, and how each is run. docs/internals/hacking.md explains the markers."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import offpath
from offpath.sockets_policy import read_policy

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("OFFPATH_BUILD_DIR", ROOT / "build" / "release"))
SECONDS_MAX = 100

# Needs with which a block still runs here. Any other word of a marker is the reason why it does not run.
CONTINUES, COMPILED_ONLY = "continues the block before", "compiled only"
IN_PLUGIN = "inside a function of a plug-in"
SETTINGS_ABOVE, CORRELATION = "agent with the settings above", "agent with the plug-in correlation of examples/09_task"
PARTICLES, MD = "agent with the plug-in particles of examples/05_plugin", "agent with the plug-in md"
EXAMPLES = {CORRELATION: ("correlation", "09_task/correlate_plugin.c"),
            PARTICLES: ("particles", "05_plugin/particles_plugin.c")}  # fmt: skip
AGENTS = {"agent", SETTINGS_ABOVE, CORRELATION, PARTICLES, MD}
SOURCES, INSTALLED, POLICY = "the sources", "the installed library", "a policy of sockets"
HERE = AGENTS | {"offpath", "numpy", "pyarrow", "pyarrow with Flight", "compiler", "a current directory to write to",
                 "offpath-md", "opentelemetry", SOURCES, INSTALLED, POLICY}  # fmt: skip
KNOWN = HERE | {CONTINUES, COMPILED_ONLY, IN_PLUGIN}

LANGUAGES = {"python", "sh", "c", "cpp", "fortran", "toml"}
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*).*$")
PRINTS = re.compile(r"^ *<!-- prints -->$")  # in front of a block of text: what the block above it prints
ELLIPSIS = "…"  # in such a block: anything
MARKER = re.compile(r"^ *<!-- needs: (?P<needs>.+) -->$")
SNIPPET = re.compile(r'^--8<-- "(?P<path>.+)"$')

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
    IN_PLUGIN: (
        "#include <offpath/plugin.h>\nenum { STEP = 1 };\n"
        "void function(ofp_context *context, unsigned left, unsigned right, double edge[4], double halo[4]) {\n",
        "}\n",
    ),
}
COMPILERS = {
    "c": ["cc", "-std=c11"],
    "cpp": ["c++", "-std=c++20"],
    "fortran": ["gfortran", str(ROOT / "include/offpath/offpath.f90")],
}
ENDINGS = {"c": ".c", "cpp": ".cc", "fortran": ".f90"}


class BlockFailed(AssertionError):
    """A block of a page that did not do what the page says."""


@dataclass(frozen=True)
class Block:
    page: Path
    line: int  # of the first line of its code
    language: str
    needs: frozenset[str]
    marker: str  # as it is written; empty: it has none
    code: str
    prints: str | None = None  # what the page shows as its output

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def reasons(self) -> set[str]:
        """Why it does not run here."""
        return set(self.needs - KNOWN)


def blocks_of(page: Path) -> list[Block]:
    """Every fenced block of a page in a language that can be run or checked."""
    found: list[Block] = []
    lines = page.read_text(encoding="utf-8").split("\n")
    opened: re.Match[str] | None = None
    first = 0
    for number, line in enumerate(lines, 1):
        if opened is None:
            opened, first = FENCE.match(line), number + 1
            continue
        if line.strip() != "```":
            continue
        language = opened["language"]
        text = textwrap.dedent("\n".join(lines[first - 1 : number - 1])) + "\n"
        if language == "text" and first > 2 and PRINTS.match(lines[first - 3]):
            found[-1] = replace(found[-1], prints=text)
        if language in LANGUAGES:
            marker = MARKER.match(lines[first - 3]) if first > 2 else None
            needs = frozenset(re.split(r"[;,] ", marker["needs"])) if marker else frozenset()
            found.append(Block(page, first, language, needs, marker["needs"] if marker else "", with_snippets(text)))
        opened = None
    return found


def check_output(block: Block, said: str) -> None:
    """Raises BlockFailed if the block printed something else than its page shows. Spaces are compared as one."""
    if block.prints is None:
        return
    shown = " ".join(block.prints.split())
    pattern = ".*".join(re.escape(part.strip()) for part in shown.split(ELLIPSIS))
    if not re.fullmatch(pattern, " ".join(said.split())):
        raise BlockFailed(f"{block.place}: the page shows\n{block.prints}\nbut it printed\n{said}")


def with_snippets(code: str) -> str:
    """The code with files in place of the lines that include them, as the site shows it."""
    lines = [SNIPPET.match(line) or line for line in code.split("\n")]
    return "\n".join(each if isinstance(each, str) else (ROOT / each["path"]).read_text("utf-8") for each in lines)


class PageRun:
    """One page's blocks, run in order in ``directory`` with an agent of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.names: dict[str, Any] = {}
        self.settings = ""  # the last block of settings
        self.resources = contextlib.ExitStack()
        self.agents: dict[str, offpath.Agent] = {}
        programs = directory / "bin"
        programs.mkdir()
        for name, module in {"offpath": "-m offpath ", "python3": ""}.items():
            command = programs / name
            command.write_text(f'#!/bin/sh\nexec {sys.executable} {module}"$@"\n')
            command.chmod(0o755)
        self.path = f"{programs}:{BUILD / 'bin'}:{os.environ['PATH']}"

    def __enter__(self) -> PageRun:
        return self

    def __exit__(self, *why: object) -> None:
        self.resources.close()

    def run(self, block: Block) -> None:
        """Raises BlockFailed, or what the block raises."""
        if block.language == "toml":
            self.check_settings(block)
        elif block.language == "python":
            self.run_python(block)
        elif block.language == "sh":
            self.run_shell(block)
        else:
            self.run_compiled(block)

    def agent_for(self, block: Block) -> offpath.Agent | None:
        wanted = block.needs & AGENTS
        if not wanted:
            return None
        kind = next(iter(wanted))
        if kind not in self.agents:
            config = self.settings if kind == SETTINGS_ABOVE else self.plugin_for(block, kind)
            started = offpath.Agent.start(memory="512MiB", config=config)
            self.agents[kind] = self.resources.enter_context(started)
        return self.agents[kind]

    def plugin_for(self, block: Block, kind: str) -> str | None:
        """Settings with the plug-in that is asked for, in a folder that nobody else can write to."""
        if kind == MD:
            name, plugin = "md", Path(shutil.copy(BUILD / "lib" / "md_plugin.so", self.directory))
        elif kind in EXAMPLES:
            name, source = EXAMPLES[kind]
            plugin = self.directory / f"{name}.so"
            make = ["cc", "-shared", "-fPIC", f"-I{ROOT / 'include'}", ROOT / "examples" / source, "-o", plugin, "-lm"]
            self.command(block, make)
        else:
            return None
        return f'[[plugin]]\nname = "{name}"\npath = "{plugin}"\n'

    def environment(self, agent: offpath.Agent | None) -> dict[str, str]:
        package = os.pathsep.join(path for path in sys.path if path)
        made = {
            **os.environ,
            "PATH": self.path,
            "PYTHONPATH": package,
            "PKG_CONFIG_PATH": f"{sys.prefix}/lib/pkgconfig",  # of the library that ./dev build installs
        }
        if agent is not None:
            made |= {"OFFPATH_AGENT": agent.address, "OFFPATH_AGENT_HTTP": agent.http_address or ""}
        return made

    def command(self, block: Block, command: list[Any], agent: offpath.Agent | None = None) -> str:
        """Runs a program of a block to its end, kills whatever it has started, and returns what it said."""
        with subprocess.Popen(
            list(map(str, command)), cwd=self.directory, env=self.environment(agent), start_new_session=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        ) as running:  # fmt: skip
            try:
                code = running.wait(SECONDS_MAX)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(running.pid, signal.SIGKILL)
            assert running.stdout is not None
            said = running.stdout.read()
        if code != 0:
            raise BlockFailed(f"{block.place}: exit status {code}\n{said}")
        return said

    def run_python(self, block: Block) -> None:
        if CONTINUES not in block.needs:
            self.names = {"__name__": "__main__"}
        agent = self.agent_for(block)
        if agent is not None and CONTINUES not in block.needs:
            self.names["agent"] = agent
            self.names["session"] = self.resources.enter_context(offpath.connect(agent.address))
        # Lines of a traceback are the page's.
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile("\n" * (block.line - 1) + block.code, str(block.page), "exec"), self.names)
        check_output(block, said.getvalue())

    def run_shell(self, block: Block) -> None:
        if SOURCES in block.needs:
            for name in ("include", "examples"):
                with contextlib.suppress(FileExistsError):
                    (self.directory / name).symlink_to(ROOT / name)
        script = self.directory / f"block{block.line}.sh"
        script.write_text(block.code)
        check_output(block, self.command(block, ["bash", "-eu", "-o", "pipefail", script], self.agent_for(block)))

    def run_compiled(self, block: Block) -> None:
        before, after = FRAGMENTS.get(IN_PLUGIN if IN_PLUGIN in block.needs else block.language, ("", ""))
        is_program = block.language not in FRAGMENTS or re.search(r"\bmain\s*\(", block.code)
        source = self.directory / f"block{block.line}{ENDINGS[block.language]}"
        source.write_text(block.code if is_program else before + block.code + after)
        program = source.with_suffix("")
        compiler = COMPILERS[block.language]
        if not shutil.which(compiler[0]):
            raise BlockFailed(f"{block.place}: there is no {compiler[0]}")
        command: list[Any] = [*compiler, f"-I{ROOT / 'include'}", source]
        if COMPILED_ONLY in block.needs:
            self.command(block, [*command, "-c", "-o", program])
            return
        libraries = BUILD / "lib"
        self.command(block, [*command, "-o", program, f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-loffpath"])
        check_output(block, self.command(block, [program], self.agent_for(block)))

    def check_settings(self, block: Block) -> None:
        """Settings are TOML; with `agent` in the marker, they are an agent's and right on this machine."""
        tomllib.loads(block.code)
        self.settings = block.code
        file = self.directory / f"block{block.line}.toml"
        file.write_text(block.code)
        if POLICY in block.needs:
            read_policy(file)
        elif wanted := block.needs & AGENTS:
            file.write_text((self.plugin_for(block, next(iter(wanted))) or "") + block.code)
            self.command(block, ["offpath-agent", "--config", file, "--check-config"])
