"""Paths go on across periodic boundaries."""

import numpy as np
from offpath.run.frames import Frame
from offpath.run.paths import follow, unwrap


def test_unwraps_what_crossed_the_boundary_both_ways() -> None:
    time = np.arange(40)[:, None, None]
    straight = np.array([[1.0, 5.0, 9.0], [9.5, 0.1, 4.0]]) + time * np.array([[0.9, -0.7, 0.0], [-1.1, 0.3, 1.3]])
    box = np.array([10.0, 10.0, 10.0])
    np.testing.assert_allclose(unwrap(straight % box, np.tile(box, (40, 1))), straight, atol=1e-9)


def test_follows_particles_by_id_whatever_their_order() -> None:
    random = np.random.default_rng(7)
    spots = np.stack(np.meshgrid(*[np.arange(8) + 0.5] * 3), axis=-1).reshape(-1, 3)
    ids = np.arange(1, len(spots) + 1)
    frames = []
    for step in range(4):
        positions = (spots + 0.3 * step * np.array([1.0, -1.0, 0.2])) % 8
        order = random.permutation(len(ids))
        frames.append(Frame(step, ids[order], np.ones(len(ids), np.int32), positions[order], positions[order]))
    paths = follow(frames, {step: (8.0, 8.0, 8.0) for step in range(4)})
    assert 20 < len(paths.ids) <= 64
    expected = spots[paths.ids - 1] + 0.3 * 3 * np.array([1.0, -1.0, 0.2])
    np.testing.assert_allclose(paths.positions[3], expected, atol=1e-9)


def test_leaves_out_a_particle_that_is_lost() -> None:
    random = np.random.default_rng(7)
    x = random.uniform(0, 8, (500, 3))
    whole = Frame(0, np.arange(1, 501), np.ones(500, np.int32), x, x)
    box = {0: (8.0, 8.0, 8.0), 5: (8.0, 8.0, 8.0)}
    lost = follow([whole], box).ids[0]
    kept = whole.id != lost
    later = Frame(5, whole.id[kept], whole.type[kept], x[kept], x[kept])
    paths = follow([whole, later], box)
    assert lost not in paths.ids
    assert len(paths.ids) == len(follow([whole], box).ids) - 1
