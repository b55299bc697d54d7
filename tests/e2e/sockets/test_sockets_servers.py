"""Servers that failed once, as they are, each with sockets of the kernel and offloaded, of both families."""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from agent_process import until
from kernel_or_agent import GREETER_PORT, Place, answers, greeter, line_of
from network_pair import IPV4, IPV6, missing
from offloading_agents import SETUPS_OF_BOTH_FAMILIES, setup_of
from unpacked_programs import program

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")
setup = setup_of(SETUPS_OF_BOTH_FAMILIES)


# ---- sshd, whose first process for a peer may make few system calls

USERS = """root:x:0:0:root:{home}:/bin/sh
sshd:x:{user}:{user}::/run/sshd:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
# With users of its own, of whom root has a key and no password.
SSHD = """
mkdir -p {folder}/run && mount -t tmpfs none {folder}/run && mkdir -m 755 {folder}/run/sshd
mount --bind {folder}/passwd /etc/passwd && mount --bind {folder}/shadow /etc/shadow
mkdir -p /run/sshd && mount --bind {folder}/run/sshd /run/sshd
exec {sshd} -D -e -f {folder}/sshd_config
"""


def test_sshd(place: Place, tmp_path: Path) -> None:
    sshd, keygen, ssh = program("sshd"), program("ssh-keygen"), program("ssh")
    home = Path("/tmp") / f"offpath-ssh-{os.getpid()}"  # every folder above it is root's
    home.mkdir(mode=0o700)
    try:
        for name in ("host", "user"):
            subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", home / name], check=True)
        (home / "passwd").write_text(USERS.format(home=home, user=pwd.getpwnam("nobody").pw_uid - 1))
        (home / "shadow").write_text("root:*:19000:0:99999:7:::\n")
        (home / "sshd_config").write_text(
            f"Port 7712\nListenAddress {place.family.everywhere}\nHostKey {home}/host\nPidFile none\nUsePAM no\n"
            f"StrictModes no\nAuthorizedKeysFile {home}/user.pub\n"
        )
        begins = SSHD.format(folder=home, sshd=sshd)
        login = [ssh, "-q", "-F", "none", "-p", "7712", "-i", str(home / "user"), "-o", "BatchMode=yes",
                 "-o", "StrictHostKeyChecking=no", "-o", f"UserKnownHostsFile={home}/known",
                 f"root@{place.address}"]  # fmt: skip
        sent = os.urandom(3_000_000)
        with place.serving("unshare", "--mount", "sh", "-ec", begins) as server:
            assert until(lambda: place.asked(*login, "echo", "hello").stdout == b"hello\n")
            for _ in range(3):
                assert place.asked(*login, "sha256sum", given=sent).stdout.decode().split()[0] == (
                    hashlib.sha256(sent).hexdigest()
                )
            many = answers(8, lambda: place.asked(*login, "head", "-c", "100000", "/dev/zero").stdout)
            assert many == [bytes(100_000)] * 8
            # A login leaves nothing: no spinning process, and no zombie.
            pid = place.pid_of(server)
            children = Path(f"/proc/{pid}/task/{pid}/children")
            assert until(lambda: children.read_text() == "")
    finally:
        shutil.rmtree(home)


# ---- haproxy, which binds its ports again before its former processes have released them

HAPROXY = """
global
  master-worker
  stats socket {folder}/admin.sock mode 600 level admin
defaults
  mode http
  timeout connect 10s
  timeout client 20s
  timeout server 20s
frontend all
  bind {address}:7713
  default_backend others
backend others
  http-response set-header generation {generation}
  server one {other}
"""


@pytest.mark.parametrize("address", [IPV4.everywhere, IPV6.everywhere, "own"])
def test_haproxy_reloads(place: Place, tmp_path: Path, address: str) -> None:
    haproxy = program("haproxy")
    if address == IPV4.everywhere and place.family is IPV6:
        pytest.skip("its peers have IPv6")
    configuration, pids = tmp_path / "haproxy.cfg", tmp_path / "haproxy.pid"

    def configure(generation: int) -> None:
        configuration.write_text(
            HAPROXY.format(folder=tmp_path, generation=generation, other=place.at_peer(GREETER_PORT),
                           address=place.family.url(place.address if address == "own" else address))
        )  # fmt: skip

    def generation() -> int:
        found = re.search(rb"generation: (\d+)\r", place.curl(7713, "", "--include"))
        return int(found[1]) if found else -1

    configure(0)
    with greeter(place), place.serving(haproxy, "-W", "-f", str(configuration), "-p", str(pids)):
        assert until(lambda: generation() == 0)
        for number in (1, 2, 3):
            configure(number)

            def has_reloaded(number: int = number) -> bool:  # it ignores the signal while it begins
                os.kill(int(pids.read_text().split()[0]), signal.SIGUSR2)
                return until(lambda: generation() == number, 5)

            assert any(has_reloaded() for _ in range(6))
            assert answers(20, lambda: place.curl(7713)) == [b"hello"] * 20


# ---- gunicorn --reuse-port

APPLICATION = """
import os, time
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    time.sleep(0.02)
    return [b"%d\\n" % os.getpid()]
