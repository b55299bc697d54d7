"""The gain from an agent beside a host with realistic settings: lists when an atom has moved half the skin, at the
fastest skin; with a whole core for the agent, and with the share of a core that equals a card's core.
"""

from __future__ import annotations

import os
from collections import defaultdict
from statistics import median
from typing import Any

from ..control_group import ControlGroupError, bluefield_quota
from ..intervals import median_interval
from ..programs import ProgramError
from ..report import Claim, Report, Series
from .offloaded import gain, seconds_of
from .run import agent_with_functions, run_md

SKINS = (0.2, 0.3, 0.4, 0.5)
DISPLACEMENT = ["--every", "1", "--trigger", "displacement"]
OFFLOADS = {"alone": "none", "force": "force", "list": "list", "share": "share", "auto": "auto"}
HELPING = ("force", "list", "share")  # the modes that are compared with the host alone
MODES = {mode: [*DISPLACEMENT, "--offload", offload] for mode, offload in OFFLOADS.items()}
# With lists by displacement: `force` uses a list a step longer, so it may miss pairs, and `auto` excludes it.
LONGER = "each list serves a step longer than the peer's, so pairs may be missed"
AUTO_CHOOSES = ("alone", "list")
CARD, HALF = 0.2, 0.5  # of a core: a BlueField-2's (control_group), and a newer card's
SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)  # for which the model predicts the gain
INTERVALS = (3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20)  # among them the steps that a list holds
AUTO_STEPS = 2000  # the cost of finding out is among them


def fastest_skins(words: list[str], core: int, address: str, modes: tuple[str, ...]) -> dict[str, float]:
    """Each mode's skin, by two runs of each, of which the faster counts."""
    best: dict[str, float] = {}
    for mode in modes:
        times = {}
        for skin in SKINS:
            runs = [run_md([*words, "--skin", str(skin), *MODES[mode]], str(core), address) for _ in range(2)]
            times[skin] = min(map(seconds_of, runs))
        best[mode] = min(times, key=lambda skin: times[skin])
    return best


def in_turns(runs: dict[str, list[str]], rounds: int, cores: str, address: str) -> dict[str, list[float]]:
    """Seconds of a step of each run, in every round."""
    times: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds):
        for name in list(runs) if number % 2 else reversed(list(runs)):
            times[name].append(seconds_of(run_md(runs[name], cores, address)))
    return times


def ratio_claim(
    name: str, ours: list[float], peer: str, theirs: list[float], target: float | None, detail: str | None = None
) -> Claim:
    """How many times as fast ``ours`` is, by the turns' pairs; without a target a figure."""
    ratios = [other / mine for mine, other in zip(ours, theirs, strict=True)]
    ratio = median(ratios)
    wanted = None if target is None else f">= {target:g}"
    return Claim(name, 1e3 * median(ours), "ms a step", peer, 1e3 * median(theirs), ratio, wanted,
                 target is None or ratio >= target, median_interval(ratios), len(ratios), detail=detail)  # fmt: skip


def bounds(host: dict[str, float]) -> dict[str, float]:
    """mode -> how many times as fast a step can be at most, by the model (phase_model.h): with an agent that has forces
    before the host has made lists, and lists before they are due."""
    life = max(1.0, host["list_steps"])
    force, plain = host["force_s"], host["force_s"] + host["integrate_s"]
    alone = plain + host["communicate_s"] + (host["rebuild_s"] - host["communicate_s"]) / life
    sorts = (host["rebuild_wide_s"] - host["communicate_wide_s"]) / max(host["bins_steps"], life)
    lists = plain + host["communicate_wide_s"] + sorts
    return {"force": alone / (alone - force / life), "list": alone / lists}


def third_core(cores: tuple[int, int]) -> int | None:
    """A core for a second host thread, besides the host's and the agent's; None where there are two."""
    return min(os.sched_getaffinity(0) - set(cores), default=None)


def measure_alone(report: Report, cores: tuple[int, int], address: str, cells: int, steps: int, rounds: int) -> None:
    """One host core beside one host core and an agent's; with a third core also two host cores beside two host cores
    and an agent's."""
    host = cores[0]
    size = ["-s", str(cells), "-n", str(steps), "--thermo", "0"]
    skins = fastest_skins(size, host, address, ("alone", *HELPING))
    runs = {mode: [*size, "--skin", str(skins[mode]), *MODES[mode]] for mode in skins}
    for mode in HELPING:
        if skins[mode] != skins["alone"]:
            runs[f"alone, skin of {mode}"] = [*size, "--skin", str(skins[mode]), *MODES["alone"]]
    times = in_turns(runs, rounds, str(host), address)
    words = ["model", *size, "--skin", str(skins["alone"]), "--measure", "0", "--intervals", "1"]
    most = bounds(run_md(words, str(host), address)["host"])
    third = third_core(cores)
    for mode in HELPING:
        at = f"skins {skins[mode]:g} and {skins['alone']:g}, the fastest of {SKINS[0]:g}-{SKINS[-1]:g} for each"
        note = "; two host cores and an agent's do not fit this machine" if third is None else ""
        peer = "one core alone, lists by displacement"
        longer = LONGER if mode == "force" else None
        bound = f"an agent of any speed comes to {most[mode]:.3f} at most, by the model" if mode in most else None
        detail = "; ".join(filter(None, (at + note, bound, longer)))
        report.claims.append(ratio_claim(f"md.{mode}_vs_alone", times[mode], peer, times["alone"], 1.10, detail))
        same = times.get(f"alone, skin of {mode}", times["alone"])
        report.claims.append(ratio_claim(f"md.{mode}_vs_alone_same_skin", times[mode], peer, same, None, longer))
    if third is None:
        return
    both = in_turns({mode: [*runs[mode], "-t", "2"] for mode in skins}, rounds, f"{host},{third}", address)
    for mode in HELPING:
        peer = "two cores alone, lists by displacement"
        longer = LONGER if mode == "force" else None
        name = f"md.{mode}_vs_alone_two_cores"
        report.claims.append(ratio_claim(name, both[mode], peer, both["alone"], None, longer))


