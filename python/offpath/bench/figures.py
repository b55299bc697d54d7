"""The paper's figures, drawn from the series of a report. Sizes and times are on logarithmic axes, as there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..sizes import size_text
from .report import Report, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEP_COLOURS = ("#4477aa", "#66ccee", "#ccbb44", "#ee6677")
WAYS = ("host-serialise", "agent-serialise", "ipc", "ipc-page", "c-abi", "arrays", "record-batch")


def plot_lines(axes: Axes, lines: Iterable[Series]) -> None:
    """Lines over sizes in bytes; the x axis is labelled in powers of 1024."""
    for line in lines:
        axes.plot(line.x, line.y, marker="o", markersize=3, label=line.name)
    label_sizes(axes)


def label_sizes(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlabel("bytes")
    axes.xaxis.set_major_formatter(lambda value, _: size_text(value, "g"))
    axes.tick_params(axis="x", labelrotation=45)
    axes.grid(alpha=0.3)


def new_figure(rows: int, columns: int, width: float = 6.4, height: float = 4.2):
    """A figure and its axes as a rows x columns array. Needs no display."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained")


def save(figure, out: Path, name: str, form: str = "png") -> Path:
    import matplotlib.pyplot as plt

    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.{form}"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path


def draw_move(report: Report, out: Path) -> list[Path]:
    """Figures 2, 3, 4 and 11, each where its series were measured; the paths written."""
    drawn = [draw_post(report, out), draw_bandwidth(report, out), draw_buffers(report, out), draw_ways(report, out)]
    return [path for path in drawn if path is not None]


def lines_of(report: Report, figure: str) -> list[Series]:
    return [line for line in report.series if line.figure == figure]


def draw_post(report: Report, out: Path) -> Path | None:
    """Figure 2: the host's time to ask for a transfer, which does not depend on the size."""
    lines = [line for line in lines_of(report, "fig2") if line.name != "median"]
    if not lines:
        return None
    figure, axes = new_figure(1, 1)
    plot_lines(axes[0][0], lines)
    axes[0][0].set(yscale="log", ylabel="ns", title="Host time to post a transfer, 16 columns")
    axes[0][0].axhspan(250e3, 350e3, color="grey", alpha=0.3, label="SDMS paper")
    axes[0][0].legend()
    return save(figure, out, "fig2_post")


def draw_bandwidth(report: Report, out: Path) -> Path | None:
    """Figure 3: bandwidth against the raw primitive and UCX, one and sixteen outstanding."""
    lines = lines_of(report, "fig3")
    if not lines:
        return None
    figure, axes = new_figure(1, 1, 8, 5)
    for line in lines:
        colour = {"O": "#ee6677", "p": "#4477aa", "U": "#228833"}[line.name[0]]
        style = "--" if "16" in line.name else ":" if "frame" in line.name else "-"
        axes[0][0].plot(line.x, line.y, marker="o", markersize=3, color=colour, linestyle=style, label=line.name)
    label_sizes(axes[0][0])
    axes[0][0].set(ylabel="GB/s", ylim=(0, None), title="Bandwidth of a move and of its peers")
    axes[0][0].legend(fontsize="small")
    return save(figure, out, "fig3_bandwidth")


def draw_buffers(report: Report, out: Path) -> Path | None:
    """Figure 4: the gain from page-aligned sources and destinations and from the buffer cache."""
    panels = [("fig4a", "(a) destination page-aligned"), ("fig4b", "(b) destination 8-byte aligned")]
    if not lines_of(report, "fig4a"):
        return None
    figure, axes = new_figure(1, 2)
    for panel, (name, title) in zip(axes[0], panels, strict=True):
        plot_lines(panel, lines_of(report, name))
        panel.set(ylabel="GB/s", ylim=(0, None), title=title)
        panel.legend(fontsize="small")
    return save(figure, out, "fig4_buffers")


