"""Functions of plug-ins over objects of pools: with real workers, on one agent and on two."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import offpath
import pytest
from agent_group import PATIENCE_S, Group
from agent_process import find_program, until

BUILT = find_program().parents[1]
PARTICLES, HOSTILE = BUILT / "examples" / "particles_plugin.so", BUILT / "tests" / "hostile_plugin.so"

pytestmark = pytest.mark.skipif(not (PARTICLES.exists() and HOSTILE.exists()), reason="the plug-ins are not built")


def configured(directory: Path, *more: str) -> list[str]:
    """Plug-ins in a folder of the test's own, which nobody else can write to."""
    plugins = ""
    for name, built in (("particles", PARTICLES), ("hostile", HOSTILE)):
        plugins += f'[[plugin]]\nname = "{name}"\npath = "{shutil.copy(built, directory)}"\ndeadline = "5s"\n'
    (directory / "agent.toml").write_text("\n".join([plugins, *more]))
    return ["--config", str(directory / "agent.toml")]


def put(session: offpath.Session, pool: str, row: str, column: str, values: np.ndarray) -> None:
    stream = session.stream(f"{row}-{column}", destination="native", pool=pool)
    stream.send(values, key=(row, column)).wait_stored(PATIENCE_S)
    stream.close()


def mean_of(frame: offpath.Frame | None) -> tuple[int, float]:
    assert frame is not None
    result = np.frombuffer(frame.buffer(), dtype=[("count", "u8"), ("mean", "f8")])[0]
    return int(result["count"]), float(result["mean"])


@pytest.fixture(params=["local", "tcp"])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    key = None
    if request.param == "tcp":
        key = tmp_path / "key"
        key.write_bytes(bytes(range(32)))
        key.chmod(0o600)
    made = Group(tmp_path, key)
    try:
        yield made
    finally:
        made.stop_all()


def start(group: Group, name: str, *more: str, join: str | None = None) -> None:
    directory = group.directory / f"{name}-plugins"
    directory.mkdir()
    group.start(name, *configured(directory, *more), *(["--join", group.address(join)] if join else []))


def connect(group: Group, name: str) -> offpath.Session:
    return offpath.connect(group.address(name), key_file=group.key) if group.key else offpath.connect(group.address(name))


def two_agents(group: Group, *more: str) -> None:
    start(group, "a", *more)
    start(group, "b", *more, join="a")
    assert until(lambda: group.all_know(["a", "b"], {"a": "alive", "b": "alive"}), PATIENCE_S)


def calls(group: Group, name: str) -> int:
    return int(group.running[name].status()["computes"]["calls"])


def test_functions_over_an_object_and_over_a_row(group: Group) -> None:
    start(group, "a")
    with connect(group, "a") as session:
        pool = session.pool("local:/p")
        x, y, z = (np.linspace(0, 1, 1000, dtype=np.float32) ** power for power in (1, 2, 3))
        for name, values in (("x", x), ("y", y), ("z", z)):
            put(session, "local:/p", "step1", name, values)
        assert mean_of(pool.compute("particles.mean", "step1", "x")) == (1000, pytest.approx(0.5))
        count, _ = mean_of(pool.compute("particles.mean", "step1"))
        assert count == 3000
        box = np.array([0.2, 0, 0, 0.6, 1, 1], np.float32)
        expected = np.flatnonzero((x >= 0.2) & (x < 0.6) & (y < 1) & (z < 1))
        inside = pool.compute("particles.bounding_box", "step1", arguments=box.tobytes())
        assert inside is not None and np.array_equal(np.frombuffer(inside.buffer(), np.uint32), expected)
        assert pool.compute("particles.bounding_box", "step1", arguments=box.tobytes(), result="inside") is None
        assert np.array_equal(np.frombuffer(pool.get_bytes("step1", "inside"), np.uint32), expected)
        pool.compute("particles.mean", "step1", "x", result=("means", ""))
        assert len(pool.get_bytes("means", "mean")) == 16
        # What could not be handed over was computed once, and lasts no longer than the push.
        assert calls(group, "a") == 5
        del inside
        assert until(lambda: group.running["a"].status()["pools"] and 'offpath_pool_leases 0' in group.running["a"].get("/metrics")[2])


def test_a_large_output_is_copied_off_the_loop(group: Group) -> None:
    start(group, "a")
    with connect(group, "a") as session:
        for name in "xyz":
            put(session, "local:/p", "big", name, np.full(1_000_000, 0.5, np.float32))
        box = np.array([0, 0, 0, 1, 1, 1], np.float32)
        inside = session.pool("local:/p").compute("particles.bounding_box", "big", arguments=box.tobytes())
        assert inside is not None and np.array_equal(np.frombuffer(inside.buffer(), np.uint32), np.arange(1_000_000))


def test_what_fails_says_who_and_why_and_the_agent_goes_on(group: Group) -> None:
    start(group, "a")
    with connect(group, "a") as session:
        pool = session.pool("local:/p")
        put(session, "local:/p", "r", "c", np.zeros(4, np.float32))
        for function, text in (
            ("fails", "member a: .*x is negative"),
            ("throws", "member a: .*no such particle"),
            ("crashes", "member a: .*SIGSEGV"),
            ("writes_to_an_input", "member a: .*SIGSEGV"),
            ("shrinks", "member a: .*is said to be Arrow, and is not|made 2 outputs"),
        ):
            with pytest.raises((offpath.FunctionFailed, offpath.Invalid), match=text):
                pool.compute(f"hostile.{function}", "r", "c")
        with pytest.raises(offpath.FunctionFailed, match="is said to be Arrow, and is not"):
            pool.compute("hostile.shrinks", "r", "c", result="out")
        with pytest.raises(offpath.Timeout, match="member a: .*loops"):
            pool.compute("hostile.loops", "r", "c", timeout=0.5)
        for function in ("nothing.mean", "particles.nothing"):
            with pytest.raises(offpath.NotFound, match="nothing"):
                pool.compute(function, "r", "c")
        with pytest.raises(offpath.NotFound, match="no object"):
            pool.compute("particles.mean", "r", "other", timeout=0)
        with pytest.raises(offpath.NotFound, match='no objects in row "other"'):
            pool.compute("particles.mean", "other", timeout=0)
        with pytest.raises(offpath.Timeout, match="no object"):
            pool.compute("particles.mean", "r", "other", timeout=0.1)
        with pytest.raises(offpath.TooLarge, match="32769"):
            pool.compute("hostile.echo", "r", "c", bytes(32769))
        echoed = pool.compute("hostile.echo", "r", "c", b"x" * 32768)
        assert echoed is not None and bytes(echoed) == b"x" * 32768
        assert mean_of(pool.compute("particles.mean", "r", "c")) == (4, 0.0)
