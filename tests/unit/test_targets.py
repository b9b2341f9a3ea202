"""Targets by name: one function for every place that takes one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gossamer.cudnn import DeviceProperties
from gossamer.cudnn.device_properties import KEYS
from gossamer.cudnn.plan_cache import properties_of
from gossamer.errors import DeviceNotFound, InvalidArgument, NoSuchFile, NotFound
from gossamer.execution import target_of
from gossamer.options import CudaOptions
from gossamer.program import Target
from gossamer.program.shipped_devices import architectures, shipped_devices
from gossamer.run import device_properties as reading
from gossamer.run import driver

H200 = dict(next(device for device in shipped_devices() if device.name == "h200").properties)


def written(folder: Path, **changes: Any) -> str:
    """The path of an H200's properties with some changed; None takes one away."""
    values = {key: value for key, value in (H200 | changes).items() if value is not None}
    path = folder / "mine.json"
    path.write_text(json.dumps(values))
    return str(path)


@pytest.mark.parametrize("name", [device.name for device in shipped_devices()])
def test_a_device(name: str) -> None:
    """Its figures are those that cuDNN is told."""
    target, properties = Target.named(name), DeviceProperties.named(name)
    assert (target.name, f"sm_{target.arch}") == (name, properties.architecture)
    assert target.sm_count == properties.multiprocessors
    assert target.shared_bytes == properties.values["maxSharedMemoryPerBlockOptin"]
    assert DeviceProperties.from_json(target.properties) == properties
    assert (target.device, target.use_tf32, target.interpreted, target.deterministic) == (None, True, False, False)


@pytest.mark.parametrize(
    ("name", "sm_count", "shared_bytes"),
    [
        ("sm_75", 40, 65536),
        ("sm_80", 108, 166912),
        ("sm_86", 72, 101376),
        ("sm_89", 142, 101376),
        ("sm_90", 132, 232448),
        ("sm_100", 148, 232448),
        ("sm_120", 170, 101376),
    ],
)
def test_an_architecture(name: str, sm_count: int, shared_bytes: int) -> None:
    """CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; data sheets."""
    assert name in architectures()
    target = Target.named(name)
    assert (target.name, f"sm_{target.arch}", target.sm_count, target.shared_bytes) == (
        *(name, name),
        *(sm_count, shared_bytes),
    )
    assert DeviceProperties.from_json(target.properties) == DeviceProperties.named(name)


@pytest.mark.parametrize(
    ("given", "meant"), [("SM_90", "sm_90"), ("sm-90", "sm_90"), ("H100-PCIe", "h100-pcie"), ("A100_40GB", "a100-40gb")]
)
def test_spellings(given: str, meant: str) -> None:
    assert Target.named(given) == Target.named(meant)
    assert Target.named(given).name == meant


def test_a_file(tmp_path: Path) -> None:
    """It need not have every key that cuDNN asks for, and may have others."""
    target = Target.named(written(tmp_path, deviceVer=1030, multiProcessorCount=160, warpSize=None, newest=[1]))
    assert (target.name, target.arch, target.sm_count, target.shared_bytes) == ("mine", 103, 160, 232448)
    assert json.loads(target.properties)["newest"] == [1]


def test_a_file_of_what_show_prints_is_the_same_target(tmp_path: Path) -> None:
    assert properties_of_file(written(tmp_path)) == DeviceProperties.named("h200")


def properties_of_file(path: str) -> DeviceProperties:
    return DeviceProperties.from_json(Target.named(path).properties)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"deviceVer": None}, "target mine: deviceVer is None"),
        ({"multiProcessorCount": "132"}, "multiProcessorCount is '132'"),
        ({"multiProcessorCount": True}, "multiProcessorCount is True"),
        ({"maxSharedMemoryPerBlockOptin": 0}, "maxSharedMemoryPerBlockOptin is 0"),
        ({"maxSharedMemoryPerBlockOptin": 232448.0}, "maxSharedMemoryPerBlockOptin is 232448.0"),
    ],
)
def test_a_file_without_the_figures(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        Target.named(written(tmp_path, **changes))


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff\xfe"])
def test_a_file_of_something_else(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(text)
    with pytest.raises(InvalidArgument, match=r"odd\.json: (no JSON|device properties are a JSON object)"):
        Target.named(str(path))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile, match=r"absent\.json"):
        Target.named(str(tmp_path / "absent.json"))
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(InvalidArgument, match=r"folder\.json"):
        Target.named(str(tmp_path / "folder.json"))


@pytest.mark.parametrize("name", ["sm_91", "h300", "", "sm_90a", "h200.jsn", "90"])
def test_unknown_names(name: str) -> None:
    """The error lists what there is, and says what to do for what there is not."""
    with pytest.raises(InvalidArgument, match=rf"'{name}'; there are sm_75.*sm_120, and t4.*rtx-5090.*target dump"):
        Target.named(name)


@pytest.mark.parametrize("name", [*(device.name for device in shipped_devices()), *architectures(), "a b/c.json", ""])
def test_the_option_takes_every_name(name: str) -> None:
    assert CudaOptions.parse({"target": name}).target == name


@pytest.mark.parametrize("device", ["cuda", "null", "interpreter"])
def test_a_wrong_name_is_refused_wherever_programs_run(device: str) -> None:
    with pytest.raises(InvalidArgument, match="unknown target: no device 'ampere'"):
        target_of(CudaOptions.parse({"device": device, "target": "ampere"}))


def test_the_interpreter() -> None:
    """It is nothing that cuDNN could plan for."""
    target = Target.named("interpreter")
    assert target.interpreted
    with pytest.raises(NotFound, match="interpreter has no device properties"):
        properties_of(target)


def test_variations() -> None:
    hopper = Target.named("sm_90")
    assert not hopper.with_tf32(False).use_tf32
    assert hopper.with_deterministic(True).deterministic


# Reading a GPU off the driver


class FakeDevice:
    """An H200, as the driver describes one."""

    handle, name, arch = "h200", "NVIDIA H200", 90

    def attribute(self, name: str) -> int:
        driver.constant(f"CUdevice_attribute.CU_DEVICE_ATTRIBUTE_{name}")  # the driver knows it
        if name.startswith(("MAX_BLOCK_DIM_", "MAX_GRID_DIM_")):
            return int(H200["maxBlockSize" if "BLOCK" in name else "maxGridSize"]["XYZ".index(name[-1])])
        (key,) = (key for key, attribute in reading._ATTRIBUTES.items() if attribute == name)
        return int(H200[key])


def test_the_driver_alone_gives_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/gpu compares the values with cuDNN's."""
    answers = {"cuDriverGetVersion": 13000, "cuDeviceTotalMem": H200["totalGlobalMem"]}
    monkeypatch.setattr(driver, "device", lambda _: FakeDevice())
    monkeypatch.setattr(driver, "call", lambda function, *_, **__: answers[function])
    found = reading.device_properties(0)
    assert found.values.keys() == KEYS
    assert found == DeviceProperties.named("h200")


def test_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "why_unavailable", lambda: ("NVIDIA driver (libcuda.so.1): none",))
    with pytest.raises(DeviceNotFound, match="CUDA device 5 is not available"):
        reading.device_properties(5)
