"""Values that are read equal those written, to the bit, and those that BP5 of the same wheel reads."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import adios2
import numpy as np
import offpath
import pytest
from adios2_streams import BUILD, bp5_io, offpath_io, opened
from hypothesis import given, settings
from hypothesis import strategies as st

TYPES = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
TYPES += [np.float32, np.float64, np.complex128]  # the binding cannot read complex64: program.cc
SHAPES = [(17,), (3, 4, 5)]
STEPS = 3


def made(dtype: type, shape: tuple[int, ...], step: int) -> np.ndarray:
    """Any bits: NaNs of every kind, infinities and negative zeros among them."""
    random = np.random.default_rng([step, *shape, np.dtype(dtype).num])
    return random.integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8).view(dtype).reshape(shape)


def write(io: adios2.IO, path: str) -> None:
    with opened(io, "w", path) as stream:
        for dtype in TYPES:
            name = np.dtype(dtype).name
            stream.write_attribute(f"{name}/list", made(dtype, (5,), 9))
            stream.write_attribute(f"{name}/one", made(dtype, (1,), 9))
        stream.write_attribute("title", "drift of ä")
        stream.write_attribute("words", ["one", "", "three"])
        for step in range(STEPS):
            stream.begin_step()
            for dtype in TYPES:
                name = np.dtype(dtype).name
                for shape in SHAPES:
                    data = made(dtype, shape, step)
                    stream.write(f"{name}/{len(shape)}", data, list(shape), [0] * len(shape), list(shape))
            stream.write("integer", step - 2**62)  # scalars of other types are in program.cc
            stream.write("real", (0.1, float("nan"), float("-inf"))[step])
            stream.write("text", f"step {step}")
            stream.end_step()


def read(io: adios2.IO, path: str) -> list[dict[str, object]]:
    steps = []
    with opened(io, "r", path) as stream:
        for _ in stream.steps():
            values: dict[str, object] = {}
            for name, facts in stream.available_variables().items():
                value = stream.read(name)
                values[name] = value if isinstance(value, str) else np.asarray(value).tobytes()
                values[f"{name} as"] = (facts["Type"], facts["Shape"], facts["SingleValue"])
            for name, facts in stream.available_attributes().items():
                value = stream.read_attribute(name)
                values[f"@{name}"] = value if isinstance(value, str | list) else np.asarray(value).tobytes()
                values[f"@{name} as"] = (facts["Type"], facts["Elements"])
            steps.append(values)
    return steps


def test_every_type_is_read_back_as_bp5_reads_it(pool: str, tmp_path: Path) -> None:
    path = str(tmp_path / "values.bp")
    write(offpath_io(pool), path)
    assert not Path(path).exists()
    write(bp5_io(), path)
    got, expected = read(offpath_io(pool), path), read(bp5_io(), path)
    assert len(got) == len(expected) == STEPS
    for ours, theirs in zip(got, expected, strict=True):
        assert ours == theirs


@pytest.mark.parametrize("snapshot", ["off", "on"])
def test_a_program_in_cpp_reads_the_same_as_with_bp5(pool: str, tmp_path: Path, snapshot: str) -> None:
    """Deferred and sync puts, several blocks, local and joined arrays, local values, ghost cells, rows that grow, long
    doubles and chars; blocks' places, boxes, and boxes of larger arrays in memory."""
    engines = {
        "bp5": '<engine type="BP5"/>',
        "offpath": f"""<engine type="Plugin"><parameter key="PluginName" value="offpath"/>
            <parameter key="PluginLibrary" value="offpath_adios2"/><parameter key="Pool" value="{pool}"/>
            <parameter key="Snapshot" value="{snapshot}"/></engine>""",
    }
    outputs = {}
    for name, engine in engines.items():
        config = tmp_path / f"{name}.xml"
        config.write_text(f'<adios-config><io name="simulation">{engine}</io></adios-config>')
        for what in ("write", "read"):
            ran = subprocess.run(
                [BUILD / "tests/adios2_program", config, tmp_path / "program.bp", what],
                capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            assert ran.returncode == 0, ran.stderr
        outputs[name] = ran.stdout.splitlines()
    assert len(outputs["bp5"]) > 200
    assert outputs["offpath"] == outputs["bp5"]


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_box_of_any_blocks_is_what_numpy_cuts_out(agent: offpath.Agent, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    whole = made(np.float64, tuple(shape), 1)
    cuts = sorted(data.draw(st.sets(st.integers(0, shape[0]), max_size=3)) | {0, shape[0]})
    pool = "local:/boxes"
    with opened(offpath_io(pool), "w") as stream:
        stream.begin_step()
        for begin, end in itertools.pairwise(cuts):
            start = [begin] + [0] * (len(shape) - 1)
            stream.write("x", np.ascontiguousarray(whole[begin:end]), shape, start, [end - begin, *shape[1:]])
        stream.end_step()
    with opened(offpath_io(pool), "r") as stream:
        stream.begin_step()
        for _ in range(5):
            start = [data.draw(st.integers(0, each - 1)) for each in shape]
            count = [data.draw(st.integers(1, each - at)) for each, at in zip(shape, start, strict=True)]
            box = tuple(slice(at, at + n) for at, n in zip(start, count, strict=True))
            assert stream.read("x", start, count).tobytes() == whole[box].tobytes()
        stream.end_step()


RANK = """
import sys
import numpy as np
from adios2_streams import offpath_io, opened
pool, rank, ranks, steps = sys.argv[1], *map(int, sys.argv[2:])
with opened(offpath_io(pool, Ranks=ranks, Rank=rank), "w") as stream:
    for step in range(steps):
        stream.begin_step()
        rows = 2 + rank  # blocks of different sizes
        begin = sum(2 + each for each in range(rank))
        total = sum(2 + each for each in range(ranks))
        block = np.arange(begin * 5, (begin + rows) * 5, dtype=np.float64).reshape(rows, 5) + 1000 * step
        stream.write("field", block, [total, 5], [begin, 0], [rows, 5])
        stream.write("x", block[:, 0].copy(), [total], [begin], [rows])
        stream.write("y", block[:, 1].copy(), [total], [begin], [rows])
        if rank == 1:
            stream.write_attribute("of rank 1", "yes")
        stream.end_step()
"""


def test_several_processes_write_one_array(pool: str, session: offpath.Session) -> None:
    ranks, steps = 3, 2
    writers = [
        subprocess.Popen([sys.executable, "-c", RANK, pool, *map(str, (rank, ranks, steps))], cwd=Path(__file__).parent)
        for rank in range(ranks)
    ]
    total = sum(2 + rank for rank in range(ranks))
    with opened(offpath_io(pool), "r") as stream:
        seen = 0
        for _ in stream.steps(timeout=60):
            expected = np.arange(total * 5, dtype=np.float64).reshape(total, 5) + 1000 * seen
            assert (stream.read("field") == expected).all()
            assert (stream.read("field", [1, 2], [5, 2]) == expected[1:6, 2:4]).all()
            assert (stream.read("y") == expected[:, 1]).all()
            variable = stream.inquire_variable("x")
            blocks = stream.engine.blocks_info("x", stream.current_step())
            assert [(each["Start"], each["Count"]) for each in blocks] == [("0", "2"), ("2", "3"), ("5", "4")]
            assert variable.shape() == [total]
            assert stream.read_attribute("of rank 1") == "yes"
            seen += 1
    assert seen == steps
    assert [writer.wait(60) for writer in writers] == [0] * ranks
    # The same for any other reader of the pool: a table of each rank.
    entries = session.pool(pool).list("step0", "rank*.table")
    assert sorted((entry.column, entry.rows) for entry in entries) == [
        ("rank0.table", 2), ("rank1.table", 3), ("rank2.table", 4)
    ]  # fmt: skip


def test_blocks_are_read_one_by_one(pool: str) -> None:
    with opened(offpath_io(pool), "w") as stream:
        stream.begin_step()
        for begin, rows in ((0, 3), (3, 3), (6, 4)):
            stream.write("x", np.arange(begin, begin + rows, dtype=np.int32), [10], [begin], [rows])
        for n in (3, 3, 4):
            stream.write("local", np.full(n, n, np.int32), [], [], [n])
        stream.end_step()
    with opened(offpath_io(pool), "r") as stream:
        stream.begin_step()
        assert stream.read("local", block_id=1).tolist() == [3, 3, 3]
        with pytest.raises(ValueError, match=r"block 2 has 4 elements, but the variable says 3.*SetBlockSelection"):
            stream.read("local", block_id=2)
        with pytest.raises(ValueError, match=r"local has 3 blocks; asked for block 3"):
            stream.read("local", block_id=3)
        variable = stream.inquire_variable("x")
        variable.set_selection([[0], [4]])
        variable.set_block_selection(2)
        block = np.zeros(4, np.int32)
        stream.engine.get(variable, block, adios2.bindings.Mode.Sync)
        assert block.tolist() == [6, 7, 8, 9]
        stream.end_step()
