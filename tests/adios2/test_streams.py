"""Steps as they come: from a writer in another process, in bounded memory, with an agent that is not there or dies."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import adios2
import numpy as np
import offpath
import pytest
from adios2_streams import BUILD, offpath_io, opened
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offpath.agent_http import fetch_status
from waiting import until

Status = adios2.bindings.StepStatus
STEP = adios2.bindings.StepMode.Read

GROWING = """
import sys
import numpy as np
from adios2_streams import offpath_io, opened
pool, steps, parameters = sys.argv[1], int(sys.argv[2]), dict(each.split("=") for each in sys.argv[3:])
with opened(offpath_io(pool, **parameters), "w") as stream:
    for step in range(steps):
        sys.stdin.readline()
        n = 1000 << step
        stream.begin_step()
        stream.write("x", np.arange(n, dtype=np.float64) + step, [n], [0], [n])
        stream.write("id", np.arange(n, dtype=np.int64), [n], [0], [n])
        stream.write("cube", np.full((4, 5, 6), step, np.float32), [4, 5, 6], [0, 0, 0], [4, 5, 6])
        stream.write("time", step * 0.5)
        stream.end_step()
        print(step, flush=True)
    sys.stdin.readline()
"""


def writer(pool: str, steps: int, **parameters: object) -> subprocess.Popen[str]:
    """Writes a step for each line on its standard input, and closes the stream after one more."""
    return subprocess.Popen(
        [sys.executable, "-c", GROWING, pool, str(steps), *(f"{name}={value}" for name, value in parameters.items())],
        cwd=Path(__file__).parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def written(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_a_reader_follows_a_writer_in_another_process(pool: str) -> None:
    with opened(offpath_io(pool), "r") as stream:
        engine = stream.engine
        assert engine.begin_step(STEP, 0.0) == Status.NotReady  # neither a writer nor a pool
        process = writer(pool, 5)
        for step in range(5):
            assert engine.begin_step(STEP, 0.05) == Status.NotReady
            go_on(process)
            assert engine.begin_step(STEP, 60.0) == Status.OK
            assert engine.current_step() == step
            n = 1000 << step  # rows grow beyond those of the first step
            assert stream.inquire_variable("x").shape() == [n]
            assert (stream.read("x") == np.arange(n) + step).all()
            assert (stream.read("id", [n - 3], [3]) == [n - 3, n - 2, n - 1]).all()
            assert (stream.read("cube", [1, 1, 1], [2, 3, 4]) == step).all()
            assert stream.read("time") == step * 0.5
            engine.end_step()
        go_on(process)
        assert engine.begin_step(STEP, 60.0) == Status.EndOfStream
        assert engine.begin_step(STEP, 60.0) == Status.EndOfStream
        assert process.wait(60) == 0


def test_a_table_of_more_rows_goes_through_the_same_stream(pool: str, agent: offpath.Agent) -> None:
    def tables() -> list[tuple[str, int]]:
        streams = fetch_status(agent.http_address)["streams"]
        return [(each["name"], each["rows_max"]) for each in streams if each["pool"] == pool and each["rows_max"] != 0]

    n = 1000
    with opened(offpath_io(pool), "w") as stream:
        for step in range(4):
            stream.begin_step()
            stream.write("x", np.arange(n << step) + 0.5, [n << step], [0], [n << step])
            stream.end_step()
            rows_max = n if step == 0 else (n << step) * 5 // 4
            assert until(lambda rows_max=rows_max: tables() == [(f"{pool} rank0.table0", rows_max)]), tables()


def test_a_writer_that_dies_ends_no_stream(pool: str) -> None:
    process = writer(pool, 2)
    with opened(offpath_io(pool), "r") as stream:
        go_on(process)
        assert stream.engine.begin_step(STEP, 60.0) == Status.OK
        process.kill()
        process.wait(60)
        assert stream.read("time") == 0.0  # the step is the agent's
        stream.engine.end_step()
        assert stream.engine.begin_step(STEP, 0.05) == Status.NotReady


def test_keep_leaves_the_newest_steps_and_a_late_reader_begins_with_them(pool: str, session: offpath.Session) -> None:
    process = writer(pool, 6, Keep=2)
    for _ in range(6):
        go_on(process)
    assert [written(process) for _ in range(6)] == list(range(6))
    go_on(process)
    assert process.wait(60) == 0
    rows = {entry.row for entry in session.pool(pool).list()}
    assert rows == {"step4", "step5", "step6"}  # the last one says that the stream has ended
    with opened(offpath_io(pool), "r") as stream:
        assert [stream.current_step() for _ in stream.steps(timeout=60)] == [4, 5]


def test_a_reader_that_consumes_leaves_no_step_behind(pool: str, session: offpath.Session) -> None:
    process = writer(pool, 3)
    with opened(offpath_io(pool, Consume="yes"), "r") as stream:
        for step in range(3):
            go_on(process)
            assert stream.engine.begin_step(STEP, 60.0) == Status.OK
            assert stream.read("time") == step * 0.5
            stream.engine.end_step()
            assert not session.pool(pool).list(f"step{step}")
        go_on(process)
        assert stream.engine.begin_step(STEP, 60.0) == Status.EndOfStream
    assert process.wait(60) == 0


@pytest.mark.parametrize("n", [1000, 200_000])
@pytest.mark.parametrize("snapshot", ["yes", "no"])
def test_arrays_are_the_programs_own_after_end_step(pool: str, snapshot: str, n: int) -> None:
    steps = 4
    io = offpath_io(pool, Snapshot=snapshot)
    x = np.zeros(n)
    variable = io.define_variable("x", x, [n], [0], [n])
    with opened(io, "w") as stream:
        for step in range(steps):
            x[:] = step
            stream.begin_step()
            stream.engine.put(variable, x, adios2.bindings.Mode.Deferred)
            x[0] = -step  # a deferred put takes the values at the end of the step
            stream.end_step()
            x[:] = -100
    with opened(offpath_io(pool), "r") as stream:
        for _ in stream.steps(timeout=60):
            step = stream.current_step()
            # With snapshots the copy is made by Put.
            assert stream.read("x").tolist() == [step if snapshot == "yes" else -step] + [step] * (n - 1)


@pytest.mark.parametrize("n", [1000, 200_000])
def test_small_steps_do_not_wait_for_the_agent(pool: str, n: int) -> None:
    """The agent stands still for a step. A small one was copied by both calls; a large one waits until the timeout."""
    with offpath.Agent.start(memory="256MiB") as own, offpath.connect(own.address) as session:
        io = offpath_io(pool, Address=own.address, Timeout=3)
        x = np.zeros(n)
        variable = io.define_variable("x", x, [n], [0], [n])
        with opened(io, "w") as stream:
            for step in range(4):
                x[:] = step
                stream.begin_step()
                stream.engine.put(variable, x, adios2.bindings.Mode.Deferred)
                stands_still = step == 2
                if stands_still:
                    session.pool(pool).get_bytes("step1", "rank0.about", timeout=60)  # nothing is under way
                    os.kill(own.pid, signal.SIGSTOP)
                try:
                    if stands_still and n == 200_000:
                        with pytest.raises(RuntimeError, match="PerformPuts, step 2"):
                            stream.engine.perform_puts()
                        os.kill(own.pid, signal.SIGCONT)
                    else:
                        stream.engine.perform_puts()
                        x[:] = -100
                    stream.end_step()
                finally:
                    os.kill(own.pid, signal.SIGCONT)
        with opened(offpath_io(pool, Address=own.address), "r") as stream:
            found = [stream.read("x").tolist() for _ in stream.steps(timeout=60)]
    if n == 1000:
        assert found == [[step] * n for step in range(4)]


@pytest.mark.parametrize("link", ["local", "tcp"])
def test_arrays_may_lie_elsewhere_in_each_step(
    pool: str, link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that was announced for a step is freed, and other arrays of other sizes come to lie there."""
    key = tmp_path / "key"
    key.write_text(secrets.token_hex(32))
    key.chmod(0o600)
    monkeypatch.setenv("OFFPATH_KEY_FILE", str(key))
    steps, listen = 60, "tcp:127.0.0.1:0" if link == "tcp" else f"unix:{tmp_path}/agent.sock"
    with offpath.Agent.start(listen=[listen], settings={"security.key_file": key}) as own:
        address = next(each for each in own.addresses if each.startswith(listen.partition(":")[0]))
        io = offpath_io(pool, Address=address)
        variables = [io.define_variable(f"v{i}", np.zeros(1), [1], [0], [1]) for i in range(4)]
        with opened(io, "w") as stream:
            for step in range(steps):
                n = 1000 + 7919 * step % 50_000
                arrays = [np.full(n * (i + 1), step * 10.0 + i) for i in range(4)]
                stream.begin_step()
                for variable, array in zip(variables, arrays, strict=True):
                    variable.set_shape([len(array)])
                    variable.set_selection([[0], [len(array)]])
                    stream.engine.put(variable, array, adios2.bindings.Mode.Deferred)
                stream.end_step()
                del arrays, array
        with opened(offpath_io(pool, Address=address), "r") as stream:
            for _ in stream.steps(timeout=60):
                step = stream.current_step()
                n = 1000 + 7919 * step % 50_000
                for i in range(4):
                    value = stream.read(f"v{i}")
                    assert len(value) == n * (i + 1) and (value == step * 10.0 + i).all()
            assert step == steps - 1


