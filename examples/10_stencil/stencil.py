"""Heat on a ring of blocks, without a message between the ranks: a communication-avoiding stencil. In each round a rank
advances the inside of its block by several steps, each on one row less from both ends, for nothing of that depends
on its neighbours. Its worker on the agent meanwhile gets the neighbours' edges from their workers, and advances the
rows that were left out. The result is compared with one grid computed in one place, to the last bit.

Ranks are threads, two on each of two agents.

Usage: stencil.py stencil_plugin.so
"""

import struct
import sys
import threading
import time

import numpy as np
import offpath

RANKS, ROWS, COLUMNS = 4, 600, 1000  # of each rank's block
STEPS, ROUNDS, RATE = 16, 8, 0.2  # steps: of a round
PATIENCE_S = 60


def advanced(grid: np.ndarray) -> np.ndarray:
    """One step: two rows fewer. Cold on the left and on the right."""
    here = grid[1:-1]
    sides = np.zeros((2, *here.shape))
    sides[0, :, 1:], sides[1, :, :-1] = here[:, :-1], here[:, 1:]
    return here + RATE * (((grid[:-2] + grid[2:]) + (sides[0] + sides[1])) - 4 * here)


class Rank:
    def __init__(self, session: offpath.Session, number: int, block: np.ndarray) -> None:
        self.tasks = session.tasks(lane=number, lanes=RANKS, team="stencil")
        # Both in memory that the agent may write: the edges of the next one are a task's outputs.
        self.now, self.next = (session.alloc(block.nbytes).numpy(np.float64).reshape(block.shape) for _ in range(2))
        self.now[:] = block
        self.inside_s = self.waited_s = 0.0

    def run(self) -> None:
        arguments = struct.pack("QQd", COLUMNS, STEPS, RATE)
        for _ in range(ROUNDS):
            now, after = self.now, self.next
            edges = {"top": now[: 2 * STEPS], "bottom": now[-2 * STEPS :]}
            halo = self.tasks.submit(
                "stencil/halo", edges, {"top": after[:STEPS], "bottom": after[-STEPS:]}, arguments=arguments
            )
            began = time.monotonic()
            inside = now
            for _ in range(STEPS):
                inside = advanced(inside)
            after[STEPS:-STEPS] = inside
            computed = time.monotonic()
            halo.wait(PATIENCE_S)
            self.inside_s += computed - began
            self.waited_s += time.monotonic() - computed
            self.now, self.next = after, now


def main(plugin: str) -> None:
    # Ranks that wait for each other need a worker each.
    config = f'[[plugin]]\nname = "stencil"\npath = "{plugin}"\nworkers = {RANKS}\n'
    with (
        offpath.Agent.start(config=config, settings={"agent.name": "dpu0"}) as first,
        offpath.Agent.start(config=config, settings={"agent.name": "dpu1", "group.join": first.address}) as second,
    ):
        grid = np.random.default_rng(1).random((RANKS * ROWS, COLUMNS))
        sessions = [offpath.connect((first, second)[number * 2 // RANKS].address) for number in range(RANKS)]
        ranks = [Rank(session, number, grid[number * ROWS :][:ROWS]) for number, session in enumerate(sessions)]
        threads = [threading.Thread(target=rank.run) for rank in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, rank in enumerate(ranks):
            inside, waited = rank.inside_s * 1e3, rank.waited_s * 1e3
            print(f"rank {number}: {inside:5.0f} ms inside its block, {waited:5.0f} ms waiting for its edges")
        for _ in range(STEPS * ROUNDS):
            grid = advanced(np.concatenate([grid[-1:], grid, grid[:1]]))
        together = np.concatenate([rank.now for rank in ranks])
        difference = np.abs(together - grid).max()
        print(f"after {STEPS * ROUNDS} steps: mean {together.mean():.6f}, largest difference {difference}")
        assert together.tobytes() == grid.tobytes(), "it is not what one rank would have computed"
        for rank, session in zip(ranks, sessions, strict=True):
            rank.tasks.close()  # all have received all: nothing that is under way is lost
            session.close()


if __name__ == "__main__":
    main(sys.argv[1])
