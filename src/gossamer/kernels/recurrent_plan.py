"""How a recurrence is spread over programs: who owns which hidden units, and where the recurrent weights stay.

A step is a matrix product with a small batch whose weights are the same every time, so they are read once and held in
registers as far as they fit. Where they fit one program, it runs alone; else programs own parts of the hidden state and
exchange them through L2 at every step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from gossamer.kernels.extents import cdiv, power_of_two
from gossamer.kernels.gemm_tiles import uses_tensor_cores
from gossamer.program import Target, dtype_of

ALONE_BYTES = 64 * 1024
"""Recurrent weights that one program may hold: reading them from L2 at every step costs more than an exchange does."""
PART_BYTES = 64 * 1024
MOST_BYTES = 128 * 1024
"""Half of a multiprocessor's registers."""
STAGES = 3
"""Loads of R in flight where it is read anew."""
FEW_ROWS = 2
"""Batches up to this are multiplied element by element: an instruction of the tensor cores has 16 rows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Who does what.

    block_b: batch rows of a tile. block_h: hidden units that a program owns. block_k: of the state multiplied at once.
    groups: tiles of the batch that are worked on at once; where there are more, a group takes several in turn. held: a
    program keeps its rows of R in registers. shared: several programs make up one hidden state.
    """

    block_b: int
    block_h: int
    block_k: int
    num_warps: int
    multiply: str
    held: bool
    shared: bool
    groups: int

    def parts(self, hidden: int) -> int:
        return cdiv(hidden, self.block_h)


@lru_cache(maxsize=1024)
def choose_plan(batch: int, hidden: int, gates: int, directions: int, dtype: str, target: Target) -> Plan:
    """The plan for states of [batch, hidden] in independent directions. gates: multiplied at once, a power of two."""
    whole = power_of_two(hidden)
    if target.interpreted:
        block_b = power_of_two(min(batch, 64))
        return Plan(block_b, whole, whole, 4, "ieee", True, False, cdiv(batch, block_b))
    if batch <= FEW_ROWS:
        return _few_rows(batch, hidden, gates, directions, dtype, target)
    if uses_tensor_cores(dtype, target):
        return _tensor_cores(batch, hidden, gates, directions, dtype, target)
    plan = Plan(16, max(1, 64 // gates), 16, 4, "ieee", False, True, 1)
    return _fitted(_spread(plan, batch, hidden, directions, target), hidden, gates, dtype, target)


def _few_rows(batch: int, hidden: int, gates: int, directions: int, dtype: str, target: Target) -> Plan:
    itemsize, whole = max(4, dtype_of(dtype).itemsize), power_of_two(hidden)  # halves are held as fp32
    row = gates * whole * itemsize
    plan = Plan(power_of_two(batch), whole, whole, _warps(row * whole), "sum", True, False, 1)
    if row * whole <= ALONE_BYTES:
        return plan
    block_h = min(whole, max(1, PART_BYTES // row))
    while cdiv(hidden, block_h) * directions > target.sm_count:
        block_h *= 2
    if row * block_h <= MOST_BYTES:
        return replace(plan, block_h=block_h, num_warps=_warps(row * block_h), shared=True)
    plan = replace(plan, block_h=block_h, num_warps=8, held=False, shared=True)
    return _fitted(plan, hidden, gates, dtype, target)


def _tensor_cores(batch: int, hidden: int, gates: int, directions: int, dtype: str, target: Target) -> Plan:
    """A warp owns eight columns and the part of R that belongs to them: 128 registers a thread at most."""
    itemsize, whole = dtype_of(dtype).itemsize, max(16, power_of_two(hidden))
    multiply = "tf32" if dtype == "float32" else "ieee"
    alone = gates * whole * whole * itemsize <= ALONE_BYTES
    if alone:
        block_b = 16 if batch <= 16 * target.sm_count else 32
        warps = max(4, min(8, gates * whole // 8))
        return Plan(block_b, whole, whole, warps, multiply, True, False, cdiv(batch, block_b))
    plan = Plan(16, max(8, 32 // gates), whole, 4, multiply, whole * itemsize <= 2048, True, 1)
    return _fitted(_spread(plan, batch, hidden, directions, target), hidden, gates, dtype, target)


def _spread(plan: Plan, batch: int, hidden: int, directions: int, target: Target) -> Plan:
    """All programs of a launch wait for each other, so there may be no more than multiprocessors: larger parts, larger
    tiles of the batch, then several tiles in turn."""

    def programs(plan: Plan) -> int:
        return plan.parts(hidden) * directions

    while programs(plan) > target.sm_count // 2 and plan.num_warps < 8:
        plan = replace(plan, block_h=plan.block_h * 2, num_warps=plan.num_warps * 2)
    while programs(plan) > target.sm_count:
        plan = replace(plan, block_h=plan.block_h * 2, held=False)
    while cdiv(batch, plan.block_b) * programs(plan) > target.sm_count and plan.block_b < min(64, batch):
        plan = replace(plan, block_b=plan.block_b * 2)
    groups = min(cdiv(batch, plan.block_b), target.sm_count // programs(plan))
    return replace(plan, groups=max(1, groups))


def _fitted(plan: Plan, hidden: int, gates: int, dtype: str, target: Target) -> Plan:
    """R may stay where it is only if it fits shared memory, from which matrix instructions take it, next to the state;
    else as much of both as fits there STAGES times is read at a time."""
    itemsize, whole = dtype_of(dtype).itemsize, max(16, power_of_two(hidden))
    rows = plan.block_h * (3 if gates == 2 else gates)  # GRU multiplies its third gate apart
    if plan.held and (rows + plan.block_b) * whole * itemsize <= target.shared_bytes * 3 // 4:
        return replace(plan, block_k=whole)
    most = target.shared_bytes // 2 // STAGES // ((gates * plan.block_h + plan.block_b) * itemsize)
    return replace(plan, held=False, block_k=min(whole, 128, max(16, power_of_two(most + 1) // 2)))


def _warps(nbytes: int) -> int:
    """Warps that hold that many bytes in 64 registers a thread."""
    return max(4, min(16, power_of_two(nbytes // 8192)))
