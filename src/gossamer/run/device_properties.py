"""A GPU's properties by cuDNN's keys, read off the driver: no cuDNN is needed to say what one would be told."""

from __future__ import annotations

from typing import Any

from gossamer.cudnn.device_properties import DeviceProperties
from gossamer.run import driver

_ATTRIBUTES = {
    "multiProcessorCount": "MULTIPROCESSOR_COUNT",
    "warpSize": "WARP_SIZE",
    "maxThreadsPerBlock": "MAX_THREADS_PER_BLOCK",
    "maxThreadsPerSM": "MAX_THREADS_PER_MULTIPROCESSOR",
    "maxCtasPerSM": "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "regsPerBlock": "MAX_REGISTERS_PER_BLOCK",
    "maxRegistersPerSM": "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "maxSharedMemoryPerBlock": "MAX_SHARED_MEMORY_PER_BLOCK",
    "maxSharedMemoryPerBlockOptin": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "reservedSharedMemoryPerBlock": "RESERVED_SHARED_MEMORY_PER_BLOCK",
    "l2CacheSize": "L2_CACHE_SIZE",
    "memoryBusWidth": "GLOBAL_MEMORY_BUS_WIDTH",
    "smClockRateKHz": "CLOCK_RATE",
    "memClockRateKHz": "MEMORY_CLOCK_RATE",
    "supportCoopLaunch": "COOPERATIVE_LAUNCH",
    "isTccDriver": "TCC_DRIVER",
    "pciDeviceId": "PCI_DEVICE_ID",
}
"""cuDNN's key → the end of the driver's name for the attribute."""


def device_properties(ordinal: int = 0) -> DeviceProperties:
    """Of a GPU of this machine: every key of `gossamer.cudnn.device_properties.KEYS`, with the value that cuDNN reads.

    Raises DeviceNotFound, saying what was looked for; DriverError.
    """
    device = driver.device(ordinal)
    values: dict[str, Any] = {key: device.attribute(name) for key, name in _ATTRIBUTES.items()}
    for key, name in {"maxBlockSize": "MAX_BLOCK_DIM", "maxGridSize": "MAX_GRID_DIM"}.items():
        values[key] = [device.attribute(f"{name}_{axis}") for axis in "XYZ"]
    values |= {
        "deviceName": device.name,
        "deviceVer": 10 * device.arch,
        "cudaDeviceId": ordinal,
        "driverVer": driver.call("cuDriverGetVersion", doing="asking for the driver's version"),
        "totalGlobalMem": driver.call(
            "cuDeviceTotalMem", device.handle, doing=f"asking for the memory of GPU {ordinal}"
        ),
    }
    return DeviceProperties(values)
