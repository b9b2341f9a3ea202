"""Tensors as they cross the boundary between the caller's session and the executor, in device memory or the host's."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gossamer.errors import InvalidArgument
from gossamer.run import driver


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTensor:
    """A dense row-major tensor in the memory of one GPU.

    pointer: device address of the first element. shape: sizes in elements. owner: whatever keeps the memory alive; it
    is only held, never looked into, and is None where the caller answers for that.
    """

    pointer: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    device_id: int
    owner: object = None

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


Tensor: TypeAlias = np.ndarray[Any, np.dtype[Any]] | DeviceTensor


def check_bound(name: str, target: Tensor, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raises InvalidArgument where an output does not fit what the caller bound for it."""
    if tuple(target.shape) != shape or target.dtype != dtype:
        raise InvalidArgument(
            f"output '{name}' is {dtype.name}{list(shape)}, but is bound to {target.dtype.name}{list(target.shape)}"
        )


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def is_dense(shape: Sequence[int], strides: Sequence[float]) -> bool:
    """Whether elements with these strides (in elements) are contiguous and row-major. The stride of an extent of 1 is
    free.
    """
    if 0 in shape:
        return True
    expected = dense_strides(shape)
    return all(extent == 1 or given == dense for extent, given, dense in zip(shape, strides, expected, strict=True))


def owned_tensor(shape: tuple[int, ...], dtype: np.dtype[Any], device_id: int) -> DeviceTensor:
    """An uninitialised tensor whose memory is freed when the last reference to it goes.

    What is alive when the process ends is left to its end. Raises OutOfMemory, DeviceNotFound.
    """
    owner = _Owner()
    memory = driver.allocate(math.prod(shape) * dtype.itemsize, device_id, doing="making a tensor")
    weakref.finalize(owner, memory.close).atexit = False
    return DeviceTensor(memory.pointer, dtype, shape, device_id, owner)


class _Owner:
    """Something to hang a finaliser on."""
