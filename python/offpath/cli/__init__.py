"""The command line: ``offpath COMMAND``. ``--json`` prints output for scripts."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .. import __version__
from ..errors import Error
from . import agents, exchanges, pools, programs, queries
from .options import JsonFlag
from .output import print_json

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False,
                  context_settings={"help_option_names": ["-h", "--help"]},  # of all commands
                  help="Moves a program's arrays to an agent, where they become Arrow.")  # fmt: skip
app.add_typer(pools.app, name="pool")
app.add_typer(exchanges.app, name="exchange")


def print_version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def all_commands(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version, and exit.")
    ] = False,
) -> None:
    """Moves a program's arrays to an agent, where they become Arrow."""


@app.command()
def version(as_json: JsonFlag = False) -> None:
    """The version of the package and its library."""
    if as_json:
        print_json({"version": __version__})
    else:
        print(__version__)


# In the order of `offpath --help`.
app.registered_commands = [
    *programs.app.registered_commands,
    *app.registered_commands,
    *agents.app.registered_commands,
    *queries.app.registered_commands,
]


def mount_others() -> None:
    """``run`` and ``bench``, which bring more imports with them: only when they are asked for."""
    asked = sys.argv[1:2]
    if asked in (["bench"], ["-h"], ["--help"], []):
        from ..bench import app as bench_app

        app.add_typer(bench_app, name="bench")
    if asked in (["run"], ["-h"], ["--help"], []):
        from ..run import run_command

        app.command("run")(run_command)


def main() -> None:
    """The program ``offpath``. Errors are one line, and status 1."""
    mount_others()
    try:
        app(prog_name="offpath")
    except Error as error:
        print(f"offpath: {error}", file=sys.stderr)
        sys.exit(1)
