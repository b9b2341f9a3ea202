"""Device properties and real cuDNN: what each release asks for, and what it compares. (R10.1)"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudnn_releases import Release, link
from fake_cudnn import Python
from gossamer.cudnn import driver_stand_in
from gossamer.cudnn.device_properties import COMPARED, KEYS, DeviceProperties

DONE_WITHOUT: dict[str, set[str]] = {
    "9.8": {"deviceName", "maxThreadsPerBlock", "memoryBusWidth"},
    "9.19": {"memoryBusWidth"},
    "9.28": set(),
}
"""Release → the keys of KEYS that it does without."""


@pytest.fixture(scope="module")
def every_release(
    release_named: Callable[[str], Release],
    wheel_members: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], Release]:
    """9.8 too, for CUDA 12; device properties do without the libraries that its plans would need."""

    def named(name: str) -> Release:
        if name != "9.8":
            return release_named(name)
        python = Python.create(tmp_path_factory.mktemp("release") / "python")
        link(wheel_members("cudnn-9.8", "nvidia/cudnn/lib/*"), python, "nvidia/cudnn/lib/libcudnn*")
        return Release(name, python)

    return named


READ = """
from gossamer.cudnn import prerequisites
from gossamer.cudnn.descriptors import Attribute
if RELEASE == "9.8":
    prerequisites.prepare = lambda: None

def taken(properties):
    try:
        with properties.describe() as descriptor:
            return descriptor.get_text(Attribute.CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION)
    except ValueError as error:  # InvalidArgument
        return str(error)

all_of = {name: DeviceProperties.named(name) for name in DeviceProperties.names()}
values = all_of["h200"].values
def without(key):
    return DeviceProperties({name: value for name, value in values.items() if name != key})
texts = {key: taken(without(key)) for key in values if key not in ("deviceVer", "multiProcessorCount")}
print(json.dumps({
    "same": [name for name, one in all_of.items() if DeviceProperties.from_json(taken(one)) == one],
    "asked for": {key: text for key, text in texts.items() if isinstance(text, str)},
}))
"""


@pytest.mark.parametrize("name", DONE_WITHOUT)
def test_shipped_properties(every_release: Callable[[str], Release], name: str) -> None:
    """Each release takes them, gives them back equal, and asks for exactly the keys that are known."""
    found = every_release(name).run(READ.replace("RELEASE", repr(name)))
    assert found["same"] == list(DeviceProperties.names())
    assert set(found["asked for"]) == KEYS - DONE_WITHOUT[name] - {"deviceVer", "multiProcessorCount"}
    assert all(f"without {key}" in text for key, text in found["asked for"].items())


def test_what_is_compared(release: Release) -> None:
    """A plan is refused for a device that differs in one of these values, and in no other."""
    refused = release.run("""
        properties = DeviceProperties.named("h200")
        blob = graph("h200", "convolution").build().serialize()
        def other(value):
            return [value[0] - 1, *value[1:]] if isinstance(value, list) else f"{value}X" if isinstance(value, str) \\
                else value - 1
        changed = {key: DeviceProperties(properties.values | {key: other(value)})
                   for key, value in properties.values.items() if value != 0}
        print(json.dumps([key for key, one in changed.items()
                          if refusal(lambda: Graph(properties=one).deserialize(blob))[0].endswith("_MISMATCH")]))
    """)
    assert set(refused) == COMPARED - ({"memoryBusWidth"} if release.name == "9.19" else set())


def test_a_machine_without_a_gpu(release: Release) -> None:
    """R10.1: reading a device off says that there is none."""
    if driver_stand_in.driver_available():
        pytest.skip("there is a driver here; tests/gpu reads its device")
    name, text = release.run("print(json.dumps(refusal(lambda: DeviceProperties.from_device(0))))")
    assert name == "CudnnError"
    assert "properties of device 0" in text
