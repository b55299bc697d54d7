"""Figures of "Smarter NICs for faster molecular dynamics" (2022), from the series of ``offpath bench md``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..figures import lines_of, new_figure, save
from ..report import Report, Series
from .offloaded import SHARES, knee

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"none": "#4477aa", "force": "#ee6677", "list": "#228833", "share": "#aa3377"}
PHASE_COLOURS = ("#4477aa", "#ee6677", "#ccbb44", "#228833", "#66ccee", "#bbbbbb")


def draw(report: Report, out: Path) -> list[Path]:
    """Each figure whose series were measured; the paths written."""
    drawn = [
        draw_phases(report, out, "md_fig7", "fig7_phases", "Where the time of the host alone goes"),
        draw_phases(report, out, "md_fig7_ranks", "fig7_ranks", "Where the time of a rank goes, a core for each"),
        draw_by_interval(report, out, "md_fig11", "fig11_gain", "Off-path against the host alone, equation (2)"),
        draw_by_interval(report, out, "md_fig12", "fig12_communication", "If all communication were hidden"),
        draw_divergence(report, out),
        draw_model(report, out),
        draw_threads(report, out),
        draw_knee(report, out),
        draw_other_agents(report, out),
        draw_by_interval(report, out, "md_energy", "energy", "Energy of a step, the machine's, as RAPL counts it"),
        draw_shares(report, out),
    ]
    return [path for path in drawn if path is not None]


def joined(lines: list[Series]) -> list[Series]:
    """Lines of one name as one."""
    names = dict.fromkeys(line.name for line in lines)
    whole = []
    for name in names:
        parts = [line for line in lines if line.name == name]
        x, y = [v for part in parts for v in part.x], [v for part in parts for v in part.y]
        whole.append(Series(parts[0].figure, name, parts[0].x_unit, parts[0].y_unit, x, y))
    return whole


def draw_phases(report: Report, out: Path, series: str, name: str, title: str) -> Path | None:
    """Figure 7: the phases of the host alone, stacked."""
    lines = lines_of(report, series)
    if not lines:
        return None
    figure, axes = new_figure(1, 1, 9, 5)
    places = range(len(lines))
    bottom = [0.0] * len(lines)
    for k, (phase, colour) in enumerate(zip(SHARES, PHASE_COLOURS, strict=True)):
        values = [line.y[k] if k < len(line.y) else 0.0 for line in lines]  # runs kept from before `other` lack it
        axes[0][0].bar(places, values, bottom=bottom, color=colour, label=phase, width=0.7)
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    axes[0][0].set_xticks(list(places), [line.name for line in lines], rotation=60, ha="right", fontsize="small")
    axes[0][0].set(ylabel="% of the time", title=title)
    axes[0][0].legend(fontsize="small", loc="lower left")
    return save(figure, out, name)


def draw_by_interval(report: Report, out: Path, series: str, name: str, title: str) -> Path | None:
    lines = joined(lines_of(report, series))
    if not lines:
        return None
    figure, axes = new_figure(1, 1, 8, 5)
    for line in lines:
        style = "--" if "list" in line.name else ":" if "none" in line.name else "-"
        axes[0][0].plot(line.x, line.y, style, marker="o", markersize=4, label=line.name)
    axes[0][0].axhline(0, color="#999999", linewidth=1)
    axes[0][0].set(xlabel="steps between lists", ylabel=lines[0].y_unit, title=title)
    axes[0][0].grid(alpha=0.3)
    axes[0][0].legend(fontsize="small")
    return save(figure, out, name)


def draw_divergence(report: Report, out: Path) -> Path | None:
    """Figure 13: a panel for each skin."""
    lines = lines_of(report, "md_fig13")
    if not lines:
        return None
    skins = sorted({line.name.partition(", skin ")[2] for line in lines}, key=float)
    figure, axes = new_figure(1, len(skins), 5)
    for panel, skin in zip(axes[0], skins, strict=True):
        for line in lines:
            mode, _, of = line.name.partition(", skin ")
            if of == skin:
                panel.plot(line.x, line.y, marker="o", markersize=4, color=COLOURS[mode], label=mode)
        panel.set_yscale("symlog", linthresh=1e-12)
        panel.set(xlabel="steps between lists", ylabel="|TDR|, temperature a step", title=f"Skin {skin}")
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small")
    return save(figure, out, "fig13_divergence")


def draw_model(report: Report, out: Path) -> Path | None:
    """Figure 14: measured (full lines) and predicted (dashed), a panel for each number of atoms."""
    figure = panels_of_sizes(
        lines_of(report, "md_fig14"),
        colour=lambda of: COLOURS[of.partition("/")[0]],
        style=lambda of: "--" if of.endswith("/predicted") else "-",
        xlabel="steps between lists",
        ylabel="ms a step",
    )
    return save(figure, out, "fig14_model") if figure else None


def draw_threads(report: Report, out: Path) -> Path | None:
    """Figure 14 by threads of host and agent."""
    figure = panels_of_sizes(
        lines_of(report, "md_fig14_threads"),
        colour=lambda of: COLOURS[of.partition("/")[0].partition(",")[0]],
        style=lambda of: "--" if of.endswith("/predicted") else ":" if "2 of the agent" in of else "-",
        xlabel="host's threads",
        ylabel="ms a step, lists at every step",
    )
    return save(figure, out, "fig14_threads") if figure else None


def draw_knee(report: Report, out: Path) -> Path | None:
    """Figure 14 by threads of the agent; the knee of each mode is marked."""
    lines = lines_of(report, "md_fig14_knee")
    figure = panels_of_sizes(lines, colour=COLOURS.__getitem__, style=lambda _: "-", xlabel="agent's threads",
                             ylabel="ms a step, predicted, lists at every step")  # fmt: skip
    if figure is None:
        return None
    for line in lines:
        at = knee(line.x, line.y)
        panel = next(each for each in figure.axes if each.get_title() == f"{line.name.partition('/')[0]} atoms")
        mode = line.name.partition("/")[2]
        panel.plot([at], [line.y[line.x.index(at)]], "D", markersize=11, fillstyle="none", color=COLOURS[mode],
                   label=f"knee of {mode}: {at:g}")  # fmt: skip
        panel.legend(fontsize="small")
    return save(figure, out, "fig14_knee")


def draw_other_agents(report: Report, out: Path) -> Path | None:
    """Figure 15: agents with other cores, lists at every step."""
    figure = panels_of_sizes(
        lines_of(report, "md_fig15"),
        colour=lambda of: COLOURS[of.partition(",")[0]],
        style=lambda of: {"1": "-", "0.5": "--", "0.25": ":"}[of.rpartition(" ")[2]],
        xlabel="agent's cores",
        ylabel="ms a step, predicted, lists at every step",
    )
    if figure is None:
        return None
    for panel in figure.axes:
        panel.set_xscale("log", base=2)
    return save(figure, out, "fig15_other_agents")


def draw_shares(report: Report, out: Path) -> Path | None:
    """Gain beside the host alone over the agent's share of a core: the model's line, and the measurements."""
    lines = lines_of(report, "md_card")
    if not lines:
        return None
    figure, axes = new_figure(1, 1, 8, 5)
    for line in joined(lines):
        mode, _, kind = line.name.partition(", ")
        style = "-" if kind == "model" else "o"
        axes[0][0].plot(line.x, line.y, style, color=COLOURS[mode], label=line.name)
    axes[0][0].axhline(0, color="#999999", linewidth=1)
    axes[0][0].set(xlabel="the agent's share of a core", ylabel="% faster than one core alone",
                   title="Beside lists by displacement")  # fmt: skip
    axes[0][0].grid(alpha=0.3)
    axes[0][0].legend(fontsize="small")
    return save(figure, out, "shares")


def panels_of_sizes(
    lines: list[Series], colour: Callable[[str], str], style: Callable[[str], str], xlabel: str, ylabel: str
) -> Figure | None:
    """A panel for each number of atoms: of lines named "ATOMS/WHAT", ``colour`` and ``style`` are those of WHAT."""
    if not lines:
        return None
    sizes = list(dict.fromkeys(line.name.partition("/")[0] for line in lines))
    figure, axes = new_figure(1, len(sizes), 5)
    for panel, size in zip(axes[0], sizes, strict=True):
        for line in lines:
            atoms, _, of = line.name.partition("/")
            if atoms == size:
                label = of.replace("/", ", ")
                panel.plot(line.x, line.y, style(of), marker="o", markersize=4, color=colour(of), label=label)
        panel.set(xlabel=xlabel, ylabel=ylabel, ylim=(0, None), title=f"{size} atoms")
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small")
    return figure
