"""What cuDNN has to know about a device to plan for it: read off one, or shipped, so that none has to be there.

    DeviceProperties.from_device(0)           # this machine's, needs a driver
    DeviceProperties.named("h100-sxm")        # shipped with Gossamer; "sm_90" is the one that stands for its kind
    DeviceProperties.from_json(path.read_bytes())

cuDNN keeps them as a JSON object. Its keys grow from version to version, and unknown ones are ignored: the shipped ones
have every key that a version from 9.8 on asks for. A plan is only restored for a device that agrees in the values of
`COMPARED`; the others (clocks, cache and memory sizes, the name) only serve heuristics.

Source: cudnn_graph.h, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR (since cuDNN 9.8).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gossamer.cudnn import handles, prerequisites
from gossamer.cudnn.descriptors import Attribute, Descriptor, Kind, Type
from gossamer.cudnn.versions import require_device_properties
from gossamer.errors import CudnnError, InvalidArgument
from gossamer.program.shipped_devices import shipped_device, shipped_devices

__all__ = ["COMPARED", "KEYS", "DeviceProperties"]

KEYS = frozenset(
    (
        *("deviceName", "deviceVer", "driverVer", "cudaDeviceId", "pciDeviceId", "isTccDriver", "supportCoopLaunch"),
        *("multiProcessorCount", "warpSize", "maxThreadsPerBlock", "maxThreadsPerSM", "maxCtasPerSM", "maxBlockSize"),
        *("maxGridSize", "regsPerBlock", "maxRegistersPerSM", "maxSharedMemoryPerBlock"),
        *("maxSharedMemoryPerBlockOptin", "reservedSharedMemoryPerBlock", "l2CacheSize", "totalGlobalMem"),
        *("memoryBusWidth", "smClockRateKHz", "memClockRateKHz"),
    )
)
"""Every key that some cuDNN from 9.8 to 9.28 asks for. (9.8 does without deviceName and maxThreadsPerBlock, 9.19
without memoryBusWidth.)"""

COMPARED = frozenset(
    (
        *("deviceVer", "multiProcessorCount", "maxThreadsPerBlock", "maxThreadsPerSM", "maxBlockSize", "maxGridSize"),
        *("regsPerBlock", "maxRegistersPerSM", "maxSharedMemoryPerBlock", "maxSharedMemoryPerBlockOptin"),
        *("reservedSharedMemoryPerBlock", "memoryBusWidth", "driverVer"),
    )
)
"""Keys in which a plan's device and the one that it is restored for must agree (memoryBusWidth: by 9.28, not by 9.19).

