"""Images: every blob has the digest of its name, and the same files give the same image."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from oci_image import Image, write_layout

CONFIG = {"Entrypoint": ["/bin/program"], "User": "0:0"}
CREATED, SECONDS = "2026-11-22T00:00:00Z", 1_795_305_600


def make_root(folder: Path, text: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "program").write_text(text)
    (folder / "bin" / "program").chmod(0o755)
    (folder / "bin" / "name").symlink_to("program")
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o1777)
    return folder


def write(folder: Path, tmp_path: Path, *architectures: str) -> Path:
    images = [Image(make_root(tmp_path / f"{folder.name}-{each}", each), each, CONFIG) for each in architectures]
    write_layout(folder, images, "1.2.3", CREATED, SECONDS)
    return folder


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    return write(tmp_path / "image", tmp_path, "amd64", "arm64")


def blob(layout: Path, descriptor: dict[str, Any]) -> bytes:
    content = (layout / "blobs/sha256" / descriptor["digest"].removeprefix("sha256:")).read_bytes()
    assert len(content) == descriptor["size"]
    return content


def test_every_blob_has_its_digest_for_a_name_and_is_referred_to(layout: Path) -> None:
    seen = set()

    def follow(descriptor: dict[str, Any]) -> None:
        content = blob(layout, descriptor)
        seen.add(hashlib.sha256(content).hexdigest())
        if descriptor["mediaType"].endswith(("index.v1+json", "manifest.v1+json")):
            inner = json.loads(content)
            for each in [*inner.get("manifests", []), *inner.get("layers", []), *filter(None, [inner.get("config")])]:
                follow(each)

    (whole,) = json.loads((layout / "index.json").read_text())["manifests"]
    assert whole["annotations"]["org.opencontainers.image.ref.name"] == "1.2.3"
    follow(whole)
    assert seen == {each.name for each in (layout / "blobs/sha256").iterdir()}
    assert {each.name for each in layout.iterdir()} == {"blobs", "index.json", "oci-layout"}


def test_a_layer_is_the_root(layout: Path) -> None:
    (whole,) = json.loads((layout / "index.json").read_text())["manifests"]
    parts = json.loads(blob(layout, whole))["manifests"]
    assert [each["platform"] for each in parts] == [
        {"os": "linux", "architecture": architecture} for architecture in ("amd64", "arm64")
    ]
    manifest = json.loads(blob(layout, parts[1]))
    unpacked = gzip.decompress(blob(layout, manifest["layers"][0]))
    config = json.loads(blob(layout, manifest["config"]))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(unpacked).hexdigest()}"]
    assert (config["architecture"], config["config"]) == ("arm64", CONFIG)
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
        members = {each.name: each for each in archive.getmembers()}
        program = archive.extractfile("bin/program")
        assert program is not None and program.read() == b"arm64"
    assert {name: each.mode for name, each in members.items() if not each.issym()} == {
        "bin": 0o755, "bin/program": 0o755, "tmp": 0o1777,
    }  # fmt: skip
    assert members["bin/name"].linkname == "program"
    assert {(each.uid, each.gid, each.uname, each.mtime) for each in members.values()} == {(0, 0, "", SECONDS)}


def test_the_same_files_give_the_same_image(layout: Path, tmp_path: Path) -> None:
    again = write(tmp_path / "again", tmp_path, "amd64", "arm64")
    assert (again / "index.json").read_bytes() == (layout / "index.json").read_bytes()
    assert (write(tmp_path / "less", tmp_path, "amd64") / "index.json").read_bytes() != (
        layout / "index.json"
    ).read_bytes()


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="there is no skopeo; ./dev package installs it")
def test_skopeo_reads_it(layout: Path, tmp_path: Path) -> None:
    chosen = ["skopeo", "--override-arch", "arm64"]
    inspected = subprocess.run([*chosen, "inspect", f"oci:{layout}:1.2.3"], capture_output=True, text=True)
    assert inspected.returncode == 0, inspected.stderr
    assert json.loads(inspected.stdout)["Architecture"] == "arm64"
    copied = subprocess.run(
        ["skopeo", "copy", "--all", f"oci:{layout}:1.2.3", f"oci:{tmp_path / 'copy'}:latest"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert copied.returncode == 0, copied.stderr
