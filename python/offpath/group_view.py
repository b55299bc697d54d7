"""All agents of a group and the hosts they sample, as tables for a terminal, drawn by `offpath top`.

One agent lists the members, then every member is asked for its own status, all at once. A member that does not answer
in time has a row with that state.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live

from .agent_http import fetch_status
from .errors import AgentError
from .sizes import size_text
from .status_view import RECENT_TITLE, recent_text, table_of

AT_ONCE_MAX = 64  # members asked at the same time
ANSWERING = ("alive", "suspect")  # states of members that are asked
LATER_CORE = re.compile(r"(.+)\+[1-9]\d?")  # NAME+1: a core of agent NAME, whose pages are those of all its cores
FIELD = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})?")


@dataclass
class Look:
    """The state at one moment. Times are of this machine's monotonic clock."""

    at: float
    members: list[dict[str, Any]]
    statuses: dict[str, dict[str, Any]] = field(default_factory=dict)  # by the member's name
    silent: dict[str, str] = field(default_factory=dict)  # and why


def look(where: str) -> Look:
    """The group of the agent at `where`, and each member's status. Raises AgentError if that agent is silent."""
    own = fetch_status(where)
    names = {each["name"] for each in own["members"]}
    members = [each for each in own["members"] if not is_later_core(each["name"], names)]
    found = Look(time.monotonic(), members, {own["name"]: own})

    def ask(member: dict[str, Any]) -> None:
        try:
            found.statuses[member["name"]] = fetch_status(member["http"])
        except AgentError as error:
            found.silent[member["name"]] = str(error).partition(":")[0]

    others = [each for each in members if not each["self"] and each["http"] and each["state"] in ANSWERING]
    if others:
        with ThreadPoolExecutor(min(len(others), AT_ONCE_MAX)) as pool:
            list(pool.map(ask, others))
    return found


def is_later_core(name: str, names: set[str]) -> bool:
    """A core of one of the agents of these names, other than its first, which has the agent's own name."""
    match = LATER_CORE.fullmatch(name)
    return match is not None and match[1] in names


def rate(now: float, before: float | None, elapsed_s: float) -> float | None:
    """Units a second; None without an earlier value, or when the counter was reset."""
    if before is None or elapsed_s <= 0 or now < before:
        return None
    return (now - before) / elapsed_s


def text_of(value: float | None, form: str = "{:.0%}") -> str:
    return "-" if value is None else form.format(value)


def size_rate(value: float | None) -> str:
    return "-" if value is None else f"{size_text(value)}/s"


def agents_rows(now: Look, before: Look | None) -> list[list[Any]]:
    rows = []
    elapsed_s = now.at - before.at if before else 0.0
    for member in now.members:
        status = now.statuses.get(member["name"])
        if status is None:
            why = now.silent.get(member["name"]) or member["why"] or "no HTTP address"
            rows.append([member["name"], member["state"], *"------", why])
            continue
        old = before.statuses.get(member["name"]) if before else None
        same = old if old and old["pid"] == status["pid"] else None
        cores = rate(status["process"]["cpu_s"], same["process"]["cpu_s"] if same else None, elapsed_s)
        moved = rate(status["mover"]["bytes"], same["mover"]["bytes"] if same else None, elapsed_s)
        memory = status["memory"]
        rows.append([
            member["name"] + (" (asked)" if member["self"] else ""), member["state"], text_of(cores),
            f"{size_text(memory['used_bytes'])} of {size_text(memory['bytes_max'])}", size_rate(moved),
            recent_text(status.get("recent")), len(status["channels"]),
            sum(each["frames"] for each in status["pools"]), f"up {status['uptime_s']:.0f} s",
        ])  # fmt: skip
    return rows


def sums(sampled: dict[str, Any]) -> dict[str, float]:
    """A host's fields by name, those of several devices or states added up; the loopback and idle time apart."""
    found: dict[str, float] = {}
    for each in sampled["fields"]:
        match = FIELD.fullmatch(each["name"])
        if match is None or each.get("value") is None:
            continue
        name, labels = match["name"], match["labels"] or ""
        if 'device="lo"' in labels:
            continue
        if name == "cpu_seconds" and re.search(r'mode="(idle|iowait)"', labels):
            found["cpu_idle"] = found.get("cpu_idle", 0.0) + each["value"]
        found[name] = found.get(name, 0.0) + each["value"]
    return found


