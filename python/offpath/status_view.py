"""The agent's status as tables for a terminal."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .agent_http import fetch_status
from .sizes import size_text

WIDE = 10_000  # letters, more than any table needs
NAME_LETTERS = 32  # of a pool's name that stay on one line, however short the terminal's lines are


class StatusTable(Table):
    """Where lines are too short for all columns, some are left out; names of pools are the last to be broken."""

    left_out_first: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        def is_too_wide() -> bool:
            return self.__rich_measure__(console, options.update(max_width=WIDE)).maximum > options.max_width

        title, columns = self.title, self.columns
        if is_too_wide():
            for column in columns:
                if column.header == "pool":
                    longest = max((len(str(cell)) for cell in column.cells), default=0)
                    column.width = min(longest, NAME_LETTERS)
        for name in self.left_out_first:
            if not is_too_wide():
                break
            self.columns = [column for column in self.columns if column.header != name]
            self.title = f"{title} (more columns on a wider terminal)"
        yield from super().__rich_console__(console, options)
        self.title, self.columns = title, columns


def table_of(title: str, columns: list[str], rows: list[list[Any]], left_out_first: Sequence[str] = ()) -> Table:
    """``left_out_first``: columns that a narrow terminal does not show, the first one first."""
    table = StatusTable(title=title, title_justify="left", header_style="bold", expand=False)
    table.left_out_first = left_out_first
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    return table


def members_table(members: list[dict[str, Any]]) -> Table:
    """The agents of a group; the one that was asked is marked."""
    now = time.time()
    rows = [
        [each["name"] + (" (this one)" if each["self"] else ""), each["role"], each["rack"] or "-",
         each["incarnation"], each["address"], each["http"] or "-", each["state"],
         time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now - each["for_s"])), each["why"]]
        for each in members
    ]  # fmt: skip
    return table_of("members", ["name", "role", "rack", "incarnation", "address", "http", "state", "since", "why"],
                    rows, ["rack", "role", "http"])  # fmt: skip


def options_text(options: str) -> str:
    """A pool's options with their sizes in units: budget=8589934592 -> budget=8.0 GiB."""
    return re.sub(r"\b(budget|[a-z_]*bytes)=(\d+)", lambda found: f"{found[1]}={size_text(int(found[2]))}", options)


def rows_text(rows: int | None) -> str:
    """How many; plain bytes have none."""
    return "-" if rows is None else str(rows)


def pools_table(pools: list[dict[str, Any]]) -> Table:
    """The pools of an agent, with its part of each."""
    rows = [
        [each["name"], options_text(each["options"]), each["members"], each["user"], each["frames"],
         rows_text(each["rows"]), size_text(each["bytes"]), size_text(each["spilled_bytes"])]
        for each in pools
    ]  # fmt: skip
    return table_of("pools", ["pool", "options", "members", "user", "frames here", "rows", "bytes", "on disk alone"],
                    rows, ["user", "on disk alone", "members", "options"])  # fmt: skip


def middle_text(text: str, letters: int = 48) -> str:
    """A long name without its middle: its ends tell most."""
    return text if len(text) <= letters else f"{text[: letters - letters // 2]}…{text[1 - letters // 2 :]}"


def rank_text(stream: dict[str, Any]) -> str:
    return f", rank {stream['rank']}" if "rank" in stream else ""


def step_text(step: dict[str, Any]) -> str:
    """The reason why a step waits."""
    ended = f"{step['ended']} of {step['ranks']} ranks have ended it"
    if step["gone"]:
        return f"{ended}; {step['gone']}, and the step waits for it"
    more = ", …" if step["ended"] + len(step["missing"]) < step["ranks"] else ""
    return f"{ended}; it waits for rank {', '.join(map(str, step['missing']))}{more}"


