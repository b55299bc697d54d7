"""Impossible options are refused before anything starts, with the given and the allowed values."""

from pathlib import Path

import pytest
from offpath.run.handover import require_room
from offpath.run.settings import DESTINATIONS, RunError, Settings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": 0}, ("--every 0", "at least 1")),
        ({"steps": 3, "every": 5}, ("--steps 3", "--every 5", "at least 5")),
        ({"atoms": 100}, ("--atoms 100", "256")),
        ({"atoms": 500, "input": Path(__file__)}, ("--atoms 500", "--input")),
        ({"ranks": 0}, ("--ranks 0", "1 to 256")),
        ({"ranks": 2, "agents": 65}, ("--agents 65", "1 to 64")),
        ({"ranks": 2, "agents": 2, "agent": "tcp:a:1"}, ("--agents 2", "--agent tcp:a:1")),
        ({"layout": "rows"}, ("'rows'", "list, columns")),
        ({"destination": "native"}, ("'native'", "ipc-page")),
        ({"input": Path("/nowhere/in.lj")}, ("/nowhere/in.lj", "no such file")),
        ({"agent": "dpu"}, ("'dpu'", "HOST:PORT")),
        ({"agent": "dpu:99999"}, ("'dpu:99999'", "HOST:PORT")),
    ],
)
def test_names_what_cannot_be(options: dict, words: tuple[str, ...]) -> None:
    with pytest.raises(RunError) as caught:
        Settings(**options).validate()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("destination", DESTINATIONS)
def test_accepts_every_destination_that_ends_as_arrow(destination: str) -> None:
    Settings(destination=destination).validate()


@pytest.mark.parametrize(
    ("given", "address"),
    [(None, None), ("dpu:7777", "tcp:dpu:7777"), ("tls:dpu:7777", "tls:dpu:7777"), ("unix:/run/a", "unix:/run/a")],
)
def test_an_address_without_a_scheme_is_tcp(given: str | None, address: str | None) -> None:
    settings = Settings(agent=given)
    settings.validate()
    assert settings.agent_address == address


def test_counts_hand_overs_with_step_zero() -> None:
    assert Settings(steps=100, every=5).handovers == 21
    assert Settings(steps=12, every=5).handovers == 3


def test_says_how_much_the_agent_may_hold() -> None:
    require_room(21, 32_000, 56, 21 * 32_000 * 56)
    with pytest.raises(RunError, match=r"21 hand-overs of 32,000 atoms are 37,632,000 bytes, .* hold 37,631,999"):
        require_room(21, 32_000, 56, 21 * 32_000 * 56 - 1)


def test_says_when_the_directory_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        Settings(out=tmp_path / "file" / "out").prepare_out()
