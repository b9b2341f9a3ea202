"""This machine's GPU as a target: read off the driver, beside what cuDNN reads and what is shipped. (R10.1)"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import missing
from gossamer.cudnn import DeviceProperties
from gossamer.cudnn.device_properties import KEYS
from gossamer.program import Target
from gossamer.program.shipped_devices import shipped_devices
from gossamer.run import driver
from gossamer.run.device_properties import device_properties


@pytest.mark.usefixtures("planning_cudnn")
def test_the_driver_says_what_cudnn_says() -> None:
    """R10.1: every key that this cuDNN has, those of later versions than Gossamer knows too, has cuDNN's value."""
    read, theirs = device_properties(0).values, DeviceProperties.from_device(0).values
    assert read.keys() == KEYS
    assert {key: read.get(key) for key in theirs} == theirs


def test_what_is_shipped_for_this_gpu_agrees() -> None:
    here = device_properties(0)
    shipped = [device for device in shipped_devices() if device.properties["deviceName"] == here.device_name]
    if not shipped:
        missing(f"a GPU that Gossamer ships the figures of; this is {here}")
    for device in shipped:
        keys = DeviceProperties(device.properties).differences(here)
        apart = {key: (device.properties[key], here.values[key]) for key in keys}
        assert apart.keys() <= {"driverVer"}, (device.name, apart)


def test_dump_makes_a_file_to_compile_for(tmp_path: Path) -> None:
    """In a process of its own, which opens no cuDNN: the target is this GPU's in all but its name."""
    path = tmp_path / "this.json"
    code = """
import sys
sys.argv = ["gossamer", "target", "dump", "-o", sys.argv[1]]
from gossamer.cli import main
try:
    main()
finally:
    assert "libcudnn" not in open("/proc/self/maps").read()
"""
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"compile for it with --target {path}\n")
    target = Target.named(str(path))
    here = driver.device(0).target()
    assert replace(target, name=here.name, device=0, properties="") == here
    assert DeviceProperties.from_json(target.properties) == device_properties(0)
