"""The agent's container image, from the Debian package and its dependencies; it needs no registry and no running
container.

Packages are unpacked, not installed: none of their scripts runs, so an image for another processor is made the same
way. The image has no shell. Scanners find the packages in /var/lib/dpkg/status.d, licences in /usr/share/doc.
"""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from debian_packages import fetch_packages, run, unpack_packages
from oci_image import Image, write_layout

ROOT = Path(__file__).resolve().parent.parent
AGENT = "offpath-agent"

# Loaded when an agent listens with RDMA; the package only recommends them.
RDMA = ("ibverbs-providers", "libibverbs1", "librdmacm1")
RELEASE = "base-files"  # /etc/os-release, by which scanners know the distribution
# Dependencies of scripts that do not run.
NOT_NEEDED = ("adduser", "debconf", "init-system-helpers", "systemd-standalone-sysusers")
WITHOUT = ("./usr/share/man", "./usr/share/locale", "./usr/share/lintian", "./usr/lib/systemd", "./lib/systemd")
# Files that a package's script or an init would make.
FOLDERS = {"run/offpath": 0o755, "var/lib/offpath": 0o700, "tmp": 0o1777, "proc": 0o555, "sys": 0o555, "dev": 0o755}
PASSWD = "root:x:0:0:root:/:/usr/sbin/nologin\n"

CONFIG = {
    "Entrypoint": [f"/usr/bin/{AGENT}"],
    "Cmd": ["--config", "/etc/offpath/agent.toml"],
    "Env": ["PATH=/usr/bin:/usr/sbin"],
    "StopSignal": "SIGTERM",
    "User": "0:0",
    "WorkingDir": "/",
}


def package_field(package: Path, field: str) -> str:
    return run("dpkg-deb", "--field", package, field).strip()


def make_root(package: Path, root: Path, state: Path) -> None:
    """A root file system in which the agent of this .deb file runs."""
    architecture = package_field(package, "Architecture")
    packages = [package, *fetch_packages([str(package), RELEASE, *RDMA], state, architecture, NOT_NEEDED)]
    shutil.rmtree(root, ignore_errors=True)
    unpack_packages(packages, root, WITHOUT)
    for name, mode in FOLDERS.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name).chmod(mode)
    (root / "etc/passwd").write_text(PASSWD)
    (root / "etc/group").write_text("root:x:0:\n")
    known = root / "var/lib/dpkg/status.d"
    known.mkdir(parents=True, exist_ok=True)
    for each in packages:
        (known / package_field(each, "Package")).write_text(run("dpkg-deb", "--field", each))


def last_change() -> datetime:
    """The time of the newest entry of the changelog: that of every file in the image."""
    changelog = (ROOT / "packaging/debian/changelog").read_text()
    signed = re.search(r"^ -- .*>  (.*)$", changelog, re.MULTILINE)
    assert signed is not None
    return parsedate_to_datetime(signed[1]).astimezone(UTC)


def build_image(packages: list[Path], folder: Path, scratch: Path) -> None:
    """An image in `folder` with a part for each of the agent's packages, one an architecture."""
    images, version = [], ""
    for package in packages:
        architecture, version = package_field(package, "Architecture"), package_field(package, "Version")
        root = scratch / architecture / "root"
        make_root(package, root, scratch / architecture / "apt")
        labels = {"org.opencontainers.image.title": AGENT, "org.opencontainers.image.version": version,
                  "org.opencontainers.image.licenses": "Apache-2.0"}  # fmt: skip
        images.append(Image(root, architecture, CONFIG | {"Labels": labels}))
    changed = last_change()
    write_layout(folder, images, version, changed.isoformat().replace("+00:00", "Z"), int(changed.timestamp()))
    shutil.rmtree(scratch)