def draw_ways(report: Report, out: Path) -> Path | None:
    """Figure 11: host overhead (left) and agent throughput (right) for 1, 4 and 16 columns."""
    counts = [count for count in (1, 4, 16) if lines_of(report, f"fig11_overhead_{count}")]
    if not counts:
        return None
    figure, axes = new_figure(len(counts), 2)
    for row, count in zip(axes, counts, strict=True):
        plot_lines(row[0], sorted(lines_of(report, f"fig11_overhead_{count}"), key=way_order))
        row[0].set(yscale="log", ylabel="ns", title=f"{count} columns: host overhead")
        plot_lines(row[1], sorted(lines_of(report, f"fig11_throughput_{count}"), key=way_order))
        row[1].set(ylabel="GB/s", ylim=(0, None), title=f"{count} columns: agent throughput")
        row[1].legend(fontsize="small")
    return save(figure, out, "fig11_ways")


def way_order(line: Series) -> int:
    return WAYS.index(line.name) if line.name in WAYS else len(WAYS)


LINK_PANELS = (
    ("latency", "us", "Latency of one message"),
    ("bandwidth", "GB/s", "Bandwidth, 64 messages outstanding"),
    ("rate", "M/s", "Messages of 8 programs, 64 of each outstanding"),
    ("all_gather", "us", "All-gather of 16 programs"),
)
PLACE_COLOURS = {"host-host": "#4477aa", "host-agent": "#ee6677", "agent-agent": "#228833"}


def draw_link(report: Report, out: Path) -> list[Path]:
    """Four panels for each link: ours in full lines, peers dashed, a colour for each place; the paths written."""
    drawn = []
    for link in ("local", "tcp", "verbs"):
        if not any(line.figure == f"link_latency_{link}" for line in report.series):
            continue
        figure, axes = new_figure(2, 2)
        for panel, (name, unit, title) in zip(axes.flat, LINK_PANELS, strict=True):
            for line in lines_of(report, f"link_{name}_{link}"):
                place, who = line.name.split(", ")
                style = "-" if who == "Offpath" else "--"
                panel.plot(line.x, line.y, style, marker="o", markersize=3, color=PLACE_COLOURS[place], label=line.name)
            label_sizes(panel)
            panel.set(yscale="log", ylabel=unit, title=f"{title}, {link}")
            panel.legend(fontsize="small")
        drawn.append(save(figure, out, f"link_{link}"))
    return drawn


def draw_pool(report: Report, out: Path) -> list[Path]:
    """Figures 3 and 4 of the paper on data services, each where its series were measured; the paths written."""
    return [path for path in (draw_objects(report, out), draw_queries(report, out)) if path is not None]


def draw_objects(report: Report, out: Path) -> Path | None:
    """Figure 3: operations on small objects by threads, with keys that collide and that do not."""
    lines = lines_of(report, "pool_fig3")
    if not lines:
        return None
    figure, axes = new_figure(1, 1, 8, 5)
    for line in lines:
        kinds = {"map": "#4477aa", "lock": "#ccbb44", "one cache": "#228833", "": "#ee6677"}
        colour = next(colour for word, colour in kinds.items() if word in line.name)
        style = "--" if "collide" in line.name else "-"
        axes[0][0].plot(line.x, line.y, style, marker="o", markersize=4, color=colour, label=line.name)
    axes[0][0].set(xlabel="threads", ylabel="millions a second, all threads", yscale="log", xticks=[1, 2],
                   title="Puts, gets and drops of objects of 64 bytes")  # fmt: skip
    axes[0][0].grid(alpha=0.3, which="both")
    axes[0][0].legend(fontsize="small")
    return save(figure, out, "fig3_objects")


def draw_task(report: Report, out: Path) -> Path | None:
    """Times of tasks that copy their input, beside copies by the program itself; None if none was measured."""
    measured = [claim for claim in report.claims if claim.claim.startswith("task.copy_vs_memcpy") and claim.value]
    if not measured:
        return None
    figure, axes = new_figure(1, 1)
    places = range(len(measured))
    axes[0][0].bar([place - 0.2 for place in places], [claim.value for claim in measured], 0.4, label="a task")
    axes[0][0].bar([place + 0.2 for place in places], [claim.peer_value for claim in measured], 0.4,
                   label=measured[0].peer)  # fmt: skip
    axes[0][0].set_xticks(places, [claim.claim.partition("(")[2].rstrip(")") for claim in measured])
    axes[0][0].set(ylabel="us", yscale="log", title="A task that copies its input")
    axes[0][0].grid(alpha=0.3, axis="y")
    axes[0][0].legend(fontsize="small")
    return save(figure, out, "task_copies")