"""


def test_gunicorn_shares_its_port_among_workers(place: Place, tmp_path: Path) -> None:
    pytest.importorskip("gunicorn")
    (tmp_path / "served.py").write_text(APPLICATION)
    words = [
        "--chdir",
        str(tmp_path),
        "--workers",
        "4",
        "--reuse-port",
        "--bind",
        f"{place.family.url(place.family.everywhere)}:7714",
        "--log-level",
        "error",
    ]
    with place.serving(sys.executable, "-m", "gunicorn", *words, "served:application"):
        assert until(lambda: place.curl(7714) != b"")
        workers: set[bytes] = set()
        deadline = time.monotonic() + 120
        while len(workers) < 4 and time.monotonic() < deadline:
            workers |= set(answers(40, lambda: place.curl(7714)))
        assert len(workers) == 4 and b"" not in workers


# ---- socat, which polls and then writes more than there is room for

READS_LATE = """
import hashlib, socket, sys, time
s = socket.create_connection((sys.argv[1], 7715), timeout=60)
time.sleep(1)
hash = hashlib.sha256()
while data := s.recv(1 << 20):
    hash.update(data)
print(hash.hexdigest())
"""


def test_socat_with_a_late_reader(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(20_000_000))
    sha = hashlib.sha256(file.read_bytes()).hexdigest()
    listens = "TCP6-LISTEN" if place.family is IPV6 else "TCP4-LISTEN"
    words = ["-U", f"{listens}:7715,reuseaddr,fork", f"OPEN:{file},rdonly"]
    with place.serving(program("socat"), *words):
        assert until(
            lambda: place.asked(sys.executable, "-c", READS_LATE, place.address).stdout.decode().strip() == sha
        )
        for _ in range(2):
            assert place.peer(READS_LATE) == sha


# ---- listeners for both families

JAVA = """
import com.sun.net.httpserver.HttpServer;
import java.io.*;
import java.net.*;
import java.util.concurrent.Executors;
public class Serves {
  public static void main(String[] words) throws Exception {
    HttpServer server = HttpServer.create(new InetSocketAddress(7716), 50);
    server.setExecutor(Executors.newFixedThreadPool(8));
    server.createContext("/", exchange -> {
      byte[] body = exchange.getRequestBody().readAllBytes();
      exchange.sendResponseHeaders(200, body.length == 0 ? -1 : body.length);
      exchange.getResponseBody().write(body);
      exchange.close();
    });
    server.createContext("/other", exchange -> {
      byte[] body;
      try (InputStream other = URI.create("http://" + words[0]).toURL().openStream()) {
        body = other.readAllBytes();
      }
      exchange.sendResponseHeaders(200, body.length);
      exchange.getResponseBody().write(body);
      exchange.close();
    });
    server.start();
    System.out.println("ready");
  }
}
"""


def serve_java(place: Place, tmp_path: Path) -> None:
    java, source = program("java"), tmp_path / "Serves.java"
    source.write_text(JAVA)
    listed = subprocess.run([java, "--list-modules"], capture_output=True, check=False).stdout
    if b"jdk.compiler" not in listed:
        pytest.skip("there is no compiler for Java")
    with greeter(place), place.serving(java, str(source), place.at_peer(GREETER_PORT)) as server:
        assert line_of(server) == "ready"
        body = tmp_path / "body"
        body.write_bytes(os.urandom(300_000))
        posted = answers(30, lambda: place.curl(7716, "", "--data-binary", f"@{body}"))
        assert posted == [body.read_bytes()] * 30
        assert place.curl(7716, "other") == b"hello"


def test_java(place: Place, tmp_path: Path) -> None:
    serve_java(place, tmp_path)


def test_nginx_for_both_families(place: Place, tmp_path: Path) -> None:
    nginx = program("nginx")
    (tmp_path / "logs").mkdir()
    temporary = " ".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in
                         ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))  # fmt: skip
    configuration = tmp_path / "nginx.conf"
    configuration.write_text(
        f"daemon off; worker_processes 2; error_log stderr; pid {tmp_path}/pid; user root;\n"
        f"events {{ worker_connections 500; }}\nhttp {{ access_log off; {temporary} server {{\n"
        "listen [::]:7717 ipv6only=off deferred fastopen=10 so_keepalive=on;\n"
        "location / { return 200 $remote_addr; } } }\n"
    )
    with place.serving(nginx, "-p", str(tmp_path), "-c", str(configuration)):
        said = (place.peers_address if place.family is IPV6 else f"::ffff:{place.peers_address}").encode()
        assert until(lambda: place.curl(7717) == said)
        assert answers(40, lambda: place.curl(7717)) == [said] * 40
