"""Targets: what code is compiled for. Launch choices depend on these figures and on nothing else of a device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gossamer.errors import InvalidArgument, NoSuchFile
from gossamer.program.shipped_devices import shipped_device


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU to compile for.

    arch: compute capability, major × 10 + minor. sm_count: multiprocessors. shared_bytes: shared memory a block may
    opt in to. interpreted: launches run in Triton's interpreter, where few large tiles are fast and occupancy means
    nothing. use_tf32: fp32 matrix products may round their operands to TF32. deterministic: no kernel whose result
    depends on the order of atomic operations. device: the ordinal of the GPU of this machine that it stands for, None
    where it stands for one that is not here. properties: what cuDNN is to know of such a one, as JSON
    (`gossamer.cudnn.DeviceProperties`).
    """

    name: str
    arch: int
    sm_count: int
    shared_bytes: int
    interpreted: bool = False
    use_tf32: bool = True
    deterministic: bool = False
    device: int | None = None
    properties: str = ""

    @staticmethod
    def named(name: str) -> Target:
        """What a target's name means, wherever one is taken: `gossamer target list` has the names.

        name: an architecture (`sm_90`: the device that stands for its kind), a device that Gossamer ships the figures
        of (`h100-pcie`), in any case; a JSON file of device properties, as `gossamer target dump` writes them, after
        which the target is named; or `interpreter`.

        Raises InvalidArgument for an unknown name, listing the known ones, and for a file that has no properties;
        NoSuchFile.
        """
        if name == "interpreter":
            return Target(name, 90, 1, 232448, interpreted=True)
        if name.lower().endswith(".json"):
            return Target.of_properties(Path(name).stem, _read(Path(name)))
        try:
            device = shipped_device(name)
        except InvalidArgument as error:
            raise InvalidArgument(f"unknown target: {error}; {_OTHERS}") from None
        known_as = device.architecture if name.lower().startswith("sm") else device.name
        return Target.of_properties(known_as, device.properties)

    @staticmethod
    def of_properties(name: str, properties: Mapping[str, Any]) -> Target:
        """The target with these properties, by cuDNN's keys. InvalidArgument where a figure is missing or is none."""
        arch, sm_count, shared_bytes = (_figure(name, properties, key) for key in _FIGURES)
        text = json.dumps(dict(properties), sort_keys=True, separators=(",", ":"))
        return Target(name, arch // 10, sm_count, shared_bytes, properties=text)

    def with_tf32(self, use_tf32: bool) -> Target:
        return replace(self, use_tf32=use_tf32)

    def with_deterministic(self, deterministic: bool) -> Target:
        return replace(self, deterministic=deterministic)


_FIGURES = ("deviceVer", "multiProcessorCount", "maxSharedMemoryPerBlockOptin")
"""cuDNN's keys for the figures of a target; of the first one, ten times the compute capability counts."""

_OTHERS = "for any other GPU, run `gossamer target dump -o FILE.json` where it is, and name the file"


def _read(path: Path) -> Mapping[str, Any]:
    try:
        properties = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise NoSuchFile(f"target {path}: no such file") from None
    except OSError as error:
        raise InvalidArgument(f"target {path}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidArgument(f"target {path}: no JSON: {error}") from None
    if not isinstance(properties, dict):
        raise InvalidArgument(f"target {path}: device properties are a JSON object, not {type(properties).__name__}")
    return properties


def _figure(name: str, properties: Mapping[str, Any], key: str) -> int:
    value = properties.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise InvalidArgument(f"target {name}: {key} is {value!r}, a positive whole number is wanted")
    return value
