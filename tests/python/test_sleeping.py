"""Waiting costs nothing: one sleep for as long as it takes, ended by the event, or by a signal. An abandoned wait
leaves a working session."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import offpath
import pyarrow as pa
import pytest

SCHEMA = pa.schema([pa.field("x", pa.float64(), nullable=False)])
PATIENCE_S = 60
A_WHILE_S = 1.0  # in which waits in slices would have slept often
SLEEPS = 3  # one, one more where a reply of another thing comes first, and one to spare


@pytest.fixture(scope="module")
def own_agent():
    """One that is stopped at times."""
    with offpath.Agent.start(memory="256MiB") as started:
        yield started


@pytest.fixture
def stopping(own_agent, name):
    """A session with a stream, and an agent that is stopped until the test lets it go on."""
    with offpath.connect(own_agent.address, ring_slots=64) as session:
        stream = session.stream(name, SCHEMA, rows_max=1000)
        stream.send({"x": np.arange(10.0)}, "before").wait_stored(PATIENCE_S)
        session.pool(stream.pool_name).put(b"opens the stream of puts", "before2")
        os.kill(own_agent.pid, signal.SIGSTOP)
        try:
            yield session, stream, own_agent
        finally:
            os.kill(own_agent.pid, signal.SIGCONT)


def send_more(session, stream):
    """Until the ring is full."""
    x = np.arange(10.0)
    for step in range(100):
        stream.send({"x": x}, f"step{step}")


def send_new(session, stream):
    """Arrays that are announced by their sends, until the ring is full: an announcement waits for room, too."""
    arrays = [np.arange(10.0) for _ in range(100)]
    for step, x in enumerate(arrays):
        stream.send({"x": x}, f"step{step}")


def retire(session, stream):
    x = np.arange(1000.0)
    announced = session.announce(x)
    stream.send({"x": x}, "announced")
    announced.retire(None)


WAITS = {
    "pulled": lambda session, stream: stream.send({"x": np.arange(10.0)}, "a").wait_pulled(),
    "stored": lambda session, stream: stream.send({"x": np.arange(10.0)}, "a").wait_stored(),
    "send": send_more,
    "send_new": send_new,
    "retire": retire,
    "probe": lambda session, stream: session.probe(None),
    "get": lambda session, stream: session.pool(stream.pool_name).get_frame("before", timeout=None),
    "put": lambda session, stream: session.pool(stream.pool_name).put(b"1", "p"),
    "list": lambda session, stream: session.pool(stream.pool_name).list(timeout=600),
    "drop": lambda session, stream: session.pool(stream.pool_name).drop("none", timeout=600),
    "flush": lambda session, stream: session.tracks("sift:/nothing").flush(None),
}


def ignore_absence(wait, *arguments):
    try:
        wait(*arguments)
    except offpath.NotFound:
        pass


@pytest.mark.parametrize("kind", WAITS)
def test_a_wait_is_one_sleep(stopping, kind):
    session, stream, agent = stopping
    before = session.info.sleeps
    thread = threading.Thread(target=ignore_absence, args=(WAITS[kind], session, stream))
    thread.start()
    time.sleep(A_WHILE_S)
    assert thread.is_alive()
    assert session.info.sleeps - before <= SLEEPS
    os.kill(agent.pid, signal.SIGCONT)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


class Interrupted(Exception):
    pass


@pytest.fixture
def interrupts():
    """Calls `handler` by a signal in the main thread, once it has begun to wait."""
    handlers = []

    def on_signal(*_):
        handlers.pop()()

    before = signal.signal(signal.SIGUSR1, on_signal)

    def start(session, handler):
        handlers.append(handler)
        sleeps = session.info.sleeps

        def send():
            until = time.monotonic() + PATIENCE_S
            while session.info.sleeps == sleeps and time.monotonic() < until:
                time.sleep(0.001)
            time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGUSR1)

        threading.Thread(target=send, daemon=True).start()

    yield start
    signal.signal(signal.SIGUSR1, before)


def interrupt():
    raise Interrupted


@pytest.mark.parametrize("kind", WAITS)
def test_a_signal_ends_a_wait_and_the_session_works_on(stopping, interrupts, kind):
    session, stream, agent = stopping
    interrupts(session, interrupt)
    with pytest.raises(Interrupted):
        WAITS[kind](session, stream)
    os.kill(agent.pid, signal.SIGCONT)
    session.probe(PATIENCE_S)
    stream.send({"x": np.arange(10.0)}, "after").wait_stored(PATIENCE_S)


def test_a_wait_goes_on_after_a_signal_that_raises_nothing(stopping, interrupts):
    session, stream, agent = stopping
    interrupts(session, lambda: os.kill(agent.pid, signal.SIGCONT))
    assert session.pool(stream.pool_name).get("before", timeout=None).num_rows == 10


def test_a_signal_ends_the_wait_of_a_thread_that_another_one_waits_beside(stopping, interrupts):
    """Only one thread sleeps on the link; the others wait for it."""
    session, stream, agent = stopping
    ticket = stream.send({"x": np.arange(10.0)}, "a")
    beside = threading.Thread(target=ticket.wait_stored)
    before = session.info.sleeps
    beside.start()
    while session.info.sleeps == before:
        time.sleep(0.001)
    interrupts(session, interrupt)
    with pytest.raises(Interrupted):
        ticket.wait_stored()
    os.kill(agent.pid, signal.SIGCONT)
    beside.join(PATIENCE_S)
    assert not beside.is_alive()


def test_ctrl_c_ends_a_program_that_waits(own_agent):
    program = f"""
