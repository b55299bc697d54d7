"""The check of any wheel: sends rows through an agent that it starts. Prints where its parts are."""

import numpy as np
import offpath
import pyarrow as pa

with offpath.Agent.start() as agent:
    session = offpath.connect(agent.address)
    out = session.stream("particles", pa.schema([("id", pa.int64())]), rows_max=1000)
    out.send({"id": np.arange(1000)}, key=("step0", "rank0")).wait_stored()
    table = session.pool("local:/particles").get("step0", "rank0", timeout=60)
    assert table["id"].to_pylist() == list(range(1000))
    counted = session.pool("local:/particles").query(aggregates={"n": "count"}, timeout=60)  # loads libarrow
    assert counted["n"].to_pylist() == [1000]
    print(offpath.__file__, offpath.find_agent(), open(f"/proc/{agent.pid}/maps").read())