def test_rows_of_a_group_are_written_and_read_through_different_agents(pool: str) -> None:
    pool = pool.replace("local:", "hash:")
    with contextlib.ExitStack() as agents:
        first = agents.enter_context(offpath.Agent.start(settings={"agent.name": "first"}))
        joins = [{"agent.name": name, "group.join": first.address} for name in ("second", "third")]
        others = [agents.enter_context(offpath.Agent.start(settings=each)) for each in joins]
        for each in others:
            deadline = time.monotonic() + 60
            while len(fetch_status(each.http_address)["members"]) < 3:
                assert time.monotonic() < deadline
        process = writer(pool, 6, Address=others[0].address)
        with opened(offpath_io(pool, Address=others[1].address), "r") as stream:
            for step in range(6):
                go_on(process)
                assert stream.engine.begin_step(STEP, 60.0) == Status.OK
                n = 1000 << step
                assert (stream.read("x") == np.arange(n) + step).all()
                assert (stream.read("cube") == step).all()
                stream.engine.end_step()
            go_on(process)
            assert stream.engine.begin_step(STEP, 60.0) == Status.EndOfStream
        assert process.wait(60) == 0


def test_opening_for_writing_empties_the_stream(pool: str, session: offpath.Session) -> None:
    for steps in (3, 1):
        process = writer(pool, steps)
        for _ in range(steps + 1):
            go_on(process)
        assert process.wait(60) == 0
    assert {entry.row for entry in session.pool(pool).list()} == {"step0", "step1"}


