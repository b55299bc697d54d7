"""One end of a stream of ADIOS2 for ``offpath bench adios2``, in a process of its own.

``python -m offpath.bench.adios2_stream write|read ENGINE WHERE BYTES`` says ``ready``. A writer answers each line that
it reads with a step: ``NANOSECONDS MEMORY 0 0``, from its first Put to the return of EndStep, and the KiB that the
process has grown by at most since before it opened the stream. A reader says ``NANOSECONDS STEP 0 0`` for each step
that it has read whole, without being asked.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ARRAYS = 16
PLUGIN = {"PluginName": "offpath", "PluginLibrary": "offpath_adios2", "Timeout": "60"}


def make_io(engine: str, where: str, writes: bool):
    import adios2

    io = adios2.Adios().declare_io("simulation")
    if engine.startswith("offpath"):
        io.set_engine("Plugin")
        own = {"Keep": "2", "Snapshot": "on" if engine == "offpath-snapshot" else "off"} if writes else {}
        io.set_parameters({**PLUGIN, "Pool": where, **own})
    else:
        io.set_engine(engine)
        if engine == "SST" and writes:
            io.set_parameters({"RendezvousReaderCount": "1", "QueueLimit": "2", "QueueFullPolicy": "Block"})
    return io


def memory_kib(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def write(engine: str, where: str, size: int) -> None:
    import numpy as np
    from adios2 import bindings

    rows = size // ARRAYS // 8
    io = make_io(engine, where, writes=True)
    arrays = [np.arange(rows, dtype=np.float64) + number for number in range(ARRAYS)]
    variables = [
        io.define_variable(f"c{number}", array, [rows], [0], [rows], True) for number, array in enumerate(arrays)
    ]
    # The peak counts from here: writing 5 there resets it.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = memory_kib("VmRSS")
    stream = io.open(where, bindings.Mode.Write)
    print("ready", flush=True)
    for _ in sys.stdin:
        stream.begin_step()
        begin = time.perf_counter_ns()
        for variable, array in zip(variables, arrays, strict=True):
            stream.put(variable, array, bindings.Mode.Deferred)
        stream.end_step()
        print(time.perf_counter_ns() - begin, memory_kib("VmHWM") - before, 0, 0, flush=True)
    stream.close()


def read(engine: str, where: str, size: int) -> None:
    import numpy as np
    from adios2 import bindings

    rows = size // ARRAYS // 8
    arrays = [np.zeros(rows) for _ in range(ARRAYS)]
    io = make_io(engine, where, writes=False)
    print("ready", flush=True)
    stream = io.open(where, bindings.Mode.Read)
    while stream.begin_step(bindings.StepMode.Read, 60.0) == bindings.StepStatus.OK:
        begin = time.perf_counter_ns()
        for number, array in enumerate(arrays):
            stream.get(io.inquire_variable(f"c{number}"), array, bindings.Mode.Deferred)
        stream.perform_gets()
        step = stream.current_step()
        stream.end_step()
        if any(array[-1] != rows - 1 + number for number, array in enumerate(arrays)):
            raise SystemExit(f"{engine}: step {step} was read wrong")
        print(time.perf_counter_ns() - begin, step, 0, 0, flush=True)
    stream.close()


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
