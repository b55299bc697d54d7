"""The simulation on several MPI ranks, each a host program of its own with its own channel to an agent.

``drive_ranks`` starts ``mpiexec -n N python -m offpath.run.parallel``. The ranks get their settings from an environment
variable; rank 0 prints its steps on standard output, and each rank leaves its result as a JSON file.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from .handover import Handover, RankResult, drive
from .settings import RunError, Settings

ORDER_VARIABLE = "OFFPATH_RUN_RANK_ORDER"
PATHS = ("out", "json_path", "input")
LINES_SHOWN = 6  # of the launcher's output


def find_mpiexec() -> str:
    """The launcher that belongs to the library LAMMPS uses: the ``mpich`` wheel's. Raises RunError without one."""
    try:
        for file in importlib.metadata.files("mpich") or []:
            if file.name == "mpiexec":
                return str(Path(file.locate()).resolve())
    except importlib.metadata.PackageNotFoundError:
        pass
    if found := shutil.which("mpiexec"):
        return found
    raise RunError("--ranks needs mpiexec: pip install mpich")


def drive_ranks(
    settings: Settings, addresses: list[str], pool: str, on_step: Callable[[int, int], None]
) -> list[RankResult]:
    """Runs all ranks to their end, each with an agent, in turn; their results in the order of ranks.

    Raises RunError with the first one's message.
    """
    with tempfile.TemporaryDirectory(prefix="offpath-run-") as folder:
        order = {"settings": to_json(settings), "addresses": addresses, "pool": pool, "results": folder}
        # The package may be used from its source, which the ranks' Python must find too.
        python_path = os.pathsep.join(filter(None, sys.path))
        environment = os.environ | {ORDER_VARIABLE: json.dumps(order), "PYTHONPATH": python_path}
        errors_path = Path(folder, "errors")
        with errors_path.open("wb") as errors:
            launcher = subprocess.Popen(
                [find_mpiexec(), "-n", str(settings.ranks), sys.executable, "-m", "offpath.run.parallel"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
            )
            try:
                other_lines = follow_steps(launcher, on_step)
            finally:
                if launcher.poll() is None:
                    launcher.terminate()
                    launcher.wait()
        if launcher.returncode != 0:
            said = other_lines + errors_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            reason = next((line for line in said if line.startswith("offpath run:")), None)
            raise RunError(
                reason.removeprefix("offpath run:").strip()
                if reason
                else f"mpiexec ended with status {launcher.returncode}: " + " / ".join(said[-LINES_SHOWN:])
            )
        return [load_result(Path(folder, f"{rank}.json")) for rank in range(settings.ranks)]


def follow_steps(launcher: subprocess.Popen[str], on_step: Callable[[int, int], None]) -> list[str]:
    """Forwards rank 0's progress, a line "STEP BYTES" for each hand-over, until the ranks have ended. Returns other
    lines, which the launcher writes when a rank was killed."""
    assert launcher.stdout is not None
    others = []
    for line in launcher.stdout:
        words = line.split()
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit():
            on_step(int(words[0]), int(words[1]))
        elif line.strip(" =\n"):
            others.append(line.strip(" =\n"))
    launcher.wait()
    return others


def to_json(settings: Settings) -> dict[str, Any]:
    values = asdict(settings)
    return {key: str(value.absolute()) if isinstance(value, Path) else value for key, value in values.items()}


def from_json(loaded: dict[str, Any]) -> Settings:
    for name in PATHS:
        if loaded[name] is not None:
            loaded[name] = Path(loaded[name])
    return Settings(**loaded)


def load_result(path: Path) -> RankResult:
    loaded = json.loads(path.read_text(encoding="utf-8"))
    names = [entry.name for entry in fields(Handover)]
    handovers = [Handover(**{name: entry[name] for name in names}) for entry in loaded.pop("handovers")]
    for handover in handovers:
        x, y, z = handover.box
        handover.box = (x, y, z)
    if loaded["cells"] is not None:
        loaded["cells"] = tuple(loaded["cells"])
    return RankResult(**loaded, handovers=handovers)


def main() -> int:
    """The work of each rank."""
    import offpath

    order = json.loads(os.environ.pop(ORDER_VARIABLE))
    settings = from_json(order["settings"])
    rank = int(os.environ.get("PMI_RANK", "0"))
    address = order["addresses"][rank % len(order["addresses"])]

    def tell(step: int, payload_bytes: int) -> None:
        if rank == 0:
            print(step, payload_bytes * settings.ranks, flush=True)

    try:
        with offpath.connect(address) as session:
            result = drive(settings, session, order["pool"], tell)
    except (RunError, offpath.Error) as error:
        print(f"offpath run: {error}", file=sys.stderr, flush=True)
        # Without MPI_Finalize, so that the launcher ends the other ranks instead of waiting for them.
        os._exit(1)
    Path(order["results"], f"{result.rank}.json").write_text(json.dumps(asdict(result)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
