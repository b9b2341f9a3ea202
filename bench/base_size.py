"""What `pip install gossamer` puts on a disk, package by package: python bench/base_size.py

Makes a fresh virtual environment, installs this checkout without extras, and adds up the files (byte code included, pip
and setuptools not).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path

NOT_OURS = {"pip", "setuptools"}


def main() -> None:
    checkout = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([f"{folder}/bin/python", "-m", "pip", "install", "--quiet", str(checkout)], check=True)
        (site,) = Path(folder).glob("lib/python*/site-packages")
        total = 0
        for package in sorted(distributions(path=[str(site)]), key=lambda found: found.metadata["Name"].lower()):
            if package.metadata["Name"] in NOT_OURS:
                continue
            files = {path for file in package.files or () if (path := Path(str(package.locate_file(file)))).is_file()}
            size = sum(path.stat().st_size for path in files)
            total += size
            print(f"{package.metadata['Name']:20} {package.version:10} {size / 1e6:8.1f} MB")
        print(f"{'total':31} {total / 1e6:8.1f} MB")


if __name__ == "__main__":
    main()
