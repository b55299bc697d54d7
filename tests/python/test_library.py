"""What the host library shows of itself and what it brings into a program."""

import re
import subprocess
import sys
from pathlib import Path

import offpath
import pytest


@pytest.fixture(scope="module")
def library():
    """The liboffpath.so this process has loaded."""
    offpath.errors.error_of(0, "")
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "liboffpath.so" in line:
            return line.split()[-1]
    raise AssertionError("the package has not loaded liboffpath.so")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_only_the_c_interface_leaves_the_library(library):
    names = [line.split()[-1] for line in output("nm", "-D", "--defined-only", library).splitlines()]
    assert names and [name for name in names if not name.startswith("ofp_")] == []


def test_every_declared_call_is_there(library):
    header = Path(__file__).parents[2] / "include/offpath/offpath.h"
    declared = set(re.findall(r"OFP_API [^;(]*?\b(ofp_\w+)\(", header.read_text()))
    exported = {line.split()[-1] for line in output("nm", "-D", "--defined-only", library).splitlines()}
    assert len(declared) > 40 and declared == exported


def test_it_needs_libc_libstdcxx_and_openssl_alone(library):
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", library)))
    allowed = ("libc.so", "libm.so", "libstdc++.so", "libgcc_s.so", "libssl.so", "libcrypto.so", "ld-linux")
    assert needed and [name for name in needed if not name.startswith(allowed)] == []
    assert "[liboffpath.so.0]" in output("readelf", "-d", library)


def test_a_program_grows_little_and_gets_no_thread(agent, library):
    """A program of nothing but the library: memory and threads before loading it and after a send."""
    program = f"""
import ctypes, os, re
def resident():
    return int(re.search(r"^Rss:\\s+(\\d+)", open("/proc/self/smaps_rollup").read(), re.M)[1])
before = resident()
ofp = ctypes.CDLL({library!r})
channel, error = ctypes.c_void_p(), ctypes.create_string_buffer(512)
assert ofp.ofp_connect({agent.address!r}.encode(), None, ctypes.byref(channel), error) == 0, error.raw
assert ofp.ofp_probe(channel, ctypes.c_int64(10**10), None, None, error) == 0, error.raw
print(resident() - before, len(os.listdir("/proc/self/task")))
"""
    grown_kib, threads = output(sys.executable, "-S", "-c", program).split()
    assert int(threads) == 1
    assert int(grown_kib) <= 8 * 1024  # with ctypes' share; bench_host_memory measures the library alone