def test_other_readers_see_tables_bytes_and_a_description(pool: str, session: offpath.Session) -> None:
    process = writer(pool, 1)
    for _ in range(2):
        go_on(process)
    assert process.wait(60) == 0
    objects = session.pool(pool)
    table = objects.get("step0", "rank0.table")
    assert table.column_names == ["x", "id"]
    assert table["x"].to_numpy().tolist() == list(range(1000))
    about = json.loads(bytes(objects.get_bytes("step0", "rank0.about")))
    cube = next(each for each in about["variables"] if each["name"] == "cube")
    assert (cube["type"], cube["kind"], cube["shape"]) == ("float", "global array", [4, 5, 6])
    block = cube["blocks"][0]
    assert (block["start"], block["count"]) == ([0, 0, 0], [4, 5, 6])
    stored = np.frombuffer(objects.get_bytes("step0", block["object"]), np.float32).reshape(block["count"])
    assert (stored == 0).all()
    assert next(each for each in about["variables"] if each["name"] == "time")["blocks"] == [{"value": [0.0]}]


# ---- errors


def test_without_an_agent_the_error_names_the_address(pool: str, tmp_path: Path) -> None:
    for mode in "rw":
        with pytest.raises(RuntimeError, match=f"Offpath: Open, step 0 of pool {pool}: .*{tmp_path}/none.sock"):
            adios2.Stream(offpath_io(pool, Address=f"unix:{tmp_path}/none.sock"), "s", mode)