def predicted(found: dict[str, Any]) -> dict[str, dict[float, float]]:
    """mode -> share of a core -> seconds of a step beside lists by displacement, by the model."""
    holds = found["host"]["list_steps"]
    interval = min(INTERVALS, key=lambda each: abs(each - holds))
    return {
        mode: {
            one["cores"]: next(
                row["predicted_s"] for row in one["rows"] if row["mode"] == name and row["interval"] == interval
            )
            for one in found["hypothetical"]
        }
        for mode, name in (("alone", "none"), ("force", "force"), ("list", "list"))
    }


def break_even(ours: dict[float, float], alone: dict[float, float]) -> float | None:
    """The share of a core from which on the agent gains something, between the model's; None: at none of them."""
    shares = sorted(ours)
    gains = [alone[share] - ours[share] for share in shares]
    for k, won in enumerate(gains):
        if won > 0 and k == 0:
            return shares[0]
        if won > 0:
            lost = -gains[k - 1]
            return shares[k - 1] + (shares[k] - shares[k - 1]) * lost / (lost + won)
    return None


def gains_from(share: float | None) -> str:
    return "and no gain at any share of a core" if share is None else f"and a gain from {share:.2f} of a core on"


def measure_card(
    report: Report, cores: tuple[int, int], sizes: tuple[int, int, int], auto: tuple[int, int, int]
) -> None:
    """The agent under a card's quota and half a core's: measured gain, model and break-even; auto beside the host alone
    and beside the best. ``sizes``, ``auto``: cells, steps, rounds. The host alone has the skin that is its fastest at
    each size, the modes have the same."""
    size, auto_size = (["-s", str(cells), "-n", str(steps), "--thermo", "0"] for cells, steps, _ in (sizes, auto))
    for words in (size, auto_size):
        words += ["--skin", str(fastest_skins(words, cores[0], "", ("alone",))["alone"])]
    with agent_with_functions(cores[1]) as agent:
        words = ["model", *size, "--measure", "0", "--intervals", ",".join(map(str, INTERVALS)),
                 "--agent-cores", ",".join(map(str, SHARES))]  # fmt: skip
        model = predicted(run_md(words, str(cores[0]), agent.address))
    even = {}
    for mode in ("force", "list"):
        gains = [gain(model["alone"][share], model[mode][share]) for share in SHARES]
        report.series.append(Series("md_card", f"{mode}, model", "share of a core", "%", [*SHARES], gains))
        share = even[mode] = break_even(model[mode], model["alone"])
        why = "no gain at any share of a core" if share is None else None
        report.claims.append(Claim(f"md.{mode}_break_even", share, "of a core", holds=share is not None, why=why))
    for name, share in (("card", CARD), ("half", HALF)):
        try:
            with bluefield_quota(share) as quota, agent_with_functions(cores[1], tuple(quota)) as agent:
                shares = (name, share, model, even)
                measure_share(report, cores[0], agent.address, shares, (size, sizes[2]), (auto_size, auto[2]))
        except ControlGroupError as error:
            raise ProgramError(str(error)) from error


def atoms_of(words: list[str]) -> str:
    return f"{4 * int(words[words.index('-s') + 1]) ** 3} atoms"


def peer_alone(words: list[str]) -> str:
    skin = words[words.index("--skin") + 1]
    return f"one core alone, lists by displacement, skin {skin}, its fastest of {SKINS[0]:g}-{SKINS[-1]:g}"


def measure_share(
    report: Report, core: int, address: str,
    of: tuple[str, float, dict[str, dict[float, float]], dict[str, float | None]],
    sizes: tuple[list[str], int], auto: tuple[list[str], int],
) -> None:  # fmt: skip
    """``of``: the share's name, the share, the model's prediction, and the shares from which on it predicts a gain.
    ``sizes``, ``auto``: a run's words, rounds."""
    name, share, model, even = of
    size, rounds = sizes
    times = in_turns({mode: [*size, *MODES[mode]] for mode in ("alone", *HELPING)}, rounds, str(core), address)
    for mode in HELPING:
        told = atoms_of(size)
        if mode in model:
            told += f"; the model says {model['alone'][share] / model[mode][share]:.3f}, {gains_from(even[mode])}"
        told += f"; {LONGER}" if mode == "force" else ""
        peer = f"{peer_alone(size)}; the agent has {100 * share:g} % of one"
        report.claims.append(ratio_claim(f"md.{mode}_vs_alone_{name}", times[mode], peer, times["alone"], 1.03, told))
        won = median(gain(alone, ours) for alone, ours in zip(times["alone"], times[mode], strict=True))
        report.series.append(Series("md_card", f"{mode}, measured", "share of a core", "%", [share], [won]))
    size, rounds = auto
    times = in_turns({mode: [*size, *MODES[mode]] for mode in (*AUTO_CHOOSES, "auto")}, rounds, str(core), address)
    best = min(AUTO_CHOOSES, key=lambda mode: median(times[mode]))
    counted = f"{atoms_of(size)}; {size[size.index('-n') + 1]} steps with the cost of finding out"
    report.claims.append(
        ratio_claim(f"md.auto_vs_alone_{name}", times["auto"], peer_alone(size), times["alone"], 0.97, counted)
    )
    report.claims.append(
        ratio_claim(f"md.auto_vs_best_{name}", times["auto"], "the best mode that misses no pair", times[best], 0.95,
                    f"{best}; {counted}")
    )  # fmt: skip
