"""The chart, read by helm and compared with the schemas of Kubernetes.

Run by `./dev test --long` (tools/suite.py), after `./dev package chart`. Neither program is a Debian package: helm is
built from its Go module, and kubernetes-validate comes from PyPI, both once, into build/package/chart-tools. The tests
of tools/packaging_test.py then run with them, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging_test import IMAGE, checked
from packaging_test import test_helm_renders_what_kubernetes_takes as test_it_renders_what_kubernetes_takes

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "build" / "package" / "chart-tools"
HELM, VALIDATE = "helm.sh/helm/v3/cmd/helm@v3.11.3", "kubernetes-validate==1.37.0"
GO_PLACES = [os.environ["PATH"], "/usr/local/go/bin", str(ROOT / "build/programs/usr/lib/go-1.19/bin")]

__all__ = ["test_it_renders_what_kubernetes_takes"]


def build_helm(into: Path) -> str | None:
    """Why it could not be built."""
    go = shutil.which("go", path=os.pathsep.join(GO_PLACES))
    if go is None:
        return "there is no Go to build helm with"
    own = {"GOBIN": str(into), "GOPATH": str(TOOLS / "go"), "GOTOOLCHAIN": "local", "GOFLAGS": "-modcacherw"}
    built = subprocess.run([go, "install", HELM], env={**os.environ, **own}, capture_output=True, text=True)
    shutil.rmtree(TOOLS / "go", ignore_errors=True)
    return None if built.returncode == 0 else f"helm could not be built: {built.stderr[-500:]}"


@pytest.fixture(scope="module", autouse=True)
def tools() -> Iterator[None]:
    programs = TOOLS / "bin"
    if shutil.which("kubernetes-validate", path=programs) is None:
        subprocess.run([sys.executable, "-m", "venv", TOOLS], check=True)
        subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", VALIDATE], check=True)
    if shutil.which("helm", path=programs) is None and (reason := build_helm(programs)):
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        yield


def test_the_packed_chart_has_nothing_to_complain_of() -> None:
    (packed,) = (ROOT / "build" / "package" / "chart").glob("offpath-agent-*.tgz")
    checked("helm", "lint", "--strict", packed, "--set", IMAGE)