def draw_overhead(report: Report, out: Path) -> Path | None:
    """The loss of a computation to a sampler, by samples a second."""
    lines = lines_of(report, "exchange_overhead")
    if not lines:
        return None
    figure, axes = new_figure(1, 1, 8, 5)
    for line in lines:
        accounted = line.name.startswith("processor time")
        style, colour = "--" if accounted else "-", "#4477aa" if "a core for" in line.name else "#ee6677"
        axes[0][0].plot(line.x, line.y, style, marker="o", markersize=4, color=colour, label=line.name)
    axes[0][0].axhline(0.5, color="#999999", linewidth=1, label="promised at 100 a second")
    axes[0][0].set(xlabel="samples a second", ylabel="% slower", xscale="log",
                   title="A computation that is sampled")  # fmt: skip
    axes[0][0].grid(alpha=0.3, which="both")
    axes[0][0].legend(fontsize="small")
    return save(figure, out, "exchange_overhead")


def draw_exchange_agents(report: Report, out: Path) -> Path | None:
    """The time of a round between real agents, and of MPI's allgather over the same transport (dashed)."""
    lines = lines_of(report, "exchange_agents")
    if not lines:
        return None
    figure, axes = new_figure(1, 1, 8, 5)
    for name in dict.fromkeys(line.name for line in lines):
        points = sorted((line.x[0], line.y[0]) for line in lines if line.name == name)
        style = "--" if "MPI" in name else "-"
        axes[0][0].plot(*zip(*points, strict=True), style, marker="o", markersize=4, label=name)
    axes[0][0].set(xlabel="members", ylabel="us", xscale="log", yscale="log", title="A round of 48-byte records")
    axes[0][0].grid(alpha=0.3, which="both")
    axes[0][0].legend(fontsize="small")
    return save(figure, out, "exchange_agents")


def draw_queries(report: Report, out: Path) -> Path | None:
    """Figure 4: queries by number of threads, ours and peers."""
    panels = [("pool_fig4_box", "Rows of a box of 1/8"), ("pool_fig4_speed", "Extremes of the squared velocity")]
    if not lines_of(report, panels[0][0]):
        return None
    figure, axes = new_figure(1, 2)
    for panel, (name, title) in zip(axes[0], panels, strict=True):
        for line in lines_of(report, name):
            panel.plot(line.x, line.y, marker="o", markersize=4, label=line.name)
        panel.set(xlabel="threads", ylabel="GB/s of records", ylim=(0, None), title=title)
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.legend(fontsize="small")
    return save(figure, out, "fig4_queries")


def draw_sift(report: Report, out: Path) -> list[Path]:
    """Figures 6 to 9 of the paper on data services, each where its series were measured; the paths written."""
    drawn = [
        draw_injection(report, out),
        draw_splits(report, out),
        draw_first_stage(report, out),
        draw_impulse(report, out),
        draw_agents(report, out),
    ]
    return [path for path in drawn if path is not None]


def draw_injection(report: Report, out: Path) -> Path | None:
    """Figure 6: injection by stage over particles, a panel for each size of fragments."""
    sizes = [size for size in (1, 4, 16, 64) if lines_of(report, f"sift_fig6_{size}")]
    if not sizes:
        return None
    figure, axes = new_figure(1, len(sizes), 4.6)
    for panel, size in zip(axes[0], sizes, strict=True):
        lines = lines_of(report, f"sift_fig6_{size}")
        places = range(len(lines[0].x))
        bottom = [0.0] * len(lines[0].x)
        for line, colour in zip(lines, STEP_COLOURS, strict=False):
            rates = [seconds * 1e9 / particles for seconds, particles in zip(line.y, line.x, strict=True)]
            panel.bar(places, rates, bottom=bottom, color=colour, label=line.name, width=0.6)
            bottom = [low + rate for low, rate in zip(bottom, rates, strict=True)]
        panel.set_xticks(list(places), [f"{rows / 2**20:.3g} Mi" for rows in lines[0].x])
        panel.set(xlabel="particles", ylabel="ns for a particle", title=f"Injection in fragments of {size} MiB")
        panel.legend(fontsize="small")
    highest = max(panel.get_ylim()[1] for panel in axes[0])
    for panel in axes[0]:
        panel.set_ylim(0, highest)
    return save(figure, out, "fig6_injection")


