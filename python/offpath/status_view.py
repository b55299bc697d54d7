"""The agent's status as tables for a terminal."""

from __future__ import annotations

import re
import time
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .agent_http import fetch_status

WIDE = 10_000  # letters, more than any table needs
NAME_LETTERS = 32  # of a pool's name that stay on one line, however short the terminal's lines are
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(count: float) -> str:
    """Bytes with a unit: 1536 -> 1.5 KiB."""
    for unit in UNITS:
        if count < 1024 or unit == UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


class StatusTable(Table):
    """Where lines are too short for all columns, names of pools are the last to be broken."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wanted = self.__rich_measure__(console, options.update(max_width=WIDE)).maximum
        for column in self.columns:
            if column.header == "pool" and wanted > options.max_width:
                longest = max((len(str(cell)) for cell in column.cells), default=0)
                column.width = min(longest, NAME_LETTERS)
        yield from super().__rich_console__(console, options)


def table_of(title: str, columns: list[str], rows: list[list[Any]]) -> Table:
    table = StatusTable(title=title, title_justify="left", header_style="bold", expand=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    return table


def members_table(members: list[dict[str, Any]]) -> Table:
    """The agents of a group; the one that was asked is marked."""
    now = time.time()
    rows = [
        [each["name"] + (" (this one)" if each["self"] else ""), each["incarnation"], each["address"],
         each["http"] or "-", each["state"],
         time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now - each["for_s"])), each["why"]]
        for each in members
    ]  # fmt: skip
    return table_of("members", ["name", "incarnation", "address", "http", "state", "since", "why"], rows)


def options_text(options: str) -> str:
    """A pool's options with their sizes in units: budget=8589934592 -> budget=8.0 GiB."""
    return re.sub(r"\b(budget|[a-z_]*bytes)=(\d+)", lambda found: f"{found[1]}={size_text(int(found[2]))}", options)


def rows_text(rows: int | None) -> str:
    """How many; plain bytes have none."""
    return "-" if rows is None else str(rows)


def pools_table(pools: list[dict[str, Any]]) -> Table:
    """The pools that an agent has, with what lies on it of each."""
    rows = [
        [each["name"], options_text(each["options"]), each["members"], each["user"], each["frames"],
         rows_text(each["rows"]), size_text(each["bytes"]), size_text(each["spilled_bytes"])]
        for each in pools
    ]  # fmt: skip
    return table_of("pools", ["pool", "options", "members", "user", "frames here", "rows", "bytes", "on disk alone"],
                    rows)  # fmt: skip


def destination_text(stream: dict[str, Any]) -> str:
    return stream["destination"] + ("" if stream["compression"] == "none" else f", {stream['compression']}")


