"""Figures 6, 8, 10, 11 and 12 of "Smarter NICs for faster molecular dynamics" (2022) from the series of ``--part
ranks``. Bars of runs that had fewer cores than threads are grey and hatched: they say that it works, not how fast."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..figures import lines_of, new_figure, save
from ..report import Report, Series
from .exchange import PHASES, WAYS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677")
SLOWER, ELSEWHERE = "A core without vector instructions, as a weaker processor", "Forces elsewhere, equation (2):"
HIDDEN = "If all communication between ranks, and their waits for each other, were hidden"
NOTE = "grey, hatched: more threads than cores"
NOTE += "\n(what these compute is right; their times, cut off at the axis, say nothing about a machine with the cores)"


def draw(report: Report, out: Path) -> list[Path]:
    """Each figure whose series were measured; the paths written."""
    drawn = [
        draw_by_size(report, out, "md_fig6", "fig6_slowdown", f"{SLOWER}, against all its vectors", 1),
        draw_configurations(report, out),
        draw_exchange(report, out),
        draw_by_size(report, out, "md_fig12_ranks", "fig12_ranks", HIDDEN, 0),
        draw_by_size(report, out, "md_fig11_ranks", "fig11_ranks", f"{ELSEWHERE} against the host alone", 0),
    ]
    return [path for path in drawn if path is not None]


OF_HOST = (("halo", "#66ccee"), ("communicate", "#228833"), ("sort", "#ccbb44"), ("neighbour", "#4477aa"),
           ("wait", "#dddddd"))  # fmt: skip
OF_AGENT = (("agent_moved", "#aa3377"), ("agent_computed", "#ee6677"))
LABELS = {"agent_moved": "agent: moves memory", "agent_computed": "agent: functions, waits for messages included"}


def draw_exchange(report: Report, out: Path) -> Path | None:
    """Figure 10: a step with new lists as time passes, the host and below it its agent, for each way to exchange. The
    two parts of the agent's time are drawn one after the other: it moves memory before it computes, and after."""
    lines = lines_of(report, "md_fig10")
    if not lines:
        return None
    figure, axes = new_figure(1, 1, 9, 4)
    panel = axes[0][0]
    ticks = []
    for n, line in enumerate(lines):
        phases = dict(zip(PHASES, line.y, strict=True))
        for who, of, begin in (("hosts", OF_HOST, 0.0), ("agents", OF_AGENT, phases["halo"])):
            ticks.append((-(2.4 * n + (who == "agents")), f"{WAYS[line.name.partition('/')[2]]}: {who}"))
            for phase, colour in of:
                label = LABELS.get(phase, phase) if n == 0 else None
                panel.barh(ticks[-1][0], phases[phase], 0.8, left=begin, color=colour, label=label)
                begin += phases[phase]
    panel.set_yticks([tick[0] for tick in ticks], [tick[1] for tick in ticks])
    panel.set(xlabel="ms of a step with new lists")
    panel.grid(axis="x", alpha=0.3)
    panel.legend(fontsize="small", ncols=4, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    figure.suptitle(f"Who exchanges positions and forces, {lines[0].name.partition('/')[0]}", fontsize="medium")
    return save(figure, out, "fig10_exchange")


def parts_of(line: Series) -> tuple[str, bool]:
    """A line's name, and whether it is of oversubscribed runs."""
    name, _, how = line.name.partition("/")
    return name, how == "oversubscribed"


def bars(
    panel: Axes, places: list[float], values: list[float], width: float, colour: str, oversubscribed: bool, base: float
) -> None:
    shared: dict[str, Any] = {"color": "#dddddd", "hatch": "///", "edgecolor": "#888888"}
    style = shared if oversubscribed else {"color": colour}
    panel.bar(places, [value - base for value in values], width, bottom=base, **style)


def limits(lines: list[Series], base: float) -> tuple[float, float]:
    """Of an axis on which times that mean something are seen, with room for the numbers below; others may go beyond."""
    told = [value for line in lines if not parts_of(line)[1] for value in line.y] or [base]
    low, high = min(*told, base), max(*told, base)
    spare = max(0.5 * (high - low), 0.1 * max(abs(base), 1))
    return max(low - spare, 0) if base > 0 else low - spare, high + spare


def draw_by_size(report: Report, out: Path, series: str, name: str, title: str, base: int) -> Path | None:
    """A panel for each number of atoms, a group for each interval, in it a bar for each number of ranks."""
    lines = lines_of(report, series)
    if not lines:
        return None
    sizes = list(dict.fromkeys(parts_of(line)[0].partition(",")[0] for line in lines))
    figure, axes = new_figure(1, len(sizes), 4.6, 4.4)
    for panel, size in zip(axes[0], sizes, strict=True):
        mine = [line for line in lines if parts_of(line)[0].partition(",")[0] == size]
        width = 0.84 / len(mine)
        for k, line in enumerate(mine):
            text, oversubscribed = parts_of(line)
            places = [n - 0.42 + width * (k + 0.5) for n in range(len(line.x))]
            bars(panel, places, line.y, 0.92 * width, COLOURS[k % len(COLOURS)], oversubscribed, base)
            ranks = text.partition(", ")[2].removesuffix(" ranks")
            for place in places:
                panel.text(place, 0.01, ranks, transform=panel.get_xaxis_transform(), ha="center", fontsize="x-small")
        panel.set_ylim(*limits(mine, base))
        panel.set_xticks(range(len(mine[0].x)), [f"{interval:g}" for interval in mine[0].x])
        panel.axhline(base, color="#444444", linewidth=1)
        panel.set(xlabel="steps between lists", title=size)
        panel.grid(axis="y", alpha=0.3)
    axes[0][0].set_ylabel(lines[0].y_unit)
    figure.suptitle(f"{title}\nnumbers below the bars: ranks; {NOTE}", fontsize="medium")
    return save(figure, out, name)


def draw_configurations(report: Report, out: Path) -> Path | None:
    """Figure 8: a group for each number of ranks, in it a bar for each number of threads."""
    lines = lines_of(report, "md_fig8")
    if not lines:
        return None
    ranks = sorted({x for line in lines for x in line.x})
    figure, axes = new_figure(1, 1, 8.5, 4.6)
    panel = axes[0][0]
    for place, count in enumerate(ranks):
        mine = [line for line in lines if line.x == [count]]
        width = 0.2
        for k, line in enumerate(mine):
            text, oversubscribed = parts_of(line)
            at = place + width * (k - (len(mine) - 1) / 2)
            bars(panel, [at], line.y, 0.92 * width, COLOURS[0], oversubscribed, 0)
            threads = text.partition(", ")[2].removesuffix(" threads")
            panel.annotate(threads, (at, line.y[0]), (0, 2), textcoords="offset points", ha="center", fontsize="small")
    panel.axhline(1, color="#ee6677", linewidth=1, linestyle="--", label="one rank, a thread on every core")
    panel.set_xticks(range(len(ranks)), [f"{count:g}" for count in ranks])
    panel.set(xlabel="ranks", ylabel="speed, of one rank with a thread on every core")
    panel.margins(y=0.12)
    atoms = lines[0].name.partition(",")[0]
    figure.suptitle(
        f"{atoms}, forces, lists and all else by the host\nnumbers at the bars: threads of a rank; {NOTE}",
        fontsize="medium",
    )
    panel.set_ylim(0, 1.3 * panel.get_ylim()[1])
    panel.legend(fontsize="small", loc="upper left")
    return save(figure, out, "fig8_configurations")