def draw_splits(report: Report, out: Path) -> Path | None:
    """Figure 7: splits over the stages they need, the best marked."""
    labels = {"jobs": "splits, sorts and checks", "publish": "pieces published and taken"}
    return draw_by_ways(report, out, "sift_fig7", labels, "through 100 agents, one core for all", "fig7_splits")


def draw_agents(report: Report, out: Path) -> Path | None:
    """The same through agents that are processes, published over each link."""
    labels = {"stored": "until all is stored", "flush": "and in its track"}
    return draw_by_ways(report, out, "sift_fig7_agents", labels, "through real agents on one machine", "fig7_agents")


def draw_by_ways(
    report: Report, out: Path, series: str, labels: dict[str, str], through: str, name: str
) -> Path | None:
    """A panel for each link, which the names of its series begin with: ``tcp: 4 splits, 4 stages/stored``."""
    of_links: dict[str, list[Series]] = defaultdict(list)
    for line in lines_of(report, series):
        of_links[line.name.rpartition(": ")[0]].append(line)
    if not of_links:
        return None
    figure, axes = new_figure(1, len(of_links), 7, 4.6)
    for panel, (link, lines) in zip(axes[0], of_links.items(), strict=True):
        stack_ways(panel, lines, labels)
        over = f", over {link}" if link else ""
        panel.set_title(f"{lines[0].x[0] / 1e6:.3g} M particles {through}{over}")
    highest = max(panel.get_ylim()[1] for panel in axes[0])
    for panel in axes[0]:
        panel.set_ylim(0, highest)
    return save(figure, out, name)


def stack_ways(panel: Axes, lines: list[Series], labels: dict[str, str]) -> None:
    """A bar for each way, of its parts; the lowest is marked."""
    names = list(dict.fromkeys(line.name.rpartition(": ")[2].partition("/")[0] for line in lines))
    parts = {part: [line.y[0] for line in lines if line.name.endswith("/" + part)] for part in labels}
    totals = [sum(values) for values in zip(*parts.values(), strict=True)]
    bottom = [0.0] * len(names)
    for (part, values), colour in zip(parts.items(), ("#4477aa", "#ee6677"), strict=True):
        panel.bar(names, values, bottom=bottom, color=colour, width=0.5, label=labels[part])
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    for place, total in enumerate(totals):
        best = ", best" if total == min(totals) else ""
        panel.annotate(
            f"{total:.3g} s{best}", (place, total), ha="center", va="bottom", weight="bold" if best else None
        )
    panel.set(ylabel="seconds", ylim=(0, 1.25 * max(totals)))
    panel.legend(fontsize="small")


def draw_first_stage(report: Report, out: Path) -> Path | None:
    """Figure 8: the first stage alone, over splits."""
    lines = lines_of(report, "sift_fig8")
    if not lines:
        return None
    figure, axes = new_figure(1, 1)
    for line in lines:
        axes[0][0].plot(line.x, line.y, marker="o", markersize=4, label=line.name)
    axes[0][0].set_xscale("log", base=2)
    axes[0][0].xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes[0][0].set(xlabel="splits", ylabel="seconds", ylim=(0, None), title="The first stage of 100 agents")
    axes[0][0].grid(alpha=0.3)
    axes[0][0].legend(fontsize="small")
    return save(figure, out, "fig8_first_stage")


