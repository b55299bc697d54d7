"""Where the time of an echo goes, as a picture: from the stages of ``offpath bench tcp --breakdown``."""

from __future__ import annotations

from pathlib import Path

from .figures import new_figure, save
from .report import Report

STAGE = "tcp.echo_stage ("
COLOURS = {"client and network": "#bbbbbb", "waits for the agent": "#4477aa", "waits for the program": "#ee6677"}
# Whose time each stage is, in the order of an echo.
CLIENT, AGENT, PROGRAM = COLOURS
OWNERS = (CLIENT, AGENT, PROGRAM, PROGRAM, AGENT, AGENT, CLIENT)


def draw(report: Report, out: Path) -> list[Path]:
    """The bar, if the stages were measured; the paths written."""
    stages = [claim for claim in report.claims if claim.claim.startswith(STAGE) and claim.value is not None]
    if not stages:
        return []
    figure, axes = new_figure(1, 1, 9, 4)
    panel = axes[0][0]
    begin = 0.0
    for row, (stage, owner) in enumerate(zip(stages, OWNERS, strict=True)):
        assert stage.value is not None
        panel.barh(row, stage.value, left=begin, color=COLOURS[owner])
        panel.annotate(
            f"{stage.value:.1f}", (begin + stage.value, row), (4, 0), textcoords="offset points", va="center"
        )
        begin += stage.value
    panel.set_yticks(range(len(stages)), [stage.claim[len(STAGE) : -1] for stage in stages])
    panel.invert_yaxis()
    panel.set_xlim(0, begin * 1.08)
    panel.set_xlabel("us since the client's send")
    panel.set_title("An echo of 64 bytes, stage by stage (those about the median)")
    handles = [panel.barh(0, 0, color=colour, label=owner) for owner, colour in COLOURS.items()]
    panel.legend(handles=handles, loc="lower left")
    panel.grid(axis="x", alpha=0.3)
    return [save(figure, out, "tcp_echo_stages")]
