"""The picture of a run: the cost of each hand-over, and the paths of some particles."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from .paths import Paths
from .report import RunReport, bytes_text, time_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, CYAN, YELLOW, RED, PURPLE = "#4477aa", "#66ccee", "#ccbb44", "#ee6677", "#aa3377"
GREY = "#666666"


def draw(report: RunReport, paths: Paths, path: Path) -> None:
    """Writes one PNG. Needs no display."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (times, places) = plt.subplots(1, 2, figsize=(14, 6.4), layout="constrained", width_ratios=(1.25, 1))
    draw_times(report, times)
    draw_paths(paths, places, figure)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_times(report: RunReport, axes: Axes) -> None:
    """Every hand-over of the slowest rank's: a dot for each, the median written beside the line."""
    if report.settings.snapshot:
        lines: list[tuple[str, str, bool | None, str, str]] = [
            ("post, copying into staging;\nown again at once", "post", None, BLUE, "o")
        ]
    else:
        lines = [
            ("post", "post", None, BLUE, "o"),
            ("waiting, after\ncomputing meanwhile", "waiting", True, CYAN, "D"),
            ("own again,\nif it waits", "own_again", False, YELLOW, "s"),
        ]
    lines.append(("pyarrow on the host,\ninto new memory", "serialise", None, RED, "^"))
    lines.append(("pyarrow on the host,\nbuffer used again", "reuse", None, PURPLE, "v"))
    labels: list[tuple[float, str, str]] = []
    for label, name, busy, colour, marker in lines:
        chosen = [handover for handover in report.handovers if busy is None or handover.busy == busy]
        if not chosen:
            continue
        x = [handover.step for handover in chosen]
        y = [max(getattr(handover, f"{name}_ns"), 1) / 1e3 for handover in chosen]
        ranks = len(report.ranks) > 1
        axes.plot(x, y, marker=marker, markersize=5, color=colour, linewidth=0 if ranks else 1.2, alpha=0.9)
        axes.axhline(median(y), color=colour, linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.7)
        labels.append((median(y), f"{label}\nmedian {time_text(median(y))}", colour))
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.3, high * 1.3)
    place_labels(axes, labels)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1e3:g} ms" if value >= 1e3 else f"{value:g} us")
    axes.set_xlabel("time step of the simulation")
    axes.set_ylabel("time of one hand-over (logarithmic)")
    size = bytes_text(report.payload_bytes / len(report.handovers))
    axes.set_title(f"{report.ranks[0].atoms:,} atoms, {size} a hand-over: its cost to the simulation", loc="left")
    axes.grid(which="major", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def place_labels(axes: Axes, labels: list[tuple[float, str, str]]) -> None:
    """Text to the right of the lines, moved apart where medians are close. ``labels``: value, text, colour."""
    low, high = np.log10(axes.get_ylim())
    gap = 0.135
    heights = [(np.log10(value) - low) / (high - low) for value, _, _ in labels]
    order = np.argsort(heights)
    placed: dict[int, float] = {}
    below = -1.0
    for index in order:
        below = max(heights[index], below + gap)
        placed[int(index)] = below
    excess = max(0.0, below - 0.97)
    for index, (_, text, colour) in enumerate(labels):
        height = placed[index] - excess
        axes.annotate(text, (1.02, height), xycoords="axes fraction", color=darken(colour), va="center", fontsize=9.5)


def darken(colour: str) -> tuple[float, float, float]:
    """The same colour, dark enough for text on white."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return 0.68 * red, 0.68 * green, 0.68 * blue


def draw_paths(paths: Paths, axes: Axes, figure: Figure) -> None:
    """One layer of particles from above: hollow where they began, a line coloured by time, filled where they are."""
    from matplotlib.collections import LineCollection

    positions = paths.positions[:, :, :2]
    segments = np.stack([positions[:-1], positions[1:]], axis=2)  # (frames - 1, particles, 2 ends, 2)
    times = np.repeat(paths.steps[1:], segments.shape[1])
    lines = LineCollection(
        list(segments.reshape(-1, 2, 2)), array=times, cmap="viridis_r", linewidths=2.0, capstyle="round"
    )
    axes.add_collection(lines)
    axes.scatter(
        positions[0, :, 0], positions[0, :, 1], s=70, facecolors="none", edgecolors="#bbbbbb", linewidths=1.0, zorder=1
    )
    axes.scatter(positions[-1, :, 0], positions[-1, :, 1], s=26, color="#333333", zorder=3)
    reach = paths.half_width * 1.06
    axes.set_xlim(paths.centre[0] - reach, paths.centre[0] + reach)
    axes.set_ylim(paths.centre[1] - reach, paths.centre[1] + reach)
    axes.set_aspect("equal")
    axes.set_xlabel("x")
    axes.set_ylabel("y")
    axes.set_title(f"{len(paths.ids)} particles of one layer, from the written frames", loc="left")
    axes.tick_params(colors=GREY)
    bar = figure.colorbar(lines, ax=axes, shrink=0.8, pad=0.02)
    bar.set_label("time step (circle: first, dot: last)")
