"""Streams of ADIOS2 as the tests open them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import adios2

BUILD = Path(os.environ.get("OFFPATH_BUILD_DIR", Path(__file__).resolve().parents[2] / "build" / "release"))


def offpath_io(pool: str, **parameters: Any) -> adios2.IO:
    io = adios2.Adios().declare_io("simulation")
    io.set_engine("Plugin")
    io.set_parameters(
        {
            "PluginName": "offpath",
            "PluginLibrary": "offpath_adios2",
            "Pool": pool,
            "Timeout": "60",
            **{name: str(value) for name, value in parameters.items()},
        }
    )
    return io


def bp5_io() -> adios2.IO:
    io = adios2.Adios().declare_io("simulation")
    io.set_engine("BP5")
    return io


@contextmanager
def opened(io: adios2.IO, mode: str, path: str = "stream.bp") -> Iterator[adios2.Stream]:
    with adios2.Stream(io, path, mode) as stream:
        yield stream