def full_rings_rows(status: dict[str, Any]) -> list[list[Any]]:
    """Full rings between programs and the agent, and the side that does not read them."""
    rows: list[list[Any]] = []

    def add(who: str, what: str, seconds: float | None) -> None:
        if seconds is not None:
            rows.append([who, what, f"{seconds:.0f} s"])

    names = {each["number"]: f"{each['program']} (process {each['pid']})" for each in status["channels"]}
    for each in status["channels"]:
        name = names[each["number"]]
        why = each.get("requests_wait_for", "")
        add(name, f"room in its ring of requests: {why}", each.get("requests_full_s"))
        add(f"replies to {name}", "the program, which does not read them", each.get("replies_full_s"))
    for each in status.get("tcp", {"programs": []})["programs"]:
        name = names.get(each["channel"], "a program")
        room = "room in its ring of commands for connections, which the agent is about to take"
        add(name, room, each.get("commands_full_s"))
        add(f"events of connections of {name}", "the program, which does not take them", each.get("events_full_s"))
    return rows


def waits_rows(status: dict[str, Any]) -> list[list[Any]]:
    """Waiting requests, their reasons, and since when."""
    rows: list[list[Any]] = []
    for each in status["streams"]:
        if "waits_for_credit_s" in each:
            lacking, free = each["credit_lacking_bytes"], status["memory"]["free_bytes"]
            who = f"stream {middle_text(each['name'])} of {each['program']} (process {each['pid']}{rank_text(each)})"
            turn = ", for the longest waiting request" if lacking <= free else ""
            what = f"credit: {size_text(lacking)} of memory, {size_text(free)} are free{turn}"
            rows.append(
                [who, f"{what}. Drop objects, or open the stream with keep", f"{each['waits_for_credit_s']:.0f} s"]
            )
    rows += full_rings_rows(status)
    puts = status.get("waiting_puts", {"count": 0, "longest": []})
    for each in puts["longest"]:
        place = f"put of ({middle_text(each['row'])}, {middle_text(each['column'])}) into {each['pool']}"
        rows.append([place, f"members {', '.join(each['members'])}: {each['why']}", f"{each['waits_s']:.0f} s"])
    if (others := puts["count"] - len(puts["longest"])) > 0:
        rows.append([f"{others} more puts", "members of their pools", ""])
    gets = status.get("waiting_gets", {"count": 0, "longest": []})
    for each in gets["longest"]:
        place = f"get of ({middle_text(each['row'])}, {middle_text(each['column'])}) from {each['pool']}"
        who = f"{place} by {each['program']} (process {each['pid']})"
        rows.append([who, f"{each['what']}: {each['why']}", f"{each['waits_s']:.0f} s"])
    if (others := gets["count"] - len(gets["longest"])) > 0:
        rows.append([f"{others} more gets", "objects, the disk, or computations", ""])
    for pool in status["pools"]:
        for step in pool.get("steps", [])[:1]:
            more = f" and {pool['steps_waiting'] - 1} more" if pool["steps_waiting"] > 1 else ""
            since = f"{step['waits_s']:.0f} s" if "waits_s" in step else ""
            rows.append([f"step {middle_text(step['row'])} of {pool['name']}{more}", step_text(step), since])
    return rows


def events_tables(status: dict[str, Any]) -> RenderableType:
    """The last requests that failed, and the last lines of the agent's log."""
    now = time.time()

    def clock(at_s: float) -> str:
        return time.strftime("%H:%M:%S", time.localtime(at_s))

    hidden = "shown at the agent's Unix socket, or if agent.http_events is on"
    failures = [
        [
            clock(now - each["ago_s"]),
            f"{each['program']}, channel {each['channel']}",
            each["error"],
            each["why"] or hidden,
        ]
        for each in status["failures"]
    ]
    events = [[clock(each["at_s"]), each["level"], each["what"]] for each in status["events"]]
    if not status["shows_events"]:
        events = [["", "", hidden]]
    tables = [table_of("failures", ["when", "program", "what", "why"], failures),
              table_of("events", ["when", "level", "what"], events)]  # fmt: skip
    for table in tables:
        table.columns[-1].justify = "left"
    return Group(*tables)


