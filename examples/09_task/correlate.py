"""A simulation whose velocities decay, and an agent that computes their autocorrelation meanwhile: each step hands over
its velocities, continues as soon as they have been pulled, and reads results when they are ready.

Usage: correlate.py correlate_plugin.so
"""

import sys

import numpy as np
import offpath

PARTICLES, STEPS, FRICTION = 200_000, 40, 0.05


def main(plugin: str) -> None:
    config = f'[[plugin]]\nname = "correlation"\npath = "{plugin}"\n'
    with offpath.Agent.start(config=config) as agent, offpath.connect(agent.address) as session:
        random = np.random.default_rng(1)
        v = random.standard_normal(PARTICLES)
        correlation = session.alloc(8 * STEPS).numpy(np.float64)  # outputs go to memory that the agent may write
        with session.tasks(lane=0) as tasks:
            assert tasks.submit("correlation/begin", {"v": v}).wait(10)
            asked = []
            for step in range(STEPS):
                task = tasks.submit("correlation/correlate", {"v": v}, {"correlation": correlation[step : step + 1]})
                kick = random.standard_normal(PARTICLES)  # any work that does not touch v
                task.wait_pulled(10)  # now v may change; the function may not even have begun
                v *= 1 - FRICTION
                v += np.sqrt(2 * FRICTION) * kick
                asked.append(task)
            for task in asked:
                task.wait(10)
            info = asked[-1].info
        expected = (1 - FRICTION) ** np.arange(STEPS)
        print("step   v(0) v(t)   expected")
        for step in range(0, STEPS, 8):
            print(f"{step:4}   {correlation[step]:9.3f}   {expected[step]:8.3f}")
        print(f"the last one: pulled in {info.pulled_ns / 1e3:.0f} us, ran for {info.ran_ns / 1e3:.0f} us on the agent")
        assert np.allclose(correlation, expected, atol=0.02)


if __name__ == "__main__":
    main(sys.argv[1])
