"""Runs Python as where no cuDNN is installed, with the packages of an environment that has it.

    CUDNN_LEG=absent python tests/without_cudnn.py -m pytest -m gpu tests/gpu

The interpreter is that of a new environment, which finds this one's packages by a .pth file. They are not installed in
it, so that the loader does not look there (R1.2); child processes are no different. What the system's loader would find
all the same (a container's own copy, LD_LIBRARY_PATH) is hidden from this process and its children, where root may
mount (Linux); elsewhere it is named, and nothing is run. The exit status is that of what was run.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

FOUND = """
from gossamer.cudnn import loader
print(*(attempt.path for attempt in loader.load().tried if attempt.found), sep="\\n")
"""
"""Prints what the loader finds, whether it can be used or not."""

CLONE_NEWNS = 0x20000  # os.unshare is Python 3.12's
HIDE = """
set -e
mount --make-rprivate /
mount -t tmpfs hidden "$1"
mkdir "$1/upper" "$1/work" "$1/before"
mount --rbind "$2" "$1/before"
for file in "$2"/libcudnn*; do mknod "$1/upper/${file##*/}" c 0 0; done
inside=$(awk -v folder="$2/" 'index($5, folder) == 1 { print $5 }' /proc/self/mountinfo)
mount -t overlay hidden -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$2"
for path in $inside; do
    case ${path##*/} in libcudnn*) ;; *) mount --bind "$1/before/${path#"$2/"}" "$path" ;; esac
done
umount -l "$1"
"""
"""$1: an empty folder. $2: one whose files of cuDNN are to be gone, by an overlay's whiteouts. An overlay lacks what
is mounted inside, as containers mount the driver's libraries: that is mounted again.
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, symlinks=os.name != "nt")
        packages = Path(sysconfig.get_path("purelib", "venv", vars={"base": folder}), "packages.pth")
        packages.write_text("\n".join(sys.path[1:]))  # the first is this script's folder
        python = Path(sysconfig.get_path("scripts", "venv", vars={"base": folder}), Path(sys.executable).name)
        while path := found_by(python):
            if problem := hide(path, tempfile.mkdtemp(dir=folder)):
                print(f"This is no leg without cuDNN: the loader finds {path}, and {problem}.", file=sys.stderr)
                print("Move it out of the way, or use a machine that has none. Nothing was run.", file=sys.stderr)
                return 2
        return subprocess.run([python, *sys.argv[1:]], check=False).returncode


def found_by(python: Path) -> str:
    """A cuDNN that the loader finds all the same, whether it can be used or not; empty where there is none."""
    done = subprocess.run([python, "-c", FOUND], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip().partition("\n")[0]


def hide(path: str, scratch: str) -> str:
    """Takes the files of cuDNN beside `path` away, for this process and its children; why it cannot, or nothing."""
    if sys.platform != "linux":
        return "only Linux can hide it from a process"
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        return f"hiding it takes root's rights (unshare: {os.strerror(ctypes.get_errno())})"
    command = ["sh", "-c", HIDE, "sh", scratch, os.path.realpath(os.path.dirname(path))]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    return done.stderr.strip() or ("hiding it did not help" if os.path.exists(path) else "")


if __name__ == "__main__":
    sys.exit(main())
