"""The policy file of ``offpath sockets``: its meaning, and the errors for an impossible one."""

from __future__ import annotations

from pathlib import Path

import pytest
from offpath.errors import Error
from offpath.sockets_policy import Policy, read_policy

EVERYTHING = """
# The sockets that this service offloads.
[sockets]
agent = "unix:/run/offpath/agent.sock"
address = "10.9.0.2"
listen = [80, 8000]
connect = [
    "10.9.0.0/24",
    "192.168.7.1",
]
fallback = true
report = false
sockets = 4096
ring = 65536
"""


def test_every_key_is_read(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(EVERYTHING)
    networks = ["10.9.0.0/24", "192.168.7.1"]
    assert read_policy(path) == Policy(
        "unix:/run/offpath/agent.sock", "10.9.0.2", [80, 8000], networks, True, False, 4096, 65536
    )
    path.write_text('[sockets]\naddress = ["10.9.0.2", "fd00::2"]\nconnect = ["::/0", "2001:db8::/32"]\n')
    assert read_policy(path) == Policy(address=["10.9.0.2", "fd00::2"], connect=["::/0", "2001:db8::/32"])
    path.write_text("[sockets]\nlisten = []\n")
    assert read_policy(path) == Policy(listen=[])
    path.write_text("")
    assert read_policy(path) == Policy()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[sockets]\n\nlisten = [80,\n  70000]", "policy.toml:4: sockets.listen: 70000 is not a port (1 to 65535)"),
        ("[sockets]\nlisten = 80", "policy.toml:2: sockets.listen: expected a list of ports"),
        ("[sockets]\nlisten = [true]", "policy.toml:2: sockets.listen: True is not a port"),
        ("[sockets]\nlisten = [80]\nconect = []", "policy.toml:3: unknown key sockets.conect; did you mean connect?"),
        ("[sockets]\nquota = 1", "policy.toml:2: unknown key sockets.quota; there are agent, address"),
        ("[sockets]\nconnect = [\n '10.9.0.0/24',\n '10.9.0.1/24']", "policy.toml:4: sockets.connect: '10.9.0.1/24'"),
        ("[sockets]\nconnect = ['fd00::1/8']", "policy.toml:2: sockets.connect: 'fd00::1/8' is not a network"),
        ("[sockets]\naddress = '10.9.0'", "policy.toml:2: sockets.address: '10.9.0' is not an IP address"),
        ("[sockets]\naddress = 'fe80::2%eth0'", "policy.toml:2: sockets.address: 'fe80::2%eth0' is not an IP address"),
        ("[sockets]\naddress = '::1'", "policy.toml:2: sockets.address: '::1' is not an address of an agent"),
        ("[sockets]\naddress = ['fd00::1', 'fd00::2']", "'fd00::2' is the second address of its family"),
        (
            "[sockets]\naddress = [\n '10.9.0.2',\n 'fd00:::2']",
            "policy.toml:4: sockets.address: 'fd00:::2' is not an IP address",
        ),
        ("[sockets]\nfallback = 'yes'", "policy.toml:2: sockets.fallback: expected true or false"),
        ("[sockets]\nagent = ''", "policy.toml:2: sockets.agent: expected a text in quotes"),
        ("[sockets]\nsockets = 8", "policy.toml:2: sockets.sockets: expected a number from 16 to 1048576"),
        ("[sockets]\nring = 20000", "policy.toml:2: sockets.ring: expected a power of two from 4096 to 4194304"),
        ("listen = [80]", "policy.toml:1: 'listen' is outside of the only table, [sockets]"),
        ("sockets = 1", "policy.toml:1: sockets is a table"),
        ("[sockets]\nlisten = 80 81", "line 2"),
    ],
)
def test_what_cannot_be_meant_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(Error) as error:
        read_policy(path)
    assert said in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Error, match=r"none\.toml"):
        read_policy(tmp_path / "none.toml")
