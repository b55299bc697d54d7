"""Draws the pictures of docs/guides/view.md: the page of ``offpath view`` over a small run, light and dark.

Usage: ./dev pictures [FOLDER]; needs a browser (packages/browser.txt). The folder is docs/images.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import offpath
import pyarrow as pa
from offpath.view import Pictures, ViewServer

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "shared"))

from browser import BROWSER, COLOURS, FIRST_SECONDS, browser  # noqa: E402
from load_exchange import LOAD_EXCHANGE  # noqa: E402

PARTICLES, TRACKED, STEPS = 200_000, 400, 60
TIMEOUT_S = 60.0
SIZE = "1280,2220"
LOADS = {"node17": (412.5, 3), "node18": (238.0, 1), "node19": (391.0, 4)}  # watts and jobs of an agent each


class Falling(Pictures):
    """Each time that the page asks for the agents, the run's residual is smaller."""

    gauges: offpath.Gauges
    residual = 1.0

    def agents(self) -> dict[str, Any]:
        self.residual *= 0.6
        self.gauges["residual"] = self.residual
        end = time.monotonic() + TIMEOUT_S
        while True:  # until its agent has read it
            told = super().agents()
            if [each["value"] for each in told["gauges"]] == [self.residual] or time.monotonic() > end:
                return told
            time.sleep(0.05)


def positions(step: int, radius: np.ndarray, phase: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Particles on circles, the inner ones faster."""
    angle = phase + 0.12 * step / radius**1.5
    return radius * np.cos(angle), radius * np.sin(angle)


def run(session: offpath.Session) -> None:
    """The newest step of a disc with two arms, and the tracks of some of its particles."""
    random = np.random.default_rng(7)
    radius = random.gamma(4.0, 0.25, PARTICLES) + 0.15
    arm = np.where(np.arange(PARTICLES) % 2, 0.0, np.pi)
    phase = arm + 2.2 * np.log(radius) + random.normal(0, 0.45, PARTICLES)
    x, y = positions(0, radius, phase)
    mass = random.random(PARTICLES, dtype=np.float32)
    table = pa.table({"id": np.arange(PARTICLES), "x": x, "y": y, "mass": mass})
    session.pool("local:/disc").put(table, "step0", timeout=TIMEOUT_S)
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", pa.float64())])
    with session.stream("tracked", schema, rows_max=TRACKED, pool="sift:/tracked?key=id") as stream:
        for step in range(STEPS):
            x, y = positions(step, radius[:TRACKED], phase[:TRACKED])
            stream.send({"id": np.arange(TRACKED), "x": x, "y": y}, f"step{step}", snapshot=True).wait_stored(TIMEOUT_S)
        session.tracks("sift:/tracked?key=id").flush(TIMEOUT_S)


def draw(folder: Path) -> None:
    if BROWSER is None:
        raise SystemExit("there is no browser: install packages/browser.txt")
    with contextlib.ExitStack() as ends:
        agents: list[offpath.Agent] = []
        for name in LOADS:
            settings = {"agent.name": name, **({"group.join": agents[0].address} if agents else {})}
            agent = offpath.Agent.start(memory="256MiB", settings=settings, config=LOAD_EXCHANGE)
            agents.append(ends.enter_context(agent))
        sessions = [ends.enter_context(offpath.connect(agent.address)) for agent in agents]
        sessions[0].wait_members(len(agents), timeout=TIMEOUT_S)
        run(sessions[0])
        for session, (power, jobs) in zip(sessions, LOADS.values(), strict=True):
            ends.enter_context(session.exchange("load", publish=True)).publish(power=power, jobs=jobs)
        pictures = Falling(sessions[0], agents[0].http_address)
        pictures.gauges = ends.enter_context(sessions[0].gauges("solver", ["residual"]))
        server = ends.enter_context(ViewServer(pictures))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ends.callback(server.shutdown)
        for colours in COLOURS:
            pictures.residual = 1.0
            picture = folder / f"view-{colours}.png"
            profile = Path(ends.enter_context(tempfile.TemporaryDirectory()))
            options = [*FIRST_SECONDS, "--hide-scrollbars", f"--window-size={SIZE}", f"--screenshot={picture}"]
            subprocess.run([*browser(profile, *options, colours=colours), server.url], check=True, timeout=300,
                           stderr=subprocess.DEVNULL)  # fmt: skip
            print(picture)


if __name__ == "__main__":
    draw(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "docs" / "images")