def some_steps(stream: adios2.Stream, number: int) -> None:
    for step in range(number):
        stream.begin_step()
        stream.write("x", np.arange(10.0), [10], [0], [10])
        stream.write("name", f"step {step}")
        stream.end_step()


def test_a_program_may_go_on_without_an_agent(pool: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with opened(offpath_io(pool, Address=f"unix:{tmp_path}/none.sock", IfNoAgent="skip"), "w") as stream:
        some_steps(stream, 3)
    said = capfd.readouterr().err
    assert said.count("Offpath: ") == 1
    assert "further steps are discarded (IfNoAgent=skip)" in said


def test_an_agent_without_room_is_an_error_after_the_timeout(pool: str) -> None:
    with offpath.Agent.start(memory="64MiB") as own:
        io = offpath_io(pool, Address=own.address, Timeout="1.5", IfNoAgent="skip")
        x, steps_written = np.zeros(1 << 17), 0
        stream = adios2.Stream(io, "s", "w")
        with pytest.raises(RuntimeError, match=rf"Offpath: EndStep, step \d+ of pool {pool}: "):
            while steps_written < 100:
                stream.begin_step()
                stream.write("x", x, [len(x)], [0], [len(x)])
                stream.end_step()
                steps_written += 1
        stream.close()
        with opened(offpath_io(pool, Address=own.address), "r") as steps:
            assert [steps.current_step() for _ in steps.steps(timeout=60)] == list(range(steps_written))


@pytest.mark.parametrize("skip", [False, True], ids=["fail", "skip"])
def test_an_agent_that_dies(pool: str, skip: bool, capfd: pytest.CaptureFixture[str]) -> None:
    with offpath.Agent.start() as own:
        io = offpath_io(pool, Address=own.address, IfNoAgent="skip" if skip else "fail")
        stream = adios2.Stream(io, "s", "w")
        some_steps(stream, 2)
        steps = offpath.connect(own.address).pool(pool)
        assert until(lambda: steps.list("step1", "*.about"))  # nothing of the steps is under way any more
        own.kill()
    if skip:
        some_steps(stream, 2)
        stream.close()
        assert capfd.readouterr().err.count("IfNoAgent=skip") == 1
    else:
        with pytest.raises(RuntimeError, match=f"Offpath: EndStep, step 2 of pool {pool}: "):
            some_steps(stream, 1)
        with pytest.raises(RuntimeError, match="Offpath: Close"):
            stream.close()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"Pol": "x"}, "there is no parameter Pol; known are Address, Pool,"),
        ({"Snapshot": "maybe"}, 'parameter Snapshot is "maybe"; expected on or off'),
        ({"Timeout": "1s"}, 'parameter Timeout is "1s"; expected seconds'),
        ({"Keep": "-1"}, 'parameter Keep is "-1"; expected a number of steps'),
        ({"IfNoAgent": "no"}, 'parameter IfNoAgent is "no"; expected fail or skip'),
        ({"Ranks": "2", "Rank": "2"}, "rank 2 of 2 ranks"),
        ({"Ranks": "launcher"}, "the environment has none of OMPI_COMM_WORLD_SIZE"),
    ],
)
def test_parameters_that_cannot_be_used_are_named(
    pool: str, parameters: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=message):
        adios2.Stream(offpath_io(pool, **parameters), "s", "w")


