"""Device properties as data; real cuDNN reads them in tests/cudnn. (R10.1)"""

from __future__ import annotations

import json

import pytest

from gossamer.cudnn import loader
from gossamer.cudnn.device_properties import KEYS, DeviceProperties
from gossamer.errors import CudnnError, InvalidArgument
from gossamer.program.shipped_devices import shipped_device, shipped_devices

DEVICES = {
    "t4": ("sm_75", 40),
    "a100-40gb": ("sm_80", 108),
    "a100-80gb": ("sm_80", 108),
    "a10": ("sm_86", 72),
    "rtx-3090": ("sm_86", 82),
    "l4": ("sm_89", 58),
    "l40s": ("sm_89", 142),
    "rtx-4090": ("sm_89", 128),
    "h100-pcie": ("sm_90", 114),
    "h100-sxm": ("sm_90", 132),
    "h200": ("sm_90", 132),
    "gh200": ("sm_90", 132),
    "b200": ("sm_100", 148),
    "rtx-5090": ("sm_120", 170),
}


@pytest.mark.parametrize("name", DEVICES)
def test_shipped(name: str) -> None:
    """R10.1: every key that a cuDNN asks for, where the figures are from, and a round trip that changes nothing."""
    shipped = shipped_device(name)
    properties = DeviceProperties.named(name)
    assert (properties.architecture, properties.multiprocessors) == DEVICES[name]
    assert shipped.architecture == properties.architecture
    assert properties.values.keys() == KEYS
    assert shipped.measured == (name == "h200")
    assert len(shipped.source) > 40
    assert DeviceProperties.from_json(properties.serialize()) == properties
    assert DeviceProperties.from_json(properties.serialize().decode()).serialize() == properties.serialize()


def test_names() -> None:
    assert set(DeviceProperties.names()) == set(DEVICES)
    assert DeviceProperties.named("H100_SXM") == DeviceProperties.named("h100-sxm")
    with pytest.raises(InvalidArgument, match=r"no device 'h300'; there are sm_75, .*sm_120, and t4, .*h200"):
        DeviceProperties.named("h300")


@pytest.mark.parametrize("architecture", sorted({architecture for architecture, _ in DEVICES.values()}))
def test_one_device_stands_for_each_architecture(architecture: str) -> None:
    standing = [device.architecture for device in shipped_devices() if device.represents_architecture]
    assert standing.count(architecture) == 1
    assert DeviceProperties.named(architecture).architecture == architecture


def test_equality_and_copies() -> None:
    properties = DeviceProperties.named("h200")
    properties.values["deviceVer"] = 800  # a copy
    assert properties.architecture == "sm_90"
    assert properties != DeviceProperties.named("h100-sxm")
    assert hash(properties) == hash(DeviceProperties.named("h200"))
    assert properties.with_driver(12080).driver == 12080
    assert properties.with_driver(properties.driver) == properties
    assert properties.differences(DeviceProperties.named("h100-sxm")) == ("memoryBusWidth",)


@pytest.mark.parametrize(
    "text", ["", "[]", "5", '{"deviceVer": 900}', '{"deviceVer": "900", "multiProcessorCount": 1}']
)
def test_what_is_no_properties(text: str) -> None:
    with pytest.raises(InvalidArgument, match="device properties"):
        DeviceProperties.from_json(text)


def test_unknown_keys_survive() -> None:
    """A newer cuDNN's JSON is kept as it is."""
    values = DeviceProperties.named("h200").values | {"newest": [1, {"a": None}]}
    assert json.loads(DeviceProperties(values).serialize()) == values


def test_without_cudnn() -> None:
    """R1.8: the reason is in the error."""
    with loader.force_absent(), pytest.raises(CudnnError, match="cuDNN was not found at runtime"):
        DeviceProperties.named("h200").describe()
