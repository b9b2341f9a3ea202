"""What installing puts on a disk: Gossamer's base install, and beside it onnxruntime-gpu with what it needs.

    python bench/base_size.py

Ours: this checkout is installed without extras into a fresh virtual environment, and the files are added up (byte code
included, pip and setuptools not). Theirs: the wheels that pip would install for `ONNXRUNTIME`, as large as their
directories say that they are unpacked; only these directories are read. To name the wheels pip reads metadata, which it
has to download whole wheels for where an index does not offer it by itself (pypi.org does).

Fails where ours is larger than `MOST` bytes.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from importlib.metadata import distributions
from pathlib import Path

ONNXRUNTIME = "onnxruntime-gpu[cuda,cudnn]==1.31.1"
MOST = 150_000_000
NOT_OURS = {"pip", "setuptools"}


class RemoteFile(io.RawIOBase):
    """A file at a URL, read in parts."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._at = 0
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
            self._size = int(answer.headers["Content-Length"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._at + size, self._size)
        if self._at >= end:
            return b""
        part = {"Range": f"bytes={self._at}-{end - 1}"}
        with urllib.request.urlopen(urllib.request.Request(self.url, headers=part)) as answer:
            if answer.status != 206:  # the whole file would follow
                raise OSError(f"{self.url}: the server does not send parts of files")
            data: bytes = answer.read()
        self._at += len(data)
        return data


def wheel_bytes(url: str) -> int:
    """What a wheel is unpacked."""
    local = url.startswith("file:")
    with urllib.request.urlopen(url) if local else RemoteFile(url) as file, zipfile.ZipFile(file) as wheel:
        return sum(member.file_size for member in wheel.infolist())


def theirs(python: str) -> dict[str, int]:
    """Package and version → bytes, of what pip would install into an empty environment."""
    command = [
        python,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--ignore-installed",
        "--quiet",
        "--report",
        "-",
        ONNXRUNTIME,
    ]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    wheels = {f"{one['metadata']['name']} {one['metadata']['version']}": one for one in report["install"]}
    return {name: wheel_bytes(one["download_info"]["url"]) for name, one in wheels.items()}


def ours(folder: str) -> dict[str, int]:
    """Package and version → bytes, of a fresh environment in `folder` with this checkout."""
    checkout = Path(__file__).parents[1]
    subprocess.run([f"{folder}/bin/python", "-m", "pip", "install", "--quiet", str(checkout)], check=True)
    (site,) = Path(folder).glob("lib/python*/site-packages")
    sizes = {}
    for package in distributions(path=[str(site)]):
        if package.metadata["Name"] not in NOT_OURS:
            files = {path for file in package.files or () if (path := Path(str(package.locate_file(file)))).is_file()}
            sizes[f"{package.metadata['Name']} {package.version}"] = sum(path.stat().st_size for path in files)
    return sizes


def show(title: str, sizes: dict[str, int]) -> int:
    total = sum(sizes.values())
    print(f"{title}: {total / 1e6:.1f} MB")
    for name, size in sorted(sizes.items(), key=lambda entry: -entry[1]):
        print(f"  {name:36} {size / 1e6:8.1f} MB")
    return total


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        total = show("gossamer, base install, on disk", ours(folder))
        show(f"{ONNXRUNTIME} and what it needs, wheels unpacked", theirs(f"{folder}/bin/python"))
    if total > MOST:
        sys.exit(f"the base install is larger than {MOST / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
