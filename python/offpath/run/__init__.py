"""``offpath run``: a live simulation hands its particles to an agent, and they arrive as Arrow.

``run_command`` is the command; ``offpath.cli`` mounts it. ``run`` is the same for programs.
Read ``handover.py`` for the work of a step.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .settings import ATOMS_DEFAULT, DESTINATIONS, RunError, Settings

__all__ = ["RunError", "Settings", "run_command"]


def make_console(stderr: bool = False) -> Console:
    """The terminal, or wide lines without a terminal."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(width=140, stderr=stderr)


def run_command(
    atoms: Annotated[int | None, typer.Option(help=f"About how many atoms (default {ATOMS_DEFAULT:,}).")] = None,
    steps: Annotated[int, typer.Option(help="Time steps of the simulation.")] = 100,
    every: Annotated[int, typer.Option(help="Hand the arrays over every so many steps.")] = 5,
    agent: Annotated[
        str | None,
        typer.Option(help="HOST:PORT, unix:PATH or tls:HOST:PORT … of an agent; without it one is started."),
    ] = None,
    agents: Annotated[int, typer.Option(help="Agents started for this run, a group; ranks use them in turn.")] = 1,
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="Copy the arrays into staging instead of waiting for them.")
    ] = False,
    layout: Annotated[
        str | None,
        typer.Option(
            help="x and v as one column of three doubles a row (list) or as three columns (columns). The default is "
            "list, with --view columns."
        ),
    ] = None,
    destination: Annotated[str, typer.Option(help=f"The form of the frames: {', '.join(DESTINATIONS)}.")] = "ipc-page",
    ranks: Annotated[int, typer.Option(help="MPI ranks of the simulation, started here by mpiexec.")] = 1,
    input: Annotated[
        Path | None, typer.Option(help="A LAMMPS input of your own; run up to its first run command.")
    ] = None,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Compare with LAMMPS's own dump.")] = True,
    view: Annotated[
        bool, typer.Option("--view", help="Serve a page that draws each step while the simulation runs.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Directory for the files.")] = Path("offpath-run"),
    json_path: Annotated[Path | None, typer.Option("--json", help="Write everything found as JSON.")] = None,
) -> None:
    """Run a LAMMPS simulation and hand its particles to an agent, which keeps them as Arrow.

    Exits with 1 when the frames differ from LAMMPS's dump, or on any failure; with 2 for an invalid option.
    """
    settings = Settings(
        atoms=atoms,
        steps=steps,
        every=every,
        agent=agent,
        agents=agents,
        snapshot=snapshot,
        layout=layout or ("columns" if view else "list"),  # a page draws columns of numbers
        destination=destination,
        out=out,
        ranks=ranks,
        json_path=json_path,
        input=input,
        check=check,
        view=view,
    )
    complain = make_console(stderr=True)
    try:
        settings.validate()
    except RunError as error:
        complain.print(f"offpath run: {error}", style="red", markup=False, highlight=False)
        raise typer.Exit(2) from error
    import offpath

    from .driver import run

    console = make_console()
    try:
        report = run(settings, console)
        if json_path is not None:
            json_path.parent.mkdir(parents=True, exist_ok=True)
            json_path.write_text(json.dumps(report.as_json(), indent=1) + "\n", encoding="utf-8")
    except (RunError, offpath.Error, OSError) as error:
        complain.print(f"offpath run: {error}", style="red", markup=False, highlight=False)
        raise typer.Exit(1) from error
    report.print(console)
    if not report.ok:
        raise typer.Exit(1)