def draw_impulse(report: Report, out: Path) -> Path | None:
    """Figure 9: sifting time over particles, beside a straight line through the smallest."""
    lines = lines_of(report, "sift_fig9")
    if not lines:
        return None
    points = sorted((x, y) for line in lines for x, y in zip(line.x, line.y, strict=True))
    counts, seconds = [x / 1e6 for x, _ in points], [y for _, y in points]
    figure, axes = new_figure(1, 1)
    axes[0][0].plot(counts, seconds, marker="o", color="#ee6677", label=lines[0].name)
    axes[0][0].plot(counts, [seconds[0] * count / counts[0] for count in counts], ":", color="grey", label="linear")
    for line in lines_of(report, "sift_fig9_model"):
        axes[0][0].plot([x / 1e6 for x in line.x], line.y, marker="s", color="#4477aa", label=line.name)
    axes[0][0].set(xscale="log", yscale="log", xlabel="millions of particles", ylabel="seconds",
                   title="An impulse through 100 agents, until all is in tracks")  # fmt: skip
    axes[0][0].set_xticks(counts, [f"{count:g}" for count in counts])
    axes[0][0].grid(alpha=0.3, which="both")
    axes[0][0].legend(fontsize="small")
    return save(figure, out, "fig9_impulse")


def draw_arrow_steps(report: Report, out: Path) -> list[Path]:
    """Figures 7 and 8 (steps, stacked) and 9 and 10 (host against agent); the paths written."""
    drawn = []
    for name, api in (("fig7", "C++"), ("fig8", "C")):
        drawn.append(draw_steps(report, out, name, api))
    for name, api in (("fig9", "C++"), ("fig10", "C")):
        drawn.append(draw_totals(report, out, name, api))
    return [path for path in drawn if path is not None]


def draw_steps(report: Report, out: Path, name: str, api: str) -> Path | None:
    """Stacked steps on logarithmic axes, as in the paper: equal heights are not equal times."""
    lines = {line.name: line for line in lines_of(report, name)}
    counts = [count for count in (1, 4, 16, 512) if f"host/{api}/{count}/1 arrays" in lines]
    if not counts:
        return None
    figure, axes = new_figure(1, len(counts), 5)
    for panel, count in zip(axes[0], counts, strict=True):
        steps = [line for key, line in sorted(lines.items()) if key.startswith(f"host/{api}/{count}/")]
        bottom = [0.0] * len(steps[0].x)
        for line, colour in zip(steps, STEP_COLOURS, strict=True):
            top = [low + value / 1e3 for low, value in zip(bottom, line.y, strict=True)]
            label = line.name.rsplit("/", 1)[1]
            panel.fill_between(line.x, [max(low, 1e-3) for low in bottom], top, color=colour, label=label, linewidth=0)
            bottom = top
        label_sizes(panel)
        panel.set(yscale="log", ylabel="us", title=f"{api} interface, {count} column{'s' if count > 1 else ''}")
        panel.set_ylim(bottom=min(line.y[0] for line in steps[:1]) / 2e3)
        panel.legend(fontsize="small", loc="upper left")
    return save(figure, out, f"{name}_steps")


def draw_totals(report: Report, out: Path, name: str, api: str) -> Path | None:
    """Conversion time of host and agent with standard deviations, 1 and 16 columns."""
    lines = {line.name: line for line in lines_of(report, name)}
    counts = [count for count in (1, 16) if f"host/{api}/{count}/total" in lines]
    if not counts:
        return None
    figure, axes = new_figure(1, len(counts))
    for panel, count in zip(axes[0], counts, strict=True):
        for place, label in (("host", "host"), ("agent", "agent (BlueField-2 CPU quota)")):
            total, deviation = (lines.get(f"{place}/{api}/{count}/{part}") for part in ("total", "deviation"))
            if total is None or deviation is None:
                continue
            times, errors = ([value / 1e3 for value in line.y] for line in (total, deviation))
            panel.errorbar(total.x, times, yerr=errors, marker="o", markersize=3, capsize=2, label=label)
        label_sizes(panel)
        panel.set(yscale="log", ylabel="us", title=f"{api} interface, {count} column{'s' if count > 1 else ''}")
        panel.legend(fontsize="small")
    return save(figure, out, f"{name}_host_and_agent")
