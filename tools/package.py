#!/usr/bin/env python3
"""Builds the packages for installation, in build/package.

Usage: ./dev package [debian] [wheel] [wheel-aarch64] [client] [client-aarch64] [agent] [agent-aarch64] [image] [chart]
[rpm]; without arguments, the first two. Wheels for aarch64 are cross-compiled with the libraries of tools/sysroot.py.
The client's wheels have no agent, run with an older glibc, and are made for every Python there is; the agent has a
wheel of its own. The image is made from the Debian package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from building import FOLDER, ROOT, PackageError, copy_sources, run, version
from debian_packages import PackagesError
from image import build_image
from wheels import (
    build_agent_aarch64,
    build_agent_here,
    build_client_aarch64,
    build_client_here,
    build_wheel,
    build_wheel_aarch64,
)


def build_debian() -> None:
    sources, result = FOLDER / "debian-build" / "offpath", FOLDER / "debian"
    # debhelper gives the build a separate home, where ccache would find nothing.
    kept = subprocess.run(["ccache", "--get-config", "cache_dir"], capture_output=True, text=True).stdout.strip()
    copy_sources(sources)
    shutil.copytree(sources / "packaging" / "debian", sources / "debian")
    run("dpkg-buildpackage", "--no-sign", "--build=binary", cwd=sources, OFFPATH_PYTHON=sys.executable,
        DEB_BUILD_OPTIONS=f"noautodbgsym parallel={os.cpu_count()}", CCACHE_DIR=kept)  # fmt: skip
    shutil.rmtree(result, ignore_errors=True)
    result.mkdir(parents=True)
    for package in sources.parent.glob("*.deb"):
        shutil.move(package, result / package.name)


def build_image_of_agent() -> None:
    """A part for each architecture whose package of the agent is there."""

    def packages() -> list[Path]:
        return sorted((FOLDER / "debian").glob("offpath-agent_*.deb"))

    if not packages():
        build_debian()
    print("image:", ", ".join(each.name for each in packages()), flush=True)
    build_image(packages(), FOLDER / "image", FOLDER / "image-build")


def build_chart() -> None:
    """As `helm package` packs it: a folder of the chart's name."""
    chart, result = ROOT / "packaging" / "helm" / "offpath-agent", FOLDER / "chart"
    shutil.rmtree(result, ignore_errors=True)
    result.mkdir(parents=True)
    with tarfile.open(result / f"{chart.name}-{version()}.tgz", "w:gz") as packed:
        packed.add(chart, chart.name)


def build_rpm() -> None:
    """The source package, because an rpm's dependencies are known only on the system that builds it."""
    top = FOLDER / "rpm-build"
    shutil.rmtree(top, ignore_errors=True)
    named = f"offpath-{version()}"
    copy_sources(top / named)
    with tarfile.open(top / f"{named}.tar.gz", "w:gz") as packed:
        packed.add(top / named, named)
    shutil.rmtree(FOLDER / "rpm", ignore_errors=True)
    places = {"_topdir": top, "_sourcedir": top, "_srcrpmdir": FOLDER / "rpm"}
    defined = [word for name, place in places.items() for word in ("--define", f"{name} {place}")]
    run("rpmbuild", "-bs", "--quiet", *defined, ROOT / "packaging" / "rpm" / "offpath.spec")
    shutil.rmtree(top)


def main() -> int:
    steps = {"debian": build_debian, "wheel": build_wheel, "wheel-aarch64": build_wheel_aarch64,
             "client": build_client_here, "client-aarch64": build_client_aarch64, "agent": build_agent_here,
             "agent-aarch64": build_agent_aarch64, "image": build_image_of_agent, "chart": build_chart,
             "rpm": build_rpm}  # fmt: skip
    for name in sys.argv[1:] or ("debian", "wheel"):
        if name not in steps:
            print(f"./dev package: '{name}' is not one of {', '.join(steps)}", file=sys.stderr)
            return 2
        try:
            steps[name]()
        except (OSError, subprocess.CalledProcessError, PackageError, PackagesError) as error:
            print(f"./dev package: {name} failed: {error}", file=sys.stderr)
            return 1
    wheels = [f"{kind}{processor}/*.whl" for kind in ("wheel", "client", "agent") for processor in ("", "-aarch64")]
    for made in sorted(found for pattern in (*wheels, "debian/*.deb", "image", "chart/*.tgz", "rpm/*.rpm")
                       for found in FOLDER.glob(pattern)):  # fmt: skip
        files = [made] if made.is_file() else filter(Path.is_file, made.rglob("*"))
        print(f"{sum(file.stat().st_size for file in files) / 1e6:7.1f} MB  {made.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