def host_row(name: str, agent: str, sampled: dict[str, Any], old: dict[str, Any] | None, elapsed_s: float) -> list[Any]:
    if not sampled["fresh"]:
        return [name, agent, "silent", *"-----"]
    now, before = sums(sampled), sums(old) if old else {}
    spent, idle = (rate(now.get(each, 0.0), before.get(each), elapsed_s) for each in ("cpu_seconds", "cpu_idle"))
    busy = 1 - idle / spent if spent and idle is not None else None
    total = now.get("memory_total_bytes")
    free = now.get("memory_available_bytes")
    memory = f"{size_text(total - free)} of {size_text(total)}" if total and free is not None else "-"
    network = [size_rate(rate(now[each], before.get(each), elapsed_s)) if each in now else "-"
               for each in ("network_received_bytes", "network_sent_bytes")]  # fmt: skip
    return [name, agent, f"{sampled['age_s'] * 1e3:.0f} ms", text_of(busy), text_of(now.get("load1"), "{:.2f}"), memory,
            *network]  # fmt: skip


def hosts_rows(now: Look, before: Look | None) -> list[list[Any]]:
    """One for each host and the agent that samples it. Programs' gauges are not hosts."""
    rows = []
    elapsed_s = now.at - before.at if before else 0.0
    for agent, status in now.statuses.items():
        old = {each["name"]: each for each in before.statuses.get(agent, {}).get("sampled", [])} if before else {}
        for sampled in status.get("sampled", []):
            if sampled["way"] != "gauges":
                rows.append(host_row(sampled["name"], agent, sampled, old.get(sampled["name"]), elapsed_s))
    return sorted(rows, key=lambda row: (row[0], row[1]))


def exchanges_rows(now: Look) -> list[list[Any]]:
    """As that agent knows it which has seen the most members in its last view."""
    best: dict[str, list[Any]] = {}
    for status in now.statuses.values():
        for each in status.get("exchanges", []):
            view = each["view"]
            present = view.get("present", 0)
            row = [each["name"], each["topology"], view.get("epoch", "-"), f"{present} of {len(each['members'])}",
                   f"{each['round_s'] * 1e3:.2f} ms", each["partial"], each["rounds"],
                   view.get("leader", "-")]  # fmt: skip
            if each["name"] not in best or int(best[each["name"]][3].split()[0]) < present:
                best[each["name"]] = row
    return list(best.values())


def alarms_rows(now: Look) -> list[list[Any]]:
    return [
        [alarm["name"], alarm["host"], alarm["when"], f"{alarm['value']:.6g}", f"{alarm['for_s']:.0f} s", agent]
        for agent, status in now.statuses.items()
        for alarm in status.get("alarms", [])
    ]


def render_group(now: Look, before: Look | None = None) -> RenderableType:
    """Tables of one look; with an earlier one, rates between the two."""
    columns = ["agent", "state", "cores", "memory", "moved", RECENT_TITLE, "channels", "frames", "more"]
    tables: list[RenderableType] = [table_of("agents", columns, agents_rows(now, before), [RECENT_TITLE])]
    if alarms := alarms_rows(now):
        tables.append(table_of("alarms", ["alarm", "host", "when", "now", "for", "by agent"], alarms))
    if hosts := hosts_rows(now, before):
        columns = ["host", "sampled by", "age", "busy", "load", "memory", "received", "sent"]
        tables.append(table_of("hosts", columns, hosts))
    if exchanges := exchanges_rows(now):
        columns = ["exchange", "topology", "epoch", "members", "round", "partial", "rounds", "leader"]
        tables.append(table_of("exchanges", columns, exchanges))
    return Group(*tables)


def watch_group(where: str, interval_s: float, console: Console) -> None:
    """Redraws the group every ``interval_s`` until Ctrl-C."""
    before = look(where)
    with Live(render_group(before), console=console, auto_refresh=False, screen=console.is_terminal) as live:
        while True:
            time.sleep(interval_s)
            now = look(where)
            live.update(render_group(now, before), refresh=True)
            before = now
