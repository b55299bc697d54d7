"""Options and arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..session import Session, connect

AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        help="unix:/path, tcp:, tls:, verbs: or doca:HOST:PORT; else OFFPATH_AGENT, else the "
        "agent that listens by default.",
    ),
]
HttpOption = Annotated[
    str | None, typer.Option("--http", help="HOST:PORT or unix:/path of the agent's pages; else OFFPATH_AGENT_HTTP.")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PoolArgument = Annotated[str, typer.Argument(help="Such as local:/particles.")]
RowOption = Annotated[str, typer.Option("--row", "--rows", help="Only objects whose row key matches this pattern.")]
ColumnOption = Annotated[
    str, typer.Option("--column", "--columns", help="Only objects whose column key matches this pattern.")
]
OutOption = Annotated[
    Path | None, typer.Option(help="Write everything to this file: .parquet, .csv, .arrow or .arrows.")
]
ForceFlag = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
ArrowOnlyFlag = Annotated[bool, typer.Option("--arrow-only", help="Leave out objects that are not Arrow.")]

# Options that were called otherwise once: commands with --timeout still take --wait, or --for, which no help shows.
OLD_NAMES = {"token_normalize_func": lambda name: {"wait": "timeout", "for": "timeout"}.get(name, name)}


def open_session(agent: str | None) -> Session:
    return connect(agent, name="offpath-cli")