def schemas_table(schemas: list[dict[str, Any]]) -> Table:
    """The columns of each stream."""
    rows = [
        [f"{middle_text(each['name'])} of {each['program']}, process {each['pid']}{rank_text(each)}", column["name"],
         column["type"] + ("" if column["nullable"] else ", no nulls")]
        for each in schemas for column in each["columns"]
    ]  # fmt: skip
    return table_of("columns", ["stream", "column", "type"], rows)


RECENT_TITLE = "last 5 min"
BLOCKS = "▁▂▃▄▅▆▇█"
CURVE_LETTERS = 10


def recent_text(recent: dict[str, Any] | None) -> str:
    """The last minutes: a curve, and the bytes a second of all of them."""
    rates = recent["bytes_per_s"] if recent is not None else []
    if not any(rates):
        return "-"
    letters = min(CURVE_LETTERS, len(rates))
    parts = [rates[len(rates) * i // letters : len(rates) * (i + 1) // letters] for i in range(letters)]
    means = [sum(part) / len(part) for part in parts]
    curve = "".join(BLOCKS[round(mean / max(means) * (len(BLOCKS) - 1))] for mean in means)
    return f"{curve} {size_text(sum(rates) / len(rates))}/s"


def destination_text(stream: dict[str, Any]) -> str:
    return stream["destination"] + ("" if stream["compression"] == "none" else f", {stream['compression']}")


def stream_key(stream: dict[str, Any]) -> tuple[Any, ...]:
    return stream["name"], stream["program"], stream["pid"], stream.get("rank")


def number_text(value: float | None) -> str:
    """A value of any size in few letters."""
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) and abs(value) < 10**6 else f"{value:.4g}"


def duration_text(seconds: float) -> str:
    """With a unit: 0.0015 -> 1.5 ms."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def summary_lines(status: dict[str, Any], before: dict[str, Any] | None, elapsed_s: float) -> list[str]:
    """The agent's summary before the tables."""
    memory, mover, process = status["memory"], status["mover"], status["process"]
    lines = [
        f"[bold]{status['name']}[/bold]  version {status['version']}, process {status['pid']}, "
        f"up {status['uptime_s']:.0f} s, {', '.join(status['addresses'])}",
        f"memory {size_text(memory['used_bytes'])} of {size_text(memory['bytes_max'])} used, "
        f"{size_text(memory['promised_bytes'])} promised, {size_text(memory['reserved_bytes'])} set aside for copies; "
        f"resident {size_text(process['resident_bytes'])}; "
        f"buffers reused {status['buffers']['hit_rate']:.0%}",
        f"{mover['frames']} frames, {size_text(mover['bytes'])} moved, {status['failures_count']} failures"
        + (" (offpath status --events shows them)" if status["failures"] else ""),
    ]
    if cores := status.get("cores"):
        told = [f"{each['channels']} channels" if each["answers"] else "does not answer" for each in cores]
        lines.append(f"{len(cores)} cores: " + "; ".join(f"core {core} {text}" for core, text in enumerate(told)))
    if before is not None and elapsed_s > 0:
        moved = (mover["bytes"] - before["mover"]["bytes"]) / elapsed_s
        frames = (mover["frames"] - before["mover"]["frames"]) / elapsed_s
        busy = (process["cpu_s"] - before["process"]["cpu_s"]) / elapsed_s
        lines.append(f"now {size_text(moved)}/s, {frames:.1f} frames/s, {busy:.0%} of a core")
    if (recent := recent_text(status.get("recent"))) != "-":
        lines.append(f"{RECENT_TITLE} {recent}")
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
    return lines


def tables_where_used(status: dict[str, Any]) -> list[RenderableType]:
    """The tables of this agent's services beside moving data."""
    steps = [[each["name"], middle_text(each["newest_row"]) or "-", each["steps_waiting"]]
             for each in status["pools"] if each.get("newest_row") or each.get("steps_waiting")]  # fmt: skip
    gauges = [
        [each["where"], each["name"], field["name"], number_text(field["value"]), field["unit"] or "-",
         f"{each['age_s'] * 1e3:.1f} ms" if each["fresh"] else "silent"]
        for each in status.get("sampled", []) if each["way"] == "gauges" for field in each["fields"]
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
    latencies = [
        [name, each["count"], duration_text(each["p50_s"]), duration_text(each["p99_s"])]
        for name, each in status.get("latency", {}).items() if each["count"]
    ]  # fmt: skip
    only_where_used: list[RenderableType] = []
    if latencies:
        only_where_used.append(table_of("latency", ["of", "count", "p50", "p99"], latencies))
    if steps:
        only_where_used.append(table_of("steps", ["pool", "newest row", "steps that wait"], steps))
    if gauges:
        columns = ["program", "set", "gauge", "value", "unit", "age"]
        only_where_used.append(table_of("gauges", columns, gauges))
    if waits := waits_rows(status):
        table = table_of("who waits", ["who", "waits for", "since"], waits)
        table.columns[1].justify = "left"
        only_where_used.insert(0, table)
    if sampled:
        columns = ["sampled", "where", "age", "samples", "failed", "missing", "each takes", "processor there",
                   "trouble"]  # fmt: skip
        only_where_used.append(table_of("samples", columns, sampled))
    if stages:
        columns = ["pool", "stage", "rows", "splits", "held", "of", "waiting for room"]
        only_where_used.append(table_of("sifting", columns, stages, ["splits", "of"]))
    if triggers:
        columns = ["function", "pool", "calls", "failed", "waiting", "left out", "last failure"]
        only_where_used.append(table_of("triggers", columns, triggers, ["left out", "waiting", "last failure"]))
    return only_where_used


def render(status: dict[str, Any], before: dict[str, Any] | None = None, elapsed_s: float = 0.0) -> RenderableType:
    """Tables of one status; with an earlier one, rates between the two."""
    channels = [
        [each["program"], each["pid"], each["link"], "staged" if each["staged"] else "direct", each["requests"],
         size_text(each["bytes_pulled"]), each["failures"], "asleep" if each["asleep"] else "awake"]
        for each in status["channels"]
    ]  # fmt: skip
    earlier = {stream_key(each): each["bytes"] for each in before["streams"]} if before is not None else {}

    def rate(stream: dict[str, Any]) -> str:
        since = earlier.get(stream_key(stream))
        if since is None or elapsed_s <= 0 or stream["bytes"] < since:
            recent = stream.get("recent", {"bytes_per_s": []})["bytes_per_s"]
            return f"{size_text(recent[-1])}/s" if recent else "-"
        return f"{size_text((stream['bytes'] - since) / elapsed_s)}/s"

    streams = [
        [middle_text(each["name"]), each["program"] + rank_text(each), destination_text(each), each["pool"],
         each["sent"], size_text(each["bytes"]), rate(each), recent_text(each.get("recent")),
         size_text(each["credit_left_bytes"])]
        for each in status["streams"]
    ]  # fmt: skip
    return Group(
        *summary_lines(status, before, elapsed_s),
        table_of(
            "programs",
            ["program", "pid", "link", "reads", "requests", "pulled", "failures", "state"],
            channels,
            ["reads", "state"],
        ),
        table_of(
            "streams",
            ["stream", "program", "destination", "pool", "sent", "bytes", "now", RECENT_TITLE, "credit left"],
            streams,
            ["destination", "sent", "program", "credit left", RECENT_TITLE],
        ),
        pools_table(status["pools"]),
        *tables_where_used(status),
    )


def look_twice(where: str, interval_s: float) -> RenderableType:
    """Tables of the status, with rates over ``interval_s``."""
    before, at = fetch_status(where), time.monotonic()
    time.sleep(interval_s)
    return render(fetch_status(where), before, time.monotonic() - at)


def watch(where: str, interval_s: float, console: Console) -> None:
    """Redraws the status every ``interval_s`` until Ctrl-C."""
    before, at = fetch_status(where), time.monotonic()
    with Live(render(before), console=console, auto_refresh=False, screen=console.is_terminal) as live:
        while True:
            time.sleep(interval_s)
            status, now = fetch_status(where), time.monotonic()
            live.update(render(status, before, now - at), refresh=True)
            before, at = status, now