import offpath
session = offpath.connect({own_agent.address!r})
print("waits", flush=True)
session.pool("local:/nothing").create().get("never", timeout=None)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"waits\n"
        time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=PATIENCE_S)
    assert b"KeyboardInterrupt" in said


def wakes_at_rest(session):
    """How often the session's thread has woken, once it sleeps."""
    for _ in range(20):
        before = session._waits.wakes
        time.sleep(0.2)
        if session._waits.wakes == before:
            return before
    raise AssertionError("the thread wakes all the time")


def test_futures_wake_their_thread_when_they_come(session, name):
    pool = session.pool(f"local:/{name}").create()
    wanted = pool.want("late")
    before = wakes_at_rest(session)
    time.sleep(A_WHILE_S)
    assert session._waits.wakes == before
    pool.put(b"here", "late")
    assert bytes(wanted.result(PATIENCE_S)) == b"here"
    assert session._waits.wakes - before <= 2 * SLEEPS


def test_puts_wake_their_thread_when_they_are_stored(stopping):
    session, stream, agent = stopping
    put = session.pool(stream.pool_name).put_async(b"1", "put")
    before = wakes_at_rest(session)
    time.sleep(A_WHILE_S)
    assert session._waits.wakes == before and not put.done()
    os.kill(agent.pid, signal.SIGCONT)
    put.result(PATIENCE_S)


def test_a_put_times_out(stopping):
    session, stream, agent = stopping
    put = session.pool(stream.pool_name).put_async(b"1", "put", timeout=0.05)
    with pytest.raises(offpath.Timeout):
        put.result(PATIENCE_S)
    os.kill(agent.pid, signal.SIGCONT)


def test_a_request_of_an_agent_that_is_stopped_times_out(stopping):
    session, stream, _ = stopping
    pool = session.pool(stream.pool_name)
    forever = pool.want("never")  # the thread sleeps for it without end
    with pytest.raises(offpath.Timeout):
        pool.list_async(timeout=0.05).result(PATIENCE_S)
    forever.cancel()


def test_what_asyncio_gives_up_is_forgotten(stopping):
    session, stream, agent = stopping
    ticket = stream.send({"x": np.arange(10.0)}, "a")

    async def give_up_then_wait():
        waiting = asyncio.ensure_future(ticket.when_stored())
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not session._waits._awaited and not session._waits._loops
        before = wakes_at_rest(session)
        waiting = asyncio.ensure_future(ticket.when_stored())
        await asyncio.sleep(A_WHILE_S)
        assert session._waits.wakes == before
        os.kill(agent.pid, signal.SIGCONT)
        await asyncio.wait_for(waiting, PATIENCE_S)

    asyncio.run(give_up_then_wait())


def test_each_of_several_ways_to_wait_at_once_is_told(session, name):
    """Threads that wait in the library, a thread of futures and an event loop look at one descriptor."""
    stream = session.stream(name, SCHEMA, rows_max=1000)
    pool = session.pool(stream.pool_name)

    async def rounds():
        for step in range(100):
            threads = [threading.Thread(target=pool.get, args=(f"{step}-0", "", PATIENCE_S)) for _ in range(2)]
            for each in threads:
                each.start()
            wanted = asyncio.wrap_future(pool.want(f"{step}-1", timeout=PATIENCE_S))
            tickets = [stream.send({"x": np.arange(1000.0)}, f"{step}-{i}") for i in range(4)]
            await asyncio.wait_for(asyncio.gather(wanted, *(each.when_stored() for each in tickets)), PATIENCE_S)
            for each in threads:
                each.join(PATIENCE_S)
                assert not each.is_alive()

    asyncio.run(rounds())


def test_a_forked_child_leaves_its_parents_futures_alone(agent, name):
    with offpath.connect(agent.address) as session:
        pool = session.pool(f"local:/{name}").create()
        wanted = pool.want("late")
        child = os.fork()
        if child == 0:
            try:
                pool.want("other")
            except offpath.Forked:
                session.close()
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert not wanted.done()
        pool.put(b"here", "late")
        assert bytes(wanted.result(PATIENCE_S)) == b"here"
