"""The symbols that the host library brings into a program. tools/install_test.py checks its exports and
dependencies."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import offpath
import pytest
from certificate import make_certificate


@pytest.fixture(scope="module")
def library():
    """The liboffpath.so this process has loaded."""
    offpath.errors.error_of(0, "")
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "liboffpath.so" in line:
            return line.split()[-1]
    raise AssertionError("the package has not loaded liboffpath.so")


def output(*command, env=None):
    return subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout


# Connects to every given address, and prints each result and the mapped libraries.
CONNECTS = """
import ctypes, json, os, sys
ofp = ctypes.CDLL(sys.argv[1])
for address in sys.argv[2:]:
    channel, error = ctypes.c_void_p(), ctypes.create_string_buffer(512)
    code = ofp.ofp_connect(address.encode(), None, ctypes.byref(channel), error)
    mapped = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
    message = error.raw[4:].split(b"\\0")[0].decode()
    print(json.dumps({"code": code, "message": message, "mapped": sorted(map(os.path.basename, mapped))}))
"""


def connects(library, *addresses, key, ca=""):
    environment = {**os.environ, "OFFPATH_KEY_FILE": str(key), "OFFPATH_TLS_CA_FILE": str(ca)}
    lines = output(sys.executable, "-S", "-c", CONNECTS, str(library), *addresses, env=environment).splitlines()
    return [json.loads(line) for line in lines]


def test_openssl_is_loaded_with_the_first_network_address(library, tcp_agent):
    agent, tcp, key = tcp_agent
    local, network = connects(library, agent.address, tcp, key=key)
    assert (local["code"], network["code"]) == (0, 0), network["message"]
    assert [name for name in local["mapped"] if name.startswith(("libssl", "libcrypto", "liboffpath_"))] == []
    assert "liboffpath_openssl.so.0" in network["mapped"]


def test_tls_by_way_of_the_loaded_library(library, tcp_agent, tmp_path):
    _, _, key = tcp_agent
    certificate, private = make_certificate(tmp_path)
    security = {"key_file": key, "tls_certificate": certificate, "tls_key": private}
    settings = {f"security.{name}": value for name, value in security.items()}
    with offpath.Agent.start(listen=["tls:127.0.0.1:0"], settings=settings) as agent:
        (tls,) = [each for each in agent.addresses if each.startswith("tls:")]
        (right,) = connects(library, tls, key=key, ca=certificate)
        assert right["code"] == 0, right["message"]
        (wrong,) = connects(library, tls, key=key, ca=key)
    assert wrong["code"] == offpath.Invalid.code and f"TLS CA file {key}" in wrong["message"]


def test_a_network_address_without_the_openssl_part_says_which_file_is_missing(library, tcp_agent, tmp_path):
    agent, tcp, key = tcp_agent
    alone = shutil.copy(library, tmp_path / "liboffpath.so")
    local, network = connects(alone, agent.address, tcp, key=key)
    assert local["code"] == 0, local["message"]
    assert network["code"] == offpath.Unsupported.code
    assert f"{tmp_path}/liboffpath_openssl.so.0" in network["message"] and "No such file" in network["message"]


def test_an_openssl_part_of_another_version_is_refused(library, tcp_agent, tmp_path):
    _, tcp, key = tcp_agent
    alone = shutil.copy(library, tmp_path / "liboffpath.so")
    source = tmp_path / "other.c"
    source.write_text('const struct { const char *version; void *calls[3]; } ofp_crypto = {"0.0.1", {0}};\n')
    other = tmp_path / "liboffpath_openssl.so.0"
    output("cc", "-shared", "-fPIC", "-o", str(other), str(source))
    (network,) = connects(alone, tcp, key=key)
    assert network["code"] == offpath.Unsupported.code
    own = f"the liboffpath.so of this process has version {offpath.__version__}"
    assert f"{other} has version 0.0.1, and {own}" in network["message"]


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
rdma = sum(name in open("/proc/self/maps").read() for name in ("libibverbs", "librdmacm"))
print(resident() - before, len(os.listdir("/proc/self/task")), rdma)
"""
    grown_kib, threads, rdma_libraries = output(sys.executable, "-S", "-c", program).split()
    assert int(threads) == 1 and int(rdma_libraries) == 0
    assert int(grown_kib) <= 8 * 1024  # with ctypes' share; bench_host_memory measures the library alone
