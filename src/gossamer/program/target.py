"""Targets: what code is compiled for. Launch choices depend on these figures and on nothing else of a device."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gossamer.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU to compile for.

    arch: compute capability, major × 10 + minor. sm_count: multiprocessors. shared_bytes: shared memory a block may
    opt in to. interpreted: launches run in Triton's interpreter, where few large tiles are fast and occupancy means
    nothing. use_tf32: fp32 matrix products may round their operands to TF32. deterministic: no kernel whose result
    depends on the order of atomic operations. device: the ordinal of the GPU of this machine that it stands for, None
    where it stands for one that is not here. properties: what cuDNN is to know of such a one, as JSON; by default that
    of the architecture's representative (`gossamer.cudnn.DeviceProperties`).
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
        """`sm_80`, `sm_90` … with the figures of that architecture's data-centre part, or `interpreter`."""
        try:
            return KNOWN[name]
        except KeyError:
            raise InvalidArgument(f"unknown target '{name}'; known targets are {', '.join(KNOWN)}") from None

    def with_tf32(self, use_tf32: bool) -> Target:
        return replace(self, use_tf32=use_tf32)

    def with_deterministic(self, deterministic: bool) -> Target:
        return replace(self, deterministic=deterministic)


# Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (shared memory per block);
# multiprocessors of A100, L40S, H100/H200 SXM, B200 and RTX 5090 from NVIDIA's data sheets.
KNOWN = {
    target.name: target
    for target in (
        Target("sm_75", 75, 40, 65536),
        Target("sm_80", 80, 108, 166912),
        Target("sm_86", 86, 84, 101376),
        Target("sm_89", 89, 142, 101376),
        Target("sm_90", 90, 132, 232448),
        Target("sm_100", 100, 148, 232448),
        Target("sm_120", 120, 170, 101376),
        Target("interpreter", 90, 1, 232448, interpreted=True),
    )
}
