"""Devices whose properties come with Gossamer, so that code and plans can be made for them where none of them is.

Each is a JSON file in `devices/`, named like the device: where its figures are from, whether they were read off one,
and the properties by cuDNN's keys, all that any version from 9.8 on asks for (`gossamer.cudnn.device_properties.KEYS`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gossamer.errors import InvalidArgument

_FOLDER = Path(__file__).with_name("devices")


@dataclass(frozen=True, slots=True)
class ShippedDevice:
    """A device by its figures.

    architecture: as compilers spell it (`sm_90`). represents_architecture: whether that name means this device.
    measured: read off a device, not from public figures. source: which. properties: by cuDNN's keys, read-only.
    """

    name: str
    architecture: str
    represents_architecture: bool
    measured: bool
    source: str
    properties: Mapping[str, Any]


@cache
def shipped_devices() -> tuple[ShippedDevice, ...]:
    """All of them, by architecture and name."""
    found = []
    for file in _FOLDER.glob("*.json"):
        entry = json.loads(file.read_bytes())
        found.append(ShippedDevice(file.stem, **entry | {"properties": MappingProxyType(entry["properties"])}))
    return tuple(sorted(found, key=lambda device: (int(device.architecture[3:]), device.name)))


def architectures() -> tuple[str, ...]:
    """Those that a shipped device stands for, oldest first."""
    return tuple(device.architecture for device in shipped_devices() if device.represents_architecture)


def shipped_device(name: str) -> ShippedDevice:
    """A device (`h100-sxm`), or the one that stands for an architecture (`sm_90`); case and _ or - make no difference.

    Raises InvalidArgument, listing what there is.
    """
    wanted = _plain(name)
    for device in shipped_devices():
        if wanted == device.name or (wanted == _plain(device.architecture) and device.represents_architecture):
            return device
    devices = ", ".join(device.name for device in shipped_devices())
    raise InvalidArgument(f"no device {name!r}; there are {', '.join(architectures())}, and {devices}")


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")
