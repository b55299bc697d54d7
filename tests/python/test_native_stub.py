"""python/offpath/_native.pyi equals the stub that nanobind writes for the built module."""

import subprocess
import sys
from pathlib import Path

import offpath

STUB = Path(__file__).resolve().parents[2] / "python/offpath/_native.pyi"


def test_the_stub_is_that_of_the_module(tmp_path):
    written = tmp_path / "_native.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-i", str(Path(offpath.__file__).parents[1])]
    subprocess.run([*command, "-m", "offpath._native", "-o", written], check=True)
    settings = STUB.parents[2] / "pyproject.toml"
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", "--config", settings, written], check=True)
    assert STUB.read_text() == written.read_text(), f"python -m nanobind.stubgen -m offpath._native -o {STUB.name}"
