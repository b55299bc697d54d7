"""Certificates of agents of tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(folder: Path, names: str = "IP:127.0.0.1", days: int = 2) -> tuple[Path, Path]:
    """A certificate for these names, which is its own authority, and its private key."""
    certificate, private = folder / "certificate", folder / "private"
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
               "/CN=offpath", "-addext", f"subjectAltName={names}", "-days", str(days)]  # fmt: skip
    subprocess.run([*request, "-keyout", private, "-out", certificate], check=True, capture_output=True)
    return certificate, private