def test_ranks_of_the_launcher(pool: str, session: offpath.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in (1, 0):
        monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
        monkeypatch.setenv("OMPI_COMM_WORLD_RANK", str(rank))
        with opened(offpath_io(pool, Ranks="launcher"), "w") as stream:
            some_steps(stream, 1)
    assert {entry.column for entry in session.pool(pool).list("step0", "*.table")} == {"rank0.table", "rank1.table"}


def test_appending_is_refused(pool: str) -> None:
    with pytest.raises(ValueError, match=r"Offpath: .*appending is not possible"):
        adios2.Stream(offpath_io(pool), "s", "a")


def test_calls_out_of_order_are_refused(pool: str) -> None:
    with opened(offpath_io(pool), "w") as stream:
        some_steps(stream, 1)
        with pytest.raises(RuntimeError, match="EndStep without BeginStep"):
            stream.engine.end_step()
        stream.begin_step()
        with pytest.raises(RuntimeError, match="BeginStep without EndStep of step 1"):
            stream.engine.begin_step()
    with opened(offpath_io(pool), "r") as stream:
        assert stream.engine.begin_step(STEP, 30.0) == Status.OK
        variable = stream.inquire_variable("x")
        stream.engine.end_step()
        with pytest.raises(RuntimeError, match="Get of x outside of BeginStep and EndStep"):
            stream.engine.get(variable, np.zeros(10), adios2.bindings.Mode.Sync)


def test_operations_are_refused(pool: str) -> None:
    with opened(offpath_io(pool), "w") as stream:
        stream.begin_step()
        with pytest.raises(ValueError, match="variable x has operations, which this engine does not apply"):
            stream.write("x", np.arange(10.0), [10], [0], [10], operations=[("null", {})])


def test_spans_are_refused(pool: str, tmp_path: Path) -> None:
    config = tmp_path / "span.xml"
    config.write_text(
        f"""<adios-config><io name="simulation"><engine type="Plugin"><parameter key="PluginName" value="offpath"/>
        <parameter key="PluginLibrary" value="offpath_adios2"/><parameter key="Pool" value="{pool}"/></engine></io>
        </adios-config>"""
    )
    program = [BUILD / "tests/adios2_program", config, "s", "span"]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 1
    assert "variable x: ADIOS2 gives engines of its plug-in interface no way to hand out a span" in ran.stderr


# ---- bytes of another program


def described(pool: str) -> dict[str, object]:
    with opened(offpath_io(pool), "w") as stream:
        stream.write_attribute("a", np.array([1.5, 2.5]))
        stream.begin_step()
        stream.write("x", np.arange(12.0).reshape(3, 4), [3, 4], [0, 0], [3, 4])
        stream.write("y", np.arange(12.0), [12], [0], [12])
        stream.write("n", 7)
        stream.write("s", "text")
        stream.end_step()
    with offpath.connect() as session:
        result: dict[str, object] = json.loads(bytes(session.pool(pool).get_bytes("step0", "rank0.about")))
    return result


def paths_of(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, each in inner for found in paths_of(each, (*path, key)))]


def read_all(pool: str) -> None:
    with opened(offpath_io(pool, Timeout="0.05"), "r") as stream:
        if stream.engine.begin_step(STEP, 0.0) != Status.OK:
            return
        for name in stream.available_variables():
            stream.read(name)
        for name in stream.available_attributes():
            stream.read_attribute(name)
        stream.engine.end_step()


ODD = st.one_of(
    st.integers(-1, 20), st.sampled_from([2**31, 2**63, 2**64 - 1, 1e300]), st.none(), st.booleans(), st.just([]),
    st.just({}), st.lists(st.integers(0, 2**64 - 1), max_size=4), st.sampled_from(["", "double", "hex", "rank0.table"]),
)  # fmt: skip


@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_description_is_read_or_refused(agent: offpath.Agent, data: st.DataObject) -> None:
    pool = "local:/odd"
    about = described(pool)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(paths_of(about)[1:]))
        inner = about
        for key in path[:-1]:
            inner = inner[key]  # type: ignore[index]
        if data.draw(st.booleans()) and isinstance(inner, dict):
            del inner[path[-1]]
        else:
            inner[path[-1]] = data.draw(ODD)  # type: ignore[index]
    with offpath.connect() as session, session.stream("odd descriptions", pool=pool) as stream:
        stream.send(json.dumps(about).encode(), ("step0", "rank0.about")).wait_stored(30)
    try:
        read_all(pool)
    except (RuntimeError, ValueError, KeyError, MemoryError) as error:
        assert str(error)