Of driverVer 9.28 only wants that the plan's is not newer; 9.19 wants the same, for which `with_driver` is there.
"""


class DeviceProperties:
    """Properties of one device; equal when all their values are."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        """values: as in cuDNN's JSON. InvalidArgument where architecture or multiprocessors are no numbers."""
        for key in ("deviceVer", "multiProcessorCount", "driverVer"):
            value = values.get(key, 0 if key == "driverVer" else None)
            if not isinstance(value, int) or isinstance(value, bool) or value < (key != "driverVer"):
                raise InvalidArgument(f"device properties: {key} is {value!r}, a positive whole number is wanted")
        self._text = json.dumps(dict(values), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> DeviceProperties:
        """From cuDNN's JSON, or from `serialize`. InvalidArgument where it is none."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise InvalidArgument(f"device properties are no JSON: {error}") from None
        if not isinstance(values, dict):
            raise InvalidArgument(f"device properties are a JSON object, not {type(values).__name__}")
        return cls(values)

    @classmethod
    def from_device(cls, ordinal: int = 0) -> DeviceProperties:
        """Of a device of this machine, by its CUDA ordinal. Needs a driver and cuDNN 9.8, or CudnnError says so."""
        require_device_properties()
        prerequisites.prepare()
        with Descriptor(Kind.CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, f"properties of device {ordinal}") as descriptor:
            descriptor.set(Attribute.CUDNN_ATTR_DEVICEPROP_DEVICE_ID, ordinal, type=Type.CUDNN_TYPE_INT32)
            return cls._read(descriptor)

    @classmethod
    def from_handle(cls, handle: handles.Handle | int) -> DeviceProperties:
        """Of the device that a handle was made for."""
        require_device_properties()
        prerequisites.prepare()
        with Descriptor(Kind.CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "properties of a handle's device") as descriptor:
            address = handles.address_of(handle)
            descriptor.set(Attribute.CUDNN_ATTR_DEVICEPROP_HANDLE, address, type=Type.CUDNN_TYPE_HANDLE)
            return cls._read(descriptor)

    @classmethod
    def _read(cls, descriptor: Descriptor) -> DeviceProperties:
        descriptor.finalize()
        return cls.from_json(descriptor.get_text(Attribute.CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION))

    @classmethod
    def named(cls, name: str) -> DeviceProperties:
        """Shipped properties: a device (`h100-sxm`), or an architecture (`sm_90`), for which one device stands.

        InvalidArgument lists the names. Plans for one device of an architecture are mostly refused on others (see
        `COMPARED`): name the device where you know it. `gossamer target show` says where the figures are from.
        """
        return cls(shipped_device(name).properties)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of the shipped devices."""
        return tuple(device.name for device in shipped_devices())

    @property
    def values(self) -> dict[str, Any]:
        """A copy of all values, by cuDNN's keys."""
        values: dict[str, Any] = json.loads(self._text)
        return values

    @property
    def architecture(self) -> str:
        """As compilers spell it: `sm_90`."""
        return f"sm_{self.values['deviceVer'] // 10}"

    @property
    def multiprocessors(self) -> int:
        """Number of multiprocessors."""
        return int(self.values["multiProcessorCount"])

    @property
    def device_name(self) -> str:
        """The driver's name for it; empty where an old cuDNN left it out."""
        return str(self.values.get("deviceName", ""))

    @property
    def driver(self) -> int:
        """The driver's CUDA version, as cuDriverGetVersion counts (13000); of plans, the oldest that they run on."""
        return int(self.values.get("driverVer", 0))

    def with_driver(self, version: int) -> DeviceProperties:
        """The same device under another driver: plans for it run on that one and on newer ones.

        version: as cuDriverGetVersion counts: 12080 for CUDA 12.8. The shipped properties say 13000, the oldest driver
        that cuDNN for CUDA 13 runs on.
        """
        return DeviceProperties(self.values | {"driverVer": version})

    def differences(self, other: DeviceProperties) -> tuple[str, ...]:
        """Keys of `COMPARED` in which two devices differ, sorted; a key that one lacks is no difference."""
        mine, theirs = self.values, other.values
        return tuple(sorted(key for key in COMPARED & mine.keys() & theirs.keys() if mine[key] != theirs[key]))

    def serialize(self) -> bytes:
        """cuDNN's JSON, keys sorted, without spaces: equal properties have equal bytes."""
        return self._text.encode()

    def describe(self) -> Descriptor:
        """The backend descriptor, finalized; the caller owns it.

        PlanError NOT_SUPPORTED where cuDNN is older than 9.8, PREREQUISITE_MISSING where it lacks a library;
        InvalidArgument naming the keys that this cuDNN misses.
        """
        require_device_properties()
        prerequisites.prepare()
        descriptor = Descriptor(Kind.CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, f"device properties of {self}")
        try:
            descriptor.set_text(Attribute.CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, self.serialize())
            return descriptor.finalize()
        except CudnnError as error:
            descriptor.close()
            if error.status // 1000 != 2:  # not a bad parameter
                raise
            missing = ", ".join(sorted(KEYS - self.values.keys()))
            raise InvalidArgument(
                f"{self}: {f'without {missing}, which some versions need; ' * bool(missing)}{error}"
            ) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceProperties) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __str__(self) -> str:
        return f"{self.device_name or 'a device'} ({self.architecture}, {self.multiprocessors} multiprocessors)"

    def __repr__(self) -> str:
        return f"DeviceProperties({self})"
