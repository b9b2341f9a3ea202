"""Runs Python as where no cuDNN is installed, with the packages of an environment that has it.

    CUDNN_LEG=absent python tests/without_cudnn.py -m pytest -m gpu tests/gpu

The interpreter is that of a new environment, which finds this one's packages by a .pth file. They are not installed in
it, so that the loader does not look there (R1.2); child processes are no different. The exit status is that of what was
run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, symlinks=os.name != "nt")
        packages = Path(sysconfig.get_path("purelib", "venv", vars={"base": folder}), "packages.pth")
        packages.write_text("\n".join(sys.path[1:]))  # the first is this script's folder
        python = Path(sysconfig.get_path("scripts", "venv", vars={"base": folder}), Path(sys.executable).name)
        return subprocess.run([python, *sys.argv[1:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
