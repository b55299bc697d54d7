"""The same in Python, with an agent of the program's own. NumPy arrays go out from where they lie, tables come back
over the agent's pages."""

import numpy as np
import offpath
import pyarrow as pa
import pyarrow.compute as pc

PARTICLES = 10_000
STEPS = 5

schema = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        pa.field("x", pa.list_(pa.float64(), 3), nullable=False),  # x[n][3], three values a row
        pa.field("z", pa.float64(), nullable=False),  # x[:, 2] alone, a strided column
    ]
)


def main() -> None:
    ids = np.arange(PARTICLES, dtype=np.int32)
    x = np.zeros((PARTICLES, 3))
    with offpath.Agent.start() as agent, offpath.connect(agent.address) as session:
        stream = session.stream("particles", schema, rows_max=PARTICLES)
        ticket = None
        for step in range(STEPS):
            if ticket is not None:
                ticket.wait_pulled(1.0)  # the arrays are ours again
            x += np.random.default_rng(step).normal(size=x.shape)
            ticket = stream.send({"id": ids, "x": x, "z": x[:, 2]}, key=(f"step{step}", "rank0"))
            # ... neighbour lists, forces: any work that does not write to ids and x ...
        ticket.wait_stored(1.0)

        pool = session.pool("local:/particles")
        for row, column in pool.keys():
            table = pool.get(row, column)  # no copy: the table lies in the agent's memory
            print(f"{row}: {table.num_rows} rows, mean z {pc.mean(table['z']).as_py():+.4f}")
        assert np.array_equal(pool.get(f"step{STEPS - 1}", "rank0")["z"].to_numpy(), x[:, 2])


if __name__ == "__main__":
    main()
