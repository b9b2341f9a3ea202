"""Host memory that stands in for device memory, for tests of what the session does with addresses.

Only the functions of `gossamer.run.driver` that the session calls are replaced. Addresses are real, so a wrong copy
crashes or gives wrong numbers; memory is full of 0xFF when it is given back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from gossamer.run import driver


@dataclass
class FakeDriver:
    live: dict[int, np.ndarray] = field(default_factory=dict)
    waited: list[tuple[int, int]] = field(default_factory=list)
    """(stream, device); stream -1 for the whole device."""

    def allocate(self, nbytes: int, device_id: int = 0, *, doing: str = "") -> FakeMemory:
        memory = np.zeros(nbytes, np.uint8)
        self.live[memory.ctypes.data] = memory
        return FakeMemory(self, memory.ctypes.data)

    def bytes_at(self, pointer: int, nbytes: int) -> np.ndarray:
        """The memory at an address, which must be live."""
        base = max(start for start in self.live if start <= pointer)
        offset = pointer - base
        assert offset + nbytes <= self.live[base].nbytes, "outside of device memory"
        return self.live[base][offset : offset + nbytes]

    def copy_to_device(self, pointer: int, array: np.ndarray, device_id: int = 0) -> None:
        assert array.flags.c_contiguous
        self.bytes_at(pointer, array.nbytes)[...] = array.reshape(-1).view(np.uint8)

    def copy_to_host(self, array: np.ndarray, pointer: int, device_id: int = 0) -> None:
        assert array.flags.c_contiguous
        array.reshape(-1).view(np.uint8)[...] = self.bytes_at(pointer, array.nbytes)

    def copy_on_device(self, target: int, source: int, nbytes: int, device_id: int = 0) -> None:
        self.bytes_at(target, nbytes)[...] = self.bytes_at(source, nbytes)

    def synchronize_stream(self, stream: int, device_id: int = 0) -> None:
        self.waited.append((stream, device_id))

    def synchronize(self, device_id: int = 0) -> None:
        self.waited.append((-1, device_id))

    def device_of(self, pointer: int) -> int:
        return 0

    def require_device(self, ordinal: int) -> None:
        assert ordinal == 0


@dataclass
class FakeMemory:
    owner: FakeDriver
    pointer: int

    def close(self) -> None:
        self.owner.live.pop(self.pointer)[...] = 0xFF


def install(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """Replace the driver for one test, and say that the device is a GPU."""
    fake = FakeDriver()
    for name in (name for name in vars(FakeDriver) if not name.startswith("_") and name != "bytes_at"):
        monkeypatch.setattr(driver, name, getattr(fake, name))
    monkeypatch.setenv("GOSSAMER_DEVICE", "cuda")
    return fake