def render(status: dict[str, Any], before: dict[str, Any] | None = None, elapsed_s: float = 0.0) -> RenderableType:
    """Tables of one status; with an earlier one, rates between the two."""
    memory, mover, process = status["memory"], status["mover"], status["process"]
    lines = [
        f"[bold]{status['name']}[/bold]  version {status['version']}, process {status['pid']}, "
        f"up {status['uptime_s']:.0f} s, {', '.join(status['addresses'])}",
        f"memory {size_text(memory['used_bytes'])} of {size_text(memory['bytes_max'])} used, "
        f"{size_text(memory['promised_bytes'])} promised, {size_text(memory['reserved_bytes'])} set aside for copies; "
        f"resident {size_text(process['resident_bytes'])}; "
        f"buffers reused {status['buffers']['hit_rate']:.0%}",
        f"{mover['frames']} frames, {size_text(mover['bytes'])} moved, {mover['failures']} failures",
    ]
    if before is not None and elapsed_s > 0:
        moved = (mover["bytes"] - before["mover"]["bytes"]) / elapsed_s
        frames = (mover["frames"] - before["mover"]["frames"]) / elapsed_s
        busy = (process["cpu_s"] - before["process"]["cpu_s"]) / elapsed_s
        lines.append(f"now {size_text(moved)}/s, {frames:.1f} frames/s, {busy:.0%} of a core")
    queries, computes = status["queries"], status["computes"]
    if queries["queries"] or computes["asked"]:
        lines.append(
            f"{queries['queries']} queries read {size_text(queries['read_bytes'])}, {queries['failed']} failed; "
            f"{computes['asked']} computations, {computes['failed']} failed"
        )
    if mover["packed_frames"]:
        lines.append(
            f"{mover['packed_frames']} frames compressed, {size_text(mover['plain_bytes'])} became "
            f"{size_text(mover['packed_bytes'])}"
        )
    if disk := status.get("disk"):
        lines.append(
            f"{disk['directory']}: {disk['objects']} objects, {size_text(disk['bytes'])}, of these "
            f"{size_text(disk['spilled_bytes'])} on disk alone; {disk['failure'] or 'in order'}"
        )
    channels = [
        [each["program"], each["pid"], each["link"], "staged" if each["staged"] else "direct", each["requests"],
         size_text(each["bytes_pulled"]), each["failures"], "asleep" if each["asleep"] else "awake"]
        for each in status["channels"]
    ]  # fmt: skip
    streams = [
        [each["name"], each["program"], destination_text(each), each["pool"], each["sent"], size_text(each["bytes"]),
         size_text(each["credit_left_bytes"])]
        for each in status["streams"]
    ]  # fmt: skip
    stages = [
        [pool["name"], number, stage["rows"], stage["splits"], size_text(stage["used_bytes"]),
         size_text(stage["budget_bytes"]), stage["offers_waiting"]]
        for pool in status["sifts"] for number, stage in enumerate(pool["stages"])
    ]  # fmt: skip
    triggers = [
        [f"{each['plugin']}.{each['function']}", each["pool"], each["calls"], each["failed"], each["waiting"],
         each["dropped"] + each["skipped"], each["failure"] or "-"]
        for each in status["triggers"]
    ]  # fmt: skip
    sampled = [
        [each["name"], each["where"], f"{each['age_s'] * 1e3:.1f} ms" if each["fresh"] else "silent", each["samples"],
         each["failed"], each["missing"], f"{each['wait_s'] / max(each['samples'], 1) * 1e6:.0f} us",
         f"{each['cpu_s']:.3f} s", each["trouble"] or "-"]
        for each in status.get("sampled", [])
    ]  # fmt: skip
    only_where_used = []
    if sampled:
        columns = ["sampled", "where", "age", "samples", "failed", "missing", "each takes", "processor there",
                   "trouble"]  # fmt: skip
        only_where_used.append(table_of("samples", columns, sampled))
    if stages:
        columns = ["pool", "stage", "rows", "splits", "held", "of", "waiting for room"]
        only_where_used.append(table_of("sifting", columns, stages))
    if triggers:
        columns = ["function", "pool", "calls", "failed", "waiting", "left out", "last failure"]
        only_where_used.append(table_of("triggers", columns, triggers))
    return Group(
        *lines,
        table_of("programs", ["program", "pid", "link", "reads", "requests", "pulled", "failures", "state"], channels),
        table_of("streams", ["stream", "program", "destination", "pool", "sent", "bytes", "credit left"], streams),
        pools_table(status["pools"]),
        *only_where_used,
    )


def look_twice(where: str, interval_s: float) -> RenderableType:
    """Tables of the status, with rates over ``interval_s``."""
    before, at = fetch_status(where), time.monotonic()
    time.sleep(interval_s)
    return render(fetch_status(where), before, time.monotonic() - at)


def watch(where: str, interval_s: float, console: Console) -> None:
    """Draws the status anew every ``interval_s`` until Ctrl-C."""
    before, at = fetch_status(where), time.monotonic()
    with Live(render(before), console=console, auto_refresh=False, screen=console.is_terminal) as live:
        while True:
            time.sleep(interval_s)
            status, now = fetch_status(where), time.monotonic()
            live.update(render(status, before, now - at), refresh=True)
            before, at = status, now
