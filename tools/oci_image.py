"""Writes container images as the OCI image layout has them: a folder that skopeo, podman and containerd read.

https://github.com/opencontainers/image-spec, version 1.0: `blobs/sha256` has every file under its digest, and
`index.json` names the image. The same files give the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

MEDIA = "application/vnd.oci.image."
GZIP_LEVEL = 6


@dataclass
class Image:
    """One architecture's part of an image: its root file system, and the command of its containers."""

    root: Path
    architecture: str  # as Go and Debian call it: amd64, arm64
    config: dict[str, Any]  # Entrypoint, Cmd, Env, Labels …


@dataclass
class Digested:
    """Passes bytes on, and knows their digest and number."""

    to: BinaryIO | gzip.GzipFile
    hash: Any = field(default_factory=hashlib.sha256)
    size: int = 0

    def write(self, piece: bytes) -> int:
        self.hash.update(piece)
        self.size += len(piece)
        self.to.write(piece)
        return len(piece)

    def flush(self) -> None: ...

    @property
    def digest(self) -> str:
        return f"sha256:{self.hash.hexdigest()}"


def write_tree(root: Path, to: Digested, seconds: int) -> None:
    """A tar of a folder: sorted names, everything root's, and every time the same."""

    def entry(path: Path) -> None:
        made = archive.gettarinfo(path, arcname=path.relative_to(root).as_posix())
        made.uid = made.gid = 0
        made.uname = made.gname = ""
        made.mtime = seconds
        if made.isreg():
            with path.open("rb") as content:
                archive.addfile(made, content)
        else:
            archive.addfile(made)

    with tarfile.open(fileobj=to, mode="w|", format=tarfile.GNU_FORMAT) as archive:  # type: ignore[call-overload]
        for folder, names, files in os.walk(root):
            names.sort()
            for name in sorted(files + names):
                entry(Path(folder) / name)


class Layout:
    """A layout in a new folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.blobs = folder, folder / "blobs" / "sha256"
        shutil.rmtree(folder, ignore_errors=True)
        self.blobs.mkdir(parents=True)

    def blob(self, kind: str, content: bytes) -> dict[str, Any]:
        """Stores a blob; its descriptor."""
        name = hashlib.sha256(content).hexdigest()
        (self.blobs / name).write_bytes(content)
        return {"mediaType": MEDIA + kind, "digest": f"sha256:{name}", "size": len(content)}

    def json(self, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        return self.blob(kind, json.dumps(content, sort_keys=True, separators=(",", ":")).encode())

    def layer(self, root: Path, seconds: int) -> tuple[dict[str, Any], str]:
        """Stores a folder as a layer; its descriptor, and the digest of its unpacked contents."""
        unfinished = self.folder / "layer"
        with unfinished.open("wb") as file:
            packed = Digested(file)
            with gzip.GzipFile("", "wb", GZIP_LEVEL, packed, mtime=0) as gzipped:
                plain = Digested(gzipped)
                write_tree(root, plain, seconds)
        unfinished.rename(self.blobs / packed.digest.removeprefix("sha256:"))
        described = {"mediaType": f"{MEDIA}layer.v1.tar+gzip", "digest": packed.digest, "size": packed.size}
        return described, plain.digest

    def image(self, image: Image, created: str, seconds: int) -> dict[str, Any]:
        layer, unpacked = self.layer(image.root, seconds)
        config = self.json("config.v1+json", {
            "created": created, "architecture": image.architecture, "os": "linux", "config": image.config,
            "rootfs": {"type": "layers", "diff_ids": [unpacked]},
        })  # fmt: skip
        manifest = {"schemaVersion": 2, "mediaType": f"{MEDIA}manifest.v1+json", "config": config, "layers": [layer]}
        return self.json("manifest.v1+json", manifest) | {
            "platform": {"os": "linux", "architecture": image.architecture}
        }


def write_layout(folder: Path, images: list[Image], tag: str, created: str, seconds: int) -> None:
    """One image with an entry for each architecture. `created` is an RFC 3339 time, `seconds` that of every file."""
    layout = Layout(folder)
    parts = [layout.image(image, created, seconds) for image in images]
    index = {"schemaVersion": 2, "mediaType": f"{MEDIA}index.v1+json"}
    whole = layout.json("index.v1+json", index | {"manifests": parts})
    whole["annotations"] = {"org.opencontainers.image.ref.name": tag}
    (folder / "index.json").write_text(json.dumps(index | {"manifests": [whole]}))
    (folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
