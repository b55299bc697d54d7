"""A bar on a terminal, about ten lines without one."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .report import bytes_text

LINES = 10


class StepProgress:
    """Called after each hand-over with the steps done and the bytes it moved."""

    def __init__(self, console: Console, steps: int, every: int) -> None:
        self.console, self.steps, self.every = console, steps, every
        self.handovers, self.payload_bytes, self.lines = 0, 0, 0
        self.bar: Progress | None = None

    def __enter__(self) -> StepProgress:
        if self.console.is_terminal:
            self.bar = Progress(
                TextColumn("LAMMPS, step"),
                MofNCompleteColumn(),
                BarColumn(),
                TextColumn("{task.fields[moved]}"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self.console,
                transient=True,
            )
            self.task = self.bar.add_task("", total=self.steps, moved="setting up")
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def __call__(self, step: int, payload_bytes: int) -> None:
        self.handovers += 1
        self.payload_bytes += payload_bytes
        moved = f"{self.handovers} hand-overs, {bytes_text(self.payload_bytes)}"
        if self.bar:
            self.bar.update(self.task, completed=step, moved=moved)
            return
        due = step * LINES // self.steps
        if due > self.lines or step == 0:
            self.lines = due
            self.console.print(f"step {step}/{self.steps}: {moved}", highlight=False)
